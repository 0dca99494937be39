"""How every command prints: results on stdout, as one JSON object or a table; everything else on stderr.

The content is each command's own business.
"""

import io
import json
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from radial.core.text import clean, clean_json


def say(text: str) -> None:
    """A line for the person watching."""
    sys.stderr.write(f"{clean(text)}\n")
    sys.stderr.flush()


def write_anything() -> None:
    """Let stdout and stderr take every character: one that they cannot encode is written as its number.

    A stream that is closed (`>&-`) takes everything, too.
    """
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  as long as the process
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def give_up_stdout() -> None:
    """Write no more to a stdout that is gone or full; otherwise Python tries once more at its exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def silent_event_writer() -> Iterator[None]:
    """Keep a thread of TensorBoard from printing the traceback of an OSError, which its caller gets as well."""
    before = threading.excepthook

    def hook(failed: threading.ExceptHookArgs) -> None:
        if not (issubclass(failed.exc_type, OSError) and type(failed.thread).__module__.startswith("tensorboard")):
            before(failed)

    threading.excepthook = hook
    try:
        yield
    finally:
        threading.excepthook = before


@contextmanager
def warnings_said() -> Iterator[None]:
    """Warnings of the library as one line each."""

    def show(message: Warning | str, *_: object, **__: object) -> None:
        say("radial: " + " ".join(str(message).split()))

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield


def print_json(value: object) -> None:
    """One value for other programs: strict, so that NaN is an error here and not in the reader."""
    text = json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:  # JSON has its own way to write what stdout cannot
        text = json.dumps(value, indent=2, allow_nan=False)
    sys.stdout.write(clean_json(text) + "\n")


def print_table(table: Table) -> None:
    """A table; where nobody watches, wide enough not to be folded."""
    # Names come from files: what looks like markup, or an escape, in one is not.
    for column in table.columns:
        column._cells = [clean(cell) if isinstance(cell, str) else cell for cell in column._cells]
    Console(width=None if sys.stdout.isatty() else 160, markup=False, emoji=False).print(table)


@contextmanager
def progress(total: int, noun: str, every: float = 10.0) -> Iterator[Callable[[int], None]]:
    """A function to call with how many are done: a bar on a terminal, elsewhere a line now and then, on stderr.

    every  seconds between lines
    """
    console = Console(stderr=True)
    if console.is_terminal:
        with Progress(console=console, transient=True) as bar:
            task = bar.add_task(noun, total=total)
            yield lambda done: bar.update(task, completed=done)
        return
    due = time.monotonic() + every

    def show(done: int) -> None:
        nonlocal due
        if time.monotonic() >= due:
            say(f"{done} of {total} {noun}")
            due = time.monotonic() + every

    yield show


@contextmanager
def watch(what: str, episodes: int) -> Iterator[Callable[[int], None]]:
    """Print what is being evaluated, and its progress."""
    say(what)
    with progress(episodes, "episodes") as show:
        yield show
