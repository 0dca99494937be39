"""PPO on frames: what is kept, how often the network runs, and that chunks, weights and starts are what they say.

The game is as small as a game on frames can be: one half of the picture is bright, and pressing its button is worth 1.
"""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from radial.agents.actor_critic import ImpalaAgent
from radial.agents.policies import CategoricalAgent
from radial.core.data import BadInput, Continuous, Discrete, EnvSpec, Loss
from radial.core.schedules import Constant, Linear
from radial.envs.gymnasium_vec import GymnasiumVec
from radial.objectives.surrogate import SA, Plain, RadialLikelihood, RadialOverlap, RadialReleased, RadialWorstCase
from radial.runs.config import decode, encode
from radial.training import ppo
from radial.training.ppo import PPOConfig, estimate, set_up
from radial.training.ppo import train_ppo as train
from radial.training.ppo_update import Learner, Minibatch
from radial.training.rollouts import Returns, Rollout, collect
from radial.training.sight import agent_to_train, sight_of

CONFIG = PPOConfig(
    EnvSpec("gymnasium", "Buttons"), total_steps=24, num_envs=2, rollout=16, epochs=1, minibatch=8, policy_rate=5e-4,
    discount=0.999, value_clip=0.2, entropy=0.01, max_grad_norm=0.5, compile=False, checkpoint_every=1, anneal=False,
    standardize="batch", value_weight=0.25, reward_discount=0.99, chunk=4,
)  # fmt: skip
CPU = torch.device("cpu")


