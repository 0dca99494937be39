"""The agents, against torch's own distributions and closed forms."""

import math

import pytest
import torch
from torch import nn
from torch.distributions import Categorical, Normal

from radial.agents.policies import CategoricalAgent, GaussianAgent, agent_for
from radial.core.data import BadInput, Continuous, Discrete


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(params=[GaussianAgent, CategoricalAgent])
def agent(request: pytest.FixtureRequest) -> GaussianAgent | CategoricalAgent:
    agent = request.param((5,), 3, (8, 6))
    agent.initialize(rng())
    return agent


def test_the_agent_fits_the_actions() -> None:
    hopper, cartpole = agent_for((11,), Continuous(3)), agent_for((4,), Discrete(2), (32,))
    assert isinstance(hopper, GaussianAgent)
    assert hopper.hidden == (64, 64)
    assert isinstance(cartpole, CategoricalAgent)
    assert cartpole.hidden == (32,)
    assert cartpole.actions == Discrete(2)
    assert sum(p.numel() for p in hopper.network.parameters()) == 11 * 64 + 64 + 64 * 64 + 64 + 64 * 3 + 3


def test_shapes(agent: GaussianAgent | CategoricalAgent) -> None:
    x = agent.prepare(torch.randn(7, 5, generator=rng(), dtype=torch.float64))
    assert x.dtype == torch.float32
    assert agent.scores(x).shape == (7, 3)
    assert agent.value(x).shape == (7,)
    action = agent.act(x, rng())
    assert action.shape == ((7, 3) if isinstance(agent, GaussianAgent) else (7,))
    assert action.dtype == (torch.float32 if isinstance(agent, GaussianAgent) else torch.int64)
    assert agent.log_prob(x, action).shape == (7,)


def test_scores_come_from_the_network_that_is_bounded(agent: GaussianAgent | CategoricalAgent) -> None:
    x = torch.randn(4, 5, generator=rng())
    assert torch.equal(agent.scores(x), agent.network(x))


def test_prepare_is_the_normalizer_and_refuses_other_shapes(agent: GaussianAgent | CategoricalAgent) -> None:
    agent.normalizer.update(torch.tensor([[0.0] * 5, [2.0] * 5]))
    torch.testing.assert_close(agent.prepare(torch.full((1, 5), 2.0)), torch.full((1, 5), 0.5**0.5))
    with pytest.raises(BadInput, match=r"obs must have shape \(B, 5\), got \(1, 4\)"):
        agent.prepare(torch.zeros(1, 4))


def test_images_need_another_agent() -> None:
    with pytest.raises(BadInput, match="observation_shape"):
        agent_for((3, 64, 64), Discrete(15))


def test_weights_start_orthogonal(agent: GaussianAgent | CategoricalAgent) -> None:
    layers = [layer for layer in agent.network if isinstance(layer, nn.Linear)]
    gains = [math.sqrt(2), math.sqrt(2), 0.01]
    for layer, gain in zip(layers, gains, strict=True):
        assert torch.linalg.svdvals(layer.weight).tolist() == pytest.approx([gain] * min(layer.weight.shape), rel=1e-5)
        assert not layer.bias.any()
    last = [layer for layer in agent.critic if isinstance(layer, nn.Linear)][-1]
    assert last.weight.norm().item() == pytest.approx(1, rel=1e-5)


def test_randomness_is_an_argument(agent: GaussianAgent | CategoricalAgent) -> None:
    x, before = torch.randn(64, 5, generator=rng()), torch.get_rng_state()
    assert torch.equal(agent.act(x, rng(1)), agent.act(x, rng(1)))
    assert not torch.equal(agent.act(x, rng(1)), agent.act(x, rng(2)))
    assert torch.equal(agent.act(x), agent.act(x))
    agent.initialize(rng())
    assert torch.equal(before, torch.get_rng_state())


def test_gaussian_density_by_hand() -> None:
    """At the mean with σ = 1 and 2: −½·log 2π each, less log 2; one σ away costs ½."""
    agent = GaussianAgent((1,), 2, (4,))
    agent.log_std.data = torch.tensor([0.0, math.log(2)])
    x = torch.zeros(1, 1)
    at_mean = agent.log_prob(x, agent.act(x)).item()
    assert at_mean == pytest.approx(-math.log(2 * math.pi) - math.log(2), rel=1e-6)
    assert agent.log_prob(x, agent.act(x) + torch.tensor([1.0, 0.0])).item() == pytest.approx(at_mean - 0.5, rel=1e-6)
    assert agent.log_prob(x, agent.act(x) + torch.tensor([0.0, 2.0])).item() == pytest.approx(at_mean - 0.5, rel=1e-6)


def test_gaussian_agrees_with_torch() -> None:
    agent = GaussianAgent((4,), 3)
    agent.log_std.data = torch.tensor([-1.0, 0.0, 0.5])
    x = torch.randn(20, 4, generator=rng())
    action = agent.act(x, rng())
    theirs = Normal(agent.scores(x), agent.log_std.exp()).log_prob(action).sum(-1)
    torch.testing.assert_close(agent.log_prob(x, action), theirs)


def test_gaussian_samples_have_their_mean_and_spread() -> None:
    agent = GaussianAgent((1,), 2, (4,))
    agent.log_std.data = torch.tensor([-1.0, 1.0])
    x = torch.zeros(40_000, 1)
    z = (agent.act(x, rng()) - agent.act(x)) / agent.log_std.exp()
    assert z.mean(0).abs().max() < 4 / 200  # four standard errors
    assert (z.std(0) - 1).abs().max() < 0.02


def test_gaussian_actions_are_not_clipped() -> None:
    agent = GaussianAgent((1,), 1, (4,))
    agent.log_std.data = torch.tensor([3.0])
    assert agent.act(torch.zeros(100, 1), rng()).abs().max() > 10


def test_categorical_agrees_with_torch() -> None:
    agent = CategoricalAgent((4,), 3)
    x = torch.randn(20, 4, generator=rng())
    action = agent.act(x, rng())
    torch.testing.assert_close(agent.log_prob(x, action), Categorical(logits=agent.scores(x)).log_prob(action))
    assert torch.equal(agent.act(x), agent.scores(x).argmax(-1))


def test_categorical_samples_have_their_frequencies() -> None:
    """Logits log(1, 2, 5) give 1/8, 2/8, 5/8."""
    agent = CategoricalAgent((1,), 3, (4,))
    last = agent.network[-1]
    nn.init.zeros_(last.weight)
    last.bias.data = torch.tensor([1.0, 2.0, 5.0]).log()
    counts = agent.act(torch.zeros(40_000, 1), rng()).bincount(minlength=3) / 40_000
    assert counts.tolist() == pytest.approx([1 / 8, 2 / 8, 5 / 8], abs=0.01)
    assert agent.log_prob(torch.zeros(1, 1), torch.tensor([2])).item() == pytest.approx(math.log(5 / 8), rel=1e-5)
