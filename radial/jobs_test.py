"""Jobs without processes: `through_pickle` runs them here, but sends each there and back as a process would."""

import os
import pickle
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from radial import cluster
from radial.cluster import Place
from radial.core.data import BadInput
from radial.jobs import JobsFailed, OnEnd, Outcome, Resources, timed


def through_pickle(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let `cluster.map` run its jobs in this process; a list of the functions that were called."""
    called: list[str] = []

    def run(function: Callable[[Any], Any], jobs: Sequence[Any], **more: Any) -> list[Outcome[Any]]:
        tell: OnEnd = more["progress"] or (lambda number, outcome: None)
        outcomes = []
        for number in reversed(range(len(jobs))):  # they may end in any order
            there, job = pickle.loads(pickle.dumps((function, jobs[number])))
            outcomes.append(pickle.loads(pickle.dumps(timed(there, job, 1))))
            called.append(function.__name__)
            tell(number, outcomes[-1])
        return outcomes[::-1]

    monkeypatch.setattr(cluster, "map", run)
    return called


def halve(number: int) -> int:
    if number % 2:
        raise ValueError(f"{number} is odd")
    return number // 2


def test_each_result_is_kept_at_once_and_a_failure_told_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    through_pickle(monkeypatch)
    kept, said = list[int](), list[str]()
    place = Place(workers=2)
    assert place.each(halve, {"a": 2, "b": 4}, said.append, kept.append) == [1, 2]
    assert kept == [2, 1]
    assert said == ["b: done (1 of 2)", "a: done (2 of 2)"]
    with pytest.raises(JobsFailed, match="1 of 2 jobs failed: b: ValueError: 3 is odd"):
        place.each(halve, {"a": 8, "b": 3}, None, kept.append)
    assert kept[-1] == 4  # the other's result


@pytest.mark.parametrize(
    ("settings", "field"),
    [({"on": "slurm"}, "on"), ({"workers": 0}, "jobs"), ({"resources": Resources(gpus=1)}, "gpus_per_job is for"),
     ({"address": "auto"}, "address"), ({"on": "ray", "address": "nobody"}, "address must be")],
)  # fmt: skip
def test_a_place_that_is_none_is_refused(settings: dict[str, Any], field: str) -> None:
    with pytest.raises(BadInput, match=field):
        Place(**settings)


def test_one_worker_of_this_machine_is_this_process() -> None:
    assert Place().is_here
    assert not Place(workers=2).is_here
    assert not Place("ray").is_here


def give_back(job: object) -> object:
    return threading.Lock() if job is None else os.getpid()


@pytest.mark.nightly
def test_what_cannot_be_sent_fails_alone() -> None:
    found = cluster.map(give_back, [threading.Lock(), None, 1], workers=1)
    assert [outcome.failed for outcome in found] == [True, True, False]
    assert "sent" in str(found[0].error)
    assert found[2].value != os.getpid()
