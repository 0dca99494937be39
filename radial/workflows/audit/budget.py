"""The audit's budget of time: work that would exceed it is stopped between two steps, and listed as cut."""

import time
from collections.abc import Callable
from typing import TypeVar

from torch import Tensor

from radial.core.data import Step, VecEnv
from radial.envs.wrapper import EnvWrapper

T = TypeVar("T")


class OutOfTime(Exception):
    """The budget ended in the middle of something."""


class Clock:
    """The time left, and the work there was no time for.

    seconds  of the whole budget; None: any time
    """

    def __init__(self, seconds: float | None) -> None:
        self.begun, self.seconds = time.monotonic(), seconds
        self.end: float | None = None if seconds is None else self.begun + seconds
        self.cuts: list[str] = []

    @property
    def spent(self) -> float:
        """Seconds so far."""
        return time.monotonic() - self.begun

    def reserve(self, seconds: float) -> None:
        """Keep this much time for the end, but never more than a fifth of the budget; the longest wish counts."""
        if self.end is not None and self.seconds is not None:
            self.end = min(self.end, self.begun + self.seconds - min(seconds, self.seconds / 5))

    def until_the_end(self) -> float:
        """Seconds that remain of the whole budget, the reserve included; at least one, or infinity."""
        return float("inf") if self.seconds is None else max(1.0, self.seconds - self.spent)

    def left(self) -> float:
        """Seconds that remain, or infinity."""
        return float("inf") if self.end is None else self.end - time.monotonic()

    def tick(self) -> None:
        """Raise `OutOfTime` if there is no time left."""
        if self.left() <= 0:
            raise OutOfTime

    def run(self, what: str, work: Callable[[], T]) -> T | None:
        """Do something if there is time; work that is not begun or not finished is cut."""
        try:
            self.tick()
            return work()
        except OutOfTime:
            self.cuts.append(what)
            return None


class Until(EnvWrapper):
    """A vector env that is not stepped any more once the time is over."""

    def __init__(self, env: VecEnv, clock: Clock) -> None:
        super().__init__(env)
        self.clock = clock

    def step(self, action: Tensor) -> Step:
        """Act in every env, or raise `OutOfTime`."""
        self.clock.tick()
        return self.env.step(action)
