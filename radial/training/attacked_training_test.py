"""Adversarial training in every loop: who is shown what, and that a stopped run resumes as the same run."""

import json
import signal
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from radial.agents.actor_critic import ImpalaAgent
from radial.agents.q_agent import QAgent
from radial.attacks import FGSM, MAD, PGD, Critic
from radial.attacks.gradient import Memoryless
from radial.core.agent import Agent
from radial.core.ball import Ball
from radial.core.data import BadInput, EnvSpec
from radial.core.schedules import Linear
from radial.objectives.q_objectives import RS
from radial.objectives.surrogate import WocaR
from radial.runs.run import VOLATILE, Run, Stopped
from radial.training import a3c, dqn, ppo
from radial.training.a3c import A3CConfig
from radial.training.adversary import RolloutAttack
from radial.training.dqn import DQNConfig
from radial.training.exploration import explore
from radial.training.ppo import PPOConfig
from radial.training.rollouts import Returns, collect
from radial.training.sight import sight_of
from radial.training.sight_test import CONFIG as FRAMES
from radial.training.sight_test import buttons, make_buttons

CARTPOLE = EnvSpec("classic", "CartPole-v1")
RAMP = Linear(0.1, 100, 400)
UNDER: dict[str, Any] = {"attack": "any", "attack_radius": RAMP, "attack_probability": 0.7}
PPO = PPOConfig(
    CARTPOLE, total_steps=512, num_envs=4, rollout=128, epochs=1, minibatch=32, hidden=(8,), compile=False,
    checkpoint_every=1, **UNDER,
)  # fmt: skip
DQN = DQNConfig(
    CARTPOLE, total_steps=600, num_envs=2, replay_capacity=500, learning_starts=50, update_every=8, batch=16,
    target_every=50, hidden=(8,), compile=False, log_every=50, checkpoint_every=100, **UNDER,
)  # fmt: skip
A3C = A3CConfig(
    CARTPOLE, total_steps=600, workers=1, num_envs=4, rollout=5, hidden=(8,), compile=False, log_every=100,
    checkpoint_every=100, **UNDER,
)  # fmt: skip
RUNS: dict[str, tuple[Any, Any, Any]] = {
    "ppo under MAD": (ppo.train_ppo, PPO, MAD(steps=2)),
    "ppo under a critic attack": (ppo.train_ppo, PPO, Critic(steps=2)),
    "WocaR": (
        ppo.train_ppo,
        replace(PPO, env=EnvSpec("classic", "Pendulum-v1"), objective=WocaR(RAMP, worst=RAMP), attack=None),
        None,
    ),
    "dqn, replay": (dqn.train_dqn, DQN, PGD(steps=2)),
    "dqn, acting": (dqn.train_dqn, replace(DQN, attack_on="acting"), MAD(steps=2)),
    "rs-dqn, both": (dqn.train_dqn, replace(DQN, attack_on="both", objective=RS(RAMP)), FGSM()),
    "a3c": (a3c.train_a3c, A3C, MAD(steps=2)),
}
assert buttons is not None  # a fixture that every test here uses for frames alone


