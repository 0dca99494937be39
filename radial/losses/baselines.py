"""Robust terms of the DQN baselines before RADIAL, SA-DQN and RS-DQN, per row; they are added to the TD loss.

Pure functions of margins, logits and bounds; the objective searches for the worst observation.
"""

import torch.nn.functional as F
from torch import Tensor

from radial.core.data import Bounds, check_shapes
from radial.losses.policy import Categorical


def margin_hinge(margin: Tensor, hinge: float) -> Tensor:
    """SA-DQN's regulariser: max(−hinge, −min_y m(y)), (B,).

    margin  (B, K)  Q(a*) − Q(y) at the worst observation, or lower bounds of it, for the actions other than a*

    Each row stops where its own smallest margin reaches the hinge. The authors' search variant hinges the sum over
    the batch instead, so that one confident state switches the loss off for all others (Zhang et al. 2020).
    """
    check_shapes(margin, "B K")
    # The action flips as soon as one margin is negative, so only the smallest counts.
    return (-margin.amin(1)).clamp(min=-hinge)


def imitation(scores: Tensor, action: Tensor) -> Tensor:
    """Cross-entropy of a student's logits (B, A) against its teacher's action (B,): −log softmax(logits)_a, (B,)."""
    check_shapes(scores, "B A", action, "B")
    return F.cross_entropy(scores, action, reduction="none")


def robust_imitation(bounds: Bounds, action: Tensor) -> Tensor:
    """The largest cross-entropy while the logits lie in bounds, (B,): lower bound at the action, upper elsewhere.

    bounds  (B, A)        action  (B,)        Source: provable training as in Mirman et al. 2018, Gowal et al. 2018
    """
    return -Categorical().log_prob_bounds(bounds, action).lower
