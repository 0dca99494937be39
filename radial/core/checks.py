"""Checks that all rooms share: of a number by its name, or of named fields of a config; one line says what is wrong.

Absence is None; whether a field may be absent is for its type to say.
"""

import math
from dataclasses import fields
from numbers import Integral, Real

from radial.core.data import BadInput


def check_whole(name: str, value: int, least: int) -> int:
    """The number as Python's own, NumPy's integers included; a BadInput for what is no whole number ≥ least."""
    if not is_whole(value, least):
        raise BadInput(f"{name} must be a whole number ≥ {least}, got {value!r}")
    return int(value)


def is_whole(value: object, least: int) -> bool:
    """Whether it is a whole number ≥ least; True and False are none."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def whole(config: object, *names: str, least: int = 1) -> None:
    """Whole numbers ≥ least."""
    for name, value in _given(config, names):
        check_whole(name, value, least)  # type: ignore[arg-type]


def positive(config: object, *names: str) -> None:
    """Finite numbers > 0."""
    for name, value in _given(config, names):
        if not (is_finite(value) and value > 0):  # type: ignore[operator]
            raise BadInput(f"{name} must be finite and > 0, got {value!r}")


def not_negative(config: object, *names: str) -> None:
    """Finite numbers ≥ 0."""
    for name, value in _given(config, names):
        if not (is_finite(value) and value >= 0):  # type: ignore[operator]
            raise BadInput(f"{name} must be finite and ≥ 0, got {value!r}")


def share(config: object, *names: str) -> None:
    """Numbers in [0, 1]."""
    for name, value in _given(config, names):
        if not (is_finite(value) and 0 <= value <= 1):  # type: ignore[operator]
            raise BadInput(f"{name} must lie in [0, 1], got {value!r}")


def sizes(config: object, *names: str) -> None:
    """Tuples of whole numbers ≥ 1, at least one."""
    for name, value in _given(config, names):
        if not is_sizes(value):
            raise BadInput(f"{name} must be sizes ≥ 1 such as (64, 64), got {value!r}")


def is_sizes(value: object) -> bool:
    """Whether it is a list or tuple of whole numbers ≥ 1, and not empty."""
    return isinstance(value, list | tuple) and bool(value) and all(is_whole(each, 1) for each in value)


def kind(config: object, name: str, wanted: type) -> None:
    """An instance of `wanted`."""
    for _, value in _given(config, (name,)):
        if not isinstance(value, wanted):
            raise BadInput(f"{name} must be of type {wanted.__name__}, got {value!r}")


def _given(config: object, names: tuple[str, ...]) -> list[tuple[str, object]]:
    """The fields that are to be checked: those that are None stay out where their type says that they may be."""
    absent = {field.name for field in fields(config) if "None" in str(field.type)}  # type: ignore[arg-type]
    return [(name, value) for name in names if (value := getattr(config, name)) is not None or name not in absent]


def is_finite(value: object) -> bool:
    """Whether it is a finite real number, NumPy's included; True and False are none."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
