"""Worker processes: each runs a player; a supervisor counts steps, collects reports, and restarts dead or hung ones.

Acting and learning are in the player. Nothing is locked: a worker writes only its own entries of the board and sends
reports through its own pipe, so killing one at any moment blocks no other.
"""

import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any, NamedTuple

import torch
import torch.multiprocessing
from torch import Tensor

from radial.core.data import BadInput
from radial.envs.contract import EnvFault
from radial.envs.custom import import_inherited
from radial.envs.watchdog import EXIT_CODE as ENV_HUNG
from radial.runs.files import warn
from radial.runs.run import SIGNALS
from radial.training.a3c_player import Player, Report

LOOK = 0.25  # seconds between two polls of the workers, at most
TELL = 0.5  # seconds between two reports of a worker, at least
STARTING = 5  # multiple of `patience` for a worker's first update: it imports, and may compile
GRACE = 15.0  # seconds for workers to finish their update after the stop flag is set
MOST_IN_A_ROW = 5  # restarts of a worker without an update in between
PASSED_ON: dict[str, type[Exception]] = {kind.__name__: kind for kind in (FloatingPointError, EnvFault, BadInput)}

Build = Callable[[int, int], Player]  # of a worker's number and how often it was started before


class WorkerFailed(RuntimeError):
    """A worker raised an error, whose whole traceback is in the message, or cannot be kept alive.

    summary  the message in one line, without the traceback
    """

    def __init__(self, message: str, summary: str | None = None) -> None:
        super().__init__(message)
        self.summary = message if summary is None else summary


class Failure(NamedTuple):
    """The error that ended a worker, as text."""

    kind: str  # of error
    message: str
    trace: str


class Board(NamedTuple):
    """Counters in shared memory, visible to all processes; every number has one writer."""

    steps: Tensor  # (W,) int64  env steps of each worker
    updates: Tensor  # (W,) int64  updates of each worker; they also show that it is alive
    stop: Tensor  # () bool  written by the supervisor
    begun: int  # env steps before this crew
    total_steps: int

    @classmethod
    def fresh(cls, workers: int, begun: int, total_steps: int) -> "Board":
        """A board in shared memory, with all counters 0."""
        steps, updates = (torch.zeros(workers, dtype=torch.int64).share_memory_() for _ in range(2))
        return cls(steps, updates, torch.zeros((), dtype=torch.bool).share_memory_(), begun, total_steps)

    @property
    def step(self) -> int:
        """Env steps so far, of all workers."""
        return self.begun + int(self.steps.sum())

    @property
    def over(self) -> bool:
        """Whether no worker should start another rollout."""
        return bool(self.stop) or self.step >= self.total_steps


# ------------------------------------------------------------------------------------------------ inside a worker


def _work(build: Build, index: int, life: int, board: Board, pipe: Connection) -> None:
    """Run a player until training is over. Signals are blocked here: the supervisor handles a terminal's Ctrl-C."""
    torch.set_num_threads(1)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    with _LastWords(pipe):
        import_inherited()
        player, told = build(index, life), time.monotonic()
        while not board.over:
            real = player.update(board.step)
            board.steps[index] += real
            board.updates[index] += 1
            if time.monotonic() - told >= TELL:
                pipe.send(player.report())
                told = time.monotonic()
        pipe.send(player.report())
        player.leave()


def _leave_with_parent() -> None:
    """Exit when the supervisor is gone, even by SIGKILL, so that no worker stays behind."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


class _LastWords:
    """Sends an error to the supervisor, which ends the training with it."""

    def __init__(self, pipe: Connection) -> None:
        self.pipe = pipe

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is not None:
            with suppress(OSError):  # the supervisor has closed its end
                text = "".join(traceback.format_exception(error))
                self.pipe.send(Failure(type(error).__name__, str(error), text))
        return True


# -------------------------------------------------------------------------------------------------- the supervisor


class _Worker:
    """The supervisor's view of one worker."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.process: Any = None
        self.pipe: Any = None
        self.life = 0  # how often it was started before
        self.in_a_row = 0  # and how often since its last update
        self.updates, self.alive = 0, False  # so far, and whether the process of now has made one
        self.silent = 0.0  # seconds since its last update

    def hear_of(self, updates: int, seconds: float) -> None:
        """Record the worker's update count after so many more seconds."""
        if updates != self.updates:
            self.updates, self.alive, self.silent, self.in_a_row = updates, True, 0.0, 0
        else:
            self.silent += seconds

    def die(self) -> None:
        """Record that the process is gone; the next one has made no update yet."""
        self.life, self.in_a_row, self.alive, self.silent = self.life + 1, self.in_a_row + 1, False, 0.0


