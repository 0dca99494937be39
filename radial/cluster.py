"""Where jobs run: processes of this machine, or a Ray cluster. The only file that imports Ray.

What a job is, is not known here: a function and what to call it with. Both places keep the same promises: results in
the order of the jobs, one failed job loses no other, a job whose process or node dies is tried again.
"""

import os
import re
import secrets
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

from radial.core.data import BadInput

_Job = TypeVar("_Job")
_Value = TypeVar("_Value")
PLACES = ("local", "ray")
POLL = 0.2  # seconds; a wait without a limit would keep Python from running signal handlers
_THREADS = "OMP_NUM_THREADS"
_ADDRESS = re.compile(r"auto|(ray://)?[A-Za-z0-9._-]+:\d{1,5}")
TOKEN, MODE = "RAY_AUTH_TOKEN", "RAY_AUTH_MODE"


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


def map(
    function: Callable[[_Job], _Value],
    jobs: Sequence[_Job],
    *,
    on: str = "local",
    resources: Resources | None = None,
    workers: int = 1,
    address: str | None = None,
    retries: int = 3,
    progress: OnEnd | None = None,
) -> list[Outcome[_Value]]:
    """Call a function with each job, and return how each ended, in their order.

    function  of a module, so that other processes can import it; it must bear being called again after a crash
    on        "local": processes of this machine, `workers` at a time; "ray": a cluster
    address   of a running cluster, "auto" or host:port; None: one is started here, for this call alone
    retries   how often a job is tried again whose process or node died; one that raises is not
    """
    check_where(on, address)
    needs = resources or Resources()
    tell = progress or (lambda number, outcome: None)
    if not jobs:
        return []
    if on == "local":
        return _Local(function, jobs, needs, workers, retries, tell).run()
    with _cluster(address, workers, needs) as ray:
        return _on_ray(ray, function, jobs, needs, retries, tell)


def check_where(on: str, address: str | None) -> None:
    """Refuse a place that is none, or an address that cannot be one."""
    if on not in PLACES:
        raise BadInput(f"on must be one of {', '.join(PLACES)}, got {on!r}")
    if address is not None and on != "ray":
        raise BadInput("address is for --on ray")
    if address is not None and not _ADDRESS.fullmatch(address):
        raise BadInput(f"address must be auto, HOST:PORT or ray://HOST:PORT, got {address!r}")


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


# ---------------------------------------------------------------------------------------------------------- processes


class _Local:
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
                        self._end(running[future], future.result())
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


def _stop(pool: ProcessPoolExecutor) -> None:
    """Ask the running jobs to save and end, as a terminal's Ctrl-C does."""
    for process in list((pool._processes or {}).values()):
        if process.pid is not None and process.is_alive():
            os.kill(process.pid, signal.SIGTERM)


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """The variable that children inherit."""
    before = os.environ.get(_THREADS)
    os.environ[_THREADS] = str(count)
    try:
        yield
    finally:
        if before is None:
            del os.environ[_THREADS]
        else:
            os.environ[_THREADS] = before


# ---------------------------------------------------------------------------------------------------------------- Ray


@contextmanager
def _cluster(address: str | None, workers: int, needs: Resources) -> Iterator[Any]:
    """Ray, connected to the cluster at an address, or to one of our own on this machine.

    Ours listens on loopback alone, has no dashboard, and takes nobody without the token made for it.
    """
    if address is None:  # before the import: Ray reads both but once
        os.environ.setdefault(MODE, "token")
        os.environ.setdefault(TOKEN, secrets.token_hex(32))
    try:
        import ray
    except ImportError:
        raise BadInput("--on ray needs Ray: pip install 'radial-rl[ray]'") from None
    mine = not ray.is_initialized()
    if mine:
        settings: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": True, "include_dashboard": False}
        if address is None:
            settings |= {"num_cpus": workers * needs.cpus, "_node_ip_address": "127.0.0.1", "address": "local"}
        else:
            settings |= {"address": address}
            settings.pop("include_dashboard")
        try:
            ray.init(**settings)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise BadInput(f"address {address or 'local'}: {' '.join(str(error).split())[:300]}") from None
    try:
        yield ray
    finally:
        if mine:
            ray.shutdown()


def _on_ray(
    ray: Any, function: Callable[[Any], Any], jobs: Sequence[Any], needs: Resources, retries: int, tell: OnEnd
) -> list[Outcome[Any]]:
    """One task per job; Ray itself tries a task again whose worker or node died."""
    variables = {"env_vars": {_THREADS: str(needs.cpus)}}
    task = ray.remote(timed).options(
        num_cpus=needs.cpus, num_gpus=needs.gpus, max_retries=retries, runtime_env=variables
    )
    numbers = {task.remote(function, job, needs.cpus): number for number, job in enumerate(jobs)}
    outcomes: dict[int, Outcome[Any]] = {}
    waiting = list(numbers)
    try:
        while waiting:
            done, waiting = ray.wait(waiting, num_returns=1, timeout=POLL)
            for reference in done:
                outcomes[numbers[reference]] = outcome = _collect(ray, reference)
                tell(numbers[reference], outcome)
    except BaseException:
        for reference in waiting:
            ray.cancel(reference, force=False)  # SIGINT in the worker: it saves and ends
        raise
    return [outcomes[number] for number in range(len(jobs))]


def _collect(ray: Any, reference: Any) -> Outcome[Any]:
    try:
        found: Outcome[Any] = ray.get(reference)
        return found
    except ray.exceptions.RayError as error:
        text = " ".join(str(error).split())[:300]
        return Outcome(None, f"{type(error).__name__}: {text}", 0.0)
