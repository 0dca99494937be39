"""The benchmark of A3C, on a network small enough to wait for."""

import pytest
import torch

from radial.commands.bench_a3c import bench_a3c, shares, speeds
from radial.core.data import BadInput, EnvSpec
from radial.training.a3c import A3CConfig

CONFIG = A3CConfig(EnvSpec("classic", "CartPole-v1"), num_envs=2, rollout=5, hidden=(8,), compile=False)


def test_shares_add_up() -> None:
    rows = shares(CONFIG, 0.05, 3, torch.device("cpu"))
    assert [row.name for row in rows] == ["plain", "RADIAL"]
    for row in rows:
        assert row.env + row.forward + row.update == pytest.approx(1)
        assert min(row.env, row.forward, row.update, row.milliseconds) > 0


def test_speed_is_measured_in_real_processes_and_against_one_plain_worker() -> None:
    rows = list(speeds(CONFIG, 0.05, (1,), 0.2))
    assert [(row.name, row.workers) for row in rows] == [("plain", 1), ("RADIAL", 1)]
    assert rows[0].ratio == 1
    assert rows[1].ratio == rows[1].env_steps_per_second / rows[0].env_steps_per_second > 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"recipe": "cartpole-dqn"}, "recipe must be an A3C recipe"),
        ({"workers": (1, 0)}, "workers must be whole numbers ≥ 1"),
        ({"workers": ()}, "workers"),
        ({"seconds": float("nan")}, "seconds must be finite"),
        ({"rounds": 0}, "rounds must be"),
    ],
)
def test_what_cannot_be_measured_is_refused(arguments: dict[str, object], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        bench_a3c(**arguments)  # type: ignore[arg-type]
