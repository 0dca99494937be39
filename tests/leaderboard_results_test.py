"""The leaderboard in results/ is the one that the code would show: same protocol, same rows."""

import json
import shutil
from pathlib import Path

import pytest

from radial.cli import main
from radial.workflows.challenges import protocol
from radial.workflows.protocol import hashed

RESULTS = Path(__file__).parent.parent / "results"


def test_the_results_are_of_this_protocol() -> None:
    """Not so: raise VERSION in `challenges`, play what is missing, and commit the results."""
    known = json.loads((RESULTS / "leaderboard.json").read_text(encoding="utf-8"))
    told = protocol()
    assert known["protocol"] == json.loads(json.dumps(told))
    assert known["hash"] == hashed(told)


def test_what_is_known_is_shown_as_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ale_py", reason="shows Pong and Freeway, and ale-py is not installed")
    pytest.importorskip("mujoco", reason="shows MuJoCo's agents, and mujoco is not installed")
    for file in RESULTS.glob("leaderboard.*"):
        shutil.copy(file, tmp_path)
    main(["leaderboard", "--budget", "0", "--out", str(tmp_path)])
    for name in ("leaderboard.md", "leaderboard.html"):
        assert (tmp_path / name).read_text(encoding="utf-8") == (RESULTS / name).read_text(encoding="utf-8")
    assert capsys.readouterr().out == (RESULTS / "leaderboard.md").read_text(encoding="utf-8")
