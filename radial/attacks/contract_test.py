"""What every attack in the table promises, against agents of every kind with random weights."""

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch

from radial.agents.actor_critic import ActorCritic
from radial.agents.convert import AGENTS
from radial.agents.policies import DeterministicAgent
from radial.agents.q_agent import QAgent
from radial.attacks import ATTACKS
from radial.attacks.compounding import Compounding
from radial.attacks.fitting_test import LinearWorld, random_agent
from radial.attacks.gradient import PGD
from radial.attacks.learned.adversaries import Adversary, LinearDirector, learned_of
from radial.attacks.learned.linear import linear_policy
from radial.attacks.learned.rounds import Searched
from radial.attacks.learned.strong import StrongPGD
from radial.attacks.sarsa import RobustSarsa
from radial.attacks.transfer import Transfer
from radial.core.ball import NORMS, Ball
from radial.core.data import Discrete

RADIUS = 0.3
KEYS = [*ATTACKS, "pgd, 4 runs"]


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(
    scope="module", params=[kind for kind in AGENTS if kind not in ("impala", "shallow")]
)  # frames: in `gradient_test`
def agent(request: pytest.FixtureRequest) -> Any:
    """Of every kind that takes vectors; those of frames are in `gradient_test`."""
    if request.param in ("gaussian", "categorical"):
        return random_agent(request.param == "categorical")
    agent = AGENTS[request.param]((2,), 3)
    agent.initialize(seeded(1))
    if isinstance(agent, DeterministicAgent):
        with torch.no_grad():  # it begins with a last layer near 0
            agent.squashed[-2].weight *= 300
    return agent


def last_layer(agent: Any) -> torch.nn.Linear:
    if isinstance(agent, QAgent):
        return agent.network.advantage[-1].linear
    return (agent.network.model if isinstance(agent, ActorCritic) else agent.network)[-1]


@pytest.fixture(scope="module", params=KEYS)
def attack(request: pytest.FixtureRequest, agent: Any) -> Any:
    """The attack of the table; one that learns does so in a hurry."""
    made: Any = PGD(restarts=4) if request.param == "pgd, 4 runs" else ATTACKS[request.param]()
    if isinstance(made, RobustSarsa):
        made = replace(made, iterations=3, samples=128, epochs=2, parts=4, learning_rate=1e-3)
    elif isinstance(made, Compounding | Transfer):
        made = replace(made, samples=400, epochs=5, hidden=16)
    elif isinstance(made, LinearDirector):  # it needs an env that can be played again: here its weights are drawn
        space = made.form("paad").actions(agent, (2,))
        weights = torch.randn(space.n if isinstance(space, Discrete) else space.size, 3, generator=seeded(2))
        policy = linear_policy(agent, (2,), space, weights)
        return learned_of(Searched("paad", policy, 0, False, {}), replace(made, radius=RADIUS))
    elif isinstance(made, Adversary):
        made = replace(made, radius=RADIUS, steps=192, rollout=32, minibatch=16, epochs=1, hidden=(8,), compile=False)
    elif isinstance(made, StrongPGD):
        made = replace(made, radius=RADIUS)
    if hasattr(made, "fit"):
        made = made.fit(agent, LinearWorld(4, discrete=isinstance(agent.actions, Discrete)), 0)
    return made


@pytest.fixture
def ball() -> Ball:
    return Ball(torch.randn(64, 2, generator=seeded(7)), RADIUS)


def test_it_stays_in_the_ball(attack: Any, agent: Any, ball: Ball) -> None:
    for p in NORMS:
        here = Ball(ball.center, RADIUS, p)
        x = attack.perturb(agent, here, seeded(0))
        assert x.shape == ball.center.shape
        assert x.isfinite().all()
        assert not x.requires_grad
        assert here.contains(here.project(x)).all()
        assert torch.allclose(here.project(x), x, atol=1e-6)  # ours need no help


def test_the_same_generator_gives_the_same_answer(attack: Any, agent: Any, ball: Ball) -> None:
    before = torch.get_rng_state()
    assert torch.equal(attack.perturb(agent, ball, seeded(3)), attack.perturb(agent, ball, seeded(3)))
    assert torch.equal(before, torch.get_rng_state()), "randomness is an argument"


def test_one_that_draws_nothing_does_the_same_to_a_few(attack: Any, agent: Any, ball: Ball) -> None:
    if not getattr(attack, "draws_nothing", lambda _: False)(agent):
        return
    rng, few = seeded(3), replace(ball, center=ball.center[10:20])
    whole = attack.perturb(agent, ball, rng)
    assert torch.equal(rng.get_state(), seeded(3).get_state())
    assert torch.allclose(attack.perturb(agent, few, rng), whole[10:20], atol=1e-6)


def test_the_agent_is_left_as_it_was(attack: Any, agent: Any, ball: Ball) -> None:
    before = copy.deepcopy(agent.state_dict())
    with torch.no_grad():  # as in an evaluation
        attack.reset(torch.ones(64, dtype=torch.bool))
        attack.perturb(agent, ball, seeded(0))
    assert all(torch.equal(before[name], value) for name, value in agent.state_dict().items())
    assert all(parameter.grad is None and parameter.requires_grad for parameter in agent.parameters())


def test_at_radius_zero_it_is_the_centre(attack: Any, agent: Any, ball: Ball) -> None:
    for p in NORMS:
        assert torch.equal(attack.perturb(agent, Ball(ball.center, 0.0, p), seeded(0)), ball.center)


def test_rows_do_not_see_each_other(attack: Any, agent: Any, ball: Ball) -> None:
    other = ball.center.clone()
    other[1:] *= -2.0
    one = attack.perturb(agent, ball, seeded(5))
    two = attack.perturb(agent, Ball(other, RADIUS), seeded(5))
    assert torch.allclose(one[0], two[0], atol=1e-6)


def test_it_beats_random_noise_at_its_own_game(attack: Any, agent: Any, ball: Ball) -> None:
    if not hasattr(attack, "objective"):
        return  # no attack, and noise itself
    score = attack.objective(agent, ball.center)
    with torch.no_grad():
        gained = score(attack.perturb(agent, ball, seeded(1))) - score(ball.sample(seeded(2)))
    assert float(gained.mean()) > 0
    assert float((gained > 0).float().mean()) > 0.6


def test_a_frozen_feature_and_a_range_are_kept(attack: Any, agent: Any) -> None:
    ball = Ball(torch.rand(16, 2, generator=seeded(0)), torch.tensor([0.2, 0.0]), low=0.0, high=1.0)
    x = attack.perturb(agent, ball, seeded(0))
    assert ball.contains(x).all()
    assert torch.equal(x[:, 1], ball.center[:, 1])


def test_an_agent_that_is_flat_or_steep_is_no_trouble(attack: Any, agent: Any, ball: Ball) -> None:
    for factor in (0.0, 1e6):
        extreme = copy.deepcopy(agent)
        with torch.no_grad():
            last_layer(extreme).weight *= factor
        assert attack.perturb(extreme, ball, seeded(0)).isfinite().all()


def test_it_shows_its_knobs(attack: Any) -> None:
    text = repr(attack)
    assert text.startswith(type(attack).__name__)
    assert len(text) < 120
    assert "\n" not in text


def test_the_table_has_the_names_of_the_command_line() -> None:
    assert list(ATTACKS) == [
        "none",
        "random",
        "critic",
        "mad",
        "rs",
        "rs+mad",
        "compounding",
        "transfer",
        "pgd",
        "pgd-procgen",
        "pgd-strong",
        "fgsm",
        "corners",
        "sarl",
        "paad",
        "linear",
        "learned",
    ]
