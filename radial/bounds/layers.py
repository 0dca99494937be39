"""The rule of each `nn.Module`: the registry `MODULES`, in plain sight.

To add a layer, write its operator in `affine.py`, `nonlinear.py` or `smooth.py` and give it a row here, and one in
`functions.py` if it also exists as a function. A layer without a row raises an error that names it; nothing is guessed.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from radial.bounds.affine import Convolution, Dense, Op, Padded, Positive, Scale, TransposedConvolution
from radial.bounds.interval import Interval
from radial.bounds.nonlinear import ELU, Clamp, LeakyReLU, MaxPool, ReLU, Sigmoid, Tanh
from radial.bounds.normalized import LayerNorm
from radial.bounds.smooth import GELU, SiLU, Softplus, TanhGELU
from radial.core.data import BadInput


class UnsupportedLayer(BadInput):
    """The network contains something no bound rule covers."""


class Value(Protocol):
    """The view that rules have of a value that depends on the input."""

    interval: Interval

    @property
    def shape(self) -> torch.Size:
        """(B, *shape)."""


class Applied(NamedTuple):
    """An operator and the values it acts on."""

    op: Op
    inputs: list[Any]


@dataclass(slots=True)
class Context:
    """The place of a step in the network, and the precision in which constants enter the bounds."""

    node: fx.Node
    network: nn.Module
    x: Value  # the first value the step acts on
    wide: bool  # the sound form: constants in float64

    @property
    def batch(self) -> int:
        """Number of samples."""
        return self.x.shape[0]

    @property
    def place(self) -> str:
        """The layer's name for error messages."""
        return f"'{self.node.target}'" if self.node.op == "call_module" else f"'{self.node.name}'"

    def constant(self, value: Any) -> Tensor:
        """A weight or number that does not depend on the input, first rounded as the network rounds it."""
        if not isinstance(value, (Tensor, int, float)):
            self.refuse(f"a {type(value).__name__} as an operand")
        center = self.x.interval.center
        if not isinstance(value, Tensor):
            dtype = self.parameter_dtype(center.dtype)
            value = torch.tensor(float(value), dtype=dtype, device=center.device)
        if value.dtype == torch.bool or value.is_complex():
            self.refuse(f"a constant of dtype {value.dtype}")
        return value.to(center.dtype)

    def parameter_dtype(self, default: torch.dtype) -> torch.dtype:
        """The precision the network itself computes in."""
        first = next((p for p in self.network.parameters() if p.is_floating_point()), None)
        return default if first is None else first.dtype

    def weight(self, value: Tensor | None) -> Tensor | None:
        """A layer's own tensor in the precision of this computation."""
        return value.double() if value is not None and self.wide else value

    def axis(self, dim: Any) -> int:
        """An axis of x counted from the front, never the batch axis."""
        if not isinstance(dim, int):
            self.refuse(f"an axis given as {dim!r}")
        axis = dim + len(self.x.shape) if dim < 0 else dim
        if axis == 0:
            self.refuse(f"{self.what} over the batch axis")
        return int(axis)

    @property
    def what(self) -> str:
        """Name of the function, method or module."""
        if self.node.op == "call_module":
            return type(self.network.get_submodule(str(self.node.target))).__name__
        return str(getattr(self.node.target, "__name__", self.node.target))

    def rounded(self, value: float | None) -> float | None:
        """A number as the network's own precision represents it."""
        if value is None:
            return None
        return torch.tensor(float(value), dtype=self.parameter_dtype(self.x.interval.center.dtype)).item()

    def needs_axes(self, count: int) -> None:
        """Refuse an unbatched input, whose batch axis torch would take for channels."""
        if len(self.x.shape) != count:
            self.refuse(f"{self.what} on a value of {len(self.x.shape)} axes, where {count} are needed,")

    def refuse(self, why: str) -> NoReturn:
        """Raise the error for a use of a known layer that no rule covers."""
        raise UnsupportedLayer(f"no bound rule for {why} at {self.place}; see CONTRIBUTING.md on how to add a layer")


LayerRule = Callable[[Context, Any], Op]


