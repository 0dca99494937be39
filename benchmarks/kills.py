"""Runs that are killed at random moments and resumed, for `make proof`: a kill costs as much as the training it ends.

Imports take longer than these trainings, so a nursery does them once: a process that has imported everything, has made
nothing yet, and forks a child per run. There are two, with hash seeds and addresses of their own, and they take turns,
so that what one begins another resumes.
"""

import json
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

KILLS = 10  # per unit
REACH = 0.7  # of a whole run's duration: the latest moment of a kill after a start
LONGEST = 1_800.0  # seconds until a run counts as hung: the machine may be busy
BACKENDS = {"ale-py": "ale", "envpool": "envpool"}  # as the suite of Atari calls them
PACKAGES = {"ale-py": "ale_py", "envpool": "envpool"}
MEMORY = Path("/dev/shm")  # a kill loses no page of a disk's cache, so where the files lie changes nothing but the time


def module_of(algorithm: str) -> Any:
    """The tests of an algorithm, which know a tiny training of it and what must be equal in the end."""
    from radial.training import a3c_test, dqn_test, ppo_test

    return {"a3c": a3c_test, "dqn": dqn_test, "ppo": ppo_test}[algorithm]


def config_of(algorithm: str, backend: str) -> Any:
    """A training of about a second, with a checkpoint every few updates."""
    from radial.core.data import EnvSpec

    base = module_of(algorithm).TINY
    if backend == "gymnasium":
        shorter = {
            "dqn": {"total_steps": 600, "checkpoint_every": 75},
            "a3c": {"total_steps": 1_200, "checkpoint_every": 150},
            "ppo": {"total_steps": 1_600, "checkpoint_every": 1, "rollout": 64},
        }
        return replace(base, **shorter[algorithm])
    if algorithm == "ppo":  # which is for vectors and ProcGen
        env = EnvSpec("mujoco", "Hopper-v4", {"backend": backend})
        return replace(base, env=env, total_steps=1_600, checkpoint_every=1, rollout=64)
    options = {"backend": BACKENDS[backend], "preset": f"radial-{algorithm}"}
    small = {"batch": 4, "learning_starts": 20, "update_every": 8} if algorithm == "dqn" else {}
    return replace(
        base, env=EnvSpec("atari", "Pong", options), hidden=None, num_envs=2, total_steps=80, log_every=10,
        checkpoint_every=20, **small,
    )  # fmt: skip


# ----------------------------------------------------------------------------------------------------- the nursery


def serve() -> None:
    """Fork a training for each line of stdin, print its pid; once the next line has come, its exit code."""
    import torch
    import torch.utils.tensorboard

    torch.set_num_threads(1)
    for algorithm in ("a3c", "dqn", "ppo"):
        module_of(algorithm)
    for package in PACKAGES.values():
        with suppress(ImportError):
            __import__(package)
    print(os.getpid(), flush=True)  # from now on a run begins at once
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            _child(**json.loads(line))
        print(pid, flush=True)
        sys.stdin.readline()  # until then the pid is kept from being given to another process
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


def _child(algorithm: str, backend: str, folder: str) -> NoReturn:
    """Train or resume, and leave without a word to the parent's buffers; errors go to a file beside the folder."""
    log = os.open(f"{folder}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(log, stream)
    code = 1
    try:
        module = module_of(algorithm)
        module.train(config_of(algorithm, backend), 7, out=Path(folder), resume=True, quiet=True)
        code = 0
    except BaseException:  # noqa: BLE001  it must not reach the loop of the parent
        import traceback

        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)


class Nursery:
    """The other end of `serve`."""

    def __init__(self) -> None:
        words = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "random"}
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=os.environ | words, cwd=ROOT,
        )  # fmt: skip
        self._hear()

    def _hear(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())

    def _say(self, words: str) -> int:
        assert self._process.stdin is not None
        self._process.stdin.write(words + "\n")
        self._process.stdin.flush()
        return self._hear()

    @contextmanager
    def run(self, algorithm: str, backend: str, folder: Path) -> Iterator["Child"]:
        """A training that is under way. In the end it is over, whatever happened."""
        child = Child(self._say(json.dumps({"algorithm": algorithm, "backend": backend, "folder": str(folder)})))
        try:
            yield child
        finally:
            child.kill()
            child.code = self._say("")
            os.close(child.handle)


