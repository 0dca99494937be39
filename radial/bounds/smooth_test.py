"""Softplus, SiLU and GELU: as torch runs them, on intervals of every size, with no tolerance in the sound form."""

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import radial as rr
from radial.bounds.interval import Interval
from radial.bounds.smooth import GELU, Gated, SiLU, TanhGELU

MODULES: dict[str, Callable[[], nn.Module]] = {
    "softplus": nn.Softplus,
    "softplus, steep": lambda: nn.Softplus(6.0, 25.0),
    "softplus, flat": lambda: nn.Softplus(0.2),
    "silu": nn.SiLU,
    "gelu": nn.GELU,
    "gelu by tanh": lambda: nn.GELU("tanh"),
}
GATED: dict[str, tuple[Gated, Callable[[Tensor], Tensor]]] = {
    "silu": (SiLU(), F.silu),
    "gelu": (GELU(), F.gelu),
    "gelu by tanh": (TanhGELU(), lambda x: F.gelu(x, approximate="tanh")),
}


def balls(dtype: torch.dtype, seed: int, count: int = 1500) -> list[rr.Ball]:
    """Huge, tiny, one-sided and degenerate intervals, and many around the bends of the curves."""
    rng = torch.Generator().manual_seed(seed)

    def ends(low: float, high: float) -> Tensor:
        size = 10 ** (low + (high - low) * torch.rand(count, 1, generator=rng, dtype=torch.float64))
        return (size * torch.randn(count, 1, generator=rng).sign()).to(dtype)

    around = (torch.randn(count, 1, generator=rng) * 3).to(dtype)
    made = [(ends(-30, 20), 0.0), (ends(-3, 2), 0.5), (ends(-3, 1.5), 3.0), (ends(-1, 2), 40.0), (ends(-2, 6), 1e6)]
    made += [(around, 10.0**-power) for power in range(0, 13, 2)]
    return [rr.Ball(center, radius) for center, radius in made]


def points(ball: rr.Ball, count: int) -> Tensor:
    """(count, B, 1) along each interval, ends included, as x ± ε rounds in the network's precision."""
    share = torch.linspace(-1, 1, count, dtype=torch.float64).to(ball.center.dtype).view(-1, 1, 1)
    return torch.maximum(torch.minimum(ball.center + share * ball.radius, ball.box().upper), ball.box().lower)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", MODULES)
def test_no_point_leaves_the_sound_bounds(name: str, dtype: torch.dtype) -> None:
    network = nn.Sequential(MODULES[name]())
    for seed, ball in enumerate(balls(dtype, seed=0)):
        x = points(ball, 65)
        y = network(x)
        y[::2] = network(x[::2].transpose(0, 1).contiguous()).transpose(0, 1)  # another layout, another kernel
        for method in rr.METHODS:
            bounds = rr.sound(method)(network, ball)
            assert bool(bounds.contains(y).all()), f"{method}, {seed}"
            turned = rr.sound(method)(network, ball, torch.tensor([[[-2.5]]], dtype=dtype))
            assert bool((turned.lower.double() <= -2.5 * y.double()).all()), f"{method}, {seed}, rows"
            assert bool((turned.upper.double() >= -2.5 * y.double()).all()), f"{method}, {seed}, rows"


@pytest.mark.parametrize("name", GATED)
def test_the_constants_of_the_curve(name: str) -> None:
    """Bottom, inflection and steepest point, from the curve that torch computes."""
    curve, torch_curve = GATED[name]
    x = torch.linspace(-12, 12, 400_001, dtype=torch.float64)
    y = torch_curve(x)
    assert torch.allclose(curve.value(x), y, rtol=1e-13, atol=1e-14)
    assert curve.least <= float(y.min()) + 1e-16
    assert float(y.min()) == pytest.approx(curve.least, abs=1e-9)
    assert float(x[y.argmin()]) == pytest.approx(curve.bottom, abs=1e-4)
    assert abs(float(curve.tilt(torch.tensor(curve.bottom, dtype=torch.float64))) + 0.5) < 1e-15
    tilt, bend = curve.tilt(x), curve.curvature(x)
    derivative = torch.autograd.functional.jvp(torch_curve, x, torch.ones_like(x))[1]
    assert torch.allclose(tilt + 0.5, derivative, atol=1e-13)
    assert torch.allclose(bend, torch.autograd.functional.jvp(curve.tilt, x, torch.ones_like(x))[1], atol=1e-12)
    inside = x.abs() < curve.bend
    assert bool((bend[inside] > 0).all() & (bend[~inside & (x.abs() < 8)] < 0).all())
    assert float(tilt.max()) == pytest.approx(curve.peak, abs=1e-9)
    assert curve.peak + 0.5 <= curve.steepest
    assert abs(float(curve.tilt(torch.tensor(curve.bend + curve.tail, dtype=torch.float64))) - 0.5) < 1e-15


