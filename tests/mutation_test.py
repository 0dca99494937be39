"""Bugs planted in the rules, one at a time; the proofs must notice each. A proof that cannot fail proves nothing."""

from collections.abc import Callable
from typing import Any
from unittest import mock

import proofs
import pytest
import torch
import torch.nn.functional as F

import radial as rr
from radial.bounds import activation, affine, backward, nonlinear, rounding
from radial.bounds.interval import Interval
from radial.core.ball import Ball
from radial.core.data import Bounds

Mutant = tuple[Any, str, Callable[[Any], Any]]  # where, which attribute, original → mutant


def quick_proof() -> None:
    """A few seconds of every proof."""
    for seed in range(12):
        proofs.check_geometry(seed)
    for seed in range(2):
        proofs.check_affine_exact(seed)
    proofs.check_overflow()
    for kind in proofs.every_kind():
        proofs.check_zero_radius(kind, seed=1)
    for kind in proofs.every_kind():
        for seed in range(6):
            proofs.check_sampling(kind, seed, points=24)
    for seed in range(16):
        proofs.check_attained(seed)


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


def test_there_are_twenty_bugs() -> None:
    assert len(MUTANTS) >= 20


def test_the_proofs_pass_without_a_bug() -> None:
    quick_proof()


def check_mutant(name: str) -> None:
    """With this bug planted, a proof fails, or the sound form, which checks itself at three points, refuses."""
    where, attribute, mutate = MUTANTS[name]
    with (
        mock.patch.object(where, attribute, mutate(getattr(where, attribute))),
        pytest.raises((AssertionError, rr.BadInput)),
    ):
        quick_proof()


@pytest.mark.parametrize("name", MUTANTS)
def test_the_proofs_notice(name: str) -> None:
    check_mutant(name)
