"""Jobs and how they end, and a pool of processes of this machine that works through them.

What a job is, is not known here: a function and what to call it with. Clusters are in `cluster`.
"""

import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any, Generic, TypeVar

from radial.core.errors import BadInput

_Job = TypeVar("_Job")
_Value = TypeVar("_Value")
POLL = 0.2  # seconds; a wait without a limit would keep Python from running signal handlers
THREADS_VARIABLE = "OMP_NUM_THREADS"


@dataclass(frozen=True)
class Resources:
    """What one job takes: `cpus` are also its threads, so that results do not depend on where it runs."""

    cpus: int = 1
    gpus: float = 0.0

    def __post_init__(self) -> None:
        if not (isinstance(self.cpus, int) and 1 <= self.cpus <= 1024):
            raise BadInput(f"cpus per job must be a whole number from 1 to 1024, got {self.cpus!r}")
        if not 0 <= self.gpus <= 64:
            raise BadInput(f"gpus per job must lie in [0, 64], got {self.gpus!r}")


@dataclass(frozen=True)
class Outcome(Generic[_Value]):
    """How a job ended.

    error  in one line; None: it succeeded and `value` is its result
    """

    value: _Value | None
    error: str | None
    seconds: float

    @property
    def failed(self) -> bool:
        """Whether there is no result."""
        return self.error is not None


OnEnd = Callable[[int, Outcome[Any]], None]  # called with a job's number when it ends


class JobsFailed(Exception):
    """Some jobs have no result; what the others found is kept."""


def timed(function: Callable[[_Job], _Value], job: _Job, threads: int) -> Outcome[_Value]:
    """Call it here with so many threads; an exception becomes the error of the outcome."""
    import torch

    torch.set_num_threads(threads)  # Ray sets the variable only, and not for torch that is loaded already
    begun = time.perf_counter()
    try:
        return Outcome(function(job), None, time.perf_counter() - begun)
    except Exception as error:  # noqa: BLE001  one failed job must not lose the others
        text = " ".join(f"{type(error).__name__}: {error}".split())
        return Outcome(None, text[:2000], time.perf_counter() - begun)


class LocalPool:
    """A pool of processes, made anew when one of them dies."""

    def __init__(
        self, function: Callable[[Any], Any], jobs: Sequence[Any], needs: Resources, workers: int, retries: int,
        tell: OnEnd,
    ) -> None:  # fmt: skip
        self.function, self.jobs, self.needs, self.tell = function, jobs, needs, tell
        self.workers, self.retries = min(workers, len(jobs)), retries
        self.outcomes: dict[int, Outcome[Any]] = {}
        self.deaths = [0] * len(jobs)

    def run(self) -> list[Outcome[Any]]:
        """Until every job has an outcome."""
        while len(self.outcomes) < len(self.jobs):
            self._pool([number for number in range(len(self.jobs)) if number not in self.outcomes])
        return [self.outcomes[number] for number in range(len(self.jobs))]

    def _pool(self, numbers: Sequence[int]) -> None:
        """Work through these with one pool, or as far as it lives."""
        waiting, running = deque(numbers), dict[Future[Outcome[Any]], int]()
        with _threads(self.needs.cpus):
            pool = ProcessPoolExecutor(self.workers, mp_context=get_context("spawn"))
            try:
                while waiting or running:
                    while waiting and len(running) < self.workers:  # no more than can run: a death then names few
                        number = waiting.popleft()
                        running[pool.submit(timed, self.function, self.jobs[number], self.needs.cpus)] = number
                    for future in wait(running, POLL, FIRST_COMPLETED).done:
                        self._end(running[future], _received(future))
                        del running[future]
            except BrokenProcessPool:
                self._mourn(running.values())
            except BaseException:
                _stop(pool)
                raise
            finally:
                pool.shutdown(wait=True, cancel_futures=True)

    def _end(self, number: int, outcome: Outcome[Any]) -> None:
        self.outcomes[number] = outcome
        self.tell(number, outcome)

    def _mourn(self, numbers: Any) -> None:
        """Every job that was running may be the one whose process died."""
        for number in list(numbers):
            self.deaths[number] += 1
            if self.deaths[number] > self.retries:
                self._end(number, Outcome(None, f"its process died {self.deaths[number]} times", 0.0))


def _received(future: Future[Outcome[Any]]) -> Outcome[Any]:
    """The outcome; one of a job or a result that no other process can be sent is a failure of that job."""
    try:
        return future.result()
    except BrokenProcessPool:
        raise
    except Exception as error:  # noqa: BLE001  pickle raises many kinds
        return Outcome(None, f"it cannot be sent to another process: {' '.join(str(error).split())[:300]}", 0.0)


def _stop(pool: ProcessPoolExecutor) -> None:
    """Ask the running jobs to save and end, as a terminal's Ctrl-C does."""
    for process in list((pool._processes or {}).values()):
        if process.pid is not None and process.is_alive():
            os.kill(process.pid, signal.SIGTERM)


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """The variable that children inherit."""
    before = os.environ.get(THREADS_VARIABLE)
    os.environ[THREADS_VARIABLE] = str(count)
    try:
        yield
    finally:
        if before is None:
            del os.environ[THREADS_VARIABLE]
        else:
            os.environ[THREADS_VARIABLE] = before
