"""Verdicts: what it takes to be certified, and everything that must not be enough."""

import math
import warnings

import pytest
import torch
from torch import Tensor, nn

import radial as rr
from radial.bounds.certify import margins, strictly_positive

CERTIFIED, UNKNOWN = rr.Verdict.CERTIFIED, rr.Verdict.UNKNOWN


def scores(gap: float) -> nn.Sequential:
    """Scores (x₁, x₁ − gap): action 0 wins by exactly `gap`, everywhere."""
    network = nn.Sequential(nn.Linear(1, 2))
    network[0].weight.data = torch.tensor([[1.0], [1.0]])
    network[0].bias.data = torch.tensor([0.0, -gap])
    return network


BALL = rr.Ball(torch.ones(3, 1), 0.5)


def test_margins_by_hand() -> None:
    rows = margins(torch.tensor([[0.0, 5.0, 1.0]]))
    assert rows.tolist() == [[[-1.0, 1.0, 0.0], [0.0, 1.0, -1.0]]]


def test_a_gap_is_certified_and_a_tie_is_not() -> None:
    for method in rr.METHODS:
        assert rr.certify_action(scores(0.1), BALL, method) == [CERTIFIED] * 3
        assert rr.certify_action(scores(0.0), BALL, method) == [UNKNOWN] * 3
        # Smaller than the rounding of float32 can promise: not proven, so not certified.
        assert rr.certify_action(scores(1e-9), BALL, method) == [UNKNOWN] * 3


def test_verdicts_are_per_row() -> None:
    """Scores (x, −x): certified where the ball does not reach 0."""
    network = nn.Linear(1, 2, bias=False)
    network.weight.data = torch.tensor([[1.0], [-1.0]])
    ball = rr.Ball(torch.tensor([[1.0], [0.3], [-1.0]]), 0.5)
    assert rr.certify_action(network, ball) == [CERTIFIED, UNKNOWN, CERTIFIED]
    assert rr.certify_action(network, rr.Ball(torch.zeros(0, 1), 0.5)) == []


def test_the_sound_form_is_used_whatever_is_asked_for() -> None:
    """A margin of 1e-7 on scores of 1: the fast form would certify, the rounding of float32 forbids it."""
    network = scores(1.5e-7)
    rows = torch.tensor([[[1.0, -1.0]]]).expand(3, -1, -1)
    assert bool((rr.ibp(network, BALL, rows).lower > 0).all())
    assert rr.certify_action(network, BALL, rr.ibp) == [UNKNOWN] * 3


def answer(lower: float, upper: float) -> object:
    def method(network: nn.Module, ball: rr.Ball, rows: Tensor) -> rr.Bounds:
        full = torch.ones(rows.shape[:2])
        return rr.Bounds(full * lower, full * upper)

    return method


@pytest.mark.parametrize(
    ("lower", "upper"),
    [(math.nan, 1.0), (1.0, math.nan), (math.nan, math.nan), (1.0, math.inf), (math.inf, math.inf), (2.0, 1.0),
     (0.0, 1.0), (-1.0, 1.0), (-math.inf, math.inf)],
)  # fmt: skip
def test_bounds_that_prove_nothing(lower: float, upper: float) -> None:
    assert rr.certify_action(scores(0.1), BALL, answer(lower, upper)) == [UNKNOWN] * 3


def test_bounds_that_prove_something() -> None:
    assert rr.certify_action(scores(0.1), BALL, answer(0.5, 1.0)) == [CERTIFIED] * 3


def test_misshapen_bounds_prove_nothing() -> None:
    assert not strictly_positive(rr.Bounds(torch.ones(3, 5), torch.ones(3, 5)), (3, 1)).any()
    assert strictly_positive(rr.Bounds(torch.ones(3, 1), torch.ones(3, 1)), (3, 1)).all()


