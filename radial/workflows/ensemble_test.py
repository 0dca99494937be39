import pytest

import radial as rr
from radial.core.data import BadInput
from radial.workflows.ensemble import strongest, worst_of


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
