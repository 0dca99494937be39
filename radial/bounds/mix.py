"""A mix of two bound methods whose share follows a schedule, as robust training uses them.

The mix of fixed share, and its sound form, is `methods.mixed`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from radial.bounds.methods import method
from radial.bounds.small_box import ExpressiveCC, ExpressiveMTL, SmallBox, training_terms
from radial.core.ball import Ball
from radial.core.data import BadInput, Bounds
from radial.core.schedules import Schedule, settle


@dataclass(frozen=True)
class Mix:
    """share·first + (1 − share)·second: bounds that start tight and end cheap to satisfy (SA-PPO's β is the share)."""

    share: Schedule
    first: str = "ibp"
    second: str = "crown-ibp"

    def __post_init__(self) -> None:
        settle(self, "share")
        method(self.first), method(self.second)


AnyBound = str | Mix | SmallBox | ExpressiveMTL | ExpressiveCC  # that an objective may train on


def check_bound(bound: AnyBound) -> None:
    """Refuse an unknown bound method."""
    if isinstance(bound, str):
        method(bound)
    elif not isinstance(bound, AnyBound):
        raise BadInput(f"bound must be a method's name, Mix, SmallBox, ExpressiveMTL or ExpressiveCC, got {bound!r}")


def settled(bound: AnyBound, step: int) -> AnyBound:
    """The same bound at this step: a single method where the share of a mix is 0 or 1."""
    share = bound.share(step) if isinstance(bound, Mix) else None
    if isinstance(bound, Mix) and share in (0.0, 1.0):
        return bound.first if share else bound.second
    return bound


def bound_terms(
    network: nn.Module, ball: Ball, bound: AnyBound, at: Mapping[str, Tensor], rows: Tensor | None = None
) -> list[tuple[float, Bounds]]:
    """Bounds of a network's outputs, or of linear forms of them, each with the weight that a loss has there.

    One pair of weight 1, unless the bound mixes losses (`ExpressiveMTL`): `weighed` adds them up.
    at  holds the mix's `share` () at this step
    """
    if isinstance(bound, str):
        return [(1.0, method(bound)(network, ball, rows))]
    if not isinstance(bound, Mix):
        return training_terms(network, ball, bound, rows)
    first, second = (method(name)(network, ball, rows) for name in (bound.first, bound.second))
    share = at["share"]
    lower, upper = torch.lerp(second.lower, first.lower, share), torch.lerp(second.upper, first.upper, share)
    return [(1.0, Bounds(lower, upper))]


def bounds_of(
    network: nn.Module, ball: Ball, bound: str | Mix, at: Mapping[str, Tensor], rows: Tensor | None = None
) -> Bounds:
    """The bounds of one method or a mix of two; arguments as for `bound_terms`."""
    ((_, bounds),) = bound_terms(network, ball, bound, at, rows)
    return bounds


def weighed(terms: list[tuple[float, Bounds]], loss: Callable[[Bounds], Tensor]) -> Tensor:
    """Σ weight·loss(bounds): the loss itself where there is one pair of weight 1."""
    (weight, bounds), *others = terms
    total = loss(bounds) if weight == 1.0 else weight * loss(bounds)
    for weight, bounds in others:
        total = total + weight * loss(bounds)
    return total
