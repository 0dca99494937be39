"""The figures' numbers from made-up searches, and what an absent agent or a stopped command means."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from radial.core.data import BadInput, EnvSpec
from radial.envs.make import make_env
from radial.reports.figures import paper_figure
from radial.reports.markdown import figure_page
from radial.workflows import paper_figures as figures
from radial.workflows.paper_figures import FIGURES, RADII, UntilReward, crossing, gwc_awc_acr, q_biases
from radial.workflows.reproduce_test import agent_of, played  # noqa: F401


class Found:
    """A result that knows its JSON."""

    def __init__(self, **facts: Any) -> None:
        self.facts = facts

    def to_json(self) -> dict[str, Any]:
        return self.facts


class World:
    """An env that nobody steps."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def close(self) -> None:
        pass


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """At the smallest ε every crossing is certain; above, starts are refuted, unknown and proven in turn."""
    done: list[float] = []

    def awc(agent: Any, world: World, radius: float, bound: str, episodes: int, seed: int, **more: Any) -> Found:
        assert (bound, episodes, more["horizon"]) == ("ibp", 1, 80)
        assert world.seed == seed
        done.append(radius)
        kind = 2 if radius == RADII[0] else len(done) % 3
        lower, upper, greedy = [(0.0, 0.0, 0.0), (None, 1.0, 1.0), (1.0, 1.0, 1.0)][kind]
        return Found(metric="awc", starts=[{"lower": lower, "upper": upper, "greedy": greedy, "path": []}])

    def acr(agent: Any, world: UntilReward, radius: float, bound: str, episodes: int, seed: int, **more: Any) -> Found:
        return Found(metric="acr", rates=[0.5, 1.0] * (episodes // 2))

    monkeypatch.setattr(figures, "make_cloneable", lambda spec, seed: World(seed))
    monkeypatch.setattr(figures, "make_env", lambda spec, num, seed: make_env(EnvSpec("classic", "CartPole-v1"), 1, 0))
    monkeypatch.setattr(figures, "awc", awc)
    monkeypatch.setattr(figures, "acr", acr)
    return done


def test_three_answers() -> None:
    assert crossing({"lower": 1.0, "upper": 1.0}) == 1
    assert crossing({"lower": 0.0, "upper": 0.0}) == -1
    assert crossing({"lower": None, "upper": 0.0}) == -1  # a path that is not paid is enough
    assert crossing({"lower": 0.0, "upper": 1.0}) == crossing({"lower": None, "upper": 1.0}) == 0


def test_shares_by_hand(searches: list[float], tmp_path: Path) -> None:
    agent_of("freeway-small-radial-dqn", 0, "zoo/freeway-small-radial-dqn")
    drawn = gwc_awc_acr(Path("results"), episodes=6)
    assert [one["name"] for one in drawn.agents] == ["zoo/freeway-small-radial-dqn"]
    assert len(searches) == 6 * len(RADII)
    first, second = drawn.points[:2]
    assert (first["gwc_share"], first["awc_share"], first["acr"]) == (1.0, [1.0, 1.0], 0.75)
    assert sorted(second["awc"]) == [-1, -1, 0, 0, 1, 1]
    assert (second["gwc_share"], second["awc_unknown"]) == (pytest.approx(2 / 3), 2)
    assert second["awc_share"] == pytest.approx([1 / 3, 2 / 3])
    facts = json.loads(Path("results/gwc-awc-acr.json").read_text())
    assert facts == drawn.to_json()
    text = figure_page(drawn.document())
    assert "| 0.1/255  | 0.750 ± 0.102 | 1.000 | 1.000         | 0           |" in text
    assert "0.333 … 0.667" in text
    known = 6 + 4 * (len(RADII) - 1)  # of which two are refuted and two proven, and GWC agrees with all of them
    assert drawn.summary["starts_known"] == known
    assert drawn.summary["gwc_awc_of_starts"] == pytest.approx(1.0)
    assert f"over {known} starts and radii with a known AWC is 1.00" in text
    pytest.importorskip("matplotlib")
    paper_figure(drawn.document(), tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_a_search_is_not_done_twice(searches: list[float]) -> None:
    agent_of("freeway-radial-dqn", 0, "zoo/freeway-radial-dqn")
    gwc_awc_acr(Path("results"), episodes=2)
    searches.clear()
    gwc_awc_acr(Path("results"), episodes=4)
    assert len(searches) == 2 * len(RADII)  # the other two starts
    searches.clear()
    gwc_awc_acr(Path("results"), episodes=2, budget=7)
    assert len(searches) == 2 * len(RADII)  # another budget, another answer
    gwc_awc_acr(Path("results"), episodes=2, fresh=True)
    assert len(searches) == 4 * len(RADII)


def test_an_episode_ends_with_its_first_reward() -> None:
    """CartPole pays at once."""
    env = UntilReward(make_env(EnvSpec("classic", "CartPole-v1"), 2, 0))
    env.reset()
    assert bool(env.step(torch.zeros(2, dtype=torch.int64)).terminated.all())
    assert (env.steps, env.num_envs) == (2, 2)
    env.close()


def test_q_bias_of_both_agents(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def q_bias(agent: Any, env: EnvSpec, episodes: int, seed: int, **more: Any) -> Found:
        error = 0.5 if "radial" in more["name"] else 2.0
        return Found(
            metric="q-bias", agent=more["name"], errors=[error] * episodes, mean=error, sem=0.0,
            returns=[21.0] * episodes, predicted=[1.0 + error, 1.0], realised=[1.0, 1.0 - error],
        )  # fmt: skip

    monkeypatch.setattr(figures, "q_bias", q_bias)
    agent_of("pong-radial-dqn", 0, "zoo/pong-radial-dqn")  # its standard agent is missing
    for seed, name in enumerate(("pong-small-dqn", "pong-small-radial-dqn")):
        agent_of(name, seed, f"zoo/{name}")
    drawn = q_biases(Path("results"), episodes=2)
    assert [point["agent"] for point in drawn.points] == ["zoo/pong-small-dqn", "zoo/pong-small-radial-dqn"]
    assert [found.mean for found in drawn.results] == [2.0, 0.5]
    assert "| zoo/pong-small-dqn        | 2.000 ± 0.000 " in figure_page(drawn.document())
    assert json.loads(Path("results/q-bias.json").read_text())["protocol"]["discount"] == 0.99
    pytest.importorskip("matplotlib")
    paper_figure(drawn.document(), tmp_path / "a.png")


@pytest.mark.parametrize(
    ("name", "says"),
    [("gwc-awc-acr", "radial train freeway-small-radial-dqn"), ("q-bias", "radial train freeway-small-sa-dqn")],
)
def test_without_an_agent_the_training_is_named(name: str, says: str) -> None:
    with pytest.raises(BadInput, match=says) as caught:
        FIGURES[name](Path("results"))
    assert "\n" not in str(caught.value)
    assert not Path("results").exists()
