"""What an adversary sees, does and earns, by hand."""

import math
from dataclasses import replace

import pytest
import torch

from radial.agents.policies import GaussianAgent
from radial.agents.q_agent import QAgent
from radial.attacks.fitting_test import LinearWorld, random_agent
from radial.attacks.learned.forms import Shift, Steer, lead_of, view, view_size
from radial.attacks.learned.world import AdversaryWorld, Realiser, Threat, check_deterministic
from radial.core.ball import NORMS, Ball
from radial.core.data import BadInput, Continuous, Discrete


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def linear_agent(*rows: list[float]) -> GaussianAgent:
    """Means W·x of observations that are not normalised."""
    agent = GaussianAgent((len(rows[0]),), len(rows))
    agent.network = torch.nn.Linear(len(rows[0]), len(rows), bias=False)
    with torch.no_grad():
        agent.network.weight.copy_(torch.tensor(rows))
    agent.normalizer.freeze()
    return agent


# ------------------------------------------------------------------------------------------------------------ forms


def test_a_shift_is_cut_to_the_ball() -> None:
    ball = Ball(torch.tensor([[1.0, 2.0]]), torch.tensor([0.5, 0.1]))
    shown = Shift().realise(torch.nn.Identity(), ball, torch.tensor([[0.5, -7.0]]))
    assert torch.allclose(shown, torch.tensor([[1.25, 1.9]]))


def test_a_cell_of_a_frame_moves_as_a_whole() -> None:
    form, shape = Shift(grid=2), (1, 4, 4)
    agent = QAgent((1, 84, 84), 3, (2, 2, 2, 4))
    assert form.actions(agent, shape) == Continuous(4)
    shown = form.realise(agent.choice, Ball(torch.zeros(1, *shape), 0.1), torch.tensor([[1.0, -1.0, 0.0, 0.5]]))
    corners = [[0.1, 0.1, -0.1, -0.1]] * 2 + [[0.0, 0.0, 0.05, 0.05]] * 2
    assert torch.allclose(shown[0, 0], torch.tensor(corners))


def test_steering_a_linear_agent_reaches_the_best_corner() -> None:
    agent = linear_agent([1.0, -2.0], [0.0, 3.0])
    ball = Ball(torch.zeros(2, 2), 0.5)
    directions = torch.tensor([[1.0, 0.0], [0.0, -1.0]])
    shown = Steer().realise(agent.choice, ball, directions)
    assert shown[0].tolist() == [0.5, -0.5]  # the first mean goes up
    assert shown[1, 1] == -0.5  # the second one goes down
    for p in NORMS:  # right-signed for every norm: ⟨μ(x) − μ(c), d⟩ > 0
        moved = agent.choice(Steer().realise(agent.choice, replace(ball, p=p), directions))
        assert ((moved * directions).sum(-1) > 0).all()


def test_a_target_gets_the_lead() -> None:
    scores = torch.tensor([[1.0, 3.0, 2.0], [1.0, 3.0, 2.0]])
    assert lead_of(scores, torch.tensor([1, 0])).tolist() == [1.0, -2.0]
    agent = random_agent(discrete=True)
    ball = Ball(torch.randn(64, 2, generator=seeded(0)), 0.5)
    target = torch.randint(3, (64,), generator=seeded(1))
    with torch.no_grad():
        before = lead_of(agent.scores(ball.center), target)
        after = lead_of(agent.scores(Steer().realise(agent.choice, ball, target)), target)
    assert (after >= before).all()
    assert (after > before).float().mean() > 0.9


def test_frames_are_seen_coarsely_and_with_the_scores() -> None:
    agent = QAgent((2, 84, 84), 3, (2, 2, 2, 4))
    agent.initialize(seeded(0))
    x = torch.zeros(1, 2, 84, 84)
    x[0, 1, :4, :4] = 1.0
    with torch.no_grad():
        seen = view(agent, x)
    assert seen.shape == (1, view_size(agent, (2, 84, 84))) == (1, 2 * 21 * 21 + 3)
    assert seen[0, 441] == 1.0  # the first cell of the second channel
    assert seen[0, :441].sum() == 0
    assert seen[0, -3:].mean().abs() < 1e-5


# ------------------------------------------------------------------------------------------------------------ world


@pytest.mark.parametrize("discrete", [False, True])
def test_the_adversary_earns_what_the_agent_loses(discrete: bool) -> None:
    agent, form, threat = random_agent(discrete), Steer(), Threat(0.3, math.inf)
    agent.normalizer.freeze()
    world = AdversaryWorld(LinearWorld(4, discrete=discrete), agent, form, Realiser(agent, form, threat, False))
    assert world.actions == (Discrete(3) if discrete else Continuous(3))
    twin = LinearWorld(4, discrete=discrete)
    seen, state = world.reset(), twin.reset()
    assert torch.equal(seen, agent.prepare(state))
    for number in range(20):
        action = torch.randint(3, (4,), generator=seeded(number)) if discrete else torch.randn(4, 3)
        shown = form.realise(agent.choice, Ball(agent.prepare(state), 0.3), action)
        expected = twin.step(agent.act(shown))
        step = world.step(action)
        assert torch.equal(step.reward, -expected.score)
        assert torch.equal(step.score, expected.score)
        assert torch.equal(step.obs, agent.prepare(expected.obs))
        assert torch.equal(step.truncated, expected.truncated)
        state = expected.obs


def test_an_end_pays_an_adversary_whose_agent_still_earns() -> None:
    """With V(end) = 0, an end after a reward of 1 is worth −1; going on for ever −1/(1 − γ)."""
    from radial.losses.policy import gae

    reward = -torch.ones(1, 2)
    value = torch.full((2, 2), -100.0)  # −1/(1 − 0.99)
    terminated = torch.tensor([[True, False]])
    advantage = gae(reward, value[:-1], value[1:], terminated, terminated, 0.99, 0.95)
    assert torch.allclose(advantage, torch.tensor([[99.0, 0.0]]))


@pytest.mark.nightly  # compiling takes half a minute
def test_the_compiled_form_is_the_plain_one() -> None:
    agent, form = random_agent(discrete=False), Steer()
    x, action = torch.randn(8, 2, generator=seeded(0)), torch.randn(8, 3, generator=seeded(1))
    plain, fast = (Realiser(agent, form, Threat(0.3, math.inf), compile)(x, action) for compile in (False, True))
    assert torch.allclose(plain, fast, atol=1e-6)


def test_an_agent_that_cannot_be_deterministic_is_refused() -> None:
    agent = random_agent(discrete=False)
    agent.act = lambda x, rng=None: torch.randn(len(x), 3)  # type: ignore[method-assign]
    with pytest.raises(BadInput, match="must act deterministically"):
        check_deterministic(agent, torch.zeros(4, 2))
