"""Bounds that train well and prove nothing: boxes inside the ball, and mixes with a point of it that is searched.

No certificate takes them: they are no entries of `METHODS`. A `Mix` of two methods, which is a bound, is in `mix`.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from radial.bounds.methods import method
from radial.core import checks
from radial.core.ball import Ball
from radial.core.data import BadInput, Bounds
from radial.core.search import steepest

AIMS = ("action", "distance")


@dataclass(frozen=True)
class Aimed:
    """A bound with a search in it: `steps` steps of steepest ascent from the centre.

    method  of the bounds around the point, a key of METHODS
    aim     "action": the output that is largest at the centre falls behind the others (logits, advantages);
            "distance": the outputs move away from those at the centre (mean actions)
    """

    method: str = "ibp"
    steps: int = 1
    aim: str = "action"

    def __post_init__(self) -> None:
        method(self.method)
        checks.whole(self, "steps")
        if self.aim not in AIMS:
            raise BadInput(f"aim must be one of {', '.join(AIMS)}, got {self.aim!r}")

    def find(self, network: nn.Module, ball: Ball) -> Tensor:
        """The point, (B, *obs), without gradient."""
        with torch.no_grad():
            centre = network(ball.center)
        x = ball.center.detach()
        for step in range(self.steps):
            with torch.enable_grad():
                at = x.detach().requires_grad_(True)
                outputs = network(at)
                if self.aim == "distance":
                    # At the centre the distance has no gradient, so the first step raises the sum of the outputs.
                    value = outputs.sum() if step == 0 else (outputs - centre).square().sum()
                else:
                    greedy = centre.argmax(1, keepdim=True)
                    value = -outputs.log_softmax(1).gather(1, greedy).sum()
                (slope,) = torch.autograd.grad(value, at)
            # The first step reaches the border; later ones can still turn a feature round.
            x = ball.project(x + steepest(slope, ball) * ball.budget() * (1.0 if step == 0 else 2.0))
        return x.detach()


@dataclass(frozen=True)
class SmallBox(Aimed):
    """SABR (Müller et al. 2023): a box of radius share·ε inside the ball, as near to an adversarial point as possible.

    share  λ; 1 is the whole ball. Small boxes train well, but certify only under branch and bound: keep λ ≥ 0.9
    """

    share: float = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.share(self, "share")
        checks.positive(self, "share")


@dataclass(frozen=True)
class ExpressiveMTL(Aimed):
    """MTL-IBP (De Palma et al. 2024): share·L(bounds) + (1 − share)·L(adversarial point), a mix of losses."""

    share: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.share(self, "share")


@dataclass(frozen=True)
class ExpressiveCC(Aimed):
    """CC-IBP (De Palma et al. 2024): L(share·bounds + (1 − share)·outputs at an adversarial point), a mix of bounds."""

    share: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.share(self, "share")


TrainingBound = SmallBox | ExpressiveMTL | ExpressiveCC  # bounds of training alone


def inner_ball(ball: Ball, point: Tensor, share: float) -> Ball:
    """The ball of radius share·ε around the point of the ball of radius (1 − share)·ε that is nearest to `point`.

    It lies inside the given ball; for p = ∞ its centre is clamp(point, l + share·ε, u − share·ε).
    """
    outer = Ball.unchecked(ball.center, ball.radius * (1 - share), ball.p, ball.low, ball.high)
    return Ball.unchecked(outer.project(point), ball.radius * share, ball.p, ball.low, ball.high)


def training_terms(
    network: nn.Module, ball: Ball, bound: TrainingBound, rows: Tensor | None = None
) -> list[tuple[float, Bounds]]:
    """Bounds, or linear forms of them, and the weight that a loss has at each; the weights add up to 1."""
    point = bound.find(network, ball)
    if isinstance(bound, SmallBox):
        return [(1.0, method(bound.method)(network, inner_ball(ball, point, bound.share), rows))]
    outputs = network(point)
    if rows is not None:
        outputs = (rows.to(outputs) @ outputs.unsqueeze(-1)).squeeze(-1)
    found = method(bound.method)(network, ball, rows)
    if isinstance(bound, ExpressiveCC):
        lower, upper = (torch.lerp(outputs, end, bound.share) for end in (found.lower, found.upper))
        return [(1.0, Bounds(lower, upper))]
    return [(bound.share, found), (1 - bound.share, Bounds(outputs, outputs))]
