"""Starts with narrow bounds, and batch normalisation that becomes part of its layer."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from radial.agents.actor_critic import ImpalaAgent, ShallowAgent
from radial.agents.networks import ResidualBlock
from radial.agents.q_agent import QAgent
from radial.agents.starts import STARTS, fold_batch_norm, start_agent
from radial.bounds.methods import ibp
from radial.core.ball import Ball
from radial.core.data import BadInput


def rng() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def ratio(agent: Any, x: Tensor) -> float:
    with torch.no_grad():
        return float(ibp(agent.choice, Ball(x, 1 / 255)).width.mean() / agent.choice(x).std(0).mean())


def test_ibp_draws_weights_of_deviation_root_2_pi_over_inputs_halved_behind_a_sum() -> None:
    agent = ImpalaAgent()
    start_agent(agent, "ibp", rng())
    trunk: Any = agent.network.trunk
    first, second = trunk[2].branch, trunk[3].branch  # the second block is fed by the sum of the first
    whole = math.sqrt(2 * math.pi) / (16 * 9)
    assert float(first[1].weight.detach().std()) == pytest.approx(whole, rel=0.1)
    assert float(first[3].weight.detach().std()) == pytest.approx(whole, rel=0.1)
    assert float(second[1].weight.detach().std()) == pytest.approx(whole / 2, rel=0.1)
    assert float(trunk[-2].weight.detach().std()) == pytest.approx(math.sqrt(2 * math.pi) / 2048 / 2, rel=0.1)
    assert float(agent.network.head.weight.detach().norm()) == pytest.approx(0.01 * 4, rel=0.1)


def test_every_block_begins_as_the_identity() -> None:
    agent = ImpalaAgent()
    start_agent(agent, "zero-branches", rng())
    x = torch.rand(1, 16, 8, 8)
    blocks = [each for each in agent.modules() if isinstance(each, ResidualBlock)]
    assert len(blocks) == 6
    for block in blocks[:2]:  # those of 16 channels
        assert torch.equal(block(x), x)


def test_bounds_of_a_deep_network_start_far_narrower() -> None:
    """Width by spread of the logits at 1/255: some 1e10 for PyTorch's own start, below 1e5 with identity blocks."""
    x = torch.rand(16, 3, 64, 64, generator=rng())
    found = {}
    for name in STARTS:
        agent = ImpalaAgent()
        start_agent(agent, name, rng())
        found[name] = ratio(agent, x)
    shallow = ShallowAgent()
    start_agent(shallow, "zero-branches", rng())
    assert found["default"] > 1e3 * found["ibp"] > 1e3 * found["zero-branches"] > 1e3 * ratio(shallow, x)


def test_a_q_network_starts_from_it_too_and_its_value_head_keeps_its_own() -> None:
    one, other = QAgent((4,), 2, (64, 64)), QAgent((4,), 2, (64, 64))
    start_agent(one, "default", rng())
    start_agent(other, "ibp", rng())
    assert float(other.network.features[0].weight.detach().std()) == pytest.approx(math.sqrt(2 * math.pi) / 4, rel=0.15)
    assert torch.equal(one.network.value[0].weight, other.network.value[0].weight)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="start must be one of default, ibp, zero-branches, got 'he'"):
        start_agent(one, "he", rng())


@pytest.mark.parametrize("affine", [True, False])
def test_a_folded_network_gives_the_same_values_and_bounds(affine: bool) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Sequential(nn.Conv2d(2, 4, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(4, affine=affine), nn.ReLU()),
        nn.Flatten(), nn.Linear(36, 5), nn.BatchNorm1d(5, affine=affine),
    )  # fmt: skip
    x = torch.randn(32, 2, 5, 5)
    for _ in range(3):
        network(x)  # running statistics
    assert len(fold_batch_norm(network)) == 4  # type: ignore[arg-type]  # in train mode nothing is folded
    network.eval()
    folded = fold_batch_norm(network)
    assert not any(isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d) for layer in folded.modules())
    torch.testing.assert_close(folded(x), network(x), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(
        ibp(folded, Ball(x, 0.1)).lower, ibp(network, Ball(x, 0.1)).lower, atol=1e-4, rtol=1e-4
    )  # fmt: skip


def test_one_folded_unit_by_hand() -> None:
    """y = 3x + 1, then γ = 2, β = 5, μ = 4, σ² + ε = 9: 2·(3x + 1 − 4)/3 + 5 = 2x + 3."""
    linear, norm = nn.Linear(1, 1), nn.BatchNorm1d(1, eps=0.0)
    with torch.no_grad():
        for tensor, value in (
            (linear.weight, 3.0), (linear.bias, 1.0), (norm.weight, 2.0), (norm.bias, 5.0),
            (norm.running_mean, 4.0), (norm.running_var, 9.0),
        ):  # fmt: skip
            tensor.fill_(value)  # type: ignore[union-attr]
    folded: Any = fold_batch_norm(nn.Sequential(linear, norm).eval())
    assert (folded[0].weight.item(), folded[0].bias.item()) == (2.0, 3.0)
