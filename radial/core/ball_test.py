"""The ball by hand, its contract over norms and ranges, and every way to ask for one wrongly."""

import math

import numpy as np
import pytest
import torch
from torch import tensor

from radial.core.ball import Ball
from radial.core.data import BadInput

NORMS = (1, 2, math.inf)


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_minimum_by_hand() -> None:
    """3·x₁ − 4·x₂ around (1, 1) with radius 0.1: the value −1 falls by 0.1 times the dual norm of (3, −4)."""
    rows = tensor([[[3.0, -4.0]]])
    falls = {1: 0.4, 2: 0.5, math.inf: 0.7}  # max, Euclidean length, sum
    for p, fall in falls.items():
        ball = Ball(tensor([[1.0, 1.0]]), 0.1, p)
        assert ball.minimum(rows).item() == pytest.approx(-1 - fall, rel=1e-6)
        assert ball.minimum(rows, tensor([[10.0]])).item() == pytest.approx(9 - fall, rel=1e-6)
        assert ball.minimum(rows[:, 0], 10.0).tolist() == [pytest.approx(9 - fall, rel=1e-6)]  # one form each


def test_minimum_of_a_clipped_ball_by_hand() -> None:
    """Around (0.05, 0.5) in [0, 1]: the first feature can fall by 0.05 only."""
    center, rows = tensor([[0.05, 0.5]]), tensor([[[3.0, 1.0]]])
    assert Ball(center, 0.1, math.inf, 0.0, 1.0).minimum(rows).item() == pytest.approx(0.0 + 0.4, rel=1e-6)
    # p = 1: half of the budget goes to the first feature until it is at 0, the other half to the second.
    assert Ball(center, 0.1, 1, 0.0, 1.0).minimum(rows).item() == pytest.approx(0.0 + 0.45, rel=1e-6)
    # p = 2: the first at its limit 0.05, the second takes what is left of the circle, √(0.01 − 0.0025).
    left = math.sqrt(0.01 - 0.0025)
    assert Ball(center, 0.1, 2, 0.0, 1.0).minimum(rows).item() == pytest.approx(0.5 - left, rel=1e-6)


def test_budgets_per_feature() -> None:
    """A budget of 0 freezes a feature; the others weigh the dual norm."""
    ball = Ball(tensor([[0.0, 0.0, 0.0]]), tensor([0.1, 0.2, 0.0]), 2)
    assert ball.minimum(tensor([[[3.0, 2.0, 100.0]]])).item() == pytest.approx(-0.5, rel=1e-6)  # √(0.3² + 0.4²)
    assert ball.project(tensor([[1.0, 0.0, 1.0]])).tolist() == [[pytest.approx(0.1), 0.0, 0.0]]


def test_box_is_cut_to_the_range() -> None:
    box = Ball(tensor([[0.05, 0.95]]), 0.1, low=0.0, high=1.0).box()
    assert box.lower.tolist() == [[0.0, pytest.approx(0.85)]]
    assert box.upper.tolist() == [[pytest.approx(0.15), 1.0]]


def test_projection_by_hand() -> None:
    center = torch.zeros(1, 2)
    outside = tensor([[3.0, 4.0]])
    assert Ball(center, 1.0, math.inf).project(outside).tolist() == [[1.0, 1.0]]
    assert Ball(center, 1.0, 2).project(outside).tolist() == [[pytest.approx(0.6), pytest.approx(0.8)]]
    assert Ball(center, 1.0, 1).project(outside).tolist() == [[0.0, 1.0]]  # subtract 3 from both, cut at 0
    assert Ball(center, 4.0, 1).project(outside).tolist() == [[1.5, 2.5]]