@pytest.mark.parametrize("error", [RuntimeError, ValueError, AssertionError, MemoryError, ZeroDivisionError, KeyError])
def test_an_exception_inside_is_unknown_and_is_told(error: type[Exception]) -> None:
    def broken(network: nn.Module, ball: rr.Ball, rows: Tensor) -> rr.Bounds:
        raise error("boom")

    with pytest.warns(RuntimeWarning, match=f"{error.__name__}.*boom"):
        assert rr.certify_action(scores(0.1), BALL, broken) == [UNKNOWN] * 3


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e30, 1e38, 1e-40])
@pytest.mark.parametrize("method", rr.METHODS)
def test_degenerate_weights_are_never_certified_wrongly(value: float, method: str) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3))
    network[0].weight.data[0, 0] = value
    network[2].weight.data[1, 0] = value
    ball = rr.Ball(torch.rand(4, 3), 0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        verdicts = rr.certify_action(network, ball, method)
    rng = torch.Generator().manual_seed(0)
    for turn in range(50):
        with torch.no_grad():
            y = network(ball.sample(rng, ("uniform", "corner")[turn % 2]))
            greedy = network(ball.center).argmax(1)
        for row, verdict in enumerate(verdicts):
            assert verdict == UNKNOWN or (bool(torch.isfinite(y[row]).all()) and y[row].argmax() == greedy[row])
    if not math.isfinite(value):
        assert verdicts == [UNKNOWN] * 4


def test_denormal_inputs_and_radii() -> None:
    network = scores(0.1)
    tiny = rr.Ball(torch.full((2, 1), 1e-42), 1e-44)
    for method in rr.METHODS:
        bounds = rr.sound(method)(network, tiny)
        assert bounds.contains(network(tiny.center)).all()
        assert rr.certify_action(network, tiny, method) == [CERTIFIED] * 2


def test_questions_that_make_no_sense_are_errors_not_verdicts() -> None:
    with pytest.raises(rr.BadInput, match="A ≥ 2"):
        rr.certify_action(nn.Linear(1, 1), BALL)
    with pytest.raises(rr.UnsupportedLayer, match="Mish"):
        rr.certify_action(nn.Sequential(nn.Linear(1, 2), nn.Mish()), BALL)
    with pytest.raises(rr.BadInput, match="ibp, crown-ibp, crown"):
        rr.certify_action(scores(0.1), BALL, "magic")


def test_train_mode_is_refused_before_it_can_change_anything() -> None:
    network = nn.Sequential(nn.Linear(1, 2), nn.BatchNorm1d(2)).train()
    before = network[1].running_mean.clone()
    with pytest.raises(rr.BadInput, match="eval mode"):
        rr.certify_action(network, BALL)
    assert torch.equal(before, network[1].running_mean)


def test_reduced_precision_is_refused() -> None:
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(rr.BadInput, match="autocast"):
        rr.sound(rr.ibp)(scores(0.1), BALL)
    torch.set_float32_matmul_precision("medium")
    try:
        with pytest.raises(rr.BadInput, match="highest"):
            rr.sound(rr.ibp)(scores(0.1), BALL)
    finally:
        torch.set_float32_matmul_precision("highest")


def test_lengths_that_under_or_overflow_when_squared() -> None:
    """‖(1e-170, 1e-170)‖₂ is not 0, though its squares are."""
    tiny = 1e-170
    network = nn.Sequential(nn.Linear(2, 1, bias=False), nn.ReLU(), nn.Linear(1, 2)).double()
    network[0].weight.data.fill_(tiny)
    network[2].weight.data = torch.tensor([[1 / tiny], [0.0]], dtype=torch.float64)
    network[2].bias.data = torch.tensor([0.0, 2.0], dtype=torch.float64)
    ball = rr.Ball(torch.full((1, 2), 1.2, dtype=torch.float64), 1.0, p=2)
    for method in rr.METHODS:
        assert rr.sound(method)(network, ball).contains(network(ball.center - 0.7)).all()
        assert rr.certify_action(network, ball, method) == [UNKNOWN]
    wide = rr.Ball(torch.zeros(1, 2), 1e25, p=2)
    assert torch.isfinite(rr.ibp(nn.Linear(2, 1), wide).lower).all()


def test_averages_overflow_before_they_divide() -> None:
    class Mean(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            mean = x.mean(1, keepdim=True)
            return torch.cat([mean, mean * 0.5], 1)

    ball = rr.Ball(torch.full((1, 10), 3e37), 1e37)
    assert Mean()(ball.center + 0.9e37).isinf().all()
    for method in rr.METHODS:
        assert rr.certify_action(Mean(), ball, method) == [UNKNOWN]


def test_a_negative_average_is_refused() -> None:
    class Pool(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.nn.functional.avg_pool2d(x, 1, divisor_override=-1).flatten(1)

    for network in (Pool(), nn.AvgPool2d(1, divisor_override=-1)):
        with pytest.raises(rr.UnsupportedLayer, match="divisor_override"):
            rr.ibp(network, rr.Ball(torch.zeros(1, 1, 2, 2), 1.0))


def test_slopes_are_rounded_too() -> None:
    network = nn.Sequential(*[nn.LeakyReLU(1.0000001776218415) for _ in range(20)])
    center = -(1 + torch.rand(64, 8, generator=torch.Generator().manual_seed(0)) * 0.2)
    assert rr.sound("ibp")(network, rr.Ball(center, 0.0)).contains(network(center)).all()


def test_denormal_ranges_of_a_relu() -> None:
    network = nn.Sequential(nn.Linear(1, 1, bias=False), nn.ReLU(), nn.Linear(1, 1, bias=False))
    network[0].weight.data.fill_(1e-39)
    network[2].weight.data.fill_(1e38)
    for method in (rr.crown, rr.sound(rr.crown)):
        bounds = method(network, rr.Ball(torch.ones(1, 1), 0.5))
        for x in (0.5, 1.0, 1.5):
            assert bounds.lower.item() - 1e-6 <= network(torch.full((1, 1), x)).item() <= bounds.upper.item() + 1e-6


def test_flushing_denormals_is_refused() -> None:
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush denormals")
    try:
        with pytest.raises(rr.BadInput, match="set_flush_denormal"):
            rr.sound(rr.ibp)(scores(0.1), BALL)
    finally:
        torch.set_flush_denormal(False)


def test_dropout_of_a_weight_is_never_certified() -> None:
    """Tracing sees one draw; the generator gives it away."""

    class Dropped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = scores(0.1)[0]

        def forward(self, x: Tensor) -> Tensor:
            weight = torch.nn.functional.dropout(self.layer.weight, 0.5, self.training)
            return torch.nn.functional.linear(x, weight, self.layer.bias)

    for method in rr.METHODS:
        with pytest.raises(rr.BadInput, match="draws random numbers"):
            rr.certify_action(Dropped().train(), BALL, method)
        assert rr.certify_action(Dropped().eval(), BALL, method) == [CERTIFIED] * 3


def test_winograd_is_refused() -> None:
    if not torch.backends.nnpack.is_available():
        pytest.skip("this build of torch has no NNPACK")
    network = nn.Conv2d(1, 1, 3)
    with torch.backends.mkldnn.flags(enabled=False), pytest.raises(rr.BadInput, match="NNPACK"):
        rr.sound(rr.ibp)(network, rr.Ball(torch.rand(1, 1, 4, 4), 0.1))


@pytest.mark.parametrize(
    ("network", "ball", "says"),
    [
        (scores(0.1), torch.ones(3, 1), "ball must be a radial Ball"),
        (torch.relu, BALL, "network must be a torch.nn.Module"),
        (scores(0.1), rr.Ball(torch.ones(3, 5), 0.5), "center must have the shape the network takes"),
        (scores(0.1), rr.Ball(torch.ones(3, 1, dtype=torch.float64), 0.5), "ball and network must agree"),
    ],
)
def test_bad_questions_are_one_line(network: nn.Module, ball: rr.Ball, says: str) -> None:
    with pytest.raises(rr.BadInput, match=says) as error:
        rr.certify_action(network, ball)
    assert "\n" not in str(error.value)
