"""Policy gradients: advantages, PPO's clipped surrogate, A3C's losses per step, and the two families of policies.

A family turns the policy head's outputs (action means or logits, the `scores` of an agent) into log-probabilities, and
bounds on them into bounds on log-probabilities. Everything is pure; no network is needed.
"""

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from radial.core.data import Bounds, check_shapes

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


def gae(
    reward: Tensor, value: Tensor, next_value: Tensor, terminated: Tensor, ended: Tensor, discount: float, lam: float
) -> Tensor:
    """Generalised advantage estimates (Schulman et al. 2016).

    reward, value, next_value, terminated, ended  (T, N)        returns  (T, N)

    δ_t = r_t + γ·V(s_{t+1})·[not terminated] − V(s_t),   A_t = δ_t + γλ·A_{t+1}·[not ended].
    A time limit ends the sum but not the future: its last state keeps its value (terminated is False there).
    """
    check_shapes(reward, "T N", value, "T N", next_value, "T N", terminated, "T N", ended, "T N")
    delta = reward + discount * next_value * ~terminated - value
    carry = discount * lam * (~ended).to(delta.dtype)
    advantage = torch.empty_like(delta)
    following = torch.zeros_like(delta[0])
    # Backwards in time, so that A_{t+1} is known when A_t needs it; an ended episode carries nothing back.
    for t in range(delta.shape[0] - 1, -1, -1):
        following = delta[t] + carry[t] * following
        advantage[t] = following
    return advantage


def standardize(x: Tensor) -> Tensor:
    """(x − mean)/(std + 1e-8) over a minibatch (B,), with the sample standard deviation."""
    return (x - x.mean()) / (x.std() + 1e-8)


def clipped_surrogate(log_prob: Tensor, old_log_prob: Tensor, advantage: Tensor, clip: float) -> Tensor:
    """PPO's objective, to be maximised: min(ρ·A, clip(ρ, 1 ± clip)·A), with ρ the probability ratio (B,).

    For either sign of A it is monotone in ρ, so a bound on the log-probability bounds the surrogate.
    """
    check_shapes(log_prob, "B", old_log_prob, "B", advantage, "B")
    ratio = (log_prob - old_log_prob).exp()
    return torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)


def value_loss(value: Tensor, old_value: Tensor, target: Tensor, clip: float | None) -> Tensor:
    """Squared error (B,); with `clip` the larger of it and the error of a value kept within ±clip of the old one."""
    check_shapes(value, "B", old_value, "B", target, "B")
    error = (value - target) ** 2
    if clip is None:
        return error
    near = old_value + (value - old_value).clamp(-clip, clip)
    return torch.maximum(error, (near - target) ** 2)


class Family(Protocol):
    """A kind of policy: the distribution that its scores parametrise."""

    def log_prob(self, scores: Tensor, action: Tensor) -> Tensor:
        """Log-probability of actions, (B,)."""

    def log_prob_bounds(self, bounds: Bounds, action: Tensor) -> Bounds:
        """Bounds of the log-probability while the scores lie in bounds, (B,)."""

    def entropy(self, scores: Tensor) -> Tensor:
        """Entropy of the policy, (B,)."""

    def divergence(self, scores: Tensor, other: Tensor) -> Tensor:
        """Divergence of a policy with scores `other` from one with `scores`, (B,); 0 when they are equal."""

    def divergence_bound(self, bounds: Bounds, scores: Tensor) -> Tensor:
        """The largest divergence while `other` lies in bounds, (B,)."""


@dataclass(frozen=True, eq=False)
class Gaussian:
    """Independent normals; the scores are the action means (B, D). One log standard deviation per dimension (D,)."""

    log_std: Tensor

    def _log_density(self, distance: Tensor) -> Tensor:
        z = distance * (-self.log_std).exp()
        return (-0.5 * z**2 - self.log_std - HALF_LOG_2PI).sum(-1)

    def log_prob(self, scores: Tensor, action: Tensor) -> Tensor:
        """Σ_d log N(a_d; μ_d, σ_d)."""
        check_shapes(scores, "B D", action, "B D", self.log_std, "D")
        return self._log_density(action - scores)

    def log_prob_bounds(self, bounds: Bounds, action: Tensor) -> Bounds:
        """Log-density with the mean at the far and at the near end of the box: the density falls with distance."""
        check_shapes(bounds.lower, "B D", action, "B D")
        far = torch.maximum((bounds.upper - action).abs(), (bounds.lower - action).abs())
        # 0 where the action lies inside the box: then a mean equal to the action is possible.
        near = torch.maximum(action - bounds.upper, bounds.lower - action).clamp(min=0)
        return Bounds(self._log_density(far), self._log_density(near))

    def entropy(self, scores: Tensor) -> Tensor:
        """Σ_d (log σ_d + ½ log 2πe), the same for every state."""
        return (self.log_std + HALF_LOG_2PI + 0.5).sum().expand(scores.shape[0])

    def divergence(self, scores: Tensor, other: Tensor) -> Tensor:
        """Σ_d ((μ_d − μ'_d)/σ_d)²: twice the KL divergence. SA-PPO's weights assume it without the ½."""
        return ((other - scores) * (-self.log_std).exp()).square().sum(-1)

    def divergence_bound(self, bounds: Bounds, scores: Tensor) -> Tensor:
        """Σ_d (max(|l_d − μ_d|, |u_d − μ_d|)/σ_d)², exact for a box."""
        far = torch.maximum((bounds.upper - scores).abs(), (bounds.lower - scores).abs())
        return (far * (-self.log_std).exp()).square().sum(-1)


