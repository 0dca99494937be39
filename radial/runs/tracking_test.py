"""Metrics for a service: named as CleanRL names them, resumed by id, and never the end of a training."""

import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from radial.core.data import BadInput
from radial.runs.run import Run
from radial.runs.tracking import Tracking, run_name


class FakeRun:
    id = "abc123"

    def __init__(self, fails: bool) -> None:
        self.fails, self.lines, self.finished = fails, list[dict[str, float]](), False

    def define_metric(self, name: str, step_metric: str) -> None:
        assert (name, step_metric) == ("*", "global_step")

    def log(self, line: dict[str, float]) -> None:
        if self.fails:
            raise ConnectionError("no\nnetwork")
        self.lines.append(line)

    def finish(self) -> None:
        self.finished = True


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module in the place of wandb, which keeps what it is given."""
    fake: Any = types.ModuleType("wandb")
    fake.runs, fake.given, fake.fails = [], [], False
    fake.Settings = dict

    def init(**given: Any) -> FakeRun:
        fake.given.append(given)
        fake.runs.append(FakeRun(fake.fails))
        return fake.runs[-1]

    fake.init = init
    monkeypatch.setitem(sys.modules, "wandb", fake)
    return fake


def log_some(folder: Path, track: Tracking, resume: bool = False, steps: range = range(1, 3)) -> None:
    with Run.open(folder, {"rate": 0.1}, resume=resume, total_steps=9, quiet=True, track=track) as run:
        for step in steps:
            run.log(step, {"charts/return": 10.0 * step})


def test_wandb_gets_config_name_and_metrics(tmp_path: Path, wandb: Any) -> None:
    log_some(tmp_path / "run", Tracking("wandb", "mine", "Hopper-v4__hopper-ppo__0__1"))
    assert wandb.runs[0].lines == [{"global_step": step, "charts/return": 10.0 * step} for step in (1, 2)]
    assert wandb.runs[0].finished
    given = wandb.given[0]
    assert (given["project"], given["name"], given["config"]) == ("mine", "Hopper-v4__hopper-ppo__0__1", {"rate": 0.1})
    assert given["id"] is None
    assert list((tmp_path / "run" / "tb").iterdir())  # TensorBoard beside it
    log_some(tmp_path / "run", Tracking("wandb", "mine"), resume=True)
    assert (wandb.given[1]["id"], wandb.given[1]["resume"]) == ("abc123", "allow")


def test_a_service_that_fails_is_left(tmp_path: Path, wandb: Any, capsys: pytest.CaptureFixture[str]) -> None:
    wandb.fails = True
    log_some(tmp_path / "run", Tracking("wandb"))
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 2
    said = capsys.readouterr().err
    assert said.count("Weights & Biases failed") == 1
    assert "no network" in said


def test_none_writes_metrics_alone(tmp_path: Path) -> None:
    log_some(tmp_path / "run", Tracking("none"))
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"config.json", "metrics.jsonl", "lock"}
    assert json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[0])["charts/return"] == 10.0


def test_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput, match="did you mean 'wandb'"):
        Tracking("wandbb")
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(BadInput, match="pip install"):
        Tracking("wandb").check()


def test_the_name_of_a_run() -> None:
    assert run_name("Hopper-v4", "hopper-ppo", 3).startswith("Hopper-v4__hopper-ppo__3__")
