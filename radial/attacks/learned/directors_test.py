"""Directors: who is attacked and by what, what a generation learns, and that a stopped run resumes as the same run."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from radial.attacks.learned.alternating import Alternating
from radial.attacks.learned.directors import GENERATIONS, POOL, POPULATION, Directors, attacked_envs
from radial.attacks.learned.linear import directed
from radial.core.data import BadInput, EnvSpec
from radial.core.schedules import Constant, Linear
from radial.objectives.surrogate import RadialLikelihood
from radial.training import ppo
from radial.training.attacked_training_test import stopped_and_resumed
from radial.training.ppo import PPOConfig, Turns, train_ppo
from radial.workflows.train import check_trainable

CONFIG = PPOConfig(
    EnvSpec("classic", "CartPole-v1"), total_steps=512, num_envs=4, rollout=128, epochs=1, minibatch=32, hidden=(8,),
    compile=False, checkpoint_every=1, attack="linear", attack_radius=Linear(0.1, 100, 400), attack_probability=0.75,
    turns=Turns(),
)  # fmt: skip


def opponent(**changes: Any) -> Directors:
    config = replace(CONFIG, **changes)
    agent, *_ = ppo.set_up(config, 0, torch.device("cpu"))
    found = ppo.partners_of(config, agent, 0, Alternating("linear")).adversary
    assert isinstance(found, Directors)
    return found


def test_a_director_is_a_linear_function_of_what_it_sees() -> None:
    weights = torch.tensor([[[1.0, 2.0, 0.5], [0.0, -1.0, 0.0]], [[0.0, 0.0, 3.0], [1.0, 1.0, 1.0]]])
    seen = torch.tensor([[1.0, 1.0], [2.0, -1.0]])
    # 1 + 2 + 0.5 and −1 for the first row; 3 and 2 − 1 + 1 for the second
    torch.testing.assert_close(directed(weights, seen, False), torch.tensor([[3.5, -1.0], [3.0, 2.0]]))
    assert directed(weights, seen, True).tolist() == [0, 0]


def test_a_share_of_the_envs_is_attacked_in_every_step_and_the_others_in_none() -> None:
    one = opponent(num_envs=8)
    assert one.begin(0.1)
    torch.nn.init.orthogonal_(one.agent.network[-1].weight)
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
    shown = one(x, torch.Generator())
    assert torch.equal(shown[6:], x[6:])  # 0.75 of 8 envs are the first six
    assert (shown[:6] != x[:6]).any(1).all()
    assert (shown - x).abs().max() <= 0.1 + 1e-6
    assert not one.begin(0.0)


@pytest.mark.parametrize(("share", "envs", "attacked"), [(1.0, 4, 4), (0.5, 4, 2), (0.2, 4, 1), (0.75, 1, 1)])
def test_the_share_is_rounded_to_envs(share: float, envs: int, attacked: int) -> None:
    config = replace(CONFIG, attack_probability=share, num_envs=envs)
    assert attacked_envs(config, (4,)) == attacked


@pytest.mark.parametrize(("share", "envs"), [(0.01, 16), (0.1, 4), (0.5, 1), (0.0, 16)])
def test_a_share_of_no_env_is_refused_before_anything_is_written(share: float, envs: int) -> None:
    """A training that says it is attacked, and never is."""
    config = replace(CONFIG, attack_probability=share, num_envs=envs, rollout=64 * envs)
    with pytest.raises(BadInput, match="attack_probability must be"):
        check_trainable(config, 0)


def test_after_some_generations_a_new_search_starts() -> None:
    one = opponent(turns=Turns(agent=2, adversary=GENERATIONS - 1))
    assert one.turn(128, 2, 1.0) == {}  # there is no radius yet
    one.begin(0.1)
    assert one.turn(256, 3, 1.0) == {}  # an odd update of the agent
    told = one.turn(384, 4, 1.0)
    assert told["adversary/lowest"] <= told["adversary/return"]
    assert told["adversary/steps"] >= (GENERATIONS - 1) * POPULATION * 8  # no episode of CartPole is shorter
    one.turns = Turns(agent=2)
    one.turn(512, 6, 1.0)
    assert one.search.mean.abs().max() == 0


def test_the_pool_keeps_those_that_hurt_most_drawn_now_or_before(monkeypatch: pytest.MonkeyPatch) -> None:
    one = opponent()
    one.begin(0.1)
    before = one.pool.clone()
    drawn: list[torch.Tensor] = []

    def play(weights: torch.Tensor, seed: int) -> torch.Tensor:
        drawn.append(weights)
        returns = torch.full((len(weights),), 100.0)
        returns[5] = 1.0  # the worst is a new one, the next is the last of the pool
        returns[-1] = 2.0
        return returns

    monkeypatch.setattr(one, "_play", play)
    told = one.turn(256, 2, 1.0)
    assert len(drawn[0]) == POPULATION + POOL
    assert torch.equal(one.pool[:2], torch.stack([drawn[0][5], before[-1]]))
    assert torch.equal(one.pool[2:], drawn[0][[0, 1, 2, 3, 4, 6]])  # equals in the order they were played
    assert told["adversary/lowest"] == 1.0
    assert told["adversary/return"] == pytest.approx((31 * 100 + 1) / 32)


def test_a_resumed_run_is_the_same_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped_and_resumed(tmp_path, monkeypatch, train_ppo, CONFIG, Alternating("linear"))
    lines = [json.loads(line) for line in (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()]
    assert "adversary/steps" not in lines[0]  # the ramp has not begun
    assert lines[-1]["adversary/steps"] > 200


def test_frames_are_refused() -> None:
    agent, *_ = ppo.set_up(CONFIG, 0, torch.device("cpu"))
    agent.observation_shape = (1, 84, 84)
    with pytest.raises(BadInput, match="attack must be sarl or paad for frames"):
        Alternating("linear").join(agent, CONFIG, 0)
    with pytest.raises(BadInput, match="attack must be sarl or paad for frames"):  # before a folder is made
        check_trainable(replace(CONFIG, env=EnvSpec("atari", "Pong"), rollout=512, hidden=(16, 32, 32, 512)), 0)


def test_the_ball_has_the_norm_of_the_objective() -> None:
    one = opponent(
        objective=RadialLikelihood(radius=Constant(0.1), kappa=Constant(0.9), p=2), attack_radius=Constant(0.1)
    )
    one.begin(0.1)
    torch.nn.init.orthogonal_(one.agent.network[-1].weight)
    x = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
    moved = (one(x, torch.Generator()) - x)[:3]
    assert moved.norm(dim=1).tolist() == pytest.approx([0.1] * 3)
