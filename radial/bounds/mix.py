"""A mix of two bound methods whose share follows a schedule, as robust training uses them.

The mix of fixed share, and its sound form, is `methods.mixed`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from radial.bounds.methods import method
from radial.core.ball import Ball
from radial.core.data import Bounds
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


def check_bound(bound: str | Mix) -> None:
    """Refuse an unknown bound method."""
    if not isinstance(bound, Mix):
        method(bound)


def settled(bound: str | Mix, step: int) -> str | Mix:
    """The same bound at this step: a single method where the share of a mix is 0 or 1."""
    share = bound.share(step) if isinstance(bound, Mix) else None
    if isinstance(bound, Mix) and share in (0.0, 1.0):
        return bound.first if share else bound.second
    return bound


def bounds_of(
    network: nn.Module, ball: Ball, bound: str | Mix, at: Mapping[str, Tensor], rows: Tensor | None = None
) -> Bounds:
    """Bounds of a network's outputs, or of linear forms of them, by one method or a mix of two.

    at  holds the mix's `share` () at this step
    """
    if isinstance(bound, str):
        return method(bound)(network, ball, rows)
    first, second = (method(name)(network, ball, rows) for name in (bound.first, bound.second))
    share = at["share"]
    return Bounds(torch.lerp(second.lower, first.lower, share), torch.lerp(second.upper, first.upper, share))
