"""The benchmark of deep Q-learning, on a network small enough to wait for."""

import torch

from radial.commands.bench_dqn import OBJECTIVES, OPTIONS, measure
from radial.core.data import EnvSpec
from radial.training.dqn import DQNConfig


def test_every_objective_is_measured_against_the_plain_one() -> None:
    config = DQNConfig(EnvSpec("classic", "CartPole-v1"), num_envs=2, batch=8, hidden=(8,), compile=False)
    rows, speeds, size = measure(config, 1, 32, torch.device("cpu"), None)
    assert [row.name for row in rows] == [*OBJECTIVES, *OPTIONS]
    assert rows[0].ratio == 1
    assert all(row.milliseconds > 0 and row.compile_seconds == 0 for row in rows)
    assert speeds[0].ratio == 1
    assert speeds[0].name == "RADIAL, float32, an update every 4 steps"
    assert [speed.name for speed in speeds[-2:]] == ["as in the recipe, plain", "as in the recipe, RADIAL"]
    assert all(speed.env_steps_per_second > 0 for speed in speeds)
    assert size == 4 * 4 + 18  # four float32 and what is noted of a step
