import math

import pytest
import torch
from torch import Tensor

from radial.core.ball import Ball
from radial.core.data import BadInput
from radial.core.search import pgd, steepest, with_restarts


def slope(x: Tensor) -> Tensor:
    return x @ torch.tensor([3.0, -4.0])


def test_pgd_climbs_a_linear_function_to_its_exact_maximum() -> None:
    for p, reach in ((1, 0.4), (2, 0.5), (math.inf, 0.7)):
        ball = Ball(torch.zeros(5, 2), 0.1, p)
        x, value = pgd(slope, ball, steps=20, step_size=0.25, start=ball.center)
        assert ball.contains(x).all()
        assert torch.allclose(value, torch.full((5,), reach), rtol=1e-5)


def test_no_steps_and_no_radius_are_the_start() -> None:
    ball = Ball(torch.ones(2, 2), 0.0)
    x, value = pgd(slope, ball, steps=3, step_size=0.1, start=ball.center)
    assert torch.equal(x, ball.center)
    assert value.tolist() == [-1.0, -1.0]
    assert torch.equal(pgd(slope, ball, steps=0, step_size=0.1, start=ball.center)[0], ball.center)


def test_rows_do_not_see_each_other() -> None:
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    center = torch.rand(4, 3)
    together, _ = pgd(lambda x: network(x)[:, 0], Ball(center, 0.1), steps=5, step_size=0.2, start=center)
    for row in range(4):
        one = center[row : row + 1]
        alone, _ = pgd(lambda x: network(x)[:, 0], Ball(one, 0.1), steps=5, step_size=0.2, start=one)
        assert torch.allclose(together[row], alone[0], atol=1e-6)
    assert all(parameter.grad is None for parameter in network.parameters())  # leaves no gradient behind


def test_restarts_never_hurt() -> None:
    torch.manual_seed(1)
    network = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    ball = Ball(torch.rand(8, 2), 0.5)
    rng = torch.Generator().manual_seed(0)
    _, one = with_restarts(lambda x: network(x)[:, 0], ball, rng, restarts=1, steps=5, step_size=0.2)
    _, many = with_restarts(lambda x: network(x)[:, 0], ball, rng, restarts=6, steps=5, step_size=0.2)
    assert bool((many >= one).all())


def test_steepest_direction_has_unit_length_in_budgets() -> None:
    gradient = torch.tensor([[3.0, -4.0]])
    assert steepest(gradient, Ball(torch.zeros(1, 2), 1.0, math.inf)).tolist() == [[1.0, -1.0]]
    assert steepest(gradient, Ball(torch.zeros(1, 2), 1.0, 2)).tolist() == [[pytest.approx(0.6), pytest.approx(-0.8)]]
    assert steepest(gradient, Ball(torch.zeros(1, 2), 1.0, 1)).tolist() == [[0.0, -1.0]]


def test_bad_input() -> None:
    ball = Ball(torch.zeros(1, 2), 0.1)
    for settings, name in (({"steps": -1, "step_size": 0.1}, "steps"), ({"steps": 1, "step_size": 0.0}, "step_size")):
        with pytest.raises(BadInput, match=name):
            pgd(slope, ball, start=ball.center, **settings)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="restarts"):
        with_restarts(slope, ball, torch.Generator(), restarts=0, steps=1, step_size=0.1)
