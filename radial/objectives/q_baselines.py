"""The robust baselines of deep Q-learning before RADIAL: SA-DQN's hinge and RS-DQN's student."""

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from radial.bounds.certify import margins
from radial.bounds.mix import AnyBound, Mix, bound_terms, bounds_of, check_bound, weighed
from radial.core import checks
from radial.core.ball import Ball
from radial.core.data import LATER, BadInput
from radial.core.schedules import Constant, Schedule, settle
from radial.core.search import steepest
from radial.losses.baselines import imitation, margin_hinge, robust_imitation
from radial.objectives.base import ATARI, Coefficients, Scheduled, Unscheduled
from radial.objectives.dueling import DuelingNetwork
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

INNER = ("convex", "pgd")
MARGINS = ("centred", "released")


@dataclass(frozen=True)
class SA(OneNetwork, Scheduled):
    """L + weight·max(−hinge, −min_y (Q(a*) − Q(y))) at the worst observation of the ball (SA-DQN, Zhang et al. 2020).

    a* is the greedy action of the online network at the clean observation, y every other one; the ball is clipped to
    the valid range.
    inner  "convex": lower bounds of the margins; "pgd": a point found by steepest steps of ε/steps from a random start
    bound  for "convex". SA-DQN's β·CROWN-IBP + (1 − β)·IBP with β = 1 − ε/ε_max is a Mix whose share of IBP follows
           the ramp of ε up to 1

    margins  "centred": interval bounds of the centred advantages, where V cancels before anything is bounded.
             "released": as in the released code, which bounds V and the mean advantage as well and subtracts both
             widths, much looser. Backward bounds (CROWN) let both cancel in either case

    The released search hinges the sum
    over the batch and always uses the final ε; here each row has its own hinge and ε follows its schedule.
    """

    radius: Schedule = ATARI
    weight: float = 0.005  # of SA-DQN on Pong and Freeway
    inner: str = "convex"
    bound: AnyBound = "ibp"
    hinge: float = 1.0
    steps: int = 5
    margins: str = field(default="centred", metadata=LATER)
    clean = Plain

    def __post_init__(self) -> None:
        super().__post_init__()
        check_bound(self.bound)
        if self.inner not in INNER:
            raise BadInput(f"inner must be one of {', '.join(INNER)}, got {self.inner!r}")
        if self.margins not in MARGINS:
            raise BadInput(f"margins must be one of {', '.join(MARGINS)}, got {self.margins!r}")
        if self.margins == "released" and not isinstance(self.bound, str | Mix):
            raise BadInput(f"bound must be a method's name or Mix where margins are released, got {self.bound!r}")
        checks.not_negative(self, "weight", "hinge")
        checks.whole(self, "steps")

    @property
    def draws(self) -> int:
        """One array of noise, for the start of the search."""
        return 1 if self.inner == "pgd" else 0

    @property
    def bounding(self) -> AnyBound | None:
        """The field `bound`; with "pgd" nothing is bounded."""
        return self.bound if self.inner == "convex" else None

    def coefficients(self, step: int) -> dict[str, float]:
        """ε, the share of IBP in a mix, and the weight, which is 0 while ε is 0, as in SA-DQN."""
        at = super().coefficients(step)
        return at | {"weight": self.weight if at["radius"] > 0 else 0.0}

    def __call__(self, nets: Nets, batch: Batch, at: Coefficients, td: TD) -> QLoss:
        """mean(w·(TD loss + weight·hinge of the smallest margin)), with w the importance weights."""
        clean = clean_pass(nets, batch, td)
        # Linear forms e_{a*} − e_y: bounding the margin itself lets common terms cancel before any relaxation.
        rows = margins(clean.q.detach())  # (B, A − 1, A)
        ball = self.ball(batch.x, at, nets.valid_range)
        if self.inner == "convex" and self.margins == "centred":
            terms = bound_terms(nets.online.advantages, ball, self.bound, at, rows)
            margin = weighed(terms, lambda found: found.lower)
            regular = weighed(terms, lambda found: margin_hinge(found.lower, self.hinge))
        else:
            margin = (
                _released(nets.online, ball, self.bound, at, rows)  # type: ignore[arg-type]
                if self.inner == "convex"
                else _apply(rows, nets.online.advantages(self._search(nets.online.advantages, ball, rows, batch)))
            )
            regular = margin_hinge(margin, self.hinge)
        total = clean.td + at["weight"] * regular + self.regular(nets.online.advantages, batch.x, at)
        return clean.loss(
            total, batch, hinge=weighted_mean(regular, batch), positive_margin=(margin > 0).all(1).float().mean()
        )

    def _search(self, network: nn.Module, ball: Ball, rows: Tensor, batch: Batch) -> Tensor:
        """Observations with a low smallest margin, (B, *obs): the last iterate of projected steepest descent."""
        radius = ball.budget()
        # erf(n/√2) of a standard normal n is uniform between −1 and 1
        x = ball.project(batch.x + radius * torch.erf(batch.noise[:, 0] / math.sqrt(2)))
        for _ in range(self.steps):
            with torch.enable_grad():
                x = x.detach().requires_grad_(True)
                (gradient,) = torch.autograd.grad(_apply(rows, network(x)).amin(1).sum(), x)
            x = ball.project(x.detach() - steepest(gradient, ball) * radius / self.steps)
        return x.detach()


