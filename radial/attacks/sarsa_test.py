from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from radial.agents.foreign import wrap
from radial.attacks.fitting import Experience
from radial.attacks.fitting_test import A, B, LinearWorld, random_agent
from radial.attacks.sarsa import RobustSarsa, SarsaAttack
from radial.core.ball import Ball
from radial.core.data import BadInput

TINY = RobustSarsa(iterations=3, samples=64, epochs=1, parts=2)


def a_sum(weights: list[float]) -> nn.Linear:
    layer = nn.Linear(len(weights), 1, bias=False)
    nn.init.zeros_(layer.weight)
    layer.weight.data += torch.tensor([weights])
    return layer


def test_the_loss_by_hand() -> None:
    q = a_sum([1.0, 2.0])  # Q(s, a) = s + 2a
    column = torch.tensor([[1.0], [0.0]])
    batch = Experience(
        x=column, action=column, reward=torch.tensor([1.0, 0.0]),
        next_x=torch.tensor([[2.0], [0.5]]), next_action=torch.tensor([[1.0], [0.0]]),
        terminated=torch.tensor([False, True]),
    )  # fmt: skip
    # Row 0: Q = 3, target 1 + ½·4 = 3. Row 1: Q = 0, target 0, because its successor has no future.
    sarsa = RobustSarsa(discount=0.5, sarsa_radius=0.1, sarsa_weight=2.0)
    assert sarsa.loss(q, batch, ramp=0.0).item() == pytest.approx(0.0)
    # Over a box of half-width 0.1·ramp around (s, a), Q moves by (1 + 2)·0.1·ramp to either side.
    assert sarsa.loss(q, batch, ramp=1.0).item() == pytest.approx(2 * 0.3**2, rel=1e-4)
    assert sarsa.loss(q, batch, ramp=0.5).item() == pytest.approx(2 * 0.15**2, rel=1e-4)


def test_a_time_limit_is_not_the_end() -> None:
    q = a_sum([1.0, 2.0])
    rows = {"x": torch.zeros(1, 1), "action": torch.zeros(1, 1), "reward": torch.zeros(1)}
    rows |= {"next_x": torch.ones(1, 1), "next_action": torch.zeros(1, 1)}
    sarsa = RobustSarsa(discount=0.5)
    assert sarsa.loss(q, Experience(**rows, terminated=torch.tensor([True])), 0.0) == 0
    assert sarsa.loss(q, Experience(**rows, terminated=torch.tensor([False])), 0.0) == 0.5 * 0.5**2


def test_the_attack_leads_to_the_worst_action() -> None:
    agent = random_agent(discrete=False)
    ball = Ball(torch.randn(32, 2, generator=torch.Generator().manual_seed(0)), 0.3)
    attack = SarsaAttack(a_sum([0.0, 0.0, 1.0, 0.0, 0.0]), 0.02, 0.1, mad_ratio=0.0, steps=10)  # Q is the first action
    x = attack.perturb(agent, ball, torch.Generator().manual_seed(0))
    lower = agent.scores(x)[:, 0] - agent.scores(ball.center)[:, 0]
    assert bool((lower < 0).all())


def test_the_mad_ratio_weighs_two_aims() -> None:
    agent = random_agent(discrete=False)
    center, x = torch.zeros(1, 2), torch.ones(1, 2)
    q = a_sum([0.0, 0.0, 1.0, 1.0, 1.0])
    change = (agent.scores(x) - agent.scores(center)).square().mean()
    value = agent.scores(x).sum()
    for ratio in (0.0, 0.25, 1.0):
        found = SarsaAttack(q, 0.02, 0.1, ratio, steps=10).objective(agent, center)(x)
        assert found.item() == pytest.approx((ratio * change - (1 - ratio) * value).item(), rel=1e-5)


def test_it_learns_the_value_of_a_known_world() -> None:
    """With γ = ½ and an agent that does nothing, Q(s, a) = s_0 + ½·(next s)_0 + …: linear, so it can be solved for."""
    agent = random_agent(discrete=False)
    with torch.no_grad():
        agent.network[-1].weight.zero_()  # type: ignore[index, operator, union-attr]
    sarsa = RobustSarsa(
        iterations=6, samples=512, epochs=10, parts=8, learning_rate=5e-3, discount=0.5, sarsa_weight=0.0, num_envs=4
    )
    attack = sarsa.fit(agent, LinearWorld(4, limit=5), 0)
    future = 0.5 * torch.linalg.inv(torch.eye(2) - 0.5 * A)  # Σ γ^(k+1) A^k
    state, action = torch.randn(200, 2, generator=torch.Generator().manual_seed(1)), torch.zeros(200, 3)
    truth = state[:, 0] + ((state @ A.T + action @ B.T) @ future.T)[:, 0]
    found = attack.q(torch.cat([state, action], 1)).squeeze(1)
    assert torch.corrcoef(torch.stack([truth, found]))[0, 1] > 0.98  # rewards are scaled, so up to a factor


def test_the_same_seed_learns_the_same_and_touches_no_one() -> None:
    agent = random_agent(discrete=True)
    before = {name: value.clone() for name, value in agent.state_dict().items()}
    drawn = torch.get_rng_state()
    one, two, other = (TINY.fit(agent, LinearWorld(4, discrete=True), seed) for seed in (0, 0, 1))
    assert torch.equal(one.q[0].weight, two.q[0].weight)  # type: ignore[index, arg-type]
    assert not torch.equal(one.q[0].weight, other.q[0].weight)  # type: ignore[index, arg-type]
    assert all(torch.equal(before[name], value) for name, value in agent.state_dict().items())
    assert torch.equal(drawn, torch.get_rng_state())
    assert repr(one) == "SarsaAttack(sarsa_radius=0.02, sarsa_weight=0.1, mad_ratio=0.0, steps=10)"


def test_an_agent_whose_spread_is_not_known_is_played_by_its_mean() -> None:
    """As SAC's actor, of which only the mean is imported."""
    mean = nn.Linear(2, 3, bias=False)
    with torch.no_grad():
        mean.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, -1.0]]))
    narrow = wrap(mean, "gaussian", log_std=torch.full((3,), -80.0))
    learned, same = (TINY.fit(agent, LinearWorld(4), 0) for agent in (wrap(mean, "gaussian"), narrow))
    by_mean = replace(TINY, stochastic=False).fit(narrow, LinearWorld(4), 0)
    x = torch.randn(8, 5, generator=torch.Generator().manual_seed(0))
    assert torch.equal(learned.q(x), by_mean.q(x))
    assert not torch.equal(learned.q(x), same.q(x))  # whose minibatches follow other draws


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mad_ratio": 1.5}, r"mad_ratio must lie in \[0, 1\], got 1.5"),
        ({"sarsa_radius": -1.0}, "sarsa_radius must be finite and ≥ 0, got -1.0"),
        ({"iterations": 0}, "iterations must be a whole number ≥ 1, got 0"),
    ],
)
def test_bad_input(change: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        replace(TINY, **change)
