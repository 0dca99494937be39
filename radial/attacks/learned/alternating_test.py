"""ATLA: whose turn it is, what each side is shown, and that a stopped run resumes as the same run."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from radial.attacks import MAD
from radial.attacks.learned.alternating import Alternating, LearningOpponent
from radial.core.data import BadInput, EnvSpec
from radial.core.schedules import Constant, Linear
from radial.runs.config import decode, encode
from radial.training import ppo
from radial.training.attacked_training_test import stopped_and_resumed
from radial.training.ppo import PPOConfig, Turns, train_ppo

CONFIG = PPOConfig(
    EnvSpec("classic", "CartPole-v1"), total_steps=512, num_envs=4, rollout=128, epochs=1, minibatch=32, hidden=(8,),
    compile=False, checkpoint_every=1, attack="sarl", attack_radius=Linear(0.1, 100, 400), attack_probability=0.7,
    turns=Turns(),
)  # fmt: skip


def opponent(kind: str = "sarl", **changes: Any) -> LearningOpponent:
    config = replace(CONFIG, attack=kind, **changes)
    agent, *_ = ppo.set_up(config, 0, torch.device("cpu"))
    found = ppo.partners_of(config, agent, 0, Alternating(kind)).adversary
    assert isinstance(found, LearningOpponent)
    return found


@pytest.mark.parametrize("kind", ["sarl", "paad"])
def test_a_resumed_run_is_the_same_run(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = replace(CONFIG, attack=kind, env=EnvSpec("classic", "Pendulum-v1") if kind == "paad" else CONFIG.env)
    stopped_and_resumed(tmp_path, monkeypatch, train_ppo, config, Alternating(kind))
    lines = [json.loads(line) for line in (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()]
    assert "adversary/steps" not in lines[0]  # the ramp has not begun
    assert lines[-1]["adversary/steps"] > 200


def test_turns_are_taken_as_often_as_said() -> None:
    one = opponent(turns=Turns(agent=2, adversary=3))
    assert one.turn(128, 2, 1.0) == {}  # there is no radius yet
    assert one.begin(0.1)
    assert one.turn(256, 3, 1.0) == {}  # an odd update of the agent
    before = one.learner.parameters.clone()
    told = one.turn(384, 4, 1.0)
    assert not torch.equal(one.learner.parameters, before)
    assert 3 * 128 - 3 * 20 < told["adversary/steps"] <= 3 * 128  # three rollouts, less the resets
    assert "adversary/policy_loss" in told


@pytest.mark.parametrize("kind", ["sarl", "paad"])
def test_the_agent_is_shown_points_of_the_ball_in_the_share_of_steps_asked_for(kind: str) -> None:
    one = opponent(kind)
    one.begin(0.1)
    x = torch.randn(2_000, 4, generator=torch.Generator().manual_seed(0))
    shown = one(x, torch.Generator().manual_seed(1))
    assert (shown - x).abs().max() <= 0.1 + 1e-6
    assert (shown != x).any(1).float().mean().item() == pytest.approx(0.7, abs=0.05)


def test_the_adversary_earns_what_the_agent_loses_and_sees_its_weights_change() -> None:
    one = opponent("paad")
    one.begin(0.1)
    env = one._world(CONFIG.env, 2, 0)
    env.reset()
    step = env.step(torch.zeros(2, dtype=torch.long))
    torch.testing.assert_close(step.reward, -step.score)
    env.close()
    x = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
    target = torch.zeros(64, dtype=torch.long)
    torch.nn.init.orthogonal_(one.agent.network[-1].weight)
    before = one.realise(x, target)
    with torch.no_grad():
        one.agent.network[-1].weight.mul_(-1.0)
    assert not torch.equal(one.realise(x, target), before)


def test_turns_are_for_adversaries_that_learn_and_for_no_other() -> None:
    with pytest.raises(BadInput, match="attack must be one of sarl, paad, linear where turns are set, got 'mad'"):
        Alternating("mad")
    with pytest.raises(BadInput, match="turns must be set"):
        train_ppo(CONFIG, 0, attack=MAD(), quiet=True)
    with pytest.raises(BadInput, match="turns must be set"):
        train_ppo(replace(CONFIG, turns=None), 0, attack=Alternating(), quiet=True)
    with pytest.raises(BadInput, match="attack must name an adversary"):
        replace(CONFIG, attack=None)
    with pytest.raises(BadInput, match="agent"):
        Turns(agent=0)


def test_turns_are_settings_like_others() -> None:
    table = encode(replace(CONFIG, attack_radius=Constant(0.1)))
    assert table["turns"]["rate"] == 1e-3
    assert decode(PPOConfig, table).turns == Turns()
    assert "turns" not in encode(replace(CONFIG, turns=None))
