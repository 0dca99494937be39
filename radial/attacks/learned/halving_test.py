"""The search: its budget, its choice, its folder. Trainings of a few rollouts against an agent for CartPole."""

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import radial as rr
from radial.agents.policies import CategoricalAgent
from radial.agents.q_agent import QAgent
from radial.agents.saved import load_agent, save
from radial.attacks.fitting_test import LinearWorld, random_agent
from radial.attacks.learned import halving
from radial.attacks.learned.adversaries import PAAD, SARL, Adversary, Learned, LearnedAttack
from radial.attacks.learned.rounds import Candidate, fast, rounds, survivors
from radial.attacks.learned.stored import load_attack, save_attack
from radial.core.ball import Ball
from radial.core.data import BadInput, EnvSpec
from radial.evaluation.play import Evaluation, evaluate

CARTPOLE = EnvSpec("classic", "CartPole-v1", {"max_episode_steps": 40})
TINY: dict[str, Any] = {
    "radius": 0.5, "num_envs": 8, "rollout": 256, "minibatch": 64, "epochs": 2, "hidden": (8,), "episodes": 4,
    "compile": False,
}  # fmt: skip


def balancing() -> CategoricalAgent:
    """Pushes where the pole falls: angle plus angular speed decide."""
    agent = CategoricalAgent((4,), 2, hidden=(1,))
    agent.initialize(torch.Generator().manual_seed(0))
    with torch.no_grad():
        agent.network[0].weight.copy_(torch.tensor([[0.0, 0.1, 1.0, 0.5]]))
        agent.network[0].bias.zero_()
        agent.network[2].weight.copy_(torch.tensor([[-1.0], [1.0]]))
        agent.network[2].bias.zero_()
    agent.normalizer.freeze()
    return agent


@pytest.fixture(scope="module")
def fitted() -> LearnedAttack:
    return PAAD(**TINY, steps=4_096, restarts=2).fit(balancing(), CARTPOLE, 0)


# --------------------------------------------------------------------------------------------------------- the budget


def test_the_budget_is_spent_in_whole_rollouts_and_never_exceeded() -> None:
    assert rounds(1_000, 1, 100) == (1_000, 0, 0)
    assert rounds(1_000, 4, 100) == (100, 300, 2)  # 4·100 + 2·300
    assert rounds(400, 4, 100) == (100, 0, 2)
    for steps, candidates in ((2_000, 3), (12_345, 6), (999, 2)):
        first, later, count = rounds(steps, candidates, 100)
        assert first * candidates + later * count <= steps


def test_the_best_go_on_and_both_ways_to_begin_among_them() -> None:
    warm, warmer = (Candidate("paad", 3e-4, number, warm=True) for number in range(2))
    cold, colder = (Candidate("paad", 1e-3, number) for number in range(2))
    assert survivors({warm: 1.0, warmer: 2.0, cold: 3.0, colder: 4.0}, 2) == [warm, cold]
    assert survivors({warm: 3.0, warmer: 2.0, cold: 1.0, colder: 4.0}, 2) == [cold, warmer]
    assert survivors({warm: 1.0, cold: 3.0}, 1) == [warm]
    assert survivors({cold: 2.0, colder: 1.0}, 2) == [colder, cold]


def test_a_budget_too_small_for_one_round_is_refused() -> None:
    with pytest.raises(BadInput, match=r"steps must be ≥ 2,048, enough for one round, got 2,000"):
        PAAD(steps=2_000)
    with pytest.raises(BadInput, match=r"steps must be ≥ 12,288"):
        Learned(steps=2_048)


def test_the_candidates_of_all_kinds() -> None:
    assert PAAD(steps=4_096).candidates() == [Candidate("paad", 3e-4, 0, warm=True), Candidate("paad", 1e-3, 0)]
    assert len(SARL().candidates()) == 4
    assert {(each.kind, each.learning_rate) for each in Learned().candidates()} == {
        (kind, rate) for kind in ("sarl", "paad") for rate in (1e-3, 3e-4, 1e-4)
    }


def test_mujoco_is_trained_in_envpool_whatever_the_evaluation_plays_in() -> None:
    spec = EnvSpec("mujoco", "Hopper-v4", {"backend": "gymnasium", "max_episode_steps": 10})
    assert fast(spec).options.get("backend") in (None, "gymnasium")
    assert fast(CARTPOLE) == CARTPOLE


# --------------------------------------------------------------------------------------------------------- the result


