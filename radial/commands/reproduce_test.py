"""`radial reproduce` and `radial zoo add` as their users meet them; what is played is a closed form."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from radial import cli
from radial.commands import reproduce as command
from radial.recipes.recipe import recipe
from radial.workflows.reproduce_test import agent_of, played  # noqa: F401


def run(*arguments: str) -> int:
    try:
        cli.main(list(arguments))
    except SystemExit as end:
        return int(end.code or 0)
    return 0


@pytest.fixture
def no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes a while, and has tests of its own."""
    monkeypatch.setattr("radial.reports.figures.table_figure", lambda result, path: path.write_bytes(b"drawn"))


def test_files_markdown_and_json(no_figure: None, capsys: pytest.CaptureFixture[str]) -> None:
    agent_of("hopper-ppo", 1, "zoo/hopper-ppo")
    assert run("reproduce", "mujoco", "--episodes", "2") == 0
    out, err = capsys.readouterr()
    assert out == Path("results/mujoco.md").read_text()
    assert "4100.0 ± 7.1 ▲" in out
    assert "zoo/hopper-ppo, MAD 0.15" in err
    assert {path.name for path in Path("results").iterdir()} == {"mujoco.json", "mujoco.md", "mujoco.png"}

    assert run("reproduce", "mujoco", "--only", "hopper", "--episodes", "2", "--json") == 0
    out, err = capsys.readouterr()
    facts = json.loads(out)
    assert [row["recipe"] for row in facts["rows"]][:3] == ["hopper-ppo", "hopper-sa-ppo-convex", "hopper-radial-ppo"]
    assert len(facts["evaluations"]) == 6
    assert "zoo/hopper-ppo, MAD" not in err  # known


