"""The absolute worst case, AWC: the least return over all sequences of actions that an adversary can force.

What can be forced in one state is in `possible`; how an env is copied in `envs.cloning`; what
was found in `worst_found`.
"""

import hashlib
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from radial.bounds.methods import BoundMethod
from radial.core.agent import Agent
from radial.core.checks import check_whole
from radial.core.data import BadInput, EnvSpec
from radial.envs.contract import EnvFault
from radial.envs.make import env_seeds
from radial.evaluation.certificates import terms_of
from radial.evaluation.play import Progress, check_spaces, spec_of, streams
from radial.evaluation.possible import Adversary, Rule, adversary_of
from radial.evaluation.prover import warn_of_pixels
from radial.evaluation.worst_found import AbsoluteWorstCase, Start

if TYPE_CHECKING:
    from radial.envs.cloning import Cloneable

# The least reward of one step, where it is known: (suite, id).
REWARD_LOW = {
    ("classic", "CartPole-v1"): 1.0,
    ("classic", "Acrobot-v1"): -1.0,
    ("gymnasium", "MountainCar-v0"): -1.0,
    ("atari", "Freeway"): 0.0,  # it pays for a crossing and for nothing else
}

Key = tuple[bytes, int]  # a state and how many steps lie behind it


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
    rule: Rule = "bounds",
    name: str | None = None,
    progress: Progress | None = None,
) -> AbsoluteWorstCase:
    """Absolute worst-case reward, Algorithm 2 of the RADIAL paper, from the first states of `episodes` episodes.

    A lower bound of the return under every adversary in the ball, if the env is deterministic after its reset.

    env         an id or a spec that can be cloned, or a Cloneable (left open; one episode)
    episodes    how many first states: those of `evaluate` and `gwc` with this seed and an env for each episode
    horizon     count only the first steps of an episode; needed where an env has no time limit
    budget      states to bound per start. When it ends, what is proven and what is attained differ, and both are told.
                The first path, which is the greedy worst case, is always played to its end, on its own if need be
    progress    is told how many of the `episodes`·`budget` states are bounded or no longer needed
    reward_low  no step pays less: allows to prove something about what was not explored, and to skip what cannot be
                worse than what was found. None: known for CartPole, Acrobot and Freeway
    """
    adversary = adversary_of(agent, radius, p, bound, rule)
    warn_of_pixels(agent, radius)
    check_limits(episodes, seed, horizon, budget, reward_low)
    budget = int(budget)
    begun, starts = time.perf_counter(), []
    ours = isinstance(env, EnvSpec | str)
    if not ours and not hasattr(env, "fingerprint"):
        raise BadInput(f"env must be an id, a spec, or one env that can be cloned, got {type(env).__name__}")
    if not ours and episodes != 1:
        raise BadInput(f"episodes must be 1 with an env of your own, got {episodes}")
    for number in range(episodes):
        world = _clone(env, number, episodes, seed) if isinstance(env, EnvSpec | str) else env
        try:
            check_spaces(agent, world)
            terms = terms_of(adversary, world, name, horizon, seed, episodes)
            if reward_low is None:
                reward_low = REWARD_LOW.get((world.spec.suite, world.spec.id))
            reward_low = None if reward_low is None else float(reward_low)
            tell = None if progress is None else _after(progress, number * budget, budget)
            starts.append(_Search(adversary, world, limit_of(world, horizon), budget, reward_low, tell).run())
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
    """Progress of one search among several: at most `most`, after what was done before."""
    return lambda count: progress(done + min(count, most))


def limit_of(env: "Cloneable", horizon: int | None) -> int:
    """After how many steps an episode is over in any case."""
    limits = [limit for limit in (horizon, env.horizon) if limit is not None]
    if not limits:
        raise BadInput(f"horizon must be given: episodes of {env.spec} may never end, and AWC looks at all of them")
    return int(min(limits))


