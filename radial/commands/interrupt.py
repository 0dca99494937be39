"""Ctrl-C while the `radial` command still imports: exit code 130 and not a word.

This module is imported first, before the parser and the commands; once a command runs, which imports torch, Ctrl-C is
KeyboardInterrupt again. Where the package is imported as a library, nothing changes.
"""

import os
import signal
import sys
import threading
from types import FrameType

COMMANDS = ("radial", "radial.exe")


def is_command() -> bool:
    """Whether this process is the `radial` command, by its script or by `python -m radial`."""
    script = sys.argv[0] if getattr(sys, "argv", None) else ""  # an embedded interpreter has none
    if script != "-m":
        return os.path.basename(script) in COMMANDS
    words = sys.orig_argv
    return "-m" in words[:-1] and words[words.index("-m") + 1] == "radial"


def begin() -> None:
    """Let Ctrl-C end the process at once, if it is the command and nobody else handles the signal."""
    ours = is_command() and threading.current_thread() is threading.main_thread()
    if ours and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


def end() -> None:
    """Give Ctrl-C its usual meaning again."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(number: int, frame: FrameType | None) -> None:
    os._exit(128 + number)


begin()
