"""PPO on Atari's frames: the network of its agent, one training of a few steps, and what it saves."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from radial.agents.actor_critic import ActorCritic
from radial.agents.networks import AtariActorCritic, NatureActorCritic
from radial.agents.saved import load_agent, save
from radial.core.data import BadInput
from radial.recipes.recipe import recipe
from radial.training.ppo import PPOConfig, train_ppo
from radial.training.sight import FrameSight

SIZES = (2, 4, 4, 8)


def test_frames_choose_the_convolutions_of_their_size() -> None:
    assert isinstance(ActorCritic((1, 84, 84), 4, SIZES).network, NatureActorCritic)
    assert isinstance(ActorCritic((1, 80, 80), 4).network, AtariActorCritic)
    with pytest.raises(BadInput, match="4 sizes"):
        ActorCritic((1, 84, 84), 4, (2, 2, 4, 4, 8))
    with pytest.raises(BadInput, match="observation_shape"):
        ActorCritic((1, 96, 96), 4)


def test_value_first_trains_the_first_output_alone() -> None:
    agent = ActorCritic((1, 84, 84), 3, SIZES)
    share = FrameSight(agent).value_share
    assert set(share) == {"network.model.9.weight", "network.model.9.bias"}
    assert share["network.model.9.bias"].tolist() == [1.0, 0.0, 0.0, 0.0]


@pytest.mark.skipif(importlib.util.find_spec("ale_py") is None, reason="ale-py is not installed")
def test_a_robust_training_runs_from_a_standard_agent_and_is_saved(tmp_path: Path) -> None:
    robust = recipe("pong-small-radial-ppo-overlap").config
    assert isinstance(robust, PPOConfig)
    tiny = {"hidden": SIZES, "num_envs": 2, "rollout": 16, "minibatch": 8, "epochs": 1, "compile": False}
    short = replace(robust, **tiny, total_steps=32, objective=replace(robust.objective, radius=1 / 255))
    start = ActorCritic((1, 84, 84), 4, SIZES)
    start.initialize(torch.Generator().manual_seed(0))
    agent = train_ppo(short, 0, init=start, quiet=True)
    assert isinstance(agent, ActorCritic)
    assert any(not torch.equal(a, b) for a, b in zip(agent.parameters(), start.parameters(), strict=True))
    save(agent, tmp_path / "agent")
    again = load_agent(tmp_path / "agent")
    x = torch.rand(2, 1, 84, 84)
    assert torch.equal(again.scores(x), agent.eval().scores(x))
