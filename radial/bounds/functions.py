"""The rule of each torch function and tensor method: the registry `FUNCTIONS`, in plain sight.

After the context, each rule has the signature of its function; it returns an operator and its inputs, or a plain
value for questions about shapes. Uses that would mix the samples of a batch are refused.
"""

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from radial.bounds.affine import Combine, Concatenate, Convolution, Op, Positive, Scale
from radial.bounds.layers import (
    Applied,
    Context,
    UnsupportedLayer,
    avg_pool,
    check_alone,
    clamp,
    dense,
    elu,
    flatten,
    gelu,
    layer_norm,
    leaky_relu,
    max_pool,
    pad,
    same,
    softplus,
    transposed_convolution,
)
from radial.bounds.nonlinear import Product, ReLU, Sigmoid, Tanh
from radial.bounds.smooth import SiLU
from radial.core.data import BadInput


def function_op(context: Context, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The operator of a function or method call, or the error that names it."""
    rule = FUNCTIONS.get(context.node.target)
    if rule is _get_item and isinstance(args[0], tuple) and isinstance(args[1], int):
        return args[0][args[1]]  # of the pair that an LSTM returns
    if rule is None:
        home = "method" if context.node.op == "call_method" else "function"
        raise UnsupportedLayer(
            f"no bound rule for the {home} {context.what} at {context.place}; write one in bounds/affine.py or "
            "bounds/nonlinear.py and add a row to FUNCTIONS in bounds/functions.py"
        )
    if not args:
        context.refuse(f"{context.what} called with keywords only")
    if rule not in _OF_SEVERAL and not (_is_set(args[0]) and sum(map(_is_set, [*args, *kwargs.values()])) == 1):
        context.refuse(f"{context.what} with more than its first operand depending on the input")
    if kwargs.get("inplace"):
        check_alone(context)
    kwargs = {name: value for name, value in kwargs.items() if name != "inplace"}
    try:
        return rule(context, *args, **kwargs)
    except TypeError as error:
        raise UnsupportedLayer(f"no bound rule for this use of {context.what} at {context.place}: {error}") from error


def _is_set(value: Any) -> bool:
    return hasattr(value, "interval")


def _clamp(context: Context, x: Any, min: Any = None, max: Any = None) -> Applied:
    return Applied(clamp(context, min, max), [x])


def _relu_in_place(context: Context, x: Any) -> Applied:
    check_alone(context)
    return Applied(ReLU(), [x])


def _functional_dropout(context: Context, x: Any, p: float = 0.5, training: bool = True) -> Applied:
    if training:
        raise BadInput(f"network must be in eval mode: dropout at {context.place} is in train mode")
    return Applied(Positive(same), [x])


def _functional_max_pool(
    context: Context,
    x: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Applied:
    layer = nn.MaxPool2d(kernel_size, stride or kernel_size, padding, dilation, return_indices, ceil_mode)
    return Applied(max_pool(context, layer), [x])


def _functional_avg_pool(context: Context, x: Any, kernel_size: Any, *args: Any, **kwargs: Any) -> Applied:
    return Applied(avg_pool(context, nn.AvgPool2d(kernel_size, *args, **kwargs)), [x])


def _functional_linear(context: Context, x: Any, weight: Tensor, bias: Tensor | None = None) -> Applied:
    return Applied(dense(context, weight, bias), [x])


def _functional_conv(
    context: Context,
    x: Any,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Applied:
    axes = weight.ndim - 2
    if isinstance(padding, str):
        context.refuse(f"padding {padding!r}")
    stride, padding, dilation = (
        [value] * axes if isinstance(value, int) else list(value) for value in (stride, padding, dilation)
    )
    wide = context.weight(weight)
    assert wide is not None
    context.needs_axes(weight.ndim)
    return Applied(Convolution(wide, context.weight(bias), stride, padding, dilation, groups), [x])


def _matmul(context: Context, x: Any, other: Any) -> Applied:
    if not _is_set(x) or not isinstance(other, Tensor) or other.ndim != 2:
        context.refuse("a matrix product other than input @ constant matrix")
    return Applied(dense(context, other.T, None), [x])


def _add(context: Context, a: Any, b: Any, *, alpha: float = 1) -> Applied:
    return _sum(context, a, b, float(alpha))


def _subtract(context: Context, a: Any, b: Any, *, alpha: float = 1) -> Applied:
    return _sum(context, a, b, -float(alpha))


def _in_place(rule: Callable[..., Applied]) -> Callable[..., Any]:
    """The rule of an augmented assignment: that of its operator, if nothing else reads the memory it overwrites."""

    def checked(context: Context, a: Any, b: Any) -> Applied:
        if not _is_set(a):
            context.refuse(f"{context.what}, which writes into a tensor that does not depend on the input,")
        check_alone(context)
        return rule(context, a, b)

    return checked


def _sum(context: Context, a: Any, b: Any, sign: float) -> Applied:
    """Rule of a + sign·b where either or both depend on the input."""
    if _is_set(a) and _is_set(b):
        if len(a.shape) != len(b.shape):
            context.refuse("a sum of two branches with different numbers of axes")
        if abs(sign) != 1:
            context.refuse("a sum with alpha other than 1")
        return Applied(Combine(sign), [a, b])
    if _is_set(a):
        return _scale(context, a, context.constant(1.0), sign * context.constant(b))
    return _scale(context, b, context.constant(sign), context.constant(a))


def _multiply(context: Context, a: Any, b: Any) -> Applied:
    if _is_set(a) and _is_set(b):
        if len(a.shape) != len(b.shape):
            context.refuse("a product of two branches with different numbers of axes")
        return Applied(Product(), [a, b])
    x, value = (a, b) if _is_set(a) else (b, a)
    return _scale(context, x, context.constant(value), context.constant(0.0))


def _divide(context: Context, a: Any, b: Any) -> Applied:
    if _is_set(b):
        context.refuse("a division by a value that depends on the input")
    return _scale(context, a, 1 / context.constant(b), context.constant(0.0))


def _negative(context: Context, x: Any) -> Applied:
    return _scale(context, x, context.constant(-1.0), context.constant(0.0))


def _scale(context: Context, x: Any, factor: Tensor, shift: Tensor) -> Applied:
    for constant in (factor, shift):
        too_long = constant.ndim > len(x.shape)
        if too_long or (constant.ndim == len(x.shape) and constant.shape[0] not in (1, context.batch)):
            context.refuse(f"a constant of shape {tuple(constant.shape)} that mixes the samples of the batch")
    return Applied(Scale(factor, shift), [x])


# ------------------------------------------------------------------------------------- moving elements, and averages


def _flatten(context: Context, x: Any, start_dim: int = 0, end_dim: int = -1) -> Applied:
    return Applied(flatten(context, start_dim, end_dim), [x])


def _reshape(context: Context, x: Any, *shape: Any) -> Applied:
    sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list, torch.Size)) else shape
    result = torch.empty(x.shape, device="meta").reshape(*sizes).shape
    if not result or result[0] != context.batch:
        context.refuse(f"a reshape to {tuple(sizes)} that does not keep the batch axis first")
    return Applied(Positive(lambda t: t.reshape(t.shape[0], *result[1:])), [x])


def _permute(context: Context, x: Any, *dims: Any) -> Applied:
    order = list(dims[0]) if len(dims) == 1 and isinstance(dims[0], (tuple, list)) else list(dims)
    if order[0] != 0:
        context.refuse("a permutation that moves the batch axis")
    return Applied(Positive(lambda t: t.permute(order)), [x])


def _transpose(context: Context, x: Any, dim0: int, dim1: int) -> Applied:
    first, second = context.axis(dim0), context.axis(dim1)
    return Applied(Positive(lambda t: t.transpose(first, second)), [x])


def _unsqueeze(context: Context, x: Any, dim: int) -> Applied:
    axis = dim + len(x.shape) + 1 if dim < 0 else dim
    if axis == 0:
        context.refuse("unsqueeze before the batch axis")
    return Applied(Positive(lambda t: t.unsqueeze(axis)), [x])


def _squeeze(context: Context, x: Any, dim: int | None = None) -> Applied:
    if dim is None:
        context.refuse("squeeze without an axis, which may remove the batch axis,")
    axis = context.axis(dim)
    return Applied(Positive(lambda t: t.squeeze(axis)), [x])


def _get_item(context: Context, x: Any, index: Any) -> Applied:
    parts = index if isinstance(index, tuple) else (index,)
    if not (isinstance(parts[0], slice) and parts[0] == slice(None)) and parts[0] is not Ellipsis:
        context.refuse(f"the index {index!r}, which selects samples of the batch,")
    if parts[0] is Ellipsis and sum(part is not None for part in parts[1:]) >= len(x.shape):
        context.refuse(f"the index {index!r}, which selects samples of the batch,")
    if not all(part is None or part is Ellipsis or isinstance(part, (int, slice, Tensor)) for part in parts):
        context.refuse(f"the index {index!r}")
    lookups = sum(isinstance(part, Tensor) for part in parts)
    if lookups > 1 or (lookups and any(isinstance(part, int) for part in parts)):
        context.refuse("an index of several lookups, which may move the batch axis,")
    return Applied(Positive(lambda t: t[index], repeats=lookups > 0), [x])


def _average(context: Context, x: Any, dim: Any = None, keepdim: bool = False) -> Applied:
    return _reduce(context, x, dim, keepdim, torch.mean)


def _total(context: Context, x: Any, dim: Any = None, keepdim: bool = False) -> Applied:
    return _reduce(context, x, dim, keepdim, torch.sum)


def _reduce(context: Context, x: Any, dim: Any, keepdim: bool, reduce: Callable[..., Tensor]) -> Applied:
    if dim is None or dim == () or dim == []:
        context.refuse(f"{reduce.__name__} over the whole batch")
    axes = [context.axis(axis) for axis in (dim if isinstance(dim, (tuple, list)) else (dim,))]
    count = math.prod(x.shape[axis] for axis in axes)
    return Applied(Positive(lambda t: reduce(t, dim=axes, keepdim=keepdim), count + 1), [x])


def _concatenate(context: Context, tensors: Any, dim: int = 0) -> Applied:
    if not all(_is_set(part) for part in tensors):
        context.refuse("a concatenation with a constant")
    return Applied(Concatenate(context.axis(dim)), list(tensors))


def _identity(context: Context, x: Any) -> Applied:
    return Applied(Positive(same), [x])


def _float(context: Context, x: Any) -> Applied:
    if context.parameter_dtype(x.interval.center.dtype) != torch.float32:
        context.refuse(".float() in a network that is not float32")
    return Applied(Positive(same), [x])


def _ask(context: Context, x: Any, name: str, *default: Any) -> Any:
    """Answer questions about a tensor's shape and device."""
    answers = {"shape": x.shape, "ndim": len(x.shape), "device": x.interval.center.device}
    return answers[name] if name in answers else context.refuse(f"the attribute .{name}")


def _size(context: Context, x: Any, dim: int | None = None) -> Any:
    return x.shape if dim is None else x.shape[dim]


def _activation(make: Callable[[], Op]) -> Callable[..., Applied]:
    return lambda context, x: Applied(make(), [x])


_ADD_IN_PLACE, _SUBTRACT_IN_PLACE = _in_place(_add), _in_place(_subtract)
_MULTIPLY_IN_PLACE, _DIVIDE_IN_PLACE = _in_place(_multiply), _in_place(_divide)

FUNCTIONS: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys((F.relu, torch.relu, "relu"), _activation(ReLU)),
    **dict.fromkeys((F.relu_, torch.relu_, "relu_"), _relu_in_place),
    **dict.fromkeys((F.tanh, torch.tanh, "tanh"), _activation(Tanh)),
    **dict.fromkeys((F.sigmoid, torch.sigmoid, "sigmoid"), _activation(Sigmoid)),
    F.leaky_relu: lambda context, x, negative_slope=0.01: Applied(leaky_relu(context, negative_slope), [x]),
    F.elu: lambda context, x, alpha=1.0: Applied(elu(context, alpha), [x]),
    F.softplus: lambda context, x, *args, **kwargs: Applied(softplus(context, *args, **kwargs), [x]),
    F.gelu: lambda context, x, approximate="none": Applied(gelu(context, approximate), [x]),
    F.silu: _activation(SiLU),
    F.relu6: lambda context, x: _clamp(context, x, 0, 6),
    F.hardtanh: lambda context, x, min_val=-1.0, max_val=1.0: _clamp(context, x, min_val, max_val),
    **dict.fromkeys((torch.clamp, torch.clip, "clamp", "clip"), _clamp),
    **dict.fromkeys((torch.clamp_min, "clamp_min"), lambda context, x, min: _clamp(context, x, min)),
    **dict.fromkeys((torch.clamp_max, "clamp_max"), lambda context, x, max: _clamp(context, x, None, max)),
    **dict.fromkeys((F.max_pool2d, torch.max_pool2d), _functional_max_pool),
    F.avg_pool2d: _functional_avg_pool,
    F.linear: _functional_linear,
    **dict.fromkeys((F.conv1d, F.conv2d, torch.conv1d, torch.conv2d), _functional_conv),
    **dict.fromkeys(
        (F.conv_transpose1d, F.conv_transpose2d, torch.conv_transpose1d, torch.conv_transpose2d),
        lambda context, x, *args, **kwargs: Applied(transposed_convolution(context, *args, **kwargs), [x]),
    ),
    F.layer_norm: lambda context, x, *args, **kwargs: Applied(layer_norm(context, *args, **kwargs), [x]),
    F.pad: lambda context, x, *args, **kwargs: Applied(pad(context, *args, **kwargs), [x]),
    F.dropout: _functional_dropout,
    **dict.fromkeys((torch.matmul, torch.mm, operator.matmul, "matmul", "mm"), _matmul),
    **dict.fromkeys((operator.add, torch.add, "add"), _add),
    **dict.fromkeys((operator.sub, torch.sub, torch.subtract, "sub"), _subtract),
    operator.iadd: _ADD_IN_PLACE,
    operator.isub: _SUBTRACT_IN_PLACE,
    operator.imul: _MULTIPLY_IN_PLACE,
    operator.itruediv: _DIVIDE_IN_PLACE,
    **dict.fromkeys((operator.mul, torch.mul, torch.multiply, "mul"), _multiply),
    **dict.fromkeys((operator.truediv, torch.div, torch.true_divide, "div"), _divide),
    **dict.fromkeys((operator.neg, torch.neg, "neg"), _negative),
    **dict.fromkeys((torch.flatten, "flatten"), _flatten),
    **dict.fromkeys((torch.reshape, "reshape", "view"), _reshape),
    **dict.fromkeys((torch.permute, "permute"), _permute),
    **dict.fromkeys((torch.transpose, "transpose"), _transpose),
    **dict.fromkeys((torch.unsqueeze, "unsqueeze"), _unsqueeze),
    **dict.fromkeys((torch.squeeze, "squeeze"), _squeeze),
    operator.getitem: _get_item,
    **dict.fromkeys((torch.mean, "mean"), _average),
    **dict.fromkeys((torch.sum, "sum"), _total),
    **dict.fromkeys((torch.cat, torch.concat), _concatenate),
    **dict.fromkeys(("contiguous", "clone", torch.clone), _identity),
    "float": _float,
    getattr: _ask,
    "size": _size,
    "dim": lambda context, x: len(x.shape),
}

_OF_SEVERAL = (
    _add, _subtract, _multiply, _divide, _concatenate,
    _ADD_IN_PLACE, _SUBTRACT_IN_PLACE, _MULTIPLY_IN_PLACE, _DIVIDE_IN_PLACE,
)  # fmt: skip
