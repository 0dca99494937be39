"""The guard: an action in any case, a verdict that agrees with the certificates, a radius, a fallback, CARRL."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import radial as rr
from radial.core.data import BadInput, Verdict
from radial.training.native import can_compile
from radial.workflows.guard import GuardCounts
from radial.workflows.step_bound import StepBound


def linear_agent(kind: str = "q", weights: tuple[tuple[float, ...], ...] = ((1.0, 0.0), (0.0, 1.0))) -> rr.QAgent:
    """Scores = W·x: a margin and its bound can be worked out by hand."""
    network = nn.Linear(2, len(weights), bias=False)
    with torch.no_grad():
        network.weight.copy_(torch.tensor(weights))
    return rr.wrap(network, kind, observation_shape=(2,))  # type: ignore[return-value]


def test_the_certified_radius_of_a_linear_agent() -> None:
    """score_0 − score_1 = x_0 − x_1 = 0.4, and ε moves it by 2ε: proven below ε = 0.2."""
    guard = rr.guard(linear_agent(), 0.1, budget=None, compiled=False)
    step = guard(np.array([0.5, 0.1], dtype=np.float32))
    assert (step.action, step.verdict) == (0, Verdict.CERTIFIED)
    assert 0.19 < step.radius < 0.2
    weak = guard(np.array([0.1, 0.2], dtype=np.float32))  # 2ε = 0.1 proves ε < 0.05
    assert (weak.action, weak.verdict) == (1, Verdict.UNKNOWN)
    assert 0.049 < weak.radius < 0.05
    assert (guard.counts.steps, guard.counts.certified, guard.counts.unknown) == (2, 1, 1)
    assert guard.counts.latency_max >= guard.counts.latency_median > 0


def test_verdicts_are_those_of_certify_action() -> None:
    torch.manual_seed(0)
    agent = rr.QAgent((3,), 3, (8,))
    guard = rr.guard(agent, 0.05, bound="crown", budget=None, compiled=False)
    x = torch.randn(12, 3) * 0.3
    wanted = rr.certify_action(agent.choice, agent.ball(x, 0.05), "crown")
    steps = [guard(row) for row in x]
    assert [step.verdict for step in steps] == wanted
    assert [step.action for step in steps] == agent.act(x).tolist()
    assert len(set(wanted)) == 2


def test_continuous_actions_have_a_reach() -> None:
    """The mean is x_0 + x_1, so ε moves it by 2ε."""
    agent = linear_agent("gaussian", ((1.0, 1.0),))
    guard = rr.guard(agent, 0.1, budget=None, tolerance=0.3, compiled=False)
    step = guard(np.array([1.0, 2.0], dtype=np.float32))
    assert step.action == pytest.approx([3.0])
    assert step.verdict is Verdict.CERTIFIED
    assert step.reach == pytest.approx(0.2, abs=1e-5)
    assert 0.14 < step.radius <= 0.15
    assert rr.guard(agent, 0.1, budget=None, tolerance=0.1, compiled=False)(np.zeros(2)).verdict is Verdict.UNKNOWN


def test_a_fallback_takes_over_where_nothing_is_proven() -> None:
    heard = []

    def fallback(obs: object, action: object, verdict: Verdict) -> int:
        heard.append((action, verdict))
        return 7

    guard = rr.guard(linear_agent(), 0.1, budget=None, fallback=fallback, compiled=False)
    assert guard(np.array([0.5, 0.1])).action == 0
    step = guard(np.array([0.1, 0.2]))
    assert (step.action, step.fallback, heard) == (7, True, [(1, Verdict.UNKNOWN)])
    assert guard.counts.fallback == 1


def test_the_action_comes_even_when_there_is_no_time() -> None:
    with pytest.warns(UserWarning, match="every verdict will be unknown"):
        guard = rr.guard(linear_agent(), 0.1, budget=1e-7, compiled=False)
    step = guard(np.array([0.5, 0.1]))
    assert (step.action, step.verdict, step.radius) == (0, Verdict.UNKNOWN, 0.0)
    assert guard.counts.late == 1


def test_carrl_takes_the_best_lower_bound() -> None:
    """Q = (10·x_0, 0.5): at x = (0.1, ·) greedy takes action 0 (1.0), whose lower bound at ε = 0.1 is 0."""
    network = nn.Linear(2, 2)
    with torch.no_grad():
        network.weight.copy_(torch.tensor([[10.0, 0.0], [0.0, 0.0]]))
        network.bias.copy_(torch.tensor([0.0, 0.5]))
    agent = rr.wrap(network, "q", observation_shape=(2,))
    guard = rr.guard(agent, 0.1, rule="carrl", budget=None, compiled=False)
    x = torch.tensor([[0.1, 0.0], [0.5, 0.0]])
    assert agent.act(x).tolist() == [0, 0]
    assert guard.agent.act(x).tolist() == [1, 0]
    assert [guard(row).action for row in x] == [1, 0]
    assert guard(x[1]).verdict is Verdict.CERTIFIED
    assert guard.agent.lower_bounds(x)[0] == pytest.approx(torch.tensor([0.0, 0.5]), abs=1e-5)  # type: ignore[union-attr]


def test_carrl_plays_under_attacks() -> None:
    torch.manual_seed(0)
    agent = rr.QAgent((4,), 2, (8,))
    carrl = rr.guard(agent, 0.05, rule="carrl", compiled=False).agent
    under = rr.evaluate(carrl, "CartPole-v1", rr.PGD(), 0.05, episodes=2)
    assert under.episodes == 2
    assert "CARRL" in under.agent


def test_a_guard_stands_for_its_agent() -> None:
    torch.manual_seed(0)
    agent = rr.QAgent((4,), 2, (8,))
    carrl, greedy = (rr.guard(agent, 0.05, rule=rule, compiled=False, budget=None) for rule in ("carrl", "greedy"))
    under = rr.evaluate(carrl, "CartPole-v1", rr.PGD(), 0.05, episodes=2)
    assert "CARRL" in under.agent
    assert under.returns == rr.evaluate(carrl.agent, "CartPole-v1", rr.PGD(), 0.05, episodes=2).returns
    assert rr.gwc(greedy, "CartPole-v1", 0.01, episodes=1).mean > 0  # type: ignore[arg-type]
    falling = rr.guard(agent, 0.05, fallback=lambda obs, action, verdict: 0, compiled=False, budget=None)
    with pytest.raises(BadInput, match=r"without a fallback, .* pass guard.agent"):
        rr.evaluate(falling, "CartPole-v1", episodes=1)


def test_a_network_that_changes_is_checked_again() -> None:
    agent = linear_agent()
    guard = rr.guard(agent, 0.1, budget=None, compiled=False)
    assert guard(np.array([0.5, 0.1])).verdict is Verdict.CERTIFIED
    with torch.no_grad():
        agent.network.weight.mul_(0)  # type: ignore[operator, union-attr]
    assert guard(np.array([0.5, 0.1])).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"radius": -1.0}, "radius"),
        ({"radius": (0.1, 0.1)}, "radius must be a finite number ≥ 0"),
        ({"radius": torch.full((99,), 0.1)}, "radius must be a finite number ≥ 0"),
        ({"bound": "crwn"}, "did you mean 'crown'"),
        ({"budget": 0.0}, "budget"),
        ({"rule": "carl"}, "did you mean 'carrl'"),
        ({"fallback": 3}, "fallback"),
        ({"tolerance": math.nan}, "tolerance"),
    ],
)
def test_refusals(settings: dict[str, object], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        rr.guard(linear_agent(), **({"radius": 0.1} | settings))  # type: ignore[arg-type]


def test_carrl_is_for_agents_of_q_values() -> None:
    with pytest.raises(BadInput, match="Q-values"):
        rr.guard(rr.CategoricalAgent((4,), 2, (8,)), 0.1, rule="carrl")


def test_no_steps_no_latency() -> None:
    assert GuardCounts().to_json()["steps"] == 0


@pytest.mark.nightly
@pytest.mark.skipif(not can_compile(), reason="no C++ compiler")
@pytest.mark.parametrize("name", ["ibp", "crown"])
@pytest.mark.parametrize("kind", ["q", "categorical"])
def test_compiled_bounds_are_the_checked_ones(name: str, kind: str) -> None:
    torch.manual_seed(0)
    agent = rr.QAgent((3,), 3, (16, 16)) if kind == "q" else rr.CategoricalAgent((3,), 3, (16, 16))
    bound = StepBound(agent.choice, (name,))
    with torch.no_grad():
        for radius in (0.0, 0.01, 0.1, 1.0):
            x = torch.randn(1, 3)
            wanted = rr.sound(name)(agent.choice, rr.Ball(x, radius))
            found = bound(x, radius)
            assert bound.compiled
            assert torch.allclose(found.lower, wanted.lower, rtol=1e-5, atol=1e-6)
            assert torch.allclose(found.upper, wanted.upper, rtol=1e-5, atol=1e-6)
        before = bound._seen[False]
        next(iter(agent.network.parameters())).mul_(2.0)
        bound(x, 0.1)
        assert bound._seen[False] != before
        inside = agent.choice(x + 0.1 * (2 * torch.rand(64, 3) - 1))
        last = bound(x, 0.1)
        assert bool(((last.lower <= inside) & (inside <= last.upper)).all())
