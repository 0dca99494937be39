"""Objectives of deep Q-learning: the TD loss, and RADIAL's two approaches around it.

SA-DQN and RS-DQN are in `q_baselines`. Nothing here has control flow that depends on a value.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from radial.bounds.mix import AnyBound, bound_terms, weighed
from radial.core import checks
from radial.core.ball import Ball
from radial.core.data import BadInput, Bounds, Loss
from radial.core.schedules import Constant, Schedule
from radial.losses.action_values import (
    SHAPES,
    double_q_target,
    max_q_target,
    overlap,
    symmetric_overlap,
    taken,
    worst_case_td,
)
from radial.objectives.base import ATARI, Coefficients, Radial, Unscheduled

BoundTerms = list[tuple[float, Bounds]]  # bounds, and the weight of a loss there
DUAL = {1.0: math.inf, 2.0: 2.0, math.inf: 1.0}  # 1/p + 1/q = 1


class DuelingNetwork(Protocol):
    """Q = value(features) + advantage(features), with centred advantages: all that an objective needs of a network."""

    features: nn.Sequential  # (B, *obs) → (B, F), beginning with a linear layer or a convolution
    advantage: nn.Sequential  # (B, F) → A − mean(A), (B, A)
    value: nn.Sequential  # (B, F) → V, (B, 1)

    @property
    def advantages(self) -> nn.Module:
        """(B, *obs) → A − mean(A), (B, A): the network to bound."""

    @property
    def beyond_first(self) -> nn.Module:
        """The same network from the output of the first layer on."""

    def __call__(self, x: Tensor) -> Tensor:
        """(B, *obs) → Q (B, A)."""


class Nets(NamedTuple):
    """The networks of an update. The target is not trained here; a student is present if the objective distils one."""

    online: DuelingNetwork
    target: DuelingNetwork
    student: DuelingNetwork | None = None
    valid_range: tuple[float, float] | None = None  # of an observation, in network units


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
    """A loss, and the priorities of its rows in a prioritised replay."""

    priority: Tensor  # (B,)  |TD error|, detached

    @property
    def rows(self) -> tuple[Tensor, ...]:
        """The priorities."""
        return (self.priority,)


@dataclass(frozen=True)
class TD:
    """The temporal-difference loss: the kind of target, and the shape of the loss."""

    double: bool = True  # the online network picks the next action, the target network evaluates it
    loss: str = "square-or-abs"  # a key of SHAPES

    def __post_init__(self) -> None:
        if self.loss not in SHAPES:
            raise BadInput(f"loss must be one of {', '.join(SHAPES)}, got {self.loss!r}")

    def target(self, nets: Nets, batch: Batch) -> Tensor:
        """The regression target of Q(s, a), (B,), without gradient."""
        with torch.no_grad():
            target_next = nets.target(batch.next_x)
            if not self.double:
                return max_q_target(batch.reward, batch.discount, target_next)
            return double_q_target(batch.reward, batch.discount, nets.online(batch.next_x), target_next)

    def shape(self, error: Tensor) -> Tensor:
        """The loss of an error, elementwise."""
        return SHAPES[self.loss](error)


class CleanPass(NamedTuple):
    """One pass of the online network over a batch, and its TD loss."""

    first: Tensor  # (B, …)  output of the first layer, before its nonlinearity
    value: Tensor  # (B, 1)
    q: Tensor  # (B, A)
    target: Tensor  # (B,)
    td: Tensor  # (B,)  the loss of each row
    error: Tensor  # (B,)  detached

    def loss(self, rows: Tensor, batch: Batch, **parts: Tensor) -> QLoss:
        """The weighted mean of `rows` (B,), its terms for the log, and |TD error|."""
        known = {"losses/td_loss": weighted_mean(self.td, batch), "charts/q_value": taken(self.q, batch.action).mean()}
        named = known | {f"robust/{name}": part for name, part in parts.items()}
        return QLoss(
            weighted_mean(rows, batch), {name: part.detach() for name, part in named.items()}, self.error.abs()
        )


def clean_pass(nets: Nets, batch: Batch, td: TD) -> CleanPass:
    """Run the networks on the clean observations."""
    first = nets.online.features[0](batch.x)
    features = nets.online.features[1:](first)
    value: Tensor = nets.online.value(features)
    q = value + nets.online.advantage(features)
    target = td.target(nets, batch)
    error = taken(q, batch.action) - target
    return CleanPass(first, value, q, target, td.shape(error), error.detach())


def weighted_mean(rows: Tensor, batch: Batch) -> Tensor:
    """The mean of a loss (B,) under the importance weights of the batch."""
    return (batch.weight * rows).mean()


def bound_advantages(net: DuelingNetwork, ball: Ball, first: Tensor, bound: AnyBound, at: Coefficients) -> BoundTerms:
    """Bounds of the centred advantages (B, A); arguments as for `bound_beyond`."""
    return bound_beyond(net.features[0], net.beyond_first, net.advantages, ball, first, bound, at)


def bound_beyond(
    layer: nn.Module, beyond: nn.Module, whole: Any, ball: Ball, first: Tensor, bound: AnyBound, at: Coefficients
) -> BoundTerms:
    """Bounds of a network over a ball of one radius for all features, not clipped.

    layer  its first        beyond  the rest of it        first  (B, …)  output of the first layer at the centre

    Bounds of an affine layer are its own output ± ε·‖w‖q, q the dual of p: exact, and for p = ∞ interval bounds. So
    IBP reuses the output of the first layer, the most expensive one for frames; its radius is a number per channel.
    """
    padded = isinstance(layer, nn.Conv2d) and layer.padding not in (0, (0, 0))  # at a border fewer weights see the ball
    if bound != "ibp" or padded:
        return bound_terms(whole, ball, bound, at)
    weight: Tensor = layer.weight  # type: ignore[assignment]
    spread = ball.radius * torch.linalg.vector_norm(weight.flatten(1), DUAL[ball.p], dim=1)
    box = Ball.unchecked(first, spread.view(-1, *[1] * (first.ndim - 2)))
    return bound_terms(beyond, box, bound, at)


# ----------------------------------------------------------------------------------------------------------- objectives


class OneNetwork:
    """Base of objectives that train the Q-network alone, which then acts."""

    @property
    def student(self) -> bool:
        """Whether a second network is trained, which then acts."""
        return False


@dataclass(frozen=True)
class Plain(OneNetwork, Unscheduled):
    """The TD loss of (double) deep Q-learning."""

    def __call__(self, nets: Nets, batch: Batch, at: Coefficients, td: TD) -> QLoss:
        """mean(weight·shape(Q(s, a) − target))."""
        clean = clean_pass(nets, batch, td)
        return clean.loss(clean.td, batch)


@dataclass(frozen=True)
class RadialQ(OneNetwork, Radial):
    """RADIAL-DQN: κ·TD loss + (1 − κ)·adversarial term. The ball is not clipped, as in the authors' code."""

    radius: Schedule = ATARI
    kappa: Schedule = Constant(0.8)
    clean = Plain

    @abstractmethod
    def adversarial(self, advantage: Bounds, clean: CleanPass, batch: Batch, td: TD) -> Tensor:
        """The adversarial term of each row, (B,), from bounds on the centred advantages (B, A)."""

    def __call__(self, nets: Nets, batch: Batch, at: Coefficients, td: TD) -> QLoss:
        """mean(weight·(κ·TD loss + (1 − κ)·adversarial term))."""
        clean = clean_pass(nets, batch, td)
        terms = bound_advantages(nets.online, self.ball(batch.x, at), clean.first, self.bound, at)
        adversarial = weighed(terms, lambda found: self.adversarial(found, clean, batch, td))
        rows = torch.lerp(adversarial, clean.td, at["kappa"]) + self.regular(nets.online.advantages, batch.x, at)
        return clean.loss(
            rows, batch, adversarial_loss=weighted_mean(adversarial, batch), bound_width=terms[0][1].width.mean()
        )


