import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from radial.cli import main
from radial.cluster import Place
from radial.core.data import BadInput
from radial.jobs_test import through_pickle
from radial.reports import standings
from radial.workflows import board
from radial.workflows.challenges import CHALLENGES, Challenge, protocol
from radial.workflows.entrants import entrants
from radial.workflows.leaderboard import leaderboard, over_seeds
from radial.workflows.protocol import CellResult, hashed
from radial.workflows.standing import Known, standing_of

TINY = {"cartpole": Challenge("CartPole", "CartPole-v1", (0.4,), ("random", "pgd"), "acr", "ibp", {}, 2, 2)}


@pytest.fixture
def small_zoo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A zoo of two agents, and short certificates."""
    from radial.agents.zoo import zoo_folder

    whole = zoo_folder()
    for name in ("cartpole-dqn", "cartpole-radial-dqn"):
        (tmp_path / "zoo" / name).mkdir(parents=True)
        for file in (whole / name).iterdir():
            (tmp_path / "zoo" / name / file.name).write_bytes(file.read_bytes())
    monkeypatch.setenv("RADIAL_ZOO", str(tmp_path / "zoo"))
    monkeypatch.setattr(board, "CERTIFIED", 1)
    return tmp_path


def test_a_table_is_ranked_saved_and_not_played_twice(small_zoo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = leaderboard(small_zoo, challenges=TINY)
    rows = found["tasks"]["cartpole"]["rows"]
    assert {row["agent"] for row in rows} == {"zoo/cartpole-dqn", "zoo/cartpole-radial-dqn"}
    worst = [row["radii"][0]["worst"]["mean"] for row in rows]
    assert worst == sorted(worst, reverse=True)
    for row in rows:
        level = row["radii"][0]
        means = [level["attacks"][one["attack"]]["mean"] for one in level["worst"]["attacks"]]
        assert len(means) == 2 or level["worst"]["mean"] == means[0]
    monkeypatch.setattr(board, "evaluate", None)  # nothing is played again
    again = leaderboard(small_zoo, challenges=TINY)
    assert again["tasks"] == found["tasks"]
    text = standings.standings_markdown(found)
    assert found["hash"] in text
    assert "worst of all" in text
    assert "<script" not in standings.standings_page(found)
    standings.standings_figure(found, small_zoo / "x.png")
    assert json.loads((small_zoo / "leaderboard.json").read_text())["hash"] == found["hash"]


@pytest.mark.parametrize(("clean", "shown"), [(19.65, "19.6 ± 0.1"), (-15.85, "-15.8 ± 0.1"), (3757.4, "3757 ± 0")])
def test_returns_of_a_few_points_have_a_decimal(clean: float, shown: str) -> None:
    cell = {"mean": clean, "sem": 0.11}
    level = {"radius": 0.1, "attacks": {}, "worst": {"attacks": [{"attack": "mad", "radius": 0.1}], **cell}}
    level |= {"certificate": None, "lowest": {"attack": "random", "radius": 0.05, "mean": clean - 1.04, "sem": 0.0}}
    row = {"agent": "one", "steps": None, "clean": cell, "radii": [level]}
    _, rows = standings.grid({"attacks": [], "certificate": "acr", "rows": [row]})
    assert rows[0][3:5] == [shown, f"{shown} (MAD)"]
    assert rows[0][5].endswith(" (random of 0.05)")
    level["lowest"] = {"attack": "mad", "radius": 0.1, **cell}
    assert standings.grid({"attacks": [], "certificate": "acr", "rows": [row]})[1][0][5] == ""


def fixed(returns: dict[tuple[str, float], float | None]) -> Known:
    """Cells whose returns a test gives, by attack and radius; None: not known."""

    def known(key: Mapping[str, Any]) -> CellResult | None:
        value = returns.get((key["attack"], key["radius"]), 500.0)
        facts = {"key": dict(key), "mean": value, "returns": [value] * key["episodes"]}
        return None if value is None else CellResult.of(facts)

    return known


def test_what_a_smaller_ball_allows_a_larger_one_does_too(small_zoo: Path) -> None:
    two = replace(TINY["cartpole"], radii=(0.2, 0.4))
    (first, *_), _ = entrants([], {"cartpole": "CartPole-v1"})
    standing = standing_of(first, two, fixed({("pgd", 0.2): 50.0, ("pgd", 0.4): 80.0, ("random", 0.4): 300.0}))
    assert standing is not None
    for radius in two.radii:
        level = standing.levels[radius]
        assert level.worst is not None
        assert level.worst.attacks == (("pgd", 0.2), ("pgd", 0.2))
        assert level.lowest is not None
        assert level.lowest[0] == ("pgd", 0.2)
        assert standing.worst_return(radius) == level.lowest[1].mean == 50.0


def test_the_lowest_column_is_at_most_the_worst_of_all(small_zoo: Path) -> None:
    """Which attack is strongest on the other episodes need not be strongest on these."""
    (first, *_), _ = entrants([], {"cartpole": "CartPole-v1"})

    def known(key: Mapping[str, Any]) -> CellResult:
        returns = {"random": [10.0, 0.0], "pgd": [0.0, 8.0]}.get(key["attack"], [9.0, 9.0])
        returns = [5.0, 5.0] if key["seed"] == board.SELECTION_SEED else returns
        return CellResult.of({"key": dict(key), "mean": 0.0, "returns": returns})

    standing = standing_of(first, TINY["cartpole"], known)
    assert standing is not None
    (level,) = standing.to_json()["radii"]
    assert level["worst"]["mean"] == 9.0
    assert (level["lowest"]["mean"], level["lowest"]["attack"]) == (4.0, "pgd")


def test_a_half_known_row_is_shown_below_the_ranked_ones(small_zoo: Path) -> None:
    found, _ = entrants([], {"cartpole": "CartPole-v1"})
    known = standing_of(found[0], TINY["cartpole"], fixed({("pgd", 0.4): None}))
    assert known is not None
    assert known.worst_return(0.4) is None
    _, ((*_, pgd, worst, lowest, _),) = standings.grid({
        "attacks": ["random", "pgd"], "certificate": "acr", "rows": [known.to_json()],
    })  # fmt: skip
    assert (pgd, worst, lowest) == ("–", "–", "–")
    assert standing_of(found[0], TINY["cartpole"], lambda key: None) is None


def test_what_is_known_is_shown_without_the_files_but_for_the_zoos(
    small_zoo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of third-party files stay; a zoo agent that is not in the zoo any more has none."""
    zoo, more = small_zoo / "zoo", small_zoo / "more"
    more.mkdir()
    (zoo / "cartpole-dqn").rename(more / "mine")
    shutil.rmtree(zoo / "cartpole-radial-dqn")
    (more / "broken.zip").write_text("no archive")
    played = leaderboard(small_zoo, challenges=TINY, agents=[more])
    monkeypatch.setattr(board, "evaluate", None)
    shown = leaderboard(small_zoo, challenges=TINY, budget=0)
    assert {**shown, "refused": set(shown["refused"])} == {**played, "refused": {"more/broken.zip"}}
    (more / "mine").rename(zoo / "known-by-another-name")
    again = leaderboard(small_zoo, challenges=TINY, budget=0)
    assert [row["agent"] for row in again["tasks"]["cartpole"]["rows"]] == ["zoo/known-by-another-name"]
    (zoo / "known-by-another-name").rename(more / "mine")
    file = small_zoo / "leaderboard.json"
    file.write_text(file.read_text().replace('"agent": "more/mine"', '"agent": "zoo/replaced"'))
    assert leaderboard(small_zoo, challenges=TINY, budget=0)["tasks"] == {}


