import pytest

import radial as rr
from radial.attacks.learned.adversaries import LinearDirector
from radial.core.data import BadInput, EnvSpec
from radial.workflows.audit.budget import Clock, OutOfTime
from radial.workflows.audit.learning import fit_in_time
from radial.workflows.audit.suite import applicable, masking
from radial.workflows.ensemble import strongest, worst_of

CARTPOLE = EnvSpec("classic", "CartPole-v1")


def test_the_lowest_mean_is_the_strongest() -> None:
    assert strongest({"none": (10.0, 10.0), "pgd": (9.0, 1.0), "mad": (4.0, 6.0)}) == "pgd"


def test_it_is_at_least_as_strong_as_each_member_where_it_was_chosen() -> None:
    agent = rr.load("cartpole-dqn")
    found = worst_of(agent, "CartPole-v1", 0.3, 4, seed=3, attacks=["random", "pgd"])
    means = {member.attack: member.mean for member in found.members}
    assert set(means) == {"none", "random", "pgd"}
    assert found.attack == min(means, key=lambda name: means[name])
    assert found.evaluation.seed == 3
    assert found.selection_seed != 3  # chosen on other episodes than those reported
    facts = found.to_json()
    assert facts["attack"] == "worst"
    assert facts["ensemble"]["chosen"] == found.attack


def test_a_budget_too_small_for_one_attack_is_one_line() -> None:
    with pytest.raises(BadInput, match="budget"):
        worst_of(rr.load("cartpole-dqn"), "CartPole-v1", 0.1, 4, attacks=["pgd"], budget=1e-6)


def test_a_linear_director_is_one_of_all_attacks_on_vectors() -> None:
    agent = rr.load("cartpole-dqn")
    names, _ = applicable(agent, (4,))
    assert "linear" in names
    assert names.index("linear") < names.index("paad")  # it is the cheaper one
    names, left_out = applicable(agent, (4, 84, 84))
    assert "linear" not in names
    assert "vectors" in left_out["linear"]


def test_episodes_that_do_not_end_within_its_steps_are_a_cut_and_no_error() -> None:
    few = LinearDirector(radius=0.0, steps=2_048)
    with pytest.raises(OutOfTime):
        fit_in_time(few, rr.load("cartpole-dqn"), CARTPOLE, 0, Clock(None))


def test_within_a_budget_it_learns_with_the_steps_that_fit() -> None:
    agent, spec = rr.load("cartpole-dqn"), CARTPOLE
    found = fit_in_time(LinearDirector(radius=0.3, steps=40_000), agent, spec, 0, Clock(600.0))
    assert 0 < found.steps <= 40_000


@pytest.mark.parametrize(
    ("attack", "says"), [("sarl", "mask its gradients"), ("linear", "no further than one step"), ("mad", None)]
)
def test_a_stronger_attack_than_plain_pgd_is_a_warning_that_says_why(attack: str, says: str | None) -> None:
    returns = {"pgd": {0: 400.0, 1: 410.0}, attack: {0: 100.0, 1: 110.0}}
    found = masking(returns, 0.1, 500.0)
    assert (found is None) if says is None else (found is not None and says in found)
