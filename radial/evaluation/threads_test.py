"""Threads: one for vectors, unless somebody has chosen."""

import pytest
import torch

from radial.evaluation.threads import THREADS, one_thread_for, torch_threads


@pytest.mark.parametrize(("shape", "chosen", "threads"), [((4,), None, 1), ((1, 84, 84), None, 3), ((4,), "3", 3)])
def test_vectors_are_computed_on_one_thread_unless_told_otherwise(
    shape: tuple[int, ...], chosen: str | None, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if chosen is None:
        monkeypatch.delenv(THREADS, raising=False)
    else:
        monkeypatch.setenv(THREADS, chosen)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        one_thread_for(shape)
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(("count", "shape", "inside"), [(None, (4,), 1), (None, (1, 84, 84), 3), (2, (4,), 2)])
def test_the_callers_number_is_restored(
    count: int | None, shape: tuple[int, ...], inside: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(THREADS, raising=False)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with torch_threads(count, shape):
            assert torch.get_num_threads() == inside
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
