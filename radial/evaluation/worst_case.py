"""The absolute worst case, AWC: the least return over all sequences of actions that an adversary can force.

One anytime search: stopped early it leaves a certified lower bound and an attained upper one, finished they are equal.
The actions that can be forced in one state are in `prover`; how an env is copied in `envs.cloning`.
"""

import hashlib
import heapq
import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from radial.agents.foreign import as_agent
from radial.bounds.methods import BoundMethod
from radial.core.agent import Agent
from radial.core.checks import check_whole
from radial.core.data import BadInput, EnvSpec
from radial.core.text import round_down
from radial.envs.contract import EnvFault
from radial.envs.make import env_seeds
from radial.evaluation import statistics
from radial.evaluation.certificates import Terms, terms_of
from radial.evaluation.play import Progress, check_spaces, spec_of, streams
from radial.evaluation.prover import Elimination, ThreatModel, check_in_range, threat_model
from radial.evaluation.repeatable import Repeats

if TYPE_CHECKING:
    from radial.envs.cloning import Cloneable

# The least reward of one step, where it is known: (suite, id).
REWARD_LOW = {
    ("classic", "CartPole-v1"): 1.0,
    ("classic", "Acrobot-v1"): -1.0,
    ("gymnasium", "MountainCar-v0"): -1.0,
    ("atari", "Freeway"): 0.0,  # it pays for a crossing and for nothing else
}
TOGETHER, FRAMES_TOGETHER = 64, 8  # states bounded at once: hardly dearer than one
Key = tuple[bytes, int]  # a state and how many steps lie behind it

# ---------------------------------------------------------------------------------------------------------- results


@dataclass(frozen=True)
class Start:
    """The worst case from one first state.

    lower     certified: no sequence of possible actions returns less; −inf: nothing is certified
    upper     `path` returns this much, so the least return of possible actions is no larger; inf: no path was followed
              to its end. Whether an adversary can force all of its actions is another question
    greedy    the return of the greedy worst case (GWC) from here; inf: not asked for
    expanded  states whose possible actions were bounded
    path      possible actions from the first state on
    """

    lower: float
    upper: float
    greedy: float
    expanded: int
    path: tuple[int, ...]

    @property
    def exact(self) -> bool:
        """Whether the search is complete, so that lower = upper = AWC."""
        return self.lower == self.upper


@dataclass(frozen=True)
class AbsoluteWorstCase:
    """AWC of one or more first states; where the search was ended early, an interval that holds it."""

    terms: Terms
    budget: int  # states per start
    reward_low: float | None
    starts: tuple[Start, ...]
    wall_seconds: float

    @property
    def lower(self) -> float:
        """Certified lower bound, mean over the starts."""
        return sum(start.lower for start in self.starts) / len(self.starts)

    @property
    def upper(self) -> float:
        """Attained upper bound, mean over the starts."""
        return statistics.mean([start.upper for start in self.starts])

    @property
    def greedy(self) -> float:
        """Greedy worst case, mean over the starts."""
        return statistics.mean([start.greedy for start in self.starts])

    @property
    def exact(self) -> bool:
        """Whether every search is complete."""
        return all(start.exact for start in self.starts)

    @property
    def expanded(self) -> int:
        """States bounded in all."""
        return sum(start.expanded for start in self.starts)

    def to_json(self) -> dict[str, Any]:
        """Plain values that `json` can write; a lower bound of −inf is null."""
        starts = [
            {
                "lower": finite_or_none(start.lower), "upper": start.upper, "greedy": start.greedy,
                "exact": start.exact, "expanded": start.expanded, "path": list(start.path),
            }
            for start in self.starts
        ]  # fmt: skip
        return {
            "metric": "awc", **self.terms.to_json(), "budget": self.budget, "reward_low": self.reward_low,
            "lower": finite_or_none(self.lower), "upper": self.upper, "exact": self.exact, "greedy": self.greedy,
            "expanded": self.expanded, "starts": starts, "says": str(self), "wall_seconds": self.wall_seconds,
        }  # fmt: skip

    def __str__(self) -> str:
        where = f"at {self.terms.radius:g} ({self.terms.bound}, {self.expanded} states)"
        if self.exact:
            return f"AWC {self.upper:.1f}, exact, {where}"
        unfinished = sum(not start.exact for start in self.starts)
        certified = "nothing" if math.isinf(self.lower) else round_down(self.lower)
        return (
            f"AWC ≤ {self.upper:.1f}, certified ≥ {certified}, {where}: the budget of {self.budget} states ended "
            f"{unfinished} of {len(self.starts)} searches"
        )


