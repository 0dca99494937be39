from typing import Any

import pytest

import radial as rr
from radial.attacks import ATTACKS
from radial.attacks.learned.adversaries import LearnedAttack, LinearDirector
from radial.attacks.learned.strong import StrongestPGD, StrongPGD
from radial.attacks.transfer import Transfer
from radial.core.data import BadInput, EnvSpec
from radial.evaluation.statistics import lowest
from radial.workflows.audit.budget import Clock, OutOfTime, Until
from radial.workflows.audit.learning import fit_in_time
from radial.workflows.audit.suite import applicable, masking
from radial.workflows.ensemble import Member, worst_of

CARTPOLE = EnvSpec("classic", "CartPole-v1")


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
    assert isinstance(found, LearnedAttack)
    assert 0 < found.steps <= 40_000


@pytest.mark.parametrize(
    ("attack", "says"),
    [
        ("sarl", "mask its gradients"),
        ("corners", "mask its gradients"),
        ("linear", "no further than one step"),
        ("mad", None),
    ],
)
def test_a_stronger_attack_than_all_gradient_ones_is_a_warning_that_says_why(attack: str, says: str | None) -> None:
    returns = {"pgd": {0: 400.0, 1: 410.0}, attack: {0: 100.0, 1: 110.0}}
    found = masking(returns, 0.1, 500.0)
    assert (found is None) if says is None else (found is not None and says in found)


def test_every_attack_that_applies_takes_part() -> None:
    agent = rr.load("cartpole-dqn")
    names, left_out = applicable(agent, (4,))
    assert {*names, *left_out} == set(ATTACKS) - {"none", "pgd-procgen", "learned"}  # these are forms of others
    assert "corners" in names
    names, left_out = applicable(agent, (4, 84, 84))
    assert names[-1] == "sarl"
    assert "512 numbers" in left_out["corners"]


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Time is a second for each step of an env whose time is limited."""
    now, step = [0.0], Until.step

    def slow(self: Until, action: Any) -> Any:
        now[0] += 1.0
        return step(self, action)

    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    monkeypatch.setattr(Until, "step", slow)
    return now


SHORT = EnvSpec("classic", "CartPole-v1", {"max_episode_steps": 50})


def test_an_attack_that_is_cut_off_counts_with_the_episodes_it_finished(hurried: list[float]) -> None:
    """20 episodes, two at a time: 500 steps for each attack and the clean ones, and a budget for fewer."""
    found = worst_of(
        rr.load("cartpole-dqn"), SHORT, 0.0, 20, seed=3, attacks=["random", "fgsm"], budget=18.0, num_envs=2
    )
    finished = {member.attack: member.numbers for member in found.members}
    assert all(0 < len(numbers) < 20 for numbers in finished.values())
    assert finished["fgsm"] == tuple(range(len(finished["fgsm"])))
    assert any(cut.startswith("selection episodes of fgsm: ") for cut in found.cuts)
    assert any(cut.startswith("reported episodes: ") for cut in found.cuts)
    assert max(map(len, finished.values())) - min(map(len, finished.values())) <= 6  # fair shares
    assert hurried[0] <= 18 * 60


def test_a_cut_attack_does_not_win_by_its_short_episodes() -> None:
    clean = {0: 500.0, 1: 500.0, 2: 500.0}
    cut = Member("pgd-strong", "", (12.0,), 1.0, (0,), {1: 40.0, 2: 35.0})
    assert cut.compared(clean) == {0: 12.0, 1: 500.0, 2: 500.0}
    assert cut.to_json()["cut_off"] == [1, 2]
    whole = Member("mad", "", (100.0, 120.0, 110.0), 1.0, (0, 1, 2))
    assert lowest({member.attack: member.compared(clean) for member in (cut, whole)}) == "mad"


def test_the_first_episodes_may_take_more_than_an_equal_part(hurried: list[float]) -> None:
    """50 steps an episode and ten attacks: a tenth of a budget of 300 steps is no episode, half of it is."""
    names = ["pgd", "mad", "fgsm", "random", "corners", "transfer", "rs", "compounding", "sarl", "paad"]
    found = worst_of(rr.load("cartpole-dqn"), SHORT, 0.0, 2, seed=3, attacks=names, budget=5.0, num_envs=1)
    assert len(found.members) > 1
    assert hurried[0] <= 300


def test_if_every_attack_is_cut_it_says_that_nothing_was_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> Any:
        raise OutOfTime

    monkeypatch.setattr("radial.workflows.ensemble.fit_in_time", never)
    found = worst_of(rr.load("cartpole-dqn"), SHORT, 0.1, 2, attacks=["sarl"], budget=5.0)
    assert (found.attack, found.cuts) == ("none", ("sarl",))
    assert "nothing was tried" in str(found.warning)


def test_losses_share_the_time_and_count_with_what_they_finished(hurried: list[float]) -> None:
    strong = StrongPGD(radius=0.1, episodes=2)
    found = fit_in_time(strong, rr.load("cartpole-dqn"), SHORT, 0, Clock(1_000.0))
    assert isinstance(found, StrongestPGD)
    assert {"cross-entropy, one run", "divergence", "margin"} <= set(found.returns)
    with pytest.raises(OutOfTime):
        fit_in_time(strong, rr.load("cartpole-dqn"), SHORT, 0, Clock(30.0))


def test_learning_after_the_last_step_is_stopped_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    batches, late = [0], Clock(1_000.0)

    def expire() -> None:
        batches[0] += 1
        if batches[0] == 5:
            raise OutOfTime

    monkeypatch.setattr(late, "tick", expire)
    with pytest.raises(OutOfTime):
        fit_in_time(Transfer(), rr.load("cartpole-dqn"), SHORT, 0, late)
    assert batches[0] == 5


def test_it_can_be_limited_to_critical_moments() -> None:
    found = worst_of(rr.load("cartpole-dqn"), SHORT, 0.3, 2, attacks=["pgd"], timing=0.25)
    assert found.members[1].settings.startswith("TimedAttack")
