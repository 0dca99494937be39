"""Recipes: a row of a paper's table as a config, with the paper's numbers and every known deviation.

The settings are in the TOML files beside this one; how a config is trained is in `workflows.train`.
"""

import dataclasses
import math
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

from radial.core.checks import brief
from radial.core.data import BadInput
from radial.core.text import nearest
from radial.recipes.book import books, check_recipe
from radial.runs.config import decode, encode
from radial.training.a3c import A3CConfig
from radial.training.ddpg import DDPGConfig
from radial.training.dqn import DQNConfig
from radial.training.ppo import PPOConfig

Config = PPOConfig | DQNConfig | A3CConfig | DDPGConfig
ALGORITHMS: dict[str, type[PPOConfig] | type[DQNConfig] | type[A3CConfig] | type[DDPGConfig]] = {
    "ppo": PPOConfig,
    "dqn": DQNConfig,
    "a3c": A3CConfig,
    "ddpg": DDPGConfig,
}
MAX_DEPTH = 32  # levels of a setting, in its path or its value
NONE = "none"  # how a recipe, or --set, says that a setting has no value: TOML has no word of its own for it
# The keys of a table that are no settings.
OURS = ("base", "task", "method", "differs", "paper", "radius", "algorithm", "starts_from", "judge")


@dataclass(frozen=True)
class Cell:
    """One number of a paper: the mean over its episodes, ± its standard error; None where it does not say."""

    attack: str  # a key of ATTACKS, or of CERTIFICATES
    radius: float
    mean: float | None = None
    sem: float | None = None


@dataclass(frozen=True)
class Recipe:
    """A training by name.

    radius   ε at the end of the ramp; for a plain training, the ε that its task is trained and attacked with elsewhere
    paper    the numbers the paper reports; empty where it reports none
    differs  every known deviation from the paper or its code, one sentence each
    init     the recipe whose agent this training starts from (`--init`); None: trained from scratch
    judge    the attack and radius under which its seeds are compared; None: the attack its paper reports, at `radius`
    """

    name: str
    config: Config
    radius: float
    paper: tuple[Cell, ...]
    differs: tuple[str, ...]
    init: str | None = None
    judge: Cell | None = None


@cache
def RECIPES() -> Mapping[str, Recipe]:
    """All recipes by name."""
    found: dict[str, Recipe] = {}
    for book in books().values():
        found |= {name: _recipe(book, name) for name in book["recipe"]}
    return MappingProxyType(found)


def recipe(name: str) -> Recipe:
    """The recipe of this name."""
    check_recipe(name)
    return RECIPES()[name]


def parse_radius(text: str | float) -> float:
    """A radius as people write it, "0.075" or "3/255", as a number."""
    parts = str(text).split("/")
    try:
        value = float(parts[0]) / (float(parts[1]) if len(parts) > 1 else 1.0)
    except (ValueError, ZeroDivisionError):
        value = math.nan
    if len(parts) > 2 or not (math.isfinite(value) and value >= 0):
        raise BadInput(f"radius must be a finite number ≥ 0 such as 0.075 or 3/255, got {text!r}")
    return value


# ------------------------------------------------------------------------------------------------- from the TOML file


def _recipe(book: Mapping[str, Any], name: str) -> Recipe:
    """Task, then method, then the recipe's own lines: later ones win, sentences add up."""
    row = book["recipe"][name]
    table = _merged(_merged(_based(book["task"], row["task"]), _based(book["method"], row["method"])), row)
    radius = parse_radius(table["radius"])
    settings = {key: _without_none(value) for key, value in table.items() if key not in OURS}
    schedule = settings["objective"].get("radius")
    if schedule is not None:
        schedule["value" if schedule["type"] == "Constant" else "end"] = radius
    return Recipe(
        name,
        decode(ALGORITHMS[table["algorithm"]], settings, name),
        radius,
        _cells(book["paper"], row["paper"]) if "paper" in row else (),
        tuple(table.get("differs", [])),
        f"{row['task']}-{table['starts_from']}" if "starts_from" in table else None,
        Cell(table["judge"]["attack"], parse_radius(table["judge"]["radius"])) if "judge" in table else None,
    )


