"""`reproduce`: a paper's table, every cell beside our own agent's.

Which cells there are is in `recipes.tables`, how one is evaluated in `protocol`, how the result is shown in `reports`.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from radial.agents.zoo import zoo_folder, zoo_names
from radial.cluster import Place
from radial.core.checks import check_whole
from radial.core.data import BadInput
from radial.evaluation.play import spec_of
from radial.recipes.recipe import Cell, recipe
from radial.recipes.tables import LABELS, Column, Row, Table
from radial.workflows.cell_jobs import play_missing
from radial.workflows.protocol import (
    ADVERSARIES,
    EVALUATIONS,
    SEED,
    Book,
    CellResult,
    EvaluatedAgent,
    Watcher,
    result_key,
    silent,
)
from radial.workflows.seeds import (
    agents_of,
    card_config,
    evaluate_seeds,
    how_to_train,
    seed_columns,
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
        if self.agent is None or self.row.file is not None:
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
            **({} if self.row.file is None else {"file": self.row.file}),
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
            {
                "key": column.key,
                "label": column.label,
                "radius": column.radius,
                "share": column.share,
                "distance": column.distance,
            }
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
    learned: bool = False,
    fits: Path | None = None,
    released: Path | None = None,
    place: Place | None = None,
    storage: str | None = None,
    say: Callable[[str], None] | None = None,
) -> Result:
    """Fill a table. Every cell is saved in `out/NAME.json` when it is finished, and not played again.

    only      tasks and recipes to evaluate; the other rows show what is known of them already
    runs      finished runs by recipe, one per seed: their median is the agent. None for a recipe: the zoo's
    episodes  per cell; None: as many as the paper's
    fresh     play again what is known
    learned   also play the columns of adversaries that learn, for many minutes per agent
    fits      where these adversaries are kept to be used again
    released  the folder of agents that others released; None: their rows say that it is missing
    place     where cells are played; None: here, one after the other
    storage   a shared folder or a URI for a copy of the results
    say       gets a line for each cell that ended elsewhere
    """
    episodes = table.episodes if episodes is None else episodes
    check_whole("episodes", episodes, 1)
    chosen = table.chosen(only)
    book = Book(out / f"{table.name}.json", episodes=episodes, fresh=fresh, watch=watch, storage=storage)
    where = place or Place()
    play_missing(book, _cells_of_seeds(table, runs or {}), where, say)
    makers = {row.recipe: row for row in table.rows if row.file is None}
    found = {name: _agent(table, row, (runs or {}).get(name), book) for name, row in makers.items()}
    waits = tuple(column for column in table.columns if column.attack in ADVERSARIES and not learned)
    ours = [(found[row.recipe], row.options) for row in chosen if row.file is None]
    agents = [agent[0].elsewhere(options) for agent, options in ours if agent is not None]
    columns = [column for column in table.columns if column.attack not in ADVERSARIES]
    play_missing(book, [(agent, column) for agent in agents for column in columns], where, say)
    lines = []
    for row in table.rows:
        agent = found[row.recipe] if row.file is None else _released(row, released)
        if agent is None and row.extra and not row.listed and row.recipe not in only and row.file is None:
            continue
        if agent is not None:
            agent[0].fits = fits
        lines.append(_line(table, row, agent, book, row in chosen, waits))
    result = Result(table, episodes, tuple(lines))
    book.save(result.document())
    return result


def _cells_of_seeds(table: Table, runs: Mapping[str, Sequence[Path]]) -> Iterator[tuple[EvaluatedAgent, Column]]:
    """What each trained seed is evaluated in, so that one can be chosen."""
    for folders in runs.values():
        made_by, agents = agents_of(folders)
        columns = seed_columns(selection_column(made_by), _of_every_seed(table))
        yield from ((agent, column) for agent in agents.values() for column in columns)


def _of_every_seed(table: Table) -> list[Column]:
    """The columns that every trained seed is evaluated in; adversaries that learn meet the median alone."""
    return [column for column in table.columns if table.every_seed and column.attack not in ADVERSARIES]


def _agent(
    table: Table, row: Row, runs: Sequence[Path] | None, book: Book
) -> tuple[EvaluatedAgent, Mapping[str, Any]] | None:
    """Our agent for a row, and the results of the seeds it was chosen among."""
    if runs is not None:
        made_by, agents = agents_of(runs)
        by = selection_column(made_by)
        summary = summarize_seeds(evaluate_seeds(agents, by, book.measure, _of_every_seed(table)), by)
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


def _released(row: Row, folder: Path | None) -> tuple[EvaluatedAgent, Mapping[str, Any]] | None:
    """An agent that others released, where its file lies; None: it is not there."""
    path = None if folder is None or row.file is None else folder / row.file
    if path is None or not path.is_file():
        return None
    return EvaluatedAgent(path.name, path, env=recipe(row.recipe).config.env), {}


def _line(
    table: Table, row: Row, found: tuple[EvaluatedAgent, Mapping[str, Any]] | None, book: Book, play: bool,
    waits: Sequence[Column] = (),
) -> Line:  # fmt: skip
    """A row with our results. play: new ones too, but in the columns that wait."""
    if found is None and row.file is not None:
        return _remembered(table, row, book)
    if found is None:
        missing = f"no agent zoo/{row.recipe}: {how_to_train(recipe(row.recipe), row.seeds or '0-2')}"
        return Line(row, None, _entries(table, row, [None] * len(table.columns)), missing)
    agent, seeds = found[0].elsewhere(row.options), found[1]
    config = recipe(row.recipe).config
    results = [
        book.measure(agent, column) if play and column not in waits else book.find(agent, column)
        for column in table.columns
    ]
    more = (" --learned" if waits else "") + (" --released DIR" if row.file is not None else "")
    note = f"not evaluated yet: `radial reproduce {table.name} --only {row.recipe}{more}`" if None in results else None
    changed = changed_settings(card_config(config), trained_with(agent.card, config)) if row.file is None else ()
    trained = Trained(
        agent.name, agent.card.steps, agent.card.seed, seeds, agent.card.commit, agent.sha256, agent.engine, changed
    )
    return Line(row, trained, _entries(table, row, results), note)


def _remembered(table: Table, row: Row, book: Book) -> Line:
    """The row of a released agent whose file is not here: what is known of the one that was evaluated last."""
    past = next((past["ours"] for past in book.rows() if past.get("file") == row.file and past["ours"]), None)
    results: list[CellResult | None] = [None] * len(table.columns)
    if past is not None:
        env = spec_of(recipe(row.recipe).config.env)
        keys = [result_key(past["sha256"], env, past["engine"], column, book.episodes) for column in table.columns]
        results = [book.known(key) for key in keys]
    absent = f"the file {row.file} is not here: pass the folder of released agents with --released"
    agent = None if past is None else Trained(**{**past, "changed": tuple(past["changed"])})
    return Line(row, agent, _entries(table, row, results), absent if None in results else None)


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
