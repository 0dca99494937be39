"""The states visited in an audit's clean episodes, and certificates of all of them in bulk.

Bounding a thousand states together costs little more than bounding one, so an audit certifies here, not step by step.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from radial.bounds.layers import UnsupportedLayer
from radial.bounds.methods import ibp, sound
from radial.core.agent import Agent
from radial.core.data import Bounds, VecEnv
from radial.envs.wrapper import as_trained
from radial.evaluation.certificates import Search
from radial.evaluation.play import Episodes, View, play
from radial.evaluation.prover import ProofCheck, Prover, certified_rows
from radial.evaluation.repeatable import finite_action, prepared
from radial.workflows.audit.budget import Clock

# The peak of an audit stays below 2 GB: libraries and one env take half of it, the states kept here at most
# 2 × VISITED_BYTES (twice while they are joined), and each chunk of bounds its own budget.
VISITED_BYTES = 256 << 20  # 9,500 Atari observations; 64 of them are certified
_AT_ONCE = 512  # states that are bounded at once
_FRAMES_AT_ONCE = 8  # convolutions need memory
_GRID = 63  # 2⁶ − 1: six rounds of bisection


@dataclass(frozen=True, eq=False)
class Visited:
    """States of clean episodes.

    kept     (M, *obs)  as the network sees them; pictures as the bytes the env gave, a quarter of the memory
    episode  (M,) whose state it is        of  how many states there were; M may be a sample
    prepare  from bytes to the network's input; None: `kept` is that already
    """

    kept: Tensor
    episode: Tensor
    of: int
    prepare: Callable[[Tensor], Tensor] | None = None

    def __len__(self) -> int:
        """How many states are kept, M."""
        return len(self.kept)

    @torch.no_grad()
    def x(self, rows: slice | Tensor) -> Tensor:
        """Some states as the network sees them; pictures are prepared here, a chunk at a time."""
        return self.kept[rows] if self.prepare is None else self.prepare(self.kept[rows])

    def thinned(self, limit: int) -> "Visited":
        """At most `limit` of the states, evenly spaced."""
        if len(self) <= limit:
            return self
        at = torch.linspace(0, len(self) - 1, limit).round().long()
        return replace(self, kept=self.kept[at], episode=self.episode[at])

    def chunks(self, prover: Prover | None = None) -> Iterator[slice]:
        """Rows that are bounded, or searched, together."""
        size = chunk_of(self.kept, prover)
        return (slice(start, start + size) for start in range(0, len(self), size))


class Memory:
    """States as they are visited, in at most `VISITED_BYTES`: of too many, those of every second, fourth, … step."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, Tensor, Tensor]] = []  # the step, its states, their episodes
        self.seen = self.of = self.size = 0
        self.every = 1

    def add(self, states: Tensor, episode: Tensor) -> None:
        """Remember the states of one step, of all episodes that are not over, if its turn has come."""
        if self.seen % self.every == 0:
            self.steps.append((self.seen, states.clone(), episode))
            self.size += states.nbytes
        self.seen += 1
        self.of += len(states)
        while self.size > VISITED_BYTES and len(self.steps) > 1:
            self.every *= 2
            self.steps = [one for one in self.steps if one[0] % self.every == 0]
            self.size = sum(states.nbytes for _, states, _ in self.steps)

    def visited(self, prepare: Callable[[Tensor], Tensor]) -> Visited:
        """All that is remembered."""
        states, episode = (torch.cat(parts) for parts in list(zip(*self.steps, strict=True))[1:])
        return Visited(states, episode, self.of, prepare if states.dtype == torch.uint8 else None)


def chunk_of(x: Tensor, prover: Prover | None = None) -> int:
    """How many states are worked on between two looks at the clock."""
    if x.ndim <= 2:
        return _AT_ONCE
    dear = prover is not None and prover.name not in ("ibp", "crown-ibp")  # seconds for a single frame
    return 1 if dear else _FRAMES_AT_ONCE


def visit(agent: Agent, world: VecEnv, memory: Memory, numbers: Sequence[int], name: str | None = None) -> Episodes:
    """Play a clean episode in each env of the world, and remember its states as those of the episodes `numbers`."""
    steps, number = itertools.count(), torch.tensor(numbers)

    @torch.no_grad()
    def choose(view: View) -> Tensor:
        x = prepared(agent, view.obs)
        rows = view.counts.nonzero().flatten()
        memory.add((view.obs if view.obs.dtype == torch.uint8 else x)[rows], number[rows])
        return finite_action(agent, x, None, agent.name if name is None else name, next(steps))

    return play(as_trained(agent, world), choose, world.num_envs)