@pytest.mark.parametrize("name", GATED)
def test_stationary_points_are_found_to_the_last_digits(name: str) -> None:
    """The intercept's error is at most |residual|·|distance|: far below the 256 roundings that the sound form adds."""
    curve, _ = GATED[name]
    near = torch.logspace(-17, -1, 4000, dtype=torch.float64)
    inner = torch.cat(
        [torch.linspace(0, curve.peak, 20_001, dtype=torch.float64), curve.peak - near * curve.peak, near]
    )
    outer = torch.cat([torch.linspace(0.5, curve.peak, 20_001, dtype=torch.float64), 0.5 + near * (curve.peak - 0.5)])
    for sign in (1, -1):
        for which, level in ((0, inner), (1, outer)):
            point = curve.stationary(0.5 + sign * level)[which]
            level = (0.5 + sign * level) - 0.5  # as the slope represents it
            residual = (curve.tilt(point) - level).abs()
            residual = torch.where(level.abs() > curve.peak, 0.0, residual)
            distance = residual / curve.curvature(point).abs().clamp(min=1e-9) + 1e-16
            assert bool((residual * distance.clamp(max=60) <= 2e-15 * point.abs().clamp(min=1e-15)).all())


@pytest.mark.parametrize("name", GATED)
def test_the_interval_is_the_image(name: str) -> None:
    curve, torch_curve = GATED[name]
    rng = torch.Generator().manual_seed(0)
    center = torch.randn(4000, 1, generator=rng, dtype=torch.float64) * 4
    radius = 10 ** (torch.rand(4000, 1, generator=rng, dtype=torch.float64) * 5 - 4)
    x = center + radius * torch.linspace(-1, 1, 2001, dtype=torch.float64)
    y = torch_curve(x)
    image = curve.interval(Interval(center, radius))
    assert bool((image.lower <= y.amin(1, keepdim=True) + 1e-14).all())
    assert bool((image.upper >= y.amax(1, keepdim=True) - 1e-14).all())
    assert torch.allclose(image.lower, y.amin(1, keepdim=True), atol=2e-4)  # a grid misses the bottom by little
    assert torch.allclose(image.upper, y.amax(1, keepdim=True), atol=1e-12)


def test_the_threshold_of_softplus_is_paid_for_in_float64() -> None:
    """torch.nn.Softplus jumps by 2e-9 at 20, which float64 shows; the sound form must hold on both sides."""
    network = nn.Sequential(nn.Softplus())
    ball = rr.Ball(torch.tensor([[20.0]], dtype=torch.float64), 1e-12)
    y = network(points(ball, 101))
    assert float(y.max() - y.min()) > 1e-9
    for method in rr.METHODS:
        bounds = rr.sound(method)(network, ball)
        assert bool(bounds.contains(y).all())
        assert float(bounds.upper - bounds.lower) < 1e-8
        below = rr.sound(method)(network, rr.Ball(torch.tensor([[15.0]], dtype=torch.float64), 1e-12))
        assert float(below.upper - below.lower) < 1e-11


@pytest.mark.parametrize("name", GATED)
def test_far_from_zero_the_bounds_are_those_of_relu(name: str) -> None:
    network = nn.Sequential(MODULES[name]()).double()
    for method in rr.METHODS:
        right = rr.METHODS[method](network, rr.Ball(torch.full((1, 1), 60.0, dtype=torch.float64), 1.0))
        left = rr.METHODS[method](network, rr.Ball(torch.full((1, 1), -60.0, dtype=torch.float64), 1.0))
        assert math.isclose(right.lower.item(), 59, abs_tol=1e-9)
        assert math.isclose(right.upper.item(), 61, abs_tol=1e-9)
        assert max(abs(left.lower.item()), abs(left.upper.item())) < 1e-12
