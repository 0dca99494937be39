import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from radial import cluster
from radial.cluster import Resources
from radial.core.data import BadInput

PLACES = [pytest.param("local"), pytest.param("ray", marks=pytest.mark.nightly)]


def square(number: int) -> int:
    if number == 3:
        raise ValueError("three\nis bad")
    return number * number


def die_once(path: str) -> str:
    """The first call dies without a word, as on a machine that lost its power."""
    if not Path(path).exists():
        Path(path).write_text("was here")
        os._exit(9)
    return Path(path).read_text()


def threads(_: object) -> tuple[int, str]:
    import torch

    return torch.get_num_threads(), os.environ["OMP_NUM_THREADS"]


@pytest.mark.parametrize("on", PLACES)
def test_results_are_in_order_and_one_failure_loses_no_other(on: str) -> None:
    ended = []
    found = cluster.map(square, range(6), on=on, workers=2, progress=lambda number, outcome: ended.append(number))
    assert [outcome.value for outcome in found] == [0, 1, 4, None, 16, 25]
    assert [outcome.failed for outcome in found] == [False, False, False, True, False, False]
    assert found[3].error == "ValueError: three is bad"
    assert sorted(ended) == list(range(6))


@pytest.mark.nightly
@pytest.mark.parametrize("on", PLACES)
def test_a_job_whose_process_dies_is_tried_again(on: str, tmp_path: Path) -> None:
    found = cluster.map(die_once, [str(tmp_path / "a"), str(tmp_path / "b")], on=on, workers=1)
    assert [outcome.value for outcome in found] == ["was here", "was here"]


def always_die(_: int) -> None:
    os._exit(9)


@pytest.mark.nightly
def test_a_job_that_always_dies_fails_alone() -> None:
    found = cluster.map(always_die, [0], retries=1)
    assert found[0].error == "its process died 2 times"


@pytest.mark.nightly
@pytest.mark.parametrize("on", PLACES)
def test_threads_are_those_asked_for(on: str) -> None:
    (found,) = cluster.map(threads, [None], on=on, resources=Resources(cpus=2), workers=1)
    assert found.value == (2, "2")


@pytest.mark.nightly
def test_many_small_jobs_cost_little() -> None:
    begun = time.perf_counter()
    found = cluster.map(square, [1] * 200, on="ray", workers=2)
    assert all(outcome.value == 1 for outcome in found)
    assert (time.perf_counter() - begun) / 200 < 0.5


def listening(_: object) -> list[str]:
    """Addresses in hexadecimal on which the worker and the raylet above it listen."""
    found = []
    for process in (os.getpid(), os.getppid()):
        links = [os.readlink(each) for each in Path(f"/proc/{process}/fd").iterdir() if each.is_symlink()]
        sockets = {link[8:-1] for link in links if link.startswith("socket:[")}
        for table in ("tcp", "tcp6"):
            rows = [line.split() for line in Path(f"/proc/{process}/net/{table}").read_text().splitlines()[1:]]
            found += [row[1].partition(":")[0] for row in rows if row[3] == "0A" and row[9] in sockets]
    return found


@pytest.mark.nightly
def test_a_cluster_of_ours_listens_on_loopback_alone() -> None:
    code = "from radial import cluster; from radial.cluster_test import listening\n"
    code += "print(*cluster.map(listening, [0], on='ray')[0].value)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert said
    assert all(address.endswith("0100007F") for address in said), said  # 127.0.0.1, or ::ffff:127.0.0.1


def test_no_jobs_no_cluster() -> None:
    assert cluster.map(square, [], on="ray") == []


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"on": "slurm"}, "on must be"),
        ({"on": "local", "address": "auto"}, "address is for"),
        ({"on": "ray", "address": "http://x y"}, "address must be"),
    ],
)
def test_bad_input_is_named(settings: dict[str, str], field: str) -> None:
    with pytest.raises(BadInput, match=field):
        cluster.map(square, [1], **settings)  # type: ignore[arg-type]


def test_resources_are_checked() -> None:
    with pytest.raises(BadInput, match="cpus"):
        Resources(cpus=0)
    with pytest.raises(BadInput, match="gpus"):
        Resources(gpus=-1)
