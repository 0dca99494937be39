"""`reproduce`: a paper's table, every cell beside our own agent's.

Which cells there are is in `tables`, how one is played in `protocol`, how the result is shown in `reports`.
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
from radial.recipes.tables import Row, Table
from radial.workflows.book import SCORES, Book
from radial.workflows.protocol import SEED, Column, Score, Subject, Watch, silent
from radial.workflows.seeds import (
    deciding,
    how_to_train,
    plain,
    rule,
    score_seeds,
    seeds_on_card,
    subjects_of,
    summarize_seeds,
)

WIDTH = 2.0  # combined standard errors within which two means match


@dataclass(frozen=True)
class Entry:
    """One cell: the paper's number, which may be empty, and ours, None where there is none."""

    column: Column
    paper: Cell
    ours: Score | None

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
        if abs(gap) <= WIDTH * math.hypot(self.ours.sem, self.paper.sem):
            return "within"
        return "above" if gap > 0 else "below"


@dataclass(frozen=True)
class Trained:
    """Our agent of a row.

    seeds    what each trained seed scored; empty: not known
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
    """A table with what was found."""

    table: Table
    episodes: int
    lines: tuple[Line, ...]

    @property
    def rule(self) -> str:
        """How of several seeds one is chosen, in words."""
        return rule(deciding(recipe(self.table.rows[0].recipe)))

    def document(self) -> dict[str, Any]:
        """Everything but the evaluations, as JSON."""
        return {
            "table": self.table.name,
            "title": self.table.title,
            "source": self.table.source,
            "protocol": {"episodes": self.episodes, "seed": SEED, "chosen by": self.rule, "match": f"{WIDTH:g} SEM"},
            "rows": [line.to_json() for line in self.lines],
        }

    def to_json(self) -> dict[str, Any]:
        """Everything, with the evaluations that the cells name."""
        scores = [entry.ours for line in self.lines for entry in line.entries if entry.ours is not None]
        return {**self.document(), SCORES: {score.key: dict(score.facts) for score in scores}}

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
    watch: Watch = silent,
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
        if agent is None and row.extra and row.recipe not in only:
            continue
        lines.append(_line(table, row, agent, book, row in chosen))
    result = Result(table, episodes, tuple(lines))
    book.save(result.document())
    return result


def _agent(table: Table, row: Row, runs: Sequence[Path] | None, book: Book) -> tuple[Subject, Mapping[str, Any]] | None:
    """Our agent for a row, and what the seeds it was chosen among scored."""
    if runs is not None:
        made_by, subjects = subjects_of(runs)
        by, more = deciding(made_by), table.columns if table.every_seed else ()
        summary = summarize_seeds(score_seeds(subjects, by, book.measure, more), by)
        return subjects[summary["chosen"]], summary["seeds"]
    if row.recipe not in zoo_names():
        return None
    subject = resident(row.recipe)
    return subject, seeds_on_card(subject.card)


def resident(name: str) -> Subject:
    """The zoo's agent of a recipe."""
    subject, wanted = Subject(f"zoo/{name}", zoo_folder() / name), recipe(name).config.env
    if subject.card.env != wanted:
        raise BadInput(f"{subject.name} must act in {wanted}, its card says {subject.card.env}")
    return subject


def _line(table: Table, row: Row, found: tuple[Subject, Mapping[str, Any]] | None, book: Book, play: bool) -> Line:
    if found is None:
        scores: list[Score | None] = [None] * len(table.columns)
        missing = f"no agent zoo/{row.recipe}: {how_to_train(recipe(row.recipe))}"
        return Line(row, None, _entries(table, row, scores), missing)
    subject, seeds = found[0].elsewhere(row.options), found[1]
    scores = [book.measure(subject, column) if play else book.find(subject, column) for column in table.columns]
    note = f"not evaluated yet: `radial reproduce {table.name} --only {row.recipe}`" if None in scores else None
    agent = Trained(
        subject.name, subject.card.steps, subject.card.seed, seeds, subject.card.commit, subject.sha256,
        subject.engine, _changed(subject, row.recipe),
    )  # fmt: skip
    return Line(row, agent, _entries(table, row, scores), note)


def _entries(table: Table, row: Row, scores: Sequence[Score | None]) -> tuple[Entry, ...]:
    return tuple(Entry(*cell) for cell in zip(table.columns, row.paper, scores, strict=True))


def _changed(subject: Subject, name: str) -> tuple[str, ...]:
    """The settings, by dotted path, in which an agent's training is not the recipe's of today."""
    today = _leaves(plain(recipe(name).config))
    then = _leaves(subject.card.recipe.get("config") or {})
    return tuple(sorted(key for key in today.keys() | then.keys() if today.get(key, ...) != then.get(key, ...)))


def _leaves(value: Any, path: str = "") -> dict[str, Any]:
    """Nested tables as one level, such as {"env.id": …}."""
    if not isinstance(value, dict):
        return {path: value}
    leaves: dict[str, Any] = {}
    for name, inner in value.items():
        leaves |= _leaves(inner, f"{path}.{name}" if path else name)
    return leaves
