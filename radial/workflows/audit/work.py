"""An audit under way: attacks and certificates in the order in which they inform, each as far as there is time.

A short budget reduces episodes before radii; the middle and the largest radius come before the smallest.
"""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from radial.attacks.learned.adversaries import Adversary
from radial.cluster import Place
from radial.core.agent import Attack
from radial.core.data import Discrete
from radial.core.text import digits_down, percent_down, round_down, round_up, spell_radius
from radial.evaluation import statistics
from radial.evaluation.certificates import gwc
from radial.evaluation.play import Aiming, Fittable, evaluate, streams
from radial.evaluation.prover import Prover
from radial.evaluation.repeatable import NotGreedy
from radial.evaluation.worst_case import AbsoluteWorstCase
from radial.workflows.audit import states
from radial.workflows.audit.budget import Clock, Finished, OutOfTime, Until, grouped
from radial.workflows.audit.clean import Beginning, Begun
from radial.workflows.audit.learning import fit_in_time
from radial.workflows.audit.paced import Paced
from radial.workflows.audit.result import AuditResult, Level, Played
from radial.workflows.audit.side_by_side import attack_side_by_side
from radial.workflows.audit.subject import Audited
from radial.workflows.audit.suite import AUDIT_STEPS, LEARNED, aimed, masking
from radial.workflows.audit.trace import record
from radial.workflows.audit.units import in_env_units, in_order, units_of
from radial.workflows.audit.verdict import headline, selection
from radial.workflows.audit.worst import (
    ActionValue,
    awc_facts,
    box_facts,
    bracket,
    certified_return,
    cloneable,
    corner_return,
    least_return,
    lifted,
    reward_is_bounded,
)

SAMPLE, SAMPLE_OF_FRAMES = 20_000, 64  # visited states that are certified, at most
EARLY, EARLY_OF_FRAMES = 64, 8  # of them before any attack
EARLY_SHARE = 0.15  # of the budget, for these
FIRST_SHARE = 0.5  # of the remaining budget, for the first attack
OTHER_SHARE = 0.6  # of what is left then, for the others that need not learn
SLICE = 0.3  # of the remaining budget, for the absolute worst case
RESERVE = 3.0  # times the time of a clean episode, or of an attacked one: for recording one at the end
UNHURRIED = 120.0  # seconds for the absolute worst case at each radius where there is no budget
GREEDY = "greedy worst case"


