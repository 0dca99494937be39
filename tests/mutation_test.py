"""Bugs planted in the rules, one at a time; the proofs must notice each. A proof that cannot fail proves nothing."""

from collections.abc import Callable
from typing import Any
from unittest import mock

import proofs
import pytest
import torch
import torch.nn.functional as F

import radial as rr
from radial.bounds import activation, affine, backward, nonlinear, normalized, recurrent, rounding, smooth
from radial.bounds.interval import Interval
from radial.core.ball import Ball
from radial.core.data import Bounds

Mutant = tuple[Any, str, Callable[[Any], Any]]  # where, which attribute, original → mutant


def of_kind(kind: str) -> None:
    """Every proof that takes a kind of network."""
    proofs.check_zero_radius(kind, seed=1)
    for seed in range(6):
        proofs.check_sampling(kind, seed, points=24)


def attained() -> None:
    """The proof that sees rounding."""
    for seed in range(16):
        proofs.check_attained(seed)


def quick_proof(first: str | None = None) -> None:
    """A few seconds of every proof. first: a kind of network to begin with."""
    if first is not None:
        of_kind(first)
    for seed in range(12):
        proofs.check_geometry(seed)
    for seed in range(2):
        proofs.check_affine_exact(seed)
    proofs.check_overflow()
    for name in proofs.SINGLE:
        for seed in range(5):
            proofs.check_single(name, seed)
    for kind in proofs.every_kind():
        of_kind(kind)
    attained()


def _interval(change: Callable[[Any, Interval], Interval]) -> Callable[[Any], Any]:
    return lambda original: lambda self, *x: change(self, original(self, *x))


