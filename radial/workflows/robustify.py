"""`robustify`: fine-tune an agent with a RADIAL objective, and evaluate and certify it before and after.

The objectives are in `objectives`; the ramp that pauses ε when the clean return drops is in `training.ramp`.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from radial.agents.actor_critic import ActorCritic, ImpalaAgent
from radial.agents.convert import AnyAgent, Loaded, own
from radial.agents.policies import CategoricalAgent, GaussianAgent
from radial.agents.q_agent import QAgent
from radial.agents.saved import save
from radial.attacks import ATTACKS
from radial.core.agent import described
from radial.core.checks import check_whole, is_finite
from radial.core.data import BadInput, EnvSpec
from radial.core.schedules import Constant, Exponential, Schedule, Smoothed
from radial.core.text import nearest
from radial.envs.make import example_for, make_env, spec_for, stacked
from radial.evaluation.certificates import CertificationRate, Search, acr
from radial.evaluation.play import Evaluation, check_spaces, evaluate
from radial.evaluation.prover import check_in_range
from radial.evaluation.reach import ActionReach, faintest, reach, watching
from radial.objectives import policy_gradient as a3c
from radial.objectives import q_objectives as dqn
from radial.objectives import surrogate as ppo
from radial.recipes.recipe import Config, recipe
from radial.runs.config import check_stored, decode, recorded
from radial.runs.files import write_atomic
from radial.runs.run import Tracking, check_place, check_same_run
from radial.training.a3c import A3CConfig
from radial.training.dqn import DQNConfig
from radial.training.ppo import PPOConfig
from radial.training.ramp import Guide, Ramp
from radial.workflows.keeper import Keeper
from radial.workflows.loading import load
from radial.workflows.protocol import Watcher, silent
from radial.workflows.train import AGENT, attack_named, check_trainable, train

FIRST, LAST = 0.1, 0.6  # ε grows between these shares of the steps; before that only PPO's value function learns
SEARCHED = 0.3  # where ε ends its ramp if its ball is searched and not bounded: a short ramp, and more steps after it
SEARCH, WEIGHT = (
    2,
    10.0,
)  # of objective sa: search steps, each as costly as a pass over the minibatch; weight
# Settings of objective sa, whatever the agent was trained with: many small steps, a rate near the paper's, and enough
# environments that the frames of an update differ.
SA_SETTINGS: dict[str, Any] = {
    "num_envs": 32, "rollout": 1_024, "epochs": 1, "minibatch": 64, "chunk": 64,
    "policy_rate": 4e-4, "value_rate": 4e-4,
    "checkpoint_every": 100,  # episodes restart there, and short, bad ones end first, which misleads the ramp
}  # fmt: skip
ANCHOR = 1.0  # weight of KL(π_start ‖ π) for deep networks, where forgetting is the easiest way to narrow bounds
COMPARISON = "comparison.json"
JUDGEMENTS, JUDGED_EPISODES = 20, 10  # during a fine-tuning, and episodes of each
CEILING = 0.3  # on the σ of a Gaussian policy that starts below it; see the ablation in docs/ppo.md
LONG_TRAINING = 2_000_000  # steps from which a Gaussian policy takes a smaller weight of the adversarial loss


@dataclass(frozen=True)
class FineTuning:
    """The default fine-tuning of one kind of agent."""

    vectors: str  # the recipe whose settings are taken where the agent's card has none
    frames: str  # the same for agents that see frames
    objectives: Mapping[str, Any]
    objective: str  # a key of `objectives`
    kappa: tuple[float, float]  # on vectors, on frames
    attack: str  # a key of ATTACKS


FINE_TUNINGS: dict[type, FineTuning] = {
    QAgent: FineTuning(
        "cartpole-radial-dqn", "pong-small-radial-dqn", dqn.OBJECTIVES, "radial-overlap", (0.4, 0.8), "pgd"
    ),
    ActorCritic: FineTuning(
        "cartpole-radial-a3c", "pong-small-radial-a3c", a3c.OBJECTIVES, "radial-overlap", (0.5, 0.5), "pgd"
    ),
    CategoricalAgent: FineTuning("cartpole-radial-ppo", "", ppo.OBJECTIVES, "radial-worst-case", (0.5, 0.5), "pgd"),
    ImpalaAgent: FineTuning("", "fruitbot-small-radial-ppo", ppo.OBJECTIVES, "sa", (0.8, 0.8), "pgd-procgen"),
    GaussianAgent: FineTuning("hopper-radial-ppo", "", ppo.OBJECTIVES, "radial-likelihood", (0.95, 0.95), "mad"),
}


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
    """

    agent: AnyAgent
    before: Standing
    after: Standing
    config: Config
    radius: float
    reached: float
    attack: str
    source: str
    kept: int | None

    @property
    def failed(self) -> bool:
        """Whether the original is better, and handed back."""
        return self.kept is None

    @property
    def kappa(self) -> float:
        """The weight of the standard loss where both weights add up to 1."""
        objective: Any = self.config.objective
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
    objective  radial-overlap, radial-worst-case, radial-likelihood; None: the default of the kind of agent. On
               ProcGen's frames that is sa, which searches the ball instead of bounding it and so certifies nothing
    tolerance  share of the clean return that may be lost: the ramp slows at half of it and pauses at the whole, and no
               agent that lost more is handed back
    episodes   of each of the three measurements, before and after
    out        a run's folder, as for `train`; the agent is saved in out/agent and the result in out/comparison.json
    """
    start = own(load(agent) if isinstance(agent, str | Path) else agent, "agent")
    where = spec_for(env) if isinstance(env, str) else env or start.card.env
    if where is None:
        near = example_for(start.observation_shape)
        raise BadInput(f"no environment recorded on the agent's card; pass env, such as {near}")
    where = stacked(where, start.observation_shape)
    config = plan(start, where, radius, steps, kappa, objective)
    radius = float(radius)
    check_whole("episodes", episodes, 1)
    loss: Any = config.objective
    guide = Guide(_ramp(tolerance, loss.radius), watching(radius))
    if out is not None:
        check_place(Path(out), resume)
        if resume:
            check_same_run(Path(out), recorded(config, check_whole("seed", seed, 0), start, guide))
    elif resume:
        raise BadInput("resume needs out: the folder of the run to resume")
    if threads is not None:
        check_whole("threads", threads, 1)
    _check_env(start, where, seed)
    check_trainable(config, seed, device, start)
    before = measure_standing(start, where, radius, episodes, seed, watch, "before")
    keeper = Keeper(
        start, where, attack_named(FINE_TUNINGS[type(start)].attack), radius, tolerance=tolerance,
        every=max(1, steps // JUDGEMENTS), seed=seed, episodes=JUDGED_EPISODES, certify=watching(radius),
        folder=None if out is None else Path(out),
    )  # fmt: skip
    guide.judge = keeper
    guide.ramp.hear(0, keeper.reference)
    if resume:
        keeper.resume(steps)
    trained = train(
        config, seed, out=out, resume=resume, init=start, guide=guide, device=device, threads=threads, quiet=quiet,
        track=track,
    )  # fmt: skip
    ended = max(config.total_steps, guide.ramp.since)  # the last update may go some steps beyond
    reached = loss.radius(guide.ramp.clock(ended))
    kept = keeper.best.step if keeper.restore(trained) and keeper.best is not None else None
    after = before if kept is None else measure_standing(trained, where, radius, episodes, seed, watch, "after")
    if kept is not None and not improved(before, after, tolerance):
        kept, after = None, before
    if kept is None:
        trained.load_state_dict(start.state_dict())
    attack = FINE_TUNINGS[type(start)].attack
    found = Robustified(trained, before, after, config, radius, reached, attack, described(start.card), kept)
    if out is not None:
        text = json.dumps(found.to_json(), indent=2, allow_nan=False, ensure_ascii=False)
        write_atomic(Path(out) / COMPARISON, text + "\n")
        results = {"robustified_from": found.source, "radius": radius, "reached": found.reached}
        save(trained, Path(out) / AGENT, results)
    return found


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
    prove: Any = reach if isinstance(agent, GaussianAgent) else partial(acr, search=Search(restarts=1, steps=3))
    with watch(f"{when}, clean", episodes) as progress:
        nominal = evaluate(agent, env, None, 0.0, episodes, seed, progress=progress)
    with watch(f"{when}, {how.attack}", episodes) as progress:
        attacked = evaluate(agent, env, ATTACKS[how.attack](), radius, episodes, seed, progress=progress)
    with watch(f"{when}, certified", episodes) as progress:
        certified = prove(agent, env, radius, "ibp", episodes, seed, progress=progress)
    return Standing(nominal, attacked, certified)


# ------------------------------------------------------------------------------------------------------------- plans


def plan(
    agent: AnyAgent, env: EnvSpec, radius: float, steps: int, kappa: float | None = None, objective: str | None = None
) -> Config:
    """The config of the fine-tuning: the settings on the agent's card where there are any, else those of a recipe."""
    if not (is_finite(radius) and radius > 0):
        raise BadInput(f"radius must be finite and > 0, got {radius!r}")
    check_in_range(agent, radius)
    check_whole("steps", steps, 1)
    name, base = _named(agent, objective), _base(agent)
    if name == "sa":
        base = replace(base, **SA_SETTINGS)
    least = 20 * (base.rollout if isinstance(base, PPOConfig) else base.num_envs * 100)
    if steps < least:
        raise BadInput(f"steps must be ≥ {least:,} for this agent, got {steps:,}")
    loss = _objective(agent, radius, steps, kappa, name)
    shared: dict[str, Any] = {
        "env": env,
        "objective": loss,
        "total_steps": steps,
        "hidden": agent.hidden,
        "anneal": True,
    }
    if isinstance(base, PPOConfig):
        assert isinstance(agent, GaussianAgent | CategoricalAgent | ImpalaAgent)
        return replace(base, **shared, **_for_ppo(agent, steps))
    shared |= {
        "log_every": min(base.log_every, steps // 50),
        "checkpoint_every": min(base.checkpoint_every, steps // 4),
    }
    if isinstance(base, A3CConfig):
        return replace(base, **shared, workers=1)
    return replace(
        base, **shared,
        exploration=Constant(base.exploration(base.total_steps)),
        learning_starts=round(FIRST * steps),
    )  # fmt: skip


def _for_ppo(agent: GaussianAgent | CategoricalAgent | ImpalaAgent, steps: int) -> dict[str, Any]:
    """Settings that differ when PPO fine-tunes an agent.

    Its value function may be in other units, or of another policy, so it learns first. Its normaliser stays: ε is in
    its units.
    """
    settings: dict[str, Any] = {"value_first": round(FIRST * steps), "normalize_observations": False}
    settings |= {"attack": None, "attack_radius": Constant(0.0), "attack_probability": 0.0, "min_std": None}
    if isinstance(agent, ImpalaAgent):
        settings["anchor"] = ANCHOR
    else:
        settings["activation"] = agent.activation
    if isinstance(agent, GaussianAgent):
        # The adversarial term pushes σ up. The agent's own σ is enough; but where it is tiny, any width of the bounds
        # dominates the loss, so the ceiling is not put below CEILING.
        settings["max_std"] = max(float(agent.log_std.detach().exp().max()), CEILING)
    return settings


def _base(agent: AnyAgent) -> Config:
    """The settings to fine-tune with."""
    kinds: dict[type, type[Config]] = {QAgent: DQNConfig, ActorCritic: A3CConfig}
    wanted = kinds.get(type(agent), PPOConfig)
    on_card = agent.card.recipe.get("config")
    if isinstance(on_card, Mapping) and on_card.get("type") == wanted.__name__:
        found: Config = decode(wanted, on_card, "card.recipe.config")
        check_stored(found, "card.recipe.config")
        return found
    how = FINE_TUNINGS[type(agent)]
    return recipe(how.vectors if len(agent.observation_shape) == 1 else how.frames).config


def _ramp(tolerance: float, radius: Smoothed | Exponential) -> Ramp:
    """The ramp; it watches the return from the first quarter on, before which ε is too small to matter."""
    first, last = int(radius.first_step), int(radius.last_step)
    return Ramp(tolerance, first if isinstance(radius, Exponential) else first + (last - first) // 4, last)


def _named(agent: AnyAgent, name: str | None) -> str:
    """The objective that is asked for, if it suits the agent, or the default."""
    how = FINE_TUNINGS[type(agent)]
    known = [key for key, cls in how.objectives.items() if "kappa" in {field.name for field in fields(cls)}]
    if isinstance(agent, GaussianAgent):
        known.remove("radial-overlap")  # it is about logits
    if isinstance(agent, ImpalaAgent):
        known.append("sa")
    name = how.objective if name is None else str(name)
    if name not in known:
        raise BadInput(f"objective must be one of {', '.join(known)}, got {name!r}{nearest(name, known)}")
    return name


def _objective(agent: AnyAgent, radius: float, steps: int, kappa: float | None, name: str) -> Any:
    """An objective for an agent, with its schedules."""
    how = FINE_TUNINGS[type(agent)]
    if kappa is not None and not (is_finite(kappa) and 0 <= kappa <= 1):
        raise BadInput(f"kappa must lie in [0, 1], got {kappa!r}")
    radius, first, last = float(radius), round(FIRST * steps), round(LAST * steps)
    ramp: Schedule = Smoothed(radius, first, last)
    if name == "sa":
        if kappa == 0:
            raise BadInput("kappa must be > 0 with objective sa, got 0")
        weight = WEIGHT if kappa is None else (1 - kappa) / kappa  # κ·L + (1 − κ)·D, divided by κ
        ramp = Smoothed(radius, first, round(SEARCHED * steps))
        return ppo.SA(ramp, weight, inner="pgd", steps=SEARCH, anchored=True)
    if kappa is None:
        on_frames = len(agent.observation_shape) > 1
        kappa = 0.98 if isinstance(agent, GaussianAgent) and steps >= LONG_TRAINING else how.kappa[on_frames]
    if isinstance(agent, ImpalaAgent):
        # PPO's ratio has no gradient where bounds are wide, and fifteen convolutions make them 1e13 wide at 1/255: ε
        # starts at the smallest value that affects the bounds and grows by a factor, so that the network can follow.
        ramp = Exponential(radius, first, last, start=faintest(agent, radius), middle=0.75, before=0.0)
    return how.objectives[name](radius=ramp, kappa=Constant(float(kappa)))
