"""The largest values that the command line takes, by the name of the option, checked before a command runs.

The smallest ones, and which values go together, are for each command to check.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

from radial.core.checks import MOST_ENVS, MOST_THREADS, check_most
from radial.core.errors import BadInput

MAX_ARGUMENT = 4_096  # characters
MAX_NAME = 255  # bytes of a file's name, on every usual file system
MOST = {
    "seed": (1 << 63) - 1,
    "steps": 10**12,
    "episodes": 1_000_000,
    "num_envs": MOST_ENVS,
    "threads": MOST_THREADS,
    "jobs": 1_024,
    "budget": 10**9,
    "horizon": 10**9,
    "rounds": 1_000_000,
    "repeats": 1_000_000,
}
NOT_NAMES = ("set", "seeds", "require")  # texts that name no file and no agent


def check_arguments(arguments: Sequence[str]) -> None:
    """Refuse an argument too long to be meant, before anything parses it."""
    option = "argument"
    for argument in arguments:
        if len(argument) > MAX_ARGUMENT:
            shown = repr(argument[:40])
            raise BadInput(f"{option}: at most {MAX_ARGUMENT:,} characters, got {len(argument):,}: {shown} …")
        option = argument if argument.startswith("--") else option


def check_limits(options: Mapping[str, Any]) -> None:
    """Refuse numbers beyond `MOST` and names that no file can have."""
    for option, value in options.items():
        if is_dataclass(value):  # options that several commands share
            check_limits(vars(value))
        if option in MOST and isinstance(value, int):  # an audit's budget is minutes, and may be infinite
            check_most(option, value, MOST[option])
        if option not in NOT_NAMES:
            for name in _names(value):
                _check_name(option, name)


def _names(value: object) -> Iterator[str]:
    """Every text and path in an option's value."""
    if isinstance(value, str | Path):
        yield str(value)
    elif isinstance(value, tuple):
        for each in value:
            yield from _names(each)


def _check_name(option: str, name: str) -> None:
    for part in name.split("/"):
        if len(part.encode(errors="replace")) > MAX_NAME:
            raise BadInput(
                f"{option}: a name has at most {MAX_NAME} bytes, got {len(part):,} characters: {part[:40]!r} …"
            )
