"""Lines around curves: enclosed on a fine grid over thousands of random intervals, and by hand where paper suffices."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from radial.bounds.activation import Activation, Curve
from radial.bounds.nonlinear import ELU, Clamp, LeakyReLU, ReLU, Sigmoid, Tanh, _tangent_point
from radial.bounds.smooth import GELU, SiLU, Softplus, TanhGELU

ACTIVATIONS: dict[str, Activation] = {
    "relu": ReLU(),
    "leaky": LeakyReLU(0.1),
    "leaky, steep": LeakyReLU(4.0),
    "elu": ELU(1.0),
    "elu, flat": ELU(0.3),
    "elu, steep": ELU(2.5),
    "tanh": Tanh(),
    "sigmoid": Sigmoid(),
    "relu6": Clamp(0, 6),
    "hardtanh": Clamp(-1, 1),
    "clamp below": Clamp(0.5, None),
    "clamp above": Clamp(None, -0.5),
    "softplus": Softplus(1.0),
    "softplus, steep": Softplus(6.0),
}
CURVES: dict[str, Curve] = {**ACTIVATIONS, "silu": SiLU(), "gelu": GELU(), "gelu by tanh": TanhGELU()}


def random_intervals(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Ends from 1e-6 to 30 in size, of either sign; some intervals are single points."""
    rng = torch.Generator().manual_seed(seed)
    size = 10 ** (torch.rand(count, 2, generator=rng, dtype=torch.float64) * 7.5 - 6)
    ends = size * torch.randn(count, 2, generator=rng, dtype=torch.float64).sign()
    ends[::50, 1] = ends[::50, 0]
    return ends.amin(1, keepdim=True), ends.amax(1, keepdim=True)


@pytest.mark.parametrize("name", CURVES)
def test_lines_enclose_the_curve(name: str) -> None:
    activation = CURVES[name]
    lower, upper = random_intervals(5000, seed=0)
    lines = activation.lines(lower, upper)
    x = lower + (upper - lower) * torch.linspace(0, 1, 501, dtype=torch.float64)
    y = activation.value(x)
    slack = 1e-13 * (1 + x.abs() + y.abs())
    assert bool((lines.lower_slope * x + lines.lower_intercept <= y + slack).all())
    assert bool((lines.upper_slope * x + lines.upper_intercept >= y - slack).all())
    # Tight at a point, and each line touches the curve somewhere in the interval: no room is given away.
    point = (lower == upper).squeeze(1)
    for slope, intercept in ((lines.lower_slope, lines.lower_intercept), (lines.upper_slope, lines.upper_intercept)):
        gap = (slope * x + intercept - y).abs()
        assert float(gap[point].max()) < 1e-12
        assert bool((gap.amin(1) <= 2e-3 * (upper - lower).squeeze(1) + 1e-12).all())


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_the_derivative_is_a_function_of_the_output(name: str) -> None:
    activation = ACTIVATIONS[name]
    x = torch.linspace(-4, 7, 1201, dtype=torch.float64) + 1e-4  # off the kinks
    expected = torch.autograd.functional.jvp(activation.value, x, torch.ones_like(x))[1]
    found = activation.slope_at_output(activation.value(x)).to(torch.float64)
    assert torch.allclose(found, expected, atol=1e-9)
    assert float(expected.max()) <= activation.steepest + 1e-12


@given(st.floats(-50, 50), st.floats(0, 50), st.sampled_from(sorted(CURVES)), st.floats(0, 1))
@settings(max_examples=500, deadline=None)
def test_any_interval_any_point(left: float, length: float, name: str, share: float) -> None:
    activation = CURVES[name]
    lower = torch.tensor([[left]], dtype=torch.float64)
    upper = lower + length
    lines = activation.lines(lower, upper)
    x = torch.minimum(lower + share * length, upper)
    y = activation.value(x)
    slack = 1e-12 * (1 + x.abs() + y.abs())
    assert (lines.lower_slope * x + lines.lower_intercept <= y + slack).all()
    assert (lines.upper_slope * x + lines.upper_intercept >= y - slack).all()


def test_relu_by_hand() -> None:
    """On [−1, 3] the chord is 3/4·(x + 1); 3 > 1, so the identity is the closer line below."""
    lines = ReLU().lines(torch.tensor([-1.0]), torch.tensor([3.0]))
    assert [part.item() for part in lines] == [1.0, 0.0, 0.75, 0.75]


def test_the_tangent_point_of_tanh() -> None:
    """The tangent at d passes through (u, tanh u)."""
    upper = torch.logspace(-1.9, 2, 200, dtype=torch.float64)
    d = _tangent_point(upper)
    t = torch.tanh(d)
    assert bool((d < 0).all())
    assert torch.allclose(t + (1 - t * t) * (upper - d), torch.tanh(upper), atol=1e-12)
    assert _tangent_point(torch.tensor(0.005)).item() == pytest.approx(-0.0025)  # a cubic's: −u/2


def test_sigmoid_is_a_tanh() -> None:
    lower, upper = random_intervals(300, seed=1)
    sigmoid, tanh = Sigmoid().lines(lower, upper), Tanh().lines(lower / 2, upper / 2)
    assert torch.allclose(sigmoid.lower_slope, tanh.lower_slope / 4)
    assert torch.allclose(sigmoid.upper_intercept, (tanh.upper_intercept + 1) / 2, atol=1e-9)


def test_clamp_across_both_knees_by_hand() -> None:
    """clamp(x, 0, 1) on [−1, 3]: below, flat 0 or the line to (3, 1) with slope 1/3; above, slope 1/2 or flat 1."""
    lines = Clamp(0, 1).lines(torch.tensor([-1.0], dtype=torch.float64), torch.tensor([3.0], dtype=torch.float64))
    assert lines.lower_slope.item() == pytest.approx(1 / 3)  # 3 − 0 > 0 − (−1)
    assert lines.lower_intercept.item() == pytest.approx(0.0)
    assert lines.upper_slope.item() == pytest.approx(0.5)  # 1 − (−1) = 3 − 1, a tie: the slope
    assert lines.upper_intercept.item() == pytest.approx(0.5)
    assert math.isclose(0.5 * 1 + 0.5, 1.0)