@pytest.fixture(autouse=True)
def real_envs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fixture of `sight_test` puts its game in place of every env: only for frames."""
    from radial.envs.make import make_env

    chosen = lambda spec, *rest, **more: (make_buttons if spec.id == "Buttons" else make_env)(spec, *rest, **more)  # noqa: E731
    monkeypatch.setattr(ppo, "make_env", chosen)


def outcome(folder: Path) -> tuple[bytes, list[dict[str, float]]]:
    newest = max((folder / "checkpoints").glob("step_*"))
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    tensors = (newest / "tensors.safetensors").read_bytes()
    return tensors, [{key: value for key, value in line.items() if key not in VOLATILE} for line in lines]


def stopped_and_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train: Any, config: Any, attack: Any) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    train(config, 3, out=whole, attack=attack, quiet=True)
    save, saved = Run.save, []

    def stop_at_second(run: Run, *arguments: Any, **named: Any) -> None:
        save(run, *arguments, **named)
        saved.append(1)
        if len(saved) == 2:
            raise Stopped(signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(Run, "save", stop_at_second)
        with pytest.raises(Stopped):
            train(config, 3, out=broken, attack=attack, quiet=True)
    train(config, 3, out=broken, attack=attack, resume=True, quiet=True)
    assert outcome(whole) == outcome(broken)


@pytest.mark.parametrize("name", RUNS)
def test_a_resumed_run_is_the_same_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped_and_resumed(tmp_path, monkeypatch, *RUNS[name])


def test_a_resumed_run_on_frames_is_the_same_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = replace(FRAMES, attack="fgsm", attack_radius=Linear(0.1, 0, 16), attack_probability=0.5, total_steps=24)
    stopped_and_resumed(tmp_path, monkeypatch, ppo.train_ppo, config, FGSM())


@pytest.mark.parametrize(("train", "config"), [(ppo.train_ppo, PPO), (dqn.train_dqn, DQN), (a3c.train_a3c, A3C)])
def test_a_name_without_its_attack_is_refused(train: Any, config: Any) -> None:
    with pytest.raises(BadInput, match="attack must be given"):
        train(config, 0, quiet=True)
    with pytest.raises(BadInput, match="attack must be given"):
        train(replace(config, attack=None), 0, attack=MAD(), quiet=True)
    with pytest.raises(BadInput, match="attack_probability"):
        replace(config, attack_probability=1.5)


def test_what_dqn_attacks_is_one_of_three() -> None:
    with pytest.raises(BadInput, match="attack_on must be one of replay, acting, both"):
        replace(DQN, attack_on="dreams")


# ------------------------------------------------------------------------------------------------------ what is shown


@dataclass(frozen=True)
class Up(Memoryless):
    """Raises every feature by the whole radius."""

    def perturb(self, agent: Agent, ball: Ball, rng: torch.Generator) -> Tensor:
        return ball.center + ball.budget()


def test_replayed_states_are_attacked_and_their_successors_are_not() -> None:
    config = replace(DQN, attack_probability=1.0, attack_radius=0.25)
    actor, learner, replay, rng = dqn.set_up(config, 0, torch.device("cpu"))
    obs = torch.arange(8.0).view(2, 4)
    replay.begin(obs)
    for _ in range(20):
        obs = obs + 1
        still = torch.zeros(2, dtype=torch.bool)
        replay.add(torch.zeros(2, dtype=torch.long), torch.zeros(2), still, ~still, obs)
    seen: list[Any] = []
    learner.learn = lambda sample, *rest: seen.append(sample)  # type: ignore[method-assign,assignment,return-value]
    dqn.learn(config, learner, replay, 20, rng, None, RolloutAttack(Up(), actor, 1.0, compile=False))
    (sample,) = seen
    torch.testing.assert_close(sample.obs - 0.25, sample.next_obs - 1.0)  # a step adds 1, the attack ¼
    assert sample.obs.frac().eq(0.25).all()
    assert sample.next_obs.frac().eq(0).all()


def test_an_agent_that_acts_under_attack_acts_on_what_it_is_shown() -> None:
    agent = QAgent((1,), 2, (4,))
    agent.act = lambda x, rng=None: (x[:, 0] > 0).long()  # type: ignore[method-assign]
    obs, rng = torch.tensor([[-0.2], [-0.05], [0.3]]), torch.Generator().manual_seed(0)
    adversary = RolloutAttack(Up(), agent, 1.0, compile=False)
    assert adversary.begin(0.1)
    assert explore(agent, obs, 0.0, rng).tolist() == [0, 0, 1]
    assert explore(agent, obs, 0.0, rng, None, adversary).tolist() == [0, 1, 1]


def test_frames_under_attack_are_kept_as_the_agent_sees_them() -> None:
    agent = ImpalaAgent(n=2)
    agent.initialize(torch.Generator().manual_seed(0))
    sight, env = sight_of(agent, prepared=True), make_buttons(FRAMES.env, 3, 0)
    adversary = RolloutAttack(Up(), agent, 1.0, compile=False)
    adversary.begin(0.3)
    actor = sight.actor(False)
    x = actor.observe(env.reset())
    rollout, _ = collect(env, x, actor, None, Returns(3), 2, torch.Generator().manual_seed(0), adversary)
    assert rollout.x.dtype == torch.float32
    assert rollout.x[:-1].unique().tolist() == pytest.approx([0.3, 1.0])  # black is lifted; 200/255 ends at white
    _, scores = agent.joint(rollout.x[0])
    torch.testing.assert_close(sight.scores(rollout.x[0]), scores)  # not divided by 255 once more


@pytest.mark.parametrize("compile", [False, True])
def test_an_attack_that_draws_nothing_is_compiled_and_stays_the_same(compile: bool) -> None:
    agent = QAgent((5,), 3, (16,))
    agent.initialize(torch.Generator().manual_seed(0))
    x = torch.randn(16, 5, generator=torch.Generator().manual_seed(1))
    adversary = RolloutAttack(PGD(steps=3), agent, 1.0, compile)
    adversary.begin(0.1)
    ball = Ball(x, 0.1)
    expected = ball.project(PGD(steps=3).perturb(agent, ball, torch.Generator()))
    torch.testing.assert_close(adversary(x, torch.Generator()), expected, rtol=0, atol=1e-6)
    assert adversary._pure is not None


def test_a_worker_of_a3c_plays_under_attack() -> None:
    training = a3c.set_up(A3C, 0, torch.device("cpu"))
    config = replace(A3C, attack_radius=0.1)
    player = a3c.player_in_worker(config, 0, 0, training.model, a3c.make_env, 0, 0, attack=Up())
    assert player.adversary is not None
    clean = player.seen.clone()
    player.update(0)
    assert player.adversary.radius == 0.1
    assert clean.shape == player.seen.shape
    player.leave()
