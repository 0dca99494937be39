"""Which agent a fine-tuning hands back: judged on scripted episodes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from radial.agents.convert import AnyAgent
from radial.agents.policies import CategoricalAgent
from radial.attacks.gradient import NoAttack
from radial.core.data import EnvSpec
from radial.evaluation.statistics import Averaged
from radial.workflows.keeper import Keeper

CARTPOLE = EnvSpec("classic", "CartPole-v1")


@dataclass(frozen=True)
class Scripted(Averaged):
    """Returns of an evaluation that was not played."""

    returns: tuple[float, ...]


def marked(number: float) -> CategoricalAgent:
    """An agent that can be told by its first bias."""
    agent = CategoricalAgent((4,), 2, (4,))
    agent.initialize(torch.Generator().manual_seed(0))
    with torch.no_grad():
        agent.network[0].bias[0] = number
    agent.normalizer.freeze()
    return agent


def keeper(monkeypatch: pytest.MonkeyPatch, returns: dict[float, tuple[float, float]], folder: Path | None) -> Keeper:
    """Judges agents by their number: (clean, adversarial) mean returns."""

    def evaluate(agent: Any, env: EnvSpec, attack: Any, *_: Any) -> Scripted:
        clean, adversarial = returns[round(float(agent.network[0].bias[0].detach()), 3)]
        return Scripted((clean if attack is None else adversarial,) * 2)

    monkeypatch.setattr("radial.workflows.keeper.evaluate", evaluate)
    return Keeper(
        marked(0.0), CARTPOLE, NoAttack(), 0.1, tolerance=0.1, every=100, seed=0, episodes=2,
        certify=lambda agent, x: {}, folder=folder,
    )  # fmt: skip


GAME = {0.0: (100.0, 20.0), 1.0: (95.0, 50.0), 2.0: (50.0, 90.0), 3.0: (98.0, 60.0), 4.0: (99.0, 30.0)}


def test_the_most_robust_within_the_tolerance_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """2 is more robust but lost half; 3 lost 2 of 100 and gained 40; 4 came later and gained 10."""
    kept = keeper(monkeypatch, GAME, tmp_path)
    for step, number in ((100, 1.0), (200, 2.0), (300, 3.0), (400, 4.0)):
        assert kept(step, marked(number)) == (GAME[number][0],) * 2
        assert kept(step + 50, marked(number)) is None  # between two judgements
    final: AnyAgent = marked(4.0)
    assert kept.restore(final)
    assert float(final.network[0].bias[0].detach()) == 3.0
    assert kept.best is not None
    assert kept.best.step == 300


def test_what_is_lost_is_worth_four_times_what_is_gained(monkeypatch: pytest.MonkeyPatch) -> None:
    """1 lost 5 of 100 and gained 30: 30 − 4·5 = 10, so 5, which lost nothing and gained 11, is better."""
    kept = keeper(monkeypatch, GAME | {5.0: (100.0, 31.0)}, None)
    kept(100, marked(1.0))
    kept(200, marked(5.0))
    assert kept.best is not None
    assert kept.best.step == 200


def test_only_what_can_become_the_best_is_attacked(monkeypatch: pytest.MonkeyPatch) -> None:
    """2 lost half of its clean return, so nobody needs to attack it; 6 gained 70 − 4·9 = 34, 3 only 40 − 4·2 = 32."""
    kept = keeper(monkeypatch, GAME | {6.0: (91.0, 90.0)}, None)
    for step, number in ((100, 3.0), (200, 2.0), (300, 6.0)):
        kept(step, marked(number))
    assert [one.adversarial for one in kept.judged] == [60.0, None, 90.0]
    assert kept.best is not None
    assert kept.best.step == 300


def test_none_within_the_tolerance(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = keeper(monkeypatch, GAME, None)
    kept(100, marked(2.0))
    assert not kept.restore(marked(2.0))


def test_a_resumed_keeper_knows_what_it_had_judged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first = keeper(monkeypatch, GAME, tmp_path)
    for step, number in ((100, 1.0), (200, 3.0)):
        first(step, marked(number))
    again = keeper(monkeypatch, GAME, tmp_path)
    again.resume(250)
    assert again.judged == first.judged
    agent = marked(4.0)
    assert again.restore(agent)
    assert float(agent.network[0].bias[0].detach()) == 3.0