class Buttons(gymnasium.Env[Any, Any]):
    """Four steps; the bright half changes with each."""

    observation_space = gymnasium.spaces.Box(0, 255, (3, 64, 64), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self.random = np.random.default_rng(seed)
        self.left = 4
        return self._frame(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = float(action == self.bright)
        self.left -= 1
        return self._frame(), reward, self.left == 0, False, {}

    def _frame(self) -> Any:
        self.bright = int(self.random.integers(2))
        frame = np.zeros((3, 64, 64), np.uint8)
        frame[:, :, 32 * self.bright : 32 * self.bright + 32] = 200
        return frame


def make_buttons(spec: EnvSpec, num_envs: int, seed: int, **more: Any) -> GymnasiumVec:
    native = SyncVectorEnv([partial(Buttons)] * num_envs, autoreset_mode=AutoresetMode.NEXT_STEP)
    engine = {"backend": "gymnasium", "version": "0", "simulator": "buttons"}
    return GymnasiumVec(native, spec, engine=engine, seeds=range(seed % 1000, seed % 1000 + num_envs), timeout=None)


@pytest.fixture(autouse=True)
def buttons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ppo, "make_env", make_buttons)


def played(agent: ImpalaAgent, steps: int = 6) -> Rollout:
    env = make_buttons(CONFIG.env, 3, 0)
    rollout, _ = collect(env, env.reset(), sight_of(agent).actor(False), None, Returns(3), steps, generator())
    return rollout


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def agent(seed: int = 0) -> ImpalaAgent:
    made = ImpalaAgent(n=2)
    made.initialize(generator(seed))
    torch.nn.init.orthogonal_(made.network.head.weight, 1.0, generator=generator(seed))  # so that states differ
    return made


def weights(of: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in of.state_dict().items()}


def same(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(one[name], two[name]) for name in one)


# ----------------------------------------------------------------------------------------------------- what is kept


def test_a_rollout_keeps_bytes_and_is_judged_in_network_units() -> None:
    actor = agent()
    rollout = played(actor)
    assert rollout.x.dtype == torch.uint8
    assert rollout.x.shape == (7, 3, 3, 64, 64)
    assert set(rollout.x.unique().tolist()) == {0, 200}
    data = estimate(rollout, sight_of(actor), 0.9, 0.5)
    assert data.x.dtype == torch.uint8
    x = actor.prepare(data.x)
    assert float(x.max()) == pytest.approx(200 / 255)
    torch.testing.assert_close(data.old_value, actor.value(x).detach())
    torch.testing.assert_close(data.old_log_prob, actor.log_prob(x, data.action).detach())
    assert len(data.x) == int(rollout.real.sum()) == 6 * 3 - 3  # an episode has four steps, then comes a reset


def test_vectors_are_looked_at_as_they_were_kept() -> None:
    actor, kept = CategoricalAgent((3,), 2, (4,)), torch.randn(5, 3)
    x, seen = sight_of(actor).look(kept)
    assert x is kept
    assert seen is actor


# ------------------------------------------------------------------------------------------------------- one network


def test_the_network_runs_once_for_policy_value_and_entropy(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[int] = []
    forward = ImpalaAgent.joint
    monkeypatch.setattr(ImpalaAgent, "joint", lambda self, x: runs.append(len(x)) or forward(self, x))
    monkeypatch.setattr(ImpalaAgent, "scores", lambda self, x: pytest.fail("the trunk ran twice"))
    actor, learner, _, rng = set_up(replace(CONFIG, chunk=None), 0, CPU)
    learner.learn(some_rows(actor, 8), 0, 1.0, rng)
    assert runs == [8, 8]  # the step, and how far the policy moved


def some_rows(actor: Any, rows: int) -> Minibatch:
    rng = generator(3)
    x = torch.randint(0, 256, (rows, 3, 64, 64), generator=rng, dtype=torch.uint8)
    action = torch.randint(0, 2, (rows,), generator=rng)
    numbers = [torch.randn(rows, generator=rng) for _ in range(3)]
    return Minibatch(x, action, torch.full((rows,), -0.7), *numbers, torch.empty(rows, 0), torch.empty(rows, 0))


@pytest.mark.parametrize("objective", [Plain(), RadialWorstCase(Constant(1 / 255)), RadialOverlap(Constant(1 / 255))])
def test_a_minibatch_in_chunks_is_the_same_minibatch(objective: Any) -> None:
    found = []
    for chunk in (None, 4):
        actor, learner, _, _ = set_up(replace(CONFIG, objective=objective, chunk=chunk), 0, CPU)
        metrics = learner.learn(some_rows(actor, 8), 0, 1.0, generator())
        found.append((learner.adam.first, metrics))
    for first, metrics in found[1:]:
        torch.testing.assert_close(first, found[0][0], atol=1e-7, rtol=1e-4)  # the gradient, but for its scale
        assert metrics == pytest.approx(found[0][1], rel=1e-3, abs=1e-5)


def test_advantages_are_standardised_over_all_rows_or_over_each_minibatch() -> None:
    class Spy:
        """An objective that only looks."""

        draws = 0

        def __init__(self) -> None:
            self.seen: list[torch.Tensor] = []

        def coefficients(self, step: int) -> dict[str, float]:
            return {}

        def at(self, step: int) -> "Spy":
            return self

        def __call__(self, agent: Any, batch: Any, at: Any, clip: float) -> Loss:
            self.seen.append(batch.advantage)
            return Loss(agent.scores(batch.x).sum() * 0, {})

    for over in ("batch", "minibatch"):
        spy = Spy()
        actor, learner, _, rng = set_up(replace(CONFIG, chunk=None, standardize=over), 0, CPU)
        watched = Learner(
            actor, spy, learner.limits, minibatch=8, chunk=None, epochs=1, policy_rate=1e-9, value_rate=1e-9,
            compile=False,
        )  # fmt: skip
        data = some_rows(actor, 16)
        watched.learn(data._replace(advantage=torch.arange(16.0)), 0, 1.0, rng)
        whole, deviation = torch.cat(spy.seen), (16 * 17 / 12) ** 0.5  # of 0 … 15
        parts = [float(part.mean()) for part in spy.seen]
        assert float(whole.mean()) == pytest.approx(0, abs=1e-6)
        if over == "batch":
            expected = (torch.arange(16.0) - 7.5) / deviation
            torch.testing.assert_close(whole.sort().values, expected)
            assert abs(parts[0]) > 1e-3
        else:
            assert parts == pytest.approx([0, 0], abs=1e-6)


def test_the_value_counts_by_its_weight() -> None:
    gradients = {}
    for weight in (0.25, 1.0):
        actor, learner, _, rng = set_up(replace(CONFIG, value_weight=weight, max_grad_norm=None, chunk=None), 0, CPU)
        learner.learn(some_rows(actor, 8), 0, 1.0, rng)
        moved = learner.flat.split(learner.adam.first)
        gradients[weight] = moved["agent.network.head.weight"]
    torch.testing.assert_close(4 * gradients[0.25][-1], gradients[1.0][-1])
    torch.testing.assert_close(
        gradients[0.25][:-1], gradients[1.0][:-1]
    )  # the logits' rows do not see the value's loss


# ---------------------------------------------------------------------------------------------------------- training


@pytest.mark.parametrize(
    "objective",
    [
        Plain(),
        RadialWorstCase(Linear(0.01, 13, 24)),
        RadialOverlap(Linear(0.01, 13, 24)),
        RadialLikelihood(Constant(1e-3)),
    ],
    ids=lambda objective: type(objective).__name__,
)
def test_every_objective_trains_on_frames(objective: Any) -> None:
    config = replace(CONFIG, objective=objective)
    trained = train(config, 0, quiet=True)
    assert isinstance(trained, ImpalaAgent)
    before = weights(set_up(config, 0, CPU)[0])
    assert not same(before, weights(trained))


def test_the_same_seed_gives_the_same_agent_and_a_resumed_run_goes_on(tmp_path: Path, monkeypatch: Any) -> None:
    whole = weights(train(CONFIG, 3, quiet=True))
    monkeypatch.setattr(ppo.Returns, "mean", lambda self: None)
    save = ppo.Run.save

    def stop(run: Any, *given: Any, **more: Any) -> None:
        save(run, *given, **more)
        raise ppo.Stopped(15)

    monkeypatch.setattr(ppo.Run, "save", stop)
    with pytest.raises(ppo.Stopped):
        train(CONFIG, 3, out=tmp_path / "run", quiet=True)
    monkeypatch.setattr(ppo.Run, "save", save)
    assert same(whole, weights(train(CONFIG, 3, out=tmp_path / "run", resume=True, quiet=True)))
    assert not same(whole, weights(train(CONFIG, 4, quiet=True)))


def test_a_training_starts_from_another_agent() -> None:
    start = agent(7)
    still = train(replace(CONFIG, policy_rate=1e-20), 0, init=start, quiet=True)
    for name, weight in weights(start).items():
        torch.testing.assert_close(weights(still)[name], weight, atol=1e-12, rtol=0)
    with pytest.raises(BadInput, match="init must be a ImpalaAgent"):
        train(CONFIG, 0, init=CategoricalAgent((3,), 2), quiet=True)
    with pytest.raises(BadInput, match="its actions is"):
        train(CONFIG, 0, init=ImpalaAgent(n=15), quiet=True)


def test_rewards_are_scaled_with_a_discount_of_their_own() -> None:
    assert set_up(CONFIG, 0, CPU)[2].discount == 0.99
    assert set_up(replace(CONFIG, reward_discount=None), 0, CPU)[2].discount == 0.999


@pytest.mark.nightly
def test_it_learns_to_press_the_bright_button() -> None:
    config = replace(CONFIG, total_steps=1_024, num_envs=8, rollout=128, epochs=2, minibatch=32, chunk=None)
    trained = train(config, 0, quiet=True)
    env = make_buttons(CONFIG.env, 8, 99)
    obs, score = env.reset(), 0.0
    for _ in range(4):
        step = env.step(trained.act(trained.prepare(obs)))
        obs, score = step.obs, score + float(step.score.sum())
    assert score >= 30  # of 32


# ------------------------------------------------------------------------------------------------------- as settings


def test_older_configs_do_not_have_what_came_later() -> None:
    plain = PPOConfig(EnvSpec("classic", "CartPole-v1"))
    later = {"standardize", "value_weight", "reward_discount", "chunk"}
    assert not later & set(encode(plain))
    assert later <= set(encode(CONFIG))
    for config in (plain, CONFIG):
        assert decode(PPOConfig, json.loads(json.dumps(encode(config)))) == config


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"standardize": "rollout"}, "standardize must be one of minibatch, batch"),
        ({"chunk": 3}, "chunk must divide minibatch"),
        ({"chunk": 0}, "chunk must be a whole number"),
        ({"standardize": "minibatch"}, "chunk must be none"),
        ({"objective": RadialReleased(Constant(0.1))}, "standardize must be minibatch"),
        ({"value_weight": -1.0}, "value_weight must be"),
        ({"reward_discount": 1.5}, "reward_discount must lie in"),
    ],
    ids=str,
)
def test_bad_settings_name_the_field(change: dict[str, Any], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        replace(CONFIG, **change)


def test_envs_that_cannot_be_learned_here() -> None:
    with pytest.raises(BadInput, match="discrete actions"):
        agent_to_train((3, 64, 64), Continuous(2), (64,), "tanh")
    with pytest.raises(BadInput, match="80, 80"):
        agent_to_train((1, 50, 50), Discrete(2), (64,), "tanh")


def test_the_overlap_is_for_softmax_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    from radial.envs.make import make_env

    monkeypatch.setattr(ppo, "make_env", make_env)
    config = PPOConfig(EnvSpec("classic", "Pendulum-v1"), RadialOverlap(Constant(0.1)))
    with pytest.raises(BadInput, match="RadialOverlap needs discrete actions; those of Pendulum-v1"):
        set_up(config, 0, CPU)


def test_a_spread_is_for_gaussian_policies() -> None:
    from radial.envs.make import make_env

    config = PPOConfig(EnvSpec("classic", "CartPole-v1"), SA(Constant(0.1), 0.1, spread=0.2))
    with pytest.raises(BadInput, match=r"objective.spread must be none: the actions of CartPole-v1 are discrete"):
        set_up(config, 0, CPU, make=make_env)


def test_of_one_network_the_last_output_alone_serves_the_value() -> None:
    agent, learner, _, _ = set_up(CONFIG, 0, CPU)
    pieces = learner.flat.split(learner.of_value)
    assert learner.of_value.sum() == 256 + 1
    assert pieces["agent.network.head.weight"][-1].all()
    assert pieces["agent.network.head.bias"][-1] == 1
    trained = train(replace(CONFIG, value_first=1_000), 0, quiet=True)
    x = torch.rand(4, 3, 64, 64, generator=generator())
    assert torch.equal(trained.scores(x), agent.scores(x))
    assert not torch.equal(trained.value(x), agent.value(x))
