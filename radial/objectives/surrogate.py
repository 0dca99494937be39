"""Objectives of PPO besides its value loss: the clipped surrogate, RADIAL's forms of it, SA-, CAR-, BAR- and WocaR-PPO.

The public namespace `rr.ppo`. Nothing here has control flow that depends on a value.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from radial.bounds.mix import AnyBound, bound_terms, check_bound, weighed
from radial.bounds.mix import Mix as Mix  # rr.ppo.Mix
from radial.core import checks
from radial.core.agent import Agent
from radial.core.data import LATER, BadInput, Bounds, Discrete, Loss
from radial.core.schedules import Constant, Schedule, settle
from radial.losses.car import soft_worst
from radial.losses.policy import Categorical, Family, Gaussian, clipped_surrogate
from radial.losses.policy_radial import policy_overlap, six_way_surrogate, worst_case_likelihood, worst_case_surrogate
from radial.objectives.base import Coefficients, Radial, Scheduled, Unscheduled
from radial.objectives.langevin import SEARCHES, BatchLoss, draws_of


@dataclass(frozen=True, eq=False)
class Batch:
    """A minibatch for the policy: x (B, *obs) in network units, action (B, *), the rest (B,)."""

    x: Tensor
    action: Tensor
    old_log_prob: Tensor
    advantage: Tensor  # standardised
    raw_advantage: Tensor  # as GAE gave it
    noise: Tensor  # (B, draws, *obs) standard normal numbers, for objectives that search
    anchor: Tensor | None = None  # (B, A) logits or means of the agent that training started from
    worst: Tensor | None = None  # (B,) standardised worst-case values of the actions, for WocaR


def family(agent: Agent, detach_std: bool = False, spread: float | None = None) -> Family:
    """The policy family of an agent.

    detach_std  no gradient reaches the standard deviation      spread  a standard deviation in place of its own
    """
    if isinstance(agent.actions, Discrete):
        return Categorical()
    log_std = agent.log_std
    assert log_std is not None, "a Gaussian policy has a spread"
    if spread is not None:
        return Gaussian(torch.full_like(log_std, math.log(spread)))
    return Gaussian(log_std.detach() if detach_std else log_std)


@dataclass(frozen=True)
class Plain(Unscheduled):
    """The clipped surrogate of PPO."""

    def __call__(self, agent: Agent, batch: Batch, at: Coefficients, clip: float) -> Loss:
        """−mean(surrogate)."""
        log_prob = family(agent).log_prob(agent.scores(batch.x), batch.action)
        surrogate = clipped_surrogate(log_prob, batch.old_log_prob, batch.advantage, clip)
        return Loss(-surrogate.mean(), {"losses/policy_loss": -surrogate.mean().detach()})


class CleanPass(NamedTuple):
    """One pass over a minibatch: logits or means (B, A), log-probability of the action (B,), bounds of the former."""

    scores: Tensor
    log_prob: Tensor
    bounds: Bounds


@dataclass(frozen=True)
class RadialSurrogate(Radial):
    """RADIAL-PPO: κ·surrogate + (1 − κ)·adversarial term; the forms differ in the adversarial term and its weight."""

    clean = Plain

    @abstractmethod
    def worst(self, agent: Agent, batch: Batch, seen: CleanPass, clip: float) -> Tensor:
        """The adversarial term of each row, (B,), to be maximised."""

    def __call__(self, agent: Agent, batch: Batch, at: Coefficients, clip: float) -> Loss:
        """−mean(κ·surrogate + (1 − κ)·adversarial term)."""
        scores = agent.scores(batch.x)
        clean = family(agent).log_prob(scores, batch.action)
        plain = -clipped_surrogate(clean, batch.old_log_prob, batch.advantage, clip).mean()
        terms = bound_terms(agent.choice, self.ball(batch.x, at), self.bound, at)
        worst = weighed(terms, lambda found: -self.worst(agent, batch, CleanPass(scores, clean, found), clip).mean())
        parts = {
            "losses/policy_loss": plain.detach(),
            "robust/worst_case_loss": worst.detach(),
            "robust/bound_width": terms[0][1].width.mean().detach(),
        }
        regular = self.regular(agent.choice, batch.x, at)
        return Loss(at["kappa"] * plain + (1 - at["kappa"]) * worst + regular, parts)


@dataclass(frozen=True)
class RadialWorstCase(RadialSurrogate):
    """The paper's form: the clipped surrogate of the worst-case policy, one standardised advantage for both terms.

    For a Gaussian policy the only way to lower the upper bound of the density at a bad action inside the bounds is to
    widen the policy. So the standard deviation runs away (the authors' released Walker2d agent has σ ≈ 5)
    unless `detach_std` keeps the bounded term from moving it.
    """

    detach_std: bool = False

    def worst(self, agent: Agent, batch: Batch, seen: CleanPass, clip: float) -> Tensor:
        """The surrogate at the worse end of the bounds."""
        likelihood = family(agent, self.detach_std).log_prob_bounds(seen.bounds, batch.action)
        return worst_case_surrogate(likelihood, batch.old_log_prob, batch.advantage, clip)


@dataclass(frozen=True)
class RadialLikelihood(RadialSurrogate):
    """The worst case of −A·log π(a), the paper's approach 1 as given for A3C.

    Unlike the ratio in `RadialWorstCase` it has a useful gradient however wide the bounds are, so a small weight is
    enough. For a Gaussian policy it keeps the standard deviation up, in proportion to the width of the bounds: without
    that (`detach_std`) PPO lets σ shrink, every width then weighs more, and learning stalls.
    """

    kappa: Schedule = Constant(0.95)
    detach_std: bool = False

    def worst(self, agent: Agent, batch: Batch, seen: CleanPass, clip: float) -> Tensor:
        """A·log π at the worse end of the bounds."""
        likelihood = family(agent, self.detach_std).log_prob_bounds(seen.bounds, batch.action)
        return worst_case_likelihood(seen.log_prob, likelihood, batch.old_log_prob, batch.advantage, clip)


@dataclass(frozen=True)
class RadialReleased(RadialSurrogate):
    """The six-way minimum of the authors' released MuJoCo code, which bounds with raw advantages."""

    detach_std: bool = False

    def worst(self, agent: Agent, batch: Batch, seen: CleanPass, clip: float) -> Tensor:
        """The minimum of the clean terms and those of both bounds."""
        likelihood = family(agent, self.detach_std).log_prob_bounds(seen.bounds, batch.action)
        return six_way_surrogate(
            seen.log_prob, likelihood, batch.old_log_prob, batch.advantage, batch.raw_advantage, clip
        )


@dataclass(frozen=True)
class RadialOverlap(RadialSurrogate):
    """Approach 2, in the paper for A3C but not for PPO: bounds of less likely actions stay below the one taken.

    It compares logits, so it applies to softmax policies only, and treats good and bad actions alike: the present order
    is kept. The clean term alone improves the policy.

    margin  the required gap as a share of z(a) − z(y): 0 requires none, 1 all of it
    """

    margin: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.share(self, "margin")

    def worst(self, agent: Agent, batch: Batch, seen: CleanPass, clip: float) -> Tensor:
        """Minus the weighted overlap of the bounds."""
        return -policy_overlap(seen.bounds, seen.scores, batch.action, self.margin)


INNER = ("convex", *SEARCHES)


@dataclass(frozen=True)
class SA(Scheduled):
    """L + weight·D(π(s), π(s')) with the worst s' of the ball (SA-PPO, Zhang et al. 2020).

    inner     "convex": an upper bound of D from bounds on logits or means; "sgld": a point from ten noisy sign steps;
              "pgd": by steps without noise, for frames: there a gradient per pixel is far smaller than SA-PPO's noise
    anchored  π(s) is the policy that training started from, not the current one: it distils the initial policy into a
              network that is not robust yet
    spread    the σ of a Gaussian policy in D; None: its own, which then grows where the bounds are wide, until the
              policy that is trained falls by its own noise
    """

    radius: Schedule
    weight: float
    inner: str = "convex"
    bound: AnyBound = "ibp"
    steps: int = 10
    anchored: bool = False
    spread: float | None = field(default=None, metadata=LATER)
    clean = Plain

    def __post_init__(self) -> None:
        super().__post_init__()
        check_bound(self.bound)  # also where a search makes no use of it
        if self.inner not in INNER:
            raise BadInput(f"inner must be one of {', '.join(INNER)}, got {self.inner!r}")
        checks.not_negative(self, "weight")
        checks.whole(self, "steps")
        checks.positive(self, "spread")

    @property
    def draws(self) -> int:
        """One array of noise for the start, and with "sgld" one per step."""
        return 0 if self.inner == "convex" else draws_of(self.inner, self.steps)

    @property
    def bounding(self) -> AnyBound | None:
        """The field `bound`; None where a point is searched for."""
        return self.bound if self.inner == "convex" else None

    def advantage(self, batch: Batch, at: Coefficients) -> Tensor:
        """The advantages of the surrogate, (B,)."""
        return batch.advantage

    def __call__(self, agent: Agent, batch: Batch, at: Coefficients, clip: float) -> Loss:
        """−mean(surrogate) + weight·mean(divergence)."""
        scores, policy = agent.scores(batch.x), family(agent, spread=self.spread)
        log_prob = family(agent).log_prob(scores, batch.action)
        plain = -clipped_surrogate(log_prob, batch.old_log_prob, self.advantage(batch, at), clip).mean()
        held = batch.anchor if self.anchored else scores
        assert held is not None, "an anchored objective needs an anchor"
        if self.inner == "convex":
            terms = bound_terms(agent.choice, self.ball(batch.x, at), self.bound, at)
            divergence = weighed(terms, lambda found: policy.divergence_bound(found, held))
        else:
            worst = self._search(agent, batch, held.detach(), at["radius"])
            divergence = policy.divergence(held.detach(), agent.scores(worst))
        regular = divergence.mean()
        parts = {"losses/policy_loss": plain.detach(), "robust/divergence": regular.detach()}
        return Loss(plain + self.weight * regular + self.regular(agent.choice, batch.x, at), parts)

    def _search(self, agent: Agent, batch: Batch, scores: Tensor, radius: Tensor) -> Tensor:
        ball = self.ball(batch.x, {"radius": radius}, agent.valid_range)  # a pixel beyond its range is no observation
        return SEARCHES[self.inner](divergence_from(agent, scores), ball, batch.noise, self.steps)


def divergence_from(agent: Agent, scores: Tensor) -> BatchLoss:
    """The mean divergence of the policy at x from one with these scores (B, A): (B, *obs) → ()."""
    policy = family(agent, detach_std=True)
    return lambda x: policy.divergence(scores, agent.scores(x)).mean()


@dataclass(frozen=True)
class WocaR(SA):
    """SA-PPO whose advantages are Â + worst·Q̂_w, Q_w the value of an action if all later ones are the worst in reach.

    Q_w (Liang et al. 2022) is a critic of its own, which the training keeps and fits (training/worst_critic.py):
    Q_w(s, a) ← r + γ·min Q_w(s′, a′) over the actions a′ within bounds on π(s′ ± reach). Q̂_w is standardised as Â is.

    worst  its weight, 0 → 0.8      reach  ε of the actions in reach      rate, tau  of Q_w and of its target network
    """

    weight: float = 0.1
    inner: str = "sgld"
    worst: Schedule = Constant(0.8)
    reach: float = 0.01
    rate: float = 4e-4
    tau: float = 1e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        settle(self, "worst")
        checks.positive(self, "reach", "rate")
        checks.share(self, "tau")

    def coefficients(self, step: int) -> dict[str, float]:
        """ε, the share of a mix, and the weight of the worst-case values."""
        return super().coefficients(step) | {"worst": self.worst(step)}

    def at(self, step: int) -> Any:
        """The objective itself, except where both weights are 0: there it is plain PPO."""
        if self.radius(step) > 0:
            return super().at(step)
        return self if self.worst(step) > 0 else Plain()

    def advantage(self, batch: Batch, at: Coefficients) -> Tensor:
        """Â + worst·Q̂_w, (B,)."""
        assert batch.worst is not None, "WocaR needs the worst-case values of the actions"
        return batch.advantage + at["worst"] * batch.worst


@dataclass(frozen=True)
class SearchedSurrogate(Scheduled):
    """An objective at points s^ν of the ball that a search has found; `weight` is that of its second term.

    inner  "sgld": `steps` noisy steps, as in SA-PPO; "pgd": longer ones without noise, for frames
    """

    radius: Schedule
    weight: float = 1.0
    inner: str = "sgld"
    steps: int = 10
    clean = Plain

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.inner not in SEARCHES:
            raise BadInput(f"inner must be one of {', '.join(SEARCHES)}, got {self.inner!r}")
        checks.not_negative(self, "weight")
        checks.whole(self, "steps")

    @property
    def draws(self) -> int:
        """One array of noise for the start, and with "sgld" one per step."""
        return draws_of(self.inner, self.steps)

    @property
    def bounding(self) -> None:
        """Nothing is bounded."""

    def losses(self, agent: Agent, batch: Batch, x: Tensor, clip: float) -> Tensor:
        """−min(ρA, clip(ρ)A) of each row with the policy at x (B, *obs), (B,)."""
        log_prob = family(agent).log_prob(agent.scores(x), batch.action)
        return -clipped_surrogate(log_prob, batch.old_log_prob, batch.advantage, clip)

    def find(self, agent: Agent, batch: Batch, at: Coefficients, loss: BatchLoss) -> Tensor:
        """The points s^ν, (B, *obs), within the valid range."""
        return SEARCHES[self.inner](loss, self.ball(batch.x, at, agent.valid_range), batch.noise, self.steps)


@dataclass(frozen=True)
class CAR(SearchedSurrogate):
    """CAR-PPO (Li et al. 2025): L(s) + weight·Σ pᵢ·ℓᵢ, ℓᵢ PPO's loss at the s^ν that maximises it, p = softmax(ℓ/λ).

    temperature  λ: towards 0 the worst row alone counts, at ∞ all rows alike
    """

    temperature: float = 100.0

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.positive(self, "temperature")

    def __call__(self, agent: Agent, batch: Batch, at: Coefficients, clip: float) -> Loss:
        """mean(L) + weight·Σ p·L at the points found."""
        plain = self.losses(agent, batch, batch.x, clip).mean()
        found = self.find(agent, batch, at, lambda x: self.losses(agent, batch, x, clip).mean())
        worst = soft_worst(self.losses(agent, batch, found, clip), self.temperature).mean()
        parts = {"losses/policy_loss": plain.detach(), "robust/worst_case_loss": worst.detach()}
        return Loss(plain + self.weight * worst + self.regular(agent.choice, batch.x, at), parts)


@dataclass(frozen=True)
class BAR(SearchedSurrogate):
    """BAR-PPO, after descriptions of it: PPO's loss at s^ν = argmax KL(π(s) ‖ π(s^ν)), + weight·L(s).

    No code is released, and our source is secondary.
    """

    def __call__(self, agent: Agent, batch: Batch, at: Coefficients, clip: float) -> Loss:
        """mean(L at the points found) + weight·mean(L)."""
        plain = self.losses(agent, batch, batch.x, clip).mean()
        apart = divergence_from(agent, agent.scores(batch.x).detach())
        found = self.find(agent, batch, at, apart)
        worst = self.losses(agent, batch, found, clip).mean()
        parts = {"losses/policy_loss": plain.detach(), "robust/worst_case_loss": worst.detach()}
        parts["robust/divergence"] = apart(found).detach()
        return Loss(worst + self.weight * plain + self.regular(agent.choice, batch.x, at), parts)


OBJECTIVES: dict[str, type] = {
    "plain": Plain,
    "radial-worst-case": RadialWorstCase,
    "radial-likelihood": RadialLikelihood,
    "radial-released": RadialReleased,
    "radial-overlap": RadialOverlap,
    "sa": SA,
    "car": CAR,
    "bar": BAR,
    "wocar": WocaR,
}
