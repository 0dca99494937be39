"""Configs as JSON and back: every dataclass becomes a table with its `type`, and only known types come back.

Which types are known at a place is what the field there is annotated with; nothing else is looked up by a name from a
file.
"""

import dataclasses
import types
import typing
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from radial.core.agent import described
from radial.training.ramp import Guide
from radial.core.data import BadInput, EnvSpec
from radial.core.schedules import Constant
from radial.objectives import policy_gradient as a3c, q_objectives as dqn, surrogate as ppo

LATER = MappingProxyType({"later": True})  # metadata of a field that older configs do not have


def encode(config: Any) -> dict[str, Any]:
    """A config as plain JSON values; what came `LATER` only where it is set, so that older runs and cards still fit."""
    named = {
        field.name: _plain(getattr(config, field.name)) for field in dataclasses.fields(config) if _said(config, field)
    }
    return {"type": type(config).__name__} | named


def recorded(config: Any, seed: int, init: Any = None, guide: Guide | None = None) -> dict[str, Any]:
    """What a run writes down of itself, and must find again to go on.

    init  the agent it starts from        guide  who watches its ramp
    """
    origin = {} if init is None else {"init": described(init.card)}
    return {"seed": seed, **encode(config), **origin} | ({} if guide is None else {"guide": guide.settings})


def _said(config: Any, field: dataclasses.Field[Any]) -> bool:
    return not field.metadata.get("later") or getattr(config, field.name) != field.default


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return encode(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple | list) else value


def decode(kind: type, table: Mapping[str, Any], where: str = "config") -> Any:
    """A config of this kind from JSON values; unknown keys, missing keys and wrong types are named."""
    fields = {field.name: field for field in dataclasses.fields(kind)}
    hints = typing.get_type_hints(kind)
    given = {key: value for key, value in table.items() if key != "type"}
    for key in given:
        if key not in fields:
            raise BadInput(f"{where}.{key} is not a setting of {kind.__name__}; known: {', '.join(fields) or 'none'}")
    for name, field in fields.items():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and name not in given:
            raise BadInput(f"{where}.{name} is missing")
    return kind(**{key: _typed(hints[key], value, f"{where}.{key}") for key, value in given.items()})


def _typed(hint: Any, value: Any, where: str) -> Any:
    """The value, if it is of the kind that is hinted at; tables must name a dataclass that belongs there."""
    options = _options(hint)
    tables: dict[str, type] = {option.__name__: option for option in options if hasattr(option, "__dataclass_fields__")}
    if isinstance(value, Mapping) and "type" in value and tables:
        if not isinstance(value["type"], str) or value["type"] not in tables:
            raise BadInput(f"{where}.type must be one of {', '.join(tables)}, got {value['type']!r}")
        return decode(tables[value["type"]], value, where)
    for option in options:
        found = _as(option, value, where)
        if found is not _NO:
            return found
    names = ", ".join(getattr(option, "__name__", str(option)) for option in options)
    raise BadInput(f"{where} must be {names.replace('NoneType', 'none')}, got {value!r}")


_NO = object()


def _options(hint: Any) -> tuple[Any, ...]:
    for room in (a3c, dqn, ppo):
        if hint is room.Objective:
            return tuple(room.OBJECTIVES.values())
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def _as(option: Any, value: Any, where: str) -> Any:
    """The value as one kind, or `_NO`."""
    # an integer beyond 64 bits need not have a float
    number = isinstance(value, float) or (type(value) is int and abs(value) < 1 << 63)
    if option is float and number:
        return float(value)
    if option is Constant and number:
        return Constant(float(value))
    if option in (int, str, bool, type(None)) and type(value) is option:
        return value
    if typing.get_origin(option) is tuple and isinstance(value, list | tuple):
        kind = typing.get_args(option)[0]
        return tuple(_typed(kind, item, f"{where}[{at}]") for at, item in enumerate(value))
    if typing.get_origin(option) is Mapping and isinstance(value, Mapping):
        return dict(value)
    if option is EnvSpec and isinstance(value, Mapping):
        return decode(EnvSpec, value, where)
    return _NO
