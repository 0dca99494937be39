"""Layers that are affine in the input: each has the interval rule and the backward rule side by side.

The interval rule moves a centre by W and a radius by |W|. The backward rule takes rows (B, K, *out), linear forms of
the output, to rows (B, K, *in) and constants (B, K), so that rows·y = rows'·x + constant exactly. A leading 1 instead
of B means "the same for every sample".
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from radial.bounds.interval import Interval, fast_layout

Backward = tuple[list[Tensor], Tensor | None]


class Op(Protocol):
    """The bound rules of one layer."""

    affine: bool  # the backward rule is an equality
    separable: bool  # each output element sees one input element, so boxes stay exact boxes
    terms: int  # roundings behind one output element in a forward pass
    spread: int  # terms behind one element of the transposed layer
    partial: float  # the largest partial sum, as a multiple of Σ|terms|: above 1 for averages, which divide last

    def interval(self, *x: Interval) -> Interval:
        """The box around the image of boxes."""

    def backward(self, rows: Tensor, *x: Interval) -> Backward:
        """Rows of the output → rows of each input and constants, whose sum never exceeds the original form."""

    def magnitude(self, *x: Tensor) -> Tensor:
        """Σ|terms| of the sums computed here when the inputs are at most x in absolute value."""

    def inference(self, *x: Tensor) -> Tensor:
        """The same for the network's own forward pass."""


class Affine(ABC):
    """The base of the affine layers: the error of the network's forward pass scales as that of the bounds."""

    affine = True
    separable = False
    terms = 0
    spread = 0
    partial = 1.0

    @abstractmethod
    def magnitude(self, *x: Tensor) -> Tensor:  # noqa: D102
        ...

    def inference(self, *x: Tensor) -> Tensor:  # noqa: D102
        return self.magnitude(*x)


