"""Agents and envs that are no functions, or do not take their best action, are refused and never certified."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import radial as rr
from radial.agents.foreign import as_agent, wrap
from radial.core.data import BadInput, Discrete, EnvSpec
from radial.envs.contract import EnvFault
from radial.evaluation.certificates import acr, gwc
from radial.evaluation.play import evaluate
from radial.evaluation.prover import Prover, certified_rows, threat_model
from radial.evaluation.reach import reach
from radial.evaluation.repeatable import NotGreedy, prepared
from radial.evaluation.tables_test import AsVector, LinearAgent, TableWorld, exact_linear, opposed
from radial.evaluation.worst_case import awc

CARTPOLE = EnvSpec("classic", "CartPole-v1", {"max_episode_steps": 20})
PENDULUM = EnvSpec("classic", "Pendulum-v1", {"max_episode_steps": 10})
WORLD = [(0.5, {0: (1, 1.0), 1: (None, -9.0)}), (-0.5, {0: (None, -9.0), 1: (None, 1.0)})]


def world() -> AsVector:
    return AsVector(TableWorld(WORLD))


def counted(obs: Tensor, calls: list[int] = [0]) -> Tensor:  # noqa: B006  the state is the point
    calls[0] += 1
    return obs.float() + calls[0] * 1e-3


NOISE = torch.Generator().manual_seed(0)
NO_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "torch": lambda obs: obs.float() + 0.1 * torch.randn_like(obs.float()),
    "numpy": lambda obs: obs.float() + 0.1 * float(np.random.randn()),
    "python": lambda obs: obs.float() + 0.1 * random.random(),
    "own generator": lambda obs: obs.float() + 0.1 * torch.randn(obs.shape, generator=NOISE),
    "counter": counted,
    "draws and ignores": lambda obs: obs.float() + 0 * torch.rand(()),
    "batch": lambda obs: obs.float() - 0.1 * len(obs),
}


@pytest.mark.parametrize("kind", NO_FUNCTIONS)
def test_a_prepare_that_is_no_function_is_never_certified(kind: str) -> None:
    network = nn.Linear(1, 2)
    agent = wrap(network, "q", NO_FUNCTIONS[kind], observation_shape=(1,))
    match = "agent.prepare must"
    with pytest.raises(BadInput, match=match):
        acr(agent, world(), 0.1, episodes=1)
    with pytest.raises(BadInput, match=match):
        gwc(agent, world(), 0.1, episodes=1)
    with pytest.raises(BadInput, match=match):
        awc(agent, TableWorld(WORLD), 0.1)


def test_reach_and_audit_ask_too() -> None:
    noisy = NO_FUNCTIONS["torch"]
    with pytest.raises(BadInput, match=r"agent.prepare must"):
        reach(wrap(nn.Linear(3, 1), "gaussian", noisy), PENDULUM, 0.1, episodes=1)
    with pytest.raises(BadInput, match=r"agent.prepare must"):
        rr.audit(wrap(nn.Linear(4, 2), "q", noisy), CARTPOLE, 0.1, episodes=1, trace=False, attacks="none")


def test_an_honest_prepare_passes() -> None:
    obs = torch.tensor([[1.0, float("nan")], [2.0, 3.0]])
    assert torch.equal(prepared(as_agent(LinearAgent([[1.0, 2.0]])), obs[1:]), obs[1:])
    prepared(as_agent(LinearAgent([[1.0, 2.0]])), obs)  # NaN is equal to itself


@pytest.mark.parametrize("draw", [lambda: float(torch.rand(())), random.random, lambda: float(np.random.rand())])
def test_an_act_that_draws_is_refused(draw: Callable[[], float]) -> None:
    class Draws(LinearAgent):
        def act(self, x: Tensor, rng: torch.Generator | None = None) -> Tensor:
            draw()
            return super().act(x, rng)

    agent: Any = Draws([[1.0], [-1.0]])
    for metric in (acr, gwc):
        with pytest.raises(BadInput, match=r"agent.act must be deterministic"):
            metric(agent, world(), 0.1, episodes=1)


class Restless(TableWorld):
    """Pays otherwise from one step to the next; the path that is worst repeats itself all the same."""

    def step(self, action: int) -> Any:
        obs, reward, terminated, truncated = super().step(action)
        return obs, reward + (self.steps_taken % 2 if reward > 0 else 0), terminated, truncated


class Drawing(TableWorld):
    def step(self, action: int) -> Any:
        random.random()
        return super().step(action)


@pytest.mark.parametrize("kind", [Restless, Drawing])
def test_an_env_that_does_not_repeat_a_step_certifies_nothing(kind: type[TableWorld]) -> None:
    with pytest.raises(EnvFault, match=r"does not repeat itself: action . after . steps"):
        awc(opposed(), kind(WORLD), 0.1, exact_linear)
    assert awc(opposed(), TableWorld(WORLD), 0.1, exact_linear).exact


# ------------------------------------------------------------------------------------------- not the largest output


class Masked(LinearAgent):
    """May not take action 2, whatever its network says."""

    def __init__(self) -> None:
        super().__init__([[1.0], [-1.0], [3.0]])
        self.actions = Discrete(3)

    def act(self, x: Tensor, rng: torch.Generator | None = None) -> Tensor:
        return self.scores(x)[:, :2].argmax(-1)


def three() -> AsVector:
    rows = [(x, {0: (to, 1.0), 1: (None, 0.0), 2: (None, 0.0)}) for x, to in ((0.5, 1), (0.4, None))]
    return AsVector(TableWorld(rows, actions=3))


@pytest.mark.parametrize("bound", ["ibp", "crown-ibp", "crown"])
def test_a_masked_action_is_not_certified(bound: str) -> None:
    agent = as_agent(Masked())
    ball = agent.ball(torch.tensor([[0.5], [-0.5]]), 0.1)
    assert certified_rows(agent, ball, Prover.of(bound)).tolist() == [False, True]  # −0.5: 1 is the largest of all
    found = acr(agent, three(), 0.1, bound, episodes=1)
    assert found.certified == (0,)


def test_no_worst_case_of_a_masked_agent_is_certified() -> None:
    agent = as_agent(Masked())
    with pytest.raises(NotGreedy, match=r"agent.act must take the largest output"):
        gwc(agent, three(), 0.1, episodes=1)
    with pytest.raises(NotGreedy, match=r"agent.act must take the largest output"):
        threat_model(agent, 0.1, float("inf"), "ibp", "margins").options(torch.tensor([[0.5]]))


def test_an_audit_of_a_masked_agent_notes_it() -> None:
    class Unwilling(LinearAgent):
        def act(self, x: Tensor, rng: torch.Generator | None = None) -> Tensor:
            return torch.zeros(len(x), dtype=torch.int64)

    agent: Any = Unwilling([[0.0, 0.0, -1.0, -0.5], [0.0, 0.0, 1.0, 0.5]])
    found = rr.audit(agent, CARTPOLE, 0.001, episodes=1, budget=None, attacks="none", trace=False)
    level = found.levels[0]
    assert level.acr is not None
    assert level.acr["certified"] < level.acr["states"]
    assert (level.gwc, level.awc) == (None, None)
    assert sum("agent.act must take the largest output" in note for note in found.notes) == 1


# -------------------------------------------------------------------------------------------- NaN from a finite file


def overflowing(outputs: int, kind: Any) -> Any:
    """Finite weights whose products are not: inf − inf."""
    network = nn.Sequential(nn.Linear(4, 8, bias=False), nn.ReLU(), nn.Linear(8, outputs, bias=False))
    with torch.no_grad():
        network[0].weight.fill_(3e38)
        network[2].weight.copy_(torch.tensor([3e38, -3e38]).repeat(outputs, 4))
        network[0].weight[::2, :2] = -3e38
    return wrap(network, kind, observation_shape=(4,))


def test_nan_outputs_stop_an_evaluation_and_an_audit() -> None:
    agent = overflowing(2, "q")
    with pytest.raises(BadInput, match=r"finite-file: .* NaN or infinite at step 0"):
        evaluate(agent, CARTPOLE, episodes=1, name="finite-file")
    with pytest.raises(BadInput, match=r"finite-file: .* NaN or infinite at step 0"):
        rr.audit(agent, CARTPOLE, 0.1, episodes=1, require="return@0.1>=0", name="finite-file", trace=False)


def test_a_mask_of_minus_infinity_is_finite_enough() -> None:
    class Mask(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x) + torch.tensor([0.0, -torch.inf])

    assert len(evaluate(wrap(Mask(), "categorical", actions=2), CARTPOLE, episodes=1).returns) == 1


def test_looking_at_the_outputs_leaves_no_hook_behind() -> None:
    agent = wrap(nn.Sequential(nn.Linear(4, 2)), "q")
    evaluate(agent, CARTPOLE, episodes=1)
    assert not any(module._forward_hooks for module in agent.network.modules())


# ------------------------------------------------------------------------------------------------- distinct actions


def test_a_rate_says_how_many_actions_there_were() -> None:
    stubborn = acr(LinearAgent([[0.0], [0.0]]), world(), 0.0, episodes=1)
    lively = acr(opposed(), world(), 0.1, episodes=2)
    assert (stubborn.distinct_actions, lively.distinct_actions) == (1, 2)
    assert lively.to_json()["distinct_actions"] == 2
    assert "1 distinct action)" in str(stubborn)
    assert "2 distinct actions" in str(lively)
