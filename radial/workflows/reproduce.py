"""`reproduce`: a paper's table, every cell beside our own agent's.

Which cells there are is in `recipes.tables`, how one is evaluated in `protocol`, how the result is shown in `reports`.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from radial.agents.zoo import zoo_folder, zoo_names
from radial.core.checks import check_whole
from radial.core.data import BadInput
from radial.recipes.recipe import Cell, recipe
from radial.recipes.tables import LABELS, Column, Row, Table
from radial.workflows.protocol import EVALUATIONS, SEED, Book, CellResult, EvaluatedAgent, Watcher, silent
from radial.workflows.seeds import (
    agents_of,
    card_config,
    evaluate_seeds,
    how_to_train,
    seeds_on_card,
    selection_column,
    selection_rule,
    summarize_seeds,
    trained_with,
)

MATCH_WIDTH = 2.0  # combined standard errors within which two means match


@dataclass(frozen=True)
class Entry:
    """One cell: the paper's number, which may be empty, and ours, None where there is none."""

    column: Column
    paper: Cell
    ours: CellResult | None

    @property
    def match(self) -> str | None:
        """Ours is "within" 2·√(SEM² + SEM²) of the paper's, "above" or "below"; None where a number is missing.

        One episode has no standard error, so it matches nothing.
        """
        if (
            self.ours is None
            or self.paper.mean is None
            or self.paper.sem is None
            or self.ours.facts.get("episodes") == 1
        ):
            return None
        gap = self.ours.mean - self.paper.mean
        if abs(gap) <= MATCH_WIDTH * math.hypot(self.ours.sem, self.paper.sem):
            return "within"
        return "above" if gap > 0 else "below"


@dataclass(frozen=True)
class Trained:
    """Our agent of a row.

    seeds    the results of each trained seed by column; empty: not known
    changed  settings in which its training differs from the recipe as it is now
    """

    name: str
    steps: int
    seed: int | None
    seeds: Mapping[str, Any]
    commit: str | None
    sha256: str
    engine: Mapping[str, str]
    changed: tuple[str, ...]


@dataclass(frozen=True)
class Line:
    """One row of a result."""

    row: Row
    agent: Trained | None
    entries: tuple[Entry, ...]
    note: str | None  # why cells are empty

    @property
    def differs(self) -> tuple[str, ...]:
        """Every known deviation from the paper."""
        if self.agent is None:
            return ()
        changed = self.agent.changed
        more = (f"It was trained when the recipe had other settings: {', '.join(changed)}.",) if changed else ()
        return recipe(self.row.recipe).differs + more

    def to_json(self) -> dict[str, Any]:
        """Plain values; an evaluation is named by its key."""
        return {
            "task": self.row.task,
            "agent": self.row.agent,
            "recipe": self.row.recipe,
            **({} if self.row.options is None else {"options": dict(self.row.options)}),
            **({} if self.row.levels is None else {"levels": self.row.levels}),
            "extra": self.row.extra,
            "ours": None if self.agent is None else {**vars(self.agent), "changed": list(self.agent.changed)},
            "cells": [
                {
                    "attack": entry.column.attack,
                    "radius": entry.column.radius,
                    "paper": {"mean": entry.paper.mean, "sem": entry.paper.sem},
                    "ours": entry.ours
                    and {"mean": entry.ours.mean, "sem": entry.ours.sem, "evaluation": entry.ours.key},
                    "match": entry.match,
                }
                for entry in self.entries
            ],
            "note": self.note,
            "differs": list(self.differs),
        }


@dataclass(frozen=True)
class Result:
    """A table with our results."""

    table: Table
    episodes: int
    lines: tuple[Line, ...]

    @property
    def selected_by(self) -> Column:
        """The column by which one of several seeds is chosen."""
        return selection_column(recipe(self.table.rows[0].recipe))

    def document(self) -> dict[str, Any]:
        """Everything but the evaluations, as JSON."""
        return {
            "table": self.table.name,
            "title": self.table.title,
            "source": self.table.source,
            "protocol": {
                "episodes": self.episodes,
                "seed": SEED,
                "chosen by": selection_rule(self.selected_by),
                "match": f"{MATCH_WIDTH:g} SEM",
            },
            "rows": [line.to_json() for line in self.lines],
        }

    def to_json(self) -> dict[str, Any]:
        """Everything, with the evaluations that the cells name."""
        found = [entry.ours for line in self.lines for entry in line.entries if entry.ours is not None]
        return {**self.document(), EVALUATIONS: {one.key: dict(one.facts) for one in found}}

    def report(self) -> dict[str, Any]:
        """Plain data for `reports`: the document, and the words that a page or a figure puts around it."""
        rows = [
            {**line.to_json(), "reported": line.row.reported, "reduced": line.row.beside is not None}
            for line in self.lines
        ]
        columns = [
            {"key": column.key, "label": column.label, "radius": column.radius, "share": column.share}
            for column in self.table.columns
        ]
        return {
            **self.document(),
            "rows": rows,
            "columns": columns,
            "acts": self.table.acts,
            "units": self.table.units,
            "notes": self.table.notes,
            "every_seed": self.table.every_seed,
            "reported": self.table.reported,
            "errors_reported": all(cell.sem is not None for row in self.table.rows for cell in row.paper),
            "match_width": MATCH_WIDTH,
            "selected_under": LABELS[self.selected_by.attack],
        }

    def only(self, names: Collection[str]) -> "Result":
        """The lines of these tasks and recipes."""
        rows = self.table.chosen(names)
        return Result(self.table, self.episodes, tuple(line for line in self.lines if line.row in rows))