class Child:
    """A training in a process of its own. code: its exit code, once it is over."""

    def __init__(self, pid: int) -> None:
        self.pid, self.code = pid, 0
        self.handle = os.pidfd_open(pid)
        self._poll = select.poll()
        self._poll.register(self.handle, select.POLLIN)

    def over(self, seconds: float) -> bool:
        """Wait at most so long; whether it is over."""
        return bool(self._poll.poll(1_000 * seconds))

    def kill(self) -> None:
        """SIGKILL, which nothing can catch."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.handle, signal.SIGKILL)


@cache
def nurseries() -> tuple[Nursery, Nursery]:
    """Both, from now on until this process ends: they read its pipe."""
    return Nursery(), Nursery()


# --------------------------------------------------------------------------------------------------------- kills


def outcome(algorithm: str, folder: Path) -> Any:
    """Weights, optimiser, replay, generators and counters of the last checkpoint, and the metrics."""
    from radial.runs.checkpoint import newest_checkpoint

    found = newest_checkpoint(folder)
    assert found is not None
    return module_of(algorithm).outcome(folder), found[2]  # the state has the SHA-256 of each part of the replay


@cache
def whole(algorithm: str, backend: str) -> tuple[Any, float]:
    """The outcome of the run that is left alone, and the seconds it takes."""
    nursery = nurseries()[0]
    with workshop() as parent:
        begun = time.monotonic()
        _finish(nursery, algorithm, backend, parent / "whole")
        return outcome(algorithm, parent / "whole"), time.monotonic() - begun


@contextmanager
def workshop() -> Iterator[Path]:
    """A folder for runs."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        yield Path(folder)


def _finish(nursery: Nursery, algorithm: str, backend: str, folder: Path) -> None:
    with nursery.run(algorithm, backend, folder) as child:
        assert child.over(LONGEST), f"a run hangs for {LONGEST:g} s"
    _check_code(child, folder)


def _check_code(child: Child, folder: Path) -> None:
    said = Path(f"{folder}.log").read_text(errors="replace").strip().splitlines() or ["nothing"]
    assert child.code == 0, f"a run ended with code {child.code} and said: {said[-1]}"


def _over_before(child: Child, folder: Path, rng: random.Random, longest: float) -> bool:
    """Wait for a random moment, one of four times within a save; whether the run was over before."""
    if rng.randrange(4):
        return child.over(rng.uniform(0, longest))
    ends = time.monotonic() + LONGEST
    while not _saving(folder, child.pid):
        if child.over(0.0005):
            return True
        assert time.monotonic() < ends, f"a run hangs for {LONGEST:g} s"
    return child.over(rng.uniform(0, 0.004))


def _saving(folder: Path, pid: int) -> bool:
    for name in ("checkpoints", "replay"):
        with suppress(FileNotFoundError):
            if any(each.endswith(f".tmp-{pid}") for each in os.listdir(folder / name)):
                return True
    return False


def kill_and_compare(algorithm: str, backend: str, seed: int, kills: int = KILLS) -> int:
    """Runs that are killed again and again end as one that was left alone, bit for bit; returns the kills.

    seed  of the moments
    """
    expected, duration = whole(algorithm, backend)
    rng, done, turns = random.Random(seed), 0, count()
    with workshop() as parent:
        for run in count():
            folder, over = parent / f"run-{run}", False
            while done < kills and not over:
                with nurseries()[next(turns) % 2].run(algorithm, backend, folder) as child:
                    over = _over_before(child, folder, rng, REACH * duration)
                if over:
                    _check_code(child, folder)
                else:
                    done += 1
            if not over:
                _finish(nurseries()[next(turns) % 2], algorithm, backend, folder)
            same = outcome(algorithm, folder) == expected
            assert same, f"after {done} kills the {algorithm} run in {backend} ends otherwise, seed {seed}"
            if done == kills:
                return done


def missing(backend: str) -> str | None:
    """The package that a backend needs and that is not here."""
    package = PACKAGES.get(backend)
    return package if package is not None and find_spec(package) is None else None


if __name__ == "__main__":
    serve()
