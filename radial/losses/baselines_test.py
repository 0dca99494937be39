import math

import pytest
import torch
from torch import tensor

from radial.core.data import Bounds
from radial.losses.baselines import imitation, margin_hinge, robust_imitation


def test_margin_hinge_by_hand():
    # Smallest margins 0.25, 2 and −3: the second is past the hinge of 1.
    margin = tensor([[0.5, 0.25], [2.0, 4.0], [1.0, -3.0]])
    assert margin_hinge(margin, 1.0).tolist() == [-0.25, -1.0, 3.0]


def test_each_row_has_its_own_hinge():
    """On the batch sum, as in the authors' search variant, the confident row would switch off the one in danger."""
    margin = tensor([[100.0], [-3.0]], requires_grad=True)
    (gradient,) = torch.autograd.grad(margin_hinge(margin, 1.0).sum(), margin)
    assert gradient.tolist() == [[0.0], [-1.0]]
    on_the_sum = (-margin.sum()).clamp(min=-1.0)
    assert torch.autograd.grad(on_the_sum, margin)[0].tolist() == [[0.0], [0.0]]


def test_imitation_by_hand():
    # softmax(log 1, log 3) = (1/4, 3/4)
    scores = tensor([[0.0, math.log(3)]])
    assert imitation(scores, tensor([1])).tolist() == pytest.approx([math.log(4 / 3)])


def test_robust_imitation_by_hand():
    # the action at its lowest, log 1, the other at its highest, log 4: −log(1/5)
    bounds = Bounds(tensor([[0.0, 0.0]]), tensor([[1.0, math.log(4)]]))
    assert robust_imitation(bounds, tensor([0])).tolist() == pytest.approx([math.log(5)])


def test_no_scores_inside_the_bounds_imitate_worse():
    rng = torch.Generator().manual_seed(0)
    lower, width = torch.randn(100, 4, generator=rng), torch.rand(100, 4, generator=rng)
    action = torch.randint(4, (100,), generator=rng)
    bounds = Bounds(lower, lower + width)
    worst = robust_imitation(bounds, action)
    for _ in range(20):
        inside = lower + width * torch.rand(100, 4, generator=rng)
        assert bool((imitation(inside, action) <= worst + 1e-6).all())
    torch.testing.assert_close(robust_imitation(Bounds(lower, lower), action), imitation(lower, action))
