"""Which actions can be forced, by hand: two actions, scores x and −x, or x₁ + x₂ and x₁."""

import math

import pytest
import torch
from torch import Tensor, nn

from radial.agents.actor_critic import ActorCritic
from radial.agents.foreign import as_agent
from radial.agents.policies import CategoricalAgent, GaussianAgent
from radial.agents.q_agent import QAgent
from radial.core.ball import Ball
from radial.core.data import BadInput, Bounds
from radial.evaluation.prover import (
    Elimination,
    Prover,
    SoundnessError,
    check_discrete,
    possible_actions,
    threat_model,
)
from radial.evaluation.tables_test import LinearAgent, exact_linear, opposed


def ends(lower: list[float], upper: list[float]) -> Bounds:
    return Bounds(torch.tensor([lower]), torch.tensor([upper]))


def possible(
    agent: LinearAgent, obs: list[float], radius: float, rule: Elimination = "bounds", bound: str = "ibp"
) -> set[int]:
    order, yes = threat_model(as_agent(agent), radius, math.inf, bound, rule).options(torch.tensor([obs]))
    return set(order[yes].tolist())


def test_the_set_of_the_paper_by_hand() -> None:
    assert possible_actions(ends([0.0, 0.6, -1.0], [0.5, 1.0, 0.7])).tolist() == [[False, True, True]]
    assert possible_actions(ends([0.0, 0.5], [0.5, 1.0])).tolist() == [[True, True]]  # U_0 = L_1 is possible
    assert possible_actions(ends([1.0, 1.0], [1.0, 1.0])).tolist() == [[True, True]]


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_bounds_that_prove_nothing_rule_out_nothing(wrong: float) -> None:
    for bounds in (ends([wrong, 5.0, 0.0], [1.0, 6.0, 0.1]), ends([0.0, 5.0, 0.0], [wrong, 6.0, 0.1])):
        assert possible_actions(bounds).all()
    assert possible_actions(ends([2.0, 5.0], [1.0, 6.0])).all()  # crossed


def test_a_row_is_judged_on_its_own() -> None:
    bounds = Bounds(torch.tensor([[0.0, 5.0], [math.nan, 5.0]]), torch.tensor([[1.0, 6.0], [1.0, 6.0]]))
    assert possible_actions(bounds).tolist() == [[False, True], [True, True]]


def test_scores_are_expected() -> None:
    with pytest.raises(BadInput, match=r"bounds must be of scores \(B, A\), got shape \(3,\)"):
        possible_actions(Bounds(torch.zeros(3), torch.ones(3)))


@pytest.mark.parametrize("rule", ["bounds", "margins"])
@pytest.mark.parametrize("bound", ["ibp", "crown-ibp", "crown", "best"])
def test_two_opposed_actions(rule: Elimination, bound: str) -> None:
    """Scores x and −x: action 1 is possible from x = 0.5 just if the ball reaches 0."""
    assert possible(opposed(), [0.5], 0.4, rule, bound) == {0}
    assert possible(opposed(), [0.5], 0.6, rule, bound) == {0, 1}
    assert possible(opposed(), [-0.5], 0.4, rule, bound) == {1}
    assert possible(opposed(), [0.5], 0.0, rule, bound) == {0}


def test_margins_see_what_two_scores_share() -> None:
    """Scores x₁ + x₂ and x₁ at (0, 0.3), ε = 0.2: the intervals overlap, and yet their difference x₂ ≥ 0.1."""
    agent = LinearAgent([[1.0, 1.0], [1.0, 0.0]])
    assert possible(agent, [0.0, 0.3], 0.2, "bounds") == {0, 1}
    assert possible(agent, [0.0, 0.3], 0.2, "margins") == {0}
    assert possible(agent, [0.0, 0.3], 0.4, "margins") == {0, 1}


def test_the_worst_liked_comes_first() -> None:
    agent = LinearAgent([[1.0], [3.0], [2.0]])
    order, yes = threat_model(as_agent(agent), 10.0, math.inf, "ibp", "bounds").options(torch.ones(1, 1))
    assert order.tolist() == [[0, 2, 1]]
    assert yes.all()


