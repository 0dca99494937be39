"""The clean episodes with which an audit begins: as many as the budget allows, their states, and random actions.

Pictures are slow, so a few episodes come first and tell how many more there is time for.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from radial.core.data import BadInput, Continuous, Discrete, VecEnv
from radial.envs.make import make_env
from radial.evaluation import statistics
from radial.evaluation.play import View, check_spaces, play, streams
from radial.workflows.audit import states
from radial.workflows.audit.budget import Clock, Finished, OutOfTime, Until
from radial.workflows.audit.subject import Audited
from radial.workflows.audit.suite import applicable, chosen

AT_FIRST = 4  # clean episodes in pictures, before more are played
SHARE = 0.4  # of the budget, for clean episodes at most; for those after the first ones less
SHARE_OF_MORE = 0.25
RANDOM, SHARE_OF_RANDOM = 8, 0.05  # episodes with random actions, and their share of the budget at most
UNHURRIED = 30.0  # seconds for these where there is no budget


@dataclass(frozen=True)
class Begun:
    """The clean episodes, and the facts they show.

    names      attacks that apply and were asked for        left_out  why the others do not apply
    episodes   those that ended, or if none did all of them, cut after `horizon` steps
    scores     (T, N) of each step and env of the first round, whose starts are `first`
    seconds    of one episode        side  episodes that were played side by side
    unbounded  why the network cannot be bounded; None: it can
    random     mean return of random actions; None: not known
    """

    shape: tuple[int, ...]
    engine: Mapping[str, str]
    actions: Discrete | Continuous
    names: list[str]
    left_out: dict[str, str]
    episodes: Finished
    scores: Tensor
    first: tuple[int, ...]
    horizon: int | None
    seconds: float
    side: int
    visited: states.Visited
    unbounded: str | None
    random: float | None

    @property
    def frames(self) -> bool:
        """Whether observations are pictures."""
        return len(self.shape) == 3

    def return_over(self, steps: int, numbers: Sequence[int]) -> float | None:
        """Mean clean return over the first steps, from some starts of the first round; None: not all known."""
        if steps > len(self.scores) or not set(numbers) <= set(self.first):
            return None
        rows = [self.first.index(number) for number in numbers]
        return float(self.scores[:steps, rows].sum(0).mean())


@dataclass
class Beginning:
    """Clean episodes under way; Ctrl-C ends them early, and what there is counts."""

    who: Audited
    seed: int
    clock: Clock
    memory: states.Memory = field(default_factory=states.Memory)

    def world(self, numbers: Sequence[int], horizon: int | None = None) -> Until:
        """An env for each start; all audits with this seed start alike."""
        made = make_env(self.who.spec, len(numbers), streams(self.seed)[0], numbers=numbers)
        return Until(made, self.clock, numbers, horizon)

    def play(self, first: Until, episodes: int, asked: Sequence[str] | None) -> Begun:
        """Look up the attacks, then play; `first` is the world of the first episodes."""
        agent, clock = self.who.agent, self.clock
        try:
            check_spaces(agent, first)
            names, left_out = applicable(agent, first.observation_shape)
            names = chosen(names, left_out, asked)
            clock.doing = "clean"
            clock.tell(f"clean: {episodes} episodes of {self.who.spec.id}")
            began = time.monotonic()
            self._visit(first, SHARE)
        finally:
            first.close()
        found, horizon = first.finished(), None
        if not found.numbers:
            if not first.scores:
                if clock.stopped:
                    raise KeyboardInterrupt
                raise BadInput("budget is too small: it ended before the first step of the clean episodes")
            found, horizon = first.so_far(), len(first.scores)
        took = (time.monotonic() - began) / len(found.numbers)
        if horizon is None:
            found = found + self._more(first, episodes, took)
        visited = self.memory.visited(agent.prepare)
        return Begun(
            first.observation_shape, first.engine, first.actions, names, left_out, found, torch.stack(first.scores),
            first.numbers, horizon, took, len(first.numbers), visited,
            states.why_unbounded(agent, visited.x(slice(1))), self._random(found.numbers, horizon),
        )  # fmt: skip

    def _visit(self, world: Until, share: float) -> None:
        """Play until all episodes ended, the share of the budget is used up, or Ctrl-C."""
        seconds = float("inf") if self.clock.seconds is None else share * self.clock.seconds - self.clock.spent
        try:
            with self.clock.within(seconds):
                states.visit(self.who.agent, world, self.memory, world.numbers, self.who.name)
        except OutOfTime:
            return
        except KeyboardInterrupt:
            self.clock.stopped = True

    def _more(self, first: Until, episodes: int, took: float) -> Finished:
        """Further episodes, as many as there is time for; only pictures have not played all of them at first."""
        done = first.num_envs
        count = episodes - done
        if self.clock.seconds is not None:
            count = min(count, int((SHARE_OF_MORE * self.clock.seconds - self.clock.spent) / took))
        if count <= 0 or self.clock.left() <= 0:
            return Finished()
        world = self.world(range(done, done + count))
        try:
            self._visit(world, SHARE)
        finally:
            world.close()
        return world.finished()

    def _random(self, numbers: Sequence[int], horizon: int | None) -> float | None:
        """The mean return of uniformly random actions from the same starts."""
        if self.clock.left() <= 0:
            return None
        self.clock.doing = "random actions"
        world = self.world(numbers[:RANDOM], horizon)
        limit = UNHURRIED if self.clock.seconds is None else SHARE_OF_RANDOM * self.clock.seconds
        rng = torch.Generator().manual_seed(streams(self.seed)[3])
        try:
            with self.clock.within(limit):
                play(world, _randomly(world, rng), world.num_envs)
        except OutOfTime:
            pass  # those that ended count
        except KeyboardInterrupt:
            self.clock.stopped = True
        finally:
            world.close()
        returns = world.finished().returns
        return statistics.mean(returns) if returns else None


def _randomly(world: VecEnv, rng: torch.Generator) -> Callable[[View], Tensor]:
    """Uniform actions; from a standard normal distribution where the box of actions is not known."""
    actions = world.actions

    def choose(view: View) -> Tensor:
        count = len(view.obs)
        if isinstance(actions, Discrete):
            return torch.randint(actions.n, (count,), generator=rng)
        if actions.low is None or actions.high is None:
            return torch.randn(count, actions.size, generator=rng)
        low, high = torch.tensor(actions.low), torch.tensor(actions.high)
        return low + (high - low) * torch.rand(count, actions.size, generator=rng)

    return choose


def begin(who: Audited, episodes: int, seed: int, clock: Clock) -> tuple[Beginning, Until]:
    """The clean episodes, ready to be played, and the world of the first ones: all of them unless pictures are slow."""
    start = Beginning(who, seed, clock)
    world = start.world(range(episodes if clock.seconds is None else min(episodes, AT_FIRST)))
    if len(world.observation_shape) == 3 or world.num_envs == episodes:
        return start, world
    world.close()
    return start, start.world(range(episodes))
