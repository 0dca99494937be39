"""`robustify`: fine-tune an agent with a RADIAL objective, and evaluate and certify it before and after.

The objectives are in `objectives`; the ramp that pauses ε when the clean return drops is in `training.ramp`.
"""

import copy
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from radial.agents.convert import AnyAgent, Loaded, own
from radial.agents.policies import DeterministicAgent
from radial.agents.saved import save
from radial.attacks import ATTACKS
from radial.core.agent import described
from radial.core.checks import check_whole
from radial.core.data import BadInput, Continuous, EnvSpec
from radial.envs.make import example_for, make_env, spec_for, stacked
from radial.evaluation.certificates import CertificationRate, Search, acr
from radial.evaluation.play import Evaluation, check_spaces, evaluate
from radial.evaluation.reach import ActionReach, reach, watching
from radial.objectives import deterministic as ddpg
from radial.objectives import surrogate as ppo
from radial.objectives.distil import Distil
from radial.recipes.recipe import Config, with_settings
from radial.runs.config import recorded
from radial.runs.files import write_atomic
from radial.runs.run import Tracking, check_place, check_same_run
from radial.training.distilling import DistilConfig, train_distil
from radial.training.ramp import Guide, Ramp
from radial.workflows.distillation_plan import DISTIL, chosen, distilled_card, plan_distillation, ramp_of
from radial.workflows.fine_tuning import FINE_TUNINGS, SHIFT, base_of, plan, watched_ramp
from radial.workflows.keeper import Keeper
from radial.workflows.loading import load
from radial.workflows.protocol import Watcher, silent
from radial.workflows.train import AGENT, attack_named, check_trainable, train

COMPARISON = "comparison.json"
JUDGEMENTS, JUDGED_EPISODES = 20, 10  # during a fine-tuning, and episodes of each
DISTILLED_JUDGEMENTS = 40  # during a distillation, whose certified share moves faster


@dataclass(frozen=True, eq=False)
class Standing:
    """One agent before or after: its clean return, its adversarial return, and its certificate."""

    nominal: Evaluation
    attacked: Evaluation
    certified: CertificationRate | ActionReach

    def to_json(self) -> dict[str, Any]:
        """Plain values that `json` can write."""
        parts = {"nominal": self.nominal, "attacked": self.attacked, "certified": self.certified}
        return {name: part.to_json() for name, part in parts.items()}


