"""Which loss is chosen where it is known which one hurts."""

from typing import Any

import pytest
import torch

from radial.agents.policies import CategoricalAgent
from radial.attacks.fitting_test import LinearWorld, random_agent
from radial.attacks.gradient import MAD, PGD
from radial.attacks.learned.halving_test import CARTPOLE, balancing
from radial.attacks.learned.strong import StrongPGD, Targeted
from radial.core.ball import Ball
from radial.core.data import BadInput, Step, VecEnv
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
    assert members["divergence"] == MAD()
    assert set(members) == {
        "cross-entropy, one run", "divergence", "margin", "cross-entropy", "value", "target 0", "target 1",
    }  # fmt: skip
    gaussian = StrongPGD().members(random_agent(discrete=False), (2,))
    assert {"distance, one run", "distance, with noise", "distance", "value", "target 0"} <= set(gaussian)
    many = CategoricalAgent((4,), 19)
    assert not any(name.startswith("target") for name in StrongPGD().members(many, (4,)))


def test_the_worst_loss_wins() -> None:
    agent = random_agent(discrete=True)
    found = StrongPGD(radius=5.0).fit(agent, Precious(140, limit=1, discrete=True), 0)
    assert found.returns[found.loss] == min(found.returns.values())
    assert found.returns["target 0"] < found.returns["target 2"]


@pytest.mark.parametrize("preset", [PGD(), MAD()])
def test_it_is_not_weaker_than_a_preset(preset: Any) -> None:
    agent = balancing()
    plain, strong = (evaluate(agent, CARTPOLE, attack, 0.3, 20, 3).mean for attack in (preset, StrongPGD(episodes=20)))
    assert strong <= plain + 0.5  # it may be the same attack, with other episodes to choose it


def test_losses_are_compared_from_the_same_starts() -> None:
    """The first loss ends only the start that is short anyway: its mean is the lowest, and it is the weaker one."""
    first = iter([{0: 9.0}])

    def rehearse(attack: Any, world: VecEnv, coming: int) -> dict[int, float]:
        starts.append(world.reset())
        return next(first, {0: 8.0, 1: 500.0} if coming == 1 else {})

    starts: list[torch.Tensor] = []
    found = StrongPGD(radius=0.1).in_turn(balancing(), CARTPOLE, 0, rehearse)
    assert len(starts) == 7
    assert all(torch.equal(each, starts[0]) for each in starts)
    assert found.loss == "cross-entropy"  # the last one
    assert set(found.returns) == {"cross-entropy, one run", "cross-entropy"}  # others finished no episode


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