def has_rule(module: nn.Module, sound: bool = False) -> bool:
    """Whether tracing should stop at this module and use its rule."""
    return rule_for(module, sound) is not _refuse


def rule_for(module: nn.Module, sound: bool = False) -> LayerRule:
    """The rule of the first class in the module's family whose forward the module really runs.

    sound  ignore a module's `as_linear()`: its forward may round differently from its folded weights
    """
    if not sound and callable(getattr(module, "as_linear", None)):
        return _declared_linear
    for cls in type(module).__mro__:
        if cls in MODULES:
            own = "forward" in vars(module) or any(
                getattr(type(module), method, None) is not getattr(cls, method, None)
                for method in ("forward", "_conv_forward", "__call__")
            )
            return _refuse if own else MODULES[cls]
    return _refuse


def _refuse(context: Context, layer: nn.Module) -> Op:
    raise UnsupportedLayer(
        f"no bound rule for {type(layer).__name__} at {context.place}; write one in bounds/affine.py or "
        "bounds/nonlinear.py and add a row to MODULES in bounds/layers.py"
    )


def _declared_linear(context: Context, layer: Any) -> Op:
    return dense(context, *layer.as_linear())


def dense(context: Context, weight: Tensor, bias: Tensor | None) -> Op:
    """Rule of y = W·x + b."""
    wide = context.weight(weight)
    assert wide is not None
    return Dense(wide, context.weight(bias))


