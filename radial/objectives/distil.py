"""The objective of `robustify` by distillation: a student near its teacher in all of the ball, by search and bounds.

No reward enters it. What the student sees, and how ε grows, is left to the loop (training/distilling.py).
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from radial.bounds.methods import ibp, rectifier_inputs
from radial.core import checks
from radial.core.ball import Ball
from radial.core.data import Bounds, Loss
from radial.core.search import steepest
from radial.losses import distillation as loss
from radial.losses.regularizers import relu_balance, tightness


class Lessons(NamedTuple):
    """Observations and what the teacher says there; the last two of all its states, not of these alone."""

    x: Tensor  # (B, *obs), network units
    scores: Tensor  # (B, A)  the teacher's logits, Q-values or mean actions
    matters: Tensor  # ()  mean of max − mean of its scores: discrete actions
    spread: Tensor  # (A,)  deviation of its mean actions: continuous ones


@dataclass(frozen=True)
class Distil:
    """(1 − alpha)·D at a searched point + alpha·worst D inside IBP bounds + own·settled choice + regularisers.

    D is the divergence of the student from its teacher (losses/distillation.py). The regularisers of Shi et al. (2021)
    have the weight regularize·(1 − ε/ε_max).

    radius  ε_max        alpha  share of the bounds        own  weight of the student's own choice where little matters
    steps   of the search, which starts at the centre
    """

    radius: float
    alpha: float = 0.5
    own: float = 0.5
    regularize: float = 0.2
    steps: int = 1

    def __post_init__(self) -> None:
        checks.positive(self, "radius")
        checks.share(self, "alpha")
        checks.not_negative(self, "own", "regularize")
        checks.whole(self, "steps")

    def __call__(self, network: nn.Module, data: Lessons, ball: Ball | None, discrete: bool) -> Loss:
        """The loss of a batch; ball None: ε is 0, and the student is taught at the centre.

        network  (B, *obs) → (B, A), the part of the student that decides
        """
        lesson = loss.discrete_lesson(data.scores, data.matters) if discrete else None

        def apart(outputs: Tensor) -> Tensor:
            if lesson is not None:
                return loss.imitated(outputs, lesson)
            return loss.followed(outputs, data.scores, data.spread)

        if ball is None:
            total = apart(network(data.x)).mean()
            return Loss(total, {"losses/divergence": total.detach()})
        at_point = apart(network(self._search(network, ball, apart))).mean()
        bounds = ibp(network, ball)
        if lesson is None:
            worst, own = loss.worst_followed(bounds, data.scores, data.spread).mean(), data.x.new_zeros(())
        else:
            worst = loss.worst_imitated(bounds, lesson).mean()
            own = loss.settled_choice(bounds, network(data.x), lesson).mean()
        regular = self._regular(network, ball)
        total = (1 - self.alpha) * at_point + self.alpha * worst + self.own * own + regular
        parts = {
            "losses/divergence": at_point, "robust/worst_divergence": worst, "robust/own_choice": own,
            "robust/regularizer": regular, "robust/bound_width": bounds.width.mean(),
        }  # fmt: skip
        return Loss(total, {name: part.detach() for name, part in parts.items()})

    def _search(self, network: nn.Module, ball: Ball, apart: object) -> Tensor:
        """Points of the ball where the student is far from its teacher, (B, *obs), without gradient."""
        x = ball.center.detach()
        for step in range(self.steps):
            with torch.enable_grad():
                at = x.detach().requires_grad_(True)
                (slope,) = torch.autograd.grad(apart(network(at)).sum(), at)  # type: ignore[operator]
            x = ball.project(x + steepest(slope, ball) * ball.budget() * (1.0 if step == 0 else 1.5 / self.steps))
        return x.detach()

    def _regular(self, network: nn.Module, ball: Ball) -> Tensor:
        left = max(0.0, 1 - float(ball.budget().max()) / self.radius)
        if not (self.regularize and left):
            return ball.center.new_zeros(())
        inputs = [Bounds(each.lower, each.upper) for each in rectifier_inputs(network, ball)]
        if not inputs:
            return ball.center.new_zeros(())
        return self.regularize * left * (tightness(inputs, ball.budget().mean()) + relu_balance(inputs))
