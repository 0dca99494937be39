"""When `robustify` distils instead of fine-tuning, and with which settings.

The loop is in `training.distilling`, its loss in `objectives.distil`.
"""

from collections.abc import Sequence
from typing import Any

from radial.agents.actor_critic import ActorCritic, ImpalaAgent
from radial.agents.convert import AnyAgent
from radial.agents.networks import ShallowNet
from radial.agents.policies import GaussianAgent
from radial.agents.weights import weights_id
from radial.core.agent import Card
from radial.core.checks import check_whole, is_finite
from radial.core.data import BadInput, EnvSpec
from radial.evaluation.prover import check_in_range
from radial.evaluation.widths import HOPELESS, score_ratio, visited
from radial.objectives.distil import Distil
from radial.runs.config import encode
from radial.training.distilling import DistilConfig
from radial.training.ratio_ramp import RatioRamp
from radial.workflows.train import commit

DISTIL = "distil"  # the objective's name
LEAST_ROUNDS = 20
# Sizes of the student's layers, by what it sees.
FRAMES_84, FRAMES_80 = (16, 32, 32, 256), (16, 16, 32, 32, 256)


def chosen(
    agent: AnyAgent, env: EnvSpec, radius: float, steps: int, kappa: float | None, objective: str | None, seed: int
) -> str | None:
    """`DISTIL` where nothing was asked for and the agent's bounds are hopeless at ε; None: fine-tune it.

    A weight of the standard loss, or too few steps for it, say that it is to be fine-tuned.
    """
    if objective is not None or kappa is not None or not (is_finite(radius) and radius > 0):
        return None
    check_whole("seed", seed, 0)
    check_whole("steps", steps, 1)
    check_in_range(agent, radius)
    if steps < LEAST_ROUNDS * _sizes(agent)["rollout"]:
        return None
    x = visited(agent, env, 64, seed)
    ratio = score_ratio(agent, x, radius)
    return DISTIL if not ratio < HOPELESS else None


def plan_distillation(
    agent: AnyAgent, env: EnvSpec, radius: float, steps: int, kappa: float | None = None
) -> DistilConfig:
    """The config of a distillation. kappa: weight of the searched points, 1 − alpha."""
    if not (is_finite(radius) and radius > 0):
        raise BadInput(f"radius must be finite and > 0, got {radius!r}")
    check_in_range(agent, radius)
    check_whole("steps", steps, 1)
    if kappa is not None and not (is_finite(kappa) and 0 <= kappa <= 1):
        raise BadInput(f"kappa must lie in [0, 1], got {kappa!r}")
    sizes = _sizes(agent)
    least = LEAST_ROUNDS * sizes["rollout"]
    if steps < least:
        raise BadInput(f"steps must be ≥ {least:,} to distil this agent, got {steps:,}")
    alpha = 0.5 if kappa is None else 1 - float(kappa)
    own = 0.0 if isinstance(agent, GaussianAgent) else 0.5
    return DistilConfig(env, Distil(float(radius), alpha, own), total_steps=steps, **sizes)


def _sizes(agent: AnyAgent) -> dict[str, Any]:
    """Settings by what the agent sees."""
    if len(agent.observation_shape) == 1:
        if isinstance(agent, GaussianAgent):
            return {"hidden": (64, 64), "rollout": 2_048, "updates": 64, "memory": 65_536, "minibatch": 256}
        return {"hidden": (32, 32), "rollout": 1_024}
    hidden: tuple[int, ...] = ShallowNet.SIZES if isinstance(agent, ImpalaAgent) else FRAMES_84
    hidden = FRAMES_80 if isinstance(agent, ActorCritic) else hidden
    return {
        "hidden": hidden, "num_envs": 32, "rollout": 2_048, "updates": 24, "minibatch": 256, "memory": 24_576,
        "rate": 5e-4, "checkpoint_every": 100,
    }  # fmt: skip


def ramp_of(config: DistilConfig, tolerance: float, reference: Sequence[float]) -> RatioRamp:
    """The ramp of ε for a config. reference: clean returns of the teacher."""
    rounds = round((config.last - config.first) * config.total_steps / config.rollout)
    made = RatioRamp(config.objective.radius, rounds, tolerance)
    made.hear(reference, 0)
    return made


def distilled_card(config: DistilConfig, seed: int, teacher: AnyAgent) -> Card:
    """How a student was trained."""
    facts = {"name": None, "config": encode(config), "teacher": weights_id(teacher)}
    return Card(env=config.env, recipe=facts, seed=seed, steps=config.total_steps, commit=commit())
