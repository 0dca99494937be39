"""Tightness and balance, by hand."""

import pytest
import torch
from torch import Tensor

from radial.core.data import BadInput, Bounds
from radial.losses.regularizers import relu_balance, tightness


def box(middle: list[float], half: float) -> Bounds:
    at = torch.tensor([middle])
    return Bounds(at - half, at + half)


def eps(value: float) -> Tensor:
    return torch.tensor(value)


def test_only_layers_more_than_twice_as_wide_as_the_input_count() -> None:
    """Δ₀ = 0.1. Δ = 0.2: Δ₀/Δ = τ, nothing. Δ = 0.4: (0.5 − 0.25)/0.5 = 0.5. Their mean is 0.25."""
    assert float(tightness([box([1.0, 2.0], 0.2)], eps(0.1))) == pytest.approx(0.0, abs=1e-6)
    assert float(tightness([box([1.0], 0.2), box([0.0], 0.4)], eps(0.1))) == pytest.approx(0.25)


def test_balance_compares_active_with_inactive_units() -> None:
    """Middles 2 and −2 balance. 4 and −1 do not: ρ = 4 → (0.5 − 0.25)/0.5; c̄ = 1.5, so ς = 2.5²/2.5² = 1."""
    assert float(relu_balance([box([2.0, -2.0], 0.1)])) == pytest.approx(0.0, abs=1e-6)
    assert float(relu_balance([box([4.0, -1.0], 0.1)])) == pytest.approx(0.5)
    assert float(relu_balance([box([0.0, 0.0], 1.0)])) == pytest.approx(0.0, abs=1e-6)  # no unit is settled either way
    assert float(relu_balance([box([-1.0, -3.0], 0.1)])) == pytest.approx(2.0, abs=1e-5)  # all dead


def test_both_have_gradients_and_need_relus() -> None:
    at = torch.tensor([[4.0, -1.0]], requires_grad=True)
    bounds = Bounds(at - 0.4, at + 0.4 + 0.01 * at.square())
    (slope,) = torch.autograd.grad(tightness([bounds], eps(0.1)) + relu_balance([bounds]), at)
    assert slope.abs().min() > 0
    with pytest.raises(BadInput, match="regularize must be 0 for a network without ReLUs"):
        tightness([], eps(0.1))
