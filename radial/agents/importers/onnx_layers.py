"""The rule of each ONNX operator: the registry `OPERATORS`, in plain sight; only of those that bounds cover."""

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from radial.agents.importers.inert import refuse, short
from radial.agents.importers.onnx_graph import OnnxNode

FLOAT = 1  # ONNX's number of float32
CONV = {3: nn.Conv1d, 4: nn.Conv2d}


@dataclass(frozen=True)
class Operand:
    """The operand with this number, in the arguments of a function."""

    index: int


@dataclass(frozen=True)
class Call:
    """A torch function and its arguments."""

    function: Callable[..., Any]
    args: Sequence[Any]


@dataclass(frozen=True)
class Operation:
    """A node with its operands: values on the meta device (`moves`), constants with their numbers."""

    node: OnnxNode
    operands: Sequence[Any]
    moves: Sequence[bool]
    version: int
    batch: int

    @property
    def x(self) -> Tensor:
        """The first operand, which must depend on the input."""
        if not self.moves[0] or any(self.moves[1:]):
            self.refuse("must act on one value that depends on the input, and that first")
        found: Tensor = self.operands[0]
        return found

    def refuse(self, why: str) -> NoReturn:
        """Stop reading."""
        refuse(f"its operator {short(self.node.op)} {why}")

    def setting(self, name: str, default: Any) -> Any:
        """A setting of the node, of the type of its default."""
        told = self.node.settings.get(name, default)
        if default is not None and type(told) is not type(default):
            self.refuse(f"has a {short(name)} of another type")
        return told

    def constant(self, index: int, axes: int | None = None) -> Tensor | None:
        """A constant operand as float32; None: it is left out."""
        if index >= len(self.operands) or self.operands[index] is None:
            return None
        found: Tensor = self.operands[index]
        if self.moves[index] or (axes is not None and found.ndim != axes):
            self.refuse(f"must have a constant with {axes} axes as operand {index + 1}")
        if not bool(found.isfinite().all()):
            self.refuse("has a constant with NaN or infinity")
        return found.float()

    def needed(self, index: int, axes: int | None = None) -> Tensor:
        """A constant operand that must be there."""
        found = self.constant(index, axes)
        return found if found is not None else self.refuse(f"has no operand {index + 1}")

    def numbers(self, name: str, index: int) -> list[int] | None:
        """Whole numbers, in a setting as older versions have them or in a constant operand; None: not given."""
        if name in self.node.settings:
            return list(self.setting(name, []))
        found = self.operands[index] if index < len(self.operands) else None
        if found is None:
            return None
        if self.moves[index] or found.is_floating_point() or found.ndim > 1 or found.numel() > 64:
            self.refuse(f"must have few whole numbers as operand {index + 1}")
        return [int(number) for number in found.flatten().tolist()]

    def axes(self, given: Sequence[int] | None, axes: int) -> list[int]:
        """Axes counted from the front, never the batch axis."""
        if not given or any(not -axes <= axis < axes for axis in given):
            self.refuse("must name the axes it acts on")
        found = [axis % axes for axis in given or ()]
        if 0 in found:
            self.refuse("acts on the batch axis")
        return found


Made = Sequence[nn.Module] | Call


def _linear(step: Operation, weight: Tensor, bias: Tensor | None) -> list[nn.Module]:
    if step.x.ndim != 2 or step.x.shape[1] != weight.shape[1]:
        step.refuse(f"takes {weight.shape[1]} numbers, got the shape {tuple(step.x.shape)}")
    layer = nn.utils.skip_init(nn.Linear, weight.shape[1], weight.shape[0], bias=bias is not None)
    with torch.no_grad():
        layer.weight.copy_(weight)
        if bias is not None:
            layer.bias.copy_(bias.expand(weight.shape[0]) if bias.ndim < 2 else bias[0])
    return [layer]


def _gemm(step: Operation) -> Made:
    """α·x·W + β·b."""
    if step.setting("transA", 0):
        step.refuse("transposes the value, and so mixes samples")
    weight, bias = step.needed(1, 2), step.constant(2)
    weight = weight if step.setting("transB", 0) else weight.T
    if bias is not None and (bias.ndim > 2 or (bias.ndim == 2 and bias.shape[0] != 1)):
        step.refuse("has a bias that differs between samples")
    if bias is not None and bias.numel() not in (1, weight.shape[0]):
        step.refuse("has a bias of another length than its matrix")
    alpha, beta = step.setting("alpha", 1.0), step.setting("beta", 1.0)
    return _linear(step, weight * alpha, None if bias is None else bias * beta)


