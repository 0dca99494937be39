"""How far a mean action can move: exact for a linear policy, sound for any other, and what a training is told."""

import math

import pytest
import torch
from torch import nn

from radial.agents.policies import CategoricalAgent, GaussianAgent
from radial.bounds.methods import ibp, sound
from radial.core.data import EnvSpec
from radial.evaluation.reach import reach, reach_of, watching

PENDULUM = EnvSpec("classic", "Pendulum-v1")
IBP = sound(ibp)


def gaussian() -> GaussianAgent:
    agent = GaussianAgent((3,), 1, (8,))
    agent.initialize(torch.Generator().manual_seed(0))
    for parameter in agent.network.parameters():
        nn.init.normal_(parameter, generator=torch.Generator().manual_seed(1))
    agent.normalizer.freeze()
    return agent


def test_of_a_linear_policy_it_is_the_radius_times_the_weights() -> None:
    """μ = Wx + b moves by ε·Σ|w| in each coordinate: 0.1·(1 + 2) = 0.3 and 0.1·(3 + 0.5) = 0.35."""
    agent = GaussianAgent((2,), 2, (4,))
    agent.network = nn.Sequential(nn.Linear(2, 2))
    with torch.no_grad():
        agent.network[0].weight.copy_(torch.tensor([[1.0, -2.0], [3.0, 0.5]]))
    x = torch.randn(5, 2, generator=torch.Generator().manual_seed(0))
    for radius, most in ((0.1, 0.35), (0.0, 0.0)):
        found = reach_of(agent, x, radius, IBP)
        assert found.tolist() == pytest.approx([most] * 5, abs=1e-5)
        assert (found >= most).all()  # rounded outward


def test_no_perturbation_moves_an_action_farther() -> None:
    agent, rng = gaussian(), torch.Generator().manual_seed(2)
    x = torch.randn(6, 3, generator=rng)
    most = reach_of(agent, x, 0.2, IBP)
    for _ in range(50):
        near = x + 0.2 * (2 * torch.rand(x.shape, generator=rng) - 1)
        assert ((agent.scores(near) - agent.scores(x)).abs().amax(1) <= most).all()


def test_over_episodes() -> None:
    found = reach(gaussian(), PENDULUM, 0.05, episodes=2, seed=3)
    assert (found.steps, len(found.returns)) == (400, 2)
    assert 0 < found.mean <= found.largest < math.inf
    facts = found.to_json()
    assert (facts["metric"], facts["radius"], facts["bound"], facts["p"]) == ("reach", 0.05, "ibp", "inf")
    assert "terms" not in facts
    wider = reach(gaussian(), PENDULUM, 0.1, episodes=2, seed=3)
    assert wider.mean > found.mean
    assert str(found).startswith("reach ")


def test_what_a_training_is_told() -> None:
    agent = gaussian()
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(4))
    moved = float(reach_of(agent, x, 0.2, IBP).mean())
    assert watching(0.2)(agent, x) == {"robust/reach": pytest.approx(moved, abs=1e-4)}
    choosing = CategoricalAgent((3,), 2, (4,))
    nn.init.zeros_(choosing.network[-1].weight)
    with torch.no_grad():
        choosing.network[-1].bias.copy_(torch.tensor([1.0, 0.0]))  # whatever is seen, the first action
    assert watching(0.2)(choosing, x) == {"robust/certified": 1.0}
