"""Constant adversaries: which are tried, which win, and the policies they become."""

import math

import pytest
import torch

from radial.attacks.fitting_test import random_agent
from radial.attacks.learned.forms import Steer
from radial.attacks.learned.halving_test import CARTPOLE, balancing
from radial.attacks.learned.screening import TooLong, constant_policy, constants, screened
from radial.attacks.learned.world import Threat
from radial.core.data import Continuous, Discrete


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_few_directions_are_all_tried_and_many_are_sampled() -> None:
    assert constants(Discrete(3), seeded(0)).tolist() == [0, 1, 2]
    assert len(constants(Discrete(40), seeded(0))) == 26
    plane = {tuple(row) for row in constants(Continuous(2), seeded(0)).tolist()}
    assert len(plane) == 8
    assert (0.0, 0.0) not in plane
    six = constants(Continuous(6), seeded(0))
    assert six.shape == (26, 6)
    assert torch.equal(six[:6], torch.eye(6))
    assert torch.equal(constants(Continuous(100), seeded(0)).abs(), torch.ones(26, 100))


def test_the_worst_one_comes_first() -> None:
    """An agent that always pushes to one side falls soon; one that is barely moved does not."""
    found, steps = screened(balancing(), Steer(), Threat(0.6, math.inf), CARTPOLE, 10_000, 0)
    assert sorted(found.tolist()) == [0, 1]
    assert 0 < steps <= 2 * 2 * 40 + 4
    with pytest.raises(TooLong) as cut:
        screened(balancing(), Steer(), Threat(0.0, math.inf), CARTPOLE, 50, 0)
    assert cut.value.steps == 48  # four envs side by side: one step more would be 52


@pytest.mark.parametrize("discrete", [False, True])
def test_it_becomes_a_policy_that_does_just_that(discrete: bool) -> None:
    agent = random_agent(discrete)
    action = torch.tensor(2) if discrete else torch.tensor([1.0, 0.0, -1.0])
    space = Discrete(3) if discrete else Continuous(3)
    policy = constant_policy(agent, (2,), space, (8,), action, 0)
    x = torch.randn(20, 2, generator=seeded(1))
    with torch.no_grad():
        acted = policy.act(policy.prepare(x))
    assert torch.allclose(acted.float(), action.float().expand_as(acted), atol=0.1)
