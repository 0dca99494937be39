"""Argument checks shared by all rooms: of a number by its name, or of named fields of a config, with one-line errors.

Absence is None; the annotation of a field decides whether it may be absent.
"""

import math
from functools import cache
from numbers import Integral, Real
from typing import get_args, get_type_hints

from radial.core.errors import BadInput

MOST_ENVS, MOST_THREADS = 10_000, 1_024  # of one vector env


def check_whole(name: str, value: int, least: int, most: int | None = None) -> int:
    """Return the number as a Python int, NumPy's integers included; `BadInput` unless it is whole, ≥ least and ≤ most.

    most  None: any size
    """
    if not is_whole(value, least):
        raise BadInput(f"{name} must be a whole number ≥ {least}, got {brief(value)}")
    if most is not None:
        check_most(name, value, most)
    return int(value)


def check_most(name: str, value: int, most: int) -> None:
    """`BadInput` if the number is larger than `most`."""
    if value > most:
        raise BadInput(f"{name} must be at most {most:,}, got {brief(value)}")


def brief(value: object) -> str:
    """The value as text for a message, cut to 80 characters; Python refuses to write integers of 4,300 digits."""
    if isinstance(value, int) and abs(value) >= 10**40:
        return "a number of more than 40 digits"
    text = " ".join(repr(value).split())  # that of a tensor has several lines
    return text if len(text) <= 80 else f"{text[:79]}…"


def is_whole(value: object, least: int) -> bool:
    """Whether the value is a whole number ≥ least; True and False do not count as numbers."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def whole(config: object, *names: str, least: int = 1) -> None:
    """Require whole numbers ≥ least."""
    for name, value in _given(config, names):
        check_whole(name, value, least)  # type: ignore[arg-type]


def positive(config: object, *names: str) -> None:
    """Require finite numbers > 0."""
    for name, value in _given(config, names):
        if not (is_finite(value) and value > 0):  # type: ignore[operator]
            raise BadInput(f"{name} must be finite and > 0, got {value!r}")


def not_negative(config: object, *names: str) -> None:
    """Require finite numbers ≥ 0."""
    for name, value in _given(config, names):
        if not (is_finite(value) and value >= 0):  # type: ignore[operator]
            raise BadInput(f"{name} must be finite and ≥ 0, got {value!r}")


def share(config: object, *names: str) -> None:
    """Require numbers in [0, 1]."""
    for name, value in _given(config, names):
        if not (is_finite(value) and 0 <= value <= 1):  # type: ignore[operator]
            raise BadInput(f"{name} must lie in [0, 1], got {value!r}")


def sizes(config: object, *names: str) -> None:
    """Require non-empty tuples of whole numbers ≥ 1."""
    for name, value in _given(config, names):
        if not is_sizes(value):
            raise BadInput(f"{name} must be sizes ≥ 1 such as (64, 64), got {value!r}")


def is_sizes(value: object) -> bool:
    """Whether the value is a non-empty list or tuple of whole numbers ≥ 1."""
    return isinstance(value, list | tuple) and bool(value) and all(is_whole(each, 1) for each in value)


def kind(config: object, name: str, wanted: type) -> None:
    """Require an instance of `wanted`."""
    for _, value in _given(config, (name,)):
        if not isinstance(value, wanted):
            raise BadInput(f"{name} must be of type {wanted.__name__}, got {value!r}")


def _given(config: object, names: tuple[str, ...]) -> list[tuple[str, object]]:
    """The fields to check: a field that is None is left out if its annotation allows None."""
    optional = _optional(type(config))  # type: ignore[arg-type]
    return [(name, value) for name in names if (value := getattr(config, name)) is not None or name not in optional]


@cache
def _optional(config: type) -> frozenset[str]:
    """The fields whose type admits None."""
    return frozenset(name for name, hint in get_type_hints(config).items() if type(None) in get_args(hint))


def is_finite(value: object) -> bool:
    """Whether the value is a finite real number, NumPy's included; True and False do not count as numbers."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
