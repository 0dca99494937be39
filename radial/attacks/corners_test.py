"""The worst corner of a linear agent is known."""

import math

import pytest
import torch

from radial.agents.policies import CategoricalAgent
from radial.attacks.corners import Corners
from radial.core.ball import Ball
from radial.core.data import BadInput


def linear(weights: list[float]) -> CategoricalAgent:
    """Two actions, whose scores are w·x and 0."""
    agent = CategoricalAgent((len(weights),), 2, hidden=(1,))
    agent.network = torch.nn.Linear(len(weights), 2)
    with torch.no_grad():
        agent.network.weight.copy_(torch.tensor([weights, [0.0] * len(weights)]))
        agent.network.bias.zero_()
    return agent


@pytest.mark.parametrize("exhaustive", [6, 0])
def test_it_finds_the_corner_of_a_linear_agent(exhaustive: int) -> None:
    agent = linear([2.0, -1.0, 0.5])
    ball = Ball(torch.tensor([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]]), 0.25)
    x = Corners(exhaustive).perturb(agent, ball, torch.Generator())
    assert (x - ball.center).tolist() == [[-0.25, 0.25, -0.25], [0.25, -0.25, 0.25]]


def test_for_p_1_the_whole_budget_goes_to_one_feature() -> None:
    ball = Ball(torch.tensor([[1.0, 0.0, 0.0]]), 0.5, 1.0)
    x = Corners().perturb(linear([2.0, -1.0, 0.5]), ball, torch.Generator())
    assert (x - ball.center).tolist() == [[-0.5, 0.0, 0.0]]


def test_for_p_2_it_stays_on_the_sphere() -> None:
    ball = Ball(torch.tensor([[1.0, 0.0]]), 0.5, 2.0)
    x = Corners().perturb(linear([1.0, -1.0]), ball, torch.Generator())
    assert torch.allclose(x - ball.center, torch.tensor([[-0.5, 0.5]]) / math.sqrt(2))


def test_frames_are_too_large() -> None:
    with pytest.raises(BadInput, match="at most 512 features"):
        Corners().perturb(linear([1.0]), Ball(torch.zeros(1, 1, 30, 30), 0.1), torch.Generator())
