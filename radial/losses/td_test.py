import pytest
import torch
from torch import tensor

from radial.losses.action_values import SHAPES, double_q_target, max_q_target, smooth_l1, square_or_abs, taken


def test_the_value_of_the_action_taken():
    assert taken(tensor([[1.0, 2.0], [3.0, 4.0]]), tensor([1, 0])).tolist() == [2.0, 3.0]


def test_targets_by_hand():
    reward, discount = tensor([1.0, 1.0]), tensor([0.5, 0.0])  # the second episode terminated
    online, target = tensor([[0.0, 1.0], [9.0, 9.0]]), tensor([[6.0, 4.0], [9.0, 9.0]])
    assert max_q_target(reward, discount, target).tolist() == [4.0, 1.0]  # 1 + 0.5·6
    assert double_q_target(reward, discount, online, target).tolist() == [3.0, 1.0]  # online picks 1: 1 + 0.5·4


def test_shapes_by_hand():
    error = tensor([-2.0, -0.5, 0.0, 0.5, 2.0])
    assert square_or_abs(error).tolist() == [2.0, 0.25, 0.0, 0.25, 2.0]
    assert smooth_l1(error).tolist() == [1.5, 0.125, 0.0, 0.125, 1.5]
    assert SHAPES["square"](error).tolist() == [4.0, 0.25, 0.0, 0.25, 4.0]


@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_is_even_and_rises_with_the_error(name: str):
    """Approach 1 relies on this: the far end of a box has the largest loss."""
    error = torch.linspace(0, 5, 501)
    loss = SHAPES[name](error)
    assert float(loss[0]) == 0
    assert bool((loss.diff() >= 0).all())
    torch.testing.assert_close(SHAPES[name](-error), loss)


def test_the_slope_of_square_or_abs_jumps_at_one():
    error = tensor([0.999, 1.001], requires_grad=True)
    (slope,) = torch.autograd.grad(square_or_abs(error).sum(), error)
    assert slope.tolist() == pytest.approx([1.998, 1.0])
