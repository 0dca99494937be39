"""A reproduced table as a page and as a figure, from made-up scores."""

import sys
from pathlib import Path
from typing import Any

import pytest

from radial.core.data import BadInput
from radial.recipes.recipe import Cell
from radial.recipes.tables import TABLES, Column, Table, table
from radial.reports.figures import REDUCED, STYLES, style_of, table_figure
from radial.reports.markdown import grid, markdown
from radial.workflows.protocol import CellResult
from radial.workflows.reproduce import Entry, Line, Result, Trained

ENGINE = {"backend": "gymnasium", "version": "1.2.3", "simulator": "mujoco 3.3.7"}


def score(mean: float, sem: float) -> CellResult:
    spread = sem * 50**0.5
    return CellResult.of({"key": {"mean": mean}, "returns": [mean - spread, mean + spread] * 25})


def ours(column: Column, cell: Cell, at: int, shift: float) -> CellResult:
    """A share, or a little less than the paper has."""
    return score(0.75, 0.01) if column.share else score((cell.mean or 500.0) + shift * at, 40.0 + at)


def result(whole: Table, missing: tuple[str, ...] = (), shift: float = -150.0) -> dict[str, Any]:
    """Every agent a little worse than the paper's; some missing. Plain data, as reports read it."""
    lines = []
    for row in whole.rows:
        there = row.recipe not in missing
        pairs = list(zip(whole.columns, row.paper, strict=True))
        seeds = {"0": {"nominal": {"mean": 3500.4, "sem": 1.0}, "MAD 0.075": {"mean": 3000.0, "sem": 2.0}}}
        agent = Trained(f"zoo/{row.recipe}", 4_096_000, 0, seeds, "c0ffee" * 6, "ab" * 32, ENGINE, ())
        entries = tuple(
            Entry(column, cell, ours(column, cell, i, shift) if there else None)
            for i, (column, cell) in enumerate(pairs)
        )
        note = None if there else f"no agent zoo/{row.recipe}"
        lines.append(Line(row, agent if there else None, entries, note))
    return Result(whole, 50, tuple(lines)).report()


GOLDEN = """\
| task        | agent                   |       | clean           | MAD 0.075       | compounding 0.075 | match    |
| ----------- | ----------------------- | ----- | --------------- | --------------- | ----------------- | -------- |
| Walker2d    | RADIAL-PPO (likelihood) | paper | 5251.6 ± 10.4   | 4474.7 ± 140.6  | 4349.9 ± 127.0    |          |
|             |                         | ours  | 5251.6 ± 40.0 ≈ | 4324.7 ± 41.0 ≈ | 4049.9 ± 42.0 ▼   | 2 ≈, 1 ▼ |
| Hopper      | RADIAL-PPO (likelihood) | paper | 3737.5 ± 4.5    | 3252.1 ± 101.9  | 3439.1 ± 70.3     |          |
|             |                         | ours  | –               | –               | –                 | –        |
| HalfCheetah | RADIAL-PPO (likelihood) | paper | 4724.3 ± 10.6   | 4480.0 ± 66.9   | 4382.5 ± 142.8    |          |
|             |                         | ours  | 4724.3 ± 40.0 ≈ | 4330.0 ± 41.0 ≈ | 4082.5 ± 42.0 ▼   | 2 ≈, 1 ▼ |
"""


def test_the_page_says_what_was_run_what_came_out_and_what_differs() -> None:
    page = markdown(result(table("mujoco-compounding"), missing=("hopper-radial-ppo",)))
    found = "\n".join(line for line in page.splitlines() if line.startswith("|")).split("\n| agent ")[0]
    assert found == GOLDEN.rstrip("\n")
    for needed in (
        "50 episodes, evaluation seed 1234",
        "gymnasium 1.2.3, mujoco 3.3.7",
        "± is the standard error over the episodes of one agent",
        "lower median",
        "| zoo/walker2d-radial-ppo ",
        "4,096,000",
        "0: 3500 / 3000",
        "c0ffeec0ff",
        "- Hopper RADIAL-PPO (likelihood): no agent zoo/hopper-radial-ppo.",
        "- The tasks are Gymnasium's -v4",
    ):
        assert needed in page
    assert "The ramp is smoothed" not in page  # a deviation of an agent that is not there