def finite_or_none(value: float) -> float | None:
    """The number, or None where it is infinite: JSON has no infinity."""
    return value if math.isfinite(value) else None


# ---------------------------------------------------------------------------------------------------------- the metric


def awc(
    agent: Agent,
    env: "EnvSpec | str | Cloneable",
    radius: float,
    bound: BoundMethod | str = "ibp",
    episodes: int = 1,
    seed: int = 0,
    *,
    horizon: int | None = None,
    budget: int = 10_000,
    reward_low: float | None = None,
    p: float = math.inf,
    rule: Elimination = "bounds",
    name: str | None = None,
    progress: Progress | None = None,
) -> AbsoluteWorstCase:
    """Absolute worst-case reward, Algorithm 2 of the RADIAL paper, from the first states of `episodes` episodes.

    A lower bound of the return under every adversary in the ball, if the env is deterministic after its reset.

    env         an id or a spec that can be cloned, or a Cloneable (left open; one episode)
    episodes    how many first states: those of `evaluate` and `gwc` with this seed and an env for each episode
    horizon     count only the first steps of an episode; needed where an env has no time limit
    budget      states to bound per start. When it ends, the certified lower and the attained upper bound differ. The
                greedy worst case is always played to its end, beyond the budget if need be
    progress    is told how many of the `episodes`·`budget` states are bounded or no longer needed
    reward_low  no step pays less: certifies something about the states not expanded, and tells which of them cannot
                matter. None: known for CartPole, Acrobot, MountainCar and Freeway
    """
    agent = as_agent(agent)
    threat = threat_model(agent, radius, p, bound, rule)
    check_in_range(agent, radius)
    check_limits(episodes, seed, horizon, budget, reward_low)
    budget = int(budget)
    begun, starts = time.perf_counter(), []
    ours = isinstance(env, EnvSpec | str)
    if not ours and not hasattr(env, "fingerprint"):
        raise BadInput(f"env must be an id, a spec, or one env that can be cloned, got {type(env).__name__}")
    if not ours and episodes != 1:
        raise BadInput(f"episodes must be 1 with an env of your own, got {episodes}")
    for number in range(episodes):
        world = _clone(spec_of(env, agent), number, episodes, seed) if isinstance(env, EnvSpec | str) else env
        try:
            check_spaces(agent, world)
            terms = terms_of(threat, world, name, horizon, seed, episodes)
            if reward_low is None:
                reward_low = REWARD_LOW.get((world.spec.suite, world.spec.id))
            reward_low = None if reward_low is None else float(reward_low)
            tell = None if progress is None else _after(progress, number * budget, budget)
            starts.append(WorstCaseSearch(threat, world, limit_of(world, horizon), reward_low, tell).run(budget))
        finally:
            if ours:
                world.close()
        if progress is not None:
            progress((number + 1) * budget)
    return AbsoluteWorstCase(terms, budget, reward_low, tuple(starts), time.perf_counter() - begun)


def check_limits(episodes: int, seed: int, horizon: int | None, budget: int, reward_low: float | None) -> None:
    """Refuse limits that cannot be meant."""
    for name, value, least in (("episodes", episodes, 1), ("seed", seed, 0), ("budget", budget, 1)):
        check_whole(name, value, least)
    if horizon is not None:
        check_whole("horizon", horizon, 1)
    if reward_low is not None and (not isinstance(reward_low, Real) or not math.isfinite(reward_low)):
        raise BadInput(f"reward_low must be a finite number or None, got {reward_low!r}")


