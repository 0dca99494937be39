"""RADIAL's adversarial losses for policies (Oikarinen et al. 2021): PPO's surrogate, A3C's two approaches, per row.

Pure functions of bounds on log-probabilities or logits, however those were computed.
"""

import functools

import torch
from torch import Tensor

from radial.core.data import Bounds, check_shapes
from radial.losses.action_values import taken, weighted_overlap
from radial.losses.policy import Categorical, clipped_surrogate


def worst_case_surrogate(log_prob: Bounds, old_log_prob: Tensor, advantage: Tensor, clip: float) -> Tensor:
    """The smallest clipped surrogate over all perturbed observations, (B,), to be maximised.

    log_prob  bounds (B,)        old_log_prob, advantage  (B,)

    The surrogate rises with the probability of a good action and falls with that of a bad one, so the worst policy is
    the lower bound where A ≥ 0 and the upper bound where A < 0 (paper §3.3, RADIAL-PPO).
    """
    check_shapes(log_prob.lower, "B", old_log_prob, "B", advantage, "B")
    worst = torch.where(advantage >= 0, log_prob.lower, log_prob.upper)
    return clipped_surrogate(worst, old_log_prob, advantage, clip)


def six_way_surrogate(
    clean: Tensor, log_prob: Bounds, old_log_prob: Tensor, advantage: Tensor, raw_advantage: Tensor, clip: float
) -> Tensor:
    """Minimum of the clean surrogate and those of both bounds, (B,), to be maximised: the authors' MuJoCo code.

    clean  log-probability (B,)        advantage  standardised (B,)        raw_advantage  (B,), as GAE gave it

    min{ρ·Â, clip(ρ)·Â, ρ_hi·A, clip(ρ_hi)·A, ρ_lo·A, clip(ρ_lo)·A} with Â standardised and A raw. With s the standard
    deviation of A, below 1 where rewards are scaled, and a mean near 0, Â ≈ A/s. A good action then gets the term of
    ρ_lo at weight s. A bad one gets the clean term only while ρ_hi < max(ρ, 1 − clip)/s, at s = 1/6 up to about six
    times ρ; beyond that the term of ρ_hi is the smallest, and it is not clipped.
    """
    check_shapes(clean, "B", log_prob.lower, "B", old_log_prob, "B", advantage, "B", raw_advantage, "B")
    terms = (
        clipped_surrogate(clean, old_log_prob, advantage, clip),
        clipped_surrogate(log_prob.upper, old_log_prob, raw_advantage, clip),
        clipped_surrogate(log_prob.lower, old_log_prob, raw_advantage, clip),
    )
    return functools.reduce(torch.minimum, terms)


def worst_case_likelihood(
    clean: Tensor, log_prob: Bounds, old_log_prob: Tensor, advantage: Tensor, clip: float
) -> Tensor:
    """The smallest A·log π(a) over all perturbed observations, (B,), to be maximised.

    clean  log-probability at the true observation (B,)        log_prob  bounds (B,)

    This is the paper's approach 1 as it writes it for A3C, −A·log π_worst(a), on PPO's minibatches: samples that PPO
    itself would clip are left out. A ratio of probabilities vanishes (good actions) or explodes (bad ones) as soon as
    the bounds are wider than σ, and its gradient with it; the logarithm keeps pulling.
    """
    check_shapes(clean, "B", log_prob.lower, "B", old_log_prob, "B", advantage, "B")
    worst = torch.where(advantage >= 0, log_prob.lower, log_prob.upper)
    ratio = (clean - old_log_prob).exp().detach()
    # PPO's min(ρ·A, clip(ρ)·A) has no gradient beyond 1 ± clip on the side where A would push ρ further.
    kept = torch.where(advantage >= 0, ratio <= 1 + clip, ratio >= 1 - clip)
    return torch.where(kept, advantage * (worst - old_log_prob), 0.0)


def worst_case_policy_gradient(bounds: Bounds, action: Tensor, advantage: Tensor) -> Tensor:
    """Approach 1: the largest −A·log π(a) while the logits lie in their bounds, (B,) (paper, appendix on RADIAL-A3C).

    bounds  of the logits, (B, A)        action  (B,)        advantage  (B,), without gradient

    −A·log π_min(a) where A ≥ 0, from {L at a, U elsewhere}; −A·log π_max(a) where A < 0, from {U at a, L elsewhere}.
    Both are corners of the box, so the bound is attained there. With bounds of no width it is `policy_gradient`.
    """
    check_shapes(bounds.lower, "B A", action, "B", advantage, "B")
    log_prob = Categorical().log_prob_bounds(bounds, action)
    return -advantage * torch.where(advantage >= 0, log_prob.lower, log_prob.upper)


def policy_overlap(bounds: Bounds, logits: Tensor, action: Tensor, margin: float) -> Tensor:
    """Approach 2: weighted overlap of less likely actions' bounds with those of the action taken, (B,) (paper §3.2).

    bounds  of the logits, (B, A)        logits  z (B, A)        action  (B,)        margin  ½ in the paper, 0 … 1

    Σ_y max(0, π(a) − π(y))·max(0, U(y) − L(a) + margin·max(0, z(a) − z(y))), with gradient through U and L alone.
    With bounds of no width the second factor is max(0, (margin − 1)·(z(a) − z(y))) = 0 where the first is not 0.
    """
    check_shapes(bounds.lower, "B A", logits, "B A", action, "B")
    own = taken(logits, action).unsqueeze(1)
    return weighted_overlap(bounds, action, _less_likely(logits, action), margin * (own - logits).clamp(min=0).detach())


def released_policy_overlap(bounds: Bounds, logits: Tensor, action: Tensor, margin: float) -> Tensor:
    """Approach 2 with the gap of the authors' code, margin·max(0, z(a) − π(y)): a logit less a probability, (B,).

    Shapes as for `policy_overlap`. Logits are defined up to a constant only, and this gap depends on that constant:
    with all logits high it requires more than there is, with all low nothing. It is not 0 at radius 0.
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