def test_the_result_tells_what_was_tried(fitted: LearnedAttack) -> None:
    constant, *trials = fitted.record["trials"]
    assert (constant["learning_rate"], constant["round"]) == (0.0, 0)
    assert [(each["warm"], each["round"]) for each in trials][:2] == [(True, 0), (False, 0)]
    assert trials[2]["round"] == 1
    assert trials[2]["warm"] == min(trials[:2], key=lambda each: each["validation"])["warm"]
    trials.append(constant)
    assert fitted.steps == sum(each["steps"] for each in trials) <= 4_096
    spent, lowest = zip(*fitted.record["curve"], strict=True)
    assert spent[-1] == fitted.steps
    assert list(lowest) == sorted(lowest, reverse=True)
    decided = fitted.record["validation"]
    assert fitted.validation == min(decided.values())
    assert fitted.chosen["validation"] == decided["deterministic"]
    assert set(decided) == {"deterministic", "sampled", "noise"}
    assert decided[fitted.acts] == min(decided.values())


def test_it_hurts_more_than_noise(fitted: LearnedAttack) -> None:
    def under(attack: Any) -> Evaluation:
        return evaluate(balancing(), CARTPOLE, attack, 0.5, episodes=20, seed=5)

    assert under(fitted).mean < under(rr.RandomNoise()).mean


def test_it_learns_for_the_ball_it_is_asked_for() -> None:
    tiny = {name: value for name, value in TINY.items() if name != "radius"}
    found = evaluate(balancing(), CARTPOLE, SARL(**tiny, steps=256), 0.25, episodes=2, p=2.0)
    assert found.attack.startswith("LearnedAttack(kind='sarl', radius=0.25, p=2.0, steps=256")


def test_a_radius_per_feature_is_taken() -> None:
    settings = PAAD(**{**TINY, "radius": (0.0, 0.0, 0.5, 0.0)}, steps=256)
    attack = settings.fit(balancing(), CARTPOLE, 0)
    ball = Ball(torch.zeros(3, 4), torch.tensor([0.0, 0.0, 0.5, 0.0]))
    moved = attack.perturb(balancing(), ball, torch.Generator()).abs().amax(0)
    assert moved[[0, 1, 3]].tolist() == [0.0, 0.0, 0.0]


# --------------------------------------------------------------------------------------------------------- the folder


def test_it_comes_back_from_its_folder_as_it_was(fitted: LearnedAttack, tmp_path: Path) -> None:
    save_attack(fitted, tmp_path / "attack")
    again = load_attack(tmp_path / "attack")
    assert repr(again) == repr(fitted)
    assert again.record == json.loads(json.dumps(fitted.record))
    ball = Ball(torch.randn(5, 4, generator=torch.Generator().manual_seed(0)), 0.5)
    both = (each.perturb(balancing(), ball, torch.Generator().manual_seed(1)) for each in (fitted, again))
    assert torch.equal(*both)
    assert sorted(path.name for path in (tmp_path / "attack").iterdir()) == ["card.json", "weights.safetensors"]


def test_a_fit_that_was_stopped_ends_like_one_that_was_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = PAAD(**TINY, steps=2_048, restarts=2)
    whole = settings.fit(balancing(), CARTPOLE, 3, out=tmp_path / "whole")
    train, calls = halving.train_ppo, []

    def dies(*args: Any, **more: Any) -> Any:
        calls.append(args)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return train(*args, **more)

    monkeypatch.setattr(halving, "train_ppo", dies)
    with pytest.raises(KeyboardInterrupt):
        settings.fit(balancing(), CARTPOLE, 3, out=tmp_path / "part")
    with pytest.raises(BadInput, match=r"unfinished fit, .*: `radial attack fit … --out .*part --resume` finishes it"):
        load_attack(tmp_path / "part")
    again = settings.fit(balancing(), CARTPOLE, 3, out=tmp_path / "part", resume=True)
    assert len(calls) == 4  # one finished, one killed, two that were left
    assert again.record == whole.record
    assert all(torch.equal(one, other) for one, other in zip(*(
        each.policy.state_dict().values() for each in (whole, again)), strict=True))  # fmt: skip
    with pytest.raises(BadInput, match="already holds a fit; use --resume"):
        settings.fit(balancing(), CARTPOLE, 3, out=tmp_path / "whole")
    with pytest.raises(BadInput, match="these differ: learning_rate"):
        replace(settings, learning_rate=1e-4).fit(balancing(), CARTPOLE, 3, out=tmp_path / "whole", resume=True)


