"""Linear adversaries: one generation by hand, the search against an agent for CartPole, and the policy it becomes."""

import json
import math
from pathlib import Path

import pytest
import torch

from radial.attacks.fitting_test import LinearWorld, random_agent
from radial.attacks.learned.adversaries import PAAD, Learned, LinearDirector
from radial.attacks.learned.forms import Steer
from radial.attacks.learned.halving_test import CARTPOLE, TINY, balancing
from radial.attacks.learned.linear import FINALISTS, MOST, CrossEntropy, enough_for, linear_policy, searched
from radial.attacks.learned.screening import TooLong
from radial.attacks.learned.stored import load_attack, save_attack
from radial.attacks.learned.world import Threat
from radial.core.data import BadInput, Continuous, Discrete, EnvSpec
from radial.evaluation.play import evaluate


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_one_generation_by_hand() -> None:
    """Two of twelve are the elite; 0.7 of their moments and 0.3 of those before make the next distribution."""
    search = CrossEntropy(torch.zeros(1, 1), torch.ones(1, 1), seeded(0))
    drawn = torch.arange(12.0).view(12, 1, 1)
    returns = torch.full((12,), 9.0)
    returns[4], returns[6] = 1.0, 2.0
    search.learn(drawn, returns)
    assert search.mean.item() == pytest.approx(0.7 * 5)
    assert search.deviation.item() == pytest.approx(0.3 + 0.7 * math.sqrt(2))  # the elite is 4 and 6
    assert [(score, weights.item()) for score, weights in search.best] == [(1.0, 4.0), (2.0, 6.0)]
    again = search.draw(5)
    assert again[0].item() == search.mean.item()
    assert again[1].item() == 4.0


def test_it_starts_around_nothing_and_remembers_the_best() -> None:
    search = CrossEntropy.start(2, 4, seeded(0))
    assert search.mean.tolist() == [[0.0] * 5] * 2
    assert search.deviation.tolist() == [[0.5] * 4 + [1.0]] * 2
    for generation in range(3):
        drawn = search.draw(60)
        search.learn(drawn, torch.arange(60.0) - generation)
    assert len(search.best) == FINALISTS - 1
    scores = [score for score, _ in search.best]
    assert scores == sorted(scores)
    assert scores[0] == -2.0


def test_it_brings_the_agent_down_within_its_budget() -> None:
    agent, threat = balancing(), Threat(0.5, math.inf)
    weights, steps = searched(agent, Steer(), threat, CARTPOLE, 8_000, 0)
    assert weights.shape == (2, 5)
    assert 0 < steps <= 8_000
    again, _ = searched(agent, Steer(), threat, CARTPOLE, 8_000, 0)
    assert torch.equal(weights, again)
    with pytest.raises(TooLong) as cut:
        searched(agent, Steer(), Threat(0.0, math.inf), CARTPOLE, 1_000, 0)
    assert 984 < cut.value.steps <= 1_000  # sixteen envs side by side, the second generation never ends


@pytest.mark.parametrize("discrete", [False, True])
def test_it_becomes_a_policy_that_does_just_that(discrete: bool) -> None:
    weights = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.5], [0.0, 0.0, -1.0]])
    policy = linear_policy(random_agent(discrete), (2,), Discrete(3) if discrete else Continuous(3), weights)
    x = torch.tensor([[2.0, 3.0], [5.0, -1.0]])
    with torch.no_grad():
        acted = policy.act(policy.prepare(x)).tolist()
    assert acted == ([1, 0] if discrete else [[2.0, 3.5, -1.0], [5.0, -0.5, -1.0]])


def test_a_fit_is_saved_resumed_and_harms(tmp_path: Path) -> None:
    agent, settings = balancing(), LinearDirector(radius=0.5, steps=8_000, episodes=4)
    attack = settings.fit(agent, CARTPOLE, 0, out=tmp_path / "fit")
    (trial,) = attack.record["trials"]
    assert trial["linear"] is True
    assert trial["learning_rate"] == 0.0
    assert attack.steps == trial["steps"] <= 8_000
    assert json.loads((tmp_path / "fit" / "search.json").read_text())["trials"][0]["candidate"]["linear"] is True
    again = settings.fit(agent, CARTPOLE, 0, out=tmp_path / "fit", resume=True)
    assert again.record["validation"] == attack.record["validation"]
    clean = evaluate(agent, CARTPOLE, None, 0.0, 10, 3).mean
    assert evaluate(agent, CARTPOLE, attack, 0.5, 10, 3).mean < 0.7 * clean


