"""How low the return can go: the bracket, its certified lower bound, and the worst corner for continuous actions.

The search itself is in `evaluation.worst_case`; here it is given time.
"""

import itertools
import math
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from radial.core.agent import Agent
from radial.core.data import BadInput, Bounds, Continuous, Discrete, EnvSpec, VecEnv
from radial.envs.cloning import make_cloneable
from radial.envs.make import env_seeds
from radial.envs.wrapper import as_executed, as_trained
from radial.evaluation import statistics
from radial.evaluation.certificates import terms_of
from radial.evaluation.play import View, play, streams
from radial.evaluation.prover import Prover, SoundnessError, threat_model
from radial.evaluation.repeatable import prepared
from radial.evaluation.worst_case import (
    REWARD_LOW,
    AbsoluteWorstCase,
    Start,
    WorstCaseSearch,
    finite_or_none,
    limit_of,
)
from radial.workflows.audit.budget import Clock
from radial.workflows.audit.result import Bracket, Level
from radial.workflows.audit.verdict import NOTHING as UNCERTIFIED

STATES_PER_START = 20_000  # expanded at most
LEAST_SECONDS = 0.5  # a start is not begun for less
ActionValue = Callable[[Tensor], Tensor]  # (B, |s| + |a|) → (B, 1)
NOTHING = "no return is certified"
TRIVIAL = f"{UNCERTIFIED}: the bound is the least possible return"
ROUNDING = 1e-6  # relative, of a sum of rewards


def cloneable(spec: EnvSpec) -> bool:
    """Whether an env of this spec can be saved and restored, and is deterministic after its reset."""
    try:
        make_cloneable(spec, 0).close()
    except BadInput:
        return False
    return True


def reward_is_bounded(spec: EnvSpec) -> bool:
    """Whether a search that ends early can certify anything: the least reward of a step is known."""
    return (spec.suite, spec.id) in REWARD_LOW


def certified_return(
    agent: Agent,
    spec: EnvSpec,
    radius: float,
    bound: str,
    numbers: Sequence[int],
    seed: int,
    clock: Clock,
    seconds: float,
) -> AbsoluteWorstCase:
    """AWC from the first states of the audit's episodes, anytime: as much as can be certified in `seconds`.

    Each start may take an equal part of the time left; there are fewer starts where a part would be too short.
    """
    begun = time.monotonic()
    threat = threat_model(agent, radius, math.inf, bound, "margins")
    found: list[Start] = []
    episodes = len(numbers)
    seeds, low = env_seeds(streams(seed)[0], max(numbers) + 1), REWARD_LOW.get((spec.suite, spec.id))
    for done, number in enumerate(numbers):
        spent = time.monotonic() - begun
        if found and spent + max(spent / done, LEAST_SECONDS) > seconds:
            break
        end = min(clock.left(), (seconds - spent) / (episodes - done)) + time.monotonic()
        env = make_cloneable(spec, seeds[number])
        try:
            terms = terms_of(threat, env, None, None, seed, episodes)
            search = WorstCaseSearch(threat, env, limit_of(env, None), low)
            late = partial(_past, end, clock)
            found.append(search.run(STATES_PER_START, late, greedy=False))  # GWC is measured in episodes of its own
        finally:
            env.close()
        if clock.left() <= 0:
            break
    return AbsoluteWorstCase(terms, STATES_PER_START, low, tuple(found), time.monotonic() - begun)


def _past(end: float, clock: Clock) -> bool:
    clock.beat(clock.doing)
    return time.monotonic() > end


def least_return(spec: EnvSpec) -> float | None:
    """The least return of an episode whatever is done, as far as its least reward per step tells; None: not known."""
    low = REWARD_LOW.get((spec.suite, spec.id))
    if low is None or low >= 0:
        return low
    with closing(make_cloneable(spec, 0)) as env:
        return low * limit_of(env, None)


def lifted(found: Sequence[AbsoluteWorstCase | None]) -> list[AbsoluteWorstCase | None]:
    """A lower bound certified at a radius holds at every smaller one too: the better of both, start by start.

    found  by radius, smallest first
    """
    better: list[AbsoluteWorstCase | None] = []
    larger: tuple[Start, ...] = ()
    for one in reversed(found):
        if one is not None:
            pairs = itertools.zip_longest(one.starts, larger[: len(one.starts)])
            larger = tuple(
                own if over is None else replace(own, lower=max(own.lower, over.lower)) for own, over in pairs
            )
            one = replace(one, starts=larger)
        better.append(one)
    return better[::-1]


