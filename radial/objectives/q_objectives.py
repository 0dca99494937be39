"""What deep Q-learning minimises: the plain TD loss, RADIAL's two approaches, SA-DQN's hinge, RS-DQN's student.

An objective is a frozen dataclass. `coefficients(step)` reads its schedules, as floats; calling it with networks and
the tensors of a batch gives the loss, with no control flow that depends on a value, so that an update compiles whole.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from radial.bounds.certify import margins
from radial.core import checks
from radial.core.ball import Ball
from radial.core.data import BadInput, Bounds
from radial.core.schedules import Constant, Schedule, settle
from radial.losses.action_values import overlap, symmetric_overlap, worst_case_td
from radial.losses.baselines import imitation, margin_hinge, robust_imitation
from radial.objectives.bounding import ATARI, Coefficients, Mix, cheapest, check, enclose, schedules, weighted
from radial.objectives.q_learning import (
    TD,
    Batch,
    Dueling,
    Nets,
    Nominal,
    Objective,
    QLoss,
    enclose_advantages,
    mean,
    nominal,
)

__all__ = [
    "OBJECTIVES",
    "RS",
    "SA",
    "TD",
    "Batch",
    "Distilled",
    "Mix",
    "Nets",
    "Objective",
    "Plain",
    "QLoss",
    "RadialOverlap",
    "RadialWorstCase",
]


@dataclass(frozen=True)
class Plain:
    """The TD loss of (double) deep Q-learning."""

    draws = 0
    student = False

    def coefficients(self, step: int) -> dict[str, float]:
        """None."""
        return {}

    def at(self, step: int) -> Objective:
        """Itself."""
        return self

    def __call__(self, nets: Nets, batch: Batch, at: Coefficients, td: TD) -> QLoss:
        """mean(weight·shape(Q(s, a) − target))."""
        base = nominal(nets, batch, td)
        return base.loss(base.td, batch)


@dataclass(frozen=True)
class _Radial(ABC):
    """κ·L + (1 − κ)·L_adversarial: what both approaches share.

    The ball is not cut to the valid range, as in the authors' code.
    """

    radius: Schedule = ATARI
    kappa: Schedule = Constant(0.8)
    bound: str | Mix = "ibp"
    draws = 0
    student = False

    def __post_init__(self) -> None:
        settle(self, "radius", "kappa")
        check(self.bound)

    @abstractmethod
    def adversarial(self, advantage: Bounds, base: Nominal, batch: Batch, td: TD) -> Tensor:
        """The adversarial term of each row, (B,), from bounds on the centred advantages (B, A)."""

    def coefficients(self, step: int) -> dict[str, float]:
        """ε, and κ, which is 1 while ε is 0."""
        return weighted(self.radius, self.bound, self.kappa, step)

    def at(self, step: int) -> Objective:
        """The plain loss while ε is 0."""
        return replace(self, bound=cheapest(self.bound, step)) if self.radius(step) > 0 else Plain()

    def __call__(self, nets: Nets, batch: Batch, at: Coefficients, td: TD) -> QLoss:
        """mean(weight·(κ·TD loss + (1 − κ)·adversarial term))."""
        base = nominal(nets, batch, td)
        bounds = enclose_advantages(nets.online, batch.x, base.first, self.bound, at)
        adversarial = self.adversarial(bounds, base, batch, td)
        rows = torch.lerp(adversarial, base.td, at["kappa"])
        return base.loss(rows, batch, adversarial_loss=mean(adversarial, batch), bound_width=bounds.width.mean())


@dataclass(frozen=True)
class RadialWorstCase(_Radial):
    """Approach 1: the largest TD loss that a perturbed observation can bring about, plus the spread of other actions.

    V(s) is added to the bounds on the advantages nominal and without gradient, as in the paper: a greedy policy does
    not depend on it. So this bounds the TD loss as a function of the advantages alone; an observation that also moves
    V can make the true loss larger.
    Each action is paired with its own worst end, and Q(s, y) of the actions not taken keeps its gradient.
    """

    def adversarial(self, advantage: Bounds, base: Nominal, batch: Batch, td: TD) -> Tensor:
        """The worst TD loss over the bounds."""
        value = base.value.detach()
        bounds = Bounds(value + advantage.lower, value + advantage.upper)
        return worst_case_td(bounds, base.q, batch.action, base.target, td.shape)


@dataclass(frozen=True)
class RadialOverlap(_Radial):
    """Approach 2, the paper's choice: bounds of worse actions must stay below those of the action taken.

    margin     the paper's c: a gap of c·(Q(a) − Q(y)) is asked for; 0 asks for none, 1 for all there is
    symmetric  the loss of the appendix, which also keeps better actions above the one taken

    V(s) is the same for all actions, so it cancels.
    """

    margin: float = 0.5
    symmetric: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.share(self, "margin")
        checks.kind(self, "symmetric", bool)

    def adversarial(self, advantage: Bounds, base: Nominal, batch: Batch, td: TD) -> Tensor:
        """The weighted overlap of the bounds."""
        loss = symmetric_overlap if self.symmetric else overlap
        return loss(advantage, base.q, batch.action, self.margin)


INNER = ("convex", "pgd")


@dataclass(frozen=True)
class SA:
    """L + weight·max(−hinge, −min_y (Q(a*) − Q(y))) at the worst observation of the ball (SA-DQN, Zhang et al. 2020).

    a* is the greedy action of the online network at the true observation, y every other one; the ball is cut to the
    valid range.
    inner  "convex": lower bounds of the margins; "pgd": a point found by sign steps of ε/steps from a random start
    bound  for "convex". SA-DQN's β·CROWN-IBP + (1 − β)·IBP with β = 1 − ε/ε_max is a Mix whose share of IBP follows
           the ramp of ε up to 1

    The margins are bounded on the centred advantages, where V cancels before anything is bounded. The released code
    bounds V and the mean advantage as well and subtracts both widths, which is much looser. Its search hinges the sum
    over the batch and always uses the final ε; here each row has its own hinge and ε follows its schedule.
    """

    radius: Schedule = ATARI
    weight: float = 0.005  # of SA-DQN on Pong and Freeway
    inner: str = "convex"
    bound: str | Mix = "ibp"
    hinge: float = 1.0
    steps: int = 5
    student = False

    def __post_init__(self) -> None:
        settle(self, "radius")
        check(self.bound)
        if self.inner not in INNER:
            raise BadInput(f"inner must be one of {', '.join(INNER)}, got {self.inner!r}")
        checks.not_negative(self, "weight", "hinge")
        checks.whole(self, "steps")

    @property
    def draws(self) -> int:
        """One array of noise, for the start of the search."""
        return 1 if self.inner == "pgd" else 0

    @property
    def _mix(self) -> str | Mix:
        return self.bound if self.inner == "convex" else "ibp"  # a search has nothing to mix

    def coefficients(self, step: int) -> dict[str, float]:
        """ε, the share of IBP in a mix, and the weight, which is 0 while ε is 0, as in SA-DQN."""
        at = schedules(self.radius, self._mix, step)
        return at | {"weight": self.weight if at["radius"] > 0 else 0.0}

    def at(self, step: int) -> Objective:
        """The plain loss while ε is 0; one method where a mix has come to its end."""
        return replace(self, bound=cheapest(self._mix, step)) if self.radius(step) > 0 else Plain()

    def __call__(self, nets: Nets, batch: Batch, at: Coefficients, td: TD) -> QLoss:
        """mean(w·(TD loss + weight·hinge of the smallest margin)), with w the importance weights."""
        base = nominal(nets, batch, td)
        rows = margins(base.q.detach())  # (B, A − 1, A)
        ball = Ball.unchecked(batch.x, at["radius"], math.inf, *(nets.valid_range or (None, None)))
        if self.inner == "convex":
            margin = enclose(nets.online.advantages, ball, self.bound, at, rows).lower
        else:
            margin = _apply(rows, nets.online.advantages(self._search(nets.online.advantages, ball, rows, batch)))
        regular = margin_hinge(margin, self.hinge)
        total = base.td + at["weight"] * regular
        return base.loss(total, batch, hinge=mean(regular, batch), positive_margin=(margin > 0).all(1).float().mean())

    def _search(self, network: nn.Module, ball: Ball, rows: Tensor, batch: Batch) -> Tensor:
        """Where the smallest margin is low, (B, *obs): projected sign steps, the last iterate."""
        radius = ball.budget()
        # erf(n/√2) of a standard normal n is uniform between −1 and 1
        x = ball.project(batch.x + radius * torch.erf(batch.noise[:, 0] / math.sqrt(2)))
        for _ in range(self.steps):
            with torch.enable_grad():
                x = x.detach().requires_grad_(True)
                (gradient,) = torch.autograd.grad(_apply(rows, network(x)).amin(1).sum(), x)
            x = ball.project(x.detach() - gradient.sign() * radius / self.steps)
        return x.detach()


def _apply(rows: Tensor, scores: Tensor) -> Tensor:
    """Linear forms (B, K, A) of scores (B, A), (B, K)."""
    return (rows @ scores.unsqueeze(-1)).squeeze(-1)


@dataclass(frozen=True)
class Distilled:
    """The TD loss for the Q-network, and a student that imitates its greedy action: RS-DQN without a radius.

    The two share no weights, so their losses are simply added. The student's value head is not used.
    """

    draws = 0
    student = True

    def coefficients(self, step: int) -> dict[str, float]:
        """None."""
        return {}

    def at(self, step: int) -> Objective:
        """Itself."""
        return self

    def __call__(self, nets: Nets, batch: Batch, at: Coefficients, td: TD) -> QLoss:
        """mean(weight·(TD loss + imitation))."""
        base, student = nominal(nets, batch, td), _student(nets)
        greedy = base.q.argmax(1)
        learned = imitation(student.advantages(batch.x), greedy)
        return base.loss(base.td + learned, batch, imitation=mean(learned, batch))


@dataclass(frozen=True)
class RS:
    """RS-DQN: the Q-network learns as always, and a student distilled from it becomes robust (Fischer et al. 2019).

    L_TD(Q) + (1 − λ)·CE(S(s), a*) + λ·max over the bounds of CE(S, a*),  a* = argmax Q(s), λ = `weight`.

    RS-DQN has no released code. From the paper: two networks, a Q-network without constraints and a student that
    carries them, is distilled online and acts. Our reading: the student has the same architecture and sees the same
    batches; it is distilled from the greedy action (not from a softmax at some temperature); the provable loss is the
    cross-entropy of the worst scores inside interval bounds, mixed in by a constant λ while ε follows a ramp.
    """

    radius: Schedule = ATARI
    weight: Schedule = Constant(0.5)
    bound: str | Mix = "ibp"
    draws = 0
    student = True

    def __post_init__(self) -> None:
        settle(self, "radius", "weight")
        check(self.bound)

    def coefficients(self, step: int) -> dict[str, float]:
        """ε, the share of a mix, and λ."""
        return schedules(self.radius, self.bound, step) | {"weight": self.weight(step)}

    def at(self, step: int) -> Objective:
        """Without bounds while ε or λ is 0: the worst case is then the imitation itself, or does not count."""
        robust = self.radius(step) > 0 and self.weight(step) > 0
        return replace(self, bound=cheapest(self.bound, step)) if robust else Distilled()

    def __call__(self, nets: Nets, batch: Batch, at: Coefficients, td: TD) -> QLoss:
        """mean(weight·(TD loss + (1 − λ)·imitation + λ·worst imitation))."""
        base, student = nominal(nets, batch, td), _student(nets)
        greedy = base.q.argmax(1)
        learned = imitation(student.advantages(batch.x), greedy)
        bounds = enclose(student.advantages, Ball.unchecked(batch.x, at["radius"]), self.bound, at)
        worst = robust_imitation(bounds, greedy)
        rows = base.td + torch.lerp(learned, worst, at["weight"])
        return base.loss(
            rows,
            batch,
            imitation=mean(learned, batch),
            worst_imitation=mean(worst, batch),
            bound_width=bounds.width.mean(),
        )


def _student(nets: Nets) -> Dueling:
    if nets.student is None:
        raise BadInput("nets.student must be a network for RS-DQN, got None")
    return nets.student


OBJECTIVES = {
    "plain": Plain,
    "radial-worst-case": RadialWorstCase,
    "radial-overlap": RadialOverlap,
    "sa": SA,
    "rs": RS,
}
