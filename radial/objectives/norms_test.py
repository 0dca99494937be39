"""Every objective with every norm: known value at radius 0, monotone in radius and norm, gradients that are finite."""

import itertools
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from radial.agents.actor_critic import ActorCritic
from radial.agents.networks import MLPDueling
from radial.agents.policies import CategoricalAgent, DeterministicAgent
from radial.bounds.mix import Mix, bounds_of
from radial.core.ball import Ball
from radial.core.data import BadInput, Loss
from radial.core.schedules import Constant
from radial.objectives import base
from radial.objectives import deterministic as ddpg
from radial.objectives import policy_gradient as a3c
from radial.objectives import q_objectives as dqn
from radial.objectives import surrogate as ppo
from radial.objectives.dueling import bound_advantages
from radial.runs.config import decode, encode

NORMS = (1.0, 2.0, math.inf)
FEATURES, ACTIONS, ROWS = 5, 3, 16
RADIUS = Constant(0.1)
SPECIAL: dict[type, dict[str, Any]] = {ppo.SA: {"weight": 0.1}, dqn.SA: {"weight": 0.1}}


def objectives() -> list[Any]:
    """One of each type, and the searches beside the bounds; not the standard ones."""
    kinds = [each for room in (ppo, dqn, a3c, ddpg) for each in room.OBJECTIVES.values()]
    made = [kind(RADIUS, **SPECIAL.get(kind, {})) for kind in kinds if hasattr(kind, "clean")]
    made += [ppo.SA(RADIUS, 0.1, "sgld"), ppo.SA(RADIUS, 0.1, "pgd"), dqn.SA(RADIUS, 0.1, "pgd")]
    made += [ddpg.SA(RADIUS, 1.0, "sgld"), ddpg.SA(RADIUS, 1.0, "pgd")]
    return [*made, ppo.SA(RADIUS, 0.1, bound=Mix(Constant(0.3))), dqn.RadialOverlap(RADIUS, bound="crown-ibp")]


def name(objective: Any) -> str:
    room = type(objective).__module__.rpartition(".")[2]
    return f"{room}-{type(objective).__name__}-{getattr(objective, 'inner', 'bounded')}"


def network(seed: int) -> MLPDueling:
    torch.manual_seed(seed)
    return MLPDueling(ACTIONS, FEATURES, (16,))


def total(objective: Any, radius: float, p: float, **more: float) -> tuple[Loss, list[Tensor]]:
    """The loss, and its gradients; more are coefficients."""
    rng = torch.Generator().manual_seed(3)
    x, noise = torch.randn(ROWS, FEATURES, generator=rng), torch.randn(ROWS, 11, FEATURES, generator=rng)
    action = torch.randint(ACTIONS, (ROWS,), generator=rng)
    numbers, ones = torch.randn(ROWS, generator=rng), torch.ones(ROWS)
    objective = replace(objective, p=p)
    at = {key: torch.tensor(value) for key, value in (objective.coefficients(0) | {"radius": radius} | more).items()}
    torch.manual_seed(0)
    if type(objective) in dqn.OBJECTIVES.values():
        online, student = network(0), network(2)
        data = dqn.Batch(x, action, numbers, x + 0.1, 0.9 * ones, ones, noise)
        loss = objective(dqn.Nets(online, network(1), student, (-9.0, 9.0)), data, at, dqn.TD())
        trained = [*online.parameters(), *student.parameters()]
    elif type(objective) in ddpg.OBJECTIVES.values():
        actor = DeterministicAgent((FEATURES,), ACTIONS, (16,))
        nets = ddpg.Nets(actor.squashed, actor.critic, actor.critic, actor.squashed, actor.critic)
        data = ddpg.Batch(x, torch.eye(ACTIONS)[action], numbers, x + 0.1, 0.9 * ones, ones, noise)
        loss, trained = objective(nets, data, at), [*actor.parameters()]
    elif type(objective) in a3c.OBJECTIVES.values():
        joint = ActorCritic((FEATURES,), ACTIONS, (16,))
        loss, trained = objective(joint, a3c.Batch(x, action, numbers, numbers, ones), at, 0.0), [*joint.parameters()]
    else:
        agent = CategoricalAgent((FEATURES,), ACTIONS, (16,))
        old = agent.log_prob(x, action).detach()
        data = ppo.Batch(x, action, old, numbers, numbers, noise, worst=numbers.flip(0))
        loss, trained = objective(agent, data, at, 0.2), [*agent.network.parameters()]
    found = torch.autograd.grad(loss.total, trained, allow_unused=True)
    return loss, [gradient for gradient in found if gradient is not None]


