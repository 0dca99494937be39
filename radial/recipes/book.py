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
    "ddpg.toml",
)


@cache
def books() -> Mapping[str, Mapping[str, Any]]:
    """The tables of each file."""
    folder = Path(__file__).parent
    return {file: _unfolded(tomllib.loads((folder / file).read_text(encoding="utf-8"))) for file in FILES}


def _unfolded(book: dict[str, Any]) -> dict[str, Any]:
    """A file with the recipes of its grids written out: each task with each method, TASK-METHOD by name.

    Methods are a list, or a table where a recipe is not called by the method's own name.
    """
    own, unfolded = book.get("recipe", {}), dict[str, dict[str, Any]]()
    for grid in book.pop("grid", []):
        methods = grid["methods"] if isinstance(grid["methods"], dict) else {name: name for name in grid["methods"]}
        for task in grid["tasks"]:
            unfolded |= {f"{task}-{name}": {"task": task, "method": method} for name, method in methods.items()}
    named = {name: unfolded.pop(name, {}) | lines for name, lines in own.items()}
    return book | {"recipe": {**unfolded, **named}}


def check_recipe(name: str) -> None:
    """Refuse a name of no recipe."""
    names = [known for book in books().values() for known in book["recipe"]]
    if name not in names:
        raise BadInput(f"unknown recipe {name!r} (`radial recipes` lists them){nearest(name, names)}")
