import pytest
import torch
from torch import tensor

from radial.core.data import Bounds
from radial.losses.policy import clipped_surrogate
from radial.losses.policy_radial import six_way_surrogate, worst_case_surrogate


def test_worst_case_surrogate_by_hand():
    # A good action at its least likely (ratio 0.5), a bad one at its likeliest (ratio 2).
    bounds = Bounds(tensor([0.5, 0.5]).log(), tensor([2.0, 2.0]).log())
    worst = worst_case_surrogate(bounds, torch.zeros(2), tensor([1.0, -1.0]), clip=0.2)
    assert worst.tolist() == pytest.approx([0.5, -2.0])


def test_worst_case_is_the_minimum_over_the_bounds():
    rng = torch.Generator().manual_seed(0)
    lower = torch.randn(500, generator=rng)
    bounds = Bounds(lower, lower + torch.rand(500, generator=rng))
    old, advantage = torch.randn(500, generator=rng), torch.randn(500, generator=rng)
    worst = worst_case_surrogate(bounds, old, advantage, 0.2)
    for share in torch.linspace(0, 1, 21):
        inside = bounds.lower + share * bounds.width
        assert bool((worst <= clipped_surrogate(inside, old, advantage, 0.2) + 1e-6).all())
    ends = [clipped_surrogate(end, old, advantage, 0.2) for end in (bounds.lower, bounds.upper)]
    torch.testing.assert_close(worst, torch.minimum(*ends))  # the four terms of the authors' ProcGen code


def test_six_way_by_hand():
    # Ratios: clean 1, bounds 0.5 and 2. Standardised advantage ±1, raw ±0.2.
    bounds = Bounds(tensor([0.5, 0.5]).log(), tensor([2.0, 2.0]).log())
    found = six_way_surrogate(
        torch.zeros(2), bounds, torch.zeros(2), tensor([1.0, -1.0]), tensor([0.2, -0.2]), clip=0.2
    )
    # good: min(1, 0.2·1.2, 0.2·0.5); bad: min(−1, −0.2·2, −0.2·0.8): there the nominal term wins
    assert found.tolist() == pytest.approx([0.1, -1.0])


def test_six_way_with_one_advantage_is_the_worst_case():
    rng = torch.Generator().manual_seed(3)
    clean, old, advantage = (torch.randn(100, generator=rng) for _ in range(3))
    bounds = Bounds(clean - 0.3, clean + 0.2)
    six = six_way_surrogate(clean, bounds, old, advantage, advantage, 0.2)
    torch.testing.assert_close(six, worst_case_surrogate(bounds, old, advantage, 0.2))
