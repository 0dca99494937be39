"""Attacks of an audit as jobs: each at each radius, or at all of them where it learns once for all.

What an attack does in an audit is in `work`, which is also what a job runs; where jobs run is in `cluster`.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from radial.envs.custom import import_inherited
from radial.evaluation.play import Aiming, Fittable
from radial.evaluation.prover import Prover
from radial.workflows.audit.budget import Clock
from radial.workflows.audit.clean import Beginning, Begun
from radial.workflows.audit.paced import Paced, Tempo
from radial.workflows.audit.result import AuditResult, Level, Played
from radial.workflows.audit.subject import Audited
from radial.workflows.audit.suite import aimed

if TYPE_CHECKING:
    from radial.workflows.audit.work import Work


@dataclass(frozen=True, eq=False)
class AttackJob:
    """One attack at some radii, with everything that another process needs to run it.

    seconds  that it should take        until  wall-clock time at which it ends; None: any time
    """

    who: Audited
    clean: Begun
    p: float
    bound: str
    result: AuditResult  # before any attack
    pace: Tempo
    seed: int
    name: str
    radii: tuple[float, ...]
    seconds: float
    until: float | None


@dataclass(frozen=True, eq=False)
class Fought:
    """What came out of it: by radius, or cut; the attacks that were fitted, and how long episodes took."""

    name: str
    played: dict[float, Played]
    cut: list[tuple[str, float | None]]
    notes: list[str]
    fitted: dict[str, Any]
    took: tuple[float, int] | None


def run_attack(job: AttackJob) -> Fought:
    """Run it in this process, as `Work` does."""
    from radial.workflows.audit.work import Work

    import_inherited()
    clock = Clock(None if job.until is None else max(job.until - time.time(), 0.0))
    start = Beginning(job.who, job.seed, clock)
    notes: list[str] = []
    paced = Paced(start, job.clean, clock, job.pace, notes)
    work = Work(job.who, start, job.clean, job.p, Prover.of(job.bound), clock, job.result, False, paced)
    levels = [Level(radius, env_units=None) for radius in job.radii]
    for level in levels:
        clock.run(job.name, partial(work.attack, job.name, level, job.seconds / len(levels)), level.radius)
    played = {level.radius: level.attacks[job.name] for level in levels if job.name in level.attacks}
    return Fought(job.name, played, clock.cut, notes, work.fitted, job.pace.known.get(job.name))


def attack_side_by_side(work: "Work", names: Sequence[str], share: float) -> None:
    """Run attacks at every radius of an audit's levels as jobs, and bring together what they found."""
    jobs = {}
    radii = [level.radius for level in work.order]
    groups = [(name, group) for name in names for group in _groups(name, radii, work.p)]
    # A cluster at an address is taken to have room for all.
    rounds = 1 if work.place.address else -(-len(groups) // work.place.workers)
    seconds = share * work.clock.left() / max(rounds, 1)
    until = None if work.clock.seconds is None else time.time() + share * work.clock.left()
    nominal = replace(work.result, levels=[], trace=None)
    clean = replace(work.clean, visited=work.clean.visited.thinned(1))  # all of them would be the larger part
    for name, group in groups:
        what = f"{name} at ε = {', '.join(f'{radius:g}' for radius in group)}"
        jobs[what] = AttackJob(
            work.who, clean, work.p, work.prover.name, nominal, replace(work.paced.pace), work.start.seed, name, group,
            seconds, until,
        )  # fmt: skip
    work.clock.doing = ", ".join(names)
    names_of = list(jobs)
    ended = work.place.map(
        run_attack, list(jobs.values()),
        lambda number, outcome: work.clock.tell(f"{names_of[number]}: {outcome.error or 'done'}"),
    )  # fmt: skip
    for (what, job), outcome in zip(jobs.items(), ended, strict=True):
        if outcome.value is not None:
            _merge(work, outcome.value)
        else:  # the others still count
            work.result.warnings.append(f"{what} failed: {outcome.error}")
            work.clock.cut += [(job.name, radius) for radius in job.radii]


def _groups(name: str, radii: Sequence[float], p: float) -> list[tuple[float, ...]]:
    """All radii together where the attack learns once for all of them, else each alone."""
    made, _ = aimed(name, radii[0], p)
    once = isinstance(made, Fittable) and not isinstance(made, Aiming)
    return [tuple(radii)] if once else [(radius,) for radius in radii]


def _merge(work: "Work", found: Fought) -> None:
    for level in work.result.levels:
        if level.radius in found.played:
            level.attacks[found.name] = found.played[level.radius]
    work.fitted |= found.fitted
    work.clock.cut += found.cut
    work.result.notes += [note for note in found.notes if note not in work.result.notes]
    if found.took is not None:
        work.paced.pace.known[found.name] = found.took
    for _ in found.played:
        if found.name in work.coming:
            work.coming.remove(found.name)
