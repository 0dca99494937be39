"""`audit`: every attack and every certificate that applies, in the order in which they matter most.

Work that a short budget leaves out is listed; nothing is silently weaker than it says.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from radial.core.agent import Agent, Attack
from radial.core.checks import check_whole, is_finite
from radial.core.data import BadInput, Continuous, Discrete, EnvSpec, VecEnv
from radial.core.text import spell_radius
from radial.envs.make import make_env
from radial.evaluation import statistics
from radial.evaluation.certificates import gwc
from radial.evaluation.play import Episodes, Fittable, check_spaces, evaluate, streams
from radial.evaluation.prover import Prover
from radial.evaluation.repeatable import NotGreedy
from radial.evaluation.worst_case import AbsoluteWorstCase
from radial.workflows.audit import states
from radial.workflows.audit.budget import Clock, OutOfTime, Until
from radial.workflows.audit.result import AuditResult, Level, Played, headline, requirement
from radial.workflows.audit.subject import Audited, audited, default_bound, texts_of
from radial.workflows.audit.suite import LEARNED, aimed, applicable, attacks_of, chosen, envs_to_fit, masking
from radial.workflows.audit.trace import record
from radial.workflows.audit.units import feature_names, in_env_units, ladder, radii_of, units_of
from radial.workflows.audit.worst import (
    ActionValue,
    awc_facts,
    box_facts,
    bracket,
    certified_return,
    cloneable,
    corner_return,
    lifted,
    reward_is_bounded,
)

Say = Callable[[str], None]
SAMPLE, SAMPLE_OF_FRAMES = 20_000, 64  # visited states that are certified, at most
SLICE = 0.3  # of the remaining budget, for the absolute worst case
RESERVE = 3.0  # times the time of clean episodes, or of attacked ones: for recording one at the end
UNHURRIED = 120.0  # seconds for the absolute worst case at each radius where there is no budget


def audit(
    agent: Agent | str | Path,
    env: EnvSpec | str | None = None,
    radius: float | Sequence[float] | None = None,
    *,
    episodes: int = 20,
    budget: float | None = 10.0,
    seed: int = 0,
    p: float = math.inf,
    bound: str | None = None,
    attacks: str | Sequence[str] | None = None,
    require: str | Sequence[str] = (),
    trace: bool = True,
    name: str | None = None,
    progress: Say | None = None,
) -> AuditResult:
    """How robust is this agent? Clean return, return under each attack and a certified lower bound, at each radius.

    agent    an agent, the path of one (ours, the papers', Stable-Baselines3's or CleanRL's), or its name in the zoo
    env      an id or a spec; default: the one on the agent's card or in the name of its file
    radius   one or several, in network units; default: a ladder that suits the kind of observation
    budget   minutes; None: as long as it takes. Work there was no time for is listed in `cuts`
    bound    ibp, crown-ibp, crown or best; default: crown, and crown-ibp for convolutional networks
    attacks  names in `ATTACKS`; [] or "none": no attack; default: all that apply
    require  texts such as "return@0.05>=400"; their radii are added to those that are tried
    """
    episodes = check_whole("episodes", episodes, 1)
    seed = check_whole("seed", seed, 0)
    if budget is not None and not (is_finite(budget) and budget > 0):
        raise BadInput(f"budget must be a number of minutes > 0 or None, got {budget!r}")
    wanted = [requirement(text) for text in texts_of("require", require)]
    asked = attacks_of(attacks)
    who = audited(agent, env, name)
    more = [each.radius for each in wanted if each.radius is not None]
    radii = radii_of(ladder(who.agent) if radius is None else radius, p, more)
    clock = Clock(None if budget is None else 60 * budget)
    prover = Prover.of(bound or default_bound(who.agent))
    say = progress or (lambda text: None)
    clean = _clean_episodes(who, episodes, seed, clock, asked)
    nominal = Played("none", 0.0, "none", clean.played.returns, clean.played.lengths)
    say(f"clean return: {nominal.mean:.1f}")
    result = AuditResult(_facts(who, clean, episodes, seed, p, prover, clock), nominal, [Level(each) for each in radii])
    work = _Audit(who, clean, episodes, seed, p, prover, clock, say, result, trace and clean.unbounded is None)
    return work.run()


def assert_robust(agent: Agent | str | Path, *requirements: str, **settings: Any) -> AuditResult:
    """Audit an agent in a test suite: raise `AssertionError` with one line for each requirement that it breaks.

    requirements  such as "return@0.05>=400" or "acr@0.01>=0.9"        settings  of `audit`
    """
    wanted = [requirement(text) for text in requirements]
    result = audit(agent, require=requirements, trace=False, **settings)
    broken = [line for line in (each.broken(result) for each in wanted) if line is not None]
    if broken:
        raise AssertionError("\n".join(broken))
    return result


@dataclass(frozen=True)
class _Clean:
    """The clean episodes with which an audit begins, and the facts they show.

    names      attacks that apply and were asked for        left_out  why the others do not apply
    unbounded  why the network cannot be bounded; None: it can
    """

    shape: tuple[int, ...]
    engine: Mapping[str, str]
    actions: Discrete | Continuous
    names: list[str]
    left_out: dict[str, str]
    played: Episodes
    visited: states.Visited
    unbounded: str | None


def _clean_episodes(who: Audited, episodes: int, seed: int, clock: Clock, asked: Sequence[str] | None) -> _Clean:
    """Look up the attacks, then play."""
    agent, world = who.agent, _world(who, episodes, seed, clock)
    try:
        check_spaces(agent, world)
        names, left_out = applicable(agent, world.observation_shape)
        names = chosen(names, left_out, asked)
        played, visited = states.visit(agent, world, episodes, who.name)
    except OutOfTime:
        raise BadInput("budget is too small: it ended before the clean episodes did") from None
    finally:
        world.close()
    unbounded = states.why_unbounded(agent, visited.x(slice(1)))
    return _Clean(world.observation_shape, world.engine, world.actions, names, left_out, played, visited, unbounded)


def _world(who: Audited, episodes: int, seed: int, clock: Clock) -> VecEnv:
    """An env for each episode; all audits with this seed start alike."""
    return Until(make_env(who.spec, episodes, streams(seed)[0]), clock)


def _facts(
    who: Audited, clean: _Clean, episodes: int, seed: int, p: float, prover: Prover, clock: Clock
) -> dict[str, Any]:
    spec, shape = who.spec, clean.shape
    return {
        "agent": who.name, "about": who.about, "env": spec.id, "env_options": dict(spec.options),
        "engine": dict(clean.engine), "episodes": episodes, "seed": seed,
        "p": "inf" if math.isinf(p) else p, "bound": prover.name,
        "arithmetic": prover.arithmetic, "discrete": isinstance(who.agent.actions, Discrete),
        "observation_shape": list(shape), "units": "shares of the range" if len(shape) == 3 else "network units",
        "features": feature_names(spec, shape[0]) if len(shape) == 1 else [],
        "budget_minutes": None if clock.seconds is None else clock.seconds / 60,
    }  # fmt: skip


@dataclass
class _Audit:
    """An audit under way, and its findings so far."""

    who: Audited
    clean: _Clean
    episodes: int
    seed: int
    p: float
    prover: Prover
    clock: Clock
    say: Say
    result: AuditResult
    recorded: bool  # an episode in the end
    fitted: dict[str, Any] = field(default_factory=dict)
    proven: dict[float, AbsoluteWorstCase] = field(default_factory=dict)

    def run(self) -> AuditResult:
        result, clean = self.result, self.clean
        if self.recorded:
            self.clock.reserve(RESERVE * self.clock.spent)
        result.left_out, result.notes = clean.left_out, list(self.who.notes)
        if clean.unbounded is not None:
            result.notes.append(f"nothing can be certified, and no episode is shown: {clean.unbounded}")
        units = units_of(self.who.agent, clean.shape)
        for level in result.levels:
            level.env_units = in_env_units(units, level.radius)
        self._tasks(clean.names)
        self._finish()
        return result

    def _tasks(self, names: list[str]) -> None:
        """In the order in which they matter; each as far as there is time."""
        learned = [name for name in dict.fromkeys(names) if name in LEARNED]
        quick = [name for name in dict.fromkeys(names) if name not in LEARNED]
        began = self.clock.spent
        self._attacks(quick[:1])  # the answer that a budget of a minute must have
        if self.recorded:
            self.clock.reserve(RESERVE * (self.clock.spent - began) / len(self.result.levels))
        if self.clean.unbounded is not None:
            self._attacks([*quick[1:], *learned])
        elif isinstance(self.who.agent.actions, Discrete):
            self._each("action certification rate", self._rate)
            self.clock.run("certified radius", self._certified_radius)
            self._worst_cases()
            self._attacks(quick[1:] if self.proven else [])  # beside a certified return they say more than GWC
            self._each("greedy worst case", self._greedy)
            self._attacks([*([] if self.proven else quick[1:]), *learned])
        else:
            self._each("action boxes", self._boxes)
            self._attacks(quick[1:])
            self._each("worst corner, by distance", partial(self._corner, "by distance", None))
            self._attacks(learned)
            if "rs" in self.fitted:
                critic = self.fitted["rs"].q
                self._each("worst corner, by critic", partial(self._corner, "by a learned critic", critic))

    def _each(self, what: str, work: Callable[[Level], None]) -> None:
        """The same at every radius."""
        for level in self.result.levels:
            self.clock.run(f"{what} at {spell_radius(level.radius)}", partial(self._noted, work, level))

    def _noted(self, work: Callable[..., Any], *given: Any) -> Any:
        """Do something that needs an agent that takes its best action; one that does not is noted."""
        try:
            return work(*given)
        except NotGreedy as error:
            self.result.notes += [] if str(error) in self.result.notes else [str(error)]
            return None

    # ------------------------------------------------------------------------------------------------------- attacks

    def _attacks(self, names: Sequence[str]) -> None:
        for name in names:
            self._each(name, partial(self._attack, name))

    def _attack(self, name: str, level: Level) -> None:
        attack = self._fitted(name, level.radius)
        world = _world(self.who, self.episodes, self.seed, self.clock)
        try:
            found = evaluate(
                self.who.agent, world, attack, level.radius, self.episodes, self.seed, num_envs=self.episodes, p=self.p
            )
        finally:
            world.close()
        gaps = [a - b for a, b in zip(self.result.nominal.returns, found.returns, strict=True)]
        played = Played(
            name, level.radius, found.attack, found.returns, found.lengths, statistics.mean(gaps), statistics.sem(gaps)
        )
        level.attacks[name] = played
        self.say(f"return under {name} at ε = {spell_radius(level.radius)}: {played.mean:.1f}")

    def _fitted(self, name: str, radius: float) -> Attack:
        """The attack; one that learns does so once, or once for each radius, in envs of its own."""
        made, key = aimed(name, radius, self.p)
        if key not in self.fitted:
            if isinstance(made, Fittable):
                self.say(f"fitting {name}")
                fit_seed = streams(self.seed)[1]
                world = Until(make_env(self.who.spec, envs_to_fit(made, self.who.agent), fit_seed), self.clock)
                try:
                    made = made.fit(self.who.agent, world, fit_seed)  # type: ignore[arg-type]
                finally:
                    world.close()
            self.fitted[key] = made
        return self.fitted[key]

    # -------------------------------------------------------------------------------------------------- certificates

    def _sample(self) -> states.Visited:
        return self.clean.visited.thinned(SAMPLE_OF_FRAMES if self.clean.visited.kept.ndim > 2 else SAMPLE)

    def _rate(self, level: Level) -> None:
        agent, seen = self.who.agent, self._sample()
        proven = states.certified(agent, seen, level.radius, self.p, self.prover, self.clock)
        changed = states.falsified(
            agent, seen, level.radius, self.p, proven, self.prover, streams(self.seed)[2], self.clock
        )
        rates = states.share_by_episode(proven, seen.episode)
        level.acr = {
            "mean": statistics.mean(rates), "sem": statistics.sem(rates), "states": len(seen), "of": seen.of,
            "certified": int(proven.sum()), "attacked": int(changed.sum()),
            "unknown": int((~proven & ~changed).sum()), "distinct_actions": states.distinct_actions(agent, seen),
        }  # fmt: skip
        self.say(f"certified actions at ε = {spell_radius(level.radius)}: {level.acr['mean']:.3f}")

    def _greedy(self, level: Level) -> None:
        with closing(_world(self.who, self.episodes, self.seed, self.clock)) as world:
            found = gwc(
                self.who.agent, world, level.radius, self.prover.name, self.episodes, self.seed, p=self.p,
                rule="margins", num_envs=self.episodes,
            )  # fmt: skip
        level.gwc = {"mean": found.mean, "sem": found.sem, "returns": list(found.returns), "episodes": self.episodes}
        self.say(f"greedy worst case at ε = {spell_radius(level.radius)}: {found.mean:.1f}")

    def _certified_radius(self) -> None:
        seen, agent = self._sample(), self.who.agent
        largest = states.largest_radius(agent)
        found = states.certified_radius(agent, seen, largest, self.p, self.prover, self.clock)
        units = units_of(agent, tuple(seen.x(slice(1)).shape[1:]))
        mean = float(found.mean())
        self.result.certified_radius = {
            "mean": mean, "median": float(found.median()), "least": float(found.min()), "most": float(found.max()),
            "largest_tried": largest, "states": len(seen), "of": seen.of,
            "env_units": in_env_units(units, mean),
        }  # fmt: skip
        self.say(f"mean certified radius: {mean:.3g}")

    def _worst_cases(self) -> None:
        if not math.isinf(self.p):
            self.result.notes.append("returns are certified for p = inf only: the lower side is an estimate (GWC)")
            return
        if not cloneable(self.who.spec):
            self.result.notes.append("the env cannot be cloned: the lower side of the bracket is an estimate (GWC)")
            return
        if not reward_is_bounded(self.who.spec):
            self.result.notes.append("the least reward of a step is not known here: no return can be certified in time")
            return
        levels = self.result.levels
        for i, level in enumerate(levels):
            share = self.clock.left() * SLICE / (len(levels) - i) if self.clock.end is not None else UNHURRIED
            found = self.clock.run(
                f"absolute worst case at {spell_radius(level.radius)}",
                partial(
                    self._noted, certified_return, self.who.agent, self.who.spec, level.radius, self.prover.name,
                    self.episodes, self.seed, self.clock, share,
                ),
            )  # fmt: skip
            if found is not None:
                self.proven[level.radius] = found
                word, count = "the search is finished" if found.exact else "so far", len(found.starts)
                whose = "return from 1 start" if count == 1 else f"mean return from {count} starts"
                self.say(f"certified at ε = {spell_radius(level.radius)}: {whose} ≥ {found.lower:.1f}, {word}")

    def _boxes(self, level: Level) -> None:
        seen = self._sample()
        boxes = states.action_boxes(self.who.agent, seen, level.radius, self.p, self.prover, self.clock)
        low, high = self._limits()
        level.box = {**box_facts(boxes, low, high), "states": len(seen), "of": seen.of, "corner_return": None}
        self.say(f"certified action box at ε = {spell_radius(level.radius)}: {level.box['width']:.3f} wide")

    def _corner(self, way: str, q: ActionValue | None, level: Level) -> None:
        """The return with every action in the worst corner of its box: furthest away, or valued least by a critic.

        Both are heuristics; the worse one counts.
        """
        if level.box is None:
            return
        with closing(_world(self.who, self.episodes, self.seed, self.clock)) as world:
            returns = corner_return(self.who.agent, world, level.radius, self.p, self.prover, q)
        mean, known = statistics.mean(returns), level.box["corner_return"]
        if known is None or mean < known:
            level.box |= {
                "corner": way, "corner_return": mean, "corner_sem": statistics.sem(returns), "episodes": self.episodes,
            }  # fmt: skip
        self.say(f"worst corner at ε = {spell_radius(level.radius)}: {mean:.1f} ({way})")

    # --------------------------------------------------------------------------------------------------------- the end

    def _finish(self) -> None:
        result = self.result
        proven = lifted([self.proven.get(level.radius) for level in result.levels])
        for level, found in zip(result.levels, proven, strict=True):
            level.awc = awc_facts(found)
            level.bracket = bracket(level, found)
            warning = masking({name: played.returns for name, played in level.attacks.items()}, level.radius)
            result.warnings += [] if warning is None else [warning]
        result.verdict = headline(result, attacked=bool(self.clean.names))
        result.cuts = self.clock.cuts
        if self.recorded:
            result.trace = self._trace()
        result.wall_seconds = self.clock.spent

    def _trace(self) -> dict[str, Any] | None:
        """The smallest radius at which the worst attack costs a tenth; else the largest that was attacked."""
        tried = [(level, level.worst) for level in self.result.levels if level.worst is not None]
        if not tried:
            return None
        clean = self.result.nominal.mean
        hurt = [pair for pair in tried if pair[1] is not None and clean - pair[1].mean > 0.1 * abs(clean)]
        level, worst = hurt[0] if hurt else tried[-1]
        assert worst is not None
        self.say(f"recording an episode: {worst.attack} at ε = {spell_radius(level.radius)}")
        return record(
            self.who.agent, self.who.spec, self._fitted(worst.attack, level.radius), worst.attack, level.radius, self.p,
            self.prover, self.seed, self.clock.until_the_end(),
        )  # fmt: skip

    def _limits(self) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        actions = self.clean.actions
        if not isinstance(actions, Continuous) or actions.low is None or actions.high is None:
            return None, None
        return torch.tensor(actions.low, dtype=torch.float64), torch.tensor(actions.high, dtype=torch.float64)