class Dense(Affine):
    """y = W·x + b over the last axis: Linear, matmul with a constant, and any module with `as_linear()`."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight, self.bias = weight, bias  # (out, in), (out,)
        self.terms, self.spread = weight.shape[1] + 1, weight.shape[0]

    def interval(self, *x: Interval) -> Interval:  # noqa: D102
        return Interval(F.linear(x[0].center, self.weight, self.bias), F.linear(x[0].radius, self.weight.abs()))

    def backward(self, rows: Tensor, *x: Interval) -> Backward:  # noqa: D102
        constant = None if self.bias is None else _per_row(rows * self.bias)
        return [rows @ self.weight], constant

    def magnitude(self, *x: Tensor) -> Tensor:  # noqa: D102
        return F.linear(x[0], self.weight.abs(), None if self.bias is None else self.bias.abs())


class Convolution(Affine):
    """Conv1d and Conv2d with stride, zero padding, dilation and groups."""

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor | None,
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        groups: int,
    ) -> None:
        self.weight, self.bias = weight, bias  # (out, in/groups, *kernel), (out,)
        self.stride, self.padding, self.dilation, self.groups = (
            list(stride),
            list(padding),
            list(dilation),
            groups,
        )
        self.convolve, self.transpose = (
            (F.conv1d, F.conv_transpose1d) if weight.ndim == 3 else (F.conv2d, F.conv_transpose2d)
        )
        self.terms = weight[0].numel() + 1
        self.spread = weight.shape[0] // groups * weight[0, 0].numel()

    def _apply(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return self.convolve(x, weight, bias, self.stride, self.padding, self.dilation, self.groups)

    def interval(self, *x: Interval) -> Interval:  # noqa: D102
        weight, center, radius = (fast_layout(tensor) for tensor in (self.weight, x[0].center, x[0].radius))
        return Interval(self._apply(center, weight, self.bias), self._apply(radius, weight.abs(), None))

    def backward(self, rows: Tensor, *x: Interval) -> Backward:  # noqa: D102
        constant = None if self.bias is None else rows.flatten(3).sum(3) @ self.bias
        flat = self._transposed(rows.flatten(0, 1), list(x[0].shape[1:]))
        return [flat.view(*rows.shape[:2], *flat.shape[1:])], constant

    def _transposed(self, rows: Tensor, size: list[int]) -> Tensor:
        """The adjoint convolution, (n, out, *) → (n, in, *size)."""
        rows = fast_layout(rows)
        onto_few = rows.ndim == 4 and self.weight.shape[1] <= 4 and self.groups == 1
        if onto_few and self.stride[0] == self.stride[1] and self.dilation == [1, 1]:
            return self._subpixel(rows, size)
        # A stride may leave the last rows of the input untouched; the transpose needs their number to restore them.
        missing = [
            full - ((out - 1) * stride - 2 * padding + dilation * (kernel - 1) + 1)
            for full, out, stride, padding, dilation, kernel in zip(
                size,
                rows.shape[2:],
                self.stride,
                self.padding,
                self.dilation,
                self.weight.shape[2:],
                strict=True,
            )
        ]
        return self.transpose(rows, self.weight, None, self.stride, self.padding, missing, self.groups, self.dilation)

    def _subpixel(self, rows: Tensor, size: list[int]) -> Tensor:
        """The same as one ordinary convolution with stride² output channels per pixel, shuffled into place.

        Output row q·s + b is Σ_u rows[q − u]·w[u·s + b]. Onto the one to four channels of an image this is several
        times faster than the transposed kernel.
        """
        outputs, inputs, *kernel = self.weight.shape
        step = self.stride[0]
        taps = [-(-length // step) for length in kernel]
        weight = F.pad(self.weight, (0, taps[1] * step - kernel[1], 0, taps[0] * step - kernel[0]))
        weight = weight.view(outputs, inputs, taps[0], step, taps[1], step).flip(2, 4).permute(1, 3, 5, 0, 2, 4)
        small = F.conv2d(rows, weight.reshape(inputs * step * step, outputs, *taps), padding=[tap - 1 for tap in taps])
        full = F.pixel_shuffle(small, step)
        top, left = self.padding
        frame = (-left, size[1] + left - full.shape[3], -top, size[0] + top - full.shape[2])
        return F.pad(full, frame) if any(frame) else full

    def magnitude(self, *x: Tensor) -> Tensor:  # noqa: D102
        return self._apply(x[0], self.weight.abs(), None if self.bias is None else self.bias.abs())


class TransposedConvolution(Affine):
    """ConvTranspose1d and ConvTranspose2d: the adjoint of a convolution, whose own adjoint is that convolution."""

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor | None,
        stride: Sequence[int],
        padding: Sequence[int],
        output_padding: Sequence[int],
        dilation: Sequence[int],
        groups: int,
    ) -> None:
        self.weight, self.bias = weight, bias  # (in, out/groups, *kernel), (out,)
        self.stride, self.padding, self.dilation, self.groups = list(stride), list(padding), list(dilation), groups
        self.output_padding = list(output_padding)
        self.convolve, self.transpose = (
            (F.conv1d, F.conv_transpose1d) if weight.ndim == 3 else (F.conv2d, F.conv_transpose2d)
        )
        self.terms = weight.shape[0] // groups * weight[0, 0].numel() + 1
        self.spread = weight[0].numel()

    def _apply(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return self.transpose(
            x, weight, bias, self.stride, self.padding, self.output_padding, self.groups, self.dilation
        )

    def interval(self, *x: Interval) -> Interval:  # noqa: D102
        center = self._apply(x[0].center, self.weight, self.bias)
        return Interval(center, self._apply(x[0].radius, self.weight.abs(), None))

    def backward(self, rows: Tensor, *x: Interval) -> Backward:  # noqa: D102
        constant = None if self.bias is None else rows.flatten(3).sum(3) @ self.bias
        flat = self.convolve(
            rows.flatten(0, 1), self.weight, None, self.stride, self.padding, self.dilation, self.groups
        )
        for axis, size in enumerate(x[0].shape[1:], start=2):
            flat = flat.narrow(axis, 0, size)  # an output padding beyond the stride makes room for one window more
        return [flat.reshape(*rows.shape[:2], *flat.shape[1:])], constant

    def magnitude(self, *x: Tensor) -> Tensor:  # noqa: D102
        return self._apply(x[0], self.weight.abs(), None if self.bias is None else self.bias.abs())


class Padded(Affine):
    """A layer behind a padding that repeats elements (circular, reflect, replicate), which is exact."""

    def __init__(self, padding: "Positive", layer: Convolution) -> None:
        self.padding, self.layer = padding, layer
        self.terms, self.spread = layer.terms, layer.spread

    def interval(self, *x: Interval) -> Interval:  # noqa: D102
        return self.layer.interval(self.padding.interval(*x))

    def backward(self, rows: Tensor, *x: Interval) -> Backward:  # noqa: D102
        (inner,), constant = self.layer.backward(rows, self.padding.interval(*x))
        return self.padding.backward(inner, *x)[0], constant

    def magnitude(self, *x: Tensor) -> Tensor:  # noqa: D102
        return self.layer.magnitude(self.padding.magnitude(*x))


class Scale(Affine):
    """y = factor·x + shift, elementwise with broadcasting: constants, normalisation, BatchNorm in eval mode."""

    separable = True

    def __init__(self, factor: Tensor, shift: Tensor, shift_terms: Tensor | None = None, terms: int = 4) -> None:
        # factor and shift broadcast to (B, *out). shift_terms is Σ|terms| of a shift that was itself a difference.
        self.factor, self.shift = factor, shift
        self.shift_terms = shift.abs() if shift_terms is None else shift_terms
        self.terms, self.spread = terms, 1

    def interval(self, *x: Interval) -> Interval:  # noqa: D102
        center = x[0].center * self.factor + self.shift
        return Interval(center, (x[0].radius * self.factor.abs()).expand(-1, *center.shape[1:]))

    def backward(self, rows: Tensor, *x: Interval) -> Backward:  # noqa: D102
        return [sum_to(rows * _beside_rows(self.factor, rows), x[0].shape)], _per_row(
            rows * _beside_rows(self.shift, rows)
        )

    def magnitude(self, *x: Tensor) -> Tensor:  # noqa: D102
        return x[0] * self.factor.abs() + self.shift_terms


class Combine(Affine):
    """y = x₁ + sign·x₂ of two branches that both depend on the input (residual connections, value + advantage)."""

    terms, spread = 1, 1

    def __init__(self, sign: float) -> None:
        self.sign = sign

    def interval(self, *x: Interval) -> Interval:  # noqa: D102
        center = x[0].center + self.sign * x[1].center
        return Interval(center, (x[0].radius + x[1].radius).expand(-1, *center.shape[1:]))

    def backward(self, rows: Tensor, *x: Interval) -> Backward:  # noqa: D102
        return [sum_to(rows, x[0].shape), sum_to(self.sign * rows, x[1].shape)], None

    def magnitude(self, *x: Tensor) -> Tensor:  # noqa: D102
        return x[0] + x[1]


class Positive(Affine):
    """A linear map with weights ≥ 0 and no bias, given as a function: reshapes, slices, sums, averages.

    apply  acts on (n, *in) for any n and keeps the batch axis first and apart
    terms  how many inputs one output adds up; 0 for maps that only move elements, which are exact
    repeats  whether an element may appear twice
    """

    def __init__(self, apply: Callable[[Tensor], Tensor], terms: int = 0, repeats: bool = False) -> None:
        self.apply, self.terms, self.spread = apply, terms, terms
        self.separable = terms == 0 and not repeats
        self.partial = float(max(terms, 1))

    def interval(self, *x: Interval) -> Interval:  # noqa: D102
        return Interval(self.apply(x[0].center), self.apply(x[0].radius))

    def backward(self, rows: Tensor, *x: Interval) -> Backward:  # noqa: D102
        with_graph = torch.is_grad_enabled()
        with torch.enable_grad():
            # The transpose of a linear map is its vector-Jacobian product, at any point.
            probe = rows.new_zeros((rows.shape[0] * rows.shape[1], *x[0].shape), requires_grad=True)
            (flat,) = torch.autograd.grad(self.apply(probe), probe, rows.flatten(0, 1), create_graph=with_graph)
        return [flat.view(*rows.shape[:2], *x[0].shape)], None

    def magnitude(self, *x: Tensor) -> Tensor:  # noqa: D102
        return self.apply(x[0])


class Concatenate(Affine):
    """Branches side by side along an axis (counted with the batch axis, never the batch axis itself)."""

    def __init__(self, dim: int) -> None:
        self.dim = dim

    def interval(self, *x: Interval) -> Interval:  # noqa: D102
        batch = max(part.radius.shape[0] for part in x)
        radii = [part.radius.expand(batch, *part.shape) for part in x]
        return Interval(torch.cat([part.center for part in x], self.dim), torch.cat(radii, self.dim))

    def backward(self, rows: Tensor, *x: Interval) -> Backward:  # noqa: D102
        return list(rows.split([part.center.shape[self.dim] for part in x], dim=self.dim + 1)), None

    def magnitude(self, *x: Tensor) -> Tensor:  # noqa: D102
        return torch.cat(x, self.dim)


def _per_row(products: Tensor) -> Tensor:
    """Sum everything but batch and row: (B, K, *out) → (B, K)."""
    return products.flatten(2).sum(2)


def _beside_rows(constant: Tensor, rows: Tensor) -> Tensor:
    """A constant broadcastable to (B, *out) made broadcastable to (B, K, *out)."""
    return constant.unsqueeze(1) if constant.ndim == rows.ndim - 1 else constant


def sum_to(rows: Tensor, shape: torch.Size) -> Tensor:
    """Undo the broadcasting of an input of this shape: (B, K, *out) → (B, K, *shape)."""
    stretched = [axis for axis, size in enumerate(shape, start=2) if size == 1 and rows.shape[axis] != 1]
    return rows.sum(stretched, keepdim=True) if stretched else rows
