"""The papers' tables as data: which recipe's agent stands in which row, and which attacks are its columns.

The tables are in `tables.toml`, most of their numbers with the recipes; how one is filled is in `workflows.reproduce`.
"""

import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from radial.core.data import BadInput
from radial.core.text import nearest, spell_radius
from radial.recipes.recipe import RECIPES, Cell, parse_radius, recipe

FILE = "tables.toml"
# Names of attacks and certificates in files and on cards: never to be changed. One not listed goes by its own name.
KEYS = {
    "none": "nominal", "mad": "MAD", "pgd": "PGD", "pgd-procgen": "PGD", "pgd-strong": "PGD strong", "fgsm": "FGSM",
    "gwc": "GWC", "acr": "ACR", "rs": "RS", "sarl": "SA-RL", "paad": "PA-AD", "linear": "linear",
}  # fmt: skip
LABELS = {**KEYS, "none": "clean"}  # what people read


@dataclass(frozen=True)
class Column:
    """An attack, or a certificate such as "gwc" or "acr", at a perturbation radius in network units.

    attack      a key of ATTACKS, or of the protocol's CERTIFICATES
    stochastic  the agent samples its actions
    """

    attack: str
    radius: float
    stochastic: bool = False

    @property
    def key(self) -> str:
        """Its name in files and on cards, such as "nominal", "MAD 0.075" or "PGD 1/255"."""
        return self._named(KEYS)

    @property
    def label(self) -> str:
        """Its name for people, such as "clean", "MAD 0.075" or "PGD 1/255"."""
        return self._named(LABELS)

    def _named(self, names: Mapping[str, str]) -> str:
        name = names.get(self.attack, self.attack)
        return name if self.attack == "none" else f"{name} {spell_radius(self.radius)}"

    @property
    def share(self) -> bool:
        """Whether its numbers are shares of steps, in [0, 1], and not returns."""
        return self.attack == "acr"

    @property
    def distance(self) -> bool:
        """Whether its numbers are distances of actions, and not returns."""
        return self.attack == "reach"


CLEAN = Column("none", 0.0)


def label_of(key: str) -> str:
    """The label of the column that files call by this key."""
    return CLEAN.label if key == CLEAN.key else key


@dataclass(frozen=True)
class Row:
    """An agent in a table: its name there, the recipe that trains ours, and the paper's result in each column.

    extra    not in the paper, which is quoted from the row of the same method; shown where we have the agent
    beside   the recipe of that row, where this one is a reduced form of it
    options  of the env it is played in, where that is not the one it was trained in
    levels   how many it was trained on, where rows differ in that
    seeds    that `--train` trains where none are given, such as "10-14"
    file     of an agent that others released, below the folder of such files: evaluated in place, never trained
    listed   an extra row that is shown without an agent as well, with the commands that train one
    """

    task: str
    agent: str
    recipe: str
    paper: tuple[Cell, ...]
    extra: bool
    beside: str | None = None
    options: Mapping[str, Any] | None = None
    levels: int | None = None
    seeds: str | None = None
    file: str | None = None
    listed: bool = False

    @property
    def reported(self) -> bool:
        """Whether the paper has a number for it."""
        return any(cell.mean is not None for cell in self.paper)


@dataclass(frozen=True)
class Table:
    """A table of a paper, or one of our own.

    source      where in the paper; empty: it is ours
    episodes    per cell
    acts        how our agents act, in words
    units       of ε, in words
    notes       further remarks on the protocol
    every_seed  every trained seed is evaluated, in every column but those of adversaries that learn
    """

    name: str
    title: str
    source: str
    episodes: int
    acts: str
    units: str
    notes: str
    every_seed: bool
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]

    @property
    def reported(self) -> bool:
        """Whether a paper has a number for any of its cells."""
        return any(row.reported for row in self.rows)

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


def table(name: str, others: Collection[str] = ()) -> Table:
    """The table of this name; `others` could have been meant as well."""
    if name not in TABLES():
        known = (*TABLES(), *others)
        raise BadInput(f"table must be one of {', '.join(known)}, got {name!r}{nearest(name, known)}")
    return TABLES()[name]


def _table(name: str, facts: Mapping[str, Any]) -> Table:
    sampled = facts.get("stochastic", False)
    columns = tuple(Column(column["attack"], _radius(column), sampled) for column in facts["columns"])
    rows = tuple(
        Row(
            row["task"], row["agent"], row["recipe"], _paper(row, columns), row.get("extra", False), row.get("beside"),
            row.get("options", facts.get("options")), row.get("levels"), row.get("seeds"), row.get("file"),
            row.get("listed", False),
        )
        for row in (_with_small(facts["rows"]) if facts.get("small") else facts["rows"])
    )  # fmt: skip
    return Table(
        name, facts["title"], facts.get("source", ""), facts["episodes"], facts["acts"], facts["units"],
        facts.get("notes", ""), facts.get("every_seed", False), columns, rows,
    )  # fmt: skip


def _with_small(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The rows of each task, then their reduced forms: TASK-METHOD by the recipe TASK-small-METHOD, where it is one."""
    known, written = RECIPES(), {row["recipe"] for row in rows}
    found: list[Mapping[str, Any]] = []
    for task in dict.fromkeys(row["task"] for row in rows):
        own = [row for row in rows if row["task"] == task]
        found += own
        for row in own:
            game, _, method = row["recipe"].partition("-")
            name = f"{game}-small-{method}"
            if name in known and name not in written:
                reduced = {"agent": f"{row['agent']}, small", "recipe": name, "extra": True, "listed": True}
                found.append({**row, **reduced, "beside": row["recipe"]})
    return found


def _radius(column: Mapping[str, str]) -> float:
    """The radius of a column: a number, or that of a recipe."""
    return recipe(column["radius_of"]).radius if "radius_of" in column else parse_radius(column["radius"])


def _paper(row: Mapping[str, Any], columns: tuple[Column, ...]) -> tuple[Cell, ...]:
    """The paper's number for each column: here, or with the recipe; empty where it does not say."""
    if "paper" in row:
        numbers = zip(columns, row["paper"], strict=True)
        return tuple(Cell(column.attack, column.radius, *given) for column, given in numbers)
    cells = {(cell.attack, cell.radius): cell for cell in recipe(row.get("beside", row["recipe"])).paper}
    return tuple(
        cells.get((column.attack, column.radius), Cell(column.attack, column.radius)) for column in columns
    )  # fmt: skip
