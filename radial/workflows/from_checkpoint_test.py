"""A checkpoint loads as the agent that was trained up to there."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from radial.core.data import BadInput, EnvSpec
from radial.runs.run import CONFIG
from radial.training.a3c import A3CConfig
from radial.training.dqn import DQNConfig
from radial.training.ppo import PPOConfig
from radial.workflows.audit.subject import audited
from radial.workflows.loading import load
from radial.workflows.train import train

CARTPOLE = EnvSpec("classic", "CartPole-v1")
CONFIGS: list[Any] = [
    PPOConfig(
        CARTPOLE, total_steps=256, num_envs=4, rollout=128, epochs=1, minibatch=32, hidden=(8,), compile=False,
        checkpoint_every=1,
    ),
    DQNConfig(
        CARTPOLE, total_steps=300, num_envs=2, replay_capacity=1_000, learning_starts=100, batch=16, hidden=(8,),
        compile=False, log_every=100, checkpoint_every=150,
    ),
    A3CConfig(
        CARTPOLE, total_steps=300, workers=1, num_envs=2, rollout=5, hidden=(8,), compile=False, log_every=100,
        checkpoint_every=150,
    ),
]  # fmt: skip


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: type(config).__name__)
def test_the_last_checkpoint_is_the_agent(config: Any, tmp_path: Path) -> None:
    agent: Any = train(config, 3, out=tmp_path / "run", quiet=True)
    room = tmp_path / "run" / "checkpoints"
    last = max(path for path in room.iterdir() if path.name != "best")
    found: Any = load(last)
    assert all(torch.equal(tensor, found.state_dict()[name]) for name, tensor in agent.state_dict().items())
    assert (found.card.env, found.card.seed, found.card.steps) == (CARTPOLE, 3, int(last.name.removeprefix("step_")))
    best: Any = load(str(room / "best"))
    assert best.card.steps == int((room / "best").resolve().name.removeprefix("step_"))
    again: Any = train(config, 4, init=room / "best", quiet=True)  # and training goes on from there
    assert type(again) is type(agent)


def test_a_folder_without_an_agent_is_refused_in_one_line(tmp_path: Path) -> None:
    train(CONFIGS[0], 0, out=tmp_path / "run", quiet=True)
    room = tmp_path / "run" / "checkpoints"
    last = max(path for path in room.iterdir() if path.name != "best")
    shutil.copytree(last, tmp_path / "alone")
    (tmp_path / "empty" / "checkpoints").mkdir(parents=True)
    cases = {
        tmp_path / "alone": "is a checkpoint without its run",
        room: "is not an agent",
        tmp_path / "empty": "has not finished",
        room / "step_999999999": "no agent .* neither a folder",
    }
    settings = json.loads((tmp_path / "run" / CONFIG).read_text())
    for where, says in cases.items():
        with pytest.raises(BadInput, match=says) as caught:
            load(where)
        assert "\n" not in str(caught.value)
    for change, says in (({"type": "Other"}, "type must be one of"), ({"hidden": [9]}, "holds no agent that fits")):
        (tmp_path / "run" / CONFIG).write_text(json.dumps(settings | change))
        with pytest.raises(BadInput, match=says) as caught:
            load(last)
        assert "\n" not in str(caught.value)


def test_an_audit_takes_a_checkpoint(tmp_path: Path) -> None:
    train(CONFIGS[0], 0, out=tmp_path / "run", quiet=True)
    who = audited(tmp_path / "run" / "checkpoints" / "best", None)
    assert who.spec.id == "CartPole-v1"