def _after(progress: Progress, done: int, most: int) -> Progress:
    """Progress of one search among several: at most `most`, on top of the `done` of those before."""
    return lambda count: progress(done + min(count, most))


def limit_of(env: "Cloneable", horizon: int | None) -> int:
    """After how many steps an episode is over in any case."""
    limits = [limit for limit in (horizon, env.horizon) if limit is not None]
    if not limits:
        raise BadInput(f"horizon must be given: episodes of {env.spec} may never end, and AWC looks at all of them")
    return int(min(limits))


def _clone(spec: EnvSpec, number: int, episodes: int, seed: int) -> "Cloneable":
    from radial.envs.cloning import make_cloneable

    return make_cloneable(spec, env_seeds(streams(seed)[0], episodes)[number])


# ----------------------------------------------------------------------------------------------------------- the search


@dataclass(eq=False, slots=True)
class _Edge:
    """A possible action that was taken."""

    action: int
    reward: float
    to: "_State | None"  # None: the episode is over


@dataclass(eq=False, slots=True)
class _State:
    """A state that was reached.

    total  the least return on a known way here, by action `by` from `via`
    saved  env and obs, until its edges are known
    edges  its possible actions, lowest clean score first; None: not expanded
    """

    depth: int
    total: float
    via: "_State | None"
    by: int
    saved: Any
    obs: Tensor | None
    edges: list[_Edge] | None = None


