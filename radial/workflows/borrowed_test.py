"""What a file of Stable-Baselines3 says about its training is used, and what it keeps as code is not."""

from dataclasses import replace
from typing import Any

import pytest

from radial.agents.importers.sb3_settings import plain_settings
from radial.recipes.recipe import recipe
from radial.training.a3c import A3CConfig
from radial.workflows.borrowed import borrow

PPO: Any = recipe("cartpole-radial-ppo").config
DQN: Any = recipe("cartpole-radial-dqn").config
# As the zoo's PPO on LunarLander was saved by a recent version: one schedule is printed, one is code only.
DATA = {
    "n_envs": 16, "n_steps": 1024, "batch_size": 64, "n_epochs": 4, "gamma": 0.999, "gae_lambda": 0.98,
    "ent_coef": 0.01, "max_grad_norm": 0.5, "verbose": 1, "target_kl": None, "use_sde": False,
    "learning_rate": {":type:": "<class 'function'>", ":serialized:": "gASV"},
    "clip_range": {":type:": "FloatSchedule", ":serialized:": "gASV", "value_schedule": "ConstantSchedule(val=0.1)"},
}  # fmt: skip


def test_numbers_are_read_and_code_is_not() -> None:
    found = plain_settings(DATA)
    assert found["clip_range"] == 0.1
    assert (found["gamma"], found["n_steps"]) == (0.999, 1024)
    assert "learning_rate" not in found
    odd = {"gamma": float("nan"), "n_epochs": True, "clip_range": {"value_schedule": "ConstantSchedule(val=1e999)"}}
    assert plain_settings(odd) == {}


def test_ppo_goes_on_with_what_its_file_says() -> None:
    config, used, ours = borrow(PPO, plain_settings(DATA), 2_000_000)
    assert isinstance(config, type(PPO))
    assert (config.discount, config.lam, config.entropy, config.epochs, config.clip) == (0.999, 0.98, 0.01, 4, 0.1)
    assert (config.rollout, config.minibatch, config.num_envs) == (16_384, 64, PPO.num_envs)
    assert (config.policy_rate, ours) == (PPO.policy_rate, ("learning_rate",))
    assert used["gamma"] == 0.999


@pytest.mark.parametrize(
    ("steps", "n_steps", "batch", "rollout", "minibatch"),
    [
        (300_000, 1024, 64, 4_688, 64),  # 64 updates, in whole rounds of 8 envs
        (300_000, 2, 256, 1_024, 256),  # 32 steps are too few
        (300_000, 1024, 100_000, 4_688, 64),  # a minibatch larger than the rollout: ours
    ],
)
def test_a_rollout_fits_the_steps(steps: int, n_steps: int, batch: int, rollout: int, minibatch: int) -> None:
    told = plain_settings(DATA | {"n_steps": n_steps, "batch_size": batch})
    config: Any = borrow(PPO, told, steps).config
    assert (config.rollout, config.minibatch) == (rollout, minibatch)


def test_dqn_goes_on_with_what_its_file_says() -> None:
    told = {"gamma": 0.95, "learning_rate": 2.3e-3, "batch_size": 64, "exploration_final_eps": 0.04}
    config, _, ours = borrow(DQN, told, 100_000)
    assert isinstance(config, type(DQN))
    assert (config.discount, config.rate, config.batch, config.exploration(0)) == (0.95, 2.3e-3, 64, 0.04)
    assert ours == ("max_grad_norm",)


@pytest.mark.parametrize("told", [None, {}, "gamma", {"gamma": "x", "n_epochs": 2.5}, {"gamma": 7.0, "ent_coef": -1}])
def test_what_cannot_be_right_is_ours(told: Any) -> None:
    assert borrow(PPO, told, 100_000).config == PPO


def test_other_trainings_have_no_such_file() -> None:
    a3c: Any = recipe("cartpole-a3c").config
    assert isinstance(a3c, A3CConfig)
    assert borrow(a3c, {"gamma": 0.5}, 100_000).config == a3c
    assert borrow(replace(PPO, discount=0.9), None, 100_000).config.discount == 0.9