def _convolution(context: Context, layer: Any) -> Op:
    weight, bias = context.weight(layer.weight), context.weight(layer.bias)
    assert weight is not None
    context.needs_axes(weight.ndim)
    if layer.padding_mode != "zeros":
        frame = pad(context, layer._reversed_padding_repeated_twice, layer.padding_mode)
        nothing = [0] * len(layer.stride)
        return Padded(frame, Convolution(weight, bias, layer.stride, nothing, layer.dilation, layer.groups))
    padding = layer.padding
    if padding == "valid":
        padding = [0] * len(layer.stride)
    elif padding == "same":
        total = [dilation * (size - 1) for dilation, size in zip(layer.dilation, layer.kernel_size, strict=True)]
        if any(width % 2 for width in total):
            context.refuse(f"padding 'same' with an even kernel in {type(layer).__name__} (it pads one side more)")
        padding = [width // 2 for width in total]
    return Convolution(weight, bias, layer.stride, padding, layer.dilation, layer.groups)


def _transposed_convolution(context: Context, m: Any) -> Op:
    return transposed_convolution(
        context, m.weight, m.bias, m.stride, m.padding, m.output_padding, m.groups, m.dilation
    )


def transposed_convolution(
    context: Context,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Op:
    """Rule of ConvTranspose1d and ConvTranspose2d."""
    wide, axes = context.weight(weight), weight.ndim - 2
    assert wide is not None
    context.needs_axes(weight.ndim)
    stride, padding, output_padding, dilation = (
        [value] * axes if isinstance(value, int) else list(value)
        for value in (stride, padding, output_padding, dilation)
    )
    return TransposedConvolution(wide, context.weight(bias), stride, padding, output_padding, dilation, groups)


def pad(context: Context, widths: Any, mode: str = "constant", value: float | None = None) -> Positive:
    """Rule of a padding by zeros or by elements of the value itself; widths as for `F.pad`, last axis first."""
    if mode not in ("constant", "reflect", "replicate", "circular"):
        context.refuse(f"padding mode {mode!r}")
    if value not in (None, 0):
        context.refuse("padding with a value other than 0")
    if not all(isinstance(width, int) for width in widths) or len(widths) > 2 * (len(context.x.shape) - 1):
        context.refuse(f"padding of widths {widths!r}")
    widths = list(widths)
    return Positive(lambda t: F.pad(t, widths, mode), repeats=True)


def _padding(mode: str) -> LayerRule:
    def rule(context: Context, layer: Any) -> Op:
        context.needs_axes(4)
        return pad(context, layer.padding, mode)

    return rule


def max_pool(context: Context, layer: Any) -> Op:
    """Rule of MaxPool2d."""
    context.needs_axes(4)
    if layer.ceil_mode:
        context.refuse("MaxPool2d with ceil_mode")
    if layer.return_indices:
        context.refuse("MaxPool2d with return_indices")
    stride = layer.kernel_size if layer.stride is None else layer.stride
    return MaxPool(_pair(layer.kernel_size), _pair(stride), _pair(layer.padding), _pair(layer.dilation))


def _batch_norm(context: Context, layer: Any) -> Op:
    if layer.running_mean is None:
        context.refuse(f"{type(layer).__name__} without running statistics, which mixes the samples of a batch,")
    dtype = layer.running_var.dtype
    least = (layer.running_var + torch.tensor(layer.eps, dtype=dtype)).min()
    if not layer.eps >= torch.finfo(dtype).tiny or not least >= torch.finfo(dtype).tiny:
        context.refuse(f"{type(layer).__name__} with a variance or eps below {torch.finfo(dtype).tiny:.2g}")
    weight, bias = context.weight(layer.weight), context.weight(layer.bias)
    mean, variance = context.weight(layer.running_mean), context.weight(layer.running_var)
    assert mean is not None
    assert variance is not None
    factor = (variance + layer.eps).rsqrt() * (1.0 if weight is None else weight)
    shift = -mean * factor
    total, parts = (shift, shift.abs()) if bias is None else (shift + bias, shift.abs() + bias.abs())
    shape = (-1, *[1] * (len(context.x.shape) - 2))  # channels are axis 1 of (B, C, *)
    return Scale(factor.view(shape), total.view(shape), parts.view(shape), terms=16)


def layer_norm(
    context: Context,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Op:
    """Rule of LayerNorm over the last axes."""
    shape = tuple(normalized_shape)
    if len(shape) >= len(context.x.shape) or shape != tuple(context.x.shape[-len(shape) :]):
        context.refuse(f"LayerNorm of shape {shape} on a value of shape {tuple(context.x.shape)}")
    if not eps >= 1e-12:
        context.refuse("LayerNorm with eps < 1e-12")
    dtype = context.parameter_dtype(context.x.interval.center.dtype)
    return LayerNorm(shape, context.weight(weight), context.weight(bias), eps, dtype)


def avg_pool(context: Context, layer: nn.AvgPool2d) -> Op:
    """Rule of AvgPool2d."""
    context.needs_axes(4)
    if layer.divisor_override is not None and layer.divisor_override <= 0:
        context.refuse("AvgPool2d with divisor_override ≤ 0")
    return Positive(layer, window(layer.kernel_size) + 1)


def clamp(context: Context, low: Any, high: Any) -> Op:
    """Rule of a clamp between numbers."""
    for name, value in (("min", low), ("max", high)):
        if value is not None and not isinstance(value, (int, float)):
            context.refuse(f"clamp with a {type(value).__name__} as {name}")
    if low is not None and high is not None and low > high:
        context.refuse("clamp with min > max")
    return Clamp(context.rounded(low), context.rounded(high))


def flatten(context: Context, start_dim: int, end_dim: int) -> Op:
    """Rule of flattening axes start_dim to end_dim."""
    start, end = context.axis(start_dim), context.axis(end_dim)
    return Positive(lambda t: torch.flatten(t, start, end))


def leaky_relu(context: Context, negative_slope: float) -> Op:
    """Rule of LeakyReLU, where it is monotone."""
    return LeakyReLU(negative_slope) if negative_slope >= 0 else context.refuse("LeakyReLU with negative_slope < 0")


def elu(context: Context, alpha: float) -> Op:
    """Rule of ELU, where it is monotone."""
    return ELU(alpha) if alpha > 0 else context.refuse("ELU with alpha ≤ 0")


def softplus(context: Context, beta: float = 1.0, threshold: float = 20.0) -> Op:
    """Rule of Softplus, where its jump at the threshold is small and e^threshold does not overflow."""
    if not beta > 0:
        context.refuse("Softplus with beta ≤ 0")
    if not 20 <= threshold <= 80:
        context.refuse("Softplus with a threshold outside [20, 80]")
    dtype = context.parameter_dtype(context.x.interval.center.dtype)
    return Softplus(float(beta), float(threshold), torch.finfo(dtype).eps / 2)


def gelu(context: Context, approximate: str = "none") -> Op:
    """Rule of GELU, exact or by tanh."""
    kinds: dict[str, Callable[[], Op]] = {"none": GELU, "tanh": TanhGELU}
    return kinds[approximate]() if approximate in kinds else context.refuse(f"GELU with approximate={approximate!r}")


def _in_place(context: Context, layer: Any, op: Op) -> Op:
    if layer.inplace:
        check_alone(context)
    return op


def check_alone(context: Context) -> None:
    """Refuse an in-place layer if anything else reads the memory it overwrites, which tracing would not show."""
    used: Any = context.node.args[0]
    if isinstance(used, fx.Node) and used.op == "get_attr":
        context.refuse(f"writing in place into '{used.target}', a tensor of the network,")
    while isinstance(used, fx.Node):
        if len(used.users) > 1:
            context.refuse(f"an in-place layer on '{used.name}', whose value is used again elsewhere,")
        used = used.args[0] if _shares_memory(context, used) else None


def _shares_memory(context: Context, node: fx.Node) -> bool:
    """Whether a step may return its input's own memory: a view, an identity, another in-place layer."""
    if node.op in ("placeholder", "get_attr"):
        return False
    if node.op == "call_module":
        layer = context.network.get_submodule(str(node.target))
        passes = (nn.Flatten, nn.Identity, nn.Dropout, nn.Dropout2d, nn.ZeroPad2d)
        return isinstance(layer, passes) or bool(getattr(layer, "inplace", False)) or rule_for(layer) is _refuse
    name = str(getattr(node.target, "__name__", node.target))
    allocates = ("linear", "conv1d", "conv2d", "max_pool2d", "avg_pool2d", "matmul", "mm", "add", "sub", "mul", "cat")
    return name not in allocates or bool(node.kwargs.get("inplace"))


def same(x: Tensor) -> Tensor:
    """The identity."""
    return x


def window(kernel: int | Sequence[int]) -> int:
    """Number of elements in a 2-D pooling window."""
    return math.prod(_pair(kernel))


def _pair(value: int | Sequence[int]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[-1])


MODULES: dict[type[nn.Module], LayerRule] = {
    nn.Linear: lambda context, m: dense(context, m.weight, m.bias),
    nn.Conv1d: _convolution,
    nn.Conv2d: _convolution,
    nn.ConvTranspose1d: _transposed_convolution,
    nn.ConvTranspose2d: _transposed_convolution,
    nn.ZeroPad2d: _padding("constant"),
    nn.CircularPad2d: _padding("circular"),
    nn.ReflectionPad2d: _padding("reflect"),
    nn.ReplicationPad2d: _padding("replicate"),
    nn.ReLU: lambda context, m: _in_place(context, m, ReLU()),
    nn.ReLU6: lambda context, m: _in_place(context, m, clamp(context, 0, 6)),
    nn.Hardtanh: lambda context, m: _in_place(context, m, clamp(context, m.min_val, m.max_val)),
    nn.LeakyReLU: lambda context, m: _in_place(context, m, leaky_relu(context, m.negative_slope)),
    nn.ELU: lambda context, m: _in_place(context, m, elu(context, m.alpha)),
    nn.Tanh: lambda _, m: Tanh(),
    nn.Sigmoid: lambda _, m: Sigmoid(),
    nn.Softplus: lambda context, m: softplus(context, m.beta, m.threshold),
    nn.SiLU: lambda context, m: _in_place(context, m, SiLU()),
    nn.GELU: lambda context, m: gelu(context, m.approximate),
    nn.MaxPool2d: max_pool,
    nn.AvgPool2d: avg_pool,
    nn.Flatten: lambda context, m: flatten(context, m.start_dim, m.end_dim),
    nn.Identity: lambda _, m: Positive(same),
    nn.Dropout: lambda _, m: Positive(same),
    nn.Dropout2d: lambda _, m: Positive(same),
    nn.BatchNorm1d: _batch_norm,
    nn.BatchNorm2d: _batch_norm,
    nn.LayerNorm: lambda context, m: layer_norm(context, m.normalized_shape, m.weight, m.bias, m.eps),
}
