"""The losses of A3C by hand, and what is claimed of them: an upper bound, zeros, and where gradients go."""

import math

import pytest
import torch
from torch import Tensor, tensor

from radial.core.data import BadInput, Bounds
from radial.losses.policy import gae, k_step_returns, policy_gradient, quarter_squared_error
from radial.losses.policy_radial import policy_overlap, released_policy_overlap, worst_case_policy_gradient

# Probabilities 1/2, 1/4, 1/4: logits in units of log 2
UNIT = math.log(2)
LOGITS = UNIT * tensor([[2.0, 1.0, 1.0]])
BOUNDS = Bounds(UNIT * tensor([[1.0, 0.0, 1.0]]), UNIT * tensor([[3.0, 2.0, 1.0]]))
ACTION = tensor([0])


def random(rows: int = 200, actions: int = 4) -> tuple[Bounds, Tensor, Tensor, Tensor]:
    """Bounds around logits, the logits, actions and advantages."""
    rng = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(rows, actions, generator=rng)
    below, above = (torch.rand(rows, actions, generator=rng) for _ in range(2))
    action = torch.randint(actions, (rows,), generator=rng)
    return Bounds(logits - below, logits + above), logits, action, torch.randn(rows, generator=rng)


def test_returns_by_hand() -> None:
    # Two envs, three steps, γ = ½. The first goes on after the rollout; the second terminates after its second step.
    reward = tensor([[1.0, 1.0], [2.0, 2.0], [4.0, 4.0]])
    value = tensor([[10.0, 10.0], [20.0, 20.0], [30.0, 30.0]])
    following = tensor([[20.0, 20.0], [30.0, 99.0], [8.0, 8.0]])
    terminated = tensor([[False, False], [False, True], [False, False]])
    found = k_step_returns(reward, value, following, terminated, terminated, 0.5)
    # 4 + ½·8 = 8, 2 + ½·8 = 6, 1 + ½·6 = 4; the second env: 8 again, then 2 alone, then 1 + ½·2
    assert found.tolist() == [[4.0, 2.0], [6.0, 2.0], [8.0, 8.0]]
    advantage = gae(reward, value, following, terminated, terminated, 0.5, 1.0)
    torch.testing.assert_close(found - value, advantage)  # λ = 1, as the paper's code has it


def test_a_time_limit_ends_the_sum_but_not_the_future() -> None:
    cut, no = tensor([[True], [False]]), tensor([[False], [False]])
    found = k_step_returns(tensor([[1.0], [5.0]]), torch.zeros(2, 1), tensor([[6.0], [0.0]]), no, cut, 0.5)
    assert found.tolist() == [[4.0], [5.0]]  # 1 + ½·6, and nothing of what came after


def test_policy_gradient_and_value_loss_by_hand() -> None:
    logits = LOGITS.expand(2, -1)
    found = policy_gradient(logits, tensor([0, 1]), tensor([3.0, -1.0]))
    assert found.tolist() == pytest.approx([3 * math.log(2), -math.log(4)])
    assert quarter_squared_error(tensor([1.0, 5.0]), tensor([3.0, 5.0])).tolist() == [1.0, 0.0]  # ¼·2²


def test_log_probabilities_are_not_clamped() -> None:
    """The authors stop at −30, where a policy that is sure of the wrong action would no longer learn."""
    logits = tensor([[100.0, 0.0]], requires_grad=True)
    loss = policy_gradient(logits, tensor([1]), tensor([1.0]))
    assert loss.tolist() == pytest.approx([100.0])
    (gradient,) = torch.autograd.grad(loss.sum(), logits)
    assert gradient.tolist() == [pytest.approx([1.0, -1.0])]


def test_approach_1_by_hand() -> None:
    # In units of log 2: a good action at 1 beside 2 and 1, 2/(2 + 4 + 2); a bad one at 3 beside 0 and 1, 8/(8 + 1 + 2)
    bounds = Bounds(BOUNDS.lower.expand(2, -1), BOUNDS.upper.expand(2, -1))
    found = worst_case_policy_gradient(bounds, tensor([0, 0]), tensor([2.0, -2.0]))
    assert found.tolist() == pytest.approx([-2 * math.log(2 / 8), 2 * math.log(8 / 11)])


def test_approach_1_is_the_largest_loss_of_any_logits_inside_and_attained() -> None:
    bounds, _, action, advantage = random()
    worst = worst_case_policy_gradient(bounds, action, advantage)
    rng = torch.Generator().manual_seed(1)
    for at in range(40):
        share = torch.rand(bounds.lower.shape, generator=rng)
        inside = torch.lerp(bounds.lower, bounds.upper, share.round() if at % 2 else share)
        assert bool((policy_gradient(inside, action, advantage) <= worst + 1e-4).all())
    own = torch.nn.functional.one_hot(action, bounds.lower.shape[1]).bool()
    low = own == (advantage >= 0).unsqueeze(1)
    corner = torch.where(low, bounds.lower, bounds.upper)
    torch.testing.assert_close(policy_gradient(corner, action, advantage), worst)


