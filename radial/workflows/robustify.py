"""`robustify`: an agent that was trained elsewhere goes on with a RADIAL objective, and is judged before and after.

What is minimised is in `objectives`, how ε is held back when the return suffers in `algorithms.ramp`.
"""

import json
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
from radial.evaluation.reach import ActionReach, faintest, reach, watching
from radial.objectives import policy_gradient as a3c
from radial.objectives import q_objectives as dqn
from radial.objectives import surrogate as ppo
from radial.recipes.recipe import Config, recipe
from radial.runs.config import decode, recorded
from radial.runs.files import write_atomic
from radial.runs.run import check_place, check_same_run
from radial.training.a3c import A3CConfig
from radial.training.dqn import DQNConfig
from radial.training.ppo import PPOConfig
from radial.training.ramp import Guide, Ramp
from radial.workflows.loading import load
from radial.workflows.protocol import Watch, silent
from radial.workflows.train import AGENT, check, train

FIRST, LAST = 0.1, 0.6  # shares of the steps between which ε grows; before, PPO's value alone learns
SEARCHED = 0.3  # and where ε is whole if its ball is searched and not bounded: that needs no slow ramp, but time after
SEARCH, WEIGHT = 2, 10.0  # of objective sa: steps, each as dear as a pass over the minibatch; weight of what is found
# It teaches a network what it knew: many small steps, a rate near the paper's, and environments enough that the frames
# of an update differ, whatever the agent was trained with.
TAUGHT: dict[str, Any] = {
    "num_envs": 32, "rollout": 1_024, "epochs": 1, "minibatch": 64, "chunk": 64,
    "policy_rate": 4e-4, "value_rate": 4e-4,
    "checkpoint_every": 100,  # games start anew there, and the first to end are the bad ones: they mislead the watch
}  # fmt: skip
ANCHOR = 1.0  # weight of KL(π_start ‖ π) where the network is deep: the easiest way to narrow bounds is to forget
COMPARISON = "comparison.json"
CEILING = 0.3  # of the deviation of a Gaussian policy that has less; see the ablation in docs/ppo.md
LONG = 2_000_000  # steps: the longer a Gaussian policy is trained, the smaller the weight that is right


@dataclass(frozen=True)
class Kind:
    """How one kind of agent is made robust unless the caller says otherwise."""

    vectors: str  # the recipe whose settings are taken where the agent's card has none
    frames: str
    objectives: Mapping[str, Any]
    objective: str  # a key of `objectives`
    kappa: tuple[float, float]  # on vectors, on frames
    attack: str  # a key of ATTACKS


KINDS: dict[type, Kind] = {
    QAgent: Kind("cartpole-radial-dqn", "pong-small-radial-dqn", dqn.OBJECTIVES, "radial-overlap", (0.4, 0.8), "pgd"),
    ActorCritic: Kind(
        "cartpole-radial-a3c", "pong-small-radial-a3c", a3c.OBJECTIVES, "radial-overlap", (0.5, 0.5), "pgd"
    ),
    CategoricalAgent: Kind("cartpole-radial-ppo", "", ppo.OBJECTIVES, "radial-worst-case", (0.5, 0.5), "pgd"),
    ImpalaAgent: Kind("", "fruitbot-small-radial-ppo", ppo.OBJECTIVES, "sa", (0.8, 0.8), "pgd-procgen"),
    GaussianAgent: Kind("hopper-radial-ppo", "", ppo.OBJECTIVES, "radial-likelihood", (0.95, 0.95), "mad"),
}


@dataclass(frozen=True, eq=False)
class Standing:
    """What an agent is worth: undisturbed, under the attack, and by what is proven."""

    nominal: Evaluation
    attacked: Evaluation
    certified: CertificationRate | ActionReach

    def to_json(self) -> dict[str, Any]:
        """Plain values that `json` can write."""
        return {name: getattr(self, name).to_json() for name in ("nominal", "attacked", "certified")}