class WorstCaseSearch:
    """Best-first search over forced actions: expands the states that could return least, in batches, each state once.

    The least that a state can return in all, `total` plus `_rest`, never decreases along a way: the least of it over
    the states not expanded, and over the ends, is a lower bound whenever the search stops. Where it is equal the deeper
    state comes first, so that an end is reached soon. A state that turns out to be cheaper to reach after it was
    expanded passes that on along its known edges.

    env         one that repeats itself after its reset; left open
    limit       steps after which an episode is over in any case
    reward_low  no step pays less; None: unknown, then only a finished search certifies anything
    """

    def __init__(
        self, threat: ThreatModel, env: "Cloneable", limit: int, reward_low: float | None = None,
        progress: Progress | None = None,
    ) -> None:  # fmt: skip
        self.threat, self.env, self.limit, self.reward_low, self.progress = threat, env, limit, reward_low, progress
        self.states: dict[Key, _State] = {}
        self.queue: list[tuple[float, int, int, float, _State]] = []  # least return, −depth, number, total, state
        self.number, self.expanded, self.repeats = itertools.count(), 0, Repeats(env)
        self.upper = math.inf
        self.end: tuple[_State, int] | None = None  # the last state and action of the path that returns `upper`
        self.together = FRAMES_TOGETHER if len(env.observation_shape) > 1 else TOGETHER

    def run(self, budget: int, late: Callable[[], bool] = lambda: False, greedy: bool = True) -> Start:
        """Search until nothing can return less than `upper`, `budget` states are expanded, or it is late.

        late    asked before every batch
        greedy  before that, play the greedy worst case to its end, beyond the budget if need be
        """
        obs = self.env.reset()
        root = self.states[self._key(0)] = _State(0, 0.0, None, 0, self.env.save(), obs)
        first = root.saved
        self._push(root)
        followed = self._follow(root) if greedy else math.inf
        while self._least() < self.upper and self.expanded < budget and not late():
            self._expand(self._batch(min(self.together, budget - self.expanded)))
        path = () if self.end is None else self._replayed(first, *self.end)
        return Start(min(self._least(), self.upper), self.upper, followed, self.expanded, path)

    def _push(self, state: _State) -> None:
        entry = (state.total + self._rest(state.depth), -state.depth, next(self.number), state.total, state)
        heapq.heappush(self.queue, entry)

    def _least(self) -> float:
        """The least return through a state that is not expanded; inf: there is none."""
        while self.queue:
            least, _, _, total, state = self.queue[0]
            if state.edges is None and total == state.total:
                return least
            heapq.heappop(self.queue)  # expanded meanwhile, or in the queue again with a smaller total
        return math.inf

    def _batch(self, most: int) -> list[_State]:
        """The states that could return least."""
        batch: list[_State] = []
        while len(batch) < most and self._least() < self.upper:
            batch.append(heapq.heappop(self.queue)[-1])
        return batch

    def _expand(self, batch: Sequence[_State]) -> None:
        """Bound states together, and take every possible action of each once."""
        order, possible = self.threat.options(torch.stack([state.obs for state in batch if state.obs is not None]))
        self.expanded += len(batch)
        for state, actions, allowed in zip(batch, order.tolist(), possible.tolist(), strict=True):
            state.edges = [self._step(state, action) for action in itertools.compress(actions, allowed)]
            state.saved = state.obs = None
            self._pass_on(state)
        if self.progress is not None:
            self.progress(self.expanded)

    def _step(self, state: _State, action: int) -> _Edge:
        """Take an action; a state that was reached before is not saved again."""
        self.env.restore(state.saved)
        step = obs, reward, terminated, truncated = self.env.step(action)
        self.repeats.check(state.saved, action, step, state.depth)
        if self.reward_low is not None and reward < self.reward_low:
            raise BadInput(f"reward_low must be ≤ every reward: it is {self.reward_low:g}, a step paid {reward:g}")
        depth = state.depth + 1
        if terminated or truncated or depth >= self.limit:
            return _Edge(action, reward, None)
        key = self._key(depth)
        if key not in self.states:
            self.states[key] = _State(depth, math.inf, None, 0, self.env.save(), obs)
        return _Edge(action, reward, self.states[key])

    def _pass_on(self, state: _State) -> None:
        """Tell whatever lies behind a state how it is reached from there, wherever that is cheaper than before."""
        wave = [(state.depth, next(self.number), state)]  # by depth, so that each is visited with its final total
        while wave:
            at = heapq.heappop(wave)[-1]
            for edge in at.edges or ():
                total, to = at.total + edge.reward, edge.to
                if to is None:
                    if total < self.upper:
                        self.upper, self.end = total, (at, edge.action)
                elif total < to.total:
                    to.total, to.via, to.by = total, at, edge.action
                    if to.edges is None:
                        self._push(to)
                    else:
                        heapq.heappush(wave, (to.depth, next(self.number), to))

    def _follow(self, state: _State) -> float:
        """The greedy worst case from a state: always the possible action with the lowest clean score."""
        total = 0.0
        while True:
            if state.edges is None:
                self._expand([state])
            assert state.edges
            edge = state.edges[0]
            total += edge.reward
            if edge.to is None:
                return total
            state = edge.to

    def _replayed(self, first: Any, last: _State, action: int) -> tuple[int, ...]:
        """The path that returns `upper`, played once more: an env that does not repeat itself certifies nothing."""
        path, state = [action], last
        while state.via is not None:
            path.append(state.by)
            state = state.via
        self.env.restore(first)
        total = math.fsum(self.env.step(each)[1] for each in reversed(path))
        if not math.isclose(total, self.upper, rel_tol=1e-9, abs_tol=1e-9):
            raise EnvFault(f"{self.env.spec} does not repeat itself: the worst path gave {self.upper}, then {total}")
        return tuple(reversed(path))

    def _rest(self, depth: int) -> float:
        """The least return from a state on that is not an end: one step comes for sure, the others if they cost."""
        if self.reward_low is None:
            return -math.inf
        return self.reward_low + (self.limit - depth - 1) * min(self.reward_low, 0.0)

    def _key(self, depth: int) -> Key:
        mark = self.env.fingerprint()
        return (mark if len(mark) <= 32 else hashlib.blake2b(mark, digest_size=32).digest()), depth
