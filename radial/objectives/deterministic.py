"""Objectives of DDPG: the critic's TD loss with the deterministic policy gradient, and SA-DDPG's regulariser on top.

The public namespace `rr.ddpg`. Nothing here has control flow that depends on a value.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from radial.bounds.mix import Mix, bounds_of, check_bound
from radial.core import checks
from radial.core.data import BadInput
from radial.core.schedules import Schedule
from radial.losses.action_shift import action_shift, action_shift_bound
from radial.objectives.base import Coefficients, Objective, Scheduled, Unscheduled
from radial.objectives.langevin import SEARCHES, draws_of
from radial.objectives.q_learning import Batch, QLoss, weighted_mean

__all__ = ["OBJECTIVES", "SA", "Batch", "Mix", "Nets", "Objective", "Plain"]

Judging = Callable[[Tensor, Tensor], Tensor]  # x (B, *obs), u (B, D) → Q (B,)
INNER = ("convex", *SEARCHES)


class Nets(NamedTuple):
    """The networks of an update.

    judge  the critic with its weights held still: it moves the actor and is not moved by it
    """

    actor: nn.Module  # (B, *obs) → u in [−1, 1], (B, D)
    critic: Judging
    judge: Judging
    target_actor: nn.Module
    target_critic: Judging
    valid_range: tuple[float, float] | None = None  # of an observation, in network units


class CleanPass(NamedTuple):
    """The losses of both networks at the clean observations."""

    action: Tensor  # (B, D)  the actor's
    q: Tensor  # (B,)  of the action taken
    td: Tensor  # (B,)  (Q(s, u) − r − γ·Q'(s′, π'(s′)))²
    actor: Tensor  # (B,)  −Q(s, π(s))
    error: Tensor  # (B,)  detached

    def loss(self, extra: Tensor, batch: Batch, **parts: Tensor) -> QLoss:
        """The weighted mean of the TD loss, the plain mean of the actor's loss, and the regulariser (B,) on top."""
        td, actor = weighted_mean(self.td, batch), self.actor.mean()
        known = {"losses/td_loss": td, "losses/actor_loss": actor, "charts/q_value": self.q.mean()}
        named = known | {f"robust/{name}": part for name, part in parts.items()}
        total = td + actor + extra.mean()
        return QLoss(total, {name: part.detach() for name, part in named.items()}, self.error.abs())


def clean_pass(nets: Nets, batch: Batch) -> CleanPass:
    """Run all networks on a batch of transitions (Lillicrap et al. 2016)."""
    with torch.no_grad():
        target = batch.reward + batch.discount * nets.target_critic(batch.next_x, nets.target_actor(batch.next_x))
    q = nets.critic(batch.x, batch.action)
    action = nets.actor(batch.x)
    return CleanPass(action, q, (q - target).square(), -nets.judge(batch.x, action), (q - target).detach())


@dataclass(frozen=True)
class Plain(Unscheduled):
    """DDPG: the squared TD error of the critic, and −Q(s, π(s)) for the actor."""

    def __call__(self, nets: Nets, batch: Batch, at: Coefficients) -> QLoss:
        """mean(weight·TD²) − mean(Q(s, π(s)))."""
        clean = clean_pass(nets, batch)
        return clean.loss(torch.zeros_like(clean.q), batch)


@dataclass(frozen=True)
class SA(Scheduled):
    """SA-DDPG (Zhang et al. 2020): the actor also minimises weight·max ‖π(s) − π(ŝ)‖₂ over the ball; critic as in DDPG.

    inner   "convex": an upper bound from bounds of the action; "sgld": a point from `steps` noisy sign steps; "pgd":
            by longer steps without noise
    bound   for "convex". SA-DDPG's mix of CROWN-IBP and IBP is a Mix whose share of IBP follows the ramp of ε
    weight  κ. Actions lie in [−1, 1]^D, so the norm is at most 2·√D; Q is in the env's units, and so is κ
    """

    radius: Schedule
    weight: float = 1.0
    inner: str = "convex"
    bound: str | Mix = "ibp"
    steps: int = 5
    clean = Plain

    def __post_init__(self) -> None:
        super().__post_init__()
        check_bound(self.bound)  # also where a search makes no use of it
        if self.inner not in INNER:
            raise BadInput(f"inner must be one of {', '.join(INNER)}, got {self.inner!r}")
        checks.not_negative(self, "weight")
        checks.whole(self, "steps")

    @property
    def draws(self) -> int:
        """One array of noise for the start of a search, and with "sgld" one per step."""
        return 0 if self.inner == "convex" else draws_of(self.inner, self.steps)

    @property
    def bounding(self) -> str | Mix | None:
        """The field `bound`; None where a point is searched for."""
        return self.bound if self.inner == "convex" else None

    def __call__(self, nets: Nets, batch: Batch, at: Coefficients) -> QLoss:
        """mean(weight·TD²) − mean(Q(s, π(s))) + κ·mean(shift)."""
        clean = clean_pass(nets, batch)
        ball = self.ball(batch.x, at, nets.valid_range)
        if self.inner == "convex":
            shift = action_shift_bound(bounds_of(nets.actor, ball, self.bound, at), clean.action)
        else:
            held = clean.action.detach()
            found = SEARCHES[self.inner](
                lambda x: action_shift(held, nets.actor(x)).mean(), ball, batch.noise, self.steps
            )
            shift = action_shift(clean.action, nets.actor(found))
        extra = self.weight * shift + self.regular(nets.actor, batch.x, at)
        return clean.loss(extra, batch, shift=shift.mean())


OBJECTIVES: dict[str, type] = {"plain": Plain, "sa": SA}
