"""The benchmark of clusters without one: jobs run here, and runners in this process."""

import pytest

from radial.commands import bench_cluster as bench
from radial.jobs_test import through_pickle
from radial.training import runners
from radial.training.runners_test import Hands


def test_the_figures_are_ratios(monkeypatch: pytest.MonkeyPatch) -> None:
    called = through_pickle(monkeypatch)
    monkeypatch.setattr(bench, "EPISODES", 1)
    first, each = bench.overhead(5)
    assert first > 0
    assert each >= 0
    assert bench.throughput(2, 2) > 0
    assert called == ["nothing"] * 5 + ["evaluation"] * 4


@pytest.mark.nightly
def test_runners_are_compared_with_acting_in_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runners, "ActorGroup", Hands)
    rows = bench.speeds("learning-bound: CartPole-v1", 2, (0, 2))
    assert [row.runners for row in rows] == [0, 2]
    assert rows[0].ratio == 1
    assert rows[1].ratio == rows[1].steps_per_second / rows[0].steps_per_second
