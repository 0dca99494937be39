"""Agents of others as agents of ours: outputs by hand, what stays 0, and what a card of the wider format may say."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from radial.agents.actor_critic import ActorCritic
from radial.agents.convert import agent_kind, own
from radial.agents.foreign import wrap
from radial.agents.networks import mlp
from radial.agents.policies import CategoricalAgent, DeterministicAgent, GaussianAgent
from radial.agents.preprocessing import Frames, RunningScale
from radial.agents.q_agent import QAgent
from radial.agents.saved import load_agent, save
from radial.core.data import BadInput


def test_a_plain_q_network_by_hand() -> None:
    """|x| + (1, 3): V is the mean action, |x| + 2, and the advantages are −1 and 1."""
    network = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 1), nn.ReLU(), nn.Linear(1, 2))
    for layer, weight, bias in zip(
        network[::2], ([[1.0], [-1.0]], [[1.0, 1.0]], [[1.0], [1.0]]), ([0.0, 0.0], [0.0], [1.0, 3.0]), strict=True
    ):
        layer.load_state_dict({"weight": torch.tensor(weight), "bias": torch.tensor(bias)})
    agent: Any = own(wrap(network, "q"), "agent")
    assert isinstance(agent, QAgent)
    assert agent.hidden == (2,)
    x = torch.tensor([[-5.0], [2.0]])
    assert agent.scores(x).tolist() == [[6.0, 8.0], [3.0, 5.0]]
    assert agent.choice(x).tolist() == [[-1.0, 1.0], [-1.0, 1.0]]


def test_units_that_fill_up_stay_zero_in_training() -> None:
    agent: Any = own(wrap(mlp([3, 5, 2], nn.ReLU), "categorical", critic=mlp([3, 7, 1], nn.ReLU)), "agent")
    assert (type(agent), agent.hidden, agent.activation) == (CategoricalAgent, (7,), "relu")
    (agent.scores(torch.randn(9, 3)).square().sum() + agent.value(torch.randn(9, 3)).sum()).backward()
    grown = [part for part in (agent.network[0].weight, agent.network[0].bias) if part.grad[5:].any()]
    assert not grown
    assert not agent.network[2].weight.grad[:, 5:].any()


def test_a_missing_critic_is_new_and_always_the_same() -> None:
    network = mlp([3, 5, 2])
    one: Any = own(wrap(network, "gaussian", log_std=torch.tensor([0.5, -1.0]), clips_actions=True), "agent")
    other: Any = own(wrap(network, "gaussian", log_std=torch.tensor([0.5, -1.0])), "agent")
    assert (type(one), one.clips_actions, other.clips_actions) == (GaussianAgent, True, False)
    x = torch.randn(4, 3)
    assert torch.equal(one.value(x), other.value(x))
    assert one.log_std.tolist() == [0.5, -1.0]


def test_an_actor_that_ends_in_a_stretched_tanh_is_deterministic(tmp_path: Path) -> None:
    """As TD3, DDPG and SAC have them: the same actions, also once saved; other last layers are no stretch."""
    stretch = nn.Linear(2, 2)
    stretch.load_state_dict({"weight": torch.diag(torch.tensor([2.0, 0.5])), "bias": torch.tensor([0.0, 1.0])})
    network = nn.Sequential(*mlp([3, 5, 6, 2], nn.ReLU), nn.Tanh(), stretch)
    given = wrap(network, "gaussian", clips_actions=True)
    agent: Any = own(given, "agent")
    assert (type(agent), agent.hidden, agent.activation) == (DeterministicAgent, (5, 6), "relu")
    x = torch.randn(7, 3)
    again: Any = load_agent(save(given, tmp_path / "agent"))
    for ours in (agent, again):
        assert torch.equal(ours.act(x), network(x))
        assert (ours.clips_actions, ours.has_value, ours.log_std) == (True, True, None)
        assert ours.value(x).shape == (7,)
    with torch.no_grad():
        stretch.weight[0, 1] = 0.1
    with pytest.raises(BadInput, match="not an MLP of"):
        own(given, "agent")


def test_a_normaliser_is_carried_over_digit_for_digit() -> None:
    door = RunningScale(torch.tensor([1.0, -2.0]), torch.tensor([4.0, 1e-6]), clip=3.0, tiny=1e-8, count=500.0)
    agent: Any = own(wrap(mlp([2, 4, 2]), "categorical", door), "agent")
    obs = torch.tensor([[1.5, -2.001], [100.0, 0.0], [0.0, -2.0]])
    torch.testing.assert_close(agent.prepare(obs), door(obs), atol=0, rtol=1e-7)
    assert (agent.normalizer.frozen, float(agent.normalizer.moments.count)) == (True, 500.0)
    raw: Any = own(wrap(mlp([2, 4, 2]), "categorical"), "agent")
    far = torch.tensor([[1e6, -1e7]])
    assert torch.equal(raw.prepare(far), far)  # not cut at ten


def test_an_agent_of_ours_is_given_back() -> None:
    agent = QAgent((4,), 2, (8,))
    assert own(agent, "agent") is agent


@pytest.mark.parametrize(
    ("agent", "why"),
    [
        (wrap(mlp([3, 8, 2], nn.ELU), "categorical"), "an MLP of at least 1 hidden layers with tanh or relu between"),
        (wrap(nn.Sequential(mlp([3, 8, 2])), "categorical"), "its network is not an MLP"),
        (wrap(mlp([3, 8, 2]), "categorical", lambda obs: obs / 2), "sees vectors, as they are or normalised"),
        (wrap(mlp([3, 8, 2]), "gaussian"), "the spread of its actions is not known"),
        (wrap(mlp([3, 8, 2], nn.ReLU), "q"), "at least 2 hidden layers"),
        (
            wrap(mlp([3, 8, 8, 2], nn.ReLU), "q", lambda obs: obs),
            "sees vectors as they are, or frames as shares of 255",
        ),
        (wrap(mlp([3, 8, 8, 2], nn.ReLU), "q", Frames(4)), "has the network of Mnih et al"),
    ],
)
def test_what_ours_cannot_hold_is_one_line(agent: Any, why: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=f"^agent can be audited, but neither trained nor saved: .*{why}") as caught:
        save(agent, tmp_path / "agent")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "agent").exists()


def test_cards_are_as_old_as_they_can_be(tmp_path: Path) -> None:
    """Agents that format 1 can tell of are written in it, so that an older radial reads them."""
    for agent, expected in (
        (CategoricalAgent((3,), 2, (4,)), 1),
        (CategoricalAgent((3,), 2, (4,), "relu"), 2),
        (QAgent((3,), 2, (4,)), 1),
    ):
        folder = save(agent, tmp_path / f"{type(agent).__name__}{expected}")
        assert json.loads((folder / "card.json").read_text())["format"] == expected
        assert getattr(load_agent(folder), "activation", "tanh") == getattr(agent, "activation", "tanh")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"activation": "eval"}, "activation must be one of tanh, relu"),
        ({"activation": None}, "activation must be one of tanh, relu"),
        ({"clips_actions": 1}, "clips_actions must be true or false"),
        ({"format": 3}, "format must be 1 or 2"),
        ({"format": 1}, "unknown field 'activation'"),
        ({"kind": "q", "actions": {"discrete": 2}}, "format must be 1 for a q agent"),
    ],
)
def test_a_card_of_the_wider_format_is_read_with_suspicion(change: dict[str, Any], says: str, tmp_path: Path) -> None:
    folder = save(CategoricalAgent((3,), 2, (4,), "relu"), tmp_path / "agent")
    card = json.loads((folder / "card.json").read_text()) | change
    (folder / "card.json").write_text(json.dumps(card))
    with pytest.raises(BadInput, match=says):
        load_agent(folder)


def test_an_agent_is_of_the_same_kind_before_and_after() -> None:
    network = mlp((4, 8, 2))
    wide = wrap(network, "gaussian", observation_shape=(4,), log_std=torch.zeros(2))
    plain = wrap(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)), "q")
    for agent, kind in (
        (wide, "gaussian"),
        (wrap(network, "categorical", observation_shape=(4,)), "categorical"),
        (plain, "q"),
    ):
        assert agent_kind(agent) == agent_kind(own(agent, "agent")) == kind
    assert agent_kind(ActorCritic((4,), 2, (8,))) == "categorical"
    assert agent_kind(DeterministicAgent((4,), 2, (8,))) == "deterministic"
    assert agent_kind(wrap(network, "gaussian")) == "deterministic"  # no spread is known
