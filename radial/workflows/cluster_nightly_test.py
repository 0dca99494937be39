"""A real Ray cluster of two nodes on this machine: nodes and drivers die, storage disappears, and nothing is lost."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import radial as rr
from radial import cluster
from radial.core.data import EnvSpec
from radial.runs.storage import SharedStorage
from radial.training import runners

pytestmark = pytest.mark.nightly
CONFIG = rr.PPOConfig(
    EnvSpec("classic", "CartPole-v1"), total_steps=4_096, num_envs=2, rollout=64, minibatch=16, epochs=1, hidden=(8,),
    compile=False, checkpoint_every=2,
)  # fmt: skip


@pytest.fixture
def nodes() -> Iterator[Any]:
    """A head without CPUs, so that jobs run on the two nodes, which take one each."""
    os.environ.setdefault(cluster.MODE, "token")
    os.environ.setdefault(cluster.TOKEN, "0" * 64)
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    made.add_node(num_cpus=1)
    made.add_node(num_cpus=1)
    made.wait_for_nodes()
    yield made
    made.shutdown()


def weights(folder: Path) -> bytes:
    return (folder / "agent" / "weights.safetensors").read_bytes()


def begun(shared: Path) -> bool:
    """Whether a run has a checkpoint in storage, and is not finished."""
    return bool(list(shared.glob("*/checkpoints/step_*/manifest.json"))) and not list(shared.glob("*/agent/card.json"))


def wait_for(shared: Path) -> None:
    limit = time.monotonic() + 240
    while not begun(shared):
        assert time.monotonic() < limit, "no checkpoint in time"
        time.sleep(0.05)


DRIVER = """
import sys
from pathlib import Path
import radial as rr
from radial.workflows.cluster_nightly_test import CONFIG
from radial.workflows.many import train_many
out, shared, address = sys.argv[1:]
found = train_many({"a": CONFIG}, [3], out=out, on="ray", address=address, storage=shared)
sys.exit(any(one.error for one in found))
"""


def driver(*given: object) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", DRIVER, *map(str, given)])


def test_a_node_is_killed_in_the_middle_of_a_training(nodes: Any, tmp_path: Path) -> None:
    rr.train(CONFIG, 3, out=tmp_path / "alone", quiet=True, recipe="a")
    started = driver(tmp_path / "here", tmp_path / "shared", nodes.address)
    wait_for(tmp_path / "shared")
    busy = next(node for node in nodes.worker_nodes if workers(node))
    working = workers(busy)
    for worker in working:
        os.kill(worker, signal.SIGSTOP)  # it must not notice that its disk is gone, too
    shutil.rmtree(tmp_path / "here")
    nodes.remove_node(busy, allow_graceful=False)
    for worker in working:
        with suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)
    assert started.wait(300) == 0
    assert weights(tmp_path / "here" / "a-seed3") == weights(tmp_path / "alone")


def workers(node: Any) -> list[int]:
    """The processes below this raylet that are at a job of ours."""
    raylet = next(info.process.pid for kind, infos in node.all_processes.items() if kind == "raylet" for info in infos)
    children = Path(f"/proc/{raylet}/task/{raylet}/children").read_text().split()
    return [int(child) for child in children if b"ray::timed" in Path(f"/proc/{child}/cmdline").read_bytes()]


def test_a_driver_is_killed_and_started_again(nodes: Any, tmp_path: Path) -> None:
    rr.train(CONFIG, 3, out=tmp_path / "alone", quiet=True, recipe="a")
    first = driver(tmp_path / "here", tmp_path / "shared", nodes.address)
    wait_for(tmp_path / "shared")
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert driver(tmp_path / "here", tmp_path / "shared", nodes.address).wait(300) == 0
    assert weights(tmp_path / "here" / "a-seed3") == weights(tmp_path / "alone")


def halve(number: int) -> int:
    if number == 7:
        raise ValueError("seven")
    return number // 2


def test_many_jobs_of_which_one_raises(nodes: Any) -> None:
    found = cluster.map(halve, range(200), on="ray", address=nodes.address)
    assert [one.value for one in found] == [None if n == 7 else n // 2 for n in range(200)]
    assert found[7].error == "ValueError: seven"


def test_storage_disappears(nodes: Any, tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    job = Taking(tmp_path)
    found = cluster.map(job, [0], on="ray", address=nodes.address)
    assert found[0].failed
    assert "storage" in str(found[0].error)
    assert "\n" not in str(found[0].error)
    assert list((tmp_path / "here" / "a").glob("checkpoints/step_*"))  # the run itself is intact


class Taking:
    """A training whose storage becomes a file after its first checkpoint."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, seed: int) -> None:
        push = SharedStorage.push

        def once(storage: SharedStorage, name: str, folder: Path) -> None:
            push(storage, name, folder)
            shutil.rmtree(self.folder / "shared")
            (self.folder / "shared").write_text("a file where a folder was")

        SharedStorage.push = once  # type: ignore[method-assign]
        try:
            rr.train(CONFIG, seed, out=self.folder / "here" / "a", storage=str(self.folder / "shared"), quiet=True)
        finally:
            SharedStorage.push = push  # type: ignore[method-assign]


def test_runners_on_the_cluster_and_one_that_dies(nodes: Any, tmp_path: Path) -> None:
    config = replace(CONFIG, num_runners=2, total_steps=1_024)
    rr.train(config, 0, out=tmp_path / "a", quiet=True, address=nodes.address)
    act, calls = runners.Runners.act, []

    def killing(self: Any, *given: Any) -> Any:
        calls.append(0)
        if len(calls) == 4:
            self.group._ray.kill(self.group._members[1])
        return act(self, *given)

    runners.Runners.act = killing  # type: ignore[method-assign]
    try:
        rr.train(config, 0, out=tmp_path / "b", quiet=True, address=nodes.address)
    finally:
        runners.Runners.act = act  # type: ignore[method-assign]
    assert weights(tmp_path / "a") == weights(tmp_path / "b")
    last = json.loads((tmp_path / "b" / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["charts/runner_deaths"] == 1
