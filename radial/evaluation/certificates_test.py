"""GWC and ACR: worked out by hand in worlds of a few states, then against evaluation on CartPole."""

import json
import math

import pytest
import torch
from torch import Tensor, nn

from radial.agents.foreign import as_agent
from radial.agents.policies import GaussianAgent
from radial.attacks.gradient import PGD, RandomNoise
from radial.core.ball import Ball
from radial.core.data import BadInput, Bounds, EnvSpec
from radial.evaluation.certificates import Search, acr, gwc
from radial.evaluation.play import evaluate
from radial.evaluation.prover import SoundnessError
from radial.evaluation.tables_test import AsVector, LinearAgent, TableWorld, exact_linear, opposed

CARTPOLE = EnvSpec("classic", "CartPole-v1")

# Three states in a row: sure of 0, sure of nothing (leans to 0), sure of 1. Wrong turns are paid badly.
FORK = [
    (0.50, {0: (1, 1.0), 1: (None, -9.0)}),
    (0.05, {0: (2, 1.0), 1: (None, -2.0)}),
    (-0.5, {0: (None, -9.0), 1: (None, 1.0)}),
]


def fork() -> AsVector:
    return AsVector(TableWorld(FORK))


def balancer() -> LinearAgent:
    """Pushes to the side the pole leans and falls to: keeps it up for a while, and is often undecided."""
    return LinearAgent([[0.0, 0.0, -1.0, -0.5], [0.0, 0.0, 1.0, 0.5]])


def liar(network: nn.Module, ball: Ball, rows: Tensor | None = None) -> Bounds:
    """Certifies everything."""
    assert rows is not None
    return Bounds(torch.ones(rows.shape[:2]), torch.ones(rows.shape[:2]) * 2)


# -------------------------------------------------------------------------------------------------------- by hand


@pytest.mark.parametrize("bound", ["ibp", "best", exact_linear])
def test_gwc_by_hand(bound: object) -> None:
    """At ε = 0.1 only the middle state can be turned: 1 − 2; at 0.01 none: 1 + 1 + 1; at 0.6 the first: −9."""
    by_radius = {0.0: 3.0, 0.01: 3.0, 0.1: -1.0, 0.6: -9.0}
    for radius, expected in by_radius.items():
        result = gwc(opposed(), fork(), radius, bound, episodes=3)  # type: ignore[arg-type]
        assert result.returns == (expected,) * 3
    assert result.open_steps == 3
    assert gwc(opposed(), fork(), 0.1, episodes=1).open_steps == 1


def test_acr_by_hand() -> None:
    """Undisturbed: three steps, return 3. At ε = 0.1 the middle one is not certified, and an attack turns it."""
    result = acr(opposed(), fork(), 0.1, episodes=2)
    assert result.returns == (3.0, 3.0)
    assert (result.certified, result.attacked, result.unknown) == ((2, 2), (1, 1), (0, 0))
    assert result.rates == (2 / 3, 2 / 3)
    assert result.mean == pytest.approx(2 / 3)
    assert result.sem == 0.0
    assert acr(opposed(), fork(), 0.6, episodes=1).attacked == (3,)
    assert acr(opposed(), fork(), 0.0, episodes=1).certified == (3,)


def test_a_tie_is_unknown_and_so_is_an_agent_of_ties() -> None:
    """Two equal scores: nothing is proven, and nothing can be changed either."""
    world = TableWorld([(0.5, {0: (1, 1.0), 1: (None, 0.0)}), (0.5, {0: (None, 1.0), 1: (None, 0.0)})])
    result = acr(LinearAgent([[1.0], [1.0]]), AsVector(world), 0.1, episodes=1)
    assert (result.certified, result.attacked, result.unknown) == ((0,), (0,), (2,))
    assert result.mean == 0.0


def test_nan_weights_are_never_certified() -> None:
    agent = LinearAgent([[math.nan], [-1.0]])
    result = acr(agent, fork(), 0.01, episodes=1)
    assert result.certified == (0,)
    assert result.unknown == result.lengths