def test_approach_2_by_hand() -> None:
    # π(a) − π(y) = ¼ for both others; z(a) − z(y) = u; U − L(a) = u and 0, with u = log 2
    for margin in (0.0, 0.5, 1.0):
        expected = 0.25 * (UNIT + margin * UNIT) + 0.25 * (margin * UNIT)
        assert policy_overlap(BOUNDS, LOGITS, ACTION, margin).tolist() == pytest.approx([expected])
    # Actions that are not more likely than any other have nothing to keep below them
    assert policy_overlap(BOUNDS, LOGITS, tensor([1]), 0.5).tolist() == [0.0]


def test_the_released_gap_by_hand() -> None:
    # z(a) − π(y) = 2u − ¼ in place of z(a) − z(y) = u
    gap = 0.5 * (2 * UNIT - 0.25)
    expected = 0.25 * (UNIT + gap) + 0.25 * gap
    assert released_policy_overlap(BOUNDS, LOGITS, ACTION, 0.5).tolist() == pytest.approx([expected])


def test_with_bounds_of_no_width() -> None:
    """Approach 1 is the policy gradient, approach 2 nothing; the released form is something all the same."""
    _, logits, action, advantage = random()
    point = Bounds(logits, logits)
    torch.testing.assert_close(
        worst_case_policy_gradient(point, action, advantage), policy_gradient(logits, action, advantage)
    )
    for margin in (0.0, 0.5, 1.0):
        assert float(policy_overlap(point, logits, action, margin).abs().max()) <= 1e-6
    # u = log 2, z = (2u, u, u): ¼·max(0, −u + ½(2u − ¼)) is 0, but with 4u in place of 2u the gap is too large
    high = UNIT * tensor([[4.0, 3.0, 3.0]])
    found = released_policy_overlap(Bounds(high, high), high, ACTION, 0.5)
    assert found.tolist() == pytest.approx([2 * 0.25 * (-UNIT + 0.5 * (4 * UNIT - 0.25))])
    assert float(found) > 0


def test_a_constant_added_to_all_logits_changes_the_released_form_alone() -> None:
    bounds, logits, action, advantage = random()
    moved = Bounds(bounds.lower + 3, bounds.upper + 3)
    for one, other in (
        (worst_case_policy_gradient(bounds, action, advantage), worst_case_policy_gradient(moved, action, advantage)),
        (policy_overlap(bounds, logits, action, 0.5), policy_overlap(moved, logits + 3, action, 0.5)),
    ):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)
    released = released_policy_overlap(bounds, logits, action, 0.5)
    assert float((released_policy_overlap(moved, logits + 3, action, 0.5) - released).max()) > 0.5


def test_wider_bounds_and_a_larger_margin_never_cost_less() -> None:
    bounds, logits, action, advantage = random()
    wider = Bounds(bounds.lower - 0.1, bounds.upper + 0.1)
    narrow, wide = (worst_case_policy_gradient(each, action, advantage) for each in (bounds, wider))
    assert bool((narrow <= wide + 1e-6).all())
    for loss in (policy_overlap, released_policy_overlap):
        assert bool((loss(bounds, logits, action, 0.5) <= loss(wider, logits, action, 0.5)).all())
        assert bool((loss(bounds, logits, action, 0.2) <= loss(bounds, logits, action, 0.7)).all())


def test_where_the_gradients_go() -> None:
    bounds, logits, action, advantage = random()
    lower, upper, logits = (each.clone().requires_grad_(True) for each in (bounds.lower, bounds.upper, logits))
    for loss in (policy_overlap, released_policy_overlap):
        total = loss(Bounds(lower, upper), logits, action, 0.5).sum()
        to_lower, to_upper, to_logits = torch.autograd.grad(total, [lower, upper, logits], allow_unused=True)
        assert bool((to_lower <= 0).all())  # descending narrows the boxes
        assert bool((to_upper >= 0).all())
        assert bool((to_upper > 0).any())
        assert to_logits is None  # weights and gaps are not something to learn
    total = worst_case_policy_gradient(Bounds(lower, upper), action, advantage).sum()
    to_lower, to_upper = torch.autograd.grad(total, [lower, upper])
    good = (advantage >= 0).unsqueeze(1)
    own = torch.nn.functional.one_hot(action, lower.shape[1]).bool()
    assert bool((to_lower[good & own] < 0).all())  # a good action must not become unlikely,
    assert bool((to_upper[~good & own] > 0).all())  # a bad one not likely
    assert not bool(to_upper[good & own].any())  # and the other end is free


def test_shapes_are_checked_at_the_door() -> None:
    with pytest.raises(BadInput, match="expected shape"):
        policy_gradient(LOGITS, ACTION, torch.zeros(2))
    with pytest.raises(BadInput, match="expected shape"):
        quarter_squared_error(torch.zeros(2, 1), torch.zeros(2))
    with pytest.raises(BadInput, match="expected shape"):
        worst_case_policy_gradient(BOUNDS, ACTION, torch.zeros(2))
    for loss in (policy_overlap, released_policy_overlap):
        with pytest.raises(BadInput, match="expected shape"):
            loss(BOUNDS, LOGITS[:, :2], ACTION, 0.5)
