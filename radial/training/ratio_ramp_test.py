"""A ramp that follows the bounds: where it begins, what holds it, and what a student must keep."""

import pytest
import torch

from radial.training.ratio_ramp import RatioRamp, share_kept


def test_it_begins_where_the_ratio_is_a_half_and_ends_at_the_radius() -> None:
    """Ratio 50 at ε = 1: it begins at 0.01 and grows by a factor of 10 in half of its ten updates."""
    ramp = RatioRamp(1.0, 10, 0.1)
    ramp.advance(0.1, 1.0)
    assert ramp.epsilon == 0.0  # not begun
    ramp.begin(50.0)
    found = [ramp.epsilon]
    for _ in range(12):
        ramp.advance(0.1, 1.0)
        found.append(ramp.epsilon)
    assert (found[0], found[5], found[10], found[12]) == pytest.approx((0.01, 0.1, 1.0, 1.0))


@pytest.mark.parametrize(("ratio", "keeps"), [(3.0, 1.0), (float("inf"), 1.0), (float("nan"), 1.0), (0.5, 0.4)])
def test_wide_bounds_and_lost_actions_hold_it(ratio: float, keeps: float) -> None:
    ramp = RatioRamp(1.0, 10, 0.1)
    ramp.begin(5.0)
    ramp.advance(ratio, keeps)
    assert (ramp.progress, ramp.held) == (0.0, True)


def test_a_lost_return_sends_it_back_and_its_state_can_be_restored() -> None:
    ramp = RatioRamp(1.0, 10, 0.1)
    ramp.begin(5.0)
    ramp.hear([500.0] * 5, 0)
    for _ in range(5):
        ramp.advance(0.5, 1.0)
    ramp.hear([100.0] * 5, 10)
    ramp.advance(9.0, 1.0)  # wide bounds hold, but do not keep it from going back
    assert ramp.progress == pytest.approx(0.4)
    other = RatioRamp(1.0, 10, 0.1)
    other.restore(ramp.state())
    assert (other.epsilon, other.returns.pace) == (ramp.epsilon, -1.0)


def test_a_constant_policy_keeps_nothing() -> None:
    teacher = torch.eye(4)
    assert share_kept(teacher, teacher, True) == 1.0
    assert share_kept(torch.tensor([[1.0, 0, 0, 0]] * 4), teacher, True) == 0.0
    assert share_kept(torch.eye(4)[[0, 0, 1, 1]], teacher, True) == pytest.approx(0.5)
    assert share_kept(teacher / 4, teacher, False) == pytest.approx(0.25)
    assert share_kept(torch.ones(4, 2), torch.ones(4, 2), False) == 1.0  # a constant teacher has nothing to keep
