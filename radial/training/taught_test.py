"""Learning from a teacher: the loss by hand, who acts when, and a training on CartPole that resumes and is refused."""

import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from radial.agents.actor_critic import ActorCritic
from radial.agents.networks import MLPDueling
from radial.agents.q_agent import QAgent
from radial.core.data import BadInput, EnvSpec
from radial.core.schedules import Constant, Linear
from radial.objectives.q_objectives import TD, Batch, Nets, Plain, QDagger
from radial.training import dqn
from radial.training.dqn import DQNConfig, train_dqn

TINY = DQNConfig(
    EnvSpec("classic", "CartPole-v1"), QDagger(Linear(0.0, 120, 200, start=2.0)), total_steps=240, num_envs=4,
    replay_capacity=300, learning_starts=40, update_every=8, batch=16, target_every=80, hidden=(8,), compile=False,
    exploration=Constant(0.1), log_every=40, checkpoint_every=80,
)  # fmt: skip


def teacher(actions: int = 2) -> ActorCritic:
    agent = ActorCritic((4,), actions, (6,))
    agent.initialize(torch.Generator().manual_seed(9))
    return agent


def test_the_loss_by_hand() -> None:
    torch.manual_seed(0)
    online, target, policy = MLPDueling(2, 4, (8,)), MLPDueling(2, 4, (8,)), teacher().choice
    x, ones = torch.rand(5, 4), torch.ones(5)
    batch = Batch(x, torch.zeros(5, dtype=torch.int64), ones, torch.rand(5, 4), ones, ones, torch.empty(0))
    at = {"weight": torch.tensor(3.0)}
    found = QDagger(temperature=0.5)(Nets(online, target, teacher=policy), batch, at, TD())
    p, q = policy(x).softmax(1), (online(x) / 0.5).softmax(1)
    kl = (p * (p.log() - q.log())).sum(1).mean()
    plain = Plain()(Nets(online, target), batch, {}, TD()).total
    torch.testing.assert_close(found.total, plain + 3 * kl)


def test_the_teacher_acts_until_its_weight_falls_and_then_it_is_plain() -> None:
    objective = QDagger(Linear(0.0, 100, 300, start=1.0))
    assert [objective.teaches(step) for step in (0, 100, 101, 300)] == [True, True, False, False]
    assert objective.at(299) == objective
    assert objective.at(300) == Plain()


def test_a_taught_training_resumes_and_needs_a_teacher_that_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train_dqn(TINY, 0, init=teacher(), quiet=True).state_dict()
    apart = train_dqn(replace(TINY, objective=Plain()), 0, quiet=True).state_dict()
    assert any(not torch.equal(whole[name], apart[name]) for name in whole)

    def stop(run: dqn.Run, step: int, *args: Any, **named: Any) -> None:
        save(run, step, *args, **named)
        raise dqn.Stopped(signal.SIGTERM)

    save = dqn.Run.save
    with monkeypatch.context() as patch:
        patch.setattr(dqn.Run, "save", stop)
        with pytest.raises(dqn.Stopped):
            train_dqn(TINY, 0, out=tmp_path / "run", init=teacher(), quiet=True)
    resumed = train_dqn(TINY, 0, out=tmp_path / "run", init=teacher(), resume=True, quiet=True).state_dict()
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    for wrong, says in ((None, "got none"), (QAgent((4,), 2, (8,)), "got a QAgent"), (teacher(3), "2 actions")):
        with pytest.raises(BadInput, match=says):
            train_dqn(TINY, 0, init=wrong, quiet=True)  # type: ignore[arg-type]
