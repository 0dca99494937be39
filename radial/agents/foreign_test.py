"""Any network as an agent: it acts, is attacked and certified like our own."""

import copy
from typing import Any

import pytest
import torch
from torch import nn

from radial.agents.foreign import as_agent, wrap
from radial.agents.networks import mlp
from radial.attacks.gradient import MAD, PGD, Critic
from radial.bounds.certify import certify_action
from radial.core.agent import Card
from radial.core.ball import Ball
from radial.core.data import BadInput, Continuous, Discrete, Verdict
from radial.evaluation.play import evaluate


def test_a_network_of_my_own() -> None:
    network = mlp([4, 16, 2])
    agent = wrap(network, kind="categorical", prepare=lambda obs: obs.float() / 2)
    obs = torch.randn(5, 4)
    assert agent.actions == Discrete(2)
    assert torch.equal(agent.act(agent.prepare(obs)), network(obs / 2).argmax(1))
    assert evaluate(agent, "CartPole-v1", PGD(), 0.1, episodes=2).episodes == 2
    assert certify_action(agent.network, Ball(obs, 0.0)) == [Verdict.CERTIFIED] * 5


def test_without_a_critic_there_is_no_critic_attack() -> None:
    agent = wrap(mlp([4, 8, 2]), "categorical")
    with pytest.raises(BadInput, match="needs an agent with a value function"):
        Critic().score(agent, torch.zeros(1, 4))
    judged = wrap(mlp([4, 8, 2]), "categorical", critic=mlp([4, 8, 1]))
    assert Critic().score(judged, torch.zeros(1, 4))(torch.zeros(3, 4)).shape == (3,)


def test_means() -> None:
    agent = wrap(mlp([3, 8, 2]), "gaussian", log_std=torch.zeros(2))
    x, rng = torch.randn(4, 3), torch.Generator().manual_seed(0)
    assert agent.actions == Continuous(2)
    assert torch.equal(agent.act(x), agent.network(x))
    assert not torch.equal(agent.act(x, rng), agent.act(x))
    assert MAD().perturb(agent, Ball(x, 0.1), rng).shape == (4, 3)
    with pytest.raises(BadInput, match="stochastic must be False"):
        wrap(mlp([3, 8, 2]), "gaussian").act(x, rng)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"kind": ["q"]}, r"kind must be one of q, categorical, gaussian, got \['q'\]"),
        ({"prepare": 3}, "prepare must be a function .* got 3"),
        ({"actions": 0}, "actions must be a whole number ≥ 1, got 0"),
        ({"actions": "2"}, "actions must be a whole number ≥ 1, got '2'"),
        ({"critic": 3}, r"critic must be a torch.nn.Module, got int"),
        ({"observation_shape": 4}, r"observation_shape must be a tuple of sizes ≥ 1 such as \(4,\), got 4"),
        ({"valid_range": (1, 0)}, r"valid_range must be two finite numbers, the smaller one first, got \(1, 0\)"),
        ({"valid_range": (0, "1")}, "valid_range must be two finite numbers"),
        ({"valid_range": 1}, "valid_range must be two finite numbers"),
        ({"log_std": [0.0]}, r"log_std must be a tensor \(D,\) or None, got \[0.0\]"),
        ({"kind": "gaussian", "log_std": torch.zeros(3)}, r"log_std must be 2 finite numbers, got \(3,\)"),
    ],
)
def test_arguments_that_make_no_sense(change: dict[str, Any], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        wrap(nn.Linear(2, 2), **({"kind": "q"} | change))


def test_bad_input() -> None:
    with pytest.raises(BadInput, match="kind must be one of q, categorical, gaussian, got 'policy'"):
        wrap(nn.Linear(2, 2), "policy")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="actions must be given"):
        wrap(nn.ReLU(), "q")
    with pytest.raises(BadInput, match=r"module must be a torch.nn.Module"):
        wrap(lambda x: x, "q")  # type: ignore[arg-type]
    agent = wrap(nn.Linear(2, 2), "q", observation_shape=(2,))
    with pytest.raises(BadInput, match=r"obs must have shape \(B, 2\), got \(1, 3\)"):
        agent.prepare(torch.zeros(1, 3))


class Duck:
    """An agent without inheritance."""

    observation_shape, actions, colour = (2,), Discrete(2), "yellow"

    def __init__(self) -> None:
        self.network = mlp([2, 2])

    def prepare(self, obs: torch.Tensor) -> torch.Tensor:
        return obs.float()

    def scores(self, x: torch.Tensor) -> torch.Tensor:
        return self.network(x)

    def act(self, x: torch.Tensor) -> torch.Tensor:
        return self.scores(x).argmax(-1)


def test_any_object_with_the_parts_of_an_agent_is_one() -> None:
    duck, x = Duck(), torch.randn(3, 2)
    agent = as_agent(duck)
    assert as_agent(agent) is agent
    assert (agent.choice, agent.observation_shape, agent.actions) == (duck.network, (2,), Discrete(2))
    assert (agent.valid_range, agent.log_std, agent.clips_actions, agent.has_value) == (None, None, False, False)
    assert (agent.name, agent.normalized, agent.units(), agent.card.env) == ("Duck", False, 1.0, None)
    assert torch.equal(agent.act(agent.prepare(x)), duck.act(x))
    assert agent.colour == "yellow"  # type: ignore[attr-defined]
    assert copy.deepcopy(agent).actions == duck.actions
    with pytest.raises(NotImplementedError, match="no value"):
        agent.value(x)
    with pytest.raises(AttributeError):
        _ = agent.size  # type: ignore[attr-defined]


def test_an_object_may_say_more() -> None:
    duck: Any = Duck()
    duck.value, duck.choice, duck.valid_range, duck.log_std = lambda x: x.sum(-1), mlp([2, 2]), (0.0, 1.0), None
    duck.clips_actions, duck.card, duck.normalized = True, Card(None, source="a pond"), True
    agent = as_agent(duck)
    assert agent.choice is duck.choice
    assert (agent.has_value, agent.clips_actions, agent.name, agent.normalized) == (True, True, "a pond", True)
    assert (agent.value(torch.ones(1, 2)).item(), float(agent.units())) == (2.0, 255.0)  # type: ignore[arg-type]
    assert agent.ball(torch.zeros(1, 2), 0.1).low == 0.0


@pytest.mark.parametrize(("given", "says"), [(None, "got None"), (3, "got 3"), (mlp([2, 2]), "rr.wrap makes an agent")])
def test_anything_else_is_refused(given: Any, says: str) -> None:
    with pytest.raises(BadInput, match=f"init must be an agent, .*{says}"):
        as_agent(given, "init")
