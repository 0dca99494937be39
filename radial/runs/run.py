"""A run: a folder that can be read without us, survives any death of its process, and can be resumed.

Which algorithm runs is not known here; the loop brings its tensors, its state and its metrics.
"""

import errno
import hashlib
import json
import math
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from torch import Tensor

from radial.core.data import BadInput
from radial.core.text import clean
from radial.runs import checkpoint as store
from radial.runs.files import (
    Corrupt,
    DiskFull,
    check_kind,
    check_plain,
    one_line,
    open_plain,
    read_json,
    require,
    warn,
    write_atomic,
    writing,
)
from radial.runs.metrics import cut_metrics
from radial.runs.progress import Pace, Reporter, reporter
from radial.runs.tracking import EVENTS, Log, Tracking

__all__ = ["VOLATILE", "Corrupt", "DiskFull", "Run", "Stopped", "Tracking", "derived_seed"]

CONFIG, METRICS, LOCK = "config.json", "metrics.jsonl", "lock"
FOLDERS = (EVENTS, store.ROOM, "replay")
VOLATILE = {"time", "charts/SPS"}  # what differs between two runs that are otherwise equal to the bit
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopped(Exception):
    """A signal asked the run to end, and everything is saved; the command line exits with `code`, 130 or 143."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by signal {number}; everything is saved, and --resume resumes from here")
        self.signal = number

    @property
    def code(self) -> int:
        """The exit code a shell expects of a process that a signal ended."""
        return 128 + self.signal


def derived_seed(seed: int, *parts: int | str) -> int:
    """A seed for a purpose: the first 31 bits of SHA-256 of [seed, *parts] as JSON."""
    text = json.dumps([int(seed), *parts], separators=(",", ":"))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1


def is_run(folder: Path) -> bool:
    """Whether a run has begun there."""
    return (folder / CONFIG).exists() or bool(store.checkpoints(folder))


def check_free(folder: Path) -> None:
    """Refuse a folder in which a run has begun."""
    if is_run(folder):
        raise BadInput(f"{folder} already holds a run; use --resume to resume it or another --out")


def check_place(folder: Path, resume: bool) -> None:
    """Refuse, before long work, a folder that no run can be in, or with `resume` one without a run; writes nothing."""
    there = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    if not there.is_dir():
        raise BadInput(f"{folder} cannot be a run's folder: {there} is a file")
    if not os.access(there, os.W_OK | os.X_OK):
        raise BadInput(f"{folder} cannot be a run's folder: {there} cannot be written to")
    check_entries(folder)
    if resume and not is_run(folder):
        raise BadInput(f"{folder} holds no run to resume; leave out --resume to begin one")
    if not resume:
        check_free(folder)


def check_entries(folder: Path) -> None:
    """Refuse a folder in which a name of a run's is taken by a link, a pipe, or a file where a folder belongs."""
    for name in (CONFIG, METRICS, LOCK, *FOLDERS):
        check_kind(folder / name, folder=name in FOLDERS)


def check_same_run(folder: Path, config: Mapping[str, Any]) -> None:
    """Refuse, before long work, to resume a run that was started with another config."""
    _check_same(folder, read_json(folder / CONFIG), _plain(config))


# The loops know nothing of storage, and everything they save passes here.
_COPY: ContextVar[Callable[[Path], None] | None] = ContextVar("copy", default=None)


@contextmanager
def mirrored(copy: Callable[[Path], None]) -> Iterator[None]:
    """Call `copy` with a run's folder whenever one has written a checkpoint, inside this context."""
    token = _COPY.set(copy)
    try:
        yield
    finally:
        _COPY.reset(token)


class InUse(BadInput):
    """Another process holds the run's folder."""