def test_an_agent_is_no_attack_and_an_attack_is_no_agent(fitted: LearnedAttack, tmp_path: Path) -> None:
    save(balancing(), tmp_path / "agent")
    with pytest.raises(BadInput, match="holds an agent, not an attack"):
        load_attack(tmp_path / "agent")
    save_attack(fitted, tmp_path / "attack")
    with pytest.raises(BadInput, match="is an attack, not an agent"):
        rr.load(tmp_path / "attack")
    assert load_agent(tmp_path / "attack").card.recipe["name"] == "attack-paad"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "pgd"}, "kind must be one of sarl, paad"),
        ({"p": 3}, "p must be 1, 2 or inf"),
        ({"radius": [-1.0]}, "radius must be made of"),
        ({"form": {"steps": "__import__"}}, "form is not one of paad"),
        ({"form": {"evil": 1}}, "form is not one of paad"),
        ({"sampled": 1}, "sampled is missing or of the wrong type"),
        ({"acts": "loud"}, "acts must be one of deterministic, sampled, noise"),
        ({"format": 9}, "format must be 1"),
        ({"agent_kind": 7}, "agent_kind is missing or of the wrong type"),
    ],
)
def test_a_folder_that_was_tampered_with_is_refused(
    fitted: LearnedAttack, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    save_attack(fitted, tmp_path)
    card = json.loads((tmp_path / "card.json").read_text())
    card["recipe"]["attack"] |= change
    (tmp_path / "card.json").write_text(json.dumps(card))
    with pytest.raises(BadInput, match=message):
        load_attack(tmp_path)


# ---------------------------------------------------------------------------------------------------------- bad input


def test_what_it_was_not_fitted_for_is_refused_or_said(fitted: LearnedAttack) -> None:
    agent = balancing()
    with pytest.raises(BadInput, match=r"fitted to observations \(4,\), this agent has \(2,\)"):
        fitted.check(random_agent(discrete=True), CARTPOLE, 0.5, float("inf"))
    with pytest.raises(BadInput, match=r"fitted in CartPole-v1, not in Acrobot-v1"):
        fitted.check(agent, EnvSpec("classic", "Acrobot-v1"), 0.5, float("inf"))
    with pytest.raises(BadInput, match=r"fitted to Discrete\(n=2\), not Discrete\(n=3\)"):
        fitted.check(CategoricalAgent((4,), 3), CARTPOLE, 0.5, float("inf"))
    with pytest.raises(BadInput, match=r"fitted to a categorical agent, this one is q"):
        fitted.check(QAgent((4,), 2), CARTPOLE, 0.5, float("inf"))
    before = replace(fitted, record={name: fact for name, fact in fitted.record.items() if name != "agent_kind"})
    with pytest.warns(UserWarning, match="a transfer attack"):  # a fit that does not say what it was fitted to
        before.check(QAgent((4,), 2), CARTPOLE, 0.5, float("inf"))
    other = balancing()
    other.initialize(torch.Generator().manual_seed(9))
    for given, note in (
        ((agent, CARTPOLE, 0.6, float("inf")), "fitted for a radius of 0.5, asked for 0.6"),
        ((agent, CARTPOLE, 0.5, 2.0), "fitted for p = inf"),
        ((other, CARTPOLE, 0.5, float("inf")), "a transfer attack"),
        ((agent, CARTPOLE, 0.5, float("inf"), True), "asked to sample"),
    ):
        with pytest.warns(UserWarning, match=note):
            fitted.check(*given)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted.check(agent, CARTPOLE, 0.5, float("inf"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"radius": -1.0}, "radius must be"), ({"p": 3.0}, "p must be"), ({"restarts": 0}, "restarts must be")],
)
def test_settings_are_checked(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        PAAD(**settings)


def test_an_agent_and_an_env_that_do_not_fit_are_refused() -> None:
    with pytest.raises(BadInput, match="agent must fit the env"):
        PAAD(**TINY, steps=256).fit(random_agent(discrete=True), CARTPOLE, 0)
    with pytest.raises(BadInput, match="radius must be set"):
        PAAD(steps=2_048).fit(balancing(), CARTPOLE, 0)


def test_an_env_of_the_caller_is_played_through_once_and_left_open() -> None:
    world = LinearWorld(4, discrete=True)
    attack = SARL(**TINY, steps=512).fit(random_agent(discrete=True), world, 0)
    assert not world.closed
    assert attack.record["trials"] == []
    assert attack.acts == "deterministic"


def test_it_may_act_as_noise() -> None:
    """The same numbers as `RandomNoise`."""
    harmless = SARL(**TINY, steps=256).fit(balancing(), CARTPOLE, 0)
    noisy, ball = replace(harmless, acts="noise"), balancing().ball(torch.zeros(5, 4), 0.5)
    both = (noisy, rr.RandomNoise())
    shown, noise = (each.perturb(balancing(), ball, torch.Generator().manual_seed(3)) for each in both)
    assert torch.equal(shown, noise)
    assert not noisy.draws_nothing(balancing())


def test_a_search_that_found_less_than_noise_hands_back_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = {"deterministic": 500.0, "sampled": 490.0, "noise": 480.0}
    monkeypatch.setattr(halving.Trainings, "_validate", lambda self, kind, policy, acts="deterministic": scores[acts])
    attack = SARL(**TINY, steps=256).fit(balancing(), CARTPOLE, 0)
    assert attack.acts == "noise"
    assert attack.validation == 480.0


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["hopper-ppo", "cartpole-dqn", "halfcheetah-sa-ppo-convex"])
@pytest.mark.parametrize("kind", [SARL, PAAD])
def test_with_200_000_steps_it_is_never_weaker_than_noise(kind: type[Adversary], name: str) -> None:
    agent = rr.load(name)
    radius = 0.1 if name.startswith("cartpole") else 0.075
    assert agent.card.env is not None
    attack = kind(radius=radius, steps=200_000, restarts=1).fit(agent, agent.card.env, 0)
    noise, learned = (evaluate(agent, agent.card.env, each, radius, 20, 7).mean for each in (rr.RandomNoise(), attack))
    assert learned <= noise


