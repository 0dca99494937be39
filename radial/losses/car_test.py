"""CAR's two pieces by hand."""

import math

import pytest
import torch

from radial.core.data import Bounds
from radial.losses.action_values import square_or_abs
from radial.losses.car import farthest_td, soft_worst


def test_the_farther_end_of_the_action_taken_counts() -> None:
    """Action 0 in [1, 3] against 1.5: 1.5 above, so |d| = 1.5; action 1 in [0, 0.4] against 0.5: ½ below, so d² = ¼."""
    bounds = Bounds(torch.tensor([[1.0, -9.0], [-9.0, 0.0]]), torch.tensor([[3.0, 9.0], [9.0, 0.4]]))
    found = farthest_td(bounds, torch.tensor([0, 1]), torch.tensor([1.5, 0.5]), square_or_abs)
    torch.testing.assert_close(found, torch.tensor([1.5, 0.25]))


def test_rows_are_weighed_by_how_bad_they_are() -> None:
    """At λ = 1 losses of ln 3 and 0 have the shares ¾ and ¼."""
    rows = torch.tensor([math.log(3), 0.0], requires_grad=True)
    found = soft_worst(rows, 1.0)
    assert found.mean().item() == pytest.approx(0.75 * math.log(3))
    (gradient,) = torch.autograd.grad(found.mean(), rows)
    torch.testing.assert_close(gradient, torch.tensor([0.75, 0.25]))  # no gradient through the shares
    assert soft_worst(rows, 1e-3).mean().item() == pytest.approx(math.log(3))  # the worst alone
    assert soft_worst(rows, 1e6).mean().item() == pytest.approx(math.log(3) / 2, rel=1e-5)  # the mean


def test_weights_of_a_replay_count_in_the_shares() -> None:
    """Weights 1 and 3 make the shares ½ and ½; their sum, 4 over 2 rows, scales the mean."""
    rows, weight = torch.tensor([math.log(3), 0.0]), torch.tensor([1.0, 3.0])
    assert (weight * soft_worst(rows, 1.0, weight)).mean().item() == pytest.approx(2 * 0.5 * math.log(3))
    alone = torch.tensor([1.0, 0.0])
    assert (alone * soft_worst(rows, 1.0, alone)).sum().item() == pytest.approx(math.log(3))
