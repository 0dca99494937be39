"""The losses of A3C per step of a rollout: policy gradient and value, and RADIAL's two approaches for softmax policies.

Pure functions of logits, values and bounds; advantages are `policy.gae`'s, and how bounds were found is not known here.
"""

import torch
from torch import Tensor

from radial.core.data import Bounds, check_shapes
from radial.losses.action_values import weighted_overlap
from radial.losses.policy import Categorical, gae
from radial.losses.td import taken


def k_step_returns(
    reward: Tensor, value: Tensor, next_value: Tensor, terminated: Tensor, ended: Tensor, discount: float
) -> Tensor:
    """What V is learned from: R_t = r_t + γ·r_{t+1} + … + γ^k·V(s_{t+k}), to the end of the rollout or episode, (T, N).

    Arguments as for `policy.gae`, whose estimate with λ = 1 is R − V.
    """
    return gae(reward, value, next_value, terminated, ended, discount, 1.0) + value


def policy_gradient(logits: Tensor, action: Tensor, advantage: Tensor) -> Tensor:
    """−A·log π(a), (B,), to be minimised (Mnih et al. 2016).

    logits  (B, A)        action  (B,) int64        advantage  (B,), without gradient

    Log-probabilities are a log-softmax as it is. The RADIAL code clamps them to [−30, −1e-6], and probabilities to
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


def worst_case_policy_gradient(bounds: Bounds, action: Tensor, advantage: Tensor) -> Tensor:
    """Approach 1: the largest −A·log π(a) while the logits lie in their bounds, (B,) (paper, appendix on RADIAL-A3C).

    bounds  of the logits, (B, A)        action  (B,)        advantage  (B,), without gradient

    −A·log π_min(a) where A ≥ 0, from {L at a, U elsewhere}; −A·log π_max(a) where A < 0, from {U at a, L elsewhere}.
    Both are logits of the box, so the bound is attained there. With bounds of no width it is `policy_gradient`.
    """
    check_shapes(bounds.lower, "B A", action, "B", advantage, "B")
    log_prob = Categorical().log_prob_bounds(bounds, action)
    return -advantage * torch.where(advantage >= 0, log_prob.lower, log_prob.upper)


def policy_overlap(bounds: Bounds, logits: Tensor, action: Tensor, margin: float) -> Tensor:
    """Approach 2: how far less likely actions reach into the bounds of the one taken, (B,) (paper §3.2).

    bounds  of the logits, (B, A)        logits  z (B, A)        action  (B,)        margin  ½ in the paper, 0 … 1

    Σ_y max(0, π(a) − π(y))·max(0, U(y) − L(a) + margin·max(0, z(a) − z(y))), with gradient through U and L alone.
    With bounds of no width the second factor is max(0, (margin − 1)·(z(a) − z(y))) = 0 where the first is not 0.
    """
    check_shapes(bounds.lower, "B A", logits, "B A", action, "B")
    own = taken(logits, action).unsqueeze(1)
    return weighted_overlap(bounds, action, _less_likely(logits, action), margin * (own - logits).clamp(min=0).detach())


def released_policy_overlap(bounds: Bounds, logits: Tensor, action: Tensor, margin: float) -> Tensor:
    """Approach 2 with the gap of the authors' code, margin·max(0, z(a) − π(y)): a logit less a probability, (B,).

    Shapes as for `policy_overlap`. Logits mean something up to a constant only, so this gap depends on what means
    nothing: with all logits high it asks for more than there is, with all low for nothing. It is not 0 at radius 0.
    The code adds 1e-4 for its plots; we do not.
    """
    check_shapes(bounds.lower, "B A", logits, "B A", action, "B")
    own = taken(logits, action).unsqueeze(1)
    gap = margin * (own - logits.softmax(1)).clamp(min=0).detach()
    return weighted_overlap(bounds, action, _less_likely(logits, action), gap)


def _less_likely(logits: Tensor, action: Tensor) -> Tensor:
    """max(0, π(a) − π(y)) without gradient, (B, A)."""
    probability = logits.softmax(1).detach()
    return (taken(probability, action).unsqueeze(1) - probability).clamp(min=0)
