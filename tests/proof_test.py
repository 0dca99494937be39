"""`make proof` in miniature: it counts, resumes where it stopped, and reports what fails."""

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def proof(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent / "benchmarks"))
    return importlib.import_module("proof")


def facts(folder: Path) -> dict[str, dict[str, object]]:
    return json.loads((folder / "proof.json").read_text())["stages"]


def test_two_stages_of_a_trial_are_run_and_continued(proof: ModuleType, tmp_path: Path) -> None:
    asked = ["--only", "attained", "--only", "planted", "--out", str(tmp_path)]
    assert proof.main([*asked, "--share", "0.0001"]) == 0
    first = facts(tmp_path)
    assert {name: stage["done"] for name, stage in first.items()} == {"attained": 2, "planted": 1}
    assert first["attained"]["goal"] == 20_000
    assert proof.main([*asked, "--share", "0.0002"]) == 0
    again = facts(tmp_path)
    assert {name: stage["units"] for name, stage in again.items()} == {"attained": 4, "planted": 1}
    page = (tmp_path / "proof.md").read_text()
    assert "| 4 | 20,000 | 0.020% | 0 |" in page
    assert "not run" in page


def test_what_fails_is_counted_and_named(proof: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def odd(index: int) -> int:
        assert index % 2 == 0, f"unit {index} is odd"
        return 1

    def missing(index: int) -> int:
        raise proof.NotInstalled("no such package")

    monkeypatch.setitem(proof.STAGES, "exact", proof.Stage("odd units", lambda: 4, odd))
    monkeypatch.setitem(proof.STAGES, "auto-lirpa", proof.Stage("nothing", lambda: 4, missing))
    assert proof.main(["--only", "exact", "--only", "auto-lirpa", "--out", str(tmp_path)]) == 1
    found = facts(tmp_path)
    assert (found["exact"]["done"], found["exact"]["violations"]) == (4, 2)
    assert (found["auto-lirpa"]["done"], found["auto-lirpa"]["note"]) == (0, "skipped: no such package")
    page = (tmp_path / "proof.md").read_text()
    assert "unit 3 is odd" in page
    assert "skipped: no such package" in page
    assert proof.main(["--only", "exact", "--out", str(tmp_path)]) == 1  # it stays on record
    monkeypatch.setitem(proof.STAGES, "exact", proof.Stage("mended, but for unit 3", lambda: 4, lambda i: odd(i // 3)))
    assert proof.main(["--only", "exact", "--retry", "--out", str(tmp_path)]) == 1
    found = facts(tmp_path)["exact"]
    assert (found["violations"], found["mended"][0].partition(":")[0]) == (1, "unit 1"), "unit 3 still fails"
    assert "mended" in (tmp_path / "proof.md").read_text()


def test_a_stop_loses_nothing(proof: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(index: int) -> int:
        if index == 2:
            raise KeyboardInterrupt
        return 1

    monkeypatch.setitem(proof.STAGES, "exact", proof.Stage("stops", lambda: 4, stopped))
    assert proof.main(["--only", "exact", "--out", str(tmp_path)]) == 130
    assert facts(tmp_path)["exact"]["units"] == 2


def test_a_list_of_cases_fails_if_one_of_them_does(
    proof: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages = sys.modules["proof_stages"]
    monkeypatch.setattr(stages, "ROOT", tmp_path)
    files = ("some_test.py",)
    (tmp_path / files[0]).write_text("def test_right():\n    pass\n\n\ndef test_wrong():\n    assert False\n")
    assert len(stages.cases(files, "")) == 2
    with pytest.raises(AssertionError, match=r"1 of 2.*test_wrong"):
        stages.listed(files, "", 0)


def test_every_stage_of_the_plan_is_there(proof: ModuleType) -> None:
    needed = {"points", "attained", "pgd", "exact", "auto-lirpa", "planted", "mutations", "degenerate", "nested"}
    needed |= {"gradients", "nan", "configs", "hostile", "damage-files", "damage-imports"}
    assert needed <= set(proof.STAGES)
    assert sum(name.startswith("kills-") for name in proof.STAGES) >= 8


@pytest.mark.parametrize("share", ["0", "2", "nan"])
def test_a_share_that_is_none(proof: ModuleType, tmp_path: Path, share: str) -> None:
    with pytest.raises(SystemExit):
        proof.main(["--share", share, "--out", str(tmp_path)])


@pytest.mark.nightly
def test_a_run_that_ends_otherwise_is_noticed(proof: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three kills, all the same in the end; then one against what another run would have ended with."""
    kills = importlib.import_module("kills")
    assert kills.kill_and_compare("ppo", "gymnasium", seed=0, kills=3) == 3
    expected, duration = kills.whole("ppo", "gymnasium")
    monkeypatch.setattr(kills, "whole", lambda *names: ((expected[0], expected[1] | {"step": 1}), duration))
    with pytest.raises(AssertionError, match="ends otherwise"):
        kills.kill_and_compare("ppo", "gymnasium", seed=1, kills=1)