def _cells(paper: Mapping[str, Any], row: str) -> tuple[Cell, ...]:
    return tuple(
        Cell(column["attack"], parse_radius(column["radius"]), *numbers)
        for column, numbers in zip(paper["columns"], paper["rows"][row], strict=True)
    )


def _based(tables: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A table laid over the one it names as its `base`."""
    table = tables[name]
    return _merged(_based(tables, table["base"]) if "base" in table else {}, table)


def _merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Tables merge key by key, `differs` adds up, anything else is replaced; "none" replaces a table as a whole."""
    both = {key: dict(value) if isinstance(value, Mapping) else value for key, value in under.items()}
    for key, value in over.items():
        if isinstance(value, Mapping):
            below = both.get(key)
            both[key] = _merged(below if isinstance(below, Mapping) else {}, value)
        else:
            both[key] = [*both.get(key, []), *value] if key == "differs" else value
    return both


def _without_none(value: Any) -> Any:
    """The word "none" as None, in a table and everything inside it."""
    if isinstance(value, Mapping):
        return {key: _without_none(item) for key, item in value.items()}
    return None if value == NONE else value


# -------------------------------------------------------------------------------------------------- changes to a config


def with_steps(config: Config, steps: int) -> Config:
    """The same training in `steps` env steps: ramps, and learning, begin and end at the same share of the whole."""
    if steps < 1:
        raise BadInput(f"steps must be a whole number ≥ 1, got {steps}")
    share = steps / config.total_steps
    return dataclasses.replace(_stretched(config, share), total_steps=steps)


def _stretched(value: Any, share: float) -> Any:
    """A dataclass with every point in time inside it times `share`."""
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(value):
        inner = getattr(value, field.name)
        if field.name in ("first_step", "last_step"):
            changes[field.name] = inner * share
        elif field.name in ("learning_starts", "value_first"):
            changes[field.name] = round(inner * share)
        elif dataclasses.is_dataclass(inner):
            changes[field.name] = _stretched(inner, share)
    return dataclasses.replace(value, **changes)


def with_settings(config: Config, settings: Collection[str]) -> Config:
    """A config with some settings replaced, each written "dotted.path=value" with a value as in TOML.

    Text need not be quoted: `objective.bound=crown-ibp`. A table replaces a table as a whole; "none" unsets.
    """
    table = encode(config)
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals or not setting.isprintable():
            raise BadInput(f"--set takes key=value, got {setting!r}")
        *parents, last = path.strip().split(".")
        if len(parents) >= MAX_DEPTH:
            raise BadInput(f"--set takes at most {MAX_DEPTH} levels, got {len(parents) + 1:,}")
        place = table
        for at, parent in enumerate(parents):
            if not isinstance(place.get(parent), dict):
                raise BadInput(f"--set {path}: {'.'.join(parents[: at + 1])} has no settings{nearest(parent, place)}")
            place = place[parent]
        # A key that the table does not hold yet (an option of an env, say) is for `decode` to judge.
        place[last] = _bounded(_value(text.strip()), path)
    return decode(type(config), table, "config")


def _value(text: str) -> Any:
    """A TOML value, or the text itself where it is none of TOML's; "none" is the absence of a value."""
    if text == NONE:
        return None
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    except (RecursionError, ValueError):  # thousands of brackets; thousands of digits
        raise BadInput(f"--set takes {MAX_DEPTH} levels and integers of 64 bits at most, got {brief(text)}") from None


def _bounded(value: Any, path: str, depth: int = 0) -> Any:
    """The value, with integers of 64 bits, as TOML has them, and at most `MAX_DEPTH` levels."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if depth > MAX_DEPTH or (isinstance(value, int) and not -(1 << 63) <= value < 1 << 63):
        raise BadInput(f"--set {brief(path)} takes {MAX_DEPTH} levels and integers of 64 bits at most")
    for each in inside:
        _bounded(each, path, depth + 1)
    return value