def reproduce(
    table: Table,
    out: Path,
    *,
    only: Collection[str] = (),
    runs: Mapping[str, Sequence[Path]] | None = None,
    episodes: int | None = None,
    fresh: bool = False,
    watch: Watcher = silent,
) -> Result:
    """Fill a table. Every cell is saved in `out/NAME.json` when it is finished, and not played again.

    only      tasks and recipes to evaluate; the other rows show what is known of them already
    runs      finished runs by recipe, one per seed: their median is the agent. None for a recipe: the zoo's
    episodes  per cell; None: as many as the paper's
    fresh     play again what is known
    """
    episodes = table.episodes if episodes is None else episodes
    check_whole("episodes", episodes, 1)
    chosen = table.chosen(only)
    book = Book(out / f"{table.name}.json", episodes=episodes, fresh=fresh, watch=watch)
    found = {row.recipe: _agent(table, row, (runs or {}).get(row.recipe), book) for row in table.rows}
    lines = []
    for row in table.rows:
        agent = found[row.recipe]
        if agent is None and row.extra and not row.listed and row.recipe not in only:
            continue
        lines.append(_line(table, row, agent, book, row in chosen))
    result = Result(table, episodes, tuple(lines))
    book.save(result.document())
    return result


def _agent(
    table: Table, row: Row, runs: Sequence[Path] | None, book: Book
) -> tuple[EvaluatedAgent, Mapping[str, Any]] | None:
    """Our agent for a row, and the results of the seeds it was chosen among."""
    if runs is not None:
        made_by, agents = agents_of(runs)
        by, more = selection_column(made_by), table.columns if table.every_seed else ()
        summary = summarize_seeds(evaluate_seeds(agents, by, book.measure, more), by)
        return agents[summary["chosen"]], summary["seeds"]
    if row.recipe not in zoo_names():
        return None
    agent = resident(row.recipe)
    return agent, seeds_on_card(agent.card)


def resident(name: str) -> EvaluatedAgent:
    """The zoo's agent of a recipe."""
    agent, wanted = EvaluatedAgent(f"zoo/{name}", zoo_folder() / name), recipe(name).config.env
    if agent.card.env != wanted:
        raise BadInput(f"{agent.name} must act in {wanted}, its card says {agent.card.env}")
    return agent


def _line(
    table: Table, row: Row, found: tuple[EvaluatedAgent, Mapping[str, Any]] | None, book: Book, play: bool
) -> Line:
    if found is None:
        results: list[CellResult | None] = [None] * len(table.columns)
        missing = f"no agent zoo/{row.recipe}: {how_to_train(recipe(row.recipe))}"
        return Line(row, None, _entries(table, row, results), missing)
    agent, seeds = found[0].elsewhere(row.options), found[1]
    config = recipe(row.recipe).config
    results = [book.measure(agent, column) if play else book.find(agent, column) for column in table.columns]
    note = f"not evaluated yet: `radial reproduce {table.name} --only {row.recipe}`" if None in results else None
    trained = Trained(
        agent.name, agent.card.steps, agent.card.seed, seeds, agent.card.commit, agent.sha256, agent.engine,
        changed_settings(card_config(config), trained_with(agent.card, config)),
    )  # fmt: skip
    return Line(row, trained, _entries(table, row, results), note)


def _entries(table: Table, row: Row, results: Sequence[CellResult | None]) -> tuple[Entry, ...]:
    return tuple(Entry(*cell) for cell in zip(table.columns, row.paper, results, strict=True))


def changed_settings(today: Mapping[str, Any], then: Mapping[str, Any], path: str = "") -> tuple[str, ...]:
    """The settings, by dotted path, in which two configs differ; a table that only one of them has counts once."""
    changed: list[str] = []
    for name in sorted(today.keys() | then.keys()):
        now, before = today.get(name, ...), then.get(name, ...)
        if isinstance(now, Mapping) and isinstance(before, Mapping):
            changed += changed_settings(now, before, f"{path}{name}.")
        elif now != before and not (now in ({}, ...) and before in ({}, ...)):
            changed.append(path + name)
    return tuple(changed)
