"""The agent on action values: its door for units, its greedy choice, and the network that certificates bound."""

from pathlib import Path
from typing import Any

import pytest
import torch

from radial.agents.q_agent import QAgent
from radial.agents.saved import CARD, load_agent, save
from radial.core.ball import Ball
from radial.core.data import BadInput, Discrete


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def frames(rows: int, channels: int = 1) -> torch.Tensor:
    return torch.randint(0, 256, (rows, channels, 84, 84), generator=rng(), dtype=torch.uint8)


def test_frames_become_shares_of_255_and_vectors_stay_as_they_are() -> None:
    x = QAgent((1, 84, 84), 4).prepare(torch.tensor([0, 51, 255], dtype=torch.uint8).repeat(1, 2352).view(1, 1, 84, 84))
    assert x.dtype == torch.float32
    assert x.unique().tolist() == pytest.approx([0.0, 0.2, 1.0])
    vectors = torch.tensor([[1.0, -30.0]], dtype=torch.float64)
    assert torch.equal(QAgent((2,), 3).prepare(vectors), vectors.float())
    with pytest.raises(BadInput, match=r"obs must have shape \(B, 1, 84, 84\), got \(2, 4, 84, 84\)"):
        QAgent((1, 84, 84), 4).prepare(frames(2, channels=4))


@pytest.mark.parametrize("shape", [(84, 84), (1, 80, 80), (3, 4)])
def test_other_shapes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(BadInput, match="observation_shape must be"):
        QAgent(shape, 4)


def test_the_sizes_of_layers_are_those_asked_for_or_the_papers(tmp_path: Path) -> None:
    assert QAgent((5,), 4).hidden == (64, 64)
    assert QAgent((1, 84, 84), 4).hidden == (32, 64, 64, 512)
    small = QAgent((1, 84, 84), 6, (4, 8, 8, 16))
    assert small.network.features[2].weight.shape == (8, 4, 4, 4)
    assert small.network.value[0].weight.shape == (16, 7 * 7 * 8)
    small.initialize(rng())
    again = load_agent(save(small, tmp_path / "agent"))
    x = small.prepare(frames(2))
    assert torch.equal(again.scores(x), small.scores(x))
    with pytest.raises(BadInput, match=r"hidden must be 4 sizes for a Q agent that sees frames, got \(64, 64\)"):
        QAgent((1, 84, 84), 4, (64, 64))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (((4,), 0), "n must be a whole number ≥ 1, got 0"),
        (((4,), 2.5), "n must be a whole number"),
        ((4, 2), "observation_shape must be a tuple of whole numbers"),
        (((4,), 2, (0,)), "hidden must be a tuple of whole numbers"),
        (((4,), 2, 64), "hidden must be a tuple of whole numbers"),
    ],
)
def test_sizes_are_whole_numbers(given: tuple[Any, ...], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        QAgent(*given)


@pytest.mark.parametrize("shape", [(1, 84, 84), (5,)])
def test_advantages_are_q_less_the_mean_and_choose_the_same(shape: tuple[int, ...]) -> None:
    agent = QAgent(shape, 6)
    agent.initialize(rng())
    x = agent.prepare(frames(7)) if len(shape) == 3 else torch.randn(7, 5, generator=rng())
    q, a = agent.scores(x), agent.choice(x)
    torch.testing.assert_close(a, q - q.mean(1, keepdim=True))
    torch.testing.assert_close(a.sum(1), torch.zeros(7), atol=1e-5, rtol=0)
    assert torch.equal(agent.act(x), q.argmax(1))
    assert torch.equal(agent.act(x, rng()), q.argmax(1))  # nothing to sample
    assert torch.equal(agent.value(x), q.max(1).values)
    assert agent.actions == Discrete(6)


def test_only_frames_have_a_range_and_it_fits_a_ball() -> None:
    agent = QAgent((1, 84, 84), 4)
    assert agent.valid_range == (0.0, 1.0)
    Ball(agent.prepare(frames(2)), 1 / 255, low=agent.valid_range[0], high=agent.valid_range[1])
    assert QAgent((4,), 2).valid_range is None


def test_the_start_is_that_of_pytorch_from_our_generator() -> None:
    one, other = QAgent((4,), 2), QAgent((4,), 2)
    one.initialize(rng(1)), other.initialize(rng(1))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    first = one.network.features[0]
    assert first.weight.abs().max() <= 0.5  # 1/√4
    assert first.weight.abs().max() > 0.45
    assert first.bias.abs().max() > 0.4


def test_frames_survive_the_way_through_a_file(tmp_path: Path) -> None:
    agent = QAgent((4, 84, 84), 3)
    agent.initialize(rng())
    again = load_agent(save(agent, tmp_path / "agent", dtype=torch.float16))
    assert isinstance(again, QAgent)
    x = agent.prepare(frames(3, channels=4))
    torch.testing.assert_close(again.scores(x), agent.scores(x), atol=1e-3, rtol=1e-2)


def test_a_card_with_a_clip_is_not_one_of_a_q_agent(tmp_path: Path) -> None:
    folder = save(QAgent((4,), 2), tmp_path / "agent")
    card = folder / CARD
    card.write_text(card.read_text().replace('"clip": null', '"clip": 10.0'))
    with pytest.raises(BadInput, match="clip must be null"):
        load_agent(folder)
