"""A world whose every step is known: what is collected from it must be exactly what happened."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from radial.agents.foreign import wrap
from radial.agents.policies import CategoricalAgent, GaussianAgent
from radial.attacks.compounding import Compounding
from radial.attacks.fitting import Rollouts, as_vector, fresh_env, fresh_mlp, minibatches, policy
from radial.attacks.gradient import MAD
from radial.attacks.learned.adversaries import PAAD, SARL, Learned, LinearDirector
from radial.attacks.learned.strong import StrongPGD
from radial.attacks.sarsa import RobustSarsa
from radial.attacks.timing import Timed
from radial.attacks.transfer import Transfer
from radial.core.ball import Ball
from radial.core.data import BadInput, Continuous, Discrete, EnvSpec, Step
from radial.workflows.audit.suite import applicable

A = torch.tensor([[0.9, 0.2], [-0.1, 0.8]])
B = torch.tensor([[0.5, 0.0, 0.1], [0.0, 0.3, -0.2]])


class LinearWorld:
    """s ← A·s + B·a with reward s_0; every episode is cut after `limit` steps, or ends there if `terminal`.

    A choice k among three counts as the k-th unit vector.
    """

    observation_shape = (2,)
    spec = EnvSpec("test", "LinearWorld")
    engine = {"backend": "test"}

    def __init__(
        self, num_envs: int, seed: int = 0, limit: int = 7, discrete: bool = False, terminal: bool = False
    ) -> None:
        self.num_envs, self.limit, self.terminal = num_envs, limit, terminal
        self.actions: Discrete | Continuous = Discrete(3) if discrete else Continuous(3)
        self.rng = torch.Generator().manual_seed(seed)
        self.closed = False

    def _fresh(self) -> Tensor:
        return torch.randn(self.num_envs, 2, generator=self.rng)

    def reset(self) -> Tensor:
        self.state = self._fresh()
        self.clock = torch.arange(self.num_envs) % self.limit  # so that the ends do not fall together
        self.ended = torch.zeros(self.num_envs, dtype=torch.bool)
        return self.state

    def step(self, action: Tensor) -> Step:
        real = ~self.ended
        moved = self.state @ A.T + as_vector(self.actions, action) @ B.T
        reward = torch.where(real, self.state[:, 0], 0.0)
        self.state = torch.where(real.unsqueeze(1), moved, self._fresh())
        self.clock = torch.where(real, self.clock + 1, 0)
        self.ended = self.clock >= self.limit
        never = torch.zeros_like(self.ended)
        ends = (self.ended, never) if self.terminal else (never, self.ended)
        return Step(self.state, reward, reward, ends[0], ends[1], real)

    def close(self) -> None:
        self.closed = True


def random_agent(discrete: bool, seed: int = 0) -> GaussianAgent | CategoricalAgent:
    """Random weights large enough that the agent does something."""
    agent: GaussianAgent | CategoricalAgent = CategoricalAgent((2,), 3) if discrete else GaussianAgent((2,), 3)
    agent.initialize(torch.Generator().manual_seed(seed))
    with torch.no_grad():
        agent.network[-1].weight *= 100  # type: ignore[index, operator]
    return agent


@pytest.mark.parametrize("discrete", [False, True])
@pytest.mark.parametrize("terminal", [False, True])
def test_a_row_carries_its_true_successor_in_any_order(discrete: bool, terminal: bool) -> None:
    rng = torch.Generator().manual_seed(0)
    world = LinearWorld(4, discrete=discrete, terminal=terminal)
    rollouts = Rollouts(random_agent(discrete), world, rng, stochastic=True, discount=0.99)
    data = rollouts.collect(101)
    assert len(data) == 101
    for rows in minibatches(101, 5, rng):
        batch = data[rows]
        # The agent's normaliser has seen nothing, so prepared observations are the states (up to its 1e-8).
        assert torch.allclose(batch.next_x, batch.x @ A.T + batch.action @ B.T, atol=1e-5)
        assert batch.reward.isfinite().all()
    assert bool(data.terminated.any()) == terminal


def test_without_sampling_the_next_action_is_what_the_agent_does_next() -> None:
    agent = random_agent(discrete=False)
    data = Rollouts(agent, LinearWorld(3), torch.Generator(), stochastic=False, discount=0.99).collect(50)
    assert torch.allclose(data.next_action, agent.act(data.next_x), atol=1e-6)


def test_an_agent_must_fit_the_world() -> None:
    with pytest.raises(BadInput, match="agent must fit the env"):
        Rollouts(random_agent(True), LinearWorld(3), torch.Generator(), stochastic=False, discount=0.99)


def test_a_world_of_the_caller_stays_open_and_one_of_ours_does_not() -> None:
    world = LinearWorld(2)
    with fresh_env(world, 99, 0) as same:
        assert same is world
    assert not world.closed
    with fresh_env(EnvSpec("classic", "CartPole-v1"), 2, 0) as ours:
        assert ours.num_envs == 2
    with pytest.raises(RuntimeError, match="closed"):
        ours.reset()


def test_choices_are_unit_vectors_and_policies_are_probabilities() -> None:
    assert as_vector(Discrete(3), torch.tensor([2])).tolist() == [[0.0, 0.0, 1.0]]
    assert policy(random_agent(True), torch.ones(2, 2)).sum(1).tolist() == pytest.approx([1.0, 1.0])


def test_a_fresh_network_comes_from_its_generator_alone() -> None:
    before = torch.get_rng_state()
    one, two = (fresh_mlp([3, 8, 1], torch.Generator().manual_seed(1)) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("attack", [RobustSarsa(iterations=1, samples=64, epochs=1, parts=2), Transfer(samples=100)])
def test_an_agent_needs_no_base_class_to_be_learned_from(attack: RobustSarsa | Transfer) -> None:
    agent = random_agent(discrete=True)
    parts = {name: getattr(agent, name) for name in ("network", "actions", "observation_shape", "prepare", "act")}
    duck: Any = SimpleNamespace(**parts, scores=agent.network)
    ball = Ball(torch.zeros(2, 2), 0.1)
    shown = [
        attack.fit(each, LinearWorld(4, discrete=True), 0).perturb(each, ball, torch.Generator().manual_seed(0))
        for each in (agent, duck)
    ]
    assert torch.equal(*shown)
    with pytest.raises(BadInput, match="agent must be an agent"):
        attack.fit(agent.network, LinearWorld(4, discrete=True), 0)  # type: ignore[arg-type]


SMALL: dict[str, Any] = {
    "radius": 0.1, "num_envs": 4, "rollout": 64, "minibatch": 32, "epochs": 1, "hidden": (4,), "episodes": 1,
    "compile": False,
}  # fmt: skip
LEARNERS: dict[str, Any] = {
    "paad": PAAD(**SMALL, steps=128, restarts=1),
    "sarl": SARL(**SMALL, steps=128, restarts=1),
    "learned": Learned(**SMALL, steps=128, rates=(1e-3,)),
    "linear": LinearDirector(radius=0.1, steps=8_192, episodes=1),
    "rs": RobustSarsa(iterations=1, samples=64, epochs=1),
    "compounding": Compounding(samples=100, epochs=1),
    "transfer": Transfer(samples=100, epochs=1),
    "pgd-strong": StrongPGD(radius=0.1, episodes=1),
    "timed": Timed(MAD(), 0.5, samples=64),
}


@pytest.mark.parametrize("name", LEARNERS)
def test_fit_takes_the_id_of_an_env_and_refuses_what_is_none(name: str) -> None:
    agent, attack = CategoricalAgent((4,), 2, hidden=(4,)), LEARNERS[name]
    agent.initialize(torch.Generator().manual_seed(0))
    agent.normalizer.freeze()
    assert hasattr(attack.fit(agent, "CartPole-v1", 0), "perturb")
    with pytest.raises(BadInput, match="did you mean 'CartPole-v1'"):
        attack.fit(agent, "CartPole-v11", 0)
    with pytest.raises(BadInput, match=r"env must be an id such as .*, an EnvSpec or a VecEnv, got 3"):
        attack.fit(agent, 3, 0)
    for seed in (-1, "x"):
        with pytest.raises(BadInput, match="seed must be a whole number ≥ 0"):
            attack.fit(agent, "CartPole-v1", seed)


@pytest.mark.parametrize("name", LEARNERS)
def test_a_mean_without_a_spread_is_enough_or_refused_by_name(name: str) -> None:
    """As SAC's, TD3's and DDPG's actors, and the means of an ONNX file."""
    agent = wrap(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)), "gaussian", clips_actions=True)
    applies = name in applicable(agent, (3,))[0] or name in ("learned", "timed")
    assert applies == (name != "compounding")
    if applies:
        assert hasattr(LEARNERS[name].fit(agent, "Pendulum-v1", 0), "perturb")
    else:
        with pytest.raises(BadInput, match="needs an agent with a known spread of its actions"):
            LEARNERS[name].fit(agent, "Pendulum-v1", 0)