class Crew:
    """Supervised workers. `with crew:` starts them, and none outlives the block.

    build     makes the player of a worker, inside its process; a module's function, or a `partial` of one
    patience  seconds without an update before a worker counts as hung
    """

    def __init__(self, build: Build, board: Board, patience: float) -> None:
        self.board, self.restarts = board, 0
        self._build, self._patience = build, patience
        self._context = torch.multiprocessing.get_context("spawn")
        self._workers = [_Worker(index) for index in range(len(board.steps))]
        self._looked = time.monotonic()

    def __enter__(self) -> "Crew":
        try:
            for worker in self._workers:
                self._start(worker)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def look(self, timeout: float = LOOK) -> list[Report]:
        """Wait for reports or the timeout, return the reports, and restart workers that died or hang.

        An error of a worker is raised here.
        """
        self._wait(timeout)
        # At most a few polls' worth: a suspended machine must not make workers look hung.
        seconds = min(time.monotonic() - self._looked, 4 * LOOK)
        self._looked = time.monotonic()
        return [report for worker in self._workers for report in self._look_at(worker, seconds)]

    def stop(self) -> list[Report]:
        """Let the workers finish their updates and exit; return their last reports.

        Workers that take longer than GRACE are killed, those still starting at once.
        """
        self.board.stop.fill_(True)
        reports, end = [], time.monotonic() + GRACE
        while time.monotonic() < end and any(worker.alive and worker.process.is_alive() for worker in self._workers):
            self._wait(LOOK)
            reports += [report for worker in self._workers for report in self._hear(worker)]
        reports += [report for worker in self._workers for report in self._hear(worker)]
        self._end()
        return reports

    def pids(self) -> list[int]:
        """Process ids of the workers, in order."""
        return [worker.process.pid for worker in self._workers]

    def _start(self, worker: _Worker) -> None:
        worker.pipe, writes = self._context.Pipe(duplex=False)
        arguments = (self._build, worker.index, worker.life, self.board, writes)
        worker.process = self._context.Process(target=_work, args=arguments, name=f"radial-worker-{worker.index}")
        resource_tracker.ensure_running()  # started now, since its own start would unblock the signals
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # which the child inherits
        try:
            worker.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            writes.close()  # only the worker keeps a copy, so its death ends the pipe

    def _wait(self, timeout: float) -> None:
        living = [worker for worker in self._workers if worker.process.is_alive()]
        wait([thing for worker in living for thing in (worker.pipe, worker.process.sentinel)], timeout)

    def _hear(self, worker: _Worker) -> Iterator[Report]:
        with suppress(EOFError, OSError):  # the pipe ended, perhaps within a message; the exit code is judged elsewhere
            while worker.pipe.poll():
                said = worker.pipe.recv()
                if isinstance(said, Failure):
                    raise _error(worker.index, said)
                yield said

    def _look_at(self, worker: _Worker, seconds: float) -> Iterator[Report]:
        code = worker.process.exitcode
        yield from self._hear(worker)  # after reading the exit code, so that no report can arrive in between
        worker.hear_of(int(self.board.updates[worker.index]), seconds)
        if self.board.over:
            return
        limit = self._patience if worker.alive else STARTING * self._patience
        if code is None and worker.silent > limit:
            worker.process.kill()
            worker.process.join()
            self._restart(worker, f"gave no sign of life for {limit:g} seconds")
        elif code == ENV_HUNG:
            self._restart(worker, "was ended because its environment hung")
        elif code is not None and code < 0:
            self._restart(worker, f"was killed by {signal.Signals(-code).name}")
        elif code is not None:
            hint = "" if worker.alive else '; a script must begin its work under `if __name__ == "__main__":`'
            raise WorkerFailed(f"worker {worker.index} ended with code {code} before the training was over{hint}")

    def _restart(self, worker: _Worker, why: str) -> None:
        self.restarts += 1
        worker.die()
        if worker.in_a_row > MOST_IN_A_ROW:
            raise WorkerFailed(f"worker {worker.index} {why}, {worker.in_a_row} times without an update in between")
        warn(f"worker {worker.index} {why} and is started again; restarts so far: {self.restarts}")
        self._close(worker)
        self._start(worker)

    def _end(self) -> None:
        for worker in self._workers:
            if worker.process is not None and worker.process.is_alive():
                worker.process.kill()
        for worker in self._workers:
            self._close(worker)

    def _close(self, worker: _Worker) -> None:
        if worker.pipe is not None:
            worker.pipe.close()
        if worker.process is not None and worker.process.pid is not None:
            worker.process.join()


def _error(index: int, failure: Failure) -> Exception:
    """The error of a worker; one with a one-line message keeps its type, any other carries the whole traceback."""
    said = f"{failure.kind}: {failure.message}" if failure.message else failure.kind
    whole = WorkerFailed(f"worker {index} failed\n\n{failure.trace}", f"worker {index} failed: {said}")
    if failure.kind not in PASSED_ON:
        return whole
    error = PASSED_ON[failure.kind](f"worker {index}: {failure.message}")
    error.__cause__ = whole
    return error
