"""The schedules against the numbers of the authors' code."""

import math
from dataclasses import dataclass

import pytest

from radial.core.data import BadInput
from radial.core.schedules import Constant, Exponential, Linear, Schedule, Smoothed, lambert_w, settle

DQN = Smoothed(end=1 / 255, first_step=50_000, last_step=4_000_000)
A3C = Smoothed(end=1 / 255, first_step=0, last_step=1_000_000 / 3, start=1e-9)
SA_DQN = Smoothed(end=0.00392, first_step=1_500_000, last_step=5_499_999)
PROCGEN = Exponential(end=3.92e-3, first_step=14_648, last_step=117_187)
WALKER = Exponential(end=0.075, first_step=159_680, last_step=479_680)
CHEETAH = Exponential(end=0.15, first_step=159_680, last_step=479_680)
HOPPER = Smoothed(end=0.075, first_step=159_680, last_step=479_680)


@pytest.mark.parametrize(
    ("schedule", "step", "value"),
    [
        (DQN, 500_000, 1.30082e-5),
        (DQN, 1_000_000, 2.58382e-4),
        (DQN, 1_037_500, 3.0166e-4),
        (DQN, 2_000_000, 1.477748e-3),
        (DQN, 3_000_000, 2.699658e-3),
        (A3C, 10_000, 6.35527e-8),
        (A3C, 50_000, 3.90964e-5),
        (A3C, 83_333, 3.0166e-4),
        (A3C, 200_000, 1.990953e-3),
        (SA_DQN, 2_000_000, 1.884621e-5),
        (SA_DQN, 2_499_999, 3.0154e-4),
        (SA_DQN, 3_500_000, 1.507693e-3),
        (PROCGEN, 20_000, 1.770108e-9),
        (PROCGEN, 27_465, 9.743549e-8),
        (PROCGEN, 40_282, 9.4937e-5),
        (PROCGEN, 60_000, 1.075661e-3),
        (PROCGEN, 100_000, 3.065161e-3),
        (WALKER, 199_680, 3.888762e-7),
        (WALKER, 239_680, 1.51225e-3),
        (WALKER, 300_000, 1.998217e-2),
        (WALKER, 400_000, 5.060207e-2),
        (CHEETAH, 239_680, 2.90934e-3),
        (HOPPER, 199_680, 3.605769e-4),
        (HOPPER, 239_680, 5.76923e-3),
        (HOPPER, 300_000, 2.316923e-2),
    ],
)
def test_values_of_the_published_runs(schedule: Smoothed | Exponential, step: int, value: float) -> None:
    assert schedule(step) == pytest.approx(value, rel=1e-5)


@pytest.mark.parametrize("schedule", [DQN, A3C, SA_DQN, PROCGEN, WALKER, CHEETAH, HOPPER])
def test_ends_and_monotone(schedule: Smoothed | Exponential) -> None:
    assert schedule(schedule.first_step) == schedule(0) == schedule.start
    assert schedule(schedule.last_step) == schedule(10 * schedule.last_step) == pytest.approx(schedule.end, rel=1e-12)
    first, last = int(schedule.first_step), int(schedule.last_step)
    values = [schedule(step) for step in range(first, last, (last - first) // 997)]
    assert values == sorted(values)


def test_smoothed_has_no_kink() -> None:
    knee = 1_037_500
    assert DQN(knee) - DQN(knee - 1) == pytest.approx(DQN(knee + 1) - DQN(knee), rel=1e-5)


def test_exponential_may_start_from_nothing() -> None:
    ramp = Exponential(end=0.075, first_step=100, last_step=500, before=0.0)
    assert [ramp(0), ramp(99), ramp(100)] == [0.0, 0.0, 1e-10]


def test_linear_and_constant_by_hand() -> None:
    ramp = Linear(end=2.0, first_step=10, last_step=20, start=1.0)
    assert [ramp(0), ramp(10), ramp(15), ramp(20), ramp(99)] == [1.0, 1.0, 1.5, 2.0, 2.0]
    assert Constant(0.8)(12345) == 0.8


def test_lambert_w_inverts() -> None:
    for c in (1e-6, 0.5, 1.0, math.e, 13.0, 1e7, 1e300):
        w = lambert_w(c)
        assert w + math.log(w) == pytest.approx(math.log(c), rel=1e-12, abs=1e-12)
    assert lambert_w(math.e) == pytest.approx(1.0, rel=1e-14)


@pytest.mark.parametrize(
    ("build", "names"),
    [
        (lambda: Constant(math.nan), "value"),
        (lambda: Linear(end=1, first_step=5, last_step=5), "last_step"),
        (lambda: Linear(end=math.inf, first_step=0, last_step=5), "end"),
        (lambda: Smoothed(end=1, first_step=0, last_step=100, middle=1.0), "middle"),
        (lambda: Smoothed(end=1, first_step=0, last_step=2), "short"),
        (lambda: Exponential(end=1, first_step=0, last_step=100, start=0.0), "start"),
    ],
)
def test_bad_input_is_one_line_that_names_the_field(build: object, names: str) -> None:
    with pytest.raises(BadInput, match=names) as error:
        build()  # type: ignore[operator]
    assert "\n" not in str(error.value)


def test_a_plain_number_is_a_constant() -> None:
    """`RadialWorstCase(0.1, kappa=0.5)` means what it says."""

    @dataclass(frozen=True)
    class Owner:
        radius: Schedule

        def __post_init__(self) -> None:
            settle(self, "radius")

    assert Owner(0.25).radius == Constant(0.25)  # type: ignore[arg-type]
    assert Owner(1).radius(7) == 1.0  # type: ignore[arg-type]
    ramp = Linear(0.1, 0, 10)
    assert Owner(ramp).radius is ramp
    for wrong in ("0.1", None, True, math.nan):
        with pytest.raises(BadInput):
            Owner(wrong)  # type: ignore[arg-type]
