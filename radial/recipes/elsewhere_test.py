"""Trainings without a recipe of their own: the defaults fit the spaces; what does not fit is refused in one line."""

from dataclasses import replace

import pytest

from radial.core.data import BadInput, EnvSpec
from radial.recipes.elsewhere import DEFAULTS, default_config, in_env, spaces_of
from radial.recipes.recipe import ALGORITHMS, recipe, with_steps
from radial.training.ppo import PPOConfig


@pytest.mark.parametrize(("algorithm", "kind"), DEFAULTS)
def test_every_default_is_a_config(algorithm: str, kind: str) -> None:
    default = DEFAULTS[algorithm, kind]
    config = with_steps(replace(recipe(default.recipe).config, **default.changes), default.steps)
    assert type(config) is ALGORITHMS[algorithm]
    assert "radius" not in config.objective.coefficients(0)  # plain: no ε that was chosen for another env


def test_defaults_by_the_kind_of_env() -> None:
    config, source = default_config("ppo", "Pendulum-v1")
    assert isinstance(config, PPOConfig)
    assert (config.env, config.total_steps) == (EnvSpec("classic", "Pendulum-v1"), 1_000_000)
    assert source == "the defaults of ppo for vectors, continuous actions, after hopper-ppo"
    assert default_config("dqn", "Acrobot-v1")[1].endswith("discrete actions, after cartpole-dqn")
    assert spaces_of(EnvSpec("classic", "CartPole-v1")) == "vectors, discrete actions"


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(BadInput, match="use ppo"):
        default_config("dqn", "Pendulum-v1")
    with pytest.raises(BadInput, match="did you mean 'ppo'"):
        default_config("pppo", "CartPole-v1")
    with pytest.raises(BadInput, match="--import"):
        default_config("ppo", "NoSuchEnv-v0")


def test_a_recipe_in_another_env_keeps_the_options_of_its_suite() -> None:
    pong = recipe("pong-a3c")
    assert in_env(pong, "Freeway").env == EnvSpec("atari", "Freeway", pong.config.env.options)
    assert in_env(recipe("cartpole-ppo"), "LunarLander-v3").env == EnvSpec("gymnasium", "LunarLander-v3")
