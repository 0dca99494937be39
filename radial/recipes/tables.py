"""The papers' tables as data: which recipe's agent stands in which row, and which attacks are its columns.

The tables are in `tables.toml`, most of their numbers with the recipes; how one is filled is in `reproduce`.
"""

import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from radial.core.data import BadInput
from radial.recipes.protocol import Column
from radial.recipes.recipe import Cell, nearest, parse_radius, recipe

FILE = "tables.toml"


@dataclass(frozen=True)
class Row:
    """An agent in a table: what it is called there, who trains ours, and what the paper's scored in each column.

    extra  not in the paper, which is quoted from the row of the same method; shown where we have the agent
    """

    task: str
    agent: str
    recipe: str
    paper: tuple[Cell, ...]
    extra: bool


@dataclass(frozen=True)
class Table:
    """A table of a paper."""

    name: str
    title: str
    source: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]

    def chosen(self, only: Collection[str]) -> tuple[Row, ...]:
        """The rows of these tasks and recipes, all of them where none are named."""
        known = dict.fromkeys(name for row in self.rows for name in (row.task.lower(), row.recipe))
        for name in only:
            if name.lower() not in known:
                hint = nearest(name, known)
                raise BadInput(f"--only takes tasks and recipes of {self.name}, got {name!r}{hint}: {', '.join(known)}")
        wanted = {name.lower() for name in only} or set(known)
        return tuple(row for row in self.rows if row.recipe in wanted or row.task.lower() in wanted)


@cache
def TABLES() -> Mapping[str, Table]:
    """All tables by name."""
    book = tomllib.loads((Path(__file__).parent / FILE).read_text(encoding="utf-8"))
    return MappingProxyType({name: _table(name, facts) for name, facts in book.items()})


def table(name: str) -> Table:
    """The table of this name."""
    if name not in TABLES():
        raise BadInput(f"table must be one of {', '.join(TABLES())}, got {name!r}{nearest(name, TABLES())}")
    return TABLES()[name]


def _table(name: str, facts: Mapping[str, Any]) -> Table:
    columns = tuple(Column(column["attack"], parse_radius(column["radius"])) for column in facts["columns"])
    rows = tuple(
        Row(row["task"], row["agent"], row["recipe"], _paper(row, columns), row.get("extra", False))
        for row in facts["rows"]
    )
    return Table(name, facts["title"], facts["source"], columns, rows)


def _paper(row: Mapping[str, Any], columns: tuple[Column, ...]) -> tuple[Cell, ...]:
    if "paper" in row:
        numbers = zip(columns, row["paper"], strict=True)
        return tuple(Cell(column.attack, column.radius, mean, sem) for column, (mean, sem) in numbers)
    cells = {(cell.attack, cell.radius): cell for cell in recipe(row["recipe"]).paper}
    return tuple(cells[column.attack, column.radius] for column in columns)
