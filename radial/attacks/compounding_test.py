from types import SimpleNamespace
from typing import Any

import pytest
import torch

from radial.attacks.compounding import Compounding, CompoundingAttack, Dynamics
from radial.attacks.fitting_test import A, B, LinearWorld, random_agent
from radial.core.ball import Ball
from radial.core.data import BadInput, Continuous

K = torch.tensor([[1.0, -0.5], [0.0, 2.0], [0.3, 0.3]])  # a linear policy, a = K·s


class Known(torch.nn.Module):
    """The linear world itself."""

    def forward(self, x: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        return x @ A.T + action @ B.T


@pytest.mark.parametrize("horizon", [1, 3])
def test_in_a_linear_world_the_deviation_is_a_power_of_a_matrix(horizon: int) -> None:
    agent: Any = SimpleNamespace(actions=Continuous(3), scores=lambda x: x @ K.T)
    attack = CompoundingAttack(Known(), horizon, steps=10, unexplained=0.0)
    center = torch.randn(8, 2, generator=torch.Generator().manual_seed(0))
    # ŝ_n(δ) − ŝ_n(0) = (A + BK)^(n−1)·BK·δ, wherever one starts
    effect = torch.linalg.matrix_power(A + B @ K, horizon - 1) @ B @ K
    shift = torch.tensor([0.1, -0.2])
    expected = (effect @ shift).square().sum().expand(8)
    assert torch.allclose(attack.objective(agent, center)(center + shift), expected, rtol=1e-3)
    # A convex function is largest at a corner, and there are two kinds of corners.
    corners = torch.tensor([[0.1, 0.1], [0.1, -0.1]])
    best = (corners @ effect.T).square().sum(1).max()
    x = attack.perturb(agent, Ball(center, 0.1), torch.Generator().manual_seed(0))
    found = attack.objective(agent, center)(x)
    assert bool((found <= best * 1.001).all())
    assert float(found.max()) == pytest.approx(float(best), rel=1e-3)


def test_it_learns_how_the_world_moves() -> None:
    agent = random_agent(discrete=False)
    attack = Compounding(samples=2000, epochs=40, batch=128, hidden=32).fit(agent, LinearWorld(8), 0)
    assert attack.unexplained < 0.02
    data = torch.randn(100, 2, generator=torch.Generator().manual_seed(1)).clamp(-1, 1)
    action = agent.act(data).detach()
    error = attack.dynamics(data, action) - (data @ A.T + action @ B.T)
    assert float(error.abs().mean()) < 0.1
    assert "unexplained=0.0" in repr(attack)


def test_a_feature_that_never_moves_is_predicted_not_to() -> None:
    change = torch.tensor([[0.0, 1.0], [0.0, -1.0]])
    dynamics = Dynamics(torch.nn.Linear(3, 2), change)
    x = torch.tensor([[5.0, 0.0]])
    assert dynamics(x, torch.zeros(1, 1))[0, 0].item() == pytest.approx(5.0, abs=1e-4)


def test_the_same_seed_learns_the_same() -> None:
    tiny = Compounding(samples=200, epochs=2, hidden=8)
    one, two, other = (tiny.fit(random_agent(True), LinearWorld(4, discrete=True), seed) for seed in (0, 0, 1))
    assert one.unexplained == two.unexplained != other.unexplained


def test_bad_input() -> None:
    with pytest.raises(BadInput, match="horizon must be a whole number ≥ 1, got 0"):
        Compounding(horizon=0)
    with pytest.raises(BadInput, match="samples must be a whole number ≥ 100, got 5"):
        Compounding(samples=5)
    with pytest.raises(BadInput, match="learning_rate must be finite and ≥ 0, got nan"):
        Compounding(learning_rate=float("nan"))
