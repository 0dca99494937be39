"""The TOML files of the recipes and the names in them, apart from `recipe`: a mistyped name need not wait for torch."""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from radial.core.errors import BadInput
from radial.core.text import nearest

FILES = (
    "mujoco.toml",
    "atari.toml",
    "atari_small.toml",
    "atari_a3c.toml",
    "atari_ppo.toml",
    "procgen.toml",
    "classic.toml",
)


@cache
def books() -> Mapping[str, Mapping[str, Any]]:
    """The tables of each file."""
    folder = Path(__file__).parent
    return {file: _unfolded(tomllib.loads((folder / file).read_text(encoding="utf-8"))) for file in FILES}


def _unfolded(book: dict[str, Any]) -> dict[str, Any]:
    """A file with the recipes of its grids written out: each task with each method, TASK-METHOD by name."""
    own = book.get("recipe", {})
    cells = [(task, method) for grid in book.pop("grid", []) for task in grid["tasks"] for method in grid["methods"]]
    unfolded = {f"{task}-{method}": {"task": task, "method": method} for task, method in cells}
    named = {name: unfolded.pop(name, {}) | lines for name, lines in own.items()}
    return book | {"recipe": {**unfolded, **named}}


def check_recipe(name: str) -> None:
    """Refuse a name of no recipe."""
    names = [known for book in books().values() for known in book["recipe"]]
    if name not in names:
        raise BadInput(f"unknown recipe {name!r} (`radial recipes` lists them){nearest(name, names)}")
