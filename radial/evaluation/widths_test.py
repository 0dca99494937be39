"""Widths and spreads, by hand on a network of three steps, and the ratio that does not depend on scale."""

import json

import pytest
import torch
from torch import nn

from radial.agents.networks import mlp
from radial.agents.policies import CategoricalAgent
from radial.core.ball import Ball
from radial.core.data import BadInput, EnvSpec
from radial.evaluation.widths import layer_widths, score_ratio, visited, widths

CARTPOLE = EnvSpec("classic", "CartPole-v1")


def test_three_steps_by_hand() -> None:
    """x = ±1, ε = 0.5: |3|·1 = 3 wide behind y = 3x; the ReLU leaves 3 at x = 1 and 0 at x = −1: 1.5 on average."""
    network = nn.Sequential(nn.Linear(1, 1, bias=False), nn.ReLU())
    nn.init.constant_(network[0].weight, 3.0)
    first, affine, bent = layer_widths(network, Ball(torch.tensor([[1.0], [-1.0]]), 0.5))
    assert (first.width, first.spread, first.growth) == (1.0, pytest.approx(2**0.5), None)
    assert (affine.width, affine.spread, affine.growth) == (3.0, pytest.approx(3 * 2**0.5), pytest.approx(1.0))
    assert (bent.kind, bent.width, bent.spread) == ("ReLU", 1.5, pytest.approx(3 / 2**0.5))
    assert bent.ratio == pytest.approx(2**0.5 / 2)


def test_a_factor_on_a_layer_changes_no_ratio() -> None:
    torch.manual_seed(0)
    network = mlp([4, 16, 16, 2], nn.ReLU)
    for layer in network[::2]:
        nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
    ball = Ball(torch.randn(32, 4), 0.01)
    before = [layer.ratio for layer in layer_widths(network, ball)]
    with torch.no_grad():
        network[2].weight.mul_(1000)  # type: ignore[operator, union-attr]
    assert [layer.ratio for layer in layer_widths(network, ball)] == pytest.approx(before, rel=1e-4)


def test_an_agent_is_judged_on_states_it_visits() -> None:
    agent = CategoricalAgent((4,), 2, (8,))
    agent.initialize(torch.Generator().manual_seed(0))
    x = visited(agent, CARTPOLE, 20)
    assert x.shape == (20, 4)
    found = widths(agent, CARTPOLE, 0.05, states=20)
    assert [layer.kind for layer in found.layers] == ["input", "Dense", "Tanh", "Dense"]
    facts = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert facts["ratio"] == found.layers[-1].ratio > score_ratio(agent, x, 0.0) == 0.0
    with pytest.raises(BadInput, match="radius must be > 0"):
        widths(agent, CARTPOLE, 0.0)
    with pytest.raises(BadInput, match="at least 2 centers"):
        layer_widths(agent.network, Ball(x[:1], 0.1))