@pytest.mark.parametrize("p", NORMS)
@pytest.mark.parametrize("limits", [(None, None), (0.0, 1.0), (0.0, None)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_contract(p: float, limits: tuple[float | None, float | None], dtype: torch.dtype) -> None:
    center = torch.rand(6, 3, 4, generator=rng(), dtype=dtype)
    radius = torch.rand(3, 4, generator=rng(1), dtype=dtype).round(decimals=1)
    ball = Ball(center, radius, p, *limits)
    assert ball.contains(center).all()
    far = center + 100 * torch.randn(center.shape, generator=rng(2), dtype=dtype)
    assert not ball.contains(far).any()
    projected = ball.project(far)
    assert projected.dtype == dtype
    assert ball.contains(projected).all()
    assert torch.allclose(ball.project(projected), projected, atol=1e-6)  # a point inside stays
    for kind in ("uniform", "corner", "sparse"):
        x = ball.sample(rng(3), kind)
        assert ball.contains(x).all()
        assert ball.box().contains(x).all()
        assert torch.equal(x, ball.sample(rng(3), kind))  # same generator, same point
    assert not ball.contains(torch.full_like(center, math.nan)).any()


def test_projection_is_the_nearest_point() -> None:
    for p in NORMS:
        ball = Ball(torch.zeros(1, 4, dtype=torch.float64), 1.0, p)
        for seed in range(5):
            x = 3 * torch.randn(1, 4, generator=rng(seed), dtype=torch.float64)
            distance = (ball.project(x) - x).norm()
            others = torch.stack([ball.sample(rng(100 + turn), "uniform") for turn in range(300)])
            assert (others - x).flatten(1).norm(dim=1).min() >= distance - 1e-12


def test_uniform_fills_the_ball() -> None:
    """Radii of uniform points in n dimensions have mean n/(n + 1), whatever the norm."""
    for p in NORMS:
        ball = Ball(torch.zeros(20_000, 3), 1.0, p)
        x = ball.sample(rng())
        assert x.norm(p, dim=1).mean().item() == pytest.approx(3 / 4, abs=0.01)
        assert x.mean().item() == pytest.approx(0.0, abs=0.02)


def test_gradients_reach_centre_and_radius() -> None:
    for p in NORMS:
        for limits in ((None, None), (-1.0, 2.0)):
            center = torch.rand(2, 3, generator=rng(), dtype=torch.float64, requires_grad=True)
            radius = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)
            rows = torch.randn(2, 2, 3, generator=rng(1), dtype=torch.float64, requires_grad=True)
            assert torch.autograd.gradcheck(
                lambda c, r, a, p=p, limits=limits: Ball(c, r, p, *limits).minimum(a), (center, radius, rows)
            )


X = torch.rand(2, 3)


@pytest.mark.parametrize(
    ("build", "names", "allowed"),
    [
        (lambda: Ball(X, -0.1), "radius", "≥ 0"),
        (lambda: Ball(X, math.nan), "radius", "finite"),
        (lambda: Ball(X, math.inf), "radius", "finite"),
        (lambda: Ball(X, tensor([0.1, math.nan, 0.1])), "radius", "finite"),
        (lambda: Ball(X, torch.ones(4)), "radius", "broadcast"),
        (lambda: Ball(X, torch.ones(3, dtype=torch.int64)), "radius", "float"),
        (lambda: Ball(X, "0.1"), "radius", "float"),
        (lambda: Ball(X, None), "radius", "float"),
        (lambda: Ball(X, True), "radius", "float"),
        (lambda: Ball(X, 10**400), "radius", "finite"),
        (lambda: Ball(X, 1e39), "radius", "finite"),
        (lambda: Ball(X, 0.1, p=True), "p", "1, 2 or inf"),
        (lambda: Ball(X, 0.1, p=np.array([1, 2])), "p", "1, 2 or inf"),
        (lambda: Ball(X.to_sparse(), 0.1), "center", "ordinary tensor"),
        (lambda: Ball(X, 0.1).contains(X[0]), "x", "shape"),
        (lambda: Ball(X, 0.1).project(X.numpy()), "x", "tensor"),
        (lambda: Ball(X, 0.1).minimum(torch.ones(2, 1, 3, dtype=torch.float64)), "rows", "dtype"),
        (lambda: Ball(X, 0.1).sample(None), "rng", "torch.Generator"),
        (lambda: Ball(X, 0.1, p=3), "p", "1, 2 or inf"),
        (lambda: Ball(X, 0.1, p="inf"), "p", "1, 2 or inf"),
        (lambda: Ball(X, 0.1, p=math.nan), "p", "1, 2 or inf"),
        (lambda: Ball(X, 0.1, p=None), "p", "1, 2 or inf"),
        (lambda: Ball(X, 0.1, low=1.0, high=0.0), "low", "≤ high"),
        (lambda: Ball(X, 0.1, low=math.nan), "low", "number"),
        (lambda: Ball(X, 0.1, low=2.0), "center", "low"),
        (lambda: Ball(X, 0.1, high=-1.0), "center", "high"),
        (lambda: Ball(X, 0.1, low=torch.zeros(5)), "low", "broadcast"),
        (lambda: Ball(X.long(), 0.1), "center", "float32 or float64"),
        (lambda: Ball(X.half(), 0.1), "center", "float32 or float64"),
        (lambda: Ball(X.numpy(), 0.1), "center", "tensor"),
        (lambda: Ball(X[0], 0.1), "center", "batch"),
        (lambda: Ball(X * math.nan, 0.1), "center", "finite"),
        (lambda: Ball(X, 0.1).project(X[0]), "x", "shape"),
        (lambda: Ball(X, 0.1).minimum(torch.ones(3, 2)), "rows", "shape"),
        (lambda: Ball(X, 0.1).minimum(torch.ones(5, 1, 3)), "rows", "batch"),
        (lambda: Ball(X, 0.1).sample(rng(), "everywhere"), "kind", "uniform"),
    ],
)
def test_bad_input_names_the_argument_and_what_is_allowed(build: object, names: str, allowed: str) -> None:
    with pytest.raises(BadInput) as error:
        build()  # type: ignore[operator]
    message = str(error.value)
    assert names in message
    assert allowed in message
    assert "\n" not in message


def test_empty_batch() -> None:
    ball = Ball(torch.zeros(0, 3), 0.1, 2, 0.0, 1.0)
    assert ball.box().lower.shape == (0, 3)
    assert ball.minimum(torch.zeros(0, 2, 3)).shape == (0, 2)
    assert ball.sample(rng()).shape == (0, 3)


def test_numbers_of_other_libraries_are_numbers() -> None:
    ball = Ball(X, np.float32(0.1), p=np.int64(2), low=np.float64(-1), high=np.float32(2))
    assert ball.box().upper.max() <= 2
    assert Ball(X, 1, p=1).budget().shape == (1, 3)