def _clone(env: EnvSpec | str, number: int, episodes: int, seed: int) -> "Cloneable":
    from radial.envs.cloning import make_cloneable

    return make_cloneable(spec_of(env), env_seeds(streams(seed)[0], episodes)[number])


# ----------------------------------------------------------------------------------------------------------- the search


class Known(NamedTuple):
    """What is known of the return from a state on: at least `lower`, and just that if `best` tells how."""

    lower: float
    best: tuple[int, Key | None] | None  # the worst action, and the state it leads to (None: the end)


@dataclass(eq=False, slots=True)
class Edge:
    """A possible action that was taken: what it paid and where it led."""

    action: int
    reward: float
    key: Key | None  # None: the episode is over
    state: Any = None


@dataclass(eq=False, slots=True)
class Node:
    """A state on the path that is being explored.

    total  the return on the way here        edges  its possible actions, worst nominal score first; None: not taken yet
    at     the edge that is being explored, or comes next
    lower  the least that the finished edges can return        exact  the least that they do return, by `best`
    """

    key: Key
    state: Any
    total: float
    edges: list[Edge] | None = None
    at: int = 0
    lower: float = math.inf
    exact: float = math.inf
    best: tuple[int, Key | None] | None = None

    def finish(self, value: float, exact: bool) -> None:
        """The edge at hand returns at least `value` from here on, or just that."""
        assert self.edges is not None
        edge = self.edges[self.at]
        self.lower = min(self.lower, value)
        if exact and value < self.exact:
            self.exact, self.best = value, (edge.action, edge.key)
        self.at += 1

    def known(self, before: float) -> Known:
        """What is known once every edge is finished; `before` was known already."""
        exact = self.exact <= self.lower
        return Known(self.lower if exact else max(self.lower, before), self.best if exact else None)


