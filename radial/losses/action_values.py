"""RADIAL's adversarial losses for action values (Oikarinen et al. 2021, §3.1 and appendices), per row.

Pure functions of bounds on Q. A quantity that is the same for every action cancels in the overlaps, so those take
bounds on advantages as well; how the bounds were found is not known here.
"""

import torch
from torch import Tensor

from radial.core.data import Bounds, check_shapes
from radial.losses.td import Shape, taken


def worst_case_td(bounds: Bounds, q: Tensor, action: Tensor, target: Tensor, shape: Shape) -> Tensor:
    """Approach 1: the largest TD loss while Q lies in its bounds, and how far the other actions can move, (B,).

    bounds  of Q, (B, A)        q  (B, A)        action, target  (B,), the target without gradient

    Σ_y shape(d_y),  d_y = max(|U(y) − t_y|, |L(y) − t_y|),  t_a = target, t_y = Q(s, y) for y ≠ a.
    Every shape rises with |d|, so no Q inside the bounds has a larger loss. With bounds of no width it is the plain
    TD loss. Q(s, y) keeps its gradient, as in the authors' code: a narrow box may also come to Q, not only Q to it.
    The paper writes squares for `shape`; the code uses the shape of its TD loss.
    """
    check_shapes(bounds.lower, "B A", q, "B A", action, "B", target, "B")
    aim = torch.where(_own(q, action), target.unsqueeze(1), q)
    far = torch.maximum((bounds.upper - aim).abs(), (bounds.lower - aim).abs())
    return shape(far).sum(1)


def overlap(bounds: Bounds, q: Tensor, action: Tensor, margin: float) -> Tensor:
    """Approach 2: how far worse actions reach into the bounds of the one taken, weighted by how much worse, (B,).

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
    # −Q has the bounds −U and −L, and what was better is worse there
    return overlap(bounds, q, action, margin) + overlap(Bounds(-bounds.upper, -bounds.lower), -q, action, margin)


def weighted_overlap(bounds: Bounds, action: Tensor, weight: Tensor, gap: Tensor) -> Tensor:
    """Σ_y weight(y)·max(0, U(y) − L(a) + gap(y)), (B,): what both overlaps of the paper are made of.

    bounds  of scores, (B, A)        action  (B,)        weight, gap  (B, A), without gradient, weight 0 at a itself
    """
    reach = bounds.upper - taken(bounds.lower, action).unsqueeze(1)
    return (weight * (reach + gap).clamp(min=0)).sum(1)


def _own(q: Tensor, action: Tensor) -> Tensor:
    """Which column is the action, (B, A) bool."""
    return action.unsqueeze(1) == torch.arange(q.shape[1], device=q.device)
