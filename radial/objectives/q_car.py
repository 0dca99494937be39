"""CAR-DQN (Li et al. 2024): the worst TD error of the action taken, rows weighed by how bad they are."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from radial.bounds.mix import weighed
from radial.core import checks
from radial.core.schedules import Constant, Schedule
from radial.losses.car import farthest_td, soft_worst
from radial.objectives.base import ATARI, Coefficients, Radial
from radial.objectives.dueling import DuelingNetwork, bound_beyond
from radial.objectives.q_learning import (
    TD,
    Batch,
    Nets,
    OneNetwork,
    Plain,
    QLoss,
    clean_pass,
    weighted_mean,
)


@dataclass(frozen=True)
class CAR(OneNetwork, Radial):
    """κ·TD loss + (1 − κ)·Σ pᵢ·ℓᵢ, ℓ the largest TD loss in the ball and p = softmax(ℓ/temperature) over the batch.

    temperature  the paper's λ: towards 0 the worst row alone counts, at ∞ all rows alike
    kappa        0, as in the authors' runs: no clean term

    Q is bounded with V, which RADIAL leaves out: the loss is about the value itself, not about the order of actions.
    The ball is not clipped, as in the authors' code.
    """

    radius: Schedule = ATARI
    kappa: Schedule = Constant(0.0)
    temperature: float = 1.0
    clean = Plain

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.positive(self, "temperature")

    def __call__(self, nets: Nets, batch: Batch, at: Coefficients, td: TD) -> QLoss:
        """mean(weight·(κ·TD loss + (1 − κ)·B·p·ℓ)), with the importance weights of the batch."""
        clean = clean_pass(nets, batch, td)
        beyond = _BeyondFirst(nets.online)
        ball = self.ball(batch.x, at)
        terms = bound_beyond(nets.online.features[0], beyond, nets.online, ball, clean.first, self.bound, at)
        farthest = weighed(terms, lambda found: farthest_td(found, batch.action, clean.target, td.shape))
        worst = soft_worst(farthest, self.temperature, batch.weight)
        rows = torch.lerp(worst, clean.td, at["kappa"]) + self.regular(nets.online, batch.x, at)
        width = terms[0][1].width.mean()
        return clean.loss(rows, batch, adversarial_loss=weighted_mean(worst, batch), bound_width=width)


class _BeyondFirst(nn.Module):
    """Q from the output of the first layer on."""

    def __init__(self, net: DuelingNetwork) -> None:
        super().__init__()
        self.features, self.value, self.advantage = net.features[1:], net.value, net.advantage

    def forward(self, first: Tensor) -> Tensor:
        features = self.features(first)
        q: Tensor = self.value(features) + self.advantage(features)
        return q
