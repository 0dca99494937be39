"""`worst_of`: every attack that applies, under one budget of time; the strongest one's return is reported.

The strongest is chosen on episodes of its own, so that the reported mean is not the least of many noisy ones. Which
attacks apply is in `audit.suite`; the loop that plays is in `evaluation`.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from radial.agents.foreign import as_agent
from radial.attacks.learned.adversaries import Adversary
from radial.core.agent import Agent, Attack
from radial.core.checks import check_whole, is_finite
from radial.core.data import BadInput, EnvSpec
from radial.core.text import spell_radius
from radial.envs.make import make_env
from radial.evaluation import statistics
from radial.evaluation.play import Evaluation, Fittable, check_spaces, evaluate, side_by_side, spec_of, streams
from radial.runs.run import derived_seed
from radial.workflows.audit.budget import Clock, Until
from radial.workflows.audit.learning import fit_in_time
from radial.workflows.audit.suite import aimed, applicable, attacks_of, chosen, envs_to_fit, masking

FLOOR = "none"  # the adversary may leave an observation alone, so no agent's worst case is above its clean return
Say = Callable[[str], None]
_Key = TypeVar("_Key")


@dataclass(frozen=True)
class Member(statistics.Averaged):
    """One attack of the ensemble on the selection episodes.

    settings  of the attack, as it was fitted        seconds  of fitting and playing
    """

    attack: str
    settings: str
    returns: tuple[float, ...]
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Plain values that `json` can write."""
        return {**vars(self), "returns": list(self.returns), "mean": self.mean, "sem": self.sem}


@dataclass(frozen=True)
class WorstOf:
    """The return under the strongest of several attacks, and how each of them did.

    attack      the strongest on the selection episodes
    evaluation  under it, on the reported episodes
    members     every attack that was tried, on the selection episodes, which start alike for all
    left_out    attacks that do not apply, and why        cuts  those the budget had no time for
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
    radius: float,
    episodes: int = 50,
    seed: int = 0,
    *,
    attacks: str | Sequence[str] | None = None,
    budget: float | None = None,
    p: float = math.inf,
    num_envs: int | None = None,
    name: str | None = None,
    progress: Say | None = None,
) -> WorstOf:
    """Attack an agent in every way that applies, and report the strongest.

    Each attack plays as many selection episodes as will be reported, from the same initial states; the one with the
    lowest mean return is then played on the episodes of `seed`. No attack at all is one of the candidates.

    attacks  names in `ATTACKS`; default: all that apply
    budget   minutes for everything; None: as long as it takes. Attacks there was no time for are listed in `cuts`
    """
    agent, spec = as_agent(agent), spec_of(env)
    episodes, seed = check_whole("episodes", episodes, 1), check_whole("seed", seed, 0)
    if budget is not None and not (is_finite(budget) and budget > 0):
        raise BadInput(f"budget must be a number of minutes > 0 or None, got {budget!r}")
    asked = attacks_of(attacks)
    count = min(side_by_side(spec) if num_envs is None else num_envs, episodes)
    with closing(make_env(spec, 1, seed)) as probe:
        check_spaces(agent, probe)
        names, left_out = applicable(agent, probe.observation_shape)
    clock = Clock(None if budget is None else 60 * budget)
    work = _Ensemble(agent, spec, float(radius), p, episodes, seed, count, clock, name, progress or (lambda text: None))
    wanted = [FLOOR, *chosen(names, left_out, asked)]
    tried = [member for each in wanted if (member := clock.run(each, partial(work.try_out, each))) is not None]
    if clock.stopped:
        raise KeyboardInterrupt
    if len(tried) < min(2, len(wanted)):
        raise BadInput(f"budget is too small: {budget:g} minutes ended before the first attack had played its episodes")
    best = strongest({member.attack: member.returns for member in tried})
    returns = {member.attack: dict(enumerate(member.returns)) for member in tried}
    width = tried[0].mean - min(member.mean for member in tried)  # of what any attack could change
    return WorstOf(
        best, work.play(best, seed, None), tuple(tried), work.selection_seed, left_out,
        tuple(clock.cuts([float(radius)])), masking(returns, float(radius), width),
    )  # fmt: skip


def strongest(returns: Mapping[_Key, Sequence[float]]) -> _Key:
    """The attack with the lowest mean return; of equal ones the first."""
    return min(returns, key=lambda attack: statistics.mean(returns[attack]))


@dataclass
class _Ensemble:
    agent: Agent
    spec: EnvSpec
    radius: float
    p: float
    episodes: int
    seed: int
    num_envs: int
    clock: Clock
    name: str | None
    say: Say
    fitted: dict[str, Attack] = field(default_factory=dict)

    @property
    def selection_seed(self) -> int:
        """Of the episodes on which the strongest is chosen: never those of the report."""
        return derived_seed(self.seed, "selection")

    def try_out(self, attack: str) -> Member:
        """Fit the attack if it must learn, and play the selection episodes."""
        begun = time.perf_counter()
        found = self.play(attack, self.selection_seed, self.clock)
        seconds = time.perf_counter() - begun
        self.clock.reserve(seconds)  # for the report
        self.say(f"{attack} at ε = {spell_radius(self.radius)}: {found.mean:.1f} in {seconds:.0f} s")
        return Member(attack, found.attack, found.returns, seconds)

    def play(self, attack: str, seed: int, clock: Clock | None) -> Evaluation:
        """Episodes under an attack; with a clock, only while there is time."""
        ready = None if attack == FLOOR else self._ready(attack)
        made = make_env(self.spec, self.num_envs, streams(seed)[0])
        with closing(made if clock is None else Until(made, clock, range(self.num_envs))) as world:
            return evaluate(
                self.agent, world, ready, self.radius, self.episodes, seed, num_envs=self.num_envs, p=self.p,
                name=self.name,
            )  # fmt: skip

    def _ready(self, name: str) -> Attack:
        """The attack, fitted once in envs of its own."""
        if name not in self.fitted:
            made, _ = aimed(name, self.radius, self.p)
            self.fitted[name] = self._fit(name, made) if isinstance(made, Fittable) else made
        return self.fitted[name]

    def _fit(self, name: str, attack: Any) -> Attack:
        seed = streams(self.seed)[1]
        self.say(f"fitting {name}")
        if isinstance(attack, Adversary):
            return fit_in_time(attack, self.agent, self.spec, seed, self.clock)
        envs = envs_to_fit(attack, self.agent)
        with closing(Until(make_env(self.spec, envs, seed), self.clock, range(envs))) as world:
            return attack.fit(self.agent, world, seed)
