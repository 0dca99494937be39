"""The base of elementwise activations: an interval rule, and two lines around the curve.

An activation φ on [l, u] is enclosed between two lines. **Any slope is sound**: for a slope s the intercept is the
exact extreme of φ(x) − s·x, found at l, at u, or at one of the few points where φ' = s or φ has a kink. So a slope
may be chosen for tightness alone, and a poor choice can never make a bound wrong.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from radial.bounds.affine import Backward
from radial.bounds.interval import Interval, compiling, monotone


class LinePair(NamedTuple):
    """lower_slope·x + lower_intercept ≤ φ(x) ≤ upper_slope·x + upper_intercept on the interval; all (B, *shape)."""

    lower_slope: Tensor
    lower_intercept: Tensor
    upper_slope: Tensor
    upper_intercept: Tensor


class Curve(ABC):
    """An elementwise function between two lines. Subclasses give φ, its interval rule, slopes and stationary points."""

    affine = False
    separable = False
    terms = 0
    spread = 1
    partial = 1.0
    steepest = 1.0  # the largest derivative anywhere; it scales the rounding errors of the input

    _lines: LinePair | None = None

    @abstractmethod
    def value(self, x: Tensor) -> Tensor:
        """φ(x)."""

    @abstractmethod
    def slopes(self, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        """The slopes of the lower and the upper line; chosen for tightness only."""

    @abstractmethod
    def stationary(self, slope: Tensor) -> list[Tensor]:
        """Where φ(x) − slope·x may have an extreme: the solutions of φ'(x) = slope, and the kinks of φ."""

    @abstractmethod
    def interval(self, *x: Interval) -> Interval:
        """The image of an interval."""

    def lines(self, lower: Tensor, upper: Tensor) -> LinePair:
        """Two lines around φ on [lower, upper]: the chosen slopes with exact intercepts."""
        below, above = self.slopes(lower, upper)
        return LinePair(
            below, self._intercept(below, lower, upper, -1), above, self._intercept(above, lower, upper, +1)
        )

    def _intercept(self, slope: Tensor, lower: Tensor, upper: Tensor, sign: int) -> Tensor:
        """Max (sign = +1) or min (−1) of φ(x) − slope·x over the interval."""
        # φ(x) − slope·x is continuous, so its extreme lies at an end or at a stationary point inside.
        pick = torch.maximum if sign > 0 else torch.minimum
        best = pick(self.value(lower) - slope * lower, self.value(upper) - slope * upper)
        for point in self.stationary(slope.detach()):
            # Hold the point fixed: a kink does not move, and elsewhere d/dx (φ(x) − slope·x) = 0 by φ' = slope.
            inside = (lower < point) & (point < upper)
            point = torch.where(inside, point, lower.detach())
            best = torch.where(inside, pick(best, self.value(point) - slope * point), best)
        return best

    def backward(self, rows: Tensor, *x: Interval) -> Backward:  # noqa: D102
        if self._lines is None:  # one operator serves one pass, so its interval does not change between calls
            self._lines = LinePair(*(part.unsqueeze(1) for part in self.lines(x[0].lower, x[0].upper)))
        if compiling():
            return _substitute(rows, self._lines)
        form, constant = _Substitute.apply(rows, *self._lines)
        return [form], constant

    def magnitude(self, *x: Tensor) -> Tensor:  # noqa: D102
        return self.inference(*x) + self.steepest * x[0]

    def inference(self, *x: Tensor) -> Tensor:  # noqa: D102
        return torch.maximum(self.value(x[0]).abs(), self.value(-x[0]).abs())


class Activation(Curve):
    """A non-decreasing elementwise function: its interval rule follows from φ and its derivative."""

    def overwrite(self, x: Tensor) -> Tensor:
        """φ(x), in place if that is faster."""
        return self.value(x)

    @abstractmethod
    def slope_at_output(self, y: Tensor) -> Tensor:
        """φ'(x) as a function of y = φ(x), or as a mask where it is 0 or 1."""

    def pull_back(self, gradient: Tensor, y: Tensor) -> Tensor:
        """A gradient with respect to y = φ(x) as one with respect to x, in place."""
        return gradient.mul_(self.slope_at_output(y))

    def interval(self, *x: Interval) -> Interval:  # noqa: D102
        return monotone(x[0], self.overwrite, self.pull_back)


def secant(f_lower: Tensor, f_upper: Tensor, lower: Tensor, upper: Tensor, tangent: Tensor) -> Tensor:
    """The slope between the ends, or the given tangent where the ends are too close to tell."""
    close = upper - lower < torch.finfo(lower.dtype).eps ** (1 / 3)
    return torch.where(close, tangent, (f_upper - f_lower) / torch.where(close, 1.0, upper - lower))


def _substitute(rows: Tensor, lines: LinePair) -> Backward:
    """Substitute as `_Substitute` does, with the gradient left to autograd and the compiler."""
    positive, negative = rows.clamp(min=0), rows.clamp(max=0)
    form = positive * lines.lower_slope + negative * lines.upper_slope
    constant = positive * lines.lower_intercept + negative * lines.upper_intercept
    return [form], constant.sum(tuple(range(2, rows.ndim)))


class _Substitute(torch.autograd.Function):
    """rows·φ(x) ≥ form·x + constant: positive coefficients take the lower line, negative ones the upper.

    That is rows·below + min(rows, 0)·(above − below), and likewise for the intercepts. The gradient is written by hand:
    the coefficients are the largest tensors of a backward pass, and autograd would walk over them twice as often.
    """

    @staticmethod
    def forward(
        ctx: FunctionCtx, rows: Tensor, below: Tensor, below_at: Tensor, above: Tensor, above_at: Tensor
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(rows, below, below_at, above, above_at)
        negative = rows.clamp(max=0)
        form = (rows * below).addcmul_(negative, above - below)
        constant = (
            negative.mul_(above_at - below_at) if rows.shape[0] == form.shape[0] else negative * (above_at - below_at)
        )
        if below_at.any():  # a ReLU's lower line goes through the origin
            constant.addcmul_(rows, below_at)
        return form, constant.sum(tuple(range(2, rows.ndim)))

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad_form: Tensor, grad_constant: Tensor) -> tuple[Tensor | None, ...]:
        rows, below, below_at, above, above_at = ctx.saved_tensors  # type: ignore[attr-defined]
        wanted = ctx.needs_input_grad  # type: ignore[attr-defined]
        grad_constant = grad_constant.view(*grad_constant.shape, *[1] * (rows.ndim - 2))
        gradients: list[Tensor | None] = [None] * 5
        negative = rows.clamp(max=0)
        for first, part in ((1, None), (3, negative)):
            if wanted[first] or wanted[first + 1]:  # a ReLU's lower line is constant: nothing to do
                used = rows.clamp(min=0) if part is None else part
                gradients[first] = (used * grad_form).sum(1, keepdim=True)
                gradients[first + 1] = (used * grad_constant).sum(1, keepdim=True)
        if wanted[0]:
            # The derivative by rows is the lower line where rows ≥ 0 and the upper where rows < 0:
            # below + sign(min(rows, 0))·(below − above), for slopes and intercepts alike.
            total = (grad_form * (below - above)).addcmul_(grad_constant, below_at - above_at)
            total.mul_(negative.sign_()).addcmul_(grad_form, below).addcmul_(grad_constant, below_at)
            gradients[0] = total.sum(0, keepdim=True) if rows.shape[0] != total.shape[0] else total
        return tuple(gradients)
