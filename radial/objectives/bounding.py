"""How objectives enclose a network: by one bound method or a mix of two, over a ball whose radius follows a schedule.

What is done with the bounds is each objective's business.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from radial.bounds.methods import method
from radial.core.ball import Ball
from radial.core.data import Bounds
from radial.core.schedules import Constant, Schedule, settle

ATARI: Schedule = Constant(1 / 255)  # one grey level: the ε of the papers on Atari

Coefficients = Mapping[str, Tensor]  # schedules at a step, as tensors ()


@dataclass(frozen=True)
class Mix:
    """share·first + (1 − share)·second: bounds that start tight and end cheap to satisfy (SA-PPO's β is the share)."""

    share: Schedule
    first: str = "ibp"
    second: str = "crown-ibp"

    def __post_init__(self) -> None:
        settle(self, "share")
        method(self.first), method(self.second)


def check(bound: str | Mix) -> None:
    """Refuse what is no bound method."""
    if not isinstance(bound, Mix):
        method(bound)


def cheapest(bound: str | Mix, step: int) -> str | Mix:
    """The same bound at this step, as one method where a mix has come to its end."""
    share = bound.share(step) if isinstance(bound, Mix) else None
    if isinstance(bound, Mix) and share in (0.0, 1.0):
        return bound.first if share else bound.second
    return bound


def schedules(radius: Schedule, bound: str | Mix, step: int) -> dict[str, float]:
    """ε, and the share of a mix, at a step."""
    at = {"radius": radius(step)}
    return at if isinstance(bound, str) else at | {"share": bound.share(step)}


def weighted(radius: Schedule, bound: str | Mix, kappa: Schedule, step: int) -> dict[str, float]:
    """The same and κ, which is 1 while ε is 0: training is standard before the ramp."""
    at = schedules(radius, bound, step)
    return at | {"kappa": kappa(step) if at["radius"] > 0 else 1.0}


def enclose(network: nn.Module, ball: Ball, bound: str | Mix, at: Coefficients, rows: Tensor | None = None) -> Bounds:
    """Bounds of a network's outputs, or of linear forms of them, by one method or a mix of two."""
    if isinstance(bound, str):
        return method(bound)(network, ball, rows)
    first, second = (method(name)(network, ball, rows) for name in (bound.first, bound.second))
    share = at["share"]
    return Bounds(torch.lerp(second.lower, first.lower, share), torch.lerp(second.upper, first.upper, share))