def certified(agent: Agent, visited: Visited, radius: float, p: float, prover: Prover, clock: Clock) -> Tensor:
    """Which states' actions are certified at a radius, (M,) bool."""
    return certified_at(agent, visited, torch.full((len(visited),), radius), p, prover, clock)


def certified_at(agent: Agent, visited: Visited, radii: Tensor, p: float, prover: Prover, clock: Clock) -> Tensor:
    """The same with a radius for each state, (M,): rows of one radius are bounded together."""
    found = torch.zeros(len(visited), dtype=torch.bool)
    for radius in radii.unique().tolist():
        rows = (radii == radius).nonzero().flatten()
        for part in rows.split(chunk_of(visited.kept, prover)):
            clock.tick()
            found[part] = certified_rows(agent, agent.ball(visited.x(part), radius, p), prover)
    return found


def certified_radius(agent: Agent, visited: Visited, largest: float, p: float, prover: Prover, clock: Clock) -> Tensor:
    """The largest radius at which each state's action was certified, (M,), by bisection over 63 radii up to `largest`.

    The radii are evenly spaced on a logarithmic scale over four decades, so that many states share one call. A radius
    counts only if the action was certified at that very radius: the answer errs to the safe side, by 16 % at most.
    """
    grid = torch.cat([torch.zeros(1, dtype=torch.float64), largest * torch.logspace(-4, 0, _GRID, dtype=torch.float64)])
    low = torch.zeros(len(visited), dtype=torch.int64)  # certified
    high = torch.full_like(low, _GRID + 1)  # not certified
    while bool((high - low > 1).any()):
        middle = (low + high) // 2
        proven = certified_at(agent, visited, grid[middle], p, prover, clock)
        low, high = torch.where(proven, middle, low), torch.where(proven, high, middle)
    return grid[low]


def falsified(
    agent: Agent, visited: Visited, radius: float, p: float, proven: Tensor, prover: Prover, seed: int, clock: Clock
) -> Tensor:
    """Which states' actions a search changes, (M,) bool; raises `SoundnessError` if `prover` had certified one."""
    rng, changed = torch.Generator().manual_seed(seed), torch.zeros(len(visited), dtype=torch.bool)
    proofs = ProofCheck(prover)
    for rows in visited.chunks():
        clock.tick()
        ball = agent.ball(visited.x(rows), radius, p)
        with torch.no_grad():
            clean = agent.act(ball.center)
        found = Search().find(agent, ball, clean, rng)
        proofs.refute(clean, found, proven[rows], ball)
        changed[rows] = found != clean
    return changed


def action_boxes(agent: Agent, visited: Visited, radius: float, p: float, prover: Prover, clock: Clock) -> Bounds:
    """Certified bounds of the mean action in each state, (M, D)."""
    parts = []
    with torch.no_grad():
        for rows in visited.chunks(prover):
            clock.tick()
            parts.append(prover.method(agent.choice, agent.ball(visited.x(rows), radius, p)))
    return Bounds(torch.cat([part.lower for part in parts]), torch.cat([part.upper for part in parts]))


@torch.no_grad()
def distinct_actions(agent: Agent, visited: Visited) -> int:
    """How many different actions the agent takes in the visited states: with one, everything is certified."""
    return len({action for rows in visited.chunks() for action in agent.act(visited.x(rows)).tolist()})


def share_by_episode(flags: Tensor, episode: Tensor) -> tuple[float, ...]:
    """The share of each episode's states that has a flag."""
    return tuple(float(flags[episode == i].double().mean()) for i in episode.unique().tolist())


def largest_radius(agent: Agent) -> float:
    """Where bisection starts: a tenth of a valid range, else one network unit."""
    limits = agent.valid_range
    return 1.0 if limits is None else (limits[1] - limits[0]) / 10


def why_unbounded(agent: Agent, x: Tensor) -> str | None:
    """Why a network cannot be bounded; None: it can."""
    try:
        with torch.no_grad():
            sound(ibp)(agent.choice, agent.ball(x, 0.0))
    except UnsupportedLayer as error:
        return str(error)
    return None