@dataclass
class Work:
    """An audit under way, and its findings so far."""

    who: Audited
    start: Beginning
    clean: Begun
    p: float
    prover: Prover
    clock: Clock
    result: AuditResult
    recorded: bool  # an episode in the end
    paced: Paced
    place: Place = Place()  # where attacks are run
    fitted: dict[str, Any] = field(default_factory=dict)
    late: set[str] = field(default_factory=set)  # attacks that had not learned when their time was over
    proven: dict[float, AbsoluteWorstCase] = field(default_factory=dict)
    coming: list[str] = field(default_factory=list)  # attacks, once for each radius

    @property
    def order(self) -> list[Level]:
        """The levels, those first that tell most."""
        return [self.result.levels[i] for i in in_order([level.radius for level in self.result.levels])]

    @property
    def numbers(self) -> tuple[int, ...]:
        """Of the starts of all clean episodes."""
        return self.clean.episodes.numbers

    def run(self) -> AuditResult:
        """Everything, as far as there is time."""
        if self.recorded:
            self.clock.reserve(RESERVE * self.clean.seconds)
        try:
            self._tasks(list(dict.fromkeys(self.clean.names)))
        except KeyboardInterrupt:  # between two tasks
            self.clock.stopped = True
        self._finish()
        return self.result

    def _tasks(self, names: list[str]) -> None:
        learned = [name for name in names if name in LEARNED]
        quick = [name for name in names if name not in LEARNED]
        self.coming = names * len(self.result.levels)
        self._early()
        quick = self._affordable(quick)
        self._attacks(quick[:1], FIRST_SHARE)  # the answer that a budget of a minute must have
        if self.clean.unbounded is not None:
            self._attacks([*quick[1:], *learned])
        elif isinstance(self.who.agent.actions, Discrete):
            self._worst_cases()
            self._attacks(quick[1:], OTHER_SHARE)
            self._each("certified actions", partial(self._rate, self._limit()))
            self.clock.run("certified radius", partial(self._certified_radius, self._limit()))
            self._each(GREEDY, self._greedy)
            self._attacks(learned)
        else:
            self._attacks(quick[1:], OTHER_SHARE)
            self._each("action boxes", partial(self._boxes, self._limit()))
            self._each("worst corner, by distance", partial(self._corner, "by distance", None))
            self._attacks(learned)
            if "rs" in self.fitted:
                critic = self.fitted["rs"].q
                self._each("worst corner, by critic", partial(self._corner, "by a learned critic", critic))
        self._top_up([*quick, *learned])

    def _affordable(self, names: list[str]) -> list[str]:
        """The same, but one comes first of which a few episodes fit into its share of the time, or else the quickest.

        Noise only if there is no time for anything else.
        """
        left, least = self.clock.left(), self.paced.least
        aimed = [name for name in names if name != "random"]
        first = [name for name in aimed if least(name) <= FIRST_SHARE * left]
        first = first or sorted((name for name in aimed if least(name) <= left), key=least) or sorted(names, key=least)
        return [*first[:1], *(name for name in names if name not in first[:1])]

    def _each(self, what: str, work: Callable[[Level], None]) -> None:
        """The same at every radius."""
        for level in self.order:
            self.clock.run(what, partial(self._noted, work, level), level.radius)

    def _noted(self, work: Callable[..., Any], *given: Any) -> Any:
        """Do something that needs an agent that takes its best action; one that does not is noted."""
        try:
            return work(*given)
        except NotGreedy as error:
            self.result.notes += [] if str(error) in self.result.notes else [str(error)]
            return None

    def _early(self) -> None:
        """Certificates of a few states, before any attack; what there is no time for comes again later."""
        if self.clean.unbounded is not None:
            return
        few = EARLY_OF_FRAMES if self.clean.frames else EARLY
        discrete = isinstance(self.who.agent.actions, Discrete)
        before = len(self.clock.cut)
        with self.clock.within(float("inf") if self.clock.seconds is None else EARLY_SHARE * self.clock.seconds):
            what = "certified actions" if discrete else "action boxes"
            self._each(what, partial(self._rate if discrete else self._boxes, few))
            if discrete and not self.clean.frames:
                self.clock.run("certified radius", partial(self._certified_radius, few))
        del self.clock.cut[before:]

    # ------------------------------------------------------------------------------------------------------- attacks

    def _attacks(self, names: Sequence[str], share: float = 1.0) -> None:
        """Attacks at every radius; each has an equal part of the time, and plays as many episodes as fit into it."""
        if names and not self.place.is_here:
            self.clock.run(", ".join(names), partial(attack_side_by_side, self, names, share))
            names = ()
        for i, name in enumerate(names):
            for j, level in enumerate(self.order):
                parts = (len(names) - i) * (len(self.order) - j)
                self.clock.ahead = sum(self.paced.pace.seconds(each, len(self.numbers)) for each in self.coming)
                seconds = share * self.clock.left() / parts
                self.clock.run(name, partial(self.attack, name, level, seconds), level.radius)
                if name in self.coming:
                    self.coming.remove(name)
        if self.recorded and names:
            self.clock.reserve(RESERVE * self.paced.pace.seconds(names[0], 1))

    def attack(self, name: str, level: Level, seconds: float, numbers: Sequence[int] | None = None) -> None:
        """Play under an attack at a level's radius, for about so many seconds."""
        began = time.monotonic()
        attack = self._fitted(name, level.radius, seconds)
        seconds -= time.monotonic() - began
        numbers = self.numbers if numbers is None else numbers
        numbers = numbers[: self.paced.count(name, seconds, len(numbers))]
        self.clock.doing = f"{name} at ε = {spell_radius(level.radius)}"

        def fight(world: Until) -> object:
            return evaluate(self.who.agent, world, attack, level.radius, len(numbers), self.start.seed, p=self.p)

        found = self.paced.episodes(name, numbers, seconds, fight)
        before = level.attacks.get(name)
        if before is not None:
            found = Finished(tuple(before.by_start), before.returns, before.lengths, before.unharmed) + found
        level.attacks[name] = played = self._played(name, level.radius, repr(attack), found)
        self.clock.tell(f"return under {self.clock.doing}: {played.mean:.1f}")

    def _played(self, name: str, radius: float, settings: str, found: Finished) -> Played:
        played = Played(name, radius, settings, found.returns, found.lengths, numbers=found.numbers)
        gaps, unharmed = tuple(played.gaps(self.result.nominal).values()), found.unharmed(self.result.nominal.by_start)
        return replace(played, gap=statistics.mean(gaps), gap_sem=statistics.sem(gaps), unharmed=unharmed)

    def _fitted(self, name: str, radius: float, seconds: float = math.inf) -> Attack:
        """The attack; one that learns does so once in the time of all radii, or once for each, in envs of its own."""
        made, key = aimed(name, radius, self.p)
        if key in self.late:
            raise OutOfTime
        if key not in self.fitted:
            try:
                with self.clock.within(seconds * (1 if isinstance(made, Aiming) else max(1, len(self.result.levels)))):
                    self.fitted[key] = self._fit(name, made) if isinstance(made, Fittable) else made
            except OutOfTime:
                self.late.add(key)
                raise
        return self.fitted[key]

    def _fit(self, name: str, attack: Any) -> Attack:
        self.clock.doing = f"fitting {name}"
        self.clock.tell(f"fitting {name}")
        attack = replace(attack, steps=AUDIT_STEPS) if isinstance(attack, Adversary) else attack
        return fit_in_time(attack, self.who.agent, self.who.spec, streams(self.start.seed)[1], self.clock)

    def _top_up(self, names: Sequence[str]) -> None:
        """With the time that is left, play the episodes that a cautious estimate had left out."""
        for name in names:
            for level in self.order:
                played = level.attacks.get(name)
                missing = [n for n in self.numbers if played is not None and n not in played.by_start]
                if missing and self.clock.left() > self.paced.pace.seconds(name, 1):
                    before = len(self.clock.cut)
                    work = partial(self.attack, name, level, self.clock.left(), missing)
                    self.clock.run(name, work, level.radius)
                    del self.clock.cut[before:]  # it has episodes already

    # -------------------------------------------------------------------------------------------------- certificates

    def _limit(self) -> int:
        return SAMPLE_OF_FRAMES if self.clean.frames else SAMPLE

    def _rate(self, limit: int, level: Level) -> None:
        agent, seen = self.who.agent, self.clean.visited.thinned(limit)
        if level.acr is not None and level.acr["states"] >= len(seen):
            return
        proven = states.certified(agent, seen, level.radius, self.p, self.prover, self.clock)
        changed = states.falsified(
            agent, seen, level.radius, self.p, proven, self.prover, streams(self.start.seed)[2], self.clock
        )
        rates = states.share_by_episode(proven, seen.episode)
        level.acr = {
            "mean": statistics.mean(rates), "sem": statistics.sem(rates), "states": len(seen), "of": seen.of,
            "certified": int(proven.sum()), "attacked": int(changed.sum()),
            "unknown": int((~proven & ~changed).sum()), "distinct_actions": states.distinct_actions(agent, seen),
        }  # fmt: skip
        self.clock.tell(f"{self.clock.doing}: {percent_down(level.acr['mean'])} of {len(seen)} states")

    def _greedy(self, level: Level) -> None:
        parts = sum(one.gwc is None for one in self.result.levels)
        seconds = self.clock.left() / (1 + parts)
        numbers = self.numbers[: self.paced.count(GREEDY, seconds, len(self.numbers))]

        def play(world: Until) -> object:
            return gwc(
                self.who.agent, world, level.radius, self.prover.name, len(numbers), self.start.seed, p=self.p,
                rule="margins",
            )  # fmt: skip

        returns = self.paced.episodes(GREEDY, numbers, seconds, play).returns
        level.gwc = {
            "mean": statistics.mean(returns), "sem": statistics.sem(returns), "returns": list(returns),
            "episodes": len(returns),
        }  # fmt: skip
        self.clock.tell(f"{self.clock.doing}: {level.gwc['mean']:.1f}")

    def _certified_radius(self, limit: int) -> None:
        seen, agent, known = self.clean.visited.thinned(limit), self.who.agent, self.result.certified_radius
        if known is not None and known["states"] >= len(seen):
            return
        largest = states.largest_radius(agent)
        found = states.certified_radius(agent, seen, largest, self.p, self.prover, self.clock)
        units = units_of(agent, tuple(seen.x(slice(1)).shape[1:]))
        mean = float(found.mean())
        self.result.certified_radius = {
            "mean": mean, "median": float(found.median()), "least": float(found.min()), "most": float(found.max()),
            "largest_tried": largest, "states": len(seen), "of": seen.of,
            "env_units": in_env_units(units, mean),
        }  # fmt: skip
        self.clock.tell(f"mean certified radius: {digits_down(mean)}")

    def _worst_cases(self) -> None:
        for wrong, why in (
            (not math.isinf(self.p), "returns are certified for p = inf only"),
            (self.clean.horizon is not None, "no clean episode ended in time, so no return can be certified"),
            (not cloneable(self.who.spec), "the env cannot be cloned"),
        ):
            if wrong:
                self.result.notes.append(f"{why}: the lower side of the bracket is an estimate (GWC)")
                return
        if not reward_is_bounded(self.who.spec):
            self.result.notes.append("the least reward of a step is not known here: no return can be certified in time")
            return
        for i, level in enumerate(self.order):
            share = UNHURRIED if self.clock.end is None else self.clock.left() * SLICE / (len(self.order) - i)
            search = partial(
                certified_return, self.who.agent, self.who.spec, level.radius, self.prover.name, self.numbers,
                self.start.seed, self.clock, share,
            )  # fmt: skip
            found = self.clock.run("certified return", partial(self._noted, search), level.radius)
            if found is not None:
                self.proven[level.radius] = found
                count = len(found.starts)
                whose = f"{count} start{'s' * (count > 1)}"
                self.clock.tell(f"{self.clock.doing}: ≥ {round_down(found.lower)} ({whose})")

    def _boxes(self, limit: int, level: Level) -> None:
        seen = self.clean.visited.thinned(limit)
        if level.box is not None and level.box["states"] >= len(seen):
            return
        boxes = states.action_boxes(self.who.agent, seen, level.radius, self.p, self.prover, self.clock)
        level.box = {**box_facts(boxes, self.clean.actions), "states": len(seen), "of": seen.of, "corner_return": None}
        self.clock.tell(f"{self.clock.doing}: {round_up(level.box['width'], 3)} wide")

    def _corner(self, way: str, q: ActionValue | None, level: Level) -> None:
        """The return with every action in the worst corner of its box: furthest away, or valued least by a critic.

        Both are heuristics; the worse one counts.
        """
        if level.box is None:
            return
        agent = self.who.agent
        with closing(self.start.world(self.numbers, self.clean.horizon)) as world:
            returns = corner_return(agent, world, level.radius, self.p, self.prover, q)
        mean, known = statistics.mean(returns), level.box["corner_return"]
        if known is None or mean < known:
            level.box |= {
                "corner": way, "corner_return": mean, "corner_sem": statistics.sem(returns), "episodes": len(returns),
            }  # fmt: skip
        self.clock.tell(f"worst corner at ε = {spell_radius(level.radius)}: {mean:.1f} ({way})")

    # --------------------------------------------------------------------------------------------------------- the end

    def _finish(self) -> None:
        result, clock = self.result, self.clock
        radii = [level.radius for level in result.levels]
        least = least_return(self.who.spec) if self.proven else None
        proven = lifted([self.proven.get(radius) for radius in radii])
        for level, found in zip(result.levels, proven, strict=True):
            level.awc = awc_facts(found)
            level.bracket = bracket(level, found, self.numbers, least)
            warning = masking(level.returns, level.radius, result.width)
            result.warnings += [] if warning is None else [warning]
        result.verdict = headline(result, attacked=bool(self.clean.names))
        result.notes += selection(result)
        clock.cut = [(what, radius) for what, radius in clock.cut if not self._known(what, radius)]
        result.cuts, result.interrupted = clock.cuts(radii), clock.stopped
        self._fewer(radii)
        if self.recorded and not clock.stopped:
            try:
                result.trace = self._trace()
            except KeyboardInterrupt:
                result.interrupted = True
        result.wall_seconds = clock.spent

    def _known(self, what: str, radius: float | None) -> bool:
        """Whether there is an answer to what was cut: of a few states, or of some episodes."""
        level = next((level for level in self.result.levels if level.radius == radius), None)
        return (
            (level is not None and what in level.attacks)
            or (what == "certified radius" and self.result.certified_radius is not None)
            or (what == "certified actions" and level is not None and level.acr is not None)
            or (what == "action boxes" and level is not None and level.box is not None)
        )

    def _fewer(self, radii: Sequence[float]) -> None:
        """Note the attacks with fewer episodes than the clean return has."""
        most = len(self.numbers)
        fewer = [
            (f"{name} {len(played.returns)}", level.radius)
            for level in self.result.levels
            for name, played in level.attacks.items()
            if len(played.returns) < most
        ]
        if fewer:
            self.result.notes.append(f"fewer than {most} episodes in time: {'; '.join(grouped(fewer, radii))}")

    def _trace(self) -> dict[str, Any] | None:
        """The episode with the largest drop of all."""
        found = self.result.largest_drop()
        if found is None:
            return None
        radius, number, played = found
        self.clock.doing = "recording"
        self.clock.tell(f"recording an episode: {played.attack} at ε = {spell_radius(radius)}")
        return record(
            self.who.agent, self.who.spec, self._fitted(played.attack, radius), played.attack, radius, self.p,
            self.prover, self.start.seed, self.clock.until_the_end(), episode=number,
        )  # fmt: skip