def test_the_ball_is_cut_to_what_can_be_seen_at_all() -> None:
    """At x = 0.02 a ball of 0.1 goes below zero, and one that is cut to [0.02, 1] does not."""
    weight = [[1.0], [-1.0]]
    assert possible(LinearAgent(weight), [0.02], 0.1) == {0, 1}
    cut = LinearAgent(weight, valid_range=(0.02, 1.0))
    assert possible(cut, [0.02], 0.1) == {0}
    ball = as_agent(cut).ball(torch.tensor([[0.02]]), 0.1)
    assert ball.box().lower.item() == pytest.approx(0.02)


def test_nan_weights_leave_everything_possible() -> None:
    assert possible(LinearAgent([[1.0], [math.nan]]), [9.0], 0.01) == {0, 1}


@pytest.mark.parametrize("rule", ["bounds", "margins"])
def test_whatever_is_found_inside_was_possible(rule: Elimination) -> None:
    rng = torch.Generator().manual_seed(0)
    for kind in (QAgent, CategoricalAgent, ActorCritic):
        agent = kind((3,), 5, (16,))
        agent.initialize(rng)
        obs = torch.randn(40, 3, generator=rng)
        threat = threat_model(as_agent(agent), 0.3, math.inf, "crown-ibp", rule)
        order, yes = threat.options(obs)
        allowed = torch.zeros(40, 5, dtype=torch.bool).scatter(1, order, yes)
        assert int((~allowed).sum()) > 0
        ball = Ball(agent.prepare(obs), 0.3)
        for kind in ("uniform", "corner", "sparse") * 20:
            done = agent.act(ball.sample(rng, kind))
            assert allowed.gather(1, done.view(-1, 1)).all()


def test_a_bound_that_rules_out_what_happens_is_found_out() -> None:
    def upside_down(network: nn.Module, ball: Ball, rows: Tensor | None = None) -> Bounds:
        found = exact_linear(network, ball, rows)
        return Bounds(-found.upper, -found.lower)

    with pytest.raises(SoundnessError, match="upside_down ruled out the very action the agent takes"):
        threat_model(as_agent(opposed()), 0.1, math.inf, upside_down, "bounds").options(torch.ones(1, 1))


def test_provers_have_names() -> None:
    import radial as rr

    assert (Prover.of("best").name, Prover.of("best").arithmetic) == ("best", "outward-rounded")
    assert Prover.of(rr.sound(rr.crown_ibp)).name == Prover.of(rr.crown_ibp).name == "crown-ibp"
    assert (Prover.of(exact_linear).name, Prover.of(exact_linear).arithmetic) == ("exact_linear", "as given")
    with pytest.raises(
        BadInput, match=r"bound must be one of ibp, crown-ibp, crown, best, got 'crwn'; did you mean 'cro"
    ):
        Prover.of("crwn")


@pytest.mark.parametrize("kind", [QAgent, ActorCritic])
def test_best_is_within_all_of_them(kind: type[QAgent | ActorCritic]) -> None:
    agent = kind((3,), 4, (8,))
    agent.initialize(torch.Generator().manual_seed(0))
    ball = Ball(torch.rand(5, 3), 0.2)
    best = Prover.of("best").method(agent.choice, ball)
    for name in ("ibp", "crown-ibp", "crown"):
        one = Prover.of(name).method(agent.choice, ball)
        assert (best.lower >= one.lower).all()
        assert (best.upper <= one.upper).all()


def test_what_decides() -> None:
    q, categorical, joint = QAgent((3,), 4), CategoricalAgent((3,), 4), ActorCritic((3,), 4)
    assert len(q.choice) == 2  # features, then the advantages alone
    assert categorical.choice is categorical.network
    assert joint.choice(torch.zeros(1, 3)).shape == (1, 4)  # the logits, without the value
    with pytest.raises(BadInput, match=r"certificates of actions need an agent with discrete actions, got Continuous"):
        check_discrete(GaussianAgent((3,), 1))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((-1.0, math.inf, "ibp", "bounds"), "radius must be"), ((0.1, 3.0, "ibp", "bounds"), "p must be 1, 2 or inf"),
     ((0.1, 2.0, "ibp", "luck"), "rule must be bounds or margins, got 'luck'")],
)  # fmt: skip
def test_bad_input(arguments: tuple, message: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(BadInput, match=message):
        threat_model(as_agent(opposed()), *arguments)
