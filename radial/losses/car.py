"""The loss of consistent adversarial robustness (CAR-DQN, CAR-PPO; Li et al. 2024, 2025), per row.

Pure functions of bounds and of losses per row, however computed.
"""

import torch
from torch import Tensor

from radial.core.data import Bounds, check_shapes
from radial.losses.action_values import Shape, taken


def farthest_td(bounds: Bounds, action: Tensor, target: Tensor, shape: Shape) -> Tensor:
    """The largest TD loss of the action taken while its Q-value lies in its bounds, (B,).

    bounds  of Q, V included, (B, A)        action, target  (B,), the target without gradient

    shape(max(|U(a) − y|, |L(a) − y|)): a shape never falls with |d|, so the farther end is the worst.
    """
    check_shapes(bounds.lower, "B A", action, "B", target, "B")
    upper, lower = (taken(end, action) - target for end in (bounds.upper, bounds.lower))
    return shape(torch.maximum(upper.abs(), lower.abs()))


def soft_worst(losses: Tensor, temperature: float, weight: Tensor | None = None) -> Tensor:
    """B·p·ℓ, (B,), whose mean is Σ p·ℓ: rows weighed by p = softmax(ℓ/temperature), without gradient.

    weight  (B,) of the rows in the mean that follows, as in a prioritised replay; they count in the softmax as well
            (a row of weight 0 takes no share from others), and the sum of all weights stays what it was

    A temperature towards 0 leaves the worst row of the batch alone, a high one the mean.
    """
    weight = torch.ones_like(losses) if weight is None else weight
    check_shapes(losses, "B", weight, "B")
    level = losses.detach() / temperature
    share = (level - torch.logsumexp(level + weight.log(), 0)).exp()
    return weight.sum() * share * losses
