"""Large tensors take a hand-written path through a monotone function; it must be the one that autograd would take."""

import pytest
import torch
from torch import Tensor

from radial.bounds import interval
from radial.bounds.activation import Activation
from radial.bounds.interval import Interval, monotone
from radial.bounds.nonlinear import ELU, LeakyReLU, ReLU, Sigmoid, Tanh

ACTIVATIONS = [ReLU(), LeakyReLU(0.1), ELU(1.0), Tanh(), Sigmoid()]


def through(activation: Activation, center: Tensor, radius: Tensor) -> tuple[Tensor, ...]:
    """The image of a box, and gradients of some function of it with respect to centre and radius."""
    leaves = [tensor.clone().requires_grad_(True) for tensor in (center, radius)]
    image = monotone(Interval(*leaves), activation.overwrite, activation.pull_back)
    loss = (image.center * center.cos()).sum() + (image.radius * center.sin()).sum()
    return image.center.detach(), image.radius.detach(), *torch.autograd.grad(loss, leaves)


@pytest.mark.parametrize("shared", [False, True], ids=["own radii", "one radius"])
@pytest.mark.parametrize("shape", [(4, 8, 40, 40), (3, 12_000)], ids=["frames", "vectors"])
@pytest.mark.parametrize("activation", ACTIVATIONS, ids=lambda each: type(each).__name__)
def test_both_paths_are_one(
    activation: Activation, shape: tuple[int, ...], shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = torch.Generator().manual_seed(0)
    center = torch.randn(shape, generator=rng, dtype=torch.float64)
    radius = torch.rand((1, *shape[1:]) if shared else shape, generator=rng, dtype=torch.float64)
    assert center.numel() > interval.SMALL
    by_hand = through(activation, center, radius)
    monkeypatch.setattr(interval, "SMALL", 1 << 40)
    for ours, autograd in zip(by_hand, through(activation, center, radius), strict=True):
        assert ours.shape == autograd.shape
        assert torch.allclose(ours, autograd, rtol=0, atol=1e-12)