def _backward(change: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    return lambda original: lambda self, rows, *x: change(self, original(self, rows, *x))


def _without_abs_dense(original: Any) -> Any:
    return lambda self, *x: Interval(
        F.linear(x[0].center, self.weight, self.bias), F.linear(x[0].radius, self.weight).abs()
    )


def _wrong_stride(original: Any) -> Any:
    def transposed(self: Any, rows: torch.Tensor, size: list[int]) -> torch.Tensor:
        full = original(self, rows, size)
        return full.roll(1, dims=-1)

    return transposed


def _only_lower_line(original: Any) -> Any:
    def lines(self: Any, lower: torch.Tensor, upper: torch.Tensor) -> activation.LinePair:
        below, below_at, _, _ = original(self, lower, upper)
        return activation.LinePair(below, below_at, below, below_at)

    return lines


def _chord_without_intercept(original: Any) -> Any:
    def lines(self: Any, lower: torch.Tensor, upper: torch.Tensor) -> activation.LinePair:
        below, below_at, above, above_at = original(self, lower, upper)
        return activation.LinePair(below, below_at, above, torch.zeros_like(above_at))

    return lines


def _no_stationary_points(original: Any) -> Any:
    return lambda self, slope: []


def _image_of_ends(original: Any) -> Any:
    def interval(self: Any, *x: Interval) -> Interval:
        left, right = self.value(x[0].lower), self.value(x[0].upper)
        return Interval.between(torch.minimum(left, right), torch.maximum(left, right))

    return interval


def _squares_of_middle(original: Any) -> Any:
    def squares(lower: torch.Tensor, upper: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        middle = ((lower + upper) / 2).square()
        return middle, middle

    return staticmethod(squares)


def _with_slope(self: Any, rows: torch.Tensor, out: Any) -> Any:
    return [rows * (1.0 if self.weight is None else self.weight) * self._lines[0]], out[1]


def _two_corners(original: Any) -> Any:
    def interval(self: Any, *x: Interval) -> Interval:
        first, second = x[0].lower * x[1].lower, x[0].upper * x[1].upper
        return Interval.between(torch.minimum(first, second), torch.maximum(first, second))

    return interval


def _pool_of_lower(original: Any) -> Any:
    return lambda self, *x: Interval.between(self._pool(x[0].lower), self._pool(x[0].center))


def _drop_second_branch(original: Any) -> Any:
    def step(self: Any, rows: torch.Tensor, *x: Interval) -> Any:
        forms, constant = original(self, rows, *x)
        return [forms[0], torch.zeros_like(forms[1])], constant

    return step


MUTANTS: dict[str, Mutant] = {
    "dense: no |W| for the radius": (affine.Dense, "interval", _without_abs_dense),
    "dense: bias dropped going backward": (affine.Dense, "backward", _backward(lambda self, out: (out[0], None))),
    "dense: bias with the wrong sign going backward": (
        affine.Dense,
        "backward",
        _backward(lambda self, out: (out[0], None if out[1] is None else -out[1])),
    ),
    "conv: radius ignores |W|": (
        affine.Convolution,
        "interval",
        _interval(lambda self, out: Interval(out.center, out.radius * 0.5)),
    ),
    "conv: bias dropped going backward": (affine.Convolution, "backward", _backward(lambda self, out: (out[0], None))),
    "conv: transposed with the wrong offset": (affine.Convolution, "_transposed", _wrong_stride),
    "transposed conv: radius ignores |W|": (
        affine.TransposedConvolution,
        "interval",
        _interval(lambda self, out: Interval(out.center, out.radius * 0.5)),
    ),
    "transposed conv: bias dropped going backward": (
        affine.TransposedConvolution,
        "backward",
        _backward(lambda self, out: (out[0], None)),
    ),
    "padding: the frame shifted going backward": (
        affine.Padded,
        "backward",
        _backward(lambda self, out: ([out[0][0].roll(1, dims=-1)], out[1])),
    ),
    "scale: sign of the factor lost in the radius": (
        affine.Scale,
        "interval",
        lambda original: (
            lambda self, *x: Interval(
                x[0].center * self.factor + self.shift, (x[0].radius * self.factor).expand_as(x[0].center * self.factor)
            )
        ),
    ),
    "scale: shift dropped going backward": (affine.Scale, "backward", _backward(lambda self, out: (out[0], None))),
    "add: radii subtracted": (
        affine.Combine,
        "interval",
        lambda original: (
            lambda self, *x: Interval(
                x[0].center + self.sign * x[1].center,
                (x[0].radius - x[1].radius).abs().expand_as(x[0].center + x[1].center),
            )
        ),
    ),
    "add: second branch forgotten going backward": (affine.Combine, "backward", _drop_second_branch),
    "subtract: treated as an addition": (
        affine.Combine,
        "interval",
        lambda original: (
            lambda self, *x: Interval(
                x[0].center + x[1].center, (x[0].radius + x[1].radius).expand_as(x[0].center + x[1].center)
            )
        ),
    ),
    "relu: upper line without its intercept": (nonlinear.ReLU, "lines", _chord_without_intercept),
    "relu: lower and upper line the same": (nonlinear.ReLU, "lines", _only_lower_line),
    "tanh: tangent points ignored": (nonlinear.Tanh, "stationary", _no_stationary_points),
    "elu: tangent points ignored": (nonlinear.ELU, "stationary", _no_stationary_points),
    "softplus: tangent points ignored": (smooth.Softplus, "stationary", _no_stationary_points),
    "silu, gelu: tangent points ignored": (smooth.Gated, "stationary", _no_stationary_points),
    "silu, gelu: interval by both ends, as if monotone": (smooth.Gated, "interval", _image_of_ends),
    "layer norm: the spread as if it were fixed": (normalized.LayerNorm, "_squares", _squares_of_middle),
    "layer norm: mean not subtracted going backward": (
        normalized.LayerNorm,
        "backward",
        lambda original: lambda self, rows, *x: _with_slope(self, rows, original(self, rows, *x)),
    ),
    "product: the radii's product forgotten": (
        nonlinear.Product,
        "backward",
        lambda original: (
            lambda self, rows, *x: original(self, rows, *(Interval(part.center, 0 * part.radius) for part in x))
        ),
    ),
    "product: interval of two corners": (nonlinear.Product, "interval", _two_corners),
    "gru: the state not blended in": (
        recurrent._Step,
        "_gru",
        lambda original: lambda self, x, h: self.emit(nonlinear.Tanh(), [self._both(x, h, 2)]),
    ),
    "lstm: forget gate ignored": (
        recurrent._Step,
        "_times",
        lambda original: (
            lambda self, gate, value, parts=None: original(
                self, gate, 0 * value if isinstance(value, torch.Tensor) else value, parts
            )
        ),
    ),
    "max-pool: upper end from the centre": (nonlinear.MaxPool, "interval", _pool_of_lower),
    "interval: lower and upper swapped in a form": (
        backward,
        "_over_interval",
        lambda original: (
            lambda form, node: (
                original(form, node)
                + 2
                * (
                    form.flatten(2).abs()
                    @ node.interval.radius.expand_as(node.interval.center).flatten(1).unsqueeze(-1)
                ).squeeze(-1)
            )
        ),
    ),
    "ball: dual norm of the wrong order": (
        Ball,
        "_reach",
        lambda original: lambda self, flat: 0.7 * original(self, flat),
    ),
    "ball: range clips one end too far": (
        Ball,
        "box",
        lambda original: (
            lambda self: Bounds(
                original(self).lower, torch.minimum(original(self).upper, self.center + 0.5 * self.budget())
            )
        ),
    ),
    "rounding: no outward widening": (
        rounding.Rounding,
        "error",
        lambda original: lambda self, terms, spread, inference, ours, largest: 0.0 * inference,
    ),
    "rounding: overflow of float32 not noticed": (
        rounding.Rounding,
        "error",
        lambda original: lambda self, *sizes: original(self, *sizes[:4], 0 * sizes[4]),
    ),
}


# The kind of network that notices at once; other bugs are noticed by the first proofs of all.
NOTICES = {
    "dense: no |W| for the radius": "relu",
    "conv: radius ignores |W|": "conv1d",
    "transposed conv": "transposed",
    "padding": "padded",
    "scale: sign": "branches",
    "add: radii": "dueling",
    "add: second": "residual",
    "subtract": "residual",
    "relu": "relu",
    "tanh": "tanh",
    "elu": "elu",
    "softplus": "softplus",
    "layer norm": "layer-norm",
    "gru": "gru",
    "lstm": "lstm",
    "max-pool": "max-pool",
    "interval": "relu",
}


def test_there_are_twenty_bugs() -> None:
    assert len(MUTANTS) >= 20


def test_the_proofs_pass_without_a_bug() -> None:
    quick_proof()


def check_mutant(name: str, first: str | None = None) -> None:
    """With this bug planted, a proof fails, or the sound form, which checks itself at three points, refuses.

    first  the kind of network to begin with; None: the proofs in their own order, and none is left out
    """
    where, attribute, mutate = MUTANTS[name]
    with (
        mock.patch.object(where, attribute, mutate(getattr(where, attribute))),
        pytest.raises((AssertionError, rr.BadInput)),
    ):
        quick_proof(first)


@pytest.mark.parametrize("name", MUTANTS)
def test_the_proofs_notice(name: str) -> None:
    check_mutant(name, next((kind for start, kind in NOTICES.items() if name.startswith(start)), None))


@pytest.mark.nightly
@pytest.mark.parametrize("name", MUTANTS)
def test_the_proofs_notice_in_their_own_order(name: str) -> None:
    check_mutant(name)