def test_a_horizon_cuts_episodes() -> None:
    assert gwc(opposed(), fork(), 0.01, episodes=1, horizon=2).returns == (2.0,)
    assert acr(opposed(), fork(), 0.01, episodes=1, horizon=2).lengths == (2,)
    long = gwc(balancer(), CARTPOLE, 0.01, episodes=4, num_envs=1, horizon=5)
    assert long.lengths == (5, 5, 5, 5)  # nobody falls in five steps
    with pytest.raises(BadInput, match="horizon needs one env for each episode: 2 episodes, 1 envs"):
        gwc(opposed(), fork(), 0.01, episodes=2, horizon=2)


# -------------------------------------------------------------------------------------------------- on CartPole


def test_without_a_ball_gwc_and_acr_are_the_undisturbed_evaluation() -> None:
    agent = LinearAgent([[0.0, 0.0, 1.0, 0.5], [0.0, 0.0, -1.0, -0.5]])  # pushes the wrong way, so that it soon falls
    nominal = evaluate(agent, CARTPOLE, episodes=5, seed=3, num_envs=3)
    assert gwc(agent, CARTPOLE, 0.0, episodes=5, seed=3, num_envs=3).returns == nominal.returns
    rate = acr(agent, CARTPOLE, 0.0, episodes=5, seed=3, num_envs=3)
    assert (rate.returns, rate.lengths) == (nominal.returns, nominal.lengths)
    assert rate.mean == 1.0  # a strict margin at a point, rounding included


def test_the_three_verdicts_add_up_to_the_steps_of_each_episode() -> None:
    rate = acr(balancer(), "CartPole-v1", 0.03, "crown-ibp", episodes=4, horizon=15)
    counts = zip(rate.certified, rate.attacked, rate.unknown, strict=True)
    assert [sum(three) for three in counts] == list(rate.lengths)
    assert sum(rate.certified) > 0
    assert sum(rate.attacked) > 0
    assert f"{sum(rate.attacked)} attacked" in str(rate)


def test_a_tighter_bound_certifies_no_less() -> None:
    loose, tight = (acr(balancer(), CARTPOLE, 0.05, bound, episodes=4, horizon=9) for bound in ("ibp", "best"))
    assert loose.lengths == tight.lengths
    assert all(one <= two for one, two in zip(loose.certified, tight.certified, strict=True))


def test_what_is_written_can_be_read() -> None:
    agent = balancer()
    for result in (
        gwc(agent, CARTPOLE, 0.1, episodes=2, name="mine", horizon=5),
        acr(agent, CARTPOLE, 0.1, episodes=2, name="mine", horizon=5),
    ):
        facts = json.loads(json.dumps(result.to_json(), allow_nan=False))
        assert (facts["agent"], facts["env"], facts["p"], facts["radius"]) == ("mine", "CartPole-v1", "inf", 0.1)
        assert (facts["bound"], facts["arithmetic"], facts["valid_range"]) == ("ibp", "outward-rounded", None)
        assert facts["engine"]["backend"] == "gymnasium"
        assert facts["steps"] == sum(facts["lengths"])


def test_a_certificate_repeats_itself_and_leaves_the_agent_alone() -> None:
    agent = balancer()
    before = {name: value.clone() for name, value in agent.state_dict().items()}
    drawn = torch.get_rng_state()
    one, two = (acr(agent, CARTPOLE, 0.1, episodes=2, seed=5, horizon=9).to_json() for _ in range(2))
    assert one | {"wall_seconds": 0} == two | {"wall_seconds": 0}
    assert all(torch.equal(before[name], value) for name, value in agent.state_dict().items())
    assert torch.equal(drawn, torch.get_rng_state())
    assert all(parameter.grad is None for parameter in agent.parameters())


# ---------------------------------------------------------------------------------------------- no proof is refuted