@dataclass(frozen=True, eq=False)
class Robustified:
    """An agent made robust, and what that changed.

    radius   that was asked for        reached  ε where the training ended: smaller if the ramp was held back
    attack   under which `attacked` was played, a key of ATTACKS
    """

    agent: AnyAgent
    before: Standing
    after: Standing
    config: Config
    radius: float
    reached: float
    attack: str
    source: str

    @property
    def kappa(self) -> float:
        """The weight of the nominal loss where both weights add up to 1."""
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
            "steps": self.config.total_steps, "attack": self.attack, "before": self.before.to_json(),
            "after": self.after.to_json(),
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
    watch: Watch = silent,
) -> Robustified:
    """Go on training an agent with RADIAL's loss, ε growing to `radius`; judge it before and after.

    steps      env steps. In the first tenth ε is 0, then it grows until six tenths (sa: three), if the return allows
    env        where it acts, if its card does not say or another is wanted
    kappa      weight of the nominal loss; None: what suits the kind of agent
    objective  radial-overlap, radial-worst-case, radial-likelihood; None: what suits the kind of agent. On ProcGen's
               frames that is sa: what changes the policy most is searched for and not bounded, so nothing is proven
    tolerance  share of the undisturbed return that may be lost: the ramp slows at half of it and holds at the whole
    episodes   of each of the three judgements, before and after
    out        a run's folder, as for `train`; the agent is saved in out/agent and the result in out/comparison.json
    """
    start = own(load(agent) if isinstance(agent, str | Path) else agent, "agent")
    where = spec_for(env) if isinstance(env, str) else env or start.card.env
    if where is None:
        near = example_for(start.observation_shape)
        raise BadInput(f"the agent does not say where it acts: give env, such as {near}")
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
        raise BadInput("resume needs out: the folder of the run that is to go on")
    if threads is not None:
        check_whole("threads", threads, 1)
    _check_env(start, where, seed)
    check(config, seed, device, start)
    before = stand(start, where, radius, episodes, seed, watch, "before")
    trained = train(
        config, seed, out=out, resume=resume, init=start, guide=guide, device=device, threads=threads, quiet=quiet
    )
    after = stand(trained, where, radius, episodes, seed, watch, "after")
    ended = max(config.total_steps, guide.ramp.since)  # the last update may go some steps beyond
    found = Robustified(
        trained, before, after, config, radius, loss.radius(guide.ramp.clock(ended)),
        KINDS[type(start)].attack, described(start.card),
    )  # fmt: skip
    if out is not None:
        text = json.dumps(found.to_json(), indent=2, allow_nan=False, ensure_ascii=False)
        write_atomic(Path(out) / COMPARISON, text + "\n")
        results = {"robustified_from": found.source, "radius": radius, "reached": found.reached}
        save(trained, Path(out) / AGENT, results)
    return found


def _check_env(agent: AnyAgent, env: EnvSpec, seed: int) -> None:
    """Refuse, before anything is played, an env that does not fit."""
    probe = make_env(env, 1, seed)
    try:
        check_spaces(agent, probe)
    finally:
        probe.close()


def stand(
    agent: AnyAgent, env: EnvSpec, radius: float, episodes: int, seed: int, watch: Watch = silent, when: str = ""
) -> Standing:
    """Judge an agent: undisturbed, attacked at the radius, and what is proven there."""
    kind = KINDS[type(agent)]
    # What is not certified need not be told apart any further: a short search is enough.
    prove: Any = reach if isinstance(agent, GaussianAgent) else partial(acr, search=Search(restarts=1, steps=3))
    with watch(f"{when}, undisturbed", episodes) as progress:
        nominal = evaluate(agent, env, None, 0.0, episodes, seed, progress=progress)
    with watch(f"{when}, {kind.attack}", episodes) as progress:
        attacked = evaluate(agent, env, ATTACKS[kind.attack](), radius, episodes, seed, progress=progress)
    with watch(f"{when}, certified", episodes) as progress:
        certified = prove(agent, env, radius, "ibp", episodes, seed, progress=progress)
    return Standing(nominal, attacked, certified)