def _matmul(step: Operation) -> Made:
    return _linear(step, step.needed(1, 2).T, None)


def _pads(
    step: Operation, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> list[tuple[int, int]]:
    """How much is added before and after each axis."""
    way, count = step.setting("auto_pad", "NOTSET"), len(kernel)
    if way in ("NOTSET", "VALID"):
        pads = list(step.setting("pads", [0] * 2 * count)) if way == "NOTSET" else [0] * 2 * count
        if len(pads) != 2 * count or any(not 0 <= pad < 1 << 16 for pad in pads):
            step.refuse("has pads that do not fit its kernel")
        return list(zip(pads[:count], pads[count:], strict=True))
    if way not in ("SAME_UPPER", "SAME_LOWER"):
        step.refuse(f"pads in the unknown way {short(way)}")
    found = []
    for size, width, stride, dilation in zip(step.x.shape[2:], kernel, strides, dilations, strict=True):
        total = max((math.ceil(size / stride) - 1) * stride + dilation * (width - 1) + 1 - size, 0)
        less, more = total // 2, total - total // 2
        found.append((less, more) if way == "SAME_UPPER" else (more, less))
    return found


def _steps(step: Operation, name: str, count: int) -> list[int]:
    told = list(step.setting(name, [1] * count))
    if len(told) != count or any(not 0 < each < 1 << 16 for each in told):
        step.refuse(f"has {name} that do not fit its kernel")
    return told


def _padded(step: Operation, pads: list[tuple[int, int]]) -> tuple[list[nn.Module], list[int]]:
    """A layer for pads that differ between the two sides, and the pads that are left to the layer itself."""
    if all(before == after for before, after in pads):
        return [], [before for before, _ in pads]
    if len(pads) != 2:
        step.refuse("pads one side more than the other")
    (top, bottom), (left, right) = pads
    return [nn.ZeroPad2d((left, right, top, bottom))], [0, 0]


def _conv(step: Operation) -> Made:
    weight, bias = step.needed(1), step.constant(2, 1)
    if weight.ndim not in CONV or step.x.ndim != weight.ndim or 0 in weight.shape:
        step.refuse("must have one or two axes besides channels")
    kernel = list(weight.shape[2:])
    strides, dilations = _steps(step, "strides", len(kernel)), _steps(step, "dilations", len(kernel))
    groups = step.setting("group", 1)
    if groups < 1 or weight.shape[0] % groups or (bias is not None and len(bias) != weight.shape[0]):
        step.refuse("has groups or a bias that do not fit its kernel")
    front, padding = _padded(step, _pads(step, kernel, strides, dilations))
    shape = (weight.shape[1] * groups, weight.shape[0], tuple(kernel), tuple(strides), tuple(padding), tuple(dilations))
    layer: Any = nn.utils.skip_init(CONV[weight.ndim], *shape, groups, bias is not None)
    with torch.no_grad():
        layer.weight.copy_(weight)
        if bias is not None:
            layer.bias.copy_(bias)
    return [*front, layer]


def _pool(step: Operation) -> Made:
    kernel = list(step.setting("kernel_shape", []))
    if step.x.ndim != 4 or len(kernel) != 2 or any(not 0 < size < 1 << 16 for size in kernel):
        step.refuse("must pool rows and columns")
    strides, dilations = _steps(step, "strides", 2), _steps(step, "dilations", 2)
    pads = _pads(step, kernel, strides, dilations)
    if any(before != after for before, after in pads):
        step.refuse("pads one side more than the other")
    window, padding, up = tuple(kernel), (pads[0][0], pads[1][0]), bool(step.setting("ceil_mode", 0))
    stride = (strides[0], strides[1])
    if step.node.op == "MaxPool":
        return [nn.MaxPool2d(window, stride, padding, (dilations[0], dilations[1]), ceil_mode=up)]
    if dilations != [1, 1]:
        step.refuse("has gaps in its kernel")
    return [nn.AvgPool2d((kernel[0], kernel[1]), stride, padding, up, bool(step.setting("count_include_pad", 0)))]


def _global_average(step: Operation) -> Made:
    return Call(torch.mean, [Operand(0), list(range(2, step.x.ndim)), True])


def _clip(step: Operation) -> Made:
    ends: list[float | None] = []
    for i, name in enumerate(("min", "max")):
        found = step.constant(i + 1)
        if found is not None and found.numel() != 1:
            step.refuse("cuts at more than one number")
        ends.append(step.node.settings.get(name) if found is None else float(found))
    low, high = ends
    if low is not None and high is not None and low < high:
        assert step.x is not None
        return [nn.Hardtanh(low, high)]
    return Call(torch.clamp, [Operand(0), low, high])


def _activation(make: Callable[[Operation], nn.Module]) -> Callable[[Operation], Made]:
    def layer(step: Operation) -> Made:
        assert step.x is not None
        return [make(step)]

    return layer


def _gelu(step: Operation) -> nn.Module:
    way = step.setting("approximate", "none")
    return nn.GELU(way) if way in ("none", "tanh") else step.refuse(f"approximates in the unknown way {short(way)}")


def _to(step: Operation, shape: Sequence[int]) -> Made:
    """A reshape that keeps the batch axis, which may then be of any size."""
    try:
        made = list(step.x.reshape(list(shape)).shape)
    except RuntimeError:
        step.refuse(f"does not fit a value of the shape {tuple(step.x.shape)}")
    if not made or made[0] != step.batch:
        step.refuse("does not keep the batch axis first")
    if len(made) == 2:
        return [nn.Flatten()] if step.x.ndim > 1 else []
    return Call(torch.reshape, [Operand(0), [-1, *made[1:]]])


def _reshape(step: Operation) -> Made:
    shape = step.numbers("shape", 1) or []
    if not step.setting("allowzero", 0):
        shape = [step.x.shape[i] if size == 0 and i < step.x.ndim else size for i, size in enumerate(shape)]
    return _to(step, shape)


def _flatten(step: Operation) -> Made:
    if step.setting("axis", 1) not in (1, 1 - step.x.ndim):
        step.refuse("does not keep the batch axis first")
    return [nn.Flatten()]


def _squeeze(step: Operation) -> Made:
    axes = step.axes(step.numbers("axes", 1), step.x.ndim)
    if any(step.x.shape[axis] != 1 for axis in axes):
        step.refuse("removes an axis that is not of length 1")
    return _to(step, [size for axis, size in enumerate(step.x.shape) if axis not in axes])


def _unsqueeze(step: Operation) -> Made:
    given = step.numbers("axes", 1) or []
    axes = step.axes(given, step.x.ndim + len(given))
    sizes = iter(step.x.shape)
    return _to(step, [1 if axis in axes else next(sizes) for axis in range(step.x.ndim + len(axes))])


def _transpose(step: Operation) -> Made:
    order = list(step.setting("perm", list(range(step.x.ndim))[::-1]))
    if sorted(order) != list(range(step.x.ndim)) or order[0] != 0:
        step.refuse("moves the batch axis")
    return Call(torch.permute, [Operand(0), order])


def _same(step: Operation) -> Made:
    if step.node.op == "Cast" and step.setting("to", 0) != FLOAT:
        step.refuse("must convert to float32")
    training = step.operands[2] if step.node.op == "Dropout" and len(step.operands) > 2 else None
    if training is not None and bool(training.any()):
        step.refuse("is in train mode")
    return [nn.Identity()]


def _batch_norm(step: Operation) -> Made:
    if step.setting("training_mode", 0) or step.x.ndim not in (2, 3, 4):
        step.refuse("is in train mode, or has too many axes")
    scale, bias, mean, variance = (step.needed(i, 1) for i in range(1, 5))
    kind = nn.BatchNorm2d if step.x.ndim == 4 else nn.BatchNorm1d
    if len({len(each) for each in (scale, bias, mean, variance)}) != 1 or bool((variance < 0).any()):
        step.refuse("has statistics that do not fit, or a negative variance")
    layer = kind(len(scale), eps=step.setting("epsilon", 1e-5)).eval()
    layer.load_state_dict(
        {"weight": scale, "bias": bias, "running_mean": mean, "running_var": variance,
         "num_batches_tracked": torch.tensor(0)}
    )  # fmt: skip
    return [layer]


def _layer_norm(step: Operation) -> Made:
    axis = step.setting("axis", -1) % max(step.x.ndim, 1)
    shape, scale, bias = list(step.x.shape[axis:]), step.needed(1), step.constant(2)
    if axis == 0 or list(scale.shape) != shape or (bias is not None and list(bias.shape) != shape):
        step.refuse("must have a scale and a bias of the axes it acts on")
    layer = nn.LayerNorm(shape, eps=step.setting("epsilon", 1e-5))
    layer.load_state_dict({"weight": scale, "bias": torch.zeros(shape) if bias is None else bias})
    return [layer]


def _pair(function: Callable[..., Tensor]) -> Callable[[Operation], Made]:
    """A function of two operands, of which one may be a constant that is the same for all samples."""

    def call(step: Operation) -> Made:
        if len(step.operands) != 2:
            step.refuse("must have two operands")
        axes = max(each.ndim for each, moves in zip(step.operands, step.moves, strict=True) if moves)
        args: list[Any] = []
        for i, (each, moves) in enumerate(zip(step.operands, step.moves, strict=True)):
            if moves and each.ndim != axes:
                step.refuse("combines values of different numbers of axes")
            if not moves and (each.ndim > axes or (each.ndim == axes and each.shape[0] != 1)):
                step.refuse("has a constant that differs between samples")
            args.append(Operand(i) if moves else step.needed(i))
        if function is torch.div and step.moves[1]:
            step.refuse("divides by a value that depends on the input")
        return Call(function, args)

    return call


def _concat(step: Operation) -> Made:
    if not all(step.moves):
        step.refuse("joins a constant")
    (axis,) = step.axes([step.setting("axis", 0)], step.operands[0].ndim)
    return Call(torch.cat, [[Operand(i) for i in range(len(step.operands))], axis])


def _reduce(function: Callable[..., Tensor]) -> Callable[[Operation], Made]:
    def call(step: Operation) -> Made:
        axes = step.axes(step.numbers("axes", 1), step.x.ndim)
        return Call(function, [Operand(0), axes, bool(step.setting("keepdims", 1))])

    return call


def _slice(step: Operation) -> Made:
    names = ("starts", "ends", "axes", "steps")
    starts, ends, axes, strides = (step.numbers(name, i + 1) for i, name in enumerate(names))
    if starts is None or ends is None or len(starts) != len(ends):
        step.refuse("must say where it begins and ends")
    found = step.axes(list(range(len(starts))) if axes is None else axes, step.x.ndim)
    strides = [1] * len(starts) if strides is None else strides
    if not len(found) == len(strides) == len(starts) or any(each < 1 for each in strides):
        step.refuse("must have an axis and a positive stride for each of its ranges")
    index = [slice(None)] * step.x.ndim
    for axis, start, end, stride in zip(found, starts, ends, strides, strict=True):
        index[axis] = slice(start, end, stride)
    return Call(operator.getitem, [Operand(0), tuple(index)])


def _gather(step: Operation) -> Made:
    (axis,) = step.axes([step.setting("axis", 0)], step.x.ndim)
    which = step.operands[1]
    size = step.x.shape[axis]
    if which.is_floating_point() or which.ndim > 1 or bool(((which < -size) | (which >= size)).any()):
        step.refuse("must pick by whole numbers inside the axis")
    front = (slice(None),) * axis
    if which.ndim == 0:
        return Call(operator.getitem, [Operand(0), (*front, int(which))])
    return Call(operator.getitem, [Operand(0), (*front, which.long() % size)])


OPERATORS: dict[str, Callable[[Operation], Made]] = {
    "Gemm": _gemm, "MatMul": _matmul, "Conv": _conv,
    "Relu": _activation(lambda step: nn.ReLU()),
    "Tanh": _activation(lambda step: nn.Tanh()),
    "Sigmoid": _activation(lambda step: nn.Sigmoid()),
    "LeakyRelu": _activation(lambda step: nn.LeakyReLU(step.setting("alpha", 0.01))),
    "Elu": _activation(lambda step: nn.ELU(step.setting("alpha", 1.0))),
    "Softplus": _activation(lambda step: nn.Softplus()),
    "Gelu": _activation(_gelu),
    "Clip": _clip, "MaxPool": _pool, "AveragePool": _pool, "GlobalAveragePool": _global_average,
    "BatchNormalization": _batch_norm, "LayerNormalization": _layer_norm,
    "Flatten": _flatten, "Reshape": _reshape, "Squeeze": _squeeze, "Unsqueeze": _unsqueeze, "Transpose": _transpose,
    "Identity": _same, "Dropout": _same, "Cast": _same,
    "Add": _pair(torch.add), "Sub": _pair(torch.sub), "Mul": _pair(torch.mul), "Div": _pair(torch.div),
    "Neg": lambda step: Call(torch.neg, [Operand(0)]),
    "Concat": _concat, "ReduceMean": _reduce(torch.mean), "ReduceSum": _reduce(torch.sum),
    "Slice": _slice, "Gather": _gather,
}  # fmt: skip