def test_no_attack_changes_a_certified_action() -> None:
    short = EnvSpec("classic", "CartPole-v1", {"max_episode_steps": 12})
    for attack in (PGD(), PGD(restarts=3, loss="margin"), RandomNoise()):
        watched = evaluate(balancer(), short, attack, 0.05, episodes=4, certified_by="ibp")
        plain = evaluate(balancer(), short, attack, 0.05, episodes=4)
        assert watched.returns == plain.returns
        assert watched.certified is not None
        assert 0 < watched.certified <= sum(watched.lengths)
        assert (watched.certified_by, plain.certified_by, plain.certified) == ("ibp", None, None)


def test_a_proof_that_is_refuted_stops_everything() -> None:
    message = r"step 1: liar certified action 0 at radius 0.1 \(p = inf\), yet the agent did 1 when attacked"
    with pytest.raises(SoundnessError, match=message):
        evaluate(opposed(), fork(), PGD(), 0.1, episodes=1, certified_by=liar)
    with pytest.raises(SoundnessError, match=message):
        acr(opposed(), fork(), 0.1, liar, episodes=1)


def test_the_search_finds_what_a_line_hides() -> None:
    ball = Ball(torch.tensor([[0.05], [0.5]]), 0.1)
    action = torch.tensor([0, 0])
    agent = as_agent(opposed())
    found = Search(restarts=2).find(agent, ball, action, torch.Generator().manual_seed(0))
    assert found.tolist() == [1, 0]
    with pytest.raises(BadInput, match="restarts must be a whole number ≥ 1, got 0"):
        Search(restarts=0).find(agent, ball, action, torch.Generator())


# ------------------------------------------------------------------------------------------------------- bad input


def test_certificates_are_about_discrete_best_actions() -> None:
    gaussian = GaussianAgent((3,), 1)
    for metric in (gwc, acr):
        with pytest.raises(BadInput, match="certificates of actions need an agent with discrete actions"):
            metric(gaussian, "Pendulum-v1", 0.1)
    with pytest.raises(BadInput, match="certificates of actions need"):
        evaluate(gaussian, "Pendulum-v1", None, 0.1, episodes=1, certified_by="ibp")
    with pytest.raises(BadInput, match="certified_by is about the best action: stochastic must be False"):
        evaluate(balancer(), CARTPOLE, None, 0.1, episodes=1, certified_by="ibp", stochastic=True)


def test_a_radius_in_grey_levels_is_refused() -> None:
    frames = LinearAgent([[1.0], [-1.0]], valid_range=(-1.0, 1.0))
    with pytest.raises(BadInput, match=r"inputs lie in \[-1, 1\], got 3; use 3/255"):
        gwc(frames, fork(), 3.0, exact_linear, episodes=1)
    with pytest.raises(BadInput, match="use 5/255"):
        evaluate(frames, fork(), RandomNoise(), 5.0, episodes=1)
    gwc(frames, fork(), 1.0, exact_linear, episodes=1)
    gwc(opposed(), fork(), 3.0, exact_linear, episodes=1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"episodes": 0}, "episodes must be a whole number ≥ 1, got 0"),
        ({"seed": -1}, "seed must be a whole number ≥ 0, got -1"),
        ({"horizon": 0}, "horizon must be a whole number ≥ 1, got 0"),
        ({"num_envs": 0}, "num_envs must be a whole number ≥ 1, got 0"),
        ({"radius": math.nan}, "radius must be a finite number ≥ 0, got nan"),
        ({"bound": "magic"}, "bound must be one of ibp, crown-ibp, crown, best, got 'magic'"),
        ({"p": 3.0}, "p must be 1, 2 or inf"),
    ],
)
def test_bad_input(settings: dict[str, object], message: str) -> None:
    for metric in (gwc, acr):
        with pytest.raises(BadInput, match=message):
            metric(**{"agent": balancer(), "env": CARTPOLE, "radius": 0.1} | settings)  # type: ignore[arg-type]