def awc_facts(found: AbsoluteWorstCase | None) -> dict[str, Any] | None:
    """A level's `awc` as plain values; infinite ones are null."""
    if found is None:
        return None
    starts = [
        {"lower": finite_or_none(one.lower), "expanded": one.expanded, "finished": one.exact} for one in found.starts
    ]
    return {"lower": finite_or_none(found.lower), "finished": found.exact, "starts": starts}


def bracket(
    level: Level, found: AbsoluteWorstCase | None, numbers: Sequence[int] | None = None, least: float | None = None
) -> Bracket:
    """Lower and upper bound at one radius, means over the same starts; AWC if it certifies anything, else an estimate.

    The upper bound is the strongest attack, and nothing else: an action that is not ruled out need not be one that an
    adversary can bring about.

    numbers  of the starts of `found`; None: 0, 1, 2, …        least  possible return of an episode, if it is known
    """
    if found is not None and math.isfinite(found.lower):
        return _certified(level, found, list(numbers or range(len(found.starts)))[: len(found.starts)], least)
    worst = level.worst
    upper = None if worst is None else worst.mean
    if level.gwc is not None:
        lower, starts, says = level.gwc["mean"], level.gwc["episodes"], "greedy worst case: an estimate, no bound"
        return _guessed(lower, upper, "estimate", starts, says)
    if level.box is not None and level.box.get("corner_return") is not None:
        says = "greedy worst corner of the certified action box: a heuristic, no bound"
        return _guessed(level.box["corner_return"], upper, "heuristic", level.box["episodes"], says)
    return Bracket(None, upper, "none", 0 if worst is None else len(worst.returns), NOTHING)


def _certified(level: Level, found: AbsoluteWorstCase, numbers: list[int], least: float | None) -> Bracket:
    """The certified lower bound, and the strongest of the attacks that were played from all of its starts."""
    means = []
    for played in level.attacks.values():
        reached = played.by_start
        if all(number in reached for number in numbers):
            means.append(statistics.mean([reached[number] for number in numbers]))
        for number, start in zip(numbers, found.starts, strict=True):
            if number in reached and reached[number] < start.lower - ROUNDING * max(1.0, abs(start.lower)):
                raise SoundnessError(
                    f"{played.attack} at ε = {level.radius:g} returned {reached[number]}, below the certified "
                    f"{start.lower}"
                )
    if least is not None and found.lower <= least:
        says = TRIVIAL
    else:
        says = "the search was finished" if found.exact else "the search was ended by its budget"
    return Bracket(found.lower, min(means, default=None), "certified", len(numbers), says)


def _guessed(lower: float, upper: float | None, kind: str, starts: int, says: str) -> Bracket:
    """A lower side that is no bound. Where an attack did worse it was too high, and the attack takes its place."""
    if upper is None or lower <= upper:
        return Bracket(lower, upper, kind, starts, says)
    return Bracket(upper, upper, kind, starts, f"{says}; an attack did worse than its {lower:.1f}")


# ------------------------------------------------------------------------------------------------ continuous actions


def box_facts(boxes: Bounds, actions: Discrete | Continuous) -> dict[str, Any]:
    """Widths of certified action boxes (M, D), relative to the env's range where it is known."""
    lower, upper = boxes.lower.double(), boxes.upper.double()
    if not isinstance(actions, Continuous) or actions.low is None or actions.high is None:
        width = upper - lower
        return {"width": float(width.mean()), "relative": False, "per_axis": width.mean(0).tolist()}
    low, high = (torch.tensor(end, dtype=torch.float64) for end in (actions.low, actions.high))
    lower, upper = (torch.minimum(torch.maximum(end, low), high) for end in (lower, upper))
    width = (upper - lower) / (high - low)
    return {"width": float(width.mean()), "relative": True, "per_axis": width.mean(0).tolist()}


def corner_return(
    agent: Agent, world: VecEnv, radius: float, p: float, prover: Prover, q: ActionValue | None
) -> tuple[float, ...]:
    """Returns when each action is moved to the worst corner of its certified box, greedily.

    q  a critic (s, a) → value that was learned in play: the corner towards lower values. None: the corner furthest
       away from the agent's own action
    """
    cut = as_executed(agent, world.actions)

    def choose(view: View) -> Tensor:
        x = prepared(agent, view.obs)
        with torch.no_grad():
            box, mean = prover.method(agent.choice, agent.ball(x, radius, p)), cut(agent.act(x))
        box = Bounds(cut(box.lower), cut(box.upper))
        if q is None:
            return torch.where(mean - box.lower > box.upper - mean, box.lower, box.upper)
        action = mean.clone().requires_grad_(True)
        with torch.enable_grad():
            slope = torch.autograd.grad(q(torch.cat([x.flatten(1), action], 1)).sum(), action)[0]
        return torch.where(slope > 0, box.lower, box.upper)

    return play(as_trained(agent, world), choose, world.num_envs).returns
