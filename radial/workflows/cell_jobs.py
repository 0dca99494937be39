"""Cells of a table as jobs: those that a results file lacks are played side by side, and kept in it as each one ends.

How one is evaluated is in `protocol`; where jobs run in `cluster`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from radial.attacks import ATTACKS
from radial.cluster import Place
from radial.core.data import BadInput
from radial.envs.custom import import_inherited
from radial.evaluation.play import Aiming, Fittable
from radial.recipes.tables import Column
from radial.workflows.protocol import Book, CellResult, EvaluatedAgent, hashed


@dataclass(frozen=True, eq=False)
class CellsJob:
    """Cells of one agent: one column, or several whose attack learns once for all of them.

    agent  sent along, since its folder need not be there where the job runs
    keys   that the results must have: another simulator there would make them others
    """

    agent: EvaluatedAgent
    columns: tuple[Column, ...]
    episodes: int
    keys: tuple[str, ...]


def play_cells(job: CellsJob) -> list[Mapping[str, Any]]:
    """The facts of each cell, as JSON."""
    import_inherited()
    vars(job.agent).pop("engine", None)  # of the machine that sent it
    found = [job.agent.evaluate(column, job.episodes) for column in job.columns]
    if tuple(one.key for one in found) != job.keys:
        raise BadInput(f"this node has another simulator: {dict(job.agent.engine)}")
    return [one.facts for one in found]


def play_missing(
    book: Book, wanted: Iterable[tuple[EvaluatedAgent, Column]], place: Place, say: Callable[[str], None] | None = None
) -> None:
    """Play what the book lacks of these cells, and keep each when it ends; nothing where the place is this process."""
    if place.is_here:
        return
    groups: dict[tuple[int, str], tuple[EvaluatedAgent, list[Column]]] = {}
    for agent, column in wanted:
        if book.lacks(agent.key(column, book.episodes)):
            _, columns = groups.setdefault((id(agent), _group(column)), (agent, []))
            columns += [] if column in columns else [column]
    jobs = {
        f"{agent.name}, {', '.join(column.label for column in columns)}": CellsJob(
            agent, tuple(columns), book.episodes, tuple(hashed(agent.key(each, book.episodes)) for each in columns)
        )
        for agent, columns in groups.values()
    }
    place.each(play_cells, jobs, say, lambda found: book.add(*map(CellResult.of, found)))


def _group(column: Column) -> str:
    """Columns of one group share an attack that learns once for them; any other is a group of its own."""
    made = ATTACKS[column.attack]() if column.attack in ATTACKS else None
    once = isinstance(made, Fittable) and not isinstance(made, Aiming)
    return column.attack if once else column.key
