"""Parsing apart from running: what tyro refuses becomes one line, like every other bad input.

Which commands there are is in `cli`; what they refuse themselves is in their own files.
"""

import functools
import io
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from typing import Any

import tyro
from tyro.extras import SubcommandApp

from radial.core.data import BadInput

FRAME = "│╭╮╰╯"  # the box that tyro draws around its errors
RULE = "─"
DETAIL = "Got errors:"  # begins a list of every type that was tried


def later(command: Callable[..., None]) -> Callable[..., Callable[[], None]]:
    """The command with its arguments bound, to be run once parsing is over and the terminal is its own again."""

    @functools.wraps(command)
    def bind(*args: Any, **settings: Any) -> Callable[[], None]:
        return functools.partial(command, *args, **settings)

    return bind


def parse(app: SubcommandApp, arguments: Sequence[str] | None, description: str) -> Callable[[], None]:
    """The command that the arguments ask for, ready to run; BadInput says what tyro says of arguments it refuses."""
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            command: Callable[[], None] = app.cli(
                prog="radial", description=description, args=arguments, config=(tyro.conf.FlagCreatePairsOff,)
            )
    except SystemExit as end:
        if end.code != 2:
            sys.stderr.write(said.getvalue())
            raise
        raise BadInput(one_line(said.getvalue())) from None
    return command


def one_line(box: str) -> str:
    """What a box of tyro's says, without its frame, its title and the pointer to --help's whole text."""
    rows = [row.strip(FRAME + " ") for row in box.splitlines()]
    body = [row for row in rows[1:-1] if row and not row.startswith((RULE, "For full helptext", "radial "))]
    text = " ".join(body)
    for cut in (DETAIL, "Argument helptext:", "Arguments are applied to"):
        text = text.partition(cut)[0]
    text = text.strip()
    return f"{text[:1].lower()}{text[1:].rstrip('.')}; see radial --help"
