"""Objectives of deep Q-learning: the TD loss, and RADIAL's two approaches around it.

SA-DQN and RS-DQN are in `q_baselines`. Nothing here has control flow that depends on a value.
"""

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, nn

from radial.bounds.mix import AnyBound, weighed
from radial.core import checks
from radial.core.ball import Ball
from radial.core.data import LATER, BadInput, Bounds, Loss
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
from radial.objectives.dueling import BoundTerms, DuelingNetwork, bound_advantages, is_padded, joint_pass

JOINT = ("none", "next", "centre", "both")  # passes of the online network that share a batch: s with s′, with the box


class Nets(NamedTuple):
    """The networks of an update. The target is not trained here; a student is present if the objective distils one."""

    online: DuelingNetwork
    target: DuelingNetwork
    student: DuelingNetwork | None = None
    valid_range: tuple[float, float] | None = None  # of an observation, in network units
    joint: str = "none"  # one of JOINT: fewer and larger passes with the same loss
    teacher: nn.Module | None = None  # logits of a policy to imitate


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

    def target(self, nets: Nets, batch: Batch, online_next: Tensor | None = None) -> Tensor:
        """The regression target of Q(s, a), (B,), without gradient. online_next: Q(s′) (B, A), if it is known."""
        with torch.no_grad():
            target_next = nets.target(batch.next_x)
            if not self.double:
                return max_q_target(batch.reward, batch.discount, target_next)
            chosen = nets.online(batch.next_x) if online_next is None else online_next
            return double_q_target(batch.reward, batch.discount, chosen, target_next)

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
    with_next = td.double and nets.joint in ("next", "both")
    first = nets.online.features[0](torch.cat([batch.x, batch.next_x]) if with_next else batch.x)
    features = nets.online.features[1:](first)
    return _finished(nets, batch, td, first, features, nets.online.advantage(features))


def _finished(nets: Nets, batch: Batch, td: TD, first: Tensor, features: Tensor, advantage: Tensor) -> CleanPass:
    """The rest of a pass whose rows are s, or s and then s′ (2B, …)."""
    rows = batch.x.shape[0]
    value: Tensor = nets.online.value(features)
    q = value + advantage
    target = td.target(nets, batch, q[rows:].detach() if q.shape[0] > rows else None)
    q = q[:rows]
    error = taken(q, batch.action) - target
    return CleanPass(first[:rows], value[:rows], q, target, td.shape(error), error.detach())


def bounded_pass(
    nets: Nets, batch: Batch, td: TD, ball: Ball, bound: AnyBound, at: Coefficients
) -> tuple[CleanPass, BoundTerms]:
    """The clean pass, and bounds of the centred advantages over the ball (B, A)."""
    if nets.joint not in ("centre", "both") or bound != "ibp" or is_padded(nets.online.features[0]):
        clean = clean_pass(nets, batch, td)
        return clean, bound_advantages(nets.online, ball, clean.first, bound, at)
    x = torch.cat([batch.x, batch.next_x]) if td.double and nets.joint == "both" else batch.x
    *passed, bounds = joint_pass(nets.online, x, ball)
    return _finished(nets, batch, td, *passed), [(1.0, bounds)]


def weighted_mean(rows: Tensor, batch: Batch) -> Tensor:
    """The mean of a loss (B,) under the importance weights of the batch."""
    return (batch.weight * rows).mean()


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
        clean, terms = bounded_pass(nets, batch, td, self.ball(batch.x, at), self.bound, at)
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

    value_bias  as in the paper, V keeps its gradient in Q(s, y) of the actions not taken and has none in their bounds.
                So every such term pulls V(s) to the end of the bounds that is farther from A(s, y), a bias that no
                reward explains. False: V has no gradient there either
    """

    value_bias: bool = field(default=True, metadata=LATER)

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.kind(self, "value_bias", bool)

    def adversarial(self, advantage: Bounds, clean: CleanPass, batch: Batch, td: TD) -> Tensor:
        """The worst TD loss over the bounds."""
        value = clean.value.detach()
        bounds = Bounds(value + advantage.lower, value + advantage.upper)
        q = clean.q if self.value_bias else clean.q - clean.value + value
        return worst_case_td(bounds, q, batch.action, clean.target, td.shape)


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
