"""Several `radial` commands at once, each a process of its own: at most so many at a time, stopped together.

The commands themselves are not known here.
"""

import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from types import FrameType

from radial.commands.terminal import say

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def run_all(commands: Mapping[str, Sequence[str]], jobs: int) -> None:
    """Run `radial` with each list of arguments, tell what each one says, and exit non-zero if any fails.

    A signal is passed on to those that run, and no other is started; the exit code is then 128 + its number.
    """
    children = _Children(dict(commands))
    before = {number: signal.signal(number, children.receive) for number in SIGNALS}
    try:
        failed = children.run(jobs)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if children.signal is not None:
        sys.exit(128 + children.signal)
    if failed:
        say(f"radial: {len(failed)} of {len(commands)} failed: {', '.join(failed)}")
        sys.exit(1)


class _Children:
    def __init__(self, commands: dict[str, Sequence[str]]) -> None:
        self.waiting = deque(commands.items())
        self.running: dict[str, subprocess.Popen[str]] = {}
        self.ended = threading.Condition()
        self.signal: int | None = None

    def receive(self, number: int, frame: FrameType | None) -> None:
        """Pass a signal on."""
        self.signal = number
        for process in list(self.running.values()):
            process.send_signal(number)

    def run(self, jobs: int) -> list[str]:
        """Work through all of them; the names of those that failed."""
        failed: list[str] = []
        while self.running or (self.waiting and self.signal is None):
            while self.waiting and len(self.running) < jobs and self.signal is None:
                self.start(*self.waiting.popleft())
            with self.ended:
                # A time limit, because a wait without one would keep Python from running signal handlers.
                self.ended.wait(timeout=0.2)
            for name, process in list(self.running.items()):
                if process.poll() is not None:
                    del self.running[name]
                    say(f"{name}: {'done' if process.returncode == 0 else f'ended with code {process.returncode}'}")
                    failed += [name] if process.returncode else []
        return failed

    def start(self, name: str, arguments: Sequence[str]) -> None:
        """A process with one thread, in a session of its own: a terminal's Ctrl-C must reach it once, through us."""
        process = subprocess.Popen(
            [sys.executable, "-m", "radial", *arguments],
            env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": str(80 - len(f"{name}: "))},  # its lines get a prefix
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self.running[name] = process
        if self.signal is not None:  # it came between the two
            process.send_signal(self.signal)
        threading.Thread(target=self._listen, args=(name, process), daemon=True).start()

    def _listen(self, name: str, process: "subprocess.Popen[str]") -> None:
        assert process.stderr is not None
        for line in process.stderr:
            if line.strip():
                say(f"{name}: {line.rstrip()}")
        process.wait()
        with self.ended:
            self.ended.notify()