@dataclass(frozen=True)
class RadialWorstCase(RadialQ):
    """Approach 1: the largest TD loss over all perturbed observations, plus the spread of the other actions' bounds.

    V(s) is added to the bounds on the advantages clean and detached, as in the paper: a greedy policy does not depend
    on it. So this bounds the TD loss as a function of the advantages alone; an observation that also moves V can make
    the true loss larger. Each action is paired with its own worst end, and Q(s, y) of the actions not taken keeps its
    gradient.
    """

    def adversarial(self, advantage: Bounds, clean: CleanPass, batch: Batch, td: TD) -> Tensor:
        """The worst TD loss over the bounds."""
        value = clean.value.detach()
        bounds = Bounds(value + advantage.lower, value + advantage.upper)
        return worst_case_td(bounds, clean.q, batch.action, clean.target, td.shape)


@dataclass(frozen=True)
class RadialOverlap(RadialQ):
    """Approach 2, the paper's choice: bounds of worse actions must stay below those of the action taken.

    margin     the paper's c, the required gap as a share of Q(a) − Q(y): 0 requires none, 1 all of it
    symmetric  the loss of the appendix, which also keeps better actions above the one taken

    V(s) is the same for all actions, so it cancels.
    """

    margin: float = 0.5
    symmetric: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.share(self, "margin")
        checks.kind(self, "symmetric", bool)

    def adversarial(self, advantage: Bounds, clean: CleanPass, batch: Batch, td: TD) -> Tensor:
        """The weighted overlap of the bounds."""
        loss = symmetric_overlap if self.symmetric else overlap
        return loss(advantage, clean.q, batch.action, self.margin)
