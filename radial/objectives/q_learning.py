"""What every objective of deep Q-learning starts from: networks, a batch, its temporal difference, and bounds.

The objectives themselves are in `dqn.py`. Nothing here has control flow that depends on a value.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from radial.core.ball import Ball
from radial.core.data import BadInput, Bounds, Loss
from radial.losses.action_values import SHAPES, double_q_target, max_q_target, taken
from radial.objectives.bounding import Coefficients, Mix, enclose


class Dueling(Protocol):
    """What an objective needs of a network: Q = value(features) + advantage(features), the advantages centred."""

    @property
    def features(self) -> nn.Sequential:
        """(B, *obs) → (B, F), beginning with a linear layer or a convolution."""

    @property
    def advantage(self) -> nn.Module:
        """(B, F) → A − mean(A), (B, A)."""

    @property
    def value(self) -> nn.Module:
        """(B, F) → V, (B, 1)."""

    @property
    def advantages(self) -> nn.Module:
        """(B, *obs) → A − mean(A), (B, A): what is bounded."""

    def __call__(self, x: Tensor) -> Tensor:
        """(B, *obs) → Q (B, A)."""


class Nets(NamedTuple):
    """The networks of an update. A target is never trained here; a student is there if the objective asks for one."""

    online: Dueling
    target: Dueling
    student: Dueling | None = None
    valid_range: tuple[float, float] | None = None  # what an observation can be at all, in network units


class Batch(NamedTuple):
    """Transitions from the replay buffer."""

    x: Tensor  # (B, *obs), network units
    action: Tensor  # (B,) int64
    reward: Tensor  # (B,)
    next_x: Tensor  # (B, *obs)
    discount: Tensor  # (B,)  γ, or 0 where the episode terminated
    weight: Tensor  # (B,)  importance weights; ones where sampling is uniform
    noise: Tensor  # (B, draws, *obs)  standard normal numbers, for objectives that search


@dataclass(frozen=True, eq=False)
class QLoss(Loss):
    """A loss, and what a prioritised replay buffer wants to know."""

    priority: Tensor  # (B,)  |TD error|, detached


@dataclass(frozen=True)
class TD:
    """How a temporal difference is taken: with two networks or one, and what shape its loss has."""

    double: bool = True  # the online network picks the next action, the target network evaluates it
    loss: str = "square-or-abs"  # a key of SHAPES

    def __post_init__(self) -> None:
        if self.loss not in SHAPES:
            raise BadInput(f"loss must be one of {', '.join(SHAPES)}, got {self.loss!r}")

    def target(self, nets: Nets, batch: Batch) -> Tensor:
        """What Q(s, a) should have been, (B,), without gradient."""
        with torch.no_grad():
            target_next = nets.target(batch.next_x)
            if not self.double:
                return max_q_target(batch.reward, batch.discount, target_next)
            return double_q_target(batch.reward, batch.discount, nets.online(batch.next_x), target_next)

    def shape(self, error: Tensor) -> Tensor:
        """The loss of an error, elementwise."""
        return SHAPES[self.loss](error)


class Objective(Protocol):
    """Something to minimise."""

    @property
    def draws(self) -> int:
        """How many arrays of standard normal noise per observation it needs."""

    @property
    def student(self) -> bool:
        """Whether it trains a second network, which then is the one that acts."""

    def coefficients(self, step: int) -> dict[str, float]:
        """Its schedules at an env step."""

    def at(self, step: int) -> "Objective":
        """The cheapest objective with the same loss at this step: without the parts whose weight is 0 there."""

    def __call__(self, nets: Nets, batch: Batch, at: Coefficients, td: TD) -> QLoss:
        """The loss of a batch, with the coefficients as tensors ()."""


class Nominal(NamedTuple):
    """One pass of the online network over a batch, and its TD loss."""

    first: Tensor  # (B, …)  what the first layer gives, before its nonlinearity
    value: Tensor  # (B, 1)
    q: Tensor  # (B, A)
    target: Tensor  # (B,)
    td: Tensor  # (B,)  the loss of each row
    error: Tensor  # (B,)  detached

    def loss(self, rows: Tensor, batch: Batch, **parts: Tensor) -> QLoss:
        """The weighted mean of `rows` (B,), what it is made of, and |TD error|."""
        known = {"losses/td_loss": mean(self.td, batch), "charts/q_value": taken(self.q, batch.action).mean()}
        named = known | {f"robust/{name}": part for name, part in parts.items()}
        return QLoss(mean(rows, batch), {name: part.detach() for name, part in named.items()}, self.error.abs())


def nominal(nets: Nets, batch: Batch, td: TD) -> Nominal:
    """The forward pass at the true observations."""
    first = nets.online.features[0](batch.x)
    features = nets.online.features[1:](first)
    value: Tensor = nets.online.value(features)
    q = value + nets.online.advantage(features)
    target = td.target(nets, batch)
    error = taken(q, batch.action) - target
    return Nominal(first, value, q, target, td.shape(error), error.detach())


def mean(rows: Tensor, batch: Batch) -> Tensor:
    """The mean of a loss (B,) under the importance weights of the batch."""
    return (batch.weight * rows).mean()


def enclose_advantages(net: Dueling, x: Tensor, first: Tensor, bound: str | Mix, at: Coefficients) -> Bounds:
    """Bounds of the centred advantages (B, A) over the ℓ∞ ball of the current radius around x, not cut to any range.

    first  (B, …)  what the first layer gives at x

    Interval bounds of an affine layer are its own output ± ε·Σ|w|. So with IBP the first layer, which is the most
    expensive one for frames, is not computed again, and its radius is one number per channel.
    """
    layer = net.features[0]
    padded = getattr(layer, "padding", 0) not in (0, (0, 0))  # at a border fewer weights see the ball
    if bound != "ibp" or padded:
        return enclose(net.advantages, Ball.unchecked(x, at["radius"]), bound, at)
    weight: Tensor = layer.weight  # type: ignore[assignment]
    spread = at["radius"] * weight.abs().flatten(1).sum(1)
    ball = Ball.unchecked(first, spread.view(-1, *[1] * (first.ndim - 2)))
    return enclose(nn.Sequential(net.features[1:], net.advantage), ball, bound, at)
