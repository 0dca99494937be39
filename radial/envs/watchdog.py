"""A watch over native calls: a step that never returns ends the process, with every stack on stderr.

The caller decides which calls are watched, and for how long.
"""

import faulthandler
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

EXIT_CODE = 70  # EX_SOFTWARE of sysexits.h
TICKS = 20  # looks per timeout


@contextmanager
def watched(timeout: float | None, what: str) -> Iterator[None]:
    """A `Watchdog` over one block; None: any time."""
    if timeout is None:
        yield
        return
    watchdog = Watchdog(timeout, what)
    try:
        with watchdog:
            yield
    finally:
        watchdog.stop()


class Watchdog:
    """`with watchdog: native_call()` ends the process if the call takes longer than `timeout` seconds.

    A native pool cannot be interrupted, so there is nothing to raise into: the stacks of all threads go to stderr and
    the process exits with code 70. Time is counted in looks of the watching thread, `TICKS` per timeout, so entering
    and leaving cost two assignments, and a process that was stopped for an hour and continued is not blamed. A call
    that hangs while it holds the interpreter's lock is not seen; EnvPool and MuJoCo release it.
    """

    def __init__(self, timeout: float, what: str) -> None:
        self.timeout = timeout
        self.what = what
        self._calls = 0  # how many were begun
        self._busy = False
        self._stop = threading.Event()
        threading.Thread(target=self._watch, name="radial-watchdog", daemon=True).start()

    def __enter__(self) -> None:
        self._calls += 1
        self._busy = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._busy = False

    def stop(self) -> None:
        """Let the watching thread end; twice is fine."""
        self._stop.set()

    def _watch(self) -> None:
        seen, looks = 0, 0
        while not self._stop.wait(self.timeout / TICKS):
            looks = looks + 1 if self._busy and self._calls == seen else 0
            seen = self._calls
            if looks >= TICKS:
                self._end()

    def _end(self) -> None:
        # File descriptor 2, not sys.stderr: that may be replaced, or locked by the very thread that hangs.
        os.write(2, f"radial: {self.what} took longer than {self.timeout:g} s; the process ends\n".encode())
        faulthandler.dump_traceback(file=2, all_threads=True)
        os._exit(EXIT_CODE)
