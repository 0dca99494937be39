"""Configs as JSON and back: every dataclass becomes a table with its `type`, and only known types come back.

Only types that belong in a place come back there: those its field is annotated with, or the table `kinds` in the
field's metadata. Nothing else is looked up by a name from a file.
"""

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from typing import Any, Protocol

from radial.core.agent import Agent, described
from radial.core.data import BadInput, EnvSpec
from radial.core.schedules import Constant

ROOT = "config"  # of a path such as config.objective.radius

# The largest sizes that a config on a card may ask for: a hundred times those of the recipes, or more.
STORED = {
    "num_envs": 4_096, "workers": 1_024, "batch": 65_536, "minibatch": 65_536, "chunk": 65_536, "rollout": 1 << 20,
    "epochs": 1_000, "replay_capacity": 10_000_000, "n_step": 1_000, "exploration_length": 10_000,
}  # fmt: skip


def encode(config: Any) -> dict[str, Any]:
    """A config as plain JSON values; what came `LATER` only where it is set, so that older runs and cards still fit."""
    named = {
        field.name: _plain(getattr(config, field.name)) for field in dataclasses.fields(config) if _said(config, field)
    }
    return {"type": type(config).__name__} | named


class Settings(Protocol):
    """Something with settings that belong into a run's config."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """Plain values."""


def recorded(config: Any, seed: int, init: Agent | None = None, guide: Settings | None = None) -> dict[str, Any]:
    """The record that a run keeps of itself, and must find again to be resumed.

    init  the agent it starts from        guide  the watched ramp of its schedules
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


def decode(kind: type, table: Mapping[str, Any], where: str = ROOT) -> Any:
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
    values = {key: _typed(_options(hints[key], fields[key]), given[key], f"{where}.{key}") for key in given}
    try:
        return kind(**values)
    except BadInput as error:  # a check of one of its fields, which says the field's name alone
        if where == ROOT or str(error).partition(" ")[0] not in fields:
            raise
        raise BadInput(f"{where}.{error}") from None


def check_stored(config: Any, where: str = ROOT) -> None:
    """Refuse a config from a file whose sizes would exhaust any machine; one that a person writes is their own."""
    for name, most in STORED.items():
        value = getattr(config, name, None)
        if value is not None and value > most:
            raise BadInput(f"{where}.{name} must be ≤ {most:,}, got {value:,}")


def _typed(options: tuple[Any, ...], value: Any, where: str) -> Any:
    """The value, if it is of one of the kinds that are allowed; tables must name a dataclass among them."""
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


def _options(hint: Any, field: dataclasses.Field[Any] | None = None) -> tuple[Any, ...]:
    """The kinds that a field allows: the table in its metadata, or what it is annotated with."""
    if field is not None and "kinds" in field.metadata:
        return tuple(field.metadata["kinds"].values())
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def _as(option: Any, value: Any, where: str) -> Any:
    """The value as one kind, or `_NO`."""
    # an integer beyond 64 bits need not have a float
    number = isinstance(value, float) or (type(value) is int and abs(value) < 1 << 63)
    if option is float and number:
        return float(value)
    if option is Constant and number:
        if not math.isfinite(value):
            raise BadInput(f"{where} must be a finite number, got {value!r}")
        return Constant(float(value))
    if option in (int, str, bool, type(None)) and type(value) is option:
        return value
    if typing.get_origin(option) is tuple and isinstance(value, list | tuple):
        options = _options(typing.get_args(option)[0])
        return tuple(_typed(options, item, f"{where}[{at}]") for at, item in enumerate(value))
    if typing.get_origin(option) is Mapping and isinstance(value, Mapping):
        options = _options(typing.get_args(option)[1])
        return {str(name): _typed(options, item, f"{where}.{name}") for name, item in value.items()}
    if option is EnvSpec and isinstance(value, Mapping):
        return decode(EnvSpec, value, where)
    return _NO
