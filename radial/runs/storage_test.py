from contextlib import suppress
from pathlib import Path

import pytest
import torch

from radial.core.data import BadInput
from radial.runs.checkpoint import checkpoints
from radial.runs.run import Run
from radial.runs.storage import SharedStorage


def one_run(folder: Path, steps: int, resume: bool = False) -> None:
    with Run.open(folder, {"steps": "any"}, resume=resume, total_steps=steps, quiet=True) as run:
        start = 0 if run.restored is None else run.restored[1]["step"]
        for step in range(start + 1, steps + 1):
            run.log(step, {"charts/x": step})
            run.save(step, {"weights": torch.full((3,), float(step))}, {"step": step})


@pytest.mark.parametrize("where", ["folder", "memory://runs"])
def test_a_run_resumes_elsewhere_from_its_last_copy(tmp_path: Path, where: str) -> None:
    storage = SharedStorage(str(tmp_path / "shared") if where == "folder" else f"{where}/{tmp_path.name}")
    with storage.kept("a", tmp_path / "node1" / "a"):
        one_run(tmp_path / "node1" / "a", 3)
    assert storage.has("a")
    assert not storage.has("b")
    other = tmp_path / "node2" / "a"
    with storage.kept("a", other):
        assert [path.name for path in checkpoints(other)] == ["step_000000002", "step_000000003"]
        one_run(other, 5, resume=True)
    lines = (other / "metrics.jsonl").read_text().splitlines()
    assert len(lines) == 5
    third = tmp_path / "node3" / "a"
    assert storage.fetch("a", third)
    assert [path.name for path in checkpoints(third)] == ["step_000000004", "step_000000005"]  # pruned there, too
    assert not storage.fetch("a", third)  # it is here already


def test_copies_are_made_while_it_trains(tmp_path: Path) -> None:
    storage = SharedStorage(str(tmp_path / "shared"))
    with suppress(KeyboardInterrupt), storage.kept("a", tmp_path / "a"):
        one_run(tmp_path / "a", 2)
        raise KeyboardInterrupt  # as if the node died
    assert storage.fetch("a", tmp_path / "b")
    one_run(tmp_path / "b", 4, resume=True)
    assert len((tmp_path / "b" / "metrics.jsonl").read_text().splitlines()) == 4


def test_storage_that_disappears_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "shared").write_text("a file where a folder was")
    storage = SharedStorage(str(tmp_path / "shared"))
    with pytest.raises(OSError, match=r"storage .*shared failed") as caught, storage.kept("a", tmp_path / "a"):
        one_run(tmp_path / "a", 2)
    assert "\n" not in str(caught.value)
    assert checkpoints(tmp_path / "a")  # nothing here is lost


@pytest.mark.parametrize("where", ["", "nonsense://x", "a\0b"])
def test_what_is_no_storage_is_refused(where: str) -> None:
    with pytest.raises(BadInput, match="storage"):
        SharedStorage(where)


@pytest.mark.parametrize("name", ["..", "a/b", "", "a\0"])
def test_names_stay_inside(name: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="named"):
        SharedStorage(str(tmp_path)).has(name)
