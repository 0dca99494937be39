"""Objectives of A3C: policy gradient, entropy and value, and RADIAL's two approaches, one also as released.

The public namespace `rr.a3c`. Nothing here has control flow that depends on a value.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from radial.bounds.mix import bound_terms, weighed
from radial.core import checks
from radial.core.data import Bounds, Loss
from radial.core.schedules import Constant, Schedule
from radial.losses.policy import Categorical, policy_gradient, quarter_squared_error
from radial.losses.policy_radial import policy_overlap, released_policy_overlap, worst_case_policy_gradient
from radial.objectives.base import ATARI, Coefficients, Radial, Unscheduled


class JointPolicy(Protocol):
    """An agent whose one network gives logits and value: all that an objective needs of it."""

    @property
    def choice(self) -> nn.Module:
        """(B, *obs) → logits (B, A): the network to bound."""

    def joint(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The value (B,) and the logits (B, A)."""


class Batch(NamedTuple):
    """The steps of a worker's rollouts, in any order: R = T·N rows, all of them bounded at once."""

    x: Tensor  # (R, *obs), network units
    action: Tensor  # (R,) int64
    advantage: Tensor  # (R,)  generalised advantage estimates, without gradient
    target: Tensor  # (R,)  of V: k-step returns, without gradient
    weight: Tensor  # (R,)  of each row in the sum: 1 is the authors' sum over a rollout, 0 leaves a row out


class CleanPass(NamedTuple):
    """One pass of the network over the clean observations, and its losses, per row."""

    logits: Tensor  # (R, A)
    policy: Tensor  # (R,)  −A·log π(a)
    entropy: Tensor  # (R,)
    value: Tensor  # (R,)  ¼·(R − V)²

    def loss(self, policy: Tensor, batch: Batch, entropy: float, **robust: Tensor) -> Loss:
        """Σ weight·(policy − entropy·H + value loss); `policy` (R,) is the policy loss, robust or clean.

        The parts are means over the rows, under the same weights.
        """
        rows = policy - entropy * self.entropy + self.value
        own = {"policy_loss": self.policy, "value_loss": self.value, "entropy": self.entropy}
        named = {f"losses/{name}": part for name, part in own.items()}
        named |= {f"robust/{name}": part for name, part in robust.items()}
        total = batch.weight.sum().clamp(min=torch.finfo(batch.weight.dtype).tiny)  # no rows, no loss
        parts = {name: ((batch.weight * part).sum() / total).detach() for name, part in named.items()}
        return Loss((batch.weight * rows).sum(), parts)


def clean_pass(agent: JointPolicy, batch: Batch) -> CleanPass:
    """Run the network on the clean observations."""
    value, logits = agent.joint(batch.x)
    policy = policy_gradient(logits, batch.action, batch.advantage)
    return CleanPass(logits, policy, Categorical().entropy(logits), quarter_squared_error(value, batch.target))


@dataclass(frozen=True)
class Plain(Unscheduled):
    """The loss of A3C (Mnih et al. 2016), in the scaling of the RADIAL code."""

    def __call__(self, agent: JointPolicy, batch: Batch, at: Coefficients, entropy: float) -> Loss:
        """Σ weight·(−A·log π(a) − entropy·H + ¼·(R − V)²)."""
        clean = clean_pass(agent, batch)
        return clean.loss(clean.policy, batch, entropy)


@dataclass(frozen=True)
class RadialPolicyGradient(Radial):
    """RADIAL-A3C: κ·L_clean + (1 − κ)·L_adversarial for the policy; entropy and value terms are clean and unscaled.

    Only the logits are bounded. The ball is not clipped to the valid range, as in the authors' code.
    """

    radius: Schedule = ATARI
    kappa: Schedule = Constant(0.9)
    clean = Plain

    @abstractmethod
    def adversarial(self, bounds: Bounds, logits: Tensor, batch: Batch) -> Tensor:
        """The adversarial term of each row, (R,), from bounds on the logits (R, A)."""

    def __call__(self, agent: JointPolicy, batch: Batch, at: Coefficients, entropy: float) -> Loss:
        """Σ weight·(κ·(−A·log π(a)) + (1 − κ)·adversarial term − entropy·H + ¼·(R − V)²)."""
        clean = clean_pass(agent, batch)
        # Paper eq. for RADIAL: L = κ·L_nom + (1 − κ)·L_adv, on the policy loss alone; V is not bounded.
        terms = bound_terms(agent.choice, self.ball(batch.x, at), self.bound, at)
        adversarial = weighed(terms, lambda found: self.adversarial(found, clean.logits, batch))
        policy = torch.lerp(adversarial, clean.policy, at["kappa"]) + self.regular(agent.choice, batch.x, at)
        return clean.loss(policy, batch, entropy, adversarial_loss=adversarial, bound_width=terms[0][1].width.mean(1))


@dataclass(frozen=True)
class RadialWorstCase(RadialPolicyGradient):
    """Approach 1: the largest policy-gradient loss over all perturbed observations."""

    def adversarial(self, bounds: Bounds, logits: Tensor, batch: Batch) -> Tensor:
        """−A·log π(a) at the worse end of the bounds."""
        return worst_case_policy_gradient(bounds, batch.action, batch.advantage)


@dataclass(frozen=True)
class RadialOverlap(RadialPolicyGradient):
    """Approach 2, the paper's choice: the bounds of less likely actions must stay below those of the action taken.

    margin  the required gap as a share of z(a) − z(y): 0 requires none, 1 all of it
    """

    margin: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.share(self, "margin")

    def adversarial(self, bounds: Bounds, logits: Tensor, batch: Batch) -> Tensor:
        """The weighted overlap of the bounds."""
        return policy_overlap(bounds, logits, batch.action, self.margin)


@dataclass(frozen=True)
class RadialOverlapReleased(RadialPolicyGradient):
    """Approach 2 as the authors released it, whose gap is margin·(z(a) − π(y)): a logit less a probability.

    The published A3C agents were trained with it. It requires a gap even where ε is 0, and that gap depends on a
    constant that could be added to all logits.
    """

    margin: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.share(self, "margin")

    def adversarial(self, bounds: Bounds, logits: Tensor, batch: Batch) -> Tensor:
        """The weighted overlap of the bounds, with the gap of the released code."""
        return released_policy_overlap(bounds, logits, batch.action, self.margin)


OBJECTIVES: dict[str, type] = {
    "plain": Plain,
    "radial-worst-case": RadialWorstCase,
    "radial-overlap": RadialOverlap,
    "radial-overlap-released": RadialOverlapReleased,
}
