import math
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from radial.agents.q_agent import QAgent
from radial.bounds import tracing
from radial.core.schedules import Linear
from radial.objectives.q_objectives import TD, Batch, Nets, Plain, QLoss, RadialOverlap
from radial.training.adam import adam, adam_, amsgrad_, start, start_amsgrad
from radial.training.dqn import QLearner
from radial.training.replay import Sample
from radial.training.update import Flat


def test_agrees_with_torch():
    rng = torch.Generator().manual_seed(0)
    ours = torch.randn(7, generator=rng)
    theirs = torch.nn.Parameter(ours.clone())
    optimiser = torch.optim.Adam([theirs], lr=0.01, eps=1e-5)
    moments = start(ours)
    for _ in range(20):
        gradient = torch.randn(7, generator=rng)
        theirs.grad = gradient.clone()
        optimiser.step()
        ours, moments = adam(ours, gradient, moments, torch.tensor(0.01))
    torch.testing.assert_close(ours, theirs.detach())
    assert moments.steps == 20


def test_in_place_it_is_the_same_step():
    rng = torch.Generator().manual_seed(0)
    ours = torch.randn(1_000, generator=rng)
    place, memory, moments = ours.clone(), start(ours), start(ours)
    for _ in range(20):
        gradient = torch.randn(1_000, generator=rng)
        ours, moments = adam(ours, gradient, moments, torch.tensor(0.01), eps=1e-3)
        adam_(place, gradient, memory, 0.01, eps=1e-3)
    torch.testing.assert_close(place, ours)
    for own, other in zip(memory, moments, strict=True):
        torch.testing.assert_close(own, other)


def test_a_rate_per_parameter_is_two_optimisers():
    rates = torch.tensor([0.1, 0.0])
    moved, _ = adam(torch.zeros(2), torch.ones(2), start(torch.zeros(2)), rates)
    assert moved[0] < 0
    assert moved[1] == 0


def test_amsgrad_by_hand():
    """Gradients 1 then 0: m is 0.1 then 0.09, v is 0.001 then 0.000999, and its largest stays 0.001."""
    parameters, moments = torch.zeros(1), start_amsgrad(torch.zeros(1))
    amsgrad_(parameters, torch.ones(1), moments, rate=1.0, eps=0.1)
    first = math.sqrt(0.001) / 0.1 * 0.1 / (math.sqrt(0.001) + 0.1)
    assert parameters.item() == pytest.approx(-first, rel=1e-5)  # −0.2402
    amsgrad_(parameters, torch.zeros(1), moments, rate=1.0, eps=0.1)
    second = math.sqrt(1 - 0.999**2) / (1 - 0.9**2) * 0.09 / (math.sqrt(0.001) + 0.1)
    assert parameters.item() == pytest.approx(-first - second, rel=1e-5)
    assert [float(value) for value in moments] == pytest.approx([0.09, 0.000999, 0.001, 2.0])


def test_amsgrad_agrees_with_torch_where_eps_is_put_in_the_same_place():
    rng = torch.Generator().manual_seed(0)
    ours = torch.randn(7, generator=rng)
    theirs = torch.nn.Parameter(ours.clone())
    optimiser = torch.optim.Adam([theirs], lr=0.01, amsgrad=True)
    moments = start_amsgrad(ours)
    for t in range(1, 31):
        gradient = torch.randn(7, generator=rng) / t  # falling, so that the largest second moment is one of the past
        optimiser.param_groups[0]["eps"] = 1e-3 / math.sqrt(1 - 0.999**t)  # theirs is added after that division
        theirs.grad = gradient.clone()
        optimiser.step()
        amsgrad_(ours, gradient, moments, rate=0.01, eps=1e-3)
    torch.testing.assert_close(ours, theirs.detach())
    assert bool((moments.largest > moments.second).any())


