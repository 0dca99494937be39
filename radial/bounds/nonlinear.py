"""The nonlinear layers: activations with their slopes, and max-pooling.

Their common base, and the reason why any slope is sound, is in `activation`.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from radial.bounds.activation import Activation, LinePair, secant
from radial.bounds.affine import Backward, sum_to
from radial.bounds.interval import Interval, rectified

TRANSCENDENTAL = 16  # units of roundoff allowed to tanh, exp and their kin: every library we know stays below 8


class ReLU(Activation):
    """max(x, 0). Exact in floating point."""

    def value(self, x: Tensor) -> Tensor:  # noqa: D102
        return torch.relu(x)

    def overwrite(self, x: Tensor) -> Tensor:  # noqa: D102
        return x.relu_()

    def slope_at_output(self, y: Tensor) -> Tensor:  # noqa: D102
        return y > 0

    def pull_back(self, gradient: Tensor, y: Tensor) -> Tensor:
        """Pull back without a mask in between: one pass over memory instead of three."""
        return torch.ops.aten.threshold_backward.grad_input(gradient, y, 0, grad_input=gradient)

    def interval(self, *x: Interval) -> Interval:
        """The rectified interval, which adds no rounding of its own."""
        return rectified(x[0], self.pull_back)

    def slopes(self, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        """CROWN's: above the chord, below the identity or zero, whichever leaves the smaller area."""
        left, right = lower.clamp(max=0), upper.clamp(min=0)
        finfo = torch.finfo(lower.dtype)
        chord = right / (right - left).clamp(min=finfo.tiny * finfo.eps)  # 1 if active, 0 if inactive
        return (upper > -lower).to(lower.dtype), chord

    def stationary(self, slope: Tensor) -> list[Tensor]:  # noqa: D102
        return [torch.zeros_like(slope)]

    def lines(self, lower: Tensor, upper: Tensor) -> LinePair:
        """The lines of any activation, written out because ReLU is by far the most common."""
        identity, chord = self.slopes(lower, upper)
        return LinePair(identity, torch.zeros_like(lower), chord, -chord * lower.clamp(max=0))


