"""The benchmark of deep Q-learning, on a network small enough to wait for."""

import torch

from radial.commands.bench_dqn import OBJECTIVES, measure
from radial.core.data import EnvSpec
from radial.training.dqn import DQNConfig


def test_every_objective_is_measured_against_the_plain_one() -> None:
    config = DQNConfig(EnvSpec("classic", "CartPole-v1"), num_envs=2, batch=8, hidden=(8,), compile=False)
    rows, speeds, size = measure(config, 1, 32, torch.device("cpu"), None)
    assert [row.name for row in rows] == list(OBJECTIVES)
    assert rows[0].ratio == 1
    assert all(row.milliseconds > 0 and row.compile_seconds == 0 for row in rows)
    assert [speed.name for speed in speeds] == ["plain", "RADIAL, IBP"]
    assert size == 4 * 4 + 18  # four float32 and what is noted of a step
