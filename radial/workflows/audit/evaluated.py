"""One evaluation as a small audit: the same page, for `radial evaluate --trace`."""

from typing import Any

from radial.core.agent import Attack
from radial.core.data import Discrete, EnvSpec
from radial.evaluation import statistics
from radial.evaluation.play import Evaluation
from radial.evaluation.prover import Prover
from radial.workflows.audit.audit import default_bound
from radial.workflows.audit.result import AuditResult, Bracket, Level, Played
from radial.workflows.audit.trace import record
from radial.workflows.audit.units import feature_names


def traced(agent: Any, spec: EnvSpec, nominal: Evaluation, found: Evaluation, name: str, attack: Attack) -> AuditResult:
    """What an attacked and an undisturbed evaluation with one seed found, and their first episode step by step."""
    prover = Prover.of(default_bound(agent))
    calm = Played("none", 0.0, "none", nominal.returns, nominal.lengths)
    gaps = [a - b for a, b in zip(nominal.returns, found.returns, strict=True)]
    level = Level(found.radius)
    level.attacks[name] = Played(
        name, found.radius, found.attack, found.returns, found.lengths, statistics.mean(gaps), statistics.sem(gaps)
    )
    level.bracket = Bracket(None, found.mean, "none", found.episodes, "nothing is proven")
    shape: tuple[int, ...] = getattr(agent, "observation_shape", None) or ()
    facts = {
        "agent": found.agent, "about": "one evaluation", "env": found.env, "env_options": dict(found.env_options),
        "engine": dict(found.engine), "episodes": found.episodes, "seed": found.seed, "p": "inf", "bound": prover.name,
        "arithmetic": prover.arithmetic, "discrete": isinstance(agent.actions, Discrete),
        "observation_shape": list(shape), "units": "network units", "budget_minutes": None,
        "features": feature_names(spec, shape[0]) if len(shape) == 1 else [],
    }  # fmt: skip
    result = AuditResult(facts, calm, [level])
    result.trace = record(agent, spec, attack, name, found.radius, found.p, prover, found.seed)
    result.verdict = f"Undisturbed {calm.mean:.1f}; {name} at ε = {found.radius:g} brings it to {found.mean:.1f}."
    result.wall_seconds = nominal.wall_seconds + found.wall_seconds
    return result
