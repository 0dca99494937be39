"""Corner search: the worst corner of the ball for small observations, without any gradient.

All corners are tried where they are few; otherwise the best single flip is taken again and again.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from radial.attacks.gradient import Memoryless, attackable, distance_of_means, margin_against
from radial.core import checks
from radial.core.agent import Agent
from radial.core.ball import Ball
from radial.core.data import BadInput, Discrete
from radial.core.search import AttackObjective

MOST_FEATURES = 512


def check_corners(shape: tuple[int, ...]) -> int:
    """How many numbers an observation of this shape has; `BadInput` if its corners are too many to search."""
    features = math.prod(shape)
    if features > MOST_FEATURES:
        raise BadInput(f"corners must be searched in at most {MOST_FEATURES} features, got {features}")
    return features


@dataclass(frozen=True)
class Corners(Memoryless):
    """The corner x ± radius that maximises the margin of another action, or how far the mean action moves.

    For p = ∞ all 2ⁿ corners up to `exhaustive` features, beyond it greedy flips from the centre's best; for p = 2 the
    same directions on the sphere; for p = 1 the 2n corners of the diamond as well. It needs no gradient, so it works
    where gradients are masked.
    """

    exhaustive: int = 6  # features
    flips: int = 2  # passes over all features

    def __post_init__(self) -> None:
        checks.whole(self, "flips")
        checks.whole(self, "exhaustive", least=0)

    def objective(self, agent: Agent, center: Tensor) -> AttackObjective:
        """The margin, or the squared distance of the means, at x, (B, *obs) → (B,)."""
        agent = attackable(agent)
        if isinstance(agent.actions, Discrete):
            return margin_against(agent, center)
        return distance_of_means(agent, center)

    def draws_nothing(self, agent: Agent) -> bool:
        """It draws nothing."""
        return True

    def perturb(self, agent: Agent, ball: Ball, rng: torch.Generator) -> Tensor:
        """The best corner found, (B, *obs)."""
        features = check_corners(ball.center.shape[1:])
        agent = attackable(agent)
        found = _Best(agent, self, ball)
        if features <= self.exhaustive:
            for number in range(1 << features):
                signs = [1.0 if number >> bit & 1 else -1.0 for bit in range(features)]
                found.offer(ball.center.new_tensor(signs).expand(len(ball.center), -1))
        else:
            self._climb(found, features)
        if ball.p == 1:
            for sign, at in ((sign, at) for sign in (1.0, -1.0) for at in range(features)):
                unit = torch.zeros_like(ball.center.flatten(1))
                unit[:, at] = sign
                found.offer(unit)
        return found.x

    def _climb(self, found: "_Best", features: int) -> None:
        """Flips of one feature at a time, each kept where it helps: n tries per pass."""
        shape = (len(found.ball.center), features)
        ones = found.ball.center.new_ones(shape)
        for signs in (ones, -ones):
            found.offer(signs)
        for _ in range(self.flips):
            for at in range(features):
                signs = found.signs.clone()
                signs[:, at] *= -1
                found.offer(signs)


class _Best:
    """The best point so far of each row, and the signs that lead there."""

    def __init__(self, agent: Agent, attack: Corners, ball: Ball) -> None:
        self.ball, self._score = ball, attack.objective(agent, ball.center)
        self.x, self.signs = ball.center, torch.ones_like(ball.center.flatten(1))
        self._best = torch.full((len(ball.center),), -math.inf, dtype=ball.center.dtype, device=ball.center.device)

    @torch.no_grad()
    def offer(self, signs: Tensor) -> None:
        """Take the corner of these signs (B, n) where it is better."""
        x = self.ball.project(self.ball.center + self.ball.budget() * signs.view_as(self.ball.center))
        value = self._score(x)
        better = value > self._best
        self._best = torch.where(better, value, self._best)
        self.signs = torch.where(better.unsqueeze(1), signs, self.signs)
        self.x = torch.where(better.view(-1, *[1] * (x.ndim - 1)), x, self.x)