class Run:
    """A folder readable without us: config.json, metrics.jsonl, TensorBoard events in tb/, checkpoints/.

    Inside `with run:` SIGINT and SIGTERM only set `run.signal`; the loop finishes its update, saves, and raises
    `Stopped`. Metrics of a step are logged before that step is saved: a resumed run continues after the save.
    """

    folder: Path | None  # None: nothing is written
    restored: tuple[dict[str, Tensor], dict[str, Any]] | None  # tensors and state of the checkpoint, when resuming
    exact: bool  # False: resumed with other versions or threads, so the same seed need not lead here again

    def __init__(self, folder: Path | None, total_steps: int, quiet: bool) -> None:
        self.folder, self.restored, self.exact = folder, None, True
        self._total, self._quiet = total_steps, quiet
        self._saved = self._logged = -1  # steps
        self._signal: int | None = None
        self._metrics: Any = None
        self._events: Log | None = None
        self._reporter: Reporter | None = None
        self._pace = Pace(total_steps)
        self._began = time.monotonic()
        self._cleanup = ExitStack()

    @classmethod
    def open(
        cls,
        folder: Path | None,
        config: Mapping[str, Any],
        *,
        resume: bool,
        total_steps: int,
        quiet: bool = False,
        verify: store.Verify | None = None,
        track: Tracking | None = None,
    ) -> "Run":
        """A new run in `folder`, or with `resume` the one that is there; None: a run that writes nothing.

        verify  of a checkpoint's state: raises `Corrupt` if the files beside the checkpoint do not match it
        track   where metrics go besides metrics.jsonl; None: TensorBoard
        """
        plain = _plain(config)
        run = cls(None if folder is None else Path(folder), total_steps, quiet)
        try:
            if run.folder is not None:
                run._enter(run.folder, plain, resume, verify)
                run._track(run.folder, plain, resume, Tracking() if track is None else track)
        except BaseException:
            run.close()
            raise
        return run

    def _enter(self, folder: Path, config: dict[str, Any], resume: bool, verify: store.Verify | None) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            check_entries(folder)
            self._cleanup.callback(os.close, _lock(folder))
        except OSError as error:
            raise BadInput(f"{folder} cannot be a run's folder: {error.strerror}") from None
        if not resume:
            check_free(folder)
        if is_run(folder):
            self._resume(folder, config, verify)
        else:
            if resume:
                warn(f"{folder} holds no run to resume: a new one begins")
            write_atomic(folder / CONFIG, json.dumps(config, indent=2, ensure_ascii=False, allow_nan=False) + "\n")

    def _track(self, folder: Path, config: dict[str, Any], resume: bool, track: Tracking) -> None:
        with writing(folder):
            # unbuffered: a line is one write, and nothing is left to be written when a disk is full
            opened = open(folder / METRICS, "ab", buffering=0, opener=open_plain)  # noqa: SIM115  closed in `close`
            self._metrics = self._cleanup.enter_context(opened)
            self._events = track.open(folder, config, self._saved + 1 if resume else None)
            self._cleanup.callback(self._events.close)

    def _resume(self, folder: Path, config: dict[str, Any], verify: store.Verify | None) -> None:
        _check_same(folder, read_json(folder / CONFIG), config)
        store.remove_unfinished(folder)
        found = store.newest_with_manifest(folder, verify)
        if found is None:
            warn(f"{folder} holds no checkpoint yet: the run begins again at step 0")
        else:
            path, tensors, manifest = found
            same = manifest["state"].get("step", manifest["step"]) == manifest["step"]
            require(same, path, "holds the state of another step than its own")
            self.restored = (_Saved(path, tensors), _saved(path, manifest["state"]))
            self._saved = self._logged = manifest["step"]
            self.exact = manifest["exact"] and _same_conditions(manifest)
            store.link_best(folder)  # the process may have died between the checkpoint and the link
        self._began -= cut_metrics(folder / METRICS, self._saved)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """One line of metrics.jsonl and one TensorBoard scalar per metric; a loss that is not finite is an error."""
        values = {key: float(value) for key, value in metrics.items()}
        for key, value in values.items():
            if key.startswith("losses/") and not math.isfinite(value):
                raise FloatingPointError(f"{key} is {value} at step {step}")
        if step < self._logged or step <= self._saved:
            raise ValueError(f"step {step} is logged after step {self._logged} was logged and {self._saved} saved")
        self._logged = step
        if self._metrics is None:
            return
        self._check_there()
        line = {"step": step, "time": round(time.monotonic() - self._began, 3)}
        line |= {key: value if math.isfinite(value) else None for key, value in values.items()}  # type: ignore[misc]
        with writing(Path(self._metrics.name)):
            text = json.dumps(line, allow_nan=False).encode() + b"\n"
            if self._metrics.write(text) < len(text):
                raise OSError(errno.ENOSPC, "only half a line could be written")
            if self._events is not None:
                self._events.log(step, values)

    def _check_there(self) -> None:
        """An open file follows a folder that is renamed, but a checkpoint would make a new one, without its config."""
        if self.folder is not None and not (self.folder / CONFIG).is_file():
            raise FileNotFoundError(errno.ENOENT, "the run's folder was removed or renamed", str(self.folder))

    def note(self, text: str) -> None:
        """Print a line before the first step."""
        if not self._quiet:
            sys.stderr.write(clean(text) + "\n")

    def progress(self, step: int, **shown: float | str) -> None:
        """Show the step, the values given, steps per second and the time left."""
        if self._reporter is None:
            self._reporter = reporter(self._total, self._quiet)
            self._cleanup.callback(self._reporter.close)
        parts = [f"{key} {value if isinstance(value, str) else format(value, '.4g')}" for key, value in shown.items()]
        self._reporter.show(step, "  ".join([*parts, self._pace.text(step)]).rstrip())

    def save(
        self, step: int, tensors: Mapping[str, Tensor], state: Mapping[str, Any], score: float | None = None
    ) -> None:
        """Write a checkpoint; the last two stay, and the one with the highest `score`."""
        store.check_tensors(tensors)
        if self.folder is not None:
            self._check_there()
            with writing(Path(self._metrics.name)):
                os.fsync(self._metrics.fileno())  # a checkpoint must not be newer than the lines that led to it
            store.write_checkpoint(self.folder, step, tensors, state, score=score, exact=self.exact)
            copy = _COPY.get()
            if copy is not None:
                copy(self.folder)
        self._saved = step

    def check_engine(self, engine: Mapping[str, str]) -> None:
        """Warn of another simulator than before: the run may resume, but is marked as not exact from now on."""
        before = None if self.restored is None else self.restored[1].get("engine")
        if before not in (None, dict(engine)) and self.exact:
            warn(f"the simulator was {before} and is now {dict(engine)}: the resumed run is not exact")
            self.exact = False

    @contextmanager
    def restoring(self) -> Iterator[None]:
        """Around the loop's own restoring: values of another type or shape than it saves make a corrupt checkpoint."""
        try:
            yield
        except BadInput:
            raise
        except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RuntimeError) as error:
            assert isinstance(self.restored, tuple)
            path = getattr(self.restored[1], "path", self.folder)
            raise Corrupt(f"{path} holds values that no run can be resumed from: {one_line(error)}") from None

    @property
    def signal(self) -> int | None:
        """SIGINT or SIGTERM, once received."""
        return self._signal

    def __enter__(self) -> "Run":
        if threading.current_thread() is threading.main_thread():  # Python allows it nowhere else
            for number in SIGNALS:
                before = signal.signal(number, self._receive)
                self._cleanup.callback(signal.signal, number, signal.SIG_DFL if before is None else before)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self._signal is not None:
            if sys.stderr.isatty():
                os.write(2, b"\x1b[?25h\n")  # the live line hides the cursor
            os._exit(128 + number)
        self._signal = number
        with suppress(OSError):  # a handler may interrupt a print, so it must not print
            os.write(2, b"\nradial: stopping after this update; once more to stop at once\n")

    def at_end(self, work: Callable[[], None]) -> None:
        """Do something when the run is closed, however it ends."""
        self._cleanup.callback(work)

    def close(self) -> None:
        """Close the files, let go of the folder, give the signals back. Twice is once."""
        self._cleanup.close()
        self._metrics = self._events = self._reporter = None


