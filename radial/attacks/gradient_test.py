import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from radial.agents.actor_critic import ActorCritic, ImpalaAgent
from radial.agents.q_agent import QAgent
from radial.attacks import ATTACKS
from radial.attacks.fitting_test import random_agent
from radial.attacks.gradient import FGSM, MAD, PGD, Critic, NoAttack, RandomNoise
from radial.core.ball import Ball
from radial.core.data import BadInput, Continuous, Discrete

RADIUS = 0.075


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def linear(weight: list[list[float]], actions: Discrete | Continuous) -> Any:
    """An agent whose scores are W·x and whose value is the sum of x."""
    matrix = torch.tensor(weight)
    return SimpleNamespace(actions=actions, scores=lambda x: x @ matrix.T, value=lambda x: x.sum(-1))


def test_critic_walks_downhill_to_the_corner() -> None:
    ball = Ball(torch.zeros(3, 2), RADIUS)
    x = Critic().perturb(linear([[0.0, 0.0]], Continuous(1)), ball, seeded())
    # From within one step of the centre, ten steps of a tenth reach at least 0.9 of the way down.
    assert bool((x <= -0.9 * RADIUS + 1e-7).all())


def test_critic_needs_a_value_function() -> None:
    agent = SimpleNamespace(actions=Discrete(2), scores=lambda x: x)
    with pytest.raises(BadInput, match="needs an agent with a value function"):
        Critic().perturb(agent, Ball(torch.zeros(1, 2), 0.1), seeded())


def test_mad_is_the_recipe_word_for_word() -> None:
    agent = random_agent(discrete=False)
    center = torch.randn(1, 2, generator=seeded(9))
    rng = seeded(4)
    x = center + torch.randn(1, 2, generator=rng).sign() * RADIUS / 10
    for i in range(10):
        x = x.detach().requires_grad_(True)
        distance = ((agent.scores(x) - agent.scores(center).detach()) ** 2).sum()
        slope = torch.autograd.grad(distance, x)[0]
        noise = torch.randn(1, 2, generator=rng) * math.sqrt(2 * RADIUS / 10) / (i + 2)
        x = torch.clamp(x + (slope + noise).sign() * RADIUS / 10, center - RADIUS, center + RADIUS)
    assert torch.allclose(MAD().perturb(agent, Ball(center, RADIUS), seeded(4)), x, atol=1e-7)


def test_mad_goes_to_an_end_of_a_steep_line() -> None:
    ball = Ball(torch.zeros(20, 1), RADIUS)
    x = MAD().perturb(linear([[100.0]], Continuous(1)), ball, seeded())
    assert torch.allclose(x.abs(), torch.full_like(x, RADIUS))
    assert {-1.0, 1.0} == set(x.sign().flatten().tolist())  # either end is as far


def test_mad_counts_in_relative_standard_deviations_if_the_agent_samples() -> None:
    agent = linear([[1.0, 0.0], [0.0, 1.0]], Continuous(2))
    agent.log_std = torch.tensor([1.0, 3.0]).log()  # σ̃ = (1, 3)/2
    x = torch.tensor([[1.0, 3.0]])
    assert MAD().objective(agent, torch.zeros(1, 2))(x).tolist() == [10.0]
    assert MAD(stochastic=True).objective(agent, torch.zeros(1, 2))(x).tolist() == pytest.approx([8.0])  # 2² + 2²


def test_mad_of_a_softmax_is_the_divergence() -> None:
    agent = linear([[1.0], [0.0]], Discrete(2))
    ln3 = math.log(3.0)  # probabilities (1/2, 1/2) against (3/4, 1/4)
    found = MAD().objective(agent, torch.zeros(1, 1))(torch.tensor([[ln3]]))
    assert found.tolist() == pytest.approx([0.5 * math.log(2 / 3) + 0.5 * math.log(2)])


def test_pgd_of_the_paper_starts_at_the_centre_and_keeps_the_last_iterate() -> None:
    agent = linear([[1.0, 0.0], [0.0, 1.0]], Discrete(2))
    ball = Ball(torch.tensor([[1.0, 0.0]]), 0.1)
    assert PGD(steps=10).perturb(agent, ball, seeded()).tolist()[0] == pytest.approx([0.9, 0.1])
    assert PGD(steps=3).perturb(agent, ball, seeded()).tolist()[0] == pytest.approx([0.97, 0.03])


def test_pgd_leaves_the_flat_spot_of_a_gaussian_policy() -> None:
    ball = Ball(torch.zeros(4, 1), 0.1)
    x = PGD(steps=20).perturb(linear([[1.0]], Continuous(1)), ball, seeded())
    assert torch.allclose(x.abs(), torch.full_like(x, 0.1))


def test_more_runs_never_score_less() -> None:
    agent = random_agent(discrete=True)
    ball = Ball(torch.randn(32, 2, generator=seeded(1)), 1.0)
    score = PGD().objective(agent, ball.center)

    def found(attack: PGD) -> Tensor:
        return score(attack.perturb(agent, ball, seeded()))

    assert bool((found(PGD(restarts=6)) >= found(PGD()) - 1e-6).all())


