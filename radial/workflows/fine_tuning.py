"""Which kind of agent `robustify` fine-tunes how: the objective, its schedules and the settings of the training.

The fine-tuning itself, and what is measured before and after, is in `robustify`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from radial.agents.actor_critic import ActorCritic, ImpalaAgent, ShallowAgent
from radial.agents.convert import AnyAgent
from radial.agents.policies import CategoricalAgent, GaussianAgent
from radial.agents.q_agent import QAgent
from radial.core.checks import check_whole, is_finite
from radial.core.data import BadInput, EnvSpec
from radial.core.schedules import Constant, Exponential, Schedule, Smoothed
from radial.core.text import nearest
from radial.evaluation.prover import check_in_range
from radial.evaluation.reach import faintest
from radial.objectives import policy_gradient as a3c
from radial.objectives import q_objectives as dqn
from radial.objectives import surrogate as ppo
from radial.recipes.recipe import Config, recipe
from radial.runs.config import check_stored, decode
from radial.training.a3c import A3CConfig
from radial.training.dqn import DQNConfig
from radial.training.ppo import PPOConfig
from radial.training.ramp import Ramp
from radial.workflows.borrowed import Borrowed, borrow

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
    "checkpoint_every": 100,  # episodes under way are lost there
}  # fmt: skip
# Settings of a deep network whose card has none: with bounds a pass over a frame costs some eighty times what its
# simulation does, so no frame is used twice, in minibatches that fit into memory.
DEEP_SETTINGS: dict[str, Any] = {"num_envs": 16, "rollout": 1_024, "epochs": 1, "minibatch": 64, "chunk": 64}
ANCHOR = 1.0  # weight of KL(π_start ‖ π) for deep networks, where forgetting is the easiest way to narrow bounds
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
    CategoricalAgent: FineTuning("cartpole-radial-ppo", "", ppo.OBJECTIVES, "radial-worst-case", (0.2, 0.5), "pgd"),
    ImpalaAgent: FineTuning("", "fruitbot-small-radial-ppo", ppo.OBJECTIVES, "sa", (0.8, 0.8), "pgd-procgen"),
    ShallowAgent: FineTuning(
        "", "fruitbot-small-radial-ppo", ppo.OBJECTIVES, "radial-worst-case", (0.5, 0.5), "pgd-procgen"
    ),
    GaussianAgent: FineTuning("hopper-radial-ppo", "", ppo.OBJECTIVES, "radial-likelihood", (0.95, 0.95), "mad"),
}


def plan(
    agent: AnyAgent, env: EnvSpec, radius: float, steps: int, kappa: float | None = None, objective: str | None = None
) -> Config:
    """The config of the fine-tuning: the settings on the agent's card where there are any, else those of a recipe."""
    if not (is_finite(radius) and radius > 0):
        raise BadInput(f"radius must be finite and > 0, got {radius!r}")
    check_in_range(agent, radius)
    check_whole("steps", steps, 1)
    name, base = _named(agent, objective), base_of(agent, steps).config
    if isinstance(agent, ImpalaAgent) and not isinstance(agent, ShallowAgent) and "config" not in agent.card.recipe:
        base = replace(base, **DEEP_SETTINGS)
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
        shallow = isinstance(agent, ShallowAgent)
        settings |= {"network": "shallow" if shallow else "impala", "anchor": 0.0 if shallow else ANCHOR}
    else:
        settings["activation"] = agent.activation
    if isinstance(agent, GaussianAgent):
        # The adversarial term pushes σ up. The agent's own σ is enough; but where it is tiny, any width of the bounds
        # dominates the loss, so the ceiling is not put below CEILING.
        settings["max_std"] = max(float(agent.log_std.detach().exp().max()), CEILING)
    return settings


def base_of(agent: AnyAgent, steps: int) -> Borrowed:
    """The settings to fine-tune with: our config on the card, else a recipe's with those of the agent's file."""
    kinds: dict[type, type[Config]] = {QAgent: DQNConfig, ActorCritic: A3CConfig}
    wanted = kinds.get(type(agent), PPOConfig)
    on_card = agent.card.recipe.get("config")
    if isinstance(on_card, Mapping) and on_card.get("type") == wanted.__name__:
        found: Config = decode(wanted, on_card, "card.recipe.config")
        check_stored(found, "card.recipe.config")
        return Borrowed(found, {}, ())
    how = FINE_TUNINGS[type(agent)]
    base = recipe(how.vectors if len(agent.observation_shape) == 1 else how.frames).config
    return borrow(base, agent.card.recipe.get("settings"), steps)


def watched_ramp(tolerance: float, radius: Smoothed | Exponential) -> Ramp:
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
