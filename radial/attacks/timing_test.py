"""When an attack strikes, on agents whose preferences are known."""

import copy

import pytest
import torch

from radial.agents.policies import CategoricalAgent, GaussianAgent
from radial.attacks.fitting_test import LinearWorld, random_agent
from radial.attacks.gradient import MAD, PGD, RandomNoise
from radial.attacks.learned.adversaries import PAAD
from radial.attacks.timing import Timed, TimedAttack, preference
from radial.core.ball import Ball
from radial.core.data import BadInput, EnvSpec


def sure_where_large() -> CategoricalAgent:
    """Logits (x_0, −x_0, 0): indifferent at 0, sure where x_0 is far from it."""
    agent = CategoricalAgent((2,), 3, hidden=(1,))
    agent.network = torch.nn.Linear(2, 3)
    with torch.no_grad():
        agent.network.weight.copy_(torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 0.0]]))
        agent.network.bias.zero_()
    return agent


def test_the_preference_is_the_gap_of_the_probabilities() -> None:
    x = torch.tensor([[0.0, 5.0], [2.0, 0.0]])
    e = torch.tensor(2.0).exp()
    expected = torch.tensor([0.0, float((e - 1 / e) / (e + 1 / e + 1))])
    assert torch.allclose(preference(sure_where_large(), x), expected)


def test_of_a_mean_action_it_is_its_length() -> None:
    agent = GaussianAgent((2,), 2)
    agent.network = torch.nn.Identity()
    assert preference(agent, torch.tensor([[3.0, 4.0]])).tolist() == [5.0]


def test_it_strikes_where_the_agent_cares_and_no_more_often_than_it_may() -> None:
    attack = TimedAttack(PGD(), share=0.5, threshold=0.5)
    agent, rng = sure_where_large(), torch.Generator()
    attack.reset(torch.ones(2, dtype=torch.bool))
    ball = Ball(torch.tensor([[0.1, 0.0], [3.0, 0.0]]), 0.2)
    hits = []
    for _ in range(4):
        hits.append((attack.perturb(agent, ball, rng) != ball.center).any(1).tolist())
        attack.reset(torch.zeros(2, dtype=torch.bool))
    assert [hit[0] for hit in hits] == [False] * 4  # indifferent
    assert [hit[1] for hit in hits] == [True, False, False, True]  # of 4 steps at most 2, the first at once
    attack.reset(torch.tensor([False, True]))
    assert (attack.perturb(agent, ball, rng) != ball.center).any(1).tolist() == [False, True]  # a new episode


def test_the_threshold_is_a_quantile_of_clean_play() -> None:
    agent = random_agent(discrete=True)
    always = Timed(RandomNoise(), 1.0, samples=200).fit(agent, LinearWorld(4, discrete=True), 0)
    rarely = Timed(RandomNoise(), 0.1, samples=200).fit(agent, LinearWorld(4, discrete=True), 0)
    assert 0 <= always.threshold < rarely.threshold <= 1
    ball = Ball(torch.randn(8, 2, generator=torch.Generator().manual_seed(0)), 0.0)
    assert torch.equal(rarely.perturb(agent, ball, torch.Generator()), ball.center)


def test_it_passes_on_the_ball_that_its_attack_learns_for() -> None:
    aimed = Timed(PAAD(), 0.5).aimed(0.3, 2.0)
    assert isinstance(aimed.attack, PAAD)
    assert (aimed.attack.radius, aimed.attack.p) == (0.3, 2.0)
    assert Timed(MAD(), 0.5).aimed(0.3, 2.0) == Timed(MAD(), 0.5)


@pytest.mark.parametrize(("attack", "share"), [(MAD(), 0.0), (MAD(), 1.5), (MAD, 0.5), ("mad", 0.5)])
def test_nonsense_is_refused(attack: object, share: float) -> None:
    with pytest.raises(BadInput, match="must"):
        Timed(attack, share)


def test_checks_are_passed_on() -> None:
    seen = []

    class Fussy(RandomNoise):
        def check(self, *facts: object) -> None:
            seen.append(facts)

    spec = EnvSpec("classic", "CartPole-v1")
    TimedAttack(Fussy(), 0.5, 0.0).check(copy.copy(sure_where_large()), spec, 0.1, 2.0)
    assert seen[0][1:] == (spec, 0.1, 2.0, False)