@dataclass(frozen=True, eq=False)
class Robustified:
    """A fine-tuned agent, evaluated and certified before and after.

    radius   that was asked for        reached  ε at the end of training: smaller if the ramp was paused
    attack   of the adversarial return, a key of ATTACKS
    kept     env step of the agent that was kept: the most robust one within the tolerance; None: none was, and the
             agent is the original
    used     settings that the agent's file says, by its names; ours: those it does not say in numbers, so ours count
    """

    agent: AnyAgent
    before: Standing
    after: Standing
    config: Config | DistilConfig
    radius: float
    reached: float
    attack: str
    source: str
    kept: int | None
    used: Mapping[str, float] = field(default_factory=dict)
    ours: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether the original is better, and handed back."""
        return self.kept is None

    @property
    def kappa(self) -> float:
        """The weight of the standard loss where both weights add up to 1."""
        objective: Any = self.config.objective
        if isinstance(objective, Distil):
            return 1 - objective.alpha
        if isinstance(objective, ddpg.SA):
            return SHIFT / (SHIFT + objective.weight)
        if isinstance(objective, ppo.SA):
            return 1 / (1 + objective.weight)
        return float(objective.kappa(self.config.total_steps))

    def to_json(self) -> dict[str, Any]:
        """Plain values that `json` can write."""
        return {
            "source": self.source, "env": str(self.config.env), "radius": self.radius, "reached": self.reached,
            "objective": type(self.config.objective).__name__,
            "kappa": self.kappa,
            "steps": self.config.total_steps, "attack": self.attack, "kept_step": self.kept, "failed": self.failed,
            "settings_of_file": dict(self.used), "settings_of_ours": list(self.ours),
            "before": self.before.to_json(), "after": self.after.to_json(),
        }  # fmt: skip


def robustify(
    agent: Loaded | str | Path,
    radius: float,
    steps: int,
    *,
    env: EnvSpec | str | None = None,
    kappa: float | None = None,
    objective: str | None = None,
    tolerance: float = 0.25,
    settings: Sequence[str] = (),
    seed: int = 0,
    episodes: int = 20,
    out: str | Path | None = None,
    resume: bool = False,
    device: str = "cpu",
    threads: int | None = None,
    quiet: bool = False,
    watch: Watcher = silent,
    track: Tracking | None = None,
) -> Robustified:
    """Fine-tune an agent with the RADIAL loss while ε grows to `radius`; evaluate and certify it before and after.

    Short evaluations of the greedy policy, on episodes of their own, set the pace of the ramp and choose the agent that
    is handed back: the most robust one within the tolerance, or the original if no other is.

    steps      env steps. In the first tenth ε is 0, then it grows until six tenths (sa: three), if the return allows
    env        where it acts; None: the environment on its card
    kappa      weight of the standard loss; None: the default of the kind of agent
    objective  radial-overlap, radial-worst-case, radial-likelihood, on ProcGen's frames sa (a search, which certifies
               nothing); distil: a fresh network with narrow bounds learns from the agent, without rewards. None: distil
               where the agent's own bounds are hopelessly wide, else the default of its kind
    tolerance  share of the clean return that may be lost: the ramp slows at half of it and pauses at the whole, and no
               agent that lost more is handed back
    settings   any others, as "key=value" (see `radial train --set`): they come before those of the agent's card or file
    episodes   of each of the three measurements, before and after
    out        a run's folder, as for `train`; the agent is saved in out/agent and the result in out/comparison.json
    """
    start = own(load(agent) if isinstance(agent, str | Path) else agent, "agent")
    where = spec_for(env) if isinstance(env, str) else env or start.card.env
    if where is None:
        near = example_for(start.observation_shape)
        raise BadInput(f"no environment recorded on the agent's card; pass env, such as {near}")
    where = stacked(where, start.observation_shape)
    check_whole("episodes", episodes, 1)
    _check_env(start, where, check_whole("seed", seed, 0))
    distilled = DISTIL in (objective, chosen(start, where, radius, steps, kappa, objective, seed))
    made = plan_distillation(start, where, radius, steps, kappa) if distilled else None
    config = _changed(made or plan(start, where, radius, steps, kappa, objective), settings)
    radius = float(radius)
    loss: Any = config.objective
    guide = Guide(Ramp(tolerance, 0) if distilled else watched_ramp(tolerance, loss.radius), watching(radius))
    if threads is not None:
        check_whole("threads", threads, 1)
    _check_run(out, resume, recorded(config, seed, start, guide))
    _check_device(config, seed, device, start)
    before = measure_standing(start, where, radius, episodes, seed, watch, "before")
    keeper = Keeper(
        start, where, attack_named(FINE_TUNINGS[type(start)].attack), radius, tolerance=tolerance,
        every=max(1, steps // (DISTILLED_JUDGEMENTS if distilled else JUDGEMENTS)), seed=seed,
        episodes=JUDGED_EPISODES, certify=watching(radius), folder=None if out is None else Path(out),
        since=int(config.first * steps if distilled else loss.radius.first_step),
    )  # fmt: skip
    guide.judge = keeper
    guide.ramp.hear(0, keeper.reference)
    if resume:
        keeper.resume()  # the last update may go some steps beyond `steps`, and so may the last judgement
    shared: dict[str, Any] = {"guide": guide, "resume": resume, "threads": threads, "quiet": quiet, "track": track}
    trained: AnyAgent
    if isinstance(config, DistilConfig):
        ramp = ramp_of(config, tolerance, keeper.reference)
        folder = None if out is None else Path(out)
        assert not isinstance(start, DeterministicAgent), "plan_distillation comes first"
        trained = train_distil(config, seed, teacher=start, ramp=ramp, out=folder, **shared)
        trained.card, reached = distilled_card(config, seed, start), ramp.epsilon
    else:
        trained = train(config, seed, out=out, init=start, device=device, **shared)
        ended = max(config.total_steps, guide.ramp.since)  # the last update may go some steps beyond
        reached = loss.radius(guide.ramp.clock(ended))
    kept = keeper.best.step if keeper.restore(trained) and keeper.best is not None else None
    after = before if kept is None else measure_standing(trained, where, radius, episodes, seed, watch, "after")
    if kept is not None and not improved(before, after, tolerance):
        kept, after = None, before
    if kept is None:
        trained = unchanged(start, trained)
    attack = FINE_TUNINGS[type(start)].attack
    _, used, ours = (None, {}, ()) if distilled else base_of(start, steps)
    found = Robustified(
        trained, before, after, config, radius, reached, attack, described(start.card), kept, used, ours
    )  # fmt: skip
    if out is not None:
        _write(found, Path(out))
    return found


def _write(found: Robustified, folder: Path) -> None:
    """The comparison, and the agent."""
    text = json.dumps(found.to_json(), indent=2, allow_nan=False, ensure_ascii=False)
    write_atomic(folder / COMPARISON, text + "\n")
    results = {"robustified_from": found.source, "radius": found.radius, "reached": found.reached}
    save(found.agent, folder / AGENT, results)


def _check_run(out: str | Path | None, resume: bool, record: Mapping[str, Any]) -> None:
    """Refuse, before anything is played, a folder that no such run can be in."""
    if out is None:
        if resume:
            raise BadInput("resume needs out: the folder of the run to resume")
        return
    check_place(Path(out), resume)
    if resume:
        check_same_run(Path(out), record)


def _check_device(config: Config | DistilConfig, seed: int, device: str, start: AnyAgent) -> None:
    """Refuse a training that could not run here."""
    if not isinstance(config, DistilConfig):
        check_trainable(config, seed, device, start)
    elif device != "cpu":
        raise BadInput(f"device must be cpu with objective {DISTIL}, got {device!r}")


def _changed(config: Any, settings: Sequence[str]) -> Any:
    """The config with some settings replaced; those that are arguments of their own are refused."""
    fixed = {"total_steps": "steps", "env": "env", "objective.radius": "radius"}
    fixed |= {} if isinstance(config, DistilConfig) else {"hidden": ""}  # a student has a network of its own
    for key, instead in fixed.items():
        if any(each.partition("=")[0].strip().startswith(key) for each in settings):
            raise BadInput(f"settings must leave {key} alone{f': use {instead}' if instead else ', it is the agent’s'}")
    return with_settings(config, settings) if settings else config


def unchanged(start: AnyAgent, trained: AnyAgent) -> AnyAgent:
    """The original with its own weights, as a copy; it keeps the card of the training where it has the same network."""
    again = copy.deepcopy(start)
    if type(trained) is type(start) and trained.hidden == start.hidden:
        again.card = trained.card
    return again


def improved(before: Standing, after: Standing, tolerance: float) -> bool:
    """Whether the clean return stayed within the tolerance, beyond chance, and something became more robust."""
    clean = before.nominal
    chance = math.hypot(clean.sem, after.nominal.sem)
    scale = max(abs(clean.mean), clean.sem * math.sqrt(clean.episodes), 1e-8)
    if after.nominal.mean < clean.mean - tolerance * scale - chance:
        return False
    sign = 1 if isinstance(before.certified, CertificationRate) else -1  # a reach is better if it is shorter
    stronger = after.attacked.mean > before.attacked.mean
    return stronger or sign * (after.certified.mean - before.certified.mean) > 0


def _check_env(agent: AnyAgent, env: EnvSpec, seed: int) -> None:
    """Refuse, before anything is played, an env that does not fit."""
    probe = make_env(env, 1, seed)
    try:
        check_spaces(agent, probe)
    finally:
        probe.close()


def measure_standing(
    agent: AnyAgent, env: EnvSpec, radius: float, episodes: int, seed: int, watch: Watcher = silent, when: str = ""
) -> Standing:
    """Evaluate an agent without an attack and under the attack of its kind at the radius, and certify it there."""
    how = FINE_TUNINGS[type(agent)]
    # Only the certified share is reported, not why a step is uncertified: a short search is enough.
    prove: Any = reach if isinstance(agent.actions, Continuous) else partial(acr, search=Search(restarts=1, steps=3))
    with watch(f"{when}, clean", episodes) as progress:
        nominal = evaluate(agent, env, None, 0.0, episodes, seed, progress=progress)
    with watch(f"{when}, {how.attack}", episodes) as progress:
        attacked = evaluate(agent, env, ATTACKS[how.attack](), radius, episodes, seed, progress=progress)
    with watch(f"{when}, certified", episodes) as progress:
        certified = prove(agent, env, radius, "ibp", episodes, seed, progress=progress)
    return Standing(nominal, attacked, certified)
