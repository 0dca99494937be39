"""RADIAL's losses for Q: arithmetic by hand, what they promise about every Q inside the bounds, and their gradients."""

import pytest
import torch
from torch import Tensor, tensor

from radial.core.data import Bounds
from radial.losses.action_values import SHAPES, overlap, square_or_abs, symmetric_overlap, taken, worst_case_td

ACTION = tensor([0])
Q = tensor([[2.0, 1.0, 3.0]])
BOUNDS = Bounds(tensor([[1.5, 0.75, 2.5]]), tensor([[2.5, 1.75, 3.25]]))


def random(rows: int = 200, actions: int = 4) -> tuple[Bounds, Tensor, Tensor, Tensor]:
    rng = torch.Generator().manual_seed(0)
    q = 2 * torch.randn(rows, actions, generator=rng)
    below, above = torch.rand(2, rows, actions, generator=rng)
    action = torch.randint(actions, (rows,), generator=rng)
    return Bounds(q - below, q + above), q, action, 2 * torch.randn(rows, generator=rng)


def test_worst_case_by_hand():
    # target 2.25: d_0 = max(|2.5 − 2.25|, |1.5 − 2.25|) = 0.75; d_1 = max(0.75, 0.25); d_2 = max(0.25, 0.5)
    # squares (all below 1): 0.5625 + 0.5625 + 0.25
    assert worst_case_td(BOUNDS, Q, ACTION, tensor([2.25]), square_or_abs).tolist() == [1.375]
    # target 4.5: d_0 = 3, whose shape is |d|; 3 + 0.5625 + 0.25
    assert worst_case_td(BOUNDS, Q, ACTION, tensor([4.5]), square_or_abs).tolist() == [3.8125]


def test_overlap_by_hand():
    # Q(a) = 2, only action 1 is worse, by 1. U(1) − L(0) = 1.75 − 1.5 = 0.25; with c = 0.5: 1·(0.25 + 0.5)
    assert overlap(BOUNDS, Q, ACTION, 0.5).tolist() == [0.75]
    assert overlap(BOUNDS, Q, ACTION, 0.0).tolist() == [0.25]
    assert overlap(BOUNDS, Q, ACTION, 1.0).tolist() == [1.25]


def test_symmetric_overlap_by_hand():
    # Besides, action 2 is better by 1. U(0) − L(2) = 2.5 − 2.5 = 0: no overlap, but no gap either: 1·(0 + 0.5)
    assert symmetric_overlap(BOUNDS, Q, ACTION, 0.5).tolist() == [1.25]
    assert symmetric_overlap(BOUNDS, Q, ACTION, 0.0).tolist() == [0.25]


def test_an_action_without_worse_ones_has_no_overlap_unless_both_sides_count():
    worst = tensor([1])
    assert overlap(BOUNDS, Q, worst, 0.5).tolist() == [0.0]
    # D' = (1, 0, 2); U(1) − L = 1.75 − (1.5, ·, 2.5) = (0.25, ·, −0.75): 1·(0.25 + 0.5) + 2·max(0, −0.75 + 1)
    assert symmetric_overlap(BOUNDS, Q, worst, 0.5).tolist() == [1.25]


def test_the_symmetric_loss_does_not_care_which_of_two_actions_was_taken():
    q, bounds = Q[:, :2], Bounds(BOUNDS.lower[:, :2], BOUNDS.upper[:, :2])
    one, other = (symmetric_overlap(bounds, q, tensor([action]), 0.5) for action in (0, 1))
    assert one.tolist() == other.tolist() == overlap(bounds, q, ACTION, 0.5).tolist()


@pytest.mark.parametrize("shape", SHAPES)
def test_no_q_inside_the_bounds_has_a_larger_td_loss(shape: str):
    bounds, q, action, target = random()
    loss = SHAPES[shape]
    worst = worst_case_td(bounds, q, action, target, loss)
    own = torch.nn.functional.one_hot(action, q.shape[1]).bool()
    aim = torch.where(own, target.unsqueeze(1), q)
    rng = torch.Generator().manual_seed(1)
    for inside in (torch.rand(q.shape, generator=rng), torch.rand(q.shape, generator=rng).round()):
        other = torch.lerp(bounds.lower, bounds.upper, inside)
        assert bool((loss(taken(other, action) - target) <= worst + 1e-5).all())  # the TD loss itself
        assert bool((loss(other - aim).sum(1) <= worst + 1e-5).all())  # and all that approach 1 adds
    # Not merely a bound: the far corner attains it.
    far = torch.where((bounds.upper - aim).abs() > (bounds.lower - aim).abs(), bounds.upper, bounds.lower)
    torch.testing.assert_close(loss(far - aim).sum(1), worst)


def test_with_bounds_of_no_width_approach_1_is_the_td_loss_and_approach_2_is_nothing():
    _, q, action, target = random()
    point = Bounds(q, q)
    plain = square_or_abs(taken(q, action) - target)
    torch.testing.assert_close(worst_case_td(point, q, action, target, square_or_abs), plain)
    for margin in (0.0, 0.5, 1.0):
        for loss in (overlap, symmetric_overlap):
            assert float(loss(point, q, action, margin).abs().max()) <= 1e-5


def test_wider_bounds_and_a_larger_margin_never_cost_less():
    bounds, q, action, target = random()
    wider = Bounds(bounds.lower - 0.1, bounds.upper + 0.1)
    shape = SHAPES["smooth-l1"]
    narrow, wide = (worst_case_td(each, q, action, target, shape) for each in (bounds, wider))
    assert bool((narrow <= wide).all())
    for loss in (overlap, symmetric_overlap):
        assert bool((loss(bounds, q, action, 0.5) <= loss(wider, q, action, 0.5)).all())
        assert bool((loss(bounds, q, action, 0.2) <= loss(bounds, q, action, 0.7)).all())


def test_a_constant_added_to_all_actions_does_not_change_the_overlap():
    """Why the overlap needs bounds on advantages only."""
    bounds, q, action, _ = random()
    moved = Bounds(bounds.lower + 3, bounds.upper + 3)
    for loss in (overlap, symmetric_overlap):
        torch.testing.assert_close(loss(bounds, q, action, 0.5), loss(moved, q, action, 0.5), atol=1e-4, rtol=1e-4)


def test_where_the_gradients_go():
    bounds, q, action, target = random()
    lower, upper, q = (each.clone().requires_grad_(True) for each in (bounds.lower, bounds.upper, q))
    for loss in (overlap, symmetric_overlap):
        total = loss(Bounds(lower, upper), q, action, 0.5).sum()
        to_lower, to_upper, to_q = torch.autograd.grad(total, [lower, upper, q], allow_unused=True)
        assert bool((to_lower <= 0).all())  # descending narrows the boxes
        assert bool((to_upper >= 0).all())
        assert to_q is None  # the differences are weights, not something to learn
    total = worst_case_td(Bounds(lower, upper), q, action, target, square_or_abs).sum()
    (to_q,) = torch.autograd.grad(total, q)
    own = torch.nn.functional.one_hot(action, q.shape[1]).bool()
    assert bool((to_q[own] == 0).all())  # the action taken aims at the target
    assert bool((to_q[~own] != 0).any())  # the others at Q, which may move too
