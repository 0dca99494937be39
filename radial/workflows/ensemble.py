"""`worst_of`: every attack that applies, under one budget of time; the strongest one's return is reported.

The strongest is chosen on episodes of its own, so that the reported mean is not the least of many noisy ones. Which
attacks apply is in `audit.suite`, how they learn in time in `audit.learning`; the loop that plays is in `evaluation`.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from radial.agents.foreign import as_agent
from radial.attacks.timing import Timed
from radial.core.agent import Agent, Attack
from radial.core.checks import check_whole, is_finite
from radial.core.data import BadInput, EnvSpec, VecEnv
from radial.core.radius import Radius, as_radius, check_features
from radial.core.text import spell_radius
from radial.envs.make import make_env
from radial.evaluation import statistics
from radial.evaluation.play import Aiming, Evaluation, Fittable, check_spaces, evaluate, side_by_side, spec_of, streams
from radial.evaluation.statistics import lowest
from radial.runs.run import derived_seed
from radial.workflows.attack_names import names_and_objects
from radial.workflows.audit.budget import RESERVED, Clock, Finished, OutOfTime, Until
from radial.workflows.audit.learning import fit_in_time
from radial.workflows.audit.paced import PRIOR, SLACK, USUAL
from radial.workflows.audit.suite import ENVS_OF_FRAMES, aimed, applicable, chosen, masking

FIRST_SHARE = 0.5  # of what is left, at most, for the first episodes of an attack
QUICKEST = "fgsm"  # of those that aim: first where a budget may have no room for the others
FLOOR = "none"  # the adversary may leave an observation alone, so no agent's worst case is above its clean return
Say = Callable[[str], None]
NOTHING_TRIED = "nothing was tried: no attack finished an episode, and this is the clean return"


@dataclass(frozen=True)
class Member(statistics.Averaged):
    """One attack of the ensemble on the selection episodes.

    settings  of the attack, as it was fitted        seconds  of fitting and playing
    played    the episodes it finished: all of them unless the budget cut it off
    """

    attack: str
    settings: str
    seconds: float
    played: Finished

    @property
    def returns(self) -> tuple[float, ...]:  # type: ignore[override]
        """Of these episodes."""
        return self.played.returns

    def to_json(self) -> dict[str, Any]:
        """Plain values that `json` can write."""
        return {
            "attack": self.attack, "settings": self.settings, "seconds": self.seconds, "mean": self.mean,
            "sem": self.sem, "returns": list(self.returns), "numbers": list(self.played.numbers),
            "cut_off": list(self.played.cut_off),
        }  # fmt: skip


@dataclass(frozen=True)
class WorstOf:
    """The return under the strongest of several attacks, and how each of them did.

    attack      the strongest on the selection episodes
    evaluation  under it, on the reported episodes
    members     every attack that finished a selection episode; these start alike for all
    left_out    attacks that do not apply, and why        cuts  what the budget had no time for
    """

    attack: str
    evaluation: Evaluation
    members: tuple[Member, ...]
    selection_seed: int
    left_out: Mapping[str, str] = field(default_factory=dict)
    cuts: tuple[str, ...] = ()
    warning: str | None = None

    @property
    def mean(self) -> float:
        """Mean return under the strongest attack."""
        return self.evaluation.mean

    @property
    def sem(self) -> float:
        """Its standard error over the reported episodes."""
        return self.evaluation.sem

    def to_json(self) -> dict[str, Any]:
        """The evaluation's facts, and the ensemble's under `ensemble`."""
        told = {
            "chosen": self.attack, "members": [member.to_json() for member in self.members],
            "selection_seed": self.selection_seed, "selection_episodes": len(self.members[0].returns),
            "left_out": dict(self.left_out), "cuts": list(self.cuts), "warning": self.warning,
        }  # fmt: skip
        return {**self.evaluation.to_json(), "attack": "worst", "ensemble": told}

    def __str__(self) -> str:
        return f"{self.evaluation.mean:.1f} ± {self.evaluation.sem:.1f} (worst of {len(self.members)}: {self.attack})"


def worst_of(
    agent: Agent,
    env: EnvSpec | str,
    radius: Radius,
    episodes: int = 50,
    seed: int = 0,
    *,
    attacks: str | Sequence[str | Attack | Fittable] | None = None,
    budget: float | None = None,
    p: float = math.inf,
    timing: float | None = None,
    num_envs: int | None = None,
    name: str | None = None,
    progress: Say | None = None,
) -> WorstOf:
    """Attack an agent in every way that applies, and report the strongest.

    Each attack plays as many selection episodes as will be reported, from the same initial states; the one with the
    lowest mean return is then played on the episodes of `seed`. No attack at all is one of the candidates.

    attacks  names in `ATTACKS`, and attacks themselves, fitted or not; default: all that apply
    budget   minutes for everything; None: as long as it takes. Each attack has an equal part of what is left, the
             cheap ones first, and for its first episodes up to half of it if they need that. One that is cut off counts
             with the episodes it finished, and with the clean return of those it did not. `cuts` lists what there was
             no time for
    timing   perturb critical moments only, in this share of the steps; None: all steps
    """
    agent, spec = as_agent(agent), spec_of(env)
    episodes, seed = check_whole("episodes", episodes, 1), check_whole("seed", seed, 0)
    if budget is not None and not (is_finite(budget) and budget > 0):
        raise BadInput(f"budget must be a number of minutes > 0 or None, got {budget!r}")
    radius = as_radius(radius)
    if timing is not None and not (is_finite(timing) and 0 < timing <= 1):
        raise BadInput(f"timing must be a share in (0, 1] or None, got {timing!r}")
    asked, given = names_and_objects(attacks)
    own = {label: each.aimed(radius, p) if isinstance(each, Aiming) else each for label, each in given.items()}
    count = min(side_by_side(spec) if num_envs is None else num_envs, episodes)
    with closing(make_env(spec, 1, seed)) as probe:
        check_spaces(agent, probe)
        check_features(radius, probe.observation_shape)
        names, left_out = applicable(agent, probe.observation_shape)
        frames = len(probe.observation_shape) > 1
    few = count if not frames else ENVS_OF_FRAMES if budget is None else 1
    clock = Clock(None if budget is None else 60 * budget)
    told = progress or (lambda text: None)
    work = _Ensemble(
        agent, spec, radius, p, timing, episodes, seed, count, min(few, count), clock, name, told, own,
    )  # fmt: skip
    wanted = [*chosen(names, left_out, asked), *own]
    if frames and budget is not None:
        wanted.sort(key=lambda attack: attack != QUICKEST)
    tried = work.try_all(wanted)
    if clock.stopped:
        raise KeyboardInterrupt
    if not tried or tried[0].attack != FLOOR:
        raise BadInput(f"budget is too small: {budget:g} minutes ended before a clean episode did")
    clean = tried[0].played.by_start
    returns = {member.attack: member.played.compared(clean) for member in tried}
    best = next(member for member in tried if member.attack == lowest(returns))
    width = tried[0].mean - min(member.mean for member in tried)  # of what any attack could change
    warning = NOTHING_TRIED if len(tried) == 1 else masking(returns, radius, width)
    reported = work.report(best)
    cuts = [*clock.cuts([]), *_fewer("selection episodes of ", tried, episodes)]
    cuts += [] if reported.episodes == episodes else [f"reported episodes: {reported.episodes} of {episodes}"]
    return WorstOf(best.attack, reported, tuple(tried), work.selection_seed, left_out, tuple(cuts), warning)


def _fewer(what: str, tried: Sequence[Member], episodes: int) -> list[str]:
    """The attacks that were cut off in the middle."""
    counts = ((member.attack, len(member.returns)) for member in tried)
    return [f"{what}{attack}: {count} of {episodes}" for attack, count in counts if count < episodes]


@dataclass
class _Ensemble:
    """An ensemble at work.

    together  selection episodes that are played side by side; few on frames, so that some end before time does
    own       attacks that were given themselves, by their label
    playing   seconds of one episode of each attack
    """

    agent: Agent
    spec: EnvSpec
    radius: Radius
    p: float
    timing: float | None
    episodes: int
    seed: int
    num_envs: int
    together: int
    clock: Clock
    name: str | None
    say: Say
    own: Mapping[str, Attack | Fittable] = field(default_factory=dict)
    fitted: dict[str, Attack] = field(default_factory=dict)
    playing: dict[str, float] = field(default_factory=dict)

    @property
    def selection_seed(self) -> int:
        """Of the episodes on which the strongest is chosen: never those of the report."""
        return derived_seed(self.seed, "selection")

    def try_all(self, attacks: Sequence[str]) -> list[Member]:
        """Those that finished an episode, the clean ones first; each has its share of the time that is left."""
        tried = []
        for at, attack in enumerate([FLOOR, *attacks]):
            share = 1 / (len(attacks) + 1 - at)
            member = self.clock.run(attack, partial(self.try_out, attack, share))
            if member is not None:
                tried.append(member)
                self.clock.reserve(self.episodes * self.playing[attack])  # for the report
        return tried

    def try_out(self, attack: str, share: float) -> Member:
        """Fit the attack if it must learn, and play the selection episodes; one that took long to learn plays still.

        share  of the time left
        """
        begun = time.perf_counter()
        with self.clock.within(self.clock.left() * share):
            ready = self._ready(attack)
        fitted = time.perf_counter()
        found = self._select(ready, self.clock.left() * share, self._first_batch(attack))
        ended = time.perf_counter()
        self.playing[attack] = (ended - fitted) / len(found.numbers)
        mean = statistics.mean(found.returns)
        self.say(f"{attack} at ε = {spell_radius(self.radius)}: {mean:.1f} in {ended - begun:.0f} s")
        settings = "none" if ready is None else repr(ready)
        return Member(attack, settings, ended - begun, found)

    def report(self, best: Member) -> Evaluation:
        """The strongest attack on the reported episodes, as many of them as the rest of the budget has room for."""
        left = max(self.clock.until_the_end(), (self.clock.seconds or 0.0) * RESERVED)  # even if another took too long
        room = left / max(self.playing[best.attack], 1e-9)
        episodes = max(1, min(self.episodes, int(min(room, self.episodes))))
        count = min(self.num_envs, episodes)
        with closing(make_env(self.spec, count, streams(self.seed)[0])) as world:
            return self._evaluate(world, self._ready(best.attack), episodes, self.seed)

    def _first_batch(self, attack: str) -> float:
        """Seconds that the first episodes may take: without clean ones nothing is known.

        Others may have half of what is left, if they seem to need it: one attack that was tried is more than none.
        """
        if attack == FLOOR:
            return self.clock.left()
        need = SLACK * PRIOR.get(attack, USUAL) * self.playing[FLOOR] * self.together
        return min(need, FIRST_SHARE * self.clock.left())

    def _select(self, ready: Attack | None, seconds: float, first_batch: float) -> Finished:
        """The selection episodes that ended within their seconds, some side by side.

        first_batch  seconds of the first ones, if that is more
        """
        found, seed, began = Finished(), self.selection_seed, time.monotonic()
        for first in range(0, self.episodes, self.together):
            numbers = range(first, min(first + self.together, self.episodes))
            made = make_env(self.spec, len(numbers), streams(seed)[0], numbers=numbers)
            left = max(seconds, 0.0 if first else first_batch) - (time.monotonic() - began)
            with closing(Until(made, self.clock, numbers)) as world:
                try:
                    with self.clock.within(left):
                        self._evaluate(world, ready, len(numbers), seed)
                except OutOfTime:
                    found = found + world.finished()
                    if not found.numbers:
                        raise
                    return found
                found = found + world.finished()
        return found

    def _evaluate(self, world: VecEnv, attack: Attack | None, episodes: int, seed: int) -> Evaluation:
        return evaluate(self.agent, world, attack, self.radius, episodes, seed, p=self.p, name=self.name)

    def _ready(self, name: str) -> Attack | None:
        """The attack, fitted once in envs of its own."""
        if name == FLOOR:
            return None
        if name not in self.fitted:
            made = self.own[name] if name in self.own else aimed(name, self.radius, self.p)[0]
            self.fitted[name] = self._fit(name, made) if self.timing is None else self._timed(self._fit(name, made))
        return self.fitted[name]

    def _fit(self, name: str, attack: Any) -> Attack:
        if not isinstance(attack, Fittable):
            ready: Attack = attack
            return ready
        self.say(f"fitting {name}")
        return fit_in_time(attack, self.agent, self.spec, streams(self.seed)[1], self.clock)

    def _timed(self, attack: Attack) -> Attack:
        assert self.timing is not None
        return Timed(attack, self.timing).fit(self.agent, self.spec, streams(self.seed)[1])
