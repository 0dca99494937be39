"""WocaR's critic: the worst action is in reach and worse than chance, and it learns what it should."""

import pytest
import torch

from radial.agents.policies import GaussianAgent
from radial.core.data import BadInput, EnvSpec
from radial.core.schedules import Constant
from radial.objectives.surrogate import WocaR
from radial.training import ppo
from radial.training.ppo import PPOConfig
from radial.training.rollouts import Rollout
from radial.training.worst_critic import WorstCritic

OBJECTIVE = WocaR(Constant(0.1), reach=0.2, rate=1e-2, tau=0.1)
STEPS, ENVS = 8, 4


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def agent() -> GaussianAgent:
    made = GaussianAgent((3,), 2, (8,))
    made.initialize(generator())
    torch.nn.init.orthogonal_(made.network[-1].weight, 1.0, generator=generator(1))
    return made


def critic(discount: float = 0.9, **more: int) -> WorstCritic:
    settings = {"minibatch": 8, "epochs": 2} | more
    return WorstCritic(agent(), OBJECTIVE, generator(2), hidden=(8,), discount=discount, compile=False, **settings)


def rollout(reward: float = 1.0) -> Rollout:
    no = torch.zeros(STEPS, ENVS, dtype=torch.bool)
    x = torch.randn(STEPS + 1, ENVS, 3, generator=generator(3))
    action = torch.randn(STEPS, ENVS, 2, generator=generator(4))
    return Rollout(x, action, torch.full((STEPS, ENVS), reward), no, no, ~no)


def test_the_worst_action_is_in_reach_and_worse_than_any_found_by_chance() -> None:
    found = critic()
    x = torch.randn(16, 3, generator=generator(5))
    bounds = found.in_reach(x)
    with torch.no_grad():
        worst = found.worst_actions(x)
        assert bounds.contains(worst).all()
        lowest = found.value(found.parameters, x, worst)
        for seed in range(50):
            some = bounds.lower + torch.rand(16, 2, generator=generator(seed)) * bounds.width
            assert (found.value(found.parameters, x, some) >= lowest - 1e-3).all()
    near = agent().scores(x + 0.2 * torch.randn(16, 3, generator=generator(6)).sign())
    assert bounds.contains(near).all()  # what a perturbation of this size can make the agent do


def test_without_a_future_it_learns_the_reward() -> None:
    found = critic(discount=0.0, epochs=150)
    loss = found.learn(rollout(2.0), generator())["losses/worst_q_loss"]
    x, action = rollout().x[:-1].flatten(0, 1), rollout().action.flatten(0, 1)
    assert found.value(found.parameters, x, action).detach().mean().item() == pytest.approx(2.0, abs=0.1)
    assert loss < 4.0


def test_the_future_is_that_of_the_worst_action_by_the_target_network_and_ends_with_the_episode() -> None:
    found = critic(epochs=1, minibatch=STEPS * ENVS)
    data = rollout()
    data.terminated[3] = True
    next_x = data.x[1:].flatten(0, 1)
    with torch.no_grad():
        future = found.judge(next_x, found.worst_actions(next_x)) * (~data.terminated).flatten()
    before, target = found.parameters, found.target
    metrics = found.learn(data, generator())
    assert metrics["robust/worst_q"] == pytest.approx(float((1 + 0.9 * future).mean()), rel=1e-5)
    torch.testing.assert_close(found.target, 0.9 * target + 0.1 * found.parameters)  # τ = 0.1
    assert not torch.equal(found.parameters, before)


def test_rows_that_are_not_real_are_not_learned_from() -> None:
    one, other = critic(), critic()
    clean, reset = rollout(), rollout()
    clean.real[0] = reset.real[0] = False
    reset.reward[0] = 1e6
    one.learn(clean, generator())
    other.learn(reset, generator())
    assert torch.equal(one.parameters, other.parameters)


def test_it_is_for_real_valued_actions() -> None:
    config = PPOConfig(EnvSpec("classic", "CartPole-v1"), OBJECTIVE)
    with pytest.raises(BadInput, match="WocaR needs continuous actions; those of CartPole-v1"):
        ppo.set_up(config, 0, torch.device("cpu"))


def test_everything_that_changes_is_saved() -> None:
    one, other = critic(), critic()
    one.learn(rollout(), generator())
    other.restore(one.state())
    one.learn(rollout(), generator(1))
    other.learn(rollout(), generator(1))
    assert torch.equal(one.parameters, other.parameters)
    assert torch.equal(one.target, other.target)
