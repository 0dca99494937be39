"""Numbers that change during training: frozen objects called with a step, returning a float.

The radius ε, the weight κ and the mix β all follow one of these. The two ramps of the paper start slowly
(`Smoothed`, `Exponential`) so that a network learns its task before it must defend it.
"""

import math
from dataclasses import dataclass
from numbers import Real

from radial.core.data import BadInput


def _check_finite(**values: float) -> None:
    for name, value in values.items():
        if not isinstance(value, Real) or not math.isfinite(value):
            raise BadInput(f"{name} must be a finite number, got {value!r}")


def _check_ramp(first_step: float, last_step: float, middle: float = 0.25) -> None:
    _check_finite(first_step=first_step, last_step=last_step)
    if last_step <= first_step:
        raise BadInput(f"last_step must be greater than first_step, got {last_step} and {first_step}")
    if not 0 < middle < 1:
        raise BadInput(f"middle must lie strictly between 0 and 1, got {middle}")


@dataclass(frozen=True)
class Constant:
    """The same value at every step."""

    value: float

    def __post_init__(self) -> None:
        _check_finite(value=self.value)

    def __call__(self, step: float) -> float:  # noqa: D102
        return self.value


@dataclass(frozen=True)
class Linear:
    """`start` until first_step, then straight to `end` at last_step, then `end` (SA-PPO's ramp of ε and β)."""

    end: float
    first_step: float
    last_step: float
    start: float = 0.0

    def __post_init__(self) -> None:
        _check_finite(start=self.start, end=self.end)
        _check_ramp(self.first_step, self.last_step)

    def __call__(self, step: float) -> float:  # noqa: D102
        share = (step - self.first_step) / (self.last_step - self.first_step)
        return self.start + (self.end - self.start) * min(max(share, 0.0), 1.0)


@dataclass(frozen=True)
class Smoothed:
    """A power curve that turns into a straight line without a kink (RADIAL's Atari runs, SA-DQN).

    With i, f = first_step, last_step and the knee k = i + ⌊middle·(f − i)⌋:
    start + α·(s − i)^power before k, then linear to `end` at f. α makes value and slope continuous at k.
    """

    end: float
    first_step: float
    last_step: float
    start: float = 0.0
    middle: float = 0.25  # share of the ramp that is curved
    power: float = 4.0

    def __post_init__(self) -> None:
        _check_finite(start=self.start, end=self.end, power=self.power)
        _check_ramp(self.first_step, self.last_step, self.middle)
        if self.power < 1:
            raise BadInput(f"power must be at least 1, got {self.power}")
        if self.curved < 1:
            raise BadInput(f"the ramp from {self.first_step} to {self.last_step} is too short to be smoothed")

    @property
    def curved(self) -> int:
        """Length of the curved part, k − i, in steps."""
        return int(self.middle * (self.last_step - self.first_step))

    def __call__(self, step: float) -> float:  # noqa: D102
        curved = self.curved
        straight = self.last_step - self.first_step - curved
        # Dividing both terms of α's denominator by curved^(power−1) keeps the numbers in range for long ramps.
        rise = (self.end - self.start) / (straight * self.power / curved + 1.0)
        since = step - self.first_step
        if since <= 0:
            return self.start
        if since < curved:
            return self.start + rise * (since / curved) ** self.power
        knee = self.start + rise
        return knee + (self.end - knee) * min((since - curved) / straight, 1.0)


@dataclass(frozen=True)
class Exponential:
    """A constant growth factor, then a straight line (RADIAL's MuJoCo and ProcGen runs).

    start·ρ^((s − i)/(k − i)) up to the knee k, where ρ·ln ρ = middle/(1 − middle)·end/start; then linear to `end` at f.
    Before first_step the value is `start`, as in the authors' code, unless `before` is given: with before=0 training
    before the ramp is truly standard.
    """

    end: float
    first_step: float
    last_step: float
    start: float = 1e-10
    middle: float = 0.25
    before: float | None = None  # None: hold `start`

    def __post_init__(self) -> None:
        _check_finite(start=self.start, end=self.end, before=0.0 if self.before is None else self.before)
        _check_ramp(self.first_step, self.last_step, self.middle)
        if not 0 < self.start < self.end:
            raise BadInput(f"an exponential ramp needs 0 < start < end, got start {self.start} and end {self.end}")
        if int(self.middle * (self.last_step - self.first_step)) < 1:
            raise BadInput(f"the ramp from {self.first_step} to {self.last_step} is too short to be exponential")

    @property
    def growth(self) -> float:
        """ρ = exp(W(c)), with W Lambert's function."""
        return math.exp(lambert_w(self.middle / (1 - self.middle) * self.end / self.start))

    def __call__(self, step: float) -> float:  # noqa: D102
        curved = int(self.middle * (self.last_step - self.first_step))
        since = step - self.first_step
        if since < 0 and self.before is not None:
            return self.before
        if since <= 0:
            return self.start
        if since < curved:
            return self.start * self.growth ** (since / curved)
        knee = self.start * self.growth
        straight = self.last_step - self.first_step - curved
        return knee + (self.end - knee) * min((since - curved) / straight, 1.0)


Schedule = Constant | Linear | Smoothed | Exponential


def settle(owner: object, *names: str) -> None:
    """In `__post_init__` of a frozen dataclass, turn plain numbers into constants and refuse all but schedules."""
    for name in names:
        value = getattr(owner, name)
        if isinstance(value, Real) and not isinstance(value, bool):
            object.__setattr__(owner, name, Constant(float(value)))
        elif not isinstance(value, Schedule):
            raise BadInput(f"{name} must be a number or a schedule such as Linear(…), got {value!r}")


def lambert_w(c: float) -> float:
    """The w ≥ 0 with w·exp(w) = c, for c > 0, by Newton's method on w + ln w = ln c."""
    w = max(math.log1p(c) - math.log1p(math.log1p(c)), 1e-12)
    for _ in range(50):
        step = (w + math.log(w) - math.log(c)) / (1 + 1 / w)
        w = max(w - step, w / 2)
        if abs(step) <= 1e-16 * w:
            break
    return w
