"""Zero violations, counted. Sizes are those of the reliability plan: short here, long behind `make test-nightly`.

0 failures in n independent trials bound the failure rate by 3/n at 95 % confidence; that is what these tests say.
"""

import proofs
import pytest
import torch
from architectures import KINDS

import radial as rr

SHORT_AND_LONG = [pytest.param(1, id="short"), pytest.param(10, id="long", marks=pytest.mark.nightly)]


@pytest.mark.parametrize("times", SHORT_AND_LONG)
@pytest.mark.parametrize("kind", KINDS)
def test_random_points_stay_inside(kind: str, times: int) -> None:
    """≥ 100,000 points over all kinds (a million nightly)."""
    points = sum(proofs.check_sampling(kind, 1000 * times + seed, points=150) for seed in range(12 * times))
    assert points * len(KINDS) >= 100_000 * times


@pytest.mark.parametrize("times", SHORT_AND_LONG)
@pytest.mark.parametrize("part", range(5))
def test_bounds_that_are_attained_hold(part: int, times: int) -> None:
    """500 networks (5,000 nightly) whose worst case is a corner, evaluated where rounding shows."""
    for seed in range(100 * times):
        proofs.check_attained(100 * times * part + seed)


def test_the_attained_family_would_notice() -> None:
    """Without outward rounding the same check fails on a good part of the family: it is not vacuous."""
    caught = 0
    for seed in range(40):
        try:
            proofs.check_attained(seed, {"plain ibp": rr.ibp})
        except AssertionError:
            caught += 1
    assert caught >= 10


def test_wide_layers_of_atari_size() -> None:
    """3136 → 512 → 6 with non-negative weights: where float32 sums are longest."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(3136, 512), torch.nn.ReLU(), torch.nn.Linear(512, 6))
    for parameter in network.parameters():
        parameter.data.abs_()
    x = torch.rand(2, 3136)
    ball = rr.Ball(x, 1 / 255)
    with torch.no_grad():
        for method in (rr.ibp, rr.crown_ibp, rr.crown):
            bounds = rr.sound(method)(network, ball)
            for corner, end in ((x + 1 / 255, bounds.upper), (x - 1 / 255, bounds.lower)):
                y = network(corner)
                assert bounds.contains(y).all()
                assert torch.allclose(y, end, rtol=2e-3)  # and the price of certainty is small


@pytest.mark.parametrize("nets", [pytest.param(1, id="short"), pytest.param(25, id="long", marks=pytest.mark.nightly)])
@pytest.mark.parametrize(
    "kind", ["relu", "tanh", "max-pool", "residual", "softplus", "silu", "gelu", "layer-norm", "lstm", "gru"]
)
def test_pgd_cannot_cross_a_bound(kind: str, nets: int) -> None:
    """50 states of each kind (1,250 nightly), 50 steps, 20 restarts."""
    for seed in range(nets):
        proofs.check_attacks(kind, seed, states=50, steps=50, restarts=20)


@pytest.mark.parametrize("times", SHORT_AND_LONG)
@pytest.mark.parametrize("kind", KINDS)
def test_larger_balls_have_larger_bounds(kind: str, times: int) -> None:
    compared = sum(proofs.check_nested(kind, seed) for seed in range(6 * times))
    assert compared * len(KINDS) >= 10_000 * times


@pytest.mark.parametrize("times", SHORT_AND_LONG)
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_match_finite_differences(kind: str, times: int) -> None:
    for seed in range(9 * times):
        proofs.check_gradient(kind, seed)


@pytest.mark.parametrize("kind", KINDS)
def test_radius_zero_is_the_output(kind: str) -> None:
    proofs.check_zero_radius(kind, seed=0)


def test_affine_networks_are_exact() -> None:
    for seed in range(3):
        proofs.check_affine_exact(seed)


@pytest.mark.parametrize("name", proofs.SINGLE)
def test_a_layer_alone_on_dense_points(name: str) -> None:
    for seed in range(20):
        proofs.check_single(name, seed)


def test_the_ball_against_points_made_without_it() -> None:
    for seed in range(60):
        proofs.check_geometry(seed)
