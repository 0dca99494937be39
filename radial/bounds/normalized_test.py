"""LayerNorm against dense sampling, with no tolerance in the sound form, in float32 and float64."""

import pytest
import torch
from torch import nn

import radial as rr


def network(size: int, dtype: torch.dtype, seed: int) -> nn.LayerNorm:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layer = nn.LayerNorm(size)
        nn.init.normal_(layer.weight)
        nn.init.normal_(layer.bias)
    return layer.to(dtype).eval()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [1, 2, 3, 17, 128])
def test_no_point_leaves_the_sound_bounds(size: int, dtype: torch.dtype) -> None:
    """Values far from 0 compared with their spread, where the variance cancels; radii from 0 to beyond the spread."""
    layer = network(size, dtype, seed=size)
    rng = torch.Generator().manual_seed(size)
    finite = 0
    for offset in (0.0, 3.0, 1e3, 1e7):
        for radius in (0.0, 1e-9, 1e-4, 0.03, 1.0, 100.0):
            center = (torch.randn(40, size, generator=rng, dtype=torch.float64) + offset).to(dtype)
            ball = rr.Ball(center, radius)
            for method in rr.METHODS:
                with torch.no_grad():
                    bounds = rr.sound(method)(layer, ball)
                    for turn in range(24):
                        x = ball.sample(rng, ("uniform", "corner", "sparse")[turn % 3])
                        y = layer(x)
                        unclear = ~(torch.isfinite(bounds.lower) & torch.isfinite(bounds.upper))
                        assert bool((unclear | bounds.contains(y)).all()), f"{method}, {offset}, {radius}"
                        exact = layer.double()(x.double())
                        layer.to(dtype)
                        assert bool((unclear | bounds.contains(exact)).all()), f"{method}, {offset}, {radius}, float64"
                        finite += int((~unclear).sum())
    assert finite > 0.4 * 4 * 6 * 40 * size * 3 * 24  # much of it was proven, not given up


def test_the_interval_never_exceeds_the_norm() -> None:
    """|yᵢ| ≤ √(n − 1) whatever the input; one element against all others attains it, and the box gives √n at most."""
    layer = nn.LayerNorm(9, elementwise_affine=False).double()
    bounds = rr.ibp(layer, rr.Ball(torch.zeros(1, 9, dtype=torch.float64), 1e3))
    assert float(bounds.upper.max()) <= 3.0
    assert float(bounds.lower.min()) >= -3.0


def test_a_cancelled_variance_certifies_nothing() -> None:
    """At 1e7 float32 keeps no digit of a spread of 1: no finite bound may be given."""
    layer = nn.LayerNorm(16).eval()
    x = torch.randn(1, 16, generator=torch.Generator().manual_seed(0)) + 1e7
    for method in rr.METHODS:
        bounds = rr.sound(method)(layer, rr.Ball(x, 0.0))
        assert not bool(torch.isfinite(bounds.upper - bounds.lower).any())


def test_small_balls_have_small_bounds() -> None:
    layer = network(16, torch.float64, seed=0)
    x = torch.randn(4, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for method in rr.METHODS:
        with torch.no_grad():
            bounds = rr.METHODS[method](layer, rr.Ball(x, 1e-4))
        assert float((bounds.upper - bounds.lower).max()) < 1e-2


@pytest.mark.parametrize("method", rr.METHODS)
def test_behind_a_cancelled_variance_nothing_is_known_and_said_as_infinity(method: str) -> None:
    """∞ − ∞ in the layers behind it must come out as −∞ and ∞: NaN compares as neither."""
    layers = nn.Sequential(nn.LayerNorm(4), nn.ReLU(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2)).eval()
    center = torch.stack([torch.full((4,), 1e6), torch.tensor([-3.0, -1.0, 1.0, 3.0])])
    with torch.no_grad():
        bounds = rr.sound(method)(layers, rr.Ball(center, 0.01), torch.eye(2)[None])
    assert bool((bounds.lower[0] == -torch.inf).all() & (bounds.upper[0] == torch.inf).all())
    assert bool(bounds.lower[1].isfinite().all() & bounds.upper[1].isfinite().all()), "its neighbour in the batch"