def test_amsgrad_moves_the_memory_it_is_given():
    parameters = torch.zeros(3)
    seen, moments = parameters.view(3), start_amsgrad(parameters)
    where = [tensor.data_ptr() for tensor in moments]
    amsgrad_(parameters, torch.ones(3), moments, rate=0.1, eps=1e-3)
    assert bool((seen < 0).all())
    assert [tensor.data_ptr() for tensor in moments] == where


def test_flat_round_trip():
    network = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 1))
    named = dict(network.named_parameters())
    flat = Flat(network.named_parameters())
    vector = flat.join(named)
    assert vector.shape == (11,)
    for name, piece in flat.split(vector).items():
        assert torch.equal(piece, named[name])
    flat.write(2 * vector, network)
    assert torch.equal(flat.join(dict(network.named_parameters())), 2 * vector)


def test_kernels_lie_channels_last_and_come_back_as_they_were():
    kernel = torch.arange(2 * 3 * 4 * 5, dtype=torch.float32).view(2, 3, 4, 5)
    flat = Flat([("kernel", kernel)])
    vector = flat.join({"kernel": kernel})
    assert vector[:3].tolist() == [kernel[0, 0, 0, 0], kernel[0, 1, 0, 0], kernel[0, 2, 0, 0]]
    again = flat.split(vector)["kernel"]
    assert torch.equal(again, kernel)
    assert again.is_contiguous(memory_format=torch.channels_last)


class Asked:
    """An objective that counts how often it is asked for its form."""

    draws = 0
    student = False

    def __init__(self, radius: Linear) -> None:
        self.radius, self.asked, self.clean = radius, 0, Plain()

    def coefficients(self, step: int) -> dict[str, float]:
        return {"radius": self.radius(step)}

    def at(self, step: int) -> object:
        self.asked += 1
        return self if self.radius(step) > 0 else self.clean

    def __call__(self, nets: Nets, batch: Batch, at: Mapping[str, Tensor], td: TD) -> QLoss:
        return self.clean(nets, batch, at, td)


def q_learner(objective: Any) -> QLearner:
    agent = QAgent((3,), 2, (8,))
    agent.initialize(torch.Generator().manual_seed(0))
    return QLearner(agent, None, objective, TD(), 0.9, rate=1e-3, adam_eps=1e-8, max_grad_norm=None, compile=False)


def sample() -> Sample:
    rng = torch.Generator().manual_seed(1)
    x, next_x = torch.rand(2, 5, 3, generator=rng)
    ones = torch.ones(5)
    return Sample(x, torch.tensor([0, 1, 0, 1, 0]), ones, next_x, ones > 1, ones, torch.arange(5), ones)


def test_the_form_of_an_objective_is_asked_for_where_a_schedule_begins_and_ends():
    """ε grows from 0 at step 10 to ½ at step 20: two phases, and no question in between."""
    objective = Asked(Linear(0.5, 10, 20))
    learner = q_learner(objective)
    for step in range(31):
        learner.learn(sample(), step, torch.Generator())
    assert objective.asked == 2


def test_a_user_sees_the_coefficients_of_every_step():
    learner = q_learner(RadialOverlap(Linear(0.5, 10, 20)))
    for step in (15, 17, 20):
        phase = learner.move_to(step)
        assert isinstance(phase.objective, RadialOverlap)
        assert float(learner.at["radius"]) == pytest.approx((step - 10) / 20)


def test_a_dueling_network_is_traced_once(monkeypatch: pytest.MonkeyPatch):
    traced: list[nn.Module] = []
    trace = tracing._Tracer.trace

    def counted(self: Any, root: nn.Module, *rest: Any) -> Any:
        traced.append(root)
        return trace(self, root, *rest)

    monkeypatch.setattr(tracing._Tracer, "trace", counted)
    learner = q_learner(RadialOverlap(0.1))
    for _ in range(5):
        learner.learn(sample(), 0, torch.Generator())
    assert len(traced) == 1
