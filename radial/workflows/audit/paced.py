"""Episodes at the pace that a budget allows: how long they take, how many fit, and which ended before time did."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from radial.evaluation import statistics
from radial.workflows.audit.budget import Clock, Finished, OutOfTime, Until
from radial.workflows.audit.clean import Beginning, Begun

LEAST, LEAST_OF_FRAMES = 3, 1  # episodes: of vectors fewer would hardly be quicker
SLACK = 1.5  # times an estimate, before something is stopped
# Multiples of the time of clean episodes, until it is measured: gradient steps are three forward passes each.
PRIOR: Mapping[str, float] = {
    "random": 1.5, "fgsm": 4.0, "pgd": 20.0, "mad": 20.0, "critic": 20.0, "corners": 40.0, "pgd-strong": 100.0,
    "greedy worst case": 30.0,
}  # fmt: skip
USUAL = 20.0
FIXED = 0.4  # of the time of a step in vectors that does not depend on how many play side by side


@dataclass
class Tempo:
    """How long episodes take, from those played so far.

    clean    seconds of one clean episode        side  how many were played side by side
    frames   observations are pictures: twice the episodes take twice the time
    """

    clean: float
    side: int
    frames: bool
    known: dict[str, tuple[float, int]] = field(default_factory=dict)  # what → seconds of a call, of so many episodes

    def learn(self, what: str, seconds: float, episodes: int) -> None:
        """Remember how long something took."""
        if episodes:
            self.known[what] = (seconds, episodes)

    def seconds(self, what: str, episodes: int) -> float:
        """An estimate."""
        took, of = self.known.get(what, (PRIOR.get(what, USUAL) * self.clean * self.side, self.side))
        share = episodes / of
        return took * (share if self.frames else FIXED + (1 - FIXED) * share)

    def episodes(self, what: str, seconds: float, most: int) -> int:
        """As many as fit into the time, at least one."""
        fit = [count for count in range(1, most + 1) if self.seconds(what, count) <= seconds]
        return max(fit, default=1)


@dataclass
class Paced:
    """Plays from the starts of the clean episodes, under the clock.

    notes  of the result: of attacks of which no episode ended
    """

    start: Beginning
    clean: Begun
    clock: Clock
    pace: Tempo
    notes: list[str]

    def least(self, what: str) -> float:
        """An estimate of the seconds of as few episodes as make sense."""
        return self.pace.seconds(what, LEAST_OF_FRAMES if self.clean.frames else LEAST)

    def count(self, what: str, seconds: float, most: int) -> int:
        """As many episodes as fit into the time, but so few only as make it quicker."""
        return min(most, max(self.pace.episodes(what, seconds, most), LEAST_OF_FRAMES if self.clean.frames else LEAST))

    def episodes(self, what: str, numbers: Sequence[int], seconds: float, play: Callable[[Until], object]) -> Finished:
        """Play from these starts; where time ends, or Ctrl-C ends it, those episodes count that ended.

        seconds  that they should take. Where even a few take longer they get that time: one radius says more than none
        """
        world, began = self.start.world(numbers, self.clean.horizon), time.monotonic()
        try:
            with self.clock.within(SLACK * max(seconds, self.pace.seconds(what, len(numbers)))):
                play(world)
        except OutOfTime:
            if not bool(world.over.any()):
                self._unfinished(what, world)
                raise
        except KeyboardInterrupt:
            self.clock.stopped = True
            if not bool(world.over.any()):
                raise
        finally:
            world.close()
            self.pace.learn(what, time.monotonic() - began, int(world.over.sum()))
        return world.finished()

    def _unfinished(self, what: str, world: Until) -> None:
        """No episode ended: note what there is, the return so far beside the clean one over as many steps."""
        steps = len(world.scores)
        clean = self.clean.return_over(steps, world.numbers) if steps else None
        told = any(note.startswith(f"{what} at") for note in self.notes)
        if clean is not None and not told:
            hit = statistics.mean(world.first(steps))
            self.notes.append(
                f"{self.clock.doing}: no episode ended in time; over the first {steps} steps the return is {hit:.1f}, "
                f"clean {clean:.1f}"
            )
