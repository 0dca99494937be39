"""The benchmark of PPO on frames, with a game and rollouts small enough to wait for."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from radial.commands import bench_procgen as procgen
from radial.core.errors import BadInput
from radial.training import ppo
from radial.training.sight_test import CONFIG, make_buttons

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def buttons(monkeypatch: pytest.MonkeyPatch) -> None:
    for room in (ppo, procgen):
        monkeypatch.setattr(room, "make_env", make_buttons)


def test_both_trainings_are_measured_against_the_game_alone() -> None:
    rows = procgen.speeds(replace(CONFIG, rollout=16), 1 / 255, 1, None, CPU)
    assert [row.name for row in rows] == ["environments", "forward", "plain", "RADIAL"]
    assert rows[0].ratio == 1
    assert all(row.ratio == row.steps_per_second / rows[0].steps_per_second > 0 for row in rows)
    assert 0 < rows[2].learning_share < 1


def test_the_memory_of_an_update_holds_its_rollout() -> None:
    sizes = procgen.memory(replace(CONFIG, rollout=512, minibatch=4), 1 / 255, CPU)
    assert [size.name for size in sizes] == ["plain", "RADIAL"]
    assert sizes[0].rollout_mb == pytest.approx((256 + 1) * 2 * 3 * 64 * 64 / 1e6)
    for size in sizes:
        if size.update_mb is not None and size.process_mb is not None:
            assert size.rollout_mb < size.update_mb < size.process_mb


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"recipe": "hopper-ppo"}, "recipe must be a ProcGen recipe"),
        ({"recipe": "pong-dqn"}, "recipe must be a ProcGen recipe"),
        ({"recipe": "fruitbot-pp"}, "did you mean 'fruitbot-ppo'"),
        ({"rounds": 0}, "rounds must be"),
        ({"threads": 0}, "threads must be"),
        ({"steps": 512}, "steps must be a multiple of 64 envs and ≥ 1024"),
        ({"steps": 1_025}, "steps must be a multiple"),
    ],
    ids=str,
)
def test_what_cannot_be_measured_is_refused(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        procgen.bench_procgen(**arguments)
