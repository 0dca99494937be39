"""`audit`: every attack and every certificate that applies, in the order in which they matter most.

Work that a short budget leaves out is listed; nothing is silently weaker than it says.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from radial.cluster import Place
from radial.core.agent import Agent
from radial.core.checks import check_whole, is_finite
from radial.core.data import BadInput, Discrete, EnvSpec
from radial.evaluation.prover import Prover
from radial.evaluation.threads import torch_threads
from radial.workflows.audit.budget import Clock
from radial.workflows.audit.clean import Begun, begin
from radial.workflows.audit.paced import Paced, Tempo
from radial.workflows.audit.result import AuditResult, Level, Played, requirement
from radial.workflows.audit.subject import Audited, audited, default_bound, texts_of
from radial.workflows.audit.suite import attacks_of
from radial.workflows.audit.units import (
    check_radii,
    epsilon_in_words,
    feature_names,
    in_env_units,
    ladder,
    radii_of,
    spread_of,
    too_large,
    units_of,
)
from radial.workflows.audit.work import Work

Say = Callable[[str], None]


class AuditInterrupted(KeyboardInterrupt):
    """Ctrl-C in the middle of an audit; `result` holds what was found until then."""

    def __init__(self, result: AuditResult) -> None:
        super().__init__("the audit was interrupted")
        self.result = result


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
    threads: int | None = None,
    vecnormalize: str | Path | None = None,
    place: Place | None = None,
) -> AuditResult:
    """How robust is this agent? Clean return, return under each attack and a certified lower bound, at each radius.

    agent    an agent, the path of one (ours, the papers', Stable-Baselines3's or CleanRL's), or its name in the zoo
    env      an id or a spec; default: the one on the agent's card or in the name of its file
    radius   one or several, in network units; default: a ladder that suits what was observed in clean episodes
    budget   minutes; None: as long as it takes. Work there was no time for is listed in `cuts`
    bound    ibp, crown-ibp, crown or best; default: crown, and crown-ibp for convolutional networks
    attacks  names in `ATTACKS`; [] or "none": no attack; default: all that apply
    require  texts such as "return@0.05>=400"; their radii are added to those that are tried
    threads  of torch; default: one for vectors, else as it is. Afterwards it is as before
    vecnormalize  the statistics of a Stable-Baselines3 agent, if they do not lie beside it; "none": it has none
    place    where attacks are run, each at each radius; None: here, one after the other
    raises   `AuditInterrupted` with the result so far, on Ctrl-C
    """
    episodes = check_whole("episodes", episodes, 1)
    seed = check_whole("seed", seed, 0)
    threads = None if threads is None else check_whole("threads", threads, 1)
    if budget is not None and not (is_finite(budget) and budget > 0):
        raise BadInput(f"budget must be a number of minutes > 0 or None, got {budget!r}")
    wanted = [requirement(text) for text in texts_of("require", require)]
    more = [each.radius for each in wanted if each.radius is not None]
    asked = attacks_of(attacks)
    who = audited(agent, env, name, vecnormalize)
    given = None if radius is None else radii_of(radius, p, more)
    check_radii(who.agent, more if given is None else given)
    clock = Clock(None if budget is None else 60 * budget, progress)
    prover = Prover.of(bound or default_bound(who.agent))
    start, world = begin(who, episodes, seed, clock)
    with torch_threads(threads, world.observation_shape):
        clean = start.play(world, episodes, asked)
        spread = spread_of(clean.visited)
        radii = radii_of(ladder(who.agent, spread, clean.frames), p, more) if given is None else given
        result = _result(who, clean, _facts(who, clean, seed, p, prover, clock), radii, episodes)
        large = too_large(radii, spread, result.facts["features"])
        result.warnings += [] if large is None else [large]
        clock.tell(f"clean return: {result.nominal.mean:.1f} ({len(result.nominal.returns)} episodes)")
        pace = Tempo(clean.seconds, clean.side, clean.frames)
        recorded = trace and clean.unbounded is None
        paced = Paced(start, clean, clock, pace, result.notes)
        Work(who, start, clean, p, prover, clock, result, recorded, paced, place or Place()).run()
    if result.interrupted:
        raise AuditInterrupted(result)
    return result


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


def _facts(who: Audited, clean: Begun, seed: int, p: float, prover: Prover, clock: Clock) -> dict[str, Any]:
    spec, shape = who.spec, clean.shape
    return {
        "agent": who.name, "about": who.about, "env": spec.id, "env_options": dict(spec.options),
        "engine": dict(clean.engine), "episodes": len(clean.episodes.returns), "seed": seed,
        "p": "inf" if math.isinf(p) else p, "bound": prover.name,
        "arithmetic": prover.arithmetic, "discrete": isinstance(who.agent.actions, Discrete),
        "observation_shape": list(shape), "units": "shares of the range" if len(shape) == 3 else "network units",
        "features": feature_names(spec, shape[0]) if len(shape) == 1 else [],
        "budget_minutes": None if clock.seconds is None else clock.seconds / 60,
    }  # fmt: skip


def _result(who: Audited, clean: Begun, facts: dict[str, Any], radii: Sequence[float], episodes: int) -> AuditResult:
    """The result before any attack: the clean return, its range, ε in the env's units, and notes."""
    found, units = clean.episodes, units_of(who.agent, clean.shape)
    nominal = Played("none", 0.0, "none", found.returns, found.lengths, numbers=found.numbers)
    levels = [Level(each, env_units=in_env_units(units, each)) for each in radii]
    result = AuditResult(facts, nominal, levels, left_out=clean.left_out, notes=list(who.notes))
    result.random, result.horizon = clean.random, clean.horizon
    told = epsilon_in_words(radii[-1], levels[-1].env_units, facts["features"])
    result.notes += [] if told is None else [told]
    if clean.horizon is not None:
        result.notes.append(f"no clean episode ended in time: returns are those of the first {clean.horizon} steps")
    elif len(found.returns) < episodes:
        result.notes.append(f"there was time for {len(found.returns)} of {episodes} clean episodes")
    if clean.random is not None and nominal.mean <= clean.random:
        result.warnings.append(
            f"the clean return, {nominal.mean:.1f}, is no better than that of random actions, {clean.random:.1f}: is "
            "this the right env, and are the observations prepared as in training?"
        )
    if clean.unbounded is not None:
        result.notes.append(f"nothing can be certified, and no episode is shown: {clean.unbounded}")
    return result
