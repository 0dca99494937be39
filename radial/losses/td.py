"""Temporal differences for action values: targets, and the shapes that turn an error into a loss.

Pure functions of tensors; what networks gave the values, and what is minimised besides, is decided elsewhere.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from radial.core.data import check_shapes

Shape = Callable[[Tensor], Tensor]  # elementwise, ≥ 0, 0 at 0, never falling with |d|


def taken(q: Tensor, action: Tensor) -> Tensor:
    """The value of the action in the data: (B, A), (B,) → (B,)."""
    check_shapes(q, "B A", action, "B")
    return q.gather(1, action.unsqueeze(1)).squeeze(1)


def max_q_target(reward: Tensor, discount: Tensor, target_next: Tensor) -> Tensor:
    """One network picks and evaluates: r + γ·max_y Q_target(s', y), (B,) (Mnih et al. 2015).

    reward, discount  (B,), discount 0 where the episode terminated        target_next  (B, A)
    """
    check_shapes(reward, "B", discount, "B", target_next, "B A")
    return reward + discount * target_next.amax(1)


def double_q_target(reward: Tensor, discount: Tensor, online_next: Tensor, target_next: Tensor) -> Tensor:
    """One picks, the other evaluates: r + γ·Q_target(s', argmax_y Q_online(s', y)), (B,) (van Hasselt et al. 2016).

    reward, discount  (B,), discount 0 where the episode terminated        online_next, target_next  (B, A)
    """
    check_shapes(reward, "B", discount, "B", online_next, "B A", target_next, "B A")
    return reward + discount * taken(target_next, online_next.argmax(1))


def square_or_abs(error: Tensor) -> Tensor:
    """min(d², |d|), what the RADIAL-DQN code calls Huber. Its slope jumps from 2 to 1 at |d| = 1."""
    return torch.minimum(error.square(), error.abs())


def smooth_l1(error: Tensor) -> Tensor:
    """½d² up to |d| = 1, then |d| − ½, as in SA-DQN."""
    return F.smooth_l1_loss(error, torch.zeros_like(error), reduction="none")


SHAPES: dict[str, Shape] = {"square-or-abs": square_or_abs, "smooth-l1": smooth_l1, "square": torch.square}
