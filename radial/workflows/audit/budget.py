"""The audit's budget of time: a clock that tells how it goes, envs that stop when it ends, and what was cut.

Work that would exceed the budget is stopped between two steps. Episodes that had ended by then still count.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch
from torch import Tensor

from radial.core.data import Step, VecEnv
from radial.core.text import spell_radius
from radial.envs.wrapper import EnvWrapper

T = TypeVar("T")
Say = Callable[[str], None]
_WIDTH = 80  # columns of a line of progress
RESERVED = 0.2  # of the budget, for the end at most
EVERY = 5.0  # seconds between two lines while nothing ends


class OutOfTime(Exception):
    """The budget, or a part of it, ended in the middle of something."""


class Clock:
    """The time left, the work there was no time for, and a line now and then for the person who waits.

    seconds  of the whole budget; None: any time
    say      gets the lines; None: nobody listens
    ahead    seconds of work that is still to come, if that can be estimated
    stopped  by Ctrl-C: everything that is not done yet is cut
    """

    def __init__(self, seconds: float | None, say: Say | None = None) -> None:
        self.begun, self.seconds = time.monotonic(), seconds
        self.end: float | None = None if seconds is None else self.begun + seconds
        self.say, self.due = say, self.begun + EVERY
        self.doing = ""
        self.ahead: float | None = None
        self.stopped = False
        self.cut: list[tuple[str, float | None]] = []

    @property
    def spent(self) -> float:
        """Seconds so far."""
        return time.monotonic() - self.begun

    def reserve(self, seconds: float) -> None:
        """Keep this much time for the end, but never more than a fifth of the budget; the longest wish counts."""
        if self.end is not None and self.seconds is not None:
            self.end = min(self.end, self.begun + self.seconds - min(seconds, self.seconds * RESERVED))

    def until_the_end(self) -> float:
        """Seconds that remain of the whole budget, the reserve included; at least one, or infinity."""
        return float("inf") if self.seconds is None else max(1.0, self.seconds - self.spent)

    def left(self) -> float:
        """Seconds that remain, or infinity."""
        if self.stopped:
            return 0.0
        return float("inf") if self.end is None else self.end - time.monotonic()

    def tick(self) -> None:
        """Raise `OutOfTime` if there is no time left; say so now and then if there is."""
        if self.left() <= 0:
            raise OutOfTime
        self.beat(self.doing)

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """A part of the budget with an end of its own."""
        before = self.end
        if seconds != float("inf"):
            mine = time.monotonic() + seconds
            self.end = mine if before is None else min(before, mine)
        try:
            yield
        finally:
            self.end = before

    def run(self, what: str, work: Callable[[], T], radius: float | None = None) -> T | None:
        """Do something if there is time; work that is not begun or not finished is cut, and so is all after Ctrl-C."""
        self.doing = what if radius is None else f"{what} at ε = {spell_radius(radius)}"
        try:
            self.tick()
            return work()
        except OutOfTime:
            self.cut.append((what, radius))
        except KeyboardInterrupt:
            self.stopped = True
            self.cut.append((what, radius))
        return None

    def cuts(self, radii: Sequence[float]) -> list[str]:
        """What was cut, one line for each kind of work: "mad: ε = 0.1", "pgd-strong: every ε"."""
        return grouped(self.cut, radii)

    # ------------------------------------------------------------------------------------------------------ progress

    def tell(self, text: str) -> None:
        """Say how it goes, after the time that is gone, that is left, and that the work will take."""
        if self.say is not None:
            line = f"{self.stamp()} {text}"
            self.say(line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…")
            self.due = time.monotonic() + EVERY

    def beat(self, text: str) -> None:
        """The same, if nothing was said for a while."""
        if time.monotonic() >= self.due:
            self.tell(text)

    def stamp(self) -> str:
        """Such as "[0:12, 9:48 left, ETA 3:40]"; without a budget nothing is left, and no end is known at first."""
        parts = [_minutes(self.spent)]
        left = None if self.seconds is None else max(0.0, self.seconds - self.spent)
        if left is not None:
            parts.append(f"{_minutes(left)} left")
        known = [each for each in (left, self.ahead) if each is not None]
        if known:
            parts.append(f"ETA {_minutes(min(known))}")
        return f"[{', '.join(parts)}]"


def _minutes(seconds: float) -> str:
    whole = int(seconds)
    return f"{whole // 60}:{whole % 60:02d}"


def grouped(items: Iterable[tuple[str, float | None]], radii: Sequence[float]) -> list[str]:
    """One line for each kind of work, with its radii; "every ε" where those are all."""
    found: dict[str, list[float]] = {}
    for what, radius in items:
        found.setdefault(what, []).extend([] if radius is None else [radius])
    lines = []
    for what, some in found.items():
        if not some:
            lines.append(what)
        elif set(some) >= set(radii):
            lines.append(f"{what}: every ε")
        else:
            lines.append(f"{what}: ε = {', '.join(spell_radius(each) for each in sorted(set(some)))}")
    return lines


class Until(EnvWrapper):
    """A vector env that is not stepped any more once the time is over, and remembers the first episode of each env.

    numbers  of the starts, one for each env
    horizon  episodes are cut after so many steps; None: they are not
    """

    def __init__(self, env: VecEnv, clock: Clock, numbers: Sequence[int], horizon: int | None = None) -> None:
        super().__init__(env)
        self.clock, self.numbers, self.horizon = clock, tuple(numbers), horizon
        self.total = torch.zeros(env.num_envs, dtype=torch.float64)
        self.length = torch.zeros(env.num_envs, dtype=torch.int64)
        self.over = torch.zeros(env.num_envs, dtype=torch.bool)
        self.scores: list[Tensor] = []  # of each step, (N,)

    def step(self, action: Tensor) -> Step:
        """Act in every env, or raise `OutOfTime`."""
        if self.clock.left() <= 0:
            raise OutOfTime
        step = self.env.step(action)
        counts = step.real & ~self.over
        score = torch.where(counts, step.score.double(), 0.0)
        self.scores.append(score)
        self.total += score
        self.length += counts
        if self.horizon is not None and len(self.scores) >= self.horizon:
            step = replace(step, truncated=torch.ones_like(step.truncated))
        self.over |= counts & step.ended
        self.clock.beat(
            f"{self.clock.doing}: {int(self.over.sum())} of {self.num_envs} episodes, step {len(self.scores)}"
        )
        return step

    def finished(self) -> "Finished":
        """The episodes that ended, by the number of their start, and what the others had so far."""
        rows, others = (which.nonzero().flatten().tolist() for which in (self.over, ~self.over))
        return Finished(
            tuple(self.numbers[row] for row in rows),
            tuple(self.total[rows].tolist()),
            tuple(self.length[rows].tolist()),
            {self.numbers[row]: float(self.total[row]) for row in others},
        )

    def so_far(self) -> "Finished":
        """All of them, ended or not."""
        return Finished(self.numbers, tuple(self.total.tolist()), tuple(self.length.tolist()))

    def first(self, steps: int) -> tuple[float, ...]:
        """Each env's return over the first steps."""
        return tuple(torch.stack(self.scores[:steps]).sum(0).tolist())