@dataclass(eq=False)
class _Search:
    """Depth-first, without recursion, every state once.

    The least return from a state on is remembered. A branch that cannot return less than the worst found so far is
    skipped; what it can return at least is remembered in place of what it does.
    """

    adversary: Adversary
    env: "Cloneable"
    limit: int
    budget: int
    reward_low: float | None
    progress: Progress | None = None
    upper: float = math.inf
    path: tuple[int, ...] = ()
    greedy: float = math.inf
    expanded: int = 0
    known: dict[Key, Known] = field(default_factory=dict)
    possible: dict[Key, list[int]] = field(default_factory=dict)
    stack: list[Node] = field(default_factory=list)

    def run(self) -> Start:
        obs = self.env.reset()
        root = Node(self._key(0), self.env.save(), 0.0)
        self._bound([root.key], [obs])
        self.stack.append(root)
        lower = self._explore()
        self._replay(root.state)
        return Start(lower, self.upper, self.greedy, self.expanded, self.path)

    def _explore(self) -> float:
        """Until everything is explored or the budget ends; the least return that is proven."""
        while True:
            node = self.stack[-1]
            if node.edges is None:
                if self.expanded >= self.budget and self.upper < math.inf:
                    return min(self._proven(), self.upper)
                self._open(node)
            elif node.at < len(node.edges):
                self._follow(node, node.edges[node.at])
            else:
                self.stack.pop()
                if not self.stack:
                    return self.upper  # whatever was skipped returns no less
                self.known[node.key] = found = node.known(self._floor(node.key))
                self._finish(self.stack[-1], found.lower, found.best is not None)

    def _finish(self, node: Node, value: float, exact: bool) -> None:
        assert node.edges is not None
        node.finish(node.edges[node.at].reward + value, exact)

    def _follow(self, node: Node, edge: Edge) -> None:
        """Explore an edge, or see that there is nothing to explore."""
        total = node.total + edge.reward
        if edge.key is None:
            self._attained(total, None)
            return self._finish(node, 0.0, exact=True)
        found = self.known.get(edge.key)
        if found is not None and found.best is not None:
            self._attained(total + found.lower, edge.key)
            return self._finish(node, found.lower, exact=True)
        floor = self._floor(edge.key)
        if total + floor >= self.upper:
            return self._finish(node, floor, exact=False)
        self.stack.append(Node(edge.key, edge.state, total))
        edge.state = None
        return None

    def _open(self, node: Node) -> None:
        """Take every possible action of a state once, and bound the states that need it."""
        node.edges = []
        fresh: dict[Key, Tensor] = {}
        for action in self.possible[node.key]:
            self.env.restore(node.state)
            obs, reward, terminated, truncated = self.env.step(action)
            self._check(reward)
            depth = node.key[1] + 1
            if terminated or truncated or depth >= self.limit:
                node.edges.append(Edge(action, reward, None))
                continue
            key = self._key(depth)
            node.edges.append(Edge(action, reward, key, self.env.save()))
            if key not in self.possible and node.total + reward + self._floor(key) < self.upper:
                fresh[key] = obs
        node.state = node.state if node is self.stack[0] else None
        if self.expanded >= self.budget:  # only the first path still goes on, and it takes the first edge
            fresh = {key: obs for key, obs in fresh.items() if key == node.edges[0].key}
        if fresh:
            self._bound(list(fresh), list(fresh.values()))

    def _bound(self, keys: Sequence[Key], observations: Sequence[Tensor]) -> None:
        order, possible = self.adversary.options(torch.stack(list(observations)))
        for key, actions, yes in zip(keys, order.tolist(), possible.tolist(), strict=True):
            self.possible[key] = [action for action, allowed in zip(actions, yes, strict=True) if allowed]
        self.expanded += len(keys)
        if self.progress is not None:
            self.progress(self.expanded)

    def _floor(self, key: Key) -> float:
        """What is returned at least from a state on, explored or not."""
        if key in self.known:
            return self.known[key].lower
        if self.reward_low is None:
            return -math.inf
        return self.reward_low + (self.limit - key[1] - 1) * min(self.reward_low, 0.0)

    def _proven(self) -> float:
        """What is returned at least from the first state on, in the middle of a search."""
        value = self._floor(self.stack[-1].key)
        for node in reversed(self.stack[:-1]):
            assert node.edges is not None
            rest = [e.reward + (0.0 if e.key is None else self._floor(e.key)) for e in node.edges[node.at + 1 :]]
            value = min(node.lower, node.edges[node.at].reward + value, *rest)
        return value

    def _attained(self, total: float, key: Key | None) -> None:
        """A path was found: the actions on the stack, then from `key` on the worst ones that are known."""
        self.greedy = total if math.isinf(self.greedy) else self.greedy
        if total >= self.upper:
            return
        path = [node.edges[node.at].action for node in self.stack if node.edges is not None]
        while key is not None:
            best = self.known[key].best
            assert best is not None
            path, key = [*path, best[0]], best[1]
        self.upper, self.path = total, tuple(path)

    def _replay(self, state: Any) -> None:
        """Play the worst path once more: a copy of an env that plays otherwise than the env proves nothing."""
        self.env.restore(state)
        total = math.fsum(self.env.step(action)[1] for action in self.path)
        if not math.isclose(total, self.upper, rel_tol=1e-9, abs_tol=1e-9):
            raise EnvFault(f"{self.env.spec} does not repeat itself: the worst path gave {self.upper}, then {total}")

    def _key(self, depth: int) -> Key:
        mark = self.env.fingerprint()
        return (mark if len(mark) <= 32 else hashlib.blake2b(mark, digest_size=32).digest()), depth

    def _check(self, reward: float) -> None:
        if not math.isfinite(reward):
            raise EnvFault(f"{self.env.spec} gave the reward {reward}")
        if self.reward_low is not None and reward < self.reward_low:
            raise BadInput(f"reward_low must be ≤ every reward: it is {self.reward_low:g}, a step paid {reward:g}")
