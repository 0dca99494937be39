"""Smooth activations: Softplus, and the gated units x·g(x) that dip below zero before they rise (SiLU, GELU).

For the gated units φ(x) − x/2 is even, so φ' − 1/2 is odd: it rises on [−w, w], where φ is convex, and falls back
towards ±1/2 outside, where φ is concave. Hence φ'(x) = s has at most one solution in [−w, w] and one beyond.
"""

import math
from abc import abstractmethod

import torch
from torch import Tensor

from radial.bounds.activation import Activation, Curve, secant
from radial.bounds.interval import Interval

ROUNDINGS = 32  # units of roundoff allowed to these functions; the largest error measured is 6 (GELU, by oneDNN)


class Softplus(Activation):
    """log(1 + e^(beta·x))/beta: a smooth ReLU.

    torch returns x itself once beta·x exceeds a threshold. `jump` is that step in units of the forward pass's error.
    """

    terms = ROUNDINGS

    def __init__(self, beta: float, threshold: float = 20.0, unit: float = 0.0) -> None:
        self.beta, self.threshold = beta, threshold
        self.jump = math.log1p(math.exp(-threshold)) / (beta * self.terms * unit) if unit else 0.0

    def value(self, x: Tensor) -> Tensor:  # noqa: D102
        return torch.logaddexp(self.beta * x, torch.zeros_like(x)) / self.beta

    def slope_at_output(self, y: Tensor) -> Tensor:  # noqa: D102
        return -torch.expm1(-self.beta * y)

    def slopes(self, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:  # noqa: D102
        tangent = torch.sigmoid(self.beta * (lower + upper) / 2)
        return tangent, secant(self.value(lower), self.value(upper), lower, upper, tangent)

    def stationary(self, slope: Tensor) -> list[Tensor]:  # noqa: D102
        return [torch.logit(slope, eps=torch.finfo(slope.dtype).tiny) / self.beta]

    def inference(self, *x: Tensor) -> Tensor:  # noqa: D102
        beyond = self.beta * x[0] > 0.99 * self.threshold
        return self.value(x[0]) + torch.where(beyond, self.jump, 0.0)

    def magnitude(self, *x: Tensor) -> Tensor:  # noqa: D102
        return self.value(x[0]) + x[0]  # our own arithmetic does not jump


class Gated(Curve):
    """x·g(x) for a gate g that rises from 0 to 1 with g(−x) = 1 − g(x)."""

    terms = ROUNDINGS

    bottom: float  # where φ is least
    least: float  # φ(bottom)
    bend: float  # w, the inflection point
    peak: float  # φ'(w) − 1/2, its largest value
    tail: float  # beyond w + tail, φ' is 1 to the last digit

    @abstractmethod
    def gate(self, x: Tensor) -> Tensor:
        """g(x)."""

    @abstractmethod
    def tilt(self, x: Tensor) -> Tensor:
        """φ'(x) − 1/2, an odd function; exact to the last digits around 0."""

    @abstractmethod
    def curvature(self, x: Tensor) -> Tensor:
        """φ''(x)."""

    def value(self, x: Tensor) -> Tensor:  # noqa: D102
        return x * self.gate(x)

    def interval(self, *x: Interval) -> Interval:
        """φ falls up to `bottom` and rises from there: the maximum is at an end, the minimum there or at an end."""
        lower, upper = x[0].lower, x[0].upper
        left, right = self.value(lower), self.value(upper)
        least = self.least * (1 + 2 * torch.finfo(lower.dtype).eps)  # outward
        across = (lower < self.bottom) & (self.bottom < upper)
        return Interval.between(torch.where(across, least, torch.minimum(left, right)), torch.maximum(left, right))

    def slopes(self, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        """Tangent in the middle below and secant above where φ is convex, the other way round where it is concave.

        Across an inflection the tangent is kept between 0 and 1, the slopes of the two asymptotes.
        """
        tangent = 0.5 + self.tilt((lower + upper) / 2)
        chord = secant(self.value(lower), self.value(upper), lower, upper, tangent)
        concave = (lower >= self.bend) | (upper <= -self.bend)
        convex = (lower >= -self.bend) & (upper <= self.bend)
        below = torch.where(concave, chord, torch.where(convex, tangent, tangent.clamp(0, 1)))
        return below, torch.where(concave, tangent, chord)

    def stationary(self, slope: Tensor) -> list[Tensor]:  # noqa: D102
        level = slope - 0.5
        size = level.abs().clamp(max=self.peak)
        inner, outer = self._solve(size, -1, self.bend, 10), self._solve(size, +1, self.tail, 24)
        return [level.sign() * inner, level.sign() * outer]

    @torch.no_grad()
    def _solve(self, level: Tensor, side: int, reach: float, steps: int) -> Tensor:
        """The x = w + side·d with 0 ≤ d ≤ reach where tilt(x) = level, or the end nearest to one.

        By Newton's method on √(peak − tilt), which is nearly linear in d even at the inflection, where tilt is flat;
        by bisection where Newton leaves the bracket. An inexact x costs at most |tilt(x) − level|·|error of x|.
        """
        goal = (self.peak - level).clamp(min=0).sqrt()
        low, high = torch.zeros_like(level), torch.full_like(level, reach)
        d = (goal * (self.bend / math.sqrt(self.peak))).clamp(max=reach)
        for _ in range(steps):
            x = self.bend + side * d
            depth = (self.peak - self.tilt(x)).clamp(min=0).sqrt()
            short = depth < goal
            low, high = torch.where(short, d, low), torch.where(short, high, d)
            step = d + (depth - goal) * 2 * depth / (side * self.curvature(x))
            d = torch.where((step >= low) & (step <= high), step, (low + high) / 2)  # NaN: bisect
        return self.bend + side * d

    def inference(self, *x: Tensor) -> Tensor:  # noqa: D102
        return x[0]  # 1 + erf, 1 + tanh: errors of a gate near 0 are those of 1


class SiLU(Gated):
    """x·sigmoid(x), also called swish."""

    steepest = 1.1
    bottom, least = -1.2784645427610738, -0.2784645427610738
    bend, peak, tail = 2.3993572805154677, 0.5998393201288669, 44.0

    def gate(self, x: Tensor) -> Tensor:  # noqa: D102
        return torch.sigmoid(x)

    def tilt(self, x: Tensor) -> Tensor:  # noqa: D102
        return 0.5 * torch.tanh(x / 2) + x * torch.sigmoid(x) * torch.sigmoid(-x)

    def curvature(self, x: Tensor) -> Tensor:  # noqa: D102
        return torch.sigmoid(x) * torch.sigmoid(-x) * (2 - x * torch.tanh(x / 2))


class GELU(Gated):
    """x·Φ(x), with the normal distribution function Φ."""

    steepest = 1.13
    bottom, least = -0.7517915246935645, -0.16997120747990366
    bend, peak, tail = math.sqrt(2.0), 0.6289041451851548, 8.0

    def gate(self, x: Tensor) -> Tensor:  # noqa: D102
        return torch.special.ndtr(x)

    def tilt(self, x: Tensor) -> Tensor:  # noqa: D102
        return 0.5 * torch.erf(x / math.sqrt(2.0)) + x * _density(x)

    def curvature(self, x: Tensor) -> Tensor:  # noqa: D102
        return _density(x) * (2 - x * x)


class TanhGELU(Gated):
    """x·(1 + tanh(√(2/π)·(x + 0.044715·x³)))/2: `approximate="tanh"`."""

    steepest = 1.13
    bottom, least = -0.7524614220710163, -0.17004075057125405
    bend, peak, tail = 1.4185040087908284, 0.6289930686587718, 7.0

    def gate(self, x: Tensor) -> Tensor:  # noqa: D102
        return torch.sigmoid(2 * _inner(_kept(x)))

    def tilt(self, x: Tensor) -> Tensor:  # noqa: D102
        x = _kept(x)
        inner = _inner(x)
        steep = 2 * torch.sigmoid(2 * inner) * torch.sigmoid(-2 * inner)  # half of 1 − tanh²
        return 0.5 * torch.tanh(inner) + x * steep * _INNER * (1 + 3 * _CUBIC * x * x)

    def curvature(self, x: Tensor) -> Tensor:  # noqa: D102
        x = _kept(x)
        inner = _inner(x)
        first, second = _INNER * (1 + 3 * _CUBIC * x * x), 6 * _INNER * _CUBIC * x
        steep = 4 * torch.sigmoid(2 * inner) * torch.sigmoid(-2 * inner)
        return steep * (first + x * second / 2 - x * first * first * torch.tanh(inner))


_INNER, _CUBIC = math.sqrt(2 / math.pi), 0.044715


def _inner(x: Tensor) -> Tensor:
    return _INNER * (x + _CUBIC * x * x * x)


def _kept(x: Tensor) -> Tensor:
    """The input as far as its cube does not overflow; beyond ±30 the gate is 0 or 1."""
    return x.clamp(-30, 30)


def _density(x: Tensor) -> Tensor:
    return torch.exp(-x * x / 2) / math.sqrt(2 * math.pi)
