"""Every example runs, at a small scale."""

import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(name: str, *arguments: str) -> object:
    return runpy.run_path(str(EXAMPLES / name))["main"](list(arguments))


def test_the_radial_term_in_a_ppo_loop_of_ones_own() -> None:
    found: Any = run("own_loop.py", "--steps", "1024", "--episodes", "1")
    assert set(found) == {"PPO", "PPO + RADIAL term"}
    for row in found.values():
        assert row["clean"] >= 1
        assert row["pgd"] >= 1
        assert 0 <= row["certified"] <= 1


@pytest.mark.nightly
def test_the_notebook_is_valid_and_its_cells_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = json.loads((EXAMPLES / "quickstart.ipynb").read_text())
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)  # nothing stale
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"QUICK": True}
    for cell in code:
        exec(compile("".join(cell["source"]), "quickstart.ipynb", "exec"), namespace)
    assert (tmp_path / "out" / "notebook" / "audit.html").is_file()
    assert namespace["result"].verdict


def test_a_custom_environment() -> None:
    result = run("custom_env.py", "--steps", "2048")
    assert result.episodes == 5  # type: ignore[attr-defined]


def test_an_audit_of_a_stable_baselines3_agent(tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3", reason="trains an agent with Stable-Baselines3")
    small = ["--steps", "256", "--episodes", "1", "--budget", "0.3", "--radius", "0.1", "--out", str(tmp_path)]
    result = run("audit_sb3.py", *small)
    assert result.verdict.startswith("Clean return")  # type: ignore[attr-defined]
    assert (tmp_path / "audit.html").is_file()


def test_a_stable_baselines3_agent_made_robust(tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3", reason="trains an agent with Stable-Baselines3")
    small = ["--train-steps", "600", "--steps", "16000", "--episodes", "1", "--budget", "0.3", "--attacks", "random"]
    audits: Any = run("robustify_sb3.py", *small, "--out", str(tmp_path))
    assert [audit.facts["agent"] for audit in audits] == ["before", "after"]
    assert "<h1>Audit of before, after</h1>" in (tmp_path / "audit.html").read_text()
    assert (tmp_path / "run" / "comparison.json").is_file()


def test_the_demo_ends_on_a_page_with_both_agents(tmp_path: Path) -> None:
    small = ["--steps", "4096", "--robust-steps", "20480", "--episodes", "1", "--budget", "0.1", "--out", str(tmp_path)]
    command = [sys.executable, str(EXAMPLES / "cartpole.py"), *small]  # its processes must find it again
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600).stdout
    assert (tmp_path / "audit.html").as_uri() in said
    assert "Clean, PPO returns" in said
    for stage in ("PPO: 1 of 3", "RADIAL-PPO: 2 of 3", "RADIAL-PPO: fine-tuning for ε = 0.05", "attacking and"):
        assert stage in said
    text = (tmp_path / "audit.html").read_text()
    assert "<h1>Audit of PPO, RADIAL-PPO</h1>" in text
    assert "<h2>PPO</h2>" in text
    assert "<h2>RADIAL-PPO</h2>" in text
    assert '<section class="inspector"' in text  # of both, where there is time
    assert len(text) < 5_000_000