def _released(net: DuelingNetwork, ball: Ball, bound: str | Mix, at: Coefficients, rows: Tensor) -> Tensor:
    """Lower bounds of the margins, (B, K), as SA-DQN's code has them: intervals of V, A and mean(A), term by term."""
    if isinstance(bound, Mix):
        first, second = (_released(net, ball, each, at, rows) for each in (bound.first, bound.second))
        return torch.lerp(second, first, at["share"])
    if bound != "ibp":
        return bounds_of(net.advantages, ball, bound, at, rows).lower
    *hidden, head = net.advantage
    advantage = bounds_of(nn.Sequential(net.features, *hidden, head.linear), ball, bound, at)  # type: ignore[arg-type]
    value = bounds_of(nn.Sequential(net.features, net.value), ball, bound, at)
    apart = _apply(rows.clamp(min=0), advantage.lower) + _apply(rows.clamp(max=0), advantage.upper)
    return apart - value.width - advantage.width.mean(1, keepdim=True)


def _apply(rows: Tensor, scores: Tensor) -> Tensor:
    """Linear forms (B, K, A) of advantages (B, A), (B, K)."""
    return (rows @ scores.unsqueeze(-1)).squeeze(-1)


class TwoNetworks:
    """Base of objectives that also distil a student, which then acts."""

    @property
    def student(self) -> bool:
        """True: a second network is trained."""
        return True


@dataclass(frozen=True)
class Distilled(TwoNetworks, Unscheduled):
    """The TD loss for the Q-network, and a student that imitates its greedy action: RS-DQN without a radius.

    The two share no weights, so their losses are simply added. The student's value head is not used.
    """

    def __call__(self, nets: Nets, batch: Batch, at: Coefficients, td: TD) -> QLoss:
        """mean(weight·(TD loss + imitation))."""
        clean, student = clean_pass(nets, batch, td), _student(nets)
        greedy = clean.q.argmax(1)
        learned = imitation(student.advantages(batch.x), greedy)
        return clean.loss(clean.td + learned, batch, imitation=weighted_mean(learned, batch))


@dataclass(frozen=True)
class RS(TwoNetworks, Scheduled):
    """RS-DQN: a standard Q-network, and a robust student distilled from it (Fischer et al. 2019).

    L_TD(Q) + (1 − λ)·CE(S(s), a*) + λ·max over the bounds of CE(S, a*),  a* = argmax Q(s), λ = `weight`.

    RS-DQN has no released code. From the paper: two networks, a Q-network without constraints and a student that
    carries them, is distilled online and acts. Our reading: the student has the same architecture and sees the same
    batches; it is distilled from the greedy action (not from a softmax at some temperature); the provable loss is the
    cross-entropy of the worst logits inside interval bounds, mixed in by a constant λ while ε follows a ramp.
    """

    radius: Schedule = ATARI
    weight: Schedule = Constant(0.5)
    bound: AnyBound = "ibp"
    clean = Distilled

    def __post_init__(self) -> None:
        super().__post_init__()
        settle(self, "weight")

    @property
    def bounding(self) -> AnyBound:
        """The field `bound`."""
        return self.bound

    def coefficients(self, step: int) -> dict[str, float]:
        """ε, the share of a mix, and λ."""
        return super().coefficients(step) | {"weight": self.weight(step)}

    def at(self, step: int) -> Any:
        """No bounds while ε or λ is 0: the worst case then equals the imitation, or has no weight."""
        return super().at(step) if self.weight(step) > 0 else Distilled()

    def __call__(self, nets: Nets, batch: Batch, at: Coefficients, td: TD) -> QLoss:
        """mean(weight·(TD loss + (1 − λ)·imitation + λ·worst imitation))."""
        clean, student = clean_pass(nets, batch, td), _student(nets)
        greedy = clean.q.argmax(1)
        learned = imitation(student.advantages(batch.x), greedy)
        terms = bound_terms(student.advantages, self.ball(batch.x, at), self.bound, at)
        worst = weighed(terms, lambda found: robust_imitation(found, greedy))
        rows = clean.td + torch.lerp(learned, worst, at["weight"]) + self.regular(student.advantages, batch.x, at)
        return clean.loss(
            rows,
            batch,
            imitation=weighted_mean(learned, batch),
            worst_imitation=weighted_mean(worst, batch),
            bound_width=terms[0][1].width.mean(),
        )


def _student(nets: Nets) -> DuelingNetwork:
    if nets.student is None:
        raise BadInput("nets.student must be a network for RS-DQN, got None")
    return nets.student
