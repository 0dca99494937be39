"""Adversarial training shows what the attack shows, compiled or not, to the share of rows that was asked for."""

import math

import pytest
import torch

from radial.agents.policies import CategoricalAgent, GaussianAgent
from radial.attacks import ATTACKS, MAD, RandomNoise
from radial.core.ball import Ball
from radial.core.data import EnvSpec
from radial.core.schedules import Constant
from radial.objectives.surrogate import Plain, RadialLikelihood
from radial.training.adversary import Climbing, RolloutAttack
from radial.training.ppo import PPOConfig


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def gaussian() -> GaussianAgent:
    agent = GaussianAgent((5,), 3, (16, 16))
    agent.initialize(generator())
    return agent


X = torch.randn(16, 5, generator=generator(1))


@pytest.mark.parametrize("compile", [False, True])
def test_mad_between_env_and_agent_is_mad(compile: bool) -> None:
    agent = gaussian()
    ball = Ball(X, 0.1)
    expected = ball.project(MAD().perturb(agent, ball, generator(2)))
    adversary = RolloutAttack(MAD(), agent, 1.0, compile)
    assert adversary.begin(0.1)
    torch.testing.assert_close(adversary(X, generator(2)), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("attack", [MAD(), RandomNoise()], ids=["compiled", "as-it-is"])
def test_it_stays_in_the_ball_of_the_objective(attack: MAD | RandomNoise) -> None:
    """A training for one norm is attacked in it; one without a ball in the usual one."""
    agent, env = gaussian(), EnvSpec("classic", "Pendulum-v1")
    for objective, norm in ((RadialLikelihood(Constant(0.5), p=2.0), 2.0), (Plain(), math.inf)):
        config = PPOConfig(env, objective, attack="mad", attack_probability=1.0, attack_radius=Constant(0.5))
        adversary = RolloutAttack.of(attack, agent, config)
        assert adversary.begin(0.5)
        ball = Ball(X, 0.5, norm)
        expected = ball.project(attack.perturb(agent, ball, generator(2)))
        torch.testing.assert_close(adversary(X, generator(2)), expected, rtol=0, atol=1e-6)
        assert not torch.equal(expected, X)


def test_a_compiled_attack_sees_new_weights_and_a_new_radius() -> None:
    agent = gaussian()
    adversary = RolloutAttack(MAD(), agent, 1.0, compile=True)
    adversary.begin(0.1)
    adversary(X, generator(2))
    with torch.no_grad():
        for parameter in agent.parameters():
            parameter.mul_(-1.5)
    ball = Ball(X, 0.3)
    adversary.begin(0.3)
    expected = ball.project(MAD().perturb(agent, ball, generator(3)))
    torch.testing.assert_close(adversary(X, generator(3)), expected, rtol=0, atol=1e-6)
    assert all(parameter.grad is None for parameter in agent.parameters())


def test_each_row_is_attacked_with_the_probability() -> None:
    adversary = RolloutAttack(RandomNoise(), gaussian(), 0.25, compile=False)
    adversary.begin(0.1)
    rows = torch.zeros(10_000, 5)
    moved = (adversary(rows, generator()) != rows).any(1).float().mean().item()
    assert moved == pytest.approx(0.25, abs=0.02)
    adversary.probability = 0.0
    assert torch.equal(adversary(rows, generator()), rows)


def test_a_radius_of_zero_is_nothing_to_do() -> None:
    assert not RolloutAttack(MAD(), gaussian(), 1.0, compile=True).begin(0.0)


@pytest.mark.parametrize("name", [name for name, make in ATTACKS.items() if isinstance(make(), Climbing)])
@pytest.mark.parametrize("agent", [gaussian(), CategoricalAgent((5,), 3, (16,))], ids=["gaussian", "categorical"])
def test_what_climbs_draws_what_it_says(name: str, agent: GaussianAgent | CategoricalAgent) -> None:
    """`perturb` is `climb` after as many draws as `draws` says: a training and an evaluation see one attack."""
    attack = ATTACKS[name]()
    assert isinstance(attack, Climbing)
    ball = Ball(X, 0.1)
    rng = generator(4)
    noise = [torch.randn(X.shape, generator=rng) for _ in range(attack.draws(agent))]
    assert torch.equal(attack.climb(agent, ball, noise), attack.perturb(agent, ball, generator(4)))  # type: ignore[union-attr]