def test_a_sentence_that_holds_for_some_names_them() -> None:
    page = markdown(result(table("mujoco")))
    line = next(line for line in page.splitlines() if "minimum of six terms" in line)
    assert line.endswith("(walker2d-radial-ppo-released, hopper-radial-ppo-released, halfcheetah-radial-ppo-released)")
    assert sum("16 envs × 128 steps" in line for line in page.splitlines()) == 1


def test_above_within_below() -> None:
    _, rows = grid(result(table("mujoco"), shift=+500.0))
    assert rows[1][-1] == "1 ≈, 3 ▲"
    assert rows[1][4].endswith("▲")
    assert [row[:3] for row in rows[6:9]] == [
        ["Walker2d", "SA-PPO (SGLD)", "ours"], ["Walker2d", "RADIAL-PPO (paper's equation)", "ours"],
        ["Walker2d", "RADIAL-PPO (as released)", "ours"],
    ]  # fmt: skip


def test_what_the_paper_does_not_say_is_missing_and_not_judged() -> None:
    headings, rows = grid(result(table("atari"), missing=("pong-radial-dqn",)))
    assert headings[3:] == ["clean", "PGD 1/255", "PGD 3/255", "PGD 5/255", "GWC 1/255", "ACR 1/255", "match"]
    at = next(at for at, row in enumerate(rows) if row[:2] == ["Pong", "RS-DQN"])
    assert rows[at][2:] == ["paper", "19.7", "18.1", "–", "–", "–", "–", ""]
    assert rows[at + 1][3:] == [
        "19.7 ± 40.0", "-131.9 ± 41.0", "200.0 ± 42.0", "50.0 ± 43.0", "-100.0 ± 44.0", "0.750 ± 0.010", "–",
    ]  # fmt: skip
    assert rows[at + 4][-2] == "0.950"  # ACR, approach 1
    assert ["Pong", "DQN, small, 4,096,000 steps", "ours"] in [row[:3] for row in rows]
    page = markdown(result(table("atari")))
    for needed in ("20 episodes", "not reported", "pixels in [0, 1]", "under PGD at", "clean / PGD at the training"):
        assert needed in page.replace("50 episodes", "20 episodes")


def test_a_table_of_our_own_has_no_paper() -> None:
    page = markdown(result(table("cartpole-dqn"), missing=("cartpole-rs-dqn",)))
    assert "paper" not in page.split("## Our agents")[0].replace("PGD is the paper's", "")
    assert "| task     | agent                   |      | clean" in page
    assert "## Every seed" in page
    assert "| CartPole | RS-DQN                  | ours | –" in page


@pytest.mark.parametrize("name", ["mujoco", "mujoco-compounding", "atari", "atari-margin", "cartpole-dqn", "procgen"])
def test_the_figure_is_drawn(name: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    table_figure(result(table(name), missing=("hopper-radial-ppo", "hopper-ppo")), tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]


def test_the_figure_of_the_training_levels_has_a_panel_for_each_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    drawn = []
    monkeypatch.setattr("radial.reports.figures.write", lambda drawing, path: drawn.append(drawing))
    table_figure(result(table("procgen-levels"), missing=("fruitbot-50-levels-ppo",)), tmp_path / "a.png")
    panels = drawn[0].axes
    assert [panel.get_title() for panel in panels] == ["clean", "PGD 1/255", "PGD 3/255", "PGD 5/255"]
    ours = panels[0].containers[1][0]  # of "PPO (train)", after the paper's one point
    assert list(ours.get_xdata()) == [10, 100, 200]


def test_without_matplotlib_the_pip_line_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(BadInput, match=r"pip install 'radial-rl\[report\]'"):
        table_figure(result(table("mujoco")), tmp_path / "a.png")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", TABLES())
def test_every_agent_of_a_table_looks_different(name: str) -> None:
    agents = {row.agent for row in table(name).rows}
    assert {agent.removesuffix(REDUCED) for agent in agents} <= {name.removesuffix(REDUCED) for name in STYLES}
    assert len({style_of(agent) for agent in agents}) == len(agents)