class _Saved(dict[str, Any]):
    """Part of a checkpoint: a loop that misses something in it finds the checkpoint corrupt."""

    def __init__(self, path: Path, content: Mapping[str, Any]) -> None:
        super().__init__(content)
        self.path = path

    def __missing__(self, key: str) -> Any:
        raise Corrupt(f"{self.path} does not hold {key!r}, so no run can be resumed from it")


def _saved(path: Path, value: Any) -> Any:
    """The value with every table in it as `_Saved`."""
    if isinstance(value, Mapping):
        return _Saved(path, {key: _saved(path, item) for key, item in value.items()})
    return [_saved(path, item) for item in value] if isinstance(value, list) else value


def _plain(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config as JSON gives it back."""
    try:
        check_plain(config, "config")
    except FloatingPointError as error:
        raise BadInput(str(error)) from None
    return json.loads(json.dumps(config))


def _lock(folder: Path) -> int:
    """Hold the folder as long as this process lives, however it ends: the kernel lets go of an flock."""
    import fcntl  # not on every system, and the rest of the library does not need it

    handle = open_plain(folder / LOCK, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.read(handle, 500).decode(errors="replace").strip() or "unknown"
        os.close(handle)
        raise InUse(f"{folder} is in use by another process ({holder})") from None
    os.ftruncate(handle, 0)
    os.write(handle, f"pid {os.getpid()} on {socket.gethostname()}\n".encode())
    return handle


def _check_same(folder: Path, there: dict[str, Any], here: dict[str, Any]) -> None:
    one, other = _leaves(there), _leaves(here)
    different = sorted(key for key in one.keys() | other.keys() if one.get(key, ...) != other.get(key, ...))
    if different:
        raise BadInput(f"{folder} holds a run with another config; these differ: {', '.join(different)}")


def _leaves(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A nested config as one level, such as {"env.id": …}."""
    leaves: dict[str, Any] = {}
    for key, value in config.items():
        leaves |= _leaves(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
    return leaves


def _same_conditions(manifest: Mapping[str, Any]) -> bool:
    here = _leaves(store.conditions())
    there = _leaves({key: manifest[key] for key in ("versions", "threads")})
    different = [f"{key} {there.get(key)} → {value}" for key, value in here.items() if there.get(key) != value]
    if different:
        warn(f"the run resumes, but not bit for bit as it would have: {', '.join(different)}")
    return not different
