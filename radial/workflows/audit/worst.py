"""How low the return can go: the bracket of an agent that chooses, the worst corner of one that moves.

The search itself is `evaluation.worst_case`; here it is given time, and its answer a name.
"""

import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from radial.core.data import BadInput, Bounds, EnvSpec, VecEnv
from radial.envs.cloning import make_cloneable
from radial.envs.make import env_seeds
from radial.envs.wrapper import as_executed, as_trained
from radial.evaluation import statistics
from radial.evaluation.anytime import Proven, prove
from radial.evaluation.play import View, play, streams
from radial.evaluation.possible import adversary_of
from radial.evaluation.prover import Prover, SoundnessError, ball_of
from radial.evaluation.worst_case import REWARD_LOW, limit_of
from radial.workflows.audit.clock import Clock
from radial.workflows.audit.result import Bracket, Level

LEAST = 0.5  # seconds that a start is worth beginning for
EXACT = 1e-6


def cloneable(spec: EnvSpec) -> bool:
    """Whether an env of this spec can be saved and restored, and is deterministic after its reset."""
    try:
        make_cloneable(spec, 0).close()
    except BadInput:
        return False
    return True


@dataclass(frozen=True)
class WorstCase:
    """What is proven from the first states of the first episodes."""

    starts: tuple[Proven, ...]

    @property
    def lower(self) -> float:
        """Mean over the starts of what is proven."""
        return sum(start.lower for start in self.starts) / len(self.starts)

    @property
    def finished(self) -> bool:
        """Whether every search came to its end: more time would not prove more."""
        return all(start.exact for start in self.starts)

    def to_json(self) -> dict[str, Any]:
        """Plain values; what is infinite is null."""
        starts = [{"lower": _finite(one.lower), "expanded": one.expanded, "finished": one.exact} for one in self.starts]
        return {"lower": _finite(self.lower), "finished": self.finished, "starts": starts}


def worst_case(
    agent: Any, spec: EnvSpec, radius: float, bound: str, starts: int, seed: int, clock: Clock, seconds: float
) -> WorstCase:
    """AWC from the first states of the audit's episodes, anytime: as much as can be proven in `seconds`.

    Each start may take an equal part of what is left; there are fewer starts where a part would be too short.
    """
    begun = time.monotonic()
    adversary = adversary_of(agent, radius, math.inf, bound, "margins")
    found: list[Proven] = []
    seeds = env_seeds(streams(seed)[0], starts)
    for number in range(starts):
        spent = time.monotonic() - begun
        if found and spent + max(spent / number, LEAST) > seconds:
            break
        end = min(clock.left(), (seconds - spent) / (starts - number)) + time.monotonic()
        env = make_cloneable(spec, seeds[number])
        try:
            low = REWARD_LOW.get((spec.suite, spec.id))
            limit = limit_of(env, None)
            found.append(prove(adversary, env, limit, low, late=lambda end=end: time.monotonic() > end))  # type: ignore[misc]
        finally:
            env.close()
        if clock.left() <= 0:
            break
    return WorstCase(tuple(found))


def lifted(found: Sequence[WorstCase | None]) -> list[WorstCase | None]:
    """What is proven at a radius holds at every smaller one too: the better of both, start by start.

    found  by radius, smallest first
    """
    better: list[WorstCase | None] = []
    larger: tuple[Proven, ...] = ()
    for one in reversed(found):
        if one is not None:
            pairs = itertools.zip_longest(one.starts, larger[: len(one.starts)])
            larger = tuple(
                own if over is None else replace(own, lower=max(own.lower, over.lower)) for own, over in pairs
            )
            one = WorstCase(larger)
        better.append(one)
    return better[::-1]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def bracket(level: Level, found: WorstCase | None) -> Bracket:
    """The two sides at one radius; AWC if it proved anything, else the greedy estimate.

    The upper side is what an attack did, and nothing else: that actions are not ruled out does not mean that anyone
    can bring them about.
    """
    if found is not None and math.isfinite(found.lower):
        starts = len(found.starts)
        upper = min((statistics.mean(played.returns[:starts]) for played in level.attacks.values()), default=None)
        for played in level.attacks.values():
            for start, reached in zip(found.starts, played.returns, strict=False):
                if reached < start.lower - EXACT * max(1.0, abs(start.lower)):
                    raise SoundnessError(
                        f"{played.attack} at ε = {level.radius:g} returned {reached}, below the proven {start.lower}"
                    )
        says = "the search was finished" if found.finished else "the search was ended by its budget"
        return Bracket(found.lower, upper, "certified", starts, says)
    worst = level.worst
    upper = None if worst is None else worst.mean
    if level.gwc is not None:
        lower, starts, says = level.gwc["mean"], level.gwc["episodes"], "greedy worst case: an estimate, no bound"
        return _guessed(lower, upper, "estimate", starts, says)
    if level.box is not None and level.box.get("corner_return") is not None:
        says = "greedy worst corner of the certified action box: a heuristic, no bound"
        return _guessed(level.box["corner_return"], upper, "heuristic", level.box["episodes"], says)
    return Bracket(None, upper, "none", 0 if worst is None else len(worst.returns), "nothing is proven")


def _guessed(lower: float, upper: float | None, kind: str, starts: int, says: str) -> Bracket:
    """A lower side that is no bound. Where an attack did worse, it was wrong, and the attack stands in its place."""
    if upper is None or lower <= upper:
        return Bracket(lower, upper, kind, starts, says)
    return Bracket(upper, upper, kind, starts, f"{says}; an attack did worse than its {lower:.1f}")


def reward_is_bounded(spec: EnvSpec) -> bool:
    """Whether a search that ends early can prove anything: the least reward of a step is known."""
    return (spec.suite, spec.id) in REWARD_LOW


# ------------------------------------------------------------------------------------------------ continuous actions


def box_facts(boxes: Bounds, low: Tensor | None, high: Tensor | None) -> dict[str, Any]:
    """Widths of certified action boxes (M, D), relative to the env's range where it is known."""
    lower, upper = boxes.lower.double(), boxes.upper.double()
    if low is None or high is None:
        width = upper - lower
        return {"width": float(width.mean()), "relative": False, "per_axis": width.mean(0).tolist()}
    lower, upper = (torch.minimum(torch.maximum(end, low), high) for end in (lower, upper))
    width = (upper - lower) / (high - low)
    return {"width": float(width.mean()), "relative": True, "per_axis": width.mean(0).tolist()}


def corner_return(agent: Any, world: VecEnv, radius: float, p: float, prover: Prover, q: Any) -> tuple[float, ...]:
    """Returns when each action is moved to the worst corner of its certified box, greedily.

    q  a critic (s, a) → value that was learned from play: the corner towards lower values. None: the corner furthest
       away from the agent's own action
    """
    cut = as_executed(agent, world.actions)

    def choose(view: View) -> Tensor:
        x = agent.prepare(view.obs)
        with torch.no_grad():
            box, mean = prover.method(agent.network, ball_of(agent, x, radius, p)), cut(agent.act(x))
        box = Bounds(cut(box.lower), cut(box.upper))
        if q is None:
            return torch.where(mean - box.lower > box.upper - mean, box.lower, box.upper)
        action = mean.clone().requires_grad_(True)
        with torch.enable_grad():
            slope = torch.autograd.grad(q(torch.cat([x.flatten(1), action], 1)).sum(), action)[0]
        return torch.where(slope > 0, box.lower, box.upper)

    return play(as_trained(agent, world), choose, world.num_envs).returns
