"""Parsing apart from running: arguments that tyro refuses become one line, like every other bad input.

The table of commands is in `cli`; their own checks are in their own files. What all of them share is added here: whole
numbers as people write them, `--import`, and an agent that must be there before anything slow is imported.
"""

import functools
import inspect
import io
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo
from tyro.extras import SubcommandApp

from radial.commands.limits import check_arguments, check_limits
from radial.core.checks import brief
from radial.core.errors import BadInput
from radial.core.text import nearest

FRAME = "│╭╮╰╯"  # the box that tyro draws around its errors
RULE = "─"
HUNGRY = ("--radius", "--attacks")  # take all that follows, an agent included
DETAIL = "Got errors:"  # begins a list of every type that was tried
MOST_DIGITS = 30  # of a whole number
PLAYS = ("agent", "env", "recipe", "runs", "table")  # a command with one of these arguments makes environments
IMPORT = tyro.conf.arg(
    name="import",
    help="a module, or a .py file, that registers your own Gymnasium environments; repeatable.",
)
REGISTRY = ConstructorRegistry()


def parse_norm(p: str) -> float:
    """The p of a norm."""
    if p not in ("1", "2", "inf"):
        raise BadInput(f"p must be 1, 2 or inf, got {p!r}")
    return float(p)


def later(command: Callable[..., None]) -> Callable[..., Callable[[], None]]:
    """The command with its arguments bound, to be run once parsing is over and the terminal is its own again.

    A command that makes environments takes `--import` as well.
    """
    names = inspect.signature(command)
    plays = any(name in names.parameters for name in PLAYS)

    @functools.wraps(command)
    def bind(*args: Any, import_: tuple[str, ...] = (), **settings: Any) -> Callable[[], None]:
        def run() -> None:
            bound = names.bind(*args, **settings).arguments
            check_limits(bound)
            _check_agent(bound.get("agent"))
            if not plays:
                command(*args, **settings)
                return
            from radial.envs.custom import imported

            with imported(import_):
                command(*args, **settings)

        return run

    if plays:
        kind = tyro.conf.UseAppendAction[Annotated[tuple[str, ...], IMPORT]]
        more = inspect.Parameter("import_", inspect.Parameter.KEYWORD_ONLY, default=(), annotation=kind)
        bind.__signature__ = names.replace(parameters=[*names.parameters.values(), more])  # type: ignore[attr-defined]
        bind.__annotations__ = {**command.__annotations__, "import_": kind}
        del bind.__wrapped__  # tyro would ask the command itself
    return bind


def _check_agent(agent: object) -> None:
    """Refuse a path or a name of no agent now, and not after seconds of imports; an address is for the command."""
    if isinstance(agent, str) and "://" not in agent:
        from radial.agents.zoo import resolve

        resolve(agent)


def check_names(arguments: Sequence[str], known: Mapping[str, Sequence[str]]) -> None:
    """Refuse a command that is none, with the nearest one. known: the commands, each with those below it."""
    first = arguments[0] if arguments else "--"
    if not first.startswith("-") and first not in known:
        raise BadInput(f"unknown command {brief(first)}: one of {', '.join(known)}{nearest(first, known)}")
    below = known.get(first, ())
    second = arguments[1] if below and len(arguments) > 1 else "--"
    if not second.startswith("-") and second not in below:
        raise BadInput(
            f"unknown command {brief(f'{first} {second}')}: one of {', '.join(below)}{nearest(second, below)}"
        )


@REGISTRY.primitive_rule
def whole_numbers(kind: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[int] | None:
    """How tyro reads whole numbers, in every command: 100000, 100_000 or 1e5."""
    if kind.type is not int:
        return None
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="INT",
        instance_from_str=lambda texts: whole_number(texts[0]),
        is_instance=lambda value: isinstance(value, int),
        str_from_instance=lambda value: [str(value)],
    )


def whole_number(text: str) -> int:
    """The whole number of "100000", "100_000" or "1e5"; ValueError for 1.5, and for more digits than can be meant."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise ValueError(f"{text!r} is not a whole number") from None
    if not value.is_finite() or value.adjusted() > MOST_DIGITS or value != value.to_integral_value():
        raise ValueError(f"{text!r} is not a whole number")
    return int(value)


def parse(app: SubcommandApp, arguments: Sequence[str], description: str) -> Callable[[], None]:
    """The command that the arguments ask for, ready to run; BadInput carries the message of arguments tyro refuses."""
    check_arguments(arguments)
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            command: Callable[[], None] = app.cli(
                prog="radial",
                description=description,
                args=arguments,
                config=(tyro.conf.FlagCreatePairsOff,),
                registry=REGISTRY,
            )
    except SystemExit as end:
        if end.code != 2:
            sys.stderr.write(said.getvalue())
            raise
        eater = next((each for each in arguments if each in HUNGRY), None) if "(required)" in said.getvalue() else None
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