def test_equal_weights_are_one_seed_of_a_recipe() -> None:
    """The zoo's agent and the run it was taken from count once; other weights with the same seed leave no row."""

    def standing(weights: str, seed: int, mean: float) -> Any:
        entrant = SimpleNamespace(sha256=weights, facts={"recipe": "ppo", "seed": seed})
        return SimpleNamespace(entrant=entrant, clean=SimpleNamespace(mean=mean), worst_return=lambda _: mean / 2)

    zoo, run, other, again = (
        standing(*each) for each in (("a", 0, 10.0), ("a", 0, 10.0), ("b", 1, 14.0), ("c", 1, 2.0))
    )
    (row,) = over_seeds([zoo, run, other], [0.1])
    assert row["seeds"] == [0, 1]
    assert row["clean"] == {"mean": 12.0, "sem": pytest.approx(2.0)}  # s = √8, n = 2
    assert row["worst"]["0.1"]["mean"] == 6.0
    assert over_seeds([zoo, run], [0.1]) == []
    assert over_seeds([zoo, other, again], [0.1]) == []


def test_another_protocol_is_another_hash() -> None:
    assert hashed(protocol(TINY)) != hashed(protocol())
    assert set(protocol()["challenges"]) == set(CHALLENGES)


def test_agents_in_folders_are_found_by_card_or_suffix(small_zoo: Path) -> None:
    (small_zoo / "more" / "deep").mkdir(parents=True)
    (small_zoo / "zoo" / "cartpole-dqn").rename(small_zoo / "more" / "deep" / "mine")
    (small_zoo / "more" / "broken.zip").write_text("no archive")
    found, refused = entrants([small_zoo / "more"], {"cartpole": "CartPole-v1"})
    assert sorted(each.name for each in found) == ["more/deep/mine", "zoo/cartpole-radial-dqn"]
    assert "more/broken.zip" in refused


@pytest.mark.parametrize(
    ("settings", "field"), [({"only": ["hoper"]}, "only"), ({"agents": [Path("not-there")]}, "agents")]
)
def test_bad_input_is_named(settings: dict[str, object], field: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=field):
        leaderboard(tmp_path, **settings)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_nothing_played_within_the_budget_is_not_an_empty_zoo(
    small_zoo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for task, says in (("cartpole", "none was completed within --budget 0"), ("hopper", "the zoo has none")):
        budget = ["--budget", "0"] if task == "cartpole" else []
        with pytest.raises(SystemExit) as end:
            main(["leaderboard", "--only", task, "--out", str(small_zoo), *budget])
        assert end.value.code == 1
        assert says in capsys.readouterr().err


@pytest.mark.nightly
def test_side_by_side_it_is_the_same_and_a_copy_is_in_storage(small_zoo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called = through_pickle(monkeypatch)
    one = leaderboard(small_zoo / "a", challenges=TINY)
    storage, said = str(small_zoo / "shared"), list[str]()
    where = Place(workers=2)
    two = leaderboard(small_zoo / "b", challenges=TINY, place=where, storage=storage, say=said.append)
    assert timeless(one["tasks"]) == timeless(two["tasks"])
    assert len(said) == len(called) == 8  # two agents: clean, certificate, two attacks
    monkeypatch.setattr(board, "evaluate", None)
    third = leaderboard(small_zoo / "c", challenges=TINY, place=where, storage=storage)  # as if on another machine
    assert third["tasks"] == two["tasks"]
    late = leaderboard(small_zoo / "d", challenges=TINY, place=where, budget=0)
    assert late["waiting"] == ["zoo/cartpole-dqn", "zoo/cartpole-radial-dqn"]


def timeless(tasks: object) -> str:
    return json.dumps(tasks, sort_keys=True)
