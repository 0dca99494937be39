"""A training of several processes from outside: Ctrl-C saves and stops it, it goes on, and it leaves nobody behind."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from radial.core.data import EnvSpec
from radial.runs.config import encode
from radial.training.a3c import A3CConfig
from radial.training.a3c_workers_test import memory

CONFIG = A3CConfig(
    EnvSpec("classic", "CartPole-v1"), total_steps=10_000_000, workers=2, num_envs=2, rollout=5, hidden=(8,),
    compile=False, log_every=100, checkpoint_every=1_000,
)  # fmt: skip
MAIN = """
import json, sys
from pathlib import Path
from radial.training.a3c import A3CConfig, train_a3c as train
from radial.runs.config import decode
from radial.runs.run import Stopped

if __name__ == "__main__":
    try:
        train(decode(A3CConfig, json.loads(sys.argv[2])), 0, out=Path(sys.argv[1]), resume=True, quiet=True)
    except Stopped as stopped:
        sys.exit(stopped.code)
"""


@contextmanager
def training(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A training in a session of its own, as a terminal's foreground group is; ended with all of it if a test fails."""
    script = folder / "main.py"
    script.write_text(MAIN)
    command = [sys.executable, str(script), str(folder / "run"), json.dumps(encode(CONFIG))]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_for(what: Callable[[], bool], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.01)


def size(folder: Path) -> int:
    metrics = folder / "run" / "metrics.jsonl"
    return metrics.stat().st_size if metrics.exists() else 0


def group(session: int) -> set[int]:
    """The living processes of a session."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.add(int(path.parent.name))
    return found


def steps(folder: Path) -> list[int]:
    return [json.loads(line)["step"] for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]


def test_ctrl_c_saves_and_stops_and_a_resumed_run_that_is_killed_leaves_nobody_behind(tmp_path: Path) -> None:
    shared = memory()
    with training(tmp_path) as process:
        wait_for(lambda: size(tmp_path) > 0)
        os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to the whole group, workers included
        _, said = process.communicate(timeout=120)
        assert process.returncode == 130, said.decode()
        assert b"Traceback" not in said, said.decode()
        wait_for(lambda: not group(process.pid))
    newest = max((tmp_path / "run" / "checkpoints").glob("step_*"))
    manifest = json.loads((newest / "manifest.json").read_text())
    assert manifest["step"] == steps(tmp_path)[-1] == manifest["state"]["step"]
    assert (manifest["exact"], manifest["state"]["resume"]) == (False, "statistical")

    before = size(tmp_path)
    with training(tmp_path) as process:
        wait_for(lambda: size(tmp_path) > before)
        assert len(group(process.pid)) >= 3
        process.kill()
        process.wait()
        wait_for(lambda: not group(process.pid), seconds=30)
    assert steps(tmp_path)[-1] > manifest["step"]  # it went on from there
    assert steps(tmp_path) == sorted(steps(tmp_path))
    assert memory() <= shared


def test_one_that_is_stopped_before_its_first_update_stops_at_once(tmp_path: Path) -> None:
    with training(tmp_path) as process:
        wait_for(lambda: len(group(process.pid)) >= 3)  # workers begin to import
        os.killpg(process.pid, signal.SIGTERM)
        _, said = process.communicate(timeout=120)
        assert process.returncode == 143, said.decode()
        assert b"Traceback" not in said, said.decode()
        wait_for(lambda: not group(process.pid))