def test_it_takes_part_where_all_kinds_compete_within_the_budget(tmp_path: Path) -> None:
    settings = Learned(**TINY, steps=16_384, rates=(1e-3,))
    attack = settings.fit(balancing(), CARTPOLE, 0, out=tmp_path / "fit")
    (linear,) = [trial for trial in attack.record["trials"] if trial["linear"]]
    assert 0 < linear["steps"] <= 16_384 / 6
    assert attack.steps <= 16_384
    assert attack.chosen["validation"] <= linear["validation"]
    again = settings.fit(balancing(), CARTPOLE, 0, out=tmp_path / "fit", resume=True)
    assert again.record == attack.record


def test_a_budget_for_the_trainings_alone_has_no_linear_one() -> None:
    settings = Learned(**TINY, steps=2 * 256, rates=(1e-3,))
    attack = settings.fit(balancing(), CARTPOLE, 0)
    assert not any(trial["linear"] for trial in attack.record["trials"])
    assert attack.steps <= 2 * 256


def test_what_was_cut_is_on_record_with_the_steps_it_took(tmp_path: Path) -> None:
    """Constants and linear adversaries whose episodes are too long leave steps, no result and no point of the curve."""
    world = EnvSpec("classic", "CartPole-v1")
    settings = Learned(**{**TINY, "radius": 0.0}, steps=13_000, rates=(1e-3,))  # harmless: no episode ends early
    attack = settings.fit(balancing(), world, 0, out=tmp_path / "fit")
    trials = attack.record["trials"]
    cut = [trial for trial in trials if trial["validation"] is None]
    assert [trial["name"] for trial in cut] == ["paad, constants", "sarl, constants", "paad, linear"]
    assert all(trial["steps"] > 0 for trial in cut)
    assert sum(trial["steps"] for trial in trials) == attack.steps <= 13_000
    assert attack.record["curve"][0][0] == sum(trial["steps"] for trial in cut) + trials[3]["steps"]
    assert attack.chosen["validation"] == attack.record["validation"]["deterministic"]
    assert settings.fit(balancing(), world, 0, out=tmp_path / "fit", resume=True).record == attack.record
    save_attack(attack, tmp_path / "fit" / "agent")
    assert load_attack(tmp_path / "fit").record["trials"] == trials


def test_a_budget_that_is_refused_leaves_nothing_behind(tmp_path: Path) -> None:
    agent, world = balancing(), EnvSpec("classic", "CartPole-v1")
    with pytest.raises(BadInput, match=r"steps must be ≥ .*, enough for 32 episodes"):
        LinearDirector(radius=0.0, steps=2_048).fit(agent, world, 0, out=tmp_path / "fit")
    assert not (tmp_path / "fit").exists()
    LinearDirector(radius=0.5, steps=8_000, episodes=4).fit(agent, CARTPOLE, 0, out=tmp_path / "fit")


def test_bad_input_is_named() -> None:
    with pytest.raises(BadInput, match="steps"):
        LinearDirector(steps=0)


@pytest.mark.parametrize("steps", [10, 100, 1_000])
def test_steps_that_are_too_few_are_told_how_many_are_not(steps: int) -> None:
    with pytest.raises(BadInput, match="steps must be ≥ 1,280 or so, enough for 32 episodes of 40 steps"):
        LinearDirector(radius=0.0, steps=steps).fit(balancing(), CARTPOLE, 0)
    assert enough_for(40) == 1_280
    assert LinearDirector(radius=0.0, steps=1_280, episodes=1).fit(balancing(), CARTPOLE, 0).steps <= 1_280


def test_long_episodes_need_more_candidates() -> None:
    assert enough_for(2_500) == 80_000
    assert enough_for(2_501) == 2 * MOST * 2_501  # with 32 · 2,501 steps there would be 17 candidates


def test_a_world_that_can_be_played_only_once_is_refused() -> None:
    with pytest.raises(BadInput, match="env be an EnvSpec"):
        LinearDirector(radius=0.1).fit(random_agent(True), LinearWorld(4, discrete=True), 0)


def test_its_speed_is_measured_by_a_training_that_need_not_end_an_episode() -> None:
    brief = LinearDirector(radius=0.1).briefly(4)
    assert brief == PAAD(radius=0.1, steps=4 * 2_048, restarts=1, episodes=1)