# ------------------------------------------------------------------------------------------------------------- plans


def plan(
    agent: AnyAgent, env: EnvSpec, radius: float, steps: int, kappa: float | None = None, objective: str | None = None
) -> Config:
    """The training that makes an agent robust: its own settings where its card has them, else those of a recipe."""
    if not (is_finite(radius) and radius > 0):
        raise BadInput(f"radius must be finite and > 0, got {radius!r}")
    check_whole("steps", steps, 1)
    name, base = _named(agent, objective), _base(agent)
    if name == "sa":
        base = replace(base, **TAUGHT)
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
    """What changes when PPO goes on with an agent.

    Its value may be in other units, or of another policy, so it learns first. Its normaliser stays: ε is in its units.
    """
    settings: dict[str, Any] = {"value_first": round(FIRST * steps), "normalize_observations": False}
    settings |= {"attack": None, "attack_radius": Constant(0.0), "attack_probability": 0.0, "min_std": None}
    if isinstance(agent, ImpalaAgent):
        settings["anchor"] = ANCHOR
    else:
        settings["activation"] = agent.activation
    if isinstance(agent, GaussianAgent):
        # The bounded term holds the deviation up: what the agent has is enough, but with too little every width weighs.
        settings["max_std"] = max(float(agent.log_std.detach().exp().max()), CEILING)
    return settings


def _base(agent: AnyAgent) -> Config:
    """The settings to go on with."""
    kinds: dict[type, type[Config]] = {QAgent: DQNConfig, ActorCritic: A3CConfig}
    wanted = kinds.get(type(agent), PPOConfig)
    own = agent.card.recipe.get("config")
    if isinstance(own, Mapping) and own.get("type") == wanted.__name__:
        found: Config = decode(wanted, own, "card.recipe.config")
        return found
    kind = KINDS[type(agent)]
    return recipe(kind.vectors if len(agent.observation_shape) == 1 else kind.frames).config


def _ramp(tolerance: float, radius: Smoothed | Exponential) -> Ramp:
    """Who watches the return, from where ε is felt: in the first quarter it is below a twelfth, unless by a factor."""
    first, last = int(radius.first_step), int(radius.last_step)
    return Ramp(tolerance, first if isinstance(radius, Exponential) else first + (last - first) // 4, last)


def _named(agent: AnyAgent, name: str | None) -> str:
    """The objective that is asked for, if it suits the agent, or else the one that does."""
    kind = KINDS[type(agent)]
    known = [key for key, cls in kind.objectives.items() if "kappa" in {field.name for field in fields(cls)}]
    if isinstance(agent, GaussianAgent):
        known.remove("radial-overlap")  # it is about logits
    if isinstance(agent, ImpalaAgent):
        known.append("sa")
    name = kind.objective if name is None else str(name)
    if name not in known:
        raise BadInput(f"objective must be one of {', '.join(known)}, got {name!r}{nearest(name, known)}")
    return name


def _objective(agent: AnyAgent, radius: float, steps: int, kappa: float | None, name: str) -> Any:
    """An objective for an agent, with its schedules."""
    kind = KINDS[type(agent)]
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
        kappa = 0.98 if isinstance(agent, GaussianAgent) and steps >= LONG else kind.kappa[on_frames]
    if isinstance(agent, ImpalaAgent):
        # PPO's ratio has no gradient where bounds are wide, and fifteen convolutions make them 1e13 wide at 1/255: ε
        # begins where it is felt and no more, and grows by a factor, no faster than the network can follow.
        ramp = Exponential(radius, first, last, start=faintest(agent, radius), middle=0.75, before=0.0)
    return kind.objectives[name](radius=ramp, kappa=Constant(float(kappa)))
