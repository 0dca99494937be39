"""RADIAL's adversarial losses (Oikarinen et al. 2021), as pure functions of bounds.

So far for PPO: the worst-case surrogate of the paper, and the six-way minimum that the authors' code computes.
"""

import functools

import torch
from torch import Tensor

from radial.core.data import Bounds, check_shapes
from radial.losses.policy import clipped_surrogate


def worst_case_surrogate(log_prob: Bounds, old_log_prob: Tensor, advantage: Tensor, clip: float) -> Tensor:
    """The smallest clipped surrogate that a perturbed observation can bring about, (B,), to be maximised.

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
    """Minimum of the nominal surrogate and those of both bounds, (B,), to be maximised: the authors' MuJoCo code.

    clean  log-probability (B,)        advantage  standardised (B,)        raw_advantage  (B,), as GAE gave it

    min{ρ·Â, clip(ρ)·Â, ρ_hi·A, clip(ρ_hi)·A, ρ_lo·A, clip(ρ_lo)·A} with Â standardised and A raw. With s the standard
    deviation of A, below 1 where rewards are scaled, and a mean near 0, Â ≈ A/s. A good action then gets the term of
    ρ_lo at weight s. A bad one gets the nominal term only while ρ_hi < max(ρ, 1 − clip)/s, at s = 1/6 up to about six
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
    """The smallest A·log π(a) that a perturbed observation can bring about, (B,), to be maximised.

    clean  log-probability at the true observation (B,)        log_prob  bounds (B,)

    This is the paper's approach 1 as it writes it for A3C, −A·log π_worst(a), on PPO's minibatches: samples that PPO
    itself would clip are left out. A ratio of probabilities vanishes (good actions) or explodes (bad ones) as soon as
    the bounds are wider than σ, and its gradient with it; the logarithm keeps pulling.
    """
    check_shapes(clean, "B", log_prob.lower, "B", old_log_prob, "B", advantage, "B")
    worst = torch.where(advantage >= 0, log_prob.lower, log_prob.upper)
    ratio = (clean - old_log_prob).exp().detach()
    kept = torch.where(advantage >= 0, ratio <= 1 + clip, ratio >= 1 - clip)
    return torch.where(kept, advantage * (worst - old_log_prob), 0.0)
