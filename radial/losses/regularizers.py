"""Two terms that keep bounds trainable while ε grows (Shi et al. 2021): tight bounds, and ReLUs of all kinds."""

from collections.abc import Sequence

import torch
from torch import Tensor

from radial.core.data import BadInput, Bounds

TAU = 0.5
TINY_SUM = 1e-8  # below which there are no units of a kind to balance


def tightness(inputs: Sequence[Bounds], radius: Tensor) -> Tensor:
    """Mean over the layers of max(0, τ − Δ₀/Δ)/τ, Δ the mean half width in front of a ReLU and Δ₀ at the input, ().

    inputs  bounds (B, *) in front of each ReLU        radius  (), Δ₀

    0 while no layer is more than twice as wide as the input.
    """
    widths = torch.stack([bounds.width.mean() / 2 for bounds in _given(inputs)])
    return torch.relu(TAU - radius / widths.clamp(min=torch.finfo(widths.dtype).tiny)).mean() / TAU


def relu_balance(inputs: Sequence[Bounds]) -> Tensor:
    """Mean over the layers of (max(0, τ − min(ρ, 1/ρ)) + max(0, τ − min(ς, 1/ς)))/τ, ().

    ρ and ς compare the units that are active in the whole ball (l > 0) with those that are inactive (u < 0): by the sum
    of their middles c, and by that of (c − c̄)². So neither kind dies out.
    """
    return torch.stack([_imbalance(bounds) for bounds in _given(inputs)]).mean()


def _imbalance(bounds: Bounds) -> Tensor:
    middle = (bounds.lower + bounds.upper) / 2
    active, inactive = (bounds.lower > 0).to(middle), (bounds.upper < 0).to(middle)
    about = (middle - middle.mean()).square()
    means = _even((middle * active).mean(), -(middle * inactive).mean())
    spreads = _even((about * active).sum(), (about * inactive).sum())
    return (torch.relu(TAU - means) + torch.relu(TAU - spreads)) / TAU


def _even(one: Tensor, other: Tensor) -> Tensor:
    """min(ρ, 1/ρ) of ρ = one/other; 1 where there are units of neither kind."""
    ratio = one.clamp(min=TINY_SUM) / other.clamp(min=TINY_SUM)
    known = (one + other > TINY_SUM).to(ratio)
    return known * torch.minimum(ratio, 1 / ratio) + (1 - known)


def _given(inputs: Sequence[Bounds]) -> Sequence[Bounds]:
    if not inputs:
        raise BadInput("regularize must be 0 for a network without ReLUs: its terms are about their inputs")
    return inputs