def sought(objective: Any, loss: Loss) -> float:
    """The number that the ball can only raise: the loss; for BAR, whose search is for another one, the divergence."""
    return float(loss.parts["robust/divergence"] if isinstance(objective, ppo.BAR) else loss.total.detach())


@pytest.mark.parametrize("objective", objectives(), ids=name)
def test_at_radius_zero_the_norm_is_nothing_and_gradients_are_finite(objective: Any) -> None:
    at_zero = [total(objective, 0.0, p) for p in NORMS]
    for loss, gradients in at_zero:
        torch.testing.assert_close(loss.total, at_zero[-1][0].total, rtol=1e-5, atol=1e-6)
        assert all(bool(gradient.isfinite().all()) for gradient in gradients)


@pytest.mark.parametrize("objective", objectives(), ids=name)
@pytest.mark.parametrize("p", NORMS)
def test_a_larger_radius_is_never_better(objective: Any, p: float) -> None:
    losses = [total(objective, radius, p) for radius in (0.0, 0.02, 0.1, 0.4)]
    totals = [sought(objective, loss) for loss, _ in losses]
    # What is searched is found, not proven: between neighbours it may fall a little.
    slack = 0.02 * abs(totals[-1] - totals[0]) if objective.bounding is None else 1e-6
    assert all(one <= other + slack for one, other in itertools.pairwise(totals))
    assert totals[-1] > totals[0]
    assert all(bool(gradient.isfinite().all()) for _, gradients in losses for gradient in gradients)


@pytest.mark.parametrize("objective", objectives(), ids=name)
def test_an_l1_ball_lies_in_the_l2_ball_and_that_in_the_cube(objective: Any) -> None:
    one, two, cube = (sought(objective, total(objective, 0.2, p)[0]) for p in NORMS)
    assert one <= two + 1e-6 <= cube + 2e-6
    assert one < cube


@pytest.mark.parametrize("p", NORMS)
@pytest.mark.parametrize("frames", [False, True], ids=["vectors", "frames"])
def test_the_first_layer_is_bounded_by_the_dual_norm(frames: bool, p: float) -> None:
    """The fast path of DQN against the bounds of the library: the same numbers."""
    net = network(0)
    if frames:
        net.features = nn.Sequential(nn.Conv2d(1, 4, 3, stride=2), nn.ReLU(), nn.Flatten())
        net.advantage = nn.Sequential(nn.Linear(16, ACTIONS))
    x = torch.rand(2, *((1, 6, 6) if frames else (FEATURES,)))
    ball, at = Ball(x, torch.tensor(0.05), p), {"radius": torch.tensor(0.05)}
    whole = bounds_of(net.advantages, ball, "ibp", at)
    ((_, shared),) = bound_advantages(net, ball, net.features[0](x), "ibp", at)
    torch.testing.assert_close(shared.lower, whole.lower, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(shared.upper, whole.upper, rtol=1e-4, atol=1e-5)


def test_a_norm_is_recorded_only_where_it_is_not_the_default() -> None:
    """Cards and runs from before the setting keep their form."""
    assert "p" not in encode(dqn.RadialOverlap(RADIUS))
    table = encode(dqn.RadialOverlap(RADIUS, p=2))
    assert table["p"] == 2
    assert decode(dqn.RadialOverlap, table) == dqn.RadialOverlap(RADIUS, p=2.0)


@pytest.mark.parametrize("objective", objectives(), ids=name)
def test_every_loss_has_the_regulariser_that_it_takes_a_weight_for(
    objective: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its two terms made 1 and 2, and half of them left: 0.5·(1 + 2)·0.5 = 0.75."""
    monkeypatch.setattr(base, "tightness", lambda inputs, radius: torch.ones(()))
    monkeypatch.setattr(base, "relu_balance", lambda inputs: 2 * torch.ones(()))
    without, found = (
        total(replace(objective, regularize=each), 0.1, math.inf, regularizer=0.5)[0].total.item()
        for each in (0.0, 0.5)
    )
    times = ROWS if type(objective) in a3c.OBJECTIVES.values() else 1  # A3C adds its rows up
    assert found - without == pytest.approx(0.75 * times, rel=1e-4)


@pytest.mark.parametrize("kind", [ppo.SA, ppo.WocaR, dqn.SA, ddpg.SA])
def test_a_bound_is_checked_also_where_a_search_needs_none(kind: Any) -> None:
    with pytest.raises(BadInput, match="bound method must be one of"):
        kind(RADIUS, 0.1, inner="pgd", bound="foo")