@dataclass(frozen=True)
class Categorical:
    """A softmax over the scores, here logits (B, A); actions are indices, (B,)."""

    def log_prob(self, scores: Tensor, action: Tensor) -> Tensor:
        """The logarithm of softmax(z)_a."""
        check_shapes(scores, "B A", action, "B")
        return scores.log_softmax(-1).gather(-1, action.unsqueeze(-1)).squeeze(-1)

    def log_prob_bounds(self, bounds: Bounds, action: Tensor) -> Bounds:
        """Log-probability with the action's own logit low and all others high, and the other way round."""
        check_shapes(bounds.lower, "B A", action, "B")
        # log π(a) = z_a − logsumexp(z) rises with z_a and falls with every other logit, so both are corners of the box.
        own = action.unsqueeze(-1) == torch.arange(bounds.lower.shape[-1], device=action.device)
        least = torch.where(own, bounds.lower, bounds.upper)
        most = torch.where(own, bounds.upper, bounds.lower)
        return Bounds(self.log_prob(least, action), self.log_prob(most, action))

    def entropy(self, scores: Tensor) -> Tensor:
        """−Σ_a π_a log π_a."""
        log_prob = scores.log_softmax(-1)
        return -(log_prob.exp() * log_prob).sum(-1)

    def divergence(self, scores: Tensor, other: Tensor) -> Tensor:
        """KL(π ‖ π') = Σ_a π_a·(log π_a − log π'_a)."""
        log_prob = scores.log_softmax(-1)
        return (log_prob.exp() * (log_prob - other.log_softmax(-1))).sum(-1)

    def divergence_bound(self, bounds: Bounds, scores: Tensor) -> Tensor:
        """Σ_a π_a·(log π_a − lower bound of log π'_a): each action at its own worst, so an upper bound of the KL."""
        log_prob = scores.log_softmax(-1)
        # log π'_a ≥ l_a − log(e^{l_a} + Σ_{b≠a} e^{u_b})
        others = (bounds.upper.exp().sum(-1, keepdim=True) - bounds.upper.exp()).clamp(min=1e-30)
        lowest = bounds.lower - torch.logaddexp(bounds.lower, others.log())
        return (log_prob.exp() * (log_prob - lowest)).sum(-1)


# ---------------------------------------------------------------------------------------------------------------- A3C


def k_step_returns(
    reward: Tensor, value: Tensor, next_value: Tensor, terminated: Tensor, ended: Tensor, discount: float
) -> Tensor:
    """Targets of V: R_t = r_t + γ·r_{t+1} + … + γ^k·V(s_{t+k}), to the end of the rollout or episode, (T, N).

    Arguments as for `gae`, whose estimate with λ = 1 is R − V.
    """
    return gae(reward, value, next_value, terminated, ended, discount, 1.0) + value


def policy_gradient(logits: Tensor, action: Tensor, advantage: Tensor) -> Tensor:
    """−A·log π(a), (B,), to be minimised (Mnih et al. 2016).

    logits  (B, A)        action  (B,) int64        advantage  (B,), without gradient

    Log-probabilities are a plain log-softmax. The RADIAL code clamps them to [−30, −1e-6], and probabilities to
    [1e-6, 1], which stops the gradient just where a policy has become too sure of itself.
    """
    check_shapes(logits, "B A", action, "B", advantage, "B")
    return -advantage * Categorical().log_prob(logits, action)


def quarter_squared_error(value: Tensor, target: Tensor) -> Tensor:
    """¼·(R − V)², (B,): the ½·½ of the RADIAL code. The paper's A3C loss has weight 1.

    value  (B,)        target  (B,), k-step returns or V + GAE, without gradient
    """
    check_shapes(value, "B", target, "B")
    return 0.25 * (target - value).square()
