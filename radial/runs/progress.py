"""Progress of a run: one live line on a terminal, a plain line now and then elsewhere, or nothing.

The values shown are chosen by the training loop.
"""

import shutil
import sys
import time
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

_WIDTH = 80  # columns of a line at most; COLUMNS may ask for less
_BAR = 10  # columns of the bar on a terminal
GAP = "  "  # between the parts of a line
SECONDS_BETWEEN_LINES = 10.0
SECONDS_BETWEEN_REFRESHES = 0.25


class Reporter(Protocol):
    """Shows the progress of a run."""

    def show(self, step: int, text: str) -> None:
        """Show that the run is at `step`, with `text` beside it."""

    def close(self) -> None:
        """Leave the terminal as it was."""


class Silent:
    """Says nothing."""

    def show(self, step: int, text: str) -> None:  # noqa: D102
        pass

    def close(self) -> None:  # noqa: D102
        pass


def fit(head: str, text: str, width: int) -> str:
    """The head and as many parts of the text as the width allows: the first ones and, before those, the last two.

    The last two are the pace, and the first one is the return.
    """
    parts = text.split(GAP) if text else []
    while len(parts) > 1 and len(GAP.join([head, *parts])) > width:
        del parts[-3 if len(parts) > 3 else -2]
    return GAP.join([head, *parts])[: max(width, len(head))]


def columns() -> int:
    """How wide a line may be."""
    return min(_WIDTH, shutil.get_terminal_size((_WIDTH, 24)).columns)


class PlainLines:
    """A plain line on stderr, at most one per `SECONDS_BETWEEN_LINES`, and the last one in any case."""

    def __init__(self, total: int) -> None:
        self.total, self.due, self.pending = total, 0.0, ""

    def show(self, step: int, text: str) -> None:  # noqa: D102
        whole = max(step, self.total)  # the last rollout may pass the total
        self.pending = fit(f"{time.strftime('%H:%M:%S')}  step {step:,}/{whole:,}", text, columns())
        if time.monotonic() >= self.due:
            self._write()
            self.due = time.monotonic() + SECONDS_BETWEEN_LINES

    def close(self) -> None:  # noqa: D102
        if self.pending:
            self._write()

    def _write(self) -> None:
        sys.stderr.write(f"{self.pending}\n")
        sys.stderr.flush()
        self.pending = ""


class Terminal:
    """One line that is rewritten, with a bar. Refreshed by the loop itself: no thread competes for the cores."""

    def __init__(self, total: int, console: Console) -> None:
        self.due, self.width, self.total = 0.0, console.width - _BAR - 2, total
        self.bar = Progress(
            BarColumn(bar_width=_BAR),
            TextColumn("{task.fields[text]}", markup=False),
            console=console,
            auto_refresh=False,
        )
        self.task = self.bar.add_task("", total=total, text="")
        self.bar.start()

    def show(self, step: int, text: str) -> None:  # noqa: D102
        head = f"{100 * min(1.0, step / self.total):.1f} %  step {step:,}"
        self.bar.update(self.task, completed=step, text=fit(head, text, self.width))
        if time.monotonic() >= self.due:
            self.bar.refresh()
            self.due = time.monotonic() + SECONDS_BETWEEN_REFRESHES

    def close(self) -> None:  # noqa: D102
        self.bar.stop()  # refreshes once more and shows the cursor


def reporter(total: int, quiet: bool) -> Reporter:
    """The reporter that fits stderr: a terminal, a file, or none."""
    console = Console(stderr=True)
    if quiet:
        return Silent()
    return Terminal(total, console) if console.is_terminal else PlainLines(total)


class Pace:
    """Steps per second since the first step seen, and the time left."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.first: tuple[int, float] | None = None

    def text(self, step: int) -> str:
        """Such as "1,234 steps/s  0:12:34 left"; nothing before there is something to measure."""
        now = time.monotonic()
        if self.first is None:
            self.first = (step, now)
        done, seconds = step - self.first[0], now - self.first[1]
        if done <= 0 or seconds <= 0:
            return ""
        left = int(max(0, self.total - step) * seconds / done)
        return f"{done / seconds:,.0f} steps/s  {left // 3600}:{left // 60 % 60:02d}:{left % 60:02d} left"
