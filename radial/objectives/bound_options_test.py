"""Every family of objectives trains on every kind of bound, with and without regularisers; recipes can say so."""

from typing import Any

import pytest
import torch
from torch import Tensor

from radial.agents.actor_critic import ActorCritic
from radial.agents.policies import CategoricalAgent
from radial.bounds.small_box import ExpressiveCC, ExpressiveMTL, SmallBox
from radial.core.schedules import Linear
from radial.objectives import policy_gradient as a3c
from radial.objectives import q_objectives as dqn
from radial.objectives import surrogate as ppo
from radial.objectives.q_objectives_test import batch as q_batch
from radial.objectives.q_objectives_test import network
from radial.recipes.recipe import recipe, with_settings
from radial.runs.config import decode, encode

RAMP = Linear(0.1, 0, 10)
BOUNDS = ["ibp", SmallBox(share=0.5), ExpressiveMTL(share=0.5), ExpressiveCC(share=0.5)]


def coefficients(objective: Any, step: int = 5) -> dict[str, Tensor]:
    return {name: torch.tensor(value) for name, value in objective.coefficients(step).items()}


def policy_loss(bound: Any, regularize: float = 0.0) -> float:
    agent = CategoricalAgent((3,), 2, (8,), "relu")
    agent.initialize(torch.Generator().manual_seed(0))
    torch.nn.init.normal_(agent.network[-1].weight, generator=torch.Generator().manual_seed(1))  # type: ignore[arg-type]
    rng = torch.Generator().manual_seed(2)
    x, action = torch.randn(6, 3, generator=rng), torch.tensor([0, 1] * 3)
    rows = torch.randn(6, generator=rng)
    old = agent.log_prob(x, action).detach()
    objective = ppo.RadialLikelihood(RAMP, bound=bound, regularize=regularize)
    loss = objective(agent, ppo.Batch(x, action, old, rows, rows, torch.empty(0)), coefficients(objective), 0.2)
    loss.total.backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in agent.parameters())
    return loss.total.item()


def q_loss(bound: Any, regularize: float = 0.0) -> float:
    objective = dqn.RadialOverlap(RAMP, bound=bound, regularize=regularize)
    nets = dqn.Nets(network(0), network(1))
    loss = objective(nets, q_batch(), coefficients(objective), dqn.TD())
    loss.total.backward()
    return loss.total.item()


def a3c_loss(bound: Any, regularize: float = 0.0) -> float:
    agent = ActorCritic((3,), 2, (8,))
    agent.initialize(torch.Generator().manual_seed(0))
    rng = torch.Generator().manual_seed(2)
    x, rows = torch.randn(4, 3, generator=rng), torch.randn(4, generator=rng)
    objective = a3c.RadialOverlap(RAMP, bound=bound, regularize=regularize)
    batch = a3c.Batch(x, torch.tensor([0, 1, 0, 1]), rows, rows, torch.ones(4))
    loss = objective(agent, batch, coefficients(objective), 0.01)
    loss.total.backward()
    return loss.total.item()


@pytest.mark.parametrize("loss", [policy_loss, q_loss, a3c_loss])
def test_smaller_sets_cost_less_and_a_regulariser_adds(loss: Any) -> None:
    whole, *others = [loss(bound) for bound in BOUNDS]
    assert all(other < whole + 1e-6 for other in others)
    assert loss("ibp", 10.0) > whole if loss is q_loss else loss("ibp", 10.0) >= whole  # 0 while bounds are narrow


def test_the_regulariser_fades_out_as_eps_grows() -> None:
    objective = ppo.RadialWorstCase(RAMP, regularize=0.5)
    assert [objective.coefficients(step)["regularizer"] for step in (0, 5, 10, 99)] == [1.0, 0.5, 0.0, 0.0]
    assert "regularizer" not in ppo.RadialWorstCase(RAMP).coefficients(5)


@pytest.mark.parametrize("bound", BOUNDS[1:])
def test_a_config_says_which_and_comes_back(bound: Any) -> None:
    one = ppo.RadialWorstCase(RAMP, bound=bound, regularize=0.5)
    assert decode(ppo.RadialWorstCase, encode(one)) == one


def test_a_recipe_takes_it_by_name() -> None:
    changes = ['objective.bound={type="SmallBox", share=0.95}', "objective.regularize=0.5"]
    made: Any = with_settings(recipe("cartpole-radial-dqn").config, changes)
    assert (made.objective.bound, made.objective.regularize) == (SmallBox(share=0.95), 0.5)
