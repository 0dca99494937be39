"""A box around a layer's value, kept as centre and radius, and the ways to push it through a monotone function.

Centre and radius suit affine layers (the centre is mapped by W, the radius by |W|). A radius whose batch axis has
length 1 is shared by the whole batch, so the first layer's radius is computed once instead of B times.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.fx.experimental.proxy_tensor import get_proxy_mode

SMALL = 1 << 15  # elements: below, the price of an operation is the call; above, it is the memory it touches

Pointwise = Callable[[Tensor], Tensor]
PullBack = Callable[[Tensor, Tensor], Tensor]  # a gradient and f's output, both of one shape, to a gradient


def compiling() -> bool:
    """Whether the operations of this thread are being recorded for a compiler.

    Then no value is known yet, and hand-written fast paths only get in the compiler's way.
    """
    return get_proxy_mode() is not None


@dataclass(eq=False, slots=True)
class Interval:
    """All y with |y − center| ≤ radius. center (B, *shape), radius (B, *shape) or (1, *shape), ≥ 0."""

    center: Tensor
    radius: Tensor

    @staticmethod
    def between(lower: Tensor, upper: Tensor) -> "Interval":
        """The interval with these ends."""
        return Interval((lower + upper) / 2, (upper - lower) / 2)

    @property
    def lower(self) -> Tensor:
        """Center − radius, (B, *shape)."""
        return self.center - self.radius

    @property
    def upper(self) -> Tensor:
        """Center + radius, (B, *shape)."""
        return self.center + self.radius

    @property
    def magnitude(self) -> Tensor:
        """The largest |y|, (B, *shape)."""
        return self.center.abs() + self.radius

    @property
    def shape(self) -> torch.Size:
        """Shape of one sample, without the batch axis."""
        return self.center.shape[1:]


def fast_layout(images: Tensor) -> Tensor:
    """Images as channels-last tensors on a CPU, where convolutions run faster on them and keep the layout."""
    if images.ndim != 4 or images.device.type != "cpu":
        return images
    return images.to(memory_format=torch.channels_last)


def monotone(x: Interval, f: Pointwise, pull_back: PullBack) -> Interval:
    """The image of an interval under a non-decreasing elementwise f.

    f          maps a tensor elementwise and may overwrite it
    pull_back  a gradient with respect to f's output to one with respect to its input, *given the output*: that is all
               the backward pass needs to keep. It may overwrite the gradient
    """
    if x.center.numel() < SMALL or compiling():
        lower, upper = f(x.lower), f(x.upper)
        middle = torch.lerp(lower, upper, 0.5)
        return Interval(middle, upper - middle)
    # Behind a convolution gradients come back channels last, and to combine two layouts takes several times as long.
    return Interval(*_Monotone.apply(fast_layout(x.center), x.radius, f, pull_back))


def rectified(x: Interval, pull_back: PullBack) -> Interval:
    """The image under max(·, 0), exact in its radius however small that is.

    Half the difference of both ends would be lost where the radius is less than a rounding of the centre, and a deep
    network may multiply a radius of 1e-10 by as much. With u = max(c + r, 0) it is r where c ≥ r, u/2 where the
    interval is cut, and 0 beyond: min(r, u/2) in all three.
    """
    if x.center.numel() < SMALL or compiling():
        upper = torch.relu(x.upper)
        radius = torch.minimum(upper / 2, x.radius)
        return Interval(upper - radius, radius)
    return Interval(*_Rectified.apply(fast_layout(x.center), x.radius, pull_back))


class _Monotone(torch.autograd.Function):
    """Centre and radius by way of both ends of the interval.

    Written out by hand for large tensors, in place wherever possible: left to autograd, the passes over memory and
    their allocations cost as much as the convolutions between them.
    """

    @staticmethod
    def forward(
        ctx: FunctionCtx, center: Tensor, radius: Tensor, f: Pointwise, pull_back: PullBack
    ) -> tuple[Tensor, Tensor]:
        lower, upper = f(center - radius), f(center + radius)
        if not any(ctx.needs_input_grad):  # type: ignore[attr-defined]
            middle = lower.lerp_(upper, 0.5)
            return middle, upper.sub_(middle)
        middle = torch.lerp(lower, upper, 0.5)
        ctx.save_for_backward(lower, upper)
        ctx.pull_back = pull_back  # type: ignore[attr-defined]
        ctx.shared = radius.shape[0] == 1 and center.shape[0] != 1  # type: ignore[attr-defined]
        return middle, upper - middle

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad_center: Tensor, grad_radius: Tensor) -> tuple[Tensor, Tensor, None, None]:
        to_center, to_radius = _pulled_back(ctx, grad_center, grad_radius)
        return to_center, to_radius, None, None


def _pulled_back(ctx: FunctionCtx, grad_center: Tensor, grad_radius: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients with respect to centre and radius, by way of both ends of the image."""
    lower, upper = ctx.saved_tensors  # type: ignore[attr-defined]
    pull_back = ctx.pull_back  # type: ignore[attr-defined]
    through_upper = pull_back(grad_center + grad_radius, upper)
    through_lower = pull_back(grad_center - grad_radius, lower)
    to_center = through_lower.lerp_(through_upper, 0.5)  # half of the sum, and below half of the difference
    to_radius = through_upper.sub_(to_center)
    if ctx.shared:  # type: ignore[attr-defined]
        to_radius = to_radius.sum(0, keepdim=True)
    return to_center, to_radius


class _Rectified(torch.autograd.Function):
    """`rectified`, with the gradient of any other monotone function: its ends tell the three cases apart."""

    @staticmethod
    def forward(ctx: FunctionCtx, center: Tensor, radius: Tensor, pull_back: PullBack) -> tuple[Tensor, Tensor]:
        upper = (center + radius).relu_()
        out = torch.minimum(upper / 2, radius)
        middle = upper - out
        if any(ctx.needs_input_grad):  # type: ignore[attr-defined]
            ctx.save_for_backward(middle - out, upper)
            ctx.pull_back = pull_back  # type: ignore[attr-defined]
            ctx.shared = radius.shape[0] == 1 and center.shape[0] != 1  # type: ignore[attr-defined]
        return middle, out

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad_center: Tensor, grad_radius: Tensor) -> tuple[Tensor, Tensor, None]:
        to_center, to_radius = _pulled_back(ctx, grad_center, grad_radius)
        return to_center, to_radius, None
