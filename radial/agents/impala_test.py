"""The agent of ProcGen: its door for units, its start, its policy and value, and the logits that certificates bound."""

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical

from radial.agents.actor_critic import ImpalaAgent
from radial.agents.convert import check_init
from radial.agents.saved import load_agent, save
from radial.bounds.methods import METHODS, sound
from radial.core.ball import Ball
from radial.core.data import BadInput, Bounds, Discrete


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def agent() -> ImpalaAgent:
    """Random weights; a larger output than a training starts with, so that there is something to tell apart."""
    agent = ImpalaAgent(n=4)
    agent.initialize(rng())
    torch.nn.init.normal_(agent.network.head.weight, generator=rng(5))
    return agent


@pytest.fixture(scope="module")
def x() -> Tensor:
    return torch.rand(3, 3, 64, 64, generator=rng(1))


def test_frames_become_shares_of_255() -> None:
    agent = ImpalaAgent()
    frames = torch.tensor([0, 51, 255, 102], dtype=torch.uint8).repeat(3072).view(1, 3, 64, 64)
    assert agent.prepare(frames).dtype == torch.float32
    assert agent.prepare(frames).unique().tolist() == pytest.approx([0.0, 0.2, 0.4, 1.0])
    assert (agent.valid_range, agent.actions) == ((0.0, 1.0), Discrete(15))
    with pytest.raises(BadInput, match=r"obs must have shape \(B, 3, 64, 64\), got \(1, 64, 64, 3\)"):
        agent.prepare(frames.view(1, 64, 64, 3))


@pytest.mark.parametrize("shape", [(4,), (64, 64), (1, 64, 64), (3, 84, 84), (64, 64, 3)])
def test_other_shapes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(BadInput, match=r"observation_shape must be \(3, 64, 64\) for an IMPALA agent, got"):
        ImpalaAgent(shape)


def test_the_sizes_are_those_of_the_papers_network() -> None:
    """Three stages of 1 + 4 convolutions, then 2048 → 256 → 15 logits and a value: 15 convolutions, 626,256 numbers."""
    agent = ImpalaAgent()
    shapes = [tuple(parameter.shape) for parameter in agent.parameters() if parameter.ndim > 1]
    assert shapes[0] == (16, 3, 3, 3)
    assert shapes[5] == (32, 16, 3, 3)
    assert shapes[-2:] == [(256, 2048), (16, 256)]
    assert len(shapes) == 17
    assert sum(parameter.numel() for parameter in agent.parameters()) == 626_256


def test_the_start_is_pytorchs_own_but_for_the_output() -> None:
    one, other = ImpalaAgent(), ImpalaAgent()
    one.initialize(rng(1)), other.initialize(rng(1))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    head = one.network.head
    torch.testing.assert_close(head.weight @ head.weight.T, 1e-4 * torch.eye(16))  # orthogonal rows of length 0.01
    assert not head.bias.any()
    first = next(one.parameters())
    assert 0.9 * 27**-0.5 < float(first.detach().abs().max()) <= 27**-0.5  # 3·3·3 inputs


def test_the_logits_come_first_and_then_the_value(agent: ImpalaAgent, x: Tensor) -> None:
    value, logits = agent.joint(x)
    assert (value.shape, logits.shape) == ((3,), (3, 4))
    torch.testing.assert_close(torch.cat([logits, value.unsqueeze(1)], 1), agent.network(x))
    torch.testing.assert_close(agent.value(x), value)
    torch.testing.assert_close(agent.scores(x), logits)
    assert torch.equal(agent.act(x), agent.choice(x).argmax(1))


def test_samples_follow_the_policy(agent: ImpalaAgent, x: Tensor) -> None:
    logits = agent.scores(x[:1]).detach()
    drawn = (logits + agent.noise(rng(), 20_000)).argmax(-1)  # what `sample` does, without 20,000 passes
    torch.testing.assert_close(torch.bincount(drawn, minlength=4) / 20_000, logits[0].softmax(0), atol=0.015, rtol=0)
    assert torch.equal(agent.act(x, rng(3)), agent.sample(x, agent.noise(rng(3), 3)))
    action = torch.tensor([2, 0, 3])
    torch.testing.assert_close(agent.log_prob(x, action), Categorical(logits=agent.scores(x)).log_prob(action))


def test_there_and_back_through_a_file(agent: ImpalaAgent, x: Tensor, tmp_path: Path) -> None:
    assert agent.choice is agent.choice  # it exists, and must be neither saved nor left behind
    again = load_agent(save(agent, tmp_path / "agent"))
    assert isinstance(again, ImpalaAgent)
    assert torch.equal(again.scores(x), agent.scores(x))
    assert torch.equal(again.value(x), agent.value(x))
    assert [p.stride() for p in again.parameters()] == [p.stride() for p in agent.parameters()]  # as fast as before


def test_an_agent_to_start_from_must_fit() -> None:
    check_init(ImpalaAgent(hidden=(64, 64)), ImpalaAgent())  # frames: always one network
    with pytest.raises(BadInput, match=r"its actions is Discrete\(n=15\), needed is Discrete\(n=4\)"):
        check_init(ImpalaAgent(), ImpalaAgent(n=4))


# ---------------------------------------------------------------------------------------------------- what is bounded


def test_choice_shares_the_weights_whatever_becomes_of_them(agent: ImpalaAgent, x: Tensor) -> None:
    agent = copy.deepcopy(agent)
    before, twin = agent.choice(x).detach(), copy.deepcopy(agent)
    names = [name for name, _ in agent.named_parameters()]
    assert names == [name for name, _ in ImpalaAgent(n=4).named_parameters()]
    with torch.no_grad():
        agent.network.head.weight *= 2
    torch.testing.assert_close(agent.choice(x), agent.joint(x)[1])
    assert torch.equal(twin.choice(x), before)  # a copy has its own


def test_choice_sends_gradients_to_the_logits_and_not_to_the_value(agent: ImpalaAgent, x: Tensor) -> None:
    agent = copy.deepcopy(agent)
    agent.choice(x).square().sum().backward()
    gradient = agent.network.head.weight.grad
    assert gradient is not None
    assert not gradient[-1].any()
    assert gradient[:-1].any(1).all()


@pytest.mark.parametrize("name", ["ibp", "crown-ibp"])
def test_bounds_of_choice_are_those_of_the_logits(name: str, agent: ImpalaAgent, x: Tensor) -> None:
    ball = Ball(x[:2], 1e-4)
    whole, own = (METHODS[name](net, ball) for net in (agent.network, agent.choice))
    torch.testing.assert_close(own.lower, whole.lower[:, :-1], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(own.upper, whole.upper[:, :-1], rtol=1e-4, atol=1e-4)


def test_sound_bounds_hold_for_what_the_agent_decides_by(agent: ImpalaAgent, x: Tensor) -> None:
    ball = Ball(x[:2], 1e-3, low=0.0, high=1.0)
    proven = sound("ibp")(agent.choice, ball)
    assert isinstance(proven, Bounds)
    for kind in ("uniform", "corner") * 3:
        assert bool(proven.contains(agent.scores(ball.sample(rng(2), kind))).all())
