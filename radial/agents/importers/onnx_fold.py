"""Operators of an ONNX graph on constants alone: exporters compute shapes and combine weights with them."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from radial.agents.importers.inert import refuse, short
from radial.agents.importers.onnx_graph import ONNX_TYPES, OnnxNode

LARGEST = 1 << 24  # numbers in one constant
TYPES = {1: torch.float32, 11: torch.float64, 10: torch.float16, 6: torch.int32, 7: torch.int64, 9: torch.bool}
VALUES = {"value": None, "value_float": torch.float32, "value_int": torch.int64, "value_floats": torch.float32,
          "value_ints": torch.int64}  # fmt: skip
assert TYPES.keys() <= ONNX_TYPES.keys()


def fold(node: OnnxNode, operands: Sequence[Tensor | None]) -> Tensor:
    """The constant that a node makes of constants."""
    if node.op == "Constant":
        return _constant(node)
    if node.op not in FOLDS or not operands or any(each is None for each in operands):
        refuse(f"its operator {short(node.op)} on constants has no rule here")
    given = [each for each in operands if each is not None]
    try:
        like = FOLDS[node.op](node, [each.to("meta") if i in _DATA.get(node.op, (0, 1)) else each
                                     for i, each in enumerate(given)])  # fmt: skip
        if like.numel() > LARGEST:
            refuse(f"its operator {short(node.op)} makes a constant of {like.numel()} numbers")
        return FOLDS[node.op](node, given)
    except (RuntimeError, TypeError, IndexError, KeyError) as error:
        refuse(f"its operator {short(node.op)} does not fit its constants: {str(error).splitlines()[0][:120]}")


def _constant(node: OnnxNode) -> Tensor:
    told = [name for name in VALUES if name in node.settings]
    if len(told) != 1 or len(node.settings) != 1:
        refuse("a constant in it must have one value, of numbers")
    value = node.settings[told[0]]
    return value if isinstance(value, Tensor) else torch.tensor(value, dtype=VALUES[told[0]])


def _axes(node: OnnxNode, operands: Sequence[Tensor]) -> list[int]:
    return [int(axis) for axis in (node.settings["axes"] if "axes" in node.settings else operands[1].tolist())]


def _unsqueeze(node: OnnxNode, operands: Sequence[Tensor]) -> Tensor:
    made = operands[0]
    axes = _axes(node, operands)
    for axis in sorted(axis % (made.ndim + len(axes)) for axis in axes):
        made = made.unsqueeze(axis)
    return made


def _slice(node: OnnxNode, operands: Sequence[Tensor]) -> Tensor:
    names = ("starts", "ends", "axes", "steps")
    told: list[Any] = [node.settings.get(name) for name in names]
    for i, each in enumerate(operands[1:5]):
        told[i] = each.tolist()
    starts, ends, axes, steps = told
    made = operands[0]
    for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
        index = [slice(None)] * made.ndim
        index[i if axes is None else axes[i]] = slice(start, end, None if steps is None else steps[i])
        made = made[tuple(index)]
    return made


def _gather(node: OnnxNode, operands: Sequence[Tensor]) -> Tensor:
    data, which = operands
    axis = node.settings.get("axis", 0)
    return data.select(axis, int(which)) if which.ndim == 0 else data.index_select(axis, which.long())


def _divide(one: Tensor, other: Tensor) -> Tensor:
    whole = not one.is_floating_point() and not other.is_floating_point()
    return torch.div(one, other, rounding_mode="trunc" if whole else None)


def _pair(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[[OnnxNode, Sequence[Tensor]], Tensor]:
    return lambda node, operands: function(*operands)


# The operands that are data; of the others the numbers decide the shape.
_DATA: dict[str, tuple[int, ...]] = {
    "Unsqueeze": (0,), "Squeeze": (0,), "Slice": (0,), "Gather": (0,), "Reshape": (0,), "Concat": tuple(range(64)),
}  # fmt: skip
FOLDS: dict[str, Callable[[OnnxNode, Sequence[Tensor]], Tensor]] = {
    "Identity": lambda node, operands: operands[0],
    "Cast": lambda node, operands: operands[0].to(TYPES[node.settings["to"]]),
    "Shape": lambda node, operands: torch.tensor(operands[0].shape),
    "Neg": lambda node, operands: -operands[0],
    "Add": _pair(torch.add), "Sub": _pair(torch.sub), "Mul": _pair(torch.mul), "Div": _pair(_divide),
    "MatMul": _pair(torch.matmul),
    "Transpose": lambda node, operands: operands[0].permute(
        node.settings.get("perm", list(range(operands[0].ndim))[::-1])
    ),
    "Unsqueeze": _unsqueeze,
    "Squeeze": lambda node, operands: operands[0].squeeze(_axes(node, operands)),
    "Concat": lambda node, operands: torch.cat(list(operands), node.settings["axis"]),
    "Gather": _gather, "Slice": _slice,
    "Reshape": lambda node, operands: operands[0].reshape(operands[1].tolist()),
    "ReduceMean": lambda node, operands: operands[0].mean(
        _axes(node, operands), keepdim=bool(node.settings.get("keepdims", 1))
    ),
}  # fmt: skip