def test_the_margin_is_positive_just_where_the_choice_changes() -> None:
    agent = linear([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]], Discrete(3))
    score = PGD(loss="margin").objective(agent, torch.tensor([[1.0, 0.0]]))  # scores 1, 0, 0.5: the choice is 0
    assert score(torch.tensor([[1.0, 0.0]])).tolist() == [-0.5]
    assert score(torch.tensor([[0.3, 0.7]])).tolist() == pytest.approx([0.4])  # 0.3, 0.7, 0.5
    random = random_agent(discrete=True)
    center = torch.randn(50, 2, generator=seeded(1))
    score, moved = PGD(loss="margin").objective(random, center), center + torch.randn(50, 2, generator=seeded(2))
    assert torch.equal(score(moved) > 0, random.act(moved) != random.act(center))


def test_the_strong_preset_changes_more_choices_than_the_papers() -> None:
    agent = random_agent(discrete=True)
    ball = Ball(torch.randn(400, 2, generator=seeded(1)), 0.3)
    changed = [
        int((agent.act(attack.perturb(agent, ball, seeded())) != agent.act(ball.center)).sum())
        for attack in (RandomNoise(), PGD(), PGD.strong())
    ]
    assert changed == sorted(changed)
    assert changed[-1] > 0
    assert (PGD.strong().restarts, PGD.strong().loss) == (5, "margin")
    assert PGD() == PGD(steps=10, step_size=0.1, restarts=1, random_start=False, loss="cross-entropy")  # the paper's


def test_the_protocol_of_procgen_by_hand() -> None:
    """Ten steps of ε/5 without a random start: five reach the corner, and there the rest stay."""
    assert ATTACKS["pgd-procgen"]() == PGD.procgen() == PGD(steps=10, step_size=0.2, restarts=1, random_start=False)
    agent = linear([[1.0, 0.0], [0.0, 1.0]], Discrete(2))
    ball = Ball(torch.tensor([[0.6, 0.5]]), 0.1, low=0.0, high=1.0)
    for steps, reach in ((1, 0.02), (4, 0.08), (5, 0.1), (10, 0.1)):
        x = replace(PGD.procgen(), steps=steps).perturb(agent, ball, seeded())
        assert x.tolist()[0] == pytest.approx([0.6 - reach, 0.5 + reach], abs=1e-6)


def test_fgsm_is_one_step_to_a_corner() -> None:
    agent = linear([[1.0, 0.0], [0.0, 1.0]], Discrete(2))
    x = FGSM().perturb(agent, Ball(torch.tensor([[1.0, 0.0]]), 0.1), seeded())
    assert x.tolist()[0] == pytest.approx([0.9, 0.1])
    cut = FGSM().perturb(agent, Ball(torch.tensor([[0.95, 0.02]]), 0.1, low=0.0, high=0.05 + 0.9), seeded())
    assert cut.tolist()[0] == pytest.approx([0.85, 0.12])
    frames = FGSM().perturb(agent, Ball(torch.tensor([[0.02, 0.95]]), 0.1, low=0.0, high=1.0), seeded())
    assert frames.tolist()[0] == pytest.approx([0.12, 0.85])


@pytest.mark.parametrize(
    ("kind", "shape"), [(QAgent, (1, 84, 84)), (ActorCritic, (1, 80, 80)), (ImpalaAgent, (3, 64, 64))]
)
def test_what_decides_is_climbed_and_frames_stay_frames(
    kind: type[QAgent | ActorCritic | ImpalaAgent], shape: tuple[int, int, int]
) -> None:
    agent = kind(shape, 3)
    agent.initialize(seeded())
    center = torch.rand(2, *shape, generator=seeded(1)).round()  # black and white: every pixel is at an end
    ball = Ball(center, 8 / 255, low=0.0, high=1.0)
    score = PGD().objective(agent, center)
    for attack in (PGD(steps=3), FGSM(), MAD(steps=3), Critic(steps=3)):
        x = attack.perturb(agent, ball, seeded())
        assert ball.contains(x).all()
        assert 0 <= float(x.min()) <= float(x.max()) <= 1
    assert (score(FGSM().perturb(agent, ball, seeded())) > score(center)).all()
    q, a = agent.scores(center), agent.choice(center)
    torch.testing.assert_close(a.log_softmax(-1), q.log_softmax(-1))  # V drops out, as the paper's code has it


def test_noise_fills_the_ball_and_no_attack_is_none() -> None:
    ball = Ball(torch.zeros(1000, 1), 2.0)
    x = RandomNoise().perturb(None, ball, seeded())
    assert float(x.abs().mean()) == pytest.approx(1.0, abs=0.1)
    assert torch.equal(NoAttack().perturb(None, ball, seeded()), ball.center)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MAD(steps=0), "steps must be a whole number ≥ 1, got 0"),
        (lambda: Critic(steps=-3), "steps must be a whole number ≥ 1, got -3"),
        (lambda: PGD(step_size=math.nan), "step_size must be finite and > 0, got nan"),
        (lambda: PGD(restarts=0), "restarts must be a whole number ≥ 1, got 0"),
        (lambda: PGD(loss="hinge"), "loss must be cross-entropy or margin, got 'hinge'"),  # type: ignore[arg-type]
    ],
)
def test_bad_input(make: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        make()


def test_attacks_take_no_less_than_an_agent() -> None:
    ball = Ball(torch.zeros(1, 2), 0.1)
    for attack in (PGD(), Critic()):
        with pytest.raises(BadInput, match="agent must be an agent"):
            attack.perturb(None, ball, seeded())  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="stochastic must be False"):
        MAD(stochastic=True).perturb(linear([[1.0, 0.0]], Continuous(1)), ball, seeded())
