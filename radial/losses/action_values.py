"""Losses of action values, per row: TD targets and shapes, and RADIAL's two approaches (Oikarinen et al. 2021, §3.1).

Pure functions of Q-values and of bounds on them, however computed. A term common to all actions cancels in the
overlaps, so those take bounds on advantages as well.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from radial.core.data import Bounds, check_shapes

Shape = Callable[[Tensor], Tensor]  # elementwise, ≥ 0, 0 at 0, never falling with |d|


def taken(q: Tensor, action: Tensor) -> Tensor:
    """The Q-value (or bound) of the action taken: (B, A), (B,) → (B,)."""
    check_shapes(q, "B A", action, "B")
    return q.gather(1, action.unsqueeze(1)).squeeze(1)


def max_q_target(reward: Tensor, discount: Tensor, target_next: Tensor) -> Tensor:
    """DQN target, one network picks and evaluates: r + γ·max_y Q_target(s', y), (B,) (Mnih et al. 2015).

    reward, discount  (B,), discount 0 where the episode terminated        target_next  (B, A)
    """
    check_shapes(reward, "B", discount, "B", target_next, "B A")
    return reward + discount * target_next.amax(1)


def double_q_target(reward: Tensor, discount: Tensor, online_next: Tensor, target_next: Tensor) -> Tensor:
    """Double-DQN target: r + γ·Q_target(s', argmax_y Q_online(s', y)), (B,) (van Hasselt et al. 2016).

    reward, discount  (B,), discount 0 where the episode terminated        online_next, target_next  (B, A)
    """
    check_shapes(reward, "B", discount, "B", online_next, "B A", target_next, "B A")
    return reward + discount * taken(target_next, online_next.argmax(1))


def square_or_abs(error: Tensor) -> Tensor:
    """min(d², |d|), called Huber in the RADIAL-DQN code. Its slope jumps from 2 to 1 at |d| = 1."""
    return torch.minimum(error.square(), error.abs())


def smooth_l1(error: Tensor) -> Tensor:
    """½d² up to |d| = 1, then |d| − ½, as in SA-DQN."""
    return F.smooth_l1_loss(error, torch.zeros_like(error), reduction="none")


SHAPES: dict[str, Shape] = {"square-or-abs": square_or_abs, "smooth-l1": smooth_l1, "square": torch.square}


def worst_case_td(bounds: Bounds, q: Tensor, action: Tensor, target: Tensor, shape: Shape) -> Tensor:
    """Approach 1: the largest TD loss while Q lies in its bounds, plus the spread of the other actions' bounds, (B,).

    bounds  of Q, (B, A)        q  (B, A)        action, target  (B,), the target without gradient

    Σ_y shape(d_y),  d_y = max(|U(y) − t_y|, |L(y) − t_y|),  t_a = target, t_y = Q(s, y) for y ≠ a.
    Every shape rises with |d|, so no Q inside the bounds has a larger loss. With bounds of no width it is the plain
    TD loss. Q(s, y) keeps its gradient, as in the authors' code, so it moves towards its bounds as they do towards it.
    The paper writes squares for `shape`; the code uses the shape of its TD loss.
    """
    check_shapes(bounds.lower, "B A", q, "B A", action, "B", target, "B")
    aim = torch.where(_own(q, action), target.unsqueeze(1), q)
    # shape is monotone in |d|, so the worst Q in [L, U] is the end farther from the target: no search is needed.
    far = torch.maximum((bounds.upper - aim).abs(), (bounds.lower - aim).abs())
    return shape(far).sum(1)


def overlap(bounds: Bounds, q: Tensor, action: Tensor, margin: float) -> Tensor:
    """Approach 2: overlap of worse actions' bounds with those of the action taken, weighted by the Q-value gap, (B,).

    bounds  of Q, (B, A)        q  (B, A)        action  (B,)        margin  the paper's c, 0 … 1

    Σ_y D(y)·max(0, U(y) − L(a) + c·D(y)),  D(y) = max(0, Q(s, a) − Q(s, y)) without gradient.
    With bounds of no width the second factor is max(0, (c − 1)·D(y)) = 0. The authors' code adds 1e-4 for its plots.
    """
    check_shapes(bounds.lower, "B A", q, "B A", action, "B")
    worse = (taken(q, action).unsqueeze(1) - q).clamp(min=0).detach()
    return weighted_overlap(bounds, action, worse, margin * worse)


def symmetric_overlap(bounds: Bounds, q: Tensor, action: Tensor, margin: float) -> Tensor:
    """Approach 2 from both sides: actions better than the one taken must stay above it as well, (B,).

    Shapes as for `overlap`, which is the first term; the second is the same with a and y in each other's place,
    Σ_y D'(y)·max(0, U(a) − L(y) + c·D'(y)),  D'(y) = max(0, Q(s, y) − Q(s, a)) without gradient.
    The appendix prints L(y) − U(a) there. That would grow with the distance of the two boxes and be 1.5·D' at radius
    0, against the text around it ("with terms flipped to have the same regularization"), so we read it as a slip.
    """
    check_shapes(bounds.lower, "B A", q, "B A", action, "B")
    # −Q lies in [−U, −L] and reverses the order of the actions, so the second term is `overlap` of −Q.
    return overlap(bounds, q, action, margin) + overlap(Bounds(-bounds.upper, -bounds.lower), -q, action, margin)


def weighted_overlap(bounds: Bounds, action: Tensor, weight: Tensor, gap: Tensor) -> Tensor:
    """Σ_y weight(y)·max(0, U(y) − L(a) + gap(y)), (B,): the common form of the paper's two overlaps.

    bounds  of Q or logits, (B, A)      action  (B,)      weight, gap  (B, A), without gradient, weight 0 at a itself
    """
    reach = bounds.upper - taken(bounds.lower, action).unsqueeze(1)
    return (weight * (reach + gap).clamp(min=0)).sum(1)


def _own(q: Tensor, action: Tensor) -> Tensor:
    """Mask of the action's column, (B, A) bool."""
    return action.unsqueeze(1) == torch.arange(q.shape[1], device=q.device)
