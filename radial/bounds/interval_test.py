"""Large tensors take a hand-written path through a monotone function; it must be the one that autograd would take."""

import pytest
import torch
from torch import Tensor

from radial.bounds import interval
from radial.bounds.activation import Activation
from radial.bounds.interval import Interval, monotone
from radial.bounds.nonlinear import ELU, LeakyReLU, MaxPool, ReLU, Sigmoid, Tanh

ACTIVATIONS = [ReLU(), LeakyReLU(0.1), ELU(1.0), Tanh(), Sigmoid()]


def through(activation: Activation, center: Tensor, radius: Tensor) -> tuple[Tensor, ...]:
    """The image of a box, and gradients of some function of it with respect to centre and radius."""
    leaves = [tensor.clone().requires_grad_(True) for tensor in (center, radius)]
    image = activation.interval(Interval(*leaves))
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


def test_a_relu_is_the_monotone_function_it_is() -> None:
    """Its own rule gives what both ends of the interval give, gradients included."""
    rng = torch.Generator().manual_seed(0)
    center, radius = (torch.randn(500, generator=rng, dtype=torch.float64) for _ in range(2))
    relu, leaves = ReLU(), [center.requires_grad_(True), radius.abs().detach().requires_grad_(True)]
    ours, ends = (
        relu.interval(Interval(*leaves)),
        monotone(Interval(*leaves), torch.relu, relu.pull_back),
    )
    weights = torch.rand(2, 500, generator=rng, dtype=torch.float64)
    gradients = []
    for image in (ours, ends):
        assert torch.allclose(image.lower, ends.lower, rtol=0, atol=1e-15)
        assert torch.allclose(image.upper, ends.upper, rtol=0, atol=1e-15)
        gradients += [torch.autograd.grad((weights[0] * image.center + weights[1] * image.radius).sum(), leaves)]
    for one, other in zip(*gradients, strict=True):
        assert torch.allclose(one, other)


@pytest.mark.parametrize("many", [False, True], ids=["small", "large"])
def test_a_radius_far_below_a_rounding_of_the_centre_is_kept(many: bool) -> None:
    """1 ± 1e-12 is 1 in float32, twice; the radius behind a ReLU or a pooling window is 1e-12 all the same."""
    shape = (2, 3, 160, 160) if many else (2, 3, 4, 4)
    rng = torch.Generator().manual_seed(0)
    center = torch.rand(shape, generator=rng) + 1
    radius = torch.rand(shape, generator=rng) * 1e-12
    image = ReLU().interval(Interval(center, radius))
    assert torch.equal(image.radius, radius)
    assert torch.equal(ReLU().interval(Interval(-center, radius)).radius, torch.zeros(shape))
    pooled = MaxPool((2, 2), (2, 2), (0, 0), (1, 1)).interval(Interval(center, radius))
    largest, places = torch.nn.functional.max_pool2d(center, 2, return_indices=True)
    assert torch.equal(pooled.center, largest)
    assert torch.equal(pooled.radius, radius.flatten(2).gather(2, places.flatten(2)).view(places.shape))
