"""Any network as an agent: it acts, is attacked and certified like our own."""

from typing import Any

import pytest
import torch
from torch import nn

from radial.agents.foreign import wrap
from radial.agents.networks import mlp
from radial.attacks.gradient import MAD, PGD, Critic
from radial.bounds.certify import certify_action
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