@dataclass(frozen=True)
class Finished:
    """Episodes that ended: the numbers of their starts, returns and lengths.

    cut_off  the starts of those that were under way when time ended, with the return so far
    """

    numbers: tuple[int, ...] = ()
    returns: tuple[float, ...] = ()
    lengths: tuple[int, ...] = ()
    cut_off: Mapping[int, float] = field(default_factory=dict)

    @property
    def by_start(self) -> dict[int, float]:
        """The return from each start, by its number."""
        return dict(zip(self.numbers, self.returns, strict=True))

    def __add__(self, other: "Finished") -> "Finished":
        numbers = self.numbers + other.numbers
        cut_off = {start: score for start, score in {**self.cut_off, **other.cut_off}.items() if start not in numbers}
        return Finished(numbers, self.returns + other.returns, self.lengths + other.lengths, cut_off)

    def unharmed(self, instead: Mapping[int, float]) -> dict[int, float]:
        """What the starts that were cut off count for where attacks are compared. instead: without the attack."""
        return {start: max(gone, instead.get(start, gone)) for start, gone in self.cut_off.items()}

    def compared(self, instead: Mapping[int, float]) -> dict[int, float]:
        """The return from each start, by which attacks are compared: what was cut off counts as unharmed.

        Those that end in time are rather the short episodes, and must not decide.
        """
        return self.by_start | self.unharmed(instead)
