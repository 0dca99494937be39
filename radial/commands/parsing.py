"""Parsing apart from running: arguments that tyro refuses become one line, like every other bad input.

The table of commands is in `cli`; their own checks are in their own files.
"""

import functools
import inspect
import io
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from typing import Any

import tyro
from tyro.extras import SubcommandApp

from radial.commands.limits import check_arguments, check_limits
from radial.core.data import BadInput

FRAME = "│╭╮╰╯"  # the box that tyro draws around its errors
RULE = "─"
HUNGRY = ("--radius", "--attacks")  # take all that follows, an agent included
DETAIL = "Got errors:"  # begins a list of every type that was tried


def later(command: Callable[..., None]) -> Callable[..., Callable[[], None]]:
    """The command with its arguments bound, to be run once parsing is over and the terminal is its own again."""
    names = inspect.signature(command)

    @functools.wraps(command)
    def bind(*args: Any, **settings: Any) -> Callable[[], None]:
        def run() -> None:
            check_limits(names.bind(*args, **settings).arguments)
            command(*args, **settings)

        return run

    return bind


def parse(app: SubcommandApp, arguments: Sequence[str] | None, description: str) -> Callable[[], None]:
    """The command that the arguments ask for, ready to run; BadInput carries the message of arguments tyro refuses."""
    check_arguments(sys.argv[1:] if arguments is None else arguments)
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
        given = sys.argv[1:] if arguments is None else arguments
        eater = next((each for each in given if each in HUNGRY), None) if "(required)" in said.getvalue() else None
        hint = "" if eater is None else f"; put the agent before {eater}"
        raise BadInput(one_line(said.getvalue()) + hint) from None
    return command


def flat(groups: Sequence[Sequence[str]]) -> list[str]:
    """All values of an option that takes several and may be given several times."""
    return [text for group in groups for text in group]


def one_line(box: str) -> str:
    """The text in one of tyro's boxes, without its frame, its title and the pointer to the full --help."""
    rows = [row.strip(FRAME + " ") for row in box.splitlines()]
    body = [row for row in rows[1:-1] if row and not row.startswith((RULE, "For full helptext", "radial "))]
    text = " ".join(body)
    for cut in (DETAIL, "Argument helptext:", "Arguments are applied to"):
        text = text.partition(cut)[0]
    text = text.strip()
    return f"{text[:1].lower()}{text[1:].rstrip('.')}; see radial --help"
