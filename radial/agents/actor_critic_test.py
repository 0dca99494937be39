"""The agent of A3C: its door for units, its policy and value, and the network of the logits that certificates bound."""

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical

from radial.agents.actor_critic import ActorCritic
from radial.agents.convert import check_init
from radial.agents.q_agent import QAgent
from radial.agents.saved import load_agent, save
from radial.bounds.methods import METHODS, sound
from radial.core.ball import Ball
from radial.core.data import BadInput, Bounds, Discrete

SHAPES = [(1, 80, 80), (5,)]


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def made(shape: tuple[int, ...] = (5,), n: int = 4) -> ActorCritic:
    agent = ActorCritic(shape, n)
    agent.initialize(rng())
    return agent


def prepared(shape: tuple[int, ...], rows: int = 6) -> Tensor:
    return torch.rand(rows, *shape, generator=rng(1))


def test_frames_become_shares_of_255_and_vectors_stay_as_they_are() -> None:
    """Frames of the preset `radial-a3c` are float32 in 0 … 255: a mean of colours is no whole number."""
    x = ActorCritic((1, 80, 80), 4).prepare(torch.tensor([0.0, 25.5, 255.0, 51.0]).repeat(1600).view(1, 1, 80, 80))
    assert x.dtype == torch.float32
    assert x.unique().tolist() == pytest.approx([0.0, 0.1, 0.2, 1.0])
    vectors = torch.tensor([[1.0, -30.0]], dtype=torch.float64)
    assert torch.equal(ActorCritic((2,), 3).prepare(vectors), vectors.float())
    with pytest.raises(BadInput, match=r"obs must have shape \(B, 1, 80, 80\), got \(2, 1, 84, 84\)"):
        ActorCritic((1, 80, 80), 4).prepare(torch.zeros(2, 1, 84, 84))


@pytest.mark.parametrize("shape", [(80, 80), (1, 96, 96), (3, 4)])
def test_other_shapes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(BadInput, match=r"must be \(features,\) or \(channels, 80, 80\) for an actor-critic, got"):
        ActorCritic(shape, 4)


def test_the_sizes_of_the_networks() -> None:
    assert [tuple(p.shape) for p in ActorCritic((4,), 2, (8, 6)).parameters()] == [
        (8, 4), (8,), (6, 8), (6,), (3, 6), (3,),
    ]  # fmt: skip
    frames = ActorCritic((1, 80, 80), 6)
    assert tuple(frames.network.model[-1].weight.shape) == (7, 512)  # as `model.15` of the authors' files
    assert (frames.valid_range, ActorCritic((4,), 2).valid_range) == ((0.0, 1.0), None)
    assert frames.actions == Discrete(6)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_value_comes_first_and_then_the_logits(shape: tuple[int, ...]) -> None:
    agent, x = made(shape), prepared(shape)
    value, logits = agent.joint(x)
    assert (value.shape, logits.shape) == ((6,), (6, 4))
    torch.testing.assert_close(torch.cat([value.unsqueeze(1), logits], 1), agent.network(x))
    torch.testing.assert_close(agent.value(x), value)
    torch.testing.assert_close(agent.scores(x), logits)
    assert torch.equal(agent.act(x), agent.choice(x).argmax(1))


def test_samples_follow_the_policy() -> None:
    agent, x = made(), prepared((5,), 1)
    drawn = agent.act(x.expand(20_000, -1), rng())
    assert drawn.dtype == torch.int64
    share = torch.bincount(drawn, minlength=4) / 20_000
    torch.testing.assert_close(share, agent.scores(x)[0].softmax(0).detach(), atol=0.015, rtol=0)
    assert torch.equal(agent.act(x.expand(9, -1), rng(3)), agent.sample(x.expand(9, -1), agent.noise(rng(3), 9)))
    action = torch.tensor([2])
    torch.testing.assert_close(agent.log_prob(x, action), Categorical(logits=agent.scores(x)).log_prob(action))


def test_the_start_is_that_of_a_q_agent_and_follows_the_generator() -> None:
    one, other = made(), made()
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    q = QAgent((5,), 4)
    q.initialize(rng())
    assert torch.equal(one.network.model[0].weight, q.network.features[0].weight)


def test_an_agent_to_start_from_must_fit() -> None:
    small = ActorCritic((1, 80, 80), 6, (4, 4, 8, 8, 16))
    with pytest.raises(BadInput, match=r"its hidden is \(4, 4, 8, 8, 16\), needed is \(32, 32, 64, 64, 512\)"):
        check_init(small, ActorCritic((1, 80, 80), 6))
    with pytest.raises(BadInput, match=r"its hidden is \(32,\), needed is \(64, 64\)"):
        check_init(ActorCritic((5,), 4, (32,)), made())
    with pytest.raises(BadInput, match="init must be a ActorCritic, got a QAgent"):
        check_init(QAgent((5,), 4), made())


@pytest.mark.parametrize("shape", SHAPES)
def test_there_and_back_through_a_file(shape: tuple[int, ...], tmp_path: Path) -> None:
    agent, x = made(shape), prepared(shape, 3)
    assert agent.choice is agent.choice  # it exists, and must be neither saved nor left behind
    again = load_agent(save(agent, tmp_path / "agent"))
    assert isinstance(again, ActorCritic)
    assert torch.equal(again.scores(x), agent.scores(x))
    assert torch.equal(again.value(x), agent.value(x))
    assert [p.stride() for p in again.parameters()] == [p.stride() for p in agent.parameters()]  # as fast as before


# ---------------------------------------------------------------------------------------------------- what is bounded


def test_choice_shares_the_weights_whatever_becomes_of_them() -> None:
    agent, x = made(), prepared((5,))
    before, twin = agent.choice(x).detach(), copy.deepcopy(agent)
    assert [name for name, _ in agent.named_parameters()] == [name for name, _ in made().named_parameters()]
    with torch.no_grad():
        for parameter in agent.parameters():
            parameter *= 2
    torch.testing.assert_close(agent.choice(x), agent.joint(x)[1])
    assert torch.equal(twin.choice(x), before)  # a copy has its own
    agent.load_state_dict(twin.state_dict())
    assert torch.equal(agent.choice(x), before)
    doubled = agent.double()
    torch.testing.assert_close(doubled.choice(x.double()), before.double())


def test_choice_sends_gradients_to_the_logits_and_not_to_the_value() -> None:
    agent = made()
    agent.choice(prepared((5,))).square().sum().backward()
    gradient = agent.network.model[-1].weight.grad
    assert gradient is not None
    assert not gradient[0].any()
    assert gradient[1:].any(1).all()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["ibp", "crown-ibp"])
def test_bounds_of_choice_are_at_least_as_tight_as_those_of_the_whole_network(
    name: str, shape: tuple[int, ...]
) -> None:
    agent, ball = made(shape), Ball(prepared(shape, 2), 0.002)
    whole, own = (METHODS[name](net, ball) for net in (agent.network, agent.choice))
    assert bool((own.lower >= whole.lower[:, 1:] - 1e-5).all())
    assert bool((own.upper <= whole.upper[:, 1:] + 1e-5).all())


@pytest.mark.parametrize("shape", SHAPES)
def test_sound_bounds_hold_for_what_the_agent_decides_by(shape: tuple[int, ...]) -> None:
    agent, ball = made(shape), Ball(prepared(shape, 2), 0.002, low=0.0, high=1.0)
    proven = sound("ibp")(agent.choice, ball)
    assert isinstance(proven, Bounds)
    for kind in ("uniform", "corner") * 5:
        assert bool(proven.contains(agent.scores(ball.sample(rng(2), kind))).all())