class Clamp(Activation):
    """min(max(x, low), high): ReLU6, Hardtanh and torch.clamp. Exact in floating point."""

    def __init__(self, low: float | None, high: float | None) -> None:
        self.low, self.high = low, high

    def value(self, x: Tensor) -> Tensor:  # noqa: D102
        return torch.clamp(x, self.low, self.high)

    def overwrite(self, x: Tensor) -> Tensor:  # noqa: D102
        return x.clamp_(self.low, self.high)

    def slope_at_output(self, y: Tensor) -> Tensor:  # noqa: D102
        inside = torch.ones_like(y, dtype=torch.bool)
        if self.low is not None:
            inside = y > self.low
        if self.high is not None:
            inside = inside & (y < self.high)
        return inside

    def slopes(self, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        """The two sides of each convex hull, taking the longer one."""
        low = -torch.inf if self.low is None else self.low
        high = torch.inf if self.high is None else self.high
        # Lower hull: flat up to `low`, then a line to the right end; upper hull: a line from the left end to
        # `high`, then flat. The knees are where they meet.
        left, right = lower.clamp(min=low), upper.clamp(max=high)
        left_knee, right_knee = left.clamp(max=high), right.clamp(min=low)
        rise = right_knee - left_knee
        from_left = _divide(rise, upper - left_knee, 1.0)
        to_right = _divide(rise, right_knee - lower, 1.0)
        flat = (upper <= low) | (lower >= high)
        below = torch.where(flat | (upper - left_knee <= left_knee - lower), 0.0, from_left)
        above = torch.where(flat | (right_knee - lower < upper - right_knee), 0.0, to_right)
        return below, above

    def stationary(self, slope: Tensor) -> list[Tensor]:  # noqa: D102
        return [torch.full_like(slope, kink) for kink in (self.low, self.high) if kink is not None]


class LeakyReLU(Activation):
    """max(x, negative_slope·x) for 0 ≤ negative_slope ≤ 1, and its mirror image for larger slopes."""

    terms = 4  # the slope is rounded, and the product

    def __init__(self, negative_slope: float) -> None:
        self.negative_slope = negative_slope
        self.steepest = max(1.0, negative_slope)

    def value(self, x: Tensor) -> Tensor:  # noqa: D102
        return F.leaky_relu(x, self.negative_slope)

    def slope_at_output(self, y: Tensor) -> Tensor:  # noqa: D102
        return torch.full_like(y, self.negative_slope).masked_fill(y > 0, 1.0)  # in y's own precision

    def slopes(self, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:  # noqa: D102
        at_ends = self.slope_at_output(lower), self.slope_at_output(upper)
        chord = _divide(self.value(upper) - self.value(lower), upper - lower, 0.0)
        chord = torch.where(at_ends[0] == at_ends[1], at_ends[0], chord)
        nearest = torch.where(upper > -lower, at_ends[1], at_ends[0])
        return (nearest, chord) if self.negative_slope <= 1 else (chord, nearest)

    def stationary(self, slope: Tensor) -> list[Tensor]:  # noqa: D102
        return [torch.zeros_like(slope)]


class ELU(Activation):
    """x for x > 0, alpha·(eˣ − 1) below."""

    terms = TRANSCENDENTAL

    def __init__(self, alpha: float) -> None:
        self.alpha = alpha
        self.steepest = max(1.0, alpha)

    def value(self, x: Tensor) -> Tensor:  # noqa: D102
        return F.elu(x, self.alpha)

    def slope_at_output(self, y: Tensor) -> Tensor:  # noqa: D102
        return torch.where(y > 0, torch.ones_like(y), y + self.alpha)

    def slopes(self, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:  # noqa: D102
        tangent = self.slope_at_output(self.value((lower + upper) / 2))
        return tangent, secant(self.value(lower), self.value(upper), lower, upper, tangent)

    def stationary(self, slope: Tensor) -> list[Tensor]:  # noqa: D102
        smallest = torch.finfo(slope.dtype).tiny
        return [torch.zeros_like(slope), (slope / self.alpha).clamp(min=smallest).log()]

    def inference(self, *x: Tensor) -> Tensor:  # noqa: D102
        return self.value(x[0]).abs() + self.alpha  # eˣ − 1 may be computed as a difference


class Tanh(Activation):
    """tanh(x)."""

    terms = TRANSCENDENTAL

    def value(self, x: Tensor) -> Tensor:  # noqa: D102
        return torch.tanh(x)

    def overwrite(self, x: Tensor) -> Tensor:  # noqa: D102
        return x.tanh_()

    def slope_at_output(self, y: Tensor) -> Tensor:  # noqa: D102
        return 1 - y * y

    def slopes(self, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:  # noqa: D102
        return tanh_slope_below(lower, upper), tanh_slope_below(-upper, -lower)  # tanh is odd

    def stationary(self, slope: Tensor) -> list[Tensor]:  # noqa: D102
        point = _atanh((1 - slope).clamp(0, 1).sqrt())
        return [point, -point]


class Sigmoid(Activation):
    """1/(1 + e⁻ˣ) = (tanh(x/2) + 1)/2."""

    terms = TRANSCENDENTAL
    steepest = 0.25

    def value(self, x: Tensor) -> Tensor:  # noqa: D102
        return torch.sigmoid(x)

    def overwrite(self, x: Tensor) -> Tensor:  # noqa: D102
        return x.sigmoid_()

    def slope_at_output(self, y: Tensor) -> Tensor:  # noqa: D102
        return y * (1 - y)

    def slopes(self, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:  # noqa: D102
        return tanh_slope_below(lower / 2, upper / 2) / 4, tanh_slope_below(-upper / 2, -lower / 2) / 4

    def stationary(self, slope: Tensor) -> list[Tensor]:  # noqa: D102
        point = 2 * _atanh((1 - 4 * slope).clamp(0, 1).sqrt())
        return [point, -point]


def _atanh(x: Tensor) -> Tensor:
    """Artanh by way of log1p, which compilers vectorise."""
    return 0.5 * (torch.log1p(x) - torch.log1p(-x))


def tanh_slope_below(lower: Tensor, upper: Tensor) -> Tensor:
    """The slope of CROWN's line below tanh on [lower, upper] (Zhang et al. 2018).

    Convex part (upper ≤ 0): the tangent in the middle. Concave part (lower ≥ 0): the secant. Across: the tangent from
    the right end to a point d < 0 of the convex part, or the secant if d would lie left of the interval.
    """
    middle = 1 - torch.tanh((lower + upper) / 2).square()
    chord = secant(torch.tanh(lower), torch.tanh(upper), lower, upper, middle)
    across = (lower < 0) & (upper > 0)
    touch = _tangent_point(torch.where(across, upper, 1.0))
    mixed = torch.where(touch > lower, 1 - torch.tanh(touch).square(), chord)
    return torch.where(across, mixed, torch.where(upper <= 0, middle, chord))


# Least squares on 0.01 ≤ u < 200. Only a starting point: Newton's method makes it exact, and any slope is sound.
_TANGENT = (-0.00184, -0.448464, -0.479414, 0.261678, 0.00481635, -0.0440782, 0.0149556, -0.00207877, 0.000107836)


def _tangent_point(upper: Tensor) -> Tensor:
    """The d < 0 whose tangent to tanh passes through (upper, tanh(upper)), for upper > 0."""
    with torch.no_grad():
        # A polynomial in log(1 + u) is right to 0.005 up to u = 200; far out solve 1 + tanh d = 1/(u − d).
        near = torch.log1p(upper.clamp(max=200.0))
        d = torch.full_like(upper, _TANGENT[-1])
        for coefficient in reversed(_TANGENT[:-1]):
            d = d * near + coefficient
        d = torch.where(upper < 200, d, -0.5 * torch.log(2 * upper + 1.8) - 0.25)
        for _ in range(2):
            d = torch.minimum(_newton(d, upper), -1e-3 * upper.clamp(max=1.0))
    # One more step, with its gradient: by the implicit function theorem that is the gradient of d itself.
    # Close to 0 the step would divide noise by noise, and tanh is its cubic to all digits that matter.
    small = upper < 0.01
    return torch.where(small, -upper / 2, _newton(torch.where(small, -0.5, d), torch.where(small, 1.0, upper)))


def _newton(d: Tensor, upper: Tensor) -> Tensor:
    """One step towards tanh(d) + tanh'(d)·(upper − d) = tanh(upper); d is held fixed for the derivative."""
    t = torch.tanh(d)
    slope = 1 - t * t
    gap = t + slope * (upper - d) - torch.tanh(upper)
    return d - gap / (-2 * t * slope * (upper.detach() - d))


def _divide(a: Tensor, b: Tensor, otherwise: float) -> Tensor:
    """a/b, or `otherwise` where b is not positive; safe to differentiate."""
    positive = b > 0
    return torch.where(positive, a / torch.where(positive, b, 1.0), otherwise)


class Product:
    """x·y of two values that both depend on the input: gates, squares.

    With the centres c, d of both intervals x·y = c·y + d·x − c·d + (x − c)·(y − d), and the last term is at most the
    product of the radii in absolute value: the mean of McCormick's two planes, below and above.
    """

    affine = False
    separable = False
    terms = 2
    spread = 1
    partial = 1.0

    def interval(self, *x: Interval) -> Interval:  # noqa: D102
        corners = [a * b for a in (x[0].lower, x[0].upper) for b in (x[1].lower, x[1].upper)]
        low = torch.minimum(torch.minimum(corners[0], corners[1]), torch.minimum(corners[2], corners[3]))
        high = torch.maximum(torch.maximum(corners[0], corners[1]), torch.maximum(corners[2], corners[3]))
        return Interval.between(low, high)

    def backward(self, rows: Tensor, *x: Interval) -> Backward:  # noqa: D102
        c, d = (part.center.unsqueeze(1) for part in x)
        apart = (x[0].radius * x[1].radius).unsqueeze(1)
        constant = (rows * (c * d) + rows.abs() * apart).flatten(2).sum(2)
        return [sum_to(rows * d, x[0].shape), sum_to(rows * c, x[1].shape)], -constant

    def magnitude(self, *x: Tensor) -> Tensor:  # noqa: D102
        return 4 * x[0] * x[1]

    def inference(self, *x: Tensor) -> Tensor:  # noqa: D102
        return x[0] * x[1]


def _taken(x: Tensor, places: Tensor) -> Tensor:
    """The elements of x (B or 1, C, H, W) at places (B, C, H', W') of its flattened channels."""
    flat = x.flatten(2).expand(places.shape[0], -1, -1)
    return flat.gather(2, places.flatten(2)).view(places.shape)


@dataclass(eq=False)
class MaxPool:
    """The largest element of each window of a (B, C, H, W) tensor. Exact in floating point.

    Below: the element with the largest lower bound. Above: that element if it certainly wins, otherwise the largest
    upper bound, a constant.
    """

    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]

    affine = False
    separable = False
    terms = 0
    spread = 1
    partial = 1.0

    _choice: tuple[Tensor, Tensor, Tensor] | None = None

    def _pool(self, x: Tensor) -> Tensor:
        return F.max_pool2d(x, self.kernel, self.stride, self.padding, self.dilation)

    def interval(self, *x: Interval) -> Interval:
        """The image by the elements that attain its ends: their difference would lose a radius far below the centre."""
        below, above = self._winners(x[0].lower), self._winners(x[0].upper)
        low, high = (_taken(x[0].center, places) for places in (below, above))
        shrink, grow = (_taken(x[0].radius, places) for places in (below, above))
        return Interval((low + high + (grow - shrink)) / 2, (high - low + (grow + shrink)) / 2)

    def _winners(self, x: Tensor) -> Tensor:
        """Where the largest element of each window lies in its flattened channel, (B, C, H', W')."""
        return F.max_pool2d_with_indices(x.detach(), self.kernel, self.stride, self.padding, self.dilation)[1]

    def _windows(self, x: Tensor) -> Tensor:
        """(B, C, H, W) → (B, C, window, positions), padded with −inf."""
        rows, columns = self.padding
        padded = F.pad(x, (columns, columns, rows, rows), value=-torch.inf)
        flat = F.unfold(padded, self.kernel, self.dilation, 0, self.stride)
        return flat.view(*x.shape[:2], -1, flat.shape[-1])

    def _choose(self, x: Interval) -> tuple[Tensor, Tensor, Tensor]:
        """The chosen element's flat index, whether it certainly wins, the upper constant; (B, C, positions)."""
        lower, upper = self._windows(x.lower), self._windows(x.upper)
        height, width = x.shape[1:]
        places = torch.arange(height * width, dtype=torch.float64, device=lower.device).view(1, 1, height, width)
        winner = lower.argmax(2, keepdim=True)
        index = self._windows(places).expand_as(lower).gather(2, winner).squeeze(2).clamp(min=0).long()
        rivals = upper.detach().scatter(2, winner, -torch.inf).amax(2)
        certain = rivals <= lower.gather(2, winner).squeeze(2)
        return index, certain, upper.amax(2)

    def backward(self, rows: Tensor, *x: Interval) -> Backward:  # noqa: D102
        if self._choice is None:
            self._choice = self._choose(x[0])
        index, certain, constant = (part.unsqueeze(1) for part in self._choice)
        flat = rows.flatten(3)
        linear = torch.where((flat > 0) | certain, flat, 0.0)  # the rows that follow the chosen element
        batch = max(rows.shape[0], index.shape[0])
        shape = (batch, rows.shape[1], *x[0].shape)
        target = torch.zeros((*shape[:3], shape[3] * shape[4]), dtype=rows.dtype, device=rows.device)
        moved = target.scatter_add(3, index.expand(*shape[:3], -1), linear.expand(*shape[:3], -1))
        # inf·0 must not happen where a window's upper bound is infinite but unused.
        rest = torch.where(linear == 0, flat, 0.0) * torch.where(certain, 0.0, constant)
        return [moved.view(shape)], rest.flatten(2).sum(2)

    def magnitude(self, *x: Tensor) -> Tensor:  # noqa: D102
        return self._pool(x[0])

    def inference(self, *x: Tensor) -> Tensor:  # noqa: D102
        return self._pool(x[0])