class Pictures(LinearWorld):
    """The linear world seen as dim frames: every pixel has the size of its first number."""

    observation_shape = (1, 84, 84)

    def _frames(self, state: torch.Tensor) -> torch.Tensor:
        grey = (state[:, :1].abs() * 50).clamp(max=255).to(torch.uint8)
        return grey[:, :, None, None].expand(-1, 1, 84, 84)

    def reset(self) -> torch.Tensor:
        return self._frames(super().reset())

    def step(self, action: torch.Tensor) -> Any:
        step = super().step(action)
        return replace(step, obs=self._frames(step.obs))


@pytest.mark.parametrize("kind", [SARL, PAAD])
def test_frames_are_attacked_as_well(kind: type[Adversary]) -> None:
    agent = QAgent((1, 84, 84), 3, (4, 8, 8, 32))
    agent.initialize(torch.Generator().manual_seed(0))
    tiny = {**TINY, "rollout": 16, "minibatch": 8, "epochs": 1, "radius": 0.1}
    attack = kind(**tiny, steps=16).fit(agent, Pictures(4, discrete=True), 0)
    ball = agent.ball(torch.rand(3, 1, 84, 84, generator=torch.Generator().manual_seed(1)), 0.1)
    shown = attack.perturb(agent, ball, torch.Generator())
    assert ball.contains(shown).all()
    assert shown.min() >= 0
    assert shown.max() <= 1
    assert not torch.equal(shown, ball.center)


# ------------------------------------------------------------------------------------------------ a radius per feature


@pytest.mark.parametrize("given", [[0.1, 0, 0.1, 0], torch.tensor([0.1, 0.0, 0.1, 0.0])])
def test_a_radius_per_feature_is_taken_in_any_form_and_known_later(given: Any) -> None:
    agent = balancing()
    attack = PAAD(**(TINY | {"radius": given, "episodes": 1}), steps=256).fit(agent, CARTPOLE, 0)
    assert attack.radius == pytest.approx((0.1, 0.0, 0.1, 0.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = evaluate(agent, CARTPOLE, attack, given, 1)
    assert json.loads(json.dumps(found.to_json()))["radius"] == pytest.approx([0.1, 0.0, 0.1, 0.0])
    with pytest.warns(UserWarning, match=r"a smaller radius on some features, \(0.1, 0, 0.1, 0\), asked for 0.1"):
        evaluate(agent, CARTPOLE, attack, 0.1, 1)
    with pytest.raises(BadInput, match=r"one per feature of a vector: observations are \(4,\), got 2 numbers"):
        evaluate(agent, CARTPOLE, attack, (0.1, 0.1), 1)
    with pytest.raises(BadInput, match=r"one per feature of a vector: observations are \(4,\), got 2 numbers"):
        PAAD(radius=(0.1, 0.1)).fit(agent, CARTPOLE, 0)


# -------------------------------------------------------------------------------------------------------- the folder


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    for folder in (tmp_path, tmp_path / "notes.txt", Path("/proc/x/bad")):
        with pytest.raises(BadInput, match="out must be a "):
            PAAD(**TINY, steps=256).fit(balancing(), CARTPOLE, 0, out=folder)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    with pytest.raises(BadInput, match="there is no attack at"):
        load_attack(tmp_path / "none")