def test_no_matplotlib_no_figure(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert run("reproduce", "mujoco-compounding", "--out", "here") == 1  # the zoo is empty
    said = capsys.readouterr().err
    assert "pip install 'radial-rl[report]'" in said
    assert "nothing to show" in said
    assert {path.name for path in Path("here").iterdir()} == {"mujoco-compounding.json", "mujoco-compounding.md"}


def test_train_skips_what_is_finished_and_resumes_what_is_not(
    no_figure: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: dict[str, Sequence[str]] = {}

    def run_all(commands: dict[str, Sequence[str]], jobs: int) -> None:
        asked.update(commands)
        assert jobs == 2
        for arguments in commands.values():
            agent_of(arguments[1], int(arguments[3]), Path(arguments[5]) / "agent")

    monkeypatch.setattr(command, "run_all", run_all)
    monkeypatch.setattr("radial.workflows.train.check_trainable", lambda *_: None)
    agent_of("hopper-ppo", 0, "runs/hopper-ppo-seed0/agent")
    Path("runs/hopper-ppo-seed1").mkdir()
    Path("runs/hopper-ppo-seed1/config.json").write_text("{}")
    given = ["reproduce", "mujoco", "--only", "hopper-ppo", "--train", "--jobs", "2", "--episodes", "2", "--json"]
    given += ["--seeds", "0-2"]
    assert run(*given) == 0
    assert list(asked) == ["hopper-ppo-seed1", "hopper-ppo-seed2"]
    assert asked["hopper-ppo-seed1"][-1] == "--resume"
    assert "--resume" not in asked["hopper-ppo-seed2"]
    ours = json.loads(capsys.readouterr().out)["rows"][0]["ours"]
    assert (ours["name"], ours["steps"]) == ("runs/hopper-ppo-seed1", recipe("hopper-ppo").config.total_steps)
    assert len(ours["seeds"]) == 3
    asked.clear()
    assert run(*given) == 0
    assert not asked
    assert run(*given[:-2]) == 0
    assert list(asked) == ["hopper-ppo-seed10", "hopper-ppo-seed11", "hopper-ppo-seed12"]  # the table's own


def test_robust_agents_are_trained_from_standard_ones_of_the_same_seed(
    no_figure: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    waves: list[dict[str, Sequence[str]]] = []

    def run_all(commands: dict[str, Sequence[str]], jobs: int) -> None:
        waves.append(dict(commands))
        for arguments in commands.values():
            agent_of(arguments[1], int(arguments[3]), Path(arguments[5]) / "agent")

    monkeypatch.setattr(command, "run_all", run_all)
    monkeypatch.setattr("radial.workflows.train.check_trainable", lambda *_: None)
    given = ["--only", "bankheist-radial-dqn", "--train", "--seeds", "0-1", "--episodes", "2", "--json"]
    assert run("reproduce", "atari-margin", *given) == 0
    assert [list(wave) for wave in waves] == [
        ["bankheist-dqn-seed0", "bankheist-dqn-seed1"], ["bankheist-radial-dqn-seed0", "bankheist-radial-dqn-seed1"],
    ]  # fmt: skip
    assert waves[1]["bankheist-radial-dqn-seed1"][-2:] == ["--init", "runs/bankheist-dqn-seed1"]
    assert "--init" not in waves[0]["bankheist-dqn-seed1"]
    assert json.loads(capsys.readouterr().out)["rows"][0]["ours"]["name"] == "runs/bankheist-radial-dqn-seed0"


def test_a_figure(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from radial.workflows.paper_figures import FIGURES, Drawn

    point = {"radius": 1 / 255, "acr": 0.5, "acr_sem": 0.1, "gwc_share": 1.0, "awc_share": [0.5, 1.0], "awc_unknown": 1}
    told = {"starts": 2, "seed": 1, "horizon": 80, "bound": "ibp", "budget": 5}

    def fake(out: Path, **more: Any) -> Drawn:
        out.mkdir()
        assert more["episodes"] == 2
        return Drawn("gwc-awc-acr", "A title", "a source", (), told, (point,), ())

    monkeypatch.setitem(FIGURES, "gwc-awc-acr", fake)
    monkeypatch.setattr("radial.reports.figures.paper_figure", lambda drawn, path: path.write_bytes(b"drawn"))
    assert run("reproduce", "gwc-awc-acr", "--episodes", "2", "--out", "here") == 0
    assert "0.500 … 1.000" in capsys.readouterr().out
    assert {path.name for path in Path("here").iterdir()} == {"gwc-awc-acr.md", "gwc-awc-acr.png"}
    assert run("reproduce", "gwc-awc-acr", "--episodes", "2", "--out", "there", "--json") == 0
    assert json.loads(capsys.readouterr().out)["points"] == [point]


def test_zoo_add(capsys: pytest.CaptureFixture[str]) -> None:
    for seed in (0, 1, 2):
        agent_of("hopper-ppo", seed, f"run{seed}/agent")
    assert run("zoo", "add", "run0", "run1", "run2", "--episodes", "2") == 0
    assert "1 ←" in capsys.readouterr().out
    assert run("zoo", "add", "run0", "--name", "other", "--episodes", "2", "--json") == 0
    assert json.loads(capsys.readouterr().out)["folder"].endswith("zoo/other")
    assert run("zoo", "list") == 0
    assert "4100.0" in capsys.readouterr().out


BAD: dict[str, tuple[list[str], str]] = {
    "table": (["reproduce", "mujoko"], "did you mean 'mujoco'"),
    "only": (["reproduce", "mujoco", "--only", "ant"], "walker2d"),
    "episodes": (["reproduce", "mujoco", "--episodes", "0"], "episodes must be"),
    "released": (["reproduce", "mujoco", "--released", "file"], "--released takes a folder"),
    "jobs": (["reproduce", "mujoco", "--jobs", "0"], "jobs must be"),
    "seeds alone": (["reproduce", "mujoco", "--seeds", "0-2"], "--seeds needs --train"),
    "seeds": (["reproduce", "mujoco", "--train", "--seeds", "2-0"], "seeds must be"),
    "out": (["reproduce", "mujoco", "--out", "file"], "out must be a folder"),
    "figure": (["reproduce", "gwc-awc-acr"], "radial train freeway-small-radial-dqn"),
    "other figure": (["reproduce", "q-bias"], "no agent zoo/freeway-sa-dqn and zoo/freeway-radial-dqn or"),
    "figure name": (["reproduce", "q-bais"], "did you mean 'q-bias'"),
    "figure trained": (["reproduce", "q-bias", "--train"], "are for tables"),
    "figure episodes": (["reproduce", "q-bias", "--episodes", "0"], "episodes must be"),
    "no run": (["zoo", "add", "nowhere"], "no agent at nowhere"),
    "zoo episodes": (["zoo", "add", "run", "--episodes", "0"], "episodes must be"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_and_writes_nothing(case: str, tmp_path: Path, capsys: Any) -> None:
    Path("file").write_text("")
    before = sorted(tmp_path.rglob("*"))
    arguments, says = BAD[case]
    assert run(*arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert says in err
    assert sorted(tmp_path.rglob("*")) == before
