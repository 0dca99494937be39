"""Trainings in environments that no recipe is for: a recipe's settings in another one, or the defaults of an algorithm.

The defaults are those of a recipe for the same kind of observations and actions, changed where its task was easy.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from radial.core.data import BadInput, Discrete, EnvSpec
from radial.core.text import nearest
from radial.envs.make import make_env, spec_for
from radial.recipes.recipe import ALGORITHMS, Config, Recipe, recipe, with_steps

VECTORS = {"normalize_observations": True, "hidden": (64, 64), "policy_rate": 3e-4, "value_rate": 1e-3, "entropy": 0.01}


@dataclass(frozen=True)
class Default:
    """Where the settings of an algorithm come from.

    steps    env steps of the training
    changes  settings that differ from the recipe's
    """

    recipe: str
    steps: int
    changes: Mapping[str, Any]


# By algorithm and by the kind of observations and actions.
DEFAULTS: dict[tuple[str, str], Default] = {
    ("ppo", "vectors, discrete actions"): Default("cartpole-ppo", 500_000, VECTORS),
    ("ppo", "vectors, continuous actions"): Default("hopper-ppo", 1_000_000, {}),
    ("ppo", "frames, discrete actions"): Default("fruitbot-ppo", 5_000_000, {"num_envs": 16, "rollout": 4_096}),
    ("dqn", "vectors, discrete actions"): Default("cartpole-dqn", 300_000, {}),
    ("dqn", "frames, discrete actions"): Default("pong-dqn", 2_000_000, {}),
    ("a3c", "vectors, discrete actions"): Default("cartpole-a3c", 500_000, {"rate": 1e-3}),
    ("ddpg", "vectors, continuous actions"): Default("hopper-ddpg", 1_000_000, {}),
    ("a3c", "frames, discrete actions"): Default("pong-a3c", 5_000_000, {}),
}


def in_env(made_by: Recipe, env: str) -> Config:
    """A recipe's config in another environment; options of the env stay where its suite does."""
    spec, own = spec_for(env), made_by.config.env
    if spec.suite == own.suite and spec.id != own.id:
        spec = replace(spec, options={**own.options, **spec.options})
    return replace(made_by.config, env=spec)


def default_config(algorithm: str, env: str) -> tuple[Config, str]:
    """The config of an algorithm for an environment, and where its settings come from, in words."""
    if algorithm not in ALGORITHMS:
        known = ", ".join(ALGORITHMS)
        raise BadInput(f"algorithm must be one of {known}, got {algorithm!r}{nearest(algorithm, ALGORITHMS)}")
    spec = spec_for(env)
    kind = spaces_of(spec)
    default = DEFAULTS.get((algorithm, kind))
    if default is None:
        fits = [name for name, of in DEFAULTS if of == kind]
        hint = f"; use {' or '.join(fits)}" if fits else ""
        raise BadInput(f"algorithm {algorithm} does not fit {spec.id}: it has {kind}{hint}")
    config = with_steps(replace(recipe(default.recipe).config, env=spec, **default.changes), default.steps)
    return config, f"the defaults of {algorithm} for {kind}, after {default.recipe}"


def spaces_of(spec: EnvSpec) -> str:
    """What an environment gives and takes, such as "vectors, discrete actions"."""
    env = make_env(spec, 1, 0)
    try:
        seen = "vectors" if len(env.observation_shape) == 1 else "frames"
        return f"{seen}, {'discrete' if isinstance(env.actions, Discrete) else 'continuous'} actions"
    finally:
        env.close()
