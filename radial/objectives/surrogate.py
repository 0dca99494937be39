"""Objectives of PPO besides its value loss: the clipped surrogate, RADIAL's forms of it, SA-PPO's regulariser.

The public namespace `rr.ppo`. Nothing here has control flow that depends on a value.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from radial.bounds.mix import Mix, bounds_of
from radial.core import checks
from radial.core.agent import Agent
from radial.core.ball import Ball
from radial.core.data import BadInput, Bounds, Discrete, Loss
from radial.core.schedules import Constant, Schedule
from radial.losses.policy import Categorical, Family, Gaussian, clipped_surrogate
from radial.losses.policy_radial import policy_overlap, six_way_surrogate, worst_case_likelihood, worst_case_surrogate
from radial.objectives.base import Coefficients, Radial, Scheduled, Unscheduled


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


def family(agent: Agent, detach_std: bool = False) -> Family:
    """The policy family of an agent. detach_std: no gradient reaches the standard deviation."""
    if isinstance(agent.actions, Discrete):
        return Categorical()
    log_std = agent.log_std
    assert log_std is not None, "a Gaussian policy has a spread"
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
        bounds = bounds_of(agent.choice, Ball.unchecked(batch.x, at["radius"]), self.bound, at)
        worst = -self.worst(agent, batch, CleanPass(scores, clean, bounds), clip).mean()
        parts = {
            "losses/policy_loss": plain.detach(),
            "robust/worst_case_loss": worst.detach(),
            "robust/bound_width": bounds.width.mean().detach(),
        }
        return Loss(at["kappa"] * plain + (1 - at["kappa"]) * worst, parts)


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


INNER = ("convex", "sgld", "pgd")


@dataclass(frozen=True)
class SA(Scheduled):
    """L + weight·D(π(s), π(s')) with the worst s' of the ball (SA-PPO, Zhang et al. 2020).

    inner     "convex": an upper bound of D from bounds on logits or means; "sgld": a point from ten noisy sign steps;
              "pgd": by steps without noise, for frames: there a gradient per pixel is far smaller than SA-PPO's noise
    anchored  π(s) is the policy that training started from, not the current one: it distils the initial policy into a
              network that is not robust yet
    """

    radius: Schedule
    weight: float
    inner: str = "convex"
    bound: str | Mix = "ibp"
    steps: int = 10
    anchored: bool = False
    clean = Plain

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.inner not in INNER:
            raise BadInput(f"inner must be one of {', '.join(INNER)}, got {self.inner!r}")
        if not (math.isfinite(self.weight) and self.weight >= 0):
            raise BadInput(f"weight must be finite and ≥ 0, got {self.weight}")

    @property
    def draws(self) -> int:
        """One array of noise for the start, and with "sgld" one per step."""
        return {"convex": 0, "sgld": self.steps + 1, "pgd": 1}[self.inner]

    @property
    def bounding(self) -> str | Mix:
        """The field `bound`."""
        return self.bound

    def __call__(self, agent: Agent, batch: Batch, at: Coefficients, clip: float) -> Loss:
        """−mean(surrogate) + weight·mean(divergence)."""
        policy = family(agent)
        scores = agent.scores(batch.x)
        log_prob = policy.log_prob(scores, batch.action)
        plain = -clipped_surrogate(log_prob, batch.old_log_prob, batch.advantage, clip).mean()
        held = batch.anchor if self.anchored else scores
        assert held is not None, "an anchored objective needs an anchor"
        if self.inner == "convex":
            bounds = bounds_of(agent.choice, Ball.unchecked(batch.x, at["radius"]), self.bound, at)
            divergence = policy.divergence_bound(bounds, held)
        else:
            worst = self._search(agent, batch, held.detach(), at["radius"])
            divergence = policy.divergence(held.detach(), agent.scores(worst))
        regular = divergence.mean()
        parts = {"losses/policy_loss": plain.detach(), "robust/divergence": regular.detach()}
        return Loss(plain + self.weight * regular, parts)

    def _search(self, agent: Agent, batch: Batch, scores: Tensor, radius: Tensor) -> Tensor:
        """Stochastic gradient Langevin dynamics, with the constants of the SA-PPO code; or longer steps, no noise."""
        policy, step = family(agent, detach_std=True), radius / self.steps
        # Clip to the valid range: a pixel beyond it is no observation.
        box = Ball.unchecked(batch.x, radius, math.inf, *(agent.valid_range or (None, None))).box()
        x = batch.x + batch.noise[:, 0].sign() * step
        if self.inner == "pgd":
            step = 1.5 * step  # longer, so that a start in the wrong half of the ball can still reach the far end
        for i in range(self.steps):
            with torch.enable_grad():
                x = x.detach().requires_grad_(True)
                # The mean over the batch, as in the SA-PPO code: the noise is scaled against this gradient.
                gradient = torch.autograd.grad(policy.divergence(scores, agent.scores(x)).mean(), x)[0]
            if self.inner == "sgld":
                gradient = gradient + batch.noise[:, i + 1] * (2 * step * 1e-5).sqrt() / (i + 2)
            x = x.detach() + gradient.sign() * step
            x = torch.minimum(torch.maximum(x, box.lower), box.upper)
        return x.detach()


OBJECTIVES: dict[str, type] = {
    "plain": Plain,
    "radial-worst-case": RadialWorstCase,
    "radial-likelihood": RadialLikelihood,
    "radial-released": RadialReleased,
    "radial-overlap": RadialOverlap,
    "sa": SA,
}
