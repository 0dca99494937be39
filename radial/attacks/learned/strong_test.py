"""Which loss is chosen where it is known which one hurts."""

import pytest
import torch

from radial.agents.policies import CategoricalAgent
from radial.attacks.fitting_test import LinearWorld, random_agent
from radial.attacks.gradient import PGD
from radial.attacks.learned.halving_test import CARTPOLE, balancing
from radial.attacks.learned.strong import StrongPGD, Targeted
from radial.core.ball import Ball
from radial.core.data import BadInput, Step
from radial.evaluation.play import evaluate


class Precious(LinearWorld):
    """Every step pays the number of the action: whoever makes the agent choose 0 has won."""

    def step(self, action: torch.Tensor) -> Step:
        step = super().step(action)
        pay = torch.where(step.real, action.float(), 0.0)
        return Step(step.obs, pay, pay, step.terminated, step.truncated, step.real)


def test_it_has_the_losses_of_the_weaker_ones() -> None:
    members = StrongPGD().members(balancing(), (4,))
    assert members["cross-entropy, one run"] == PGD()
    assert list(members) == ["cross-entropy, one run", "margin", "cross-entropy", "value", "target 0", "target 1"]
    assert list(StrongPGD().members(random_agent(discrete=False), (2,)))[:3] == [
        "distance, one run",
        "distance",
        "value",
    ]
    many = CategoricalAgent((4,), 19)
    assert not any(name.startswith("target") for name in StrongPGD().members(many, (4,)))


def test_the_worst_loss_wins() -> None:
    agent = random_agent(discrete=True)
    found = StrongPGD(radius=5.0).fit(agent, Precious(140, limit=1, discrete=True), 0)
    assert found.returns[found.loss] == min(found.returns.values())
    assert found.returns["target 0"] < found.returns["target 2"]


def test_it_is_not_weaker_than_plain_pgd() -> None:
    agent = balancing()
    plain, strong = (evaluate(agent, CARTPOLE, attack, 0.3, 20, 3).mean for attack in (PGD(), StrongPGD(episodes=20)))
    assert strong <= plain + 0.5  # it may be the same attack, with other episodes to choose it


def test_a_target_is_an_action_or_an_end_of_one_entry() -> None:
    ball = Ball(torch.randn(6, 2, generator=torch.Generator().manual_seed(0)), 2.0)
    agent = random_agent(discrete=True)
    with torch.no_grad():
        before = (agent.act(ball.center) == 1).sum()
        assert (agent.act(Targeted(1).perturb(agent, ball, torch.Generator())) == 1).sum() >= before
        gaussian = random_agent(discrete=False)
        up, down = (gaussian.scores(Targeted(at).perturb(gaussian, ball, torch.Generator()))[:, 1] for at in (2, 3))
    assert (up > down).all()


def test_it_needs_a_radius() -> None:
    with pytest.raises(BadInput, match="radius must be set"):
        StrongPGD().fit(balancing(), CARTPOLE, 0)
