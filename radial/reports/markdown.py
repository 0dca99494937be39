"""A reproduced table as text: one grid for terminals and Markdown, and the page around it.

The numbers come from `recipes.reproduce`; nothing is computed here but their spelling.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence

from radial.recipes.recipe import recipe
from radial.workflows.protocol import LABELS, SEED, Column
from radial.workflows.reproduce import WIDTH, Entry, Line, Result
from radial.workflows.seeds import deciding

MARKS = {"within": "≈", "above": "▲", "below": "▼"}
EMPTY = "–"
KEY = f"≈ ours is within {WIDTH:g} combined standard errors of the paper, ▲ above, ▼ below, {EMPTY} not evaluated."
SEEDS = "± of one seed is over its episodes; of all seeds it is the standard error over trainings."
UNKNOWN = f"{EMPTY} in a line of the paper: not reported; a number of ours without a mark: the paper gives no error."


def grid(result: Result) -> tuple[list[str], list[list[str]]]:
    """Headings and rows: of each agent first the paper's line, then ours with a mark in each cell.

    An extra row has only ours, compared with the paper's row of the same method; so has a table without a paper.
    """
    reported = result.table.reported
    headings = ["task", "agent", "", *(column.label for column in result.table.columns), *(["match"] * reported)]
    rows = []
    for line in result.lines:
        paper = [number(entry.paper.mean, entry.paper.sem, entry.column) for entry in line.entries]
        match = [_matches(line)] * reported
        ours = ["ours", *(_ours(entry) for entry in line.entries), *match]
        if line.row.extra or not line.row.reported:  # what the paper says stands above, or nowhere
            rows.append([line.row.task, _agent(line), *ours])
            continue
        rows.append([line.row.task, _agent(line), "paper", *paper, ""])
        rows.append(["", "", *ours])
    return headings, rows


def number(mean: float | None, sem: float | None, column: Column | None = None) -> str:
    """Mean ± standard error with one decimal, as the paper prints it; shares with three, and what is missing as –."""
    digits = 3 if column is not None and column.share else 1
    if mean is None:
        return EMPTY
    return f"{mean:.{digits}f}" if sem is None else f"{mean:.{digits}f} ± {sem:.{digits}f}"


def _ours(entry: Entry) -> str:
    if entry.ours is None:
        return EMPTY
    return f"{number(entry.ours.mean, entry.ours.sem, entry.column)} {MARKS.get(str(entry.match), '')}".rstrip()


def _agent(line: Line) -> str:
    """What it is called, with what tells it apart: the levels it was trained on; the steps of a reduced one."""
    levels = "" if line.row.levels is None else f", {line.row.levels} levels"
    steps = "" if line.row.beside is None or line.agent is None else f", {line.agent.steps:,} steps"
    return f"{line.row.agent}{levels}{steps}"


def _matches(line: Line) -> str:
    """How many cells of each mark, such as "3 ≈, 1 ▼"."""
    found = [entry.match for entry in line.entries]
    return ", ".join(f"{found.count(match)} {mark}" for match, mark in MARKS.items() if match in found) or EMPTY


def markdown(result: Result) -> str:
    """The page: what was run, the table, our agents and their scale, what is missing, what differs."""
    parts = [f"# {result.table.title}", _about(result), aligned(*grid(result)), *_key(result)]
    agents = _agents(result)
    parts += ["## Our agents", aligned(*agents)] if agents[1] else []
    seeds = _every_seed(result)
    parts += ["## Every seed", SEEDS, aligned(*seeds)] if seeds[1] else []
    notes = [f"- {line.row.task} {line.row.agent}: {line.note}." for line in result.lines if line.note]
    parts += ["## Empty cells", "\n".join(notes)] if notes else []
    differs = _differs(result)
    heading = "## Known deviations from the paper" if result.table.reported else "## Known deviations"
    parts += [heading, "\n".join(differs)] if differs else []
    return "\n\n".join(parts) + "\n"


def _key(result: Result) -> list[str]:
    """What the marks mean, those that are there."""
    if not result.table.reported:
        return [f"{EMPTY} not evaluated."]
    cells = [cell for row in result.table.rows for cell in row.paper]
    return [KEY] if all(cell.sem is not None for cell in cells) else [f"{KEY} {UNKNOWN}"]


def _about(result: Result) -> str:
    table = result.table
    evaluated = [line for line in result.lines if any(entry.ours for entry in line.entries)]
    engines = sorted({_engine(line) for line in evaluated})
    what = f"{table.source}, each cell beside our own. Ours is played" if table.reported else "our agents, played"
    ours = (
        f"`radial reproduce {table.name}`: {what} with "
        f"{result.episodes} episodes, evaluation seed {SEED}, {table.acts}"
        f"{' on ' + ' and '.join(engines) if engines else ''}; ε is in {table.units}. "
        f"{table.notes + ' ' if table.notes else ''}"
        f"± is the standard error over the episodes of one agent, not over trainings. Of several seeds that agent is "
        f"the median: {result.rule}."
    )
    return ours + (" The paper reports one agent and does not say how it was chosen." if table.reported else "")


def _agents(result: Result) -> tuple[list[str], list[list[str]]]:
    attack = LABELS[deciding(recipe(result.table.rows[0].recipe)).attack]
    headings = [
        "agent",
        "steps",
        "seed",
        "seeds trained",
        f"each seed: nominal / {attack} at the training ε",
        "commit",
        "weights",
    ]
    rows: dict[str, list[str]] = {}  # an agent may stand in several rows of a table
    for line in result.lines:
        if line.agent is not None:
            agent = line.agent
            rows[agent.name] = [
                agent.name, f"{agent.steps:,}", _or_empty(agent.seed), _or_empty(len(agent.seeds) or None),
                _seeds(line), (agent.commit or EMPTY)[:10], agent.sha256[:12],
            ]  # fmt: skip
    return headings, list(rows.values())


def _every_seed(result: Result) -> tuple[list[str], list[list[str]]]:
    """Each trained seed in each column, then all of them together; where a table asks."""
    columns = result.table.columns
    rows = []
    for line in result.lines:
        seeds = line.agent.seeds if line.agent is not None and result.table.every_seed else {}
        for seed, scores in seeds.items():
            found = [(scores.get(column.label, {}), column) for column in columns]
            rows.append([line.row.agent, seed, *(number(one.get("mean"), one.get("sem"), c) for one, c in found)])
        if len(seeds) > 1:
            rows.append([line.row.agent, "all", *(_over_seeds(seeds.values(), column) for column in columns)])
    return ["agent", "seed", *(column.label for column in columns)], rows


def _over_seeds(seeds: Iterable[Mapping[str, Mapping[str, float]]], column: Column) -> str:
    """Mean of the seeds' means ± its standard error, which is that over trainings: s/√n, s with n − 1."""
    means = [scores[column.label]["mean"] for scores in seeds if column.label in scores]
    if len(means) < 2:
        return EMPTY
    return number(statistics.mean(means), statistics.stdev(means) / math.sqrt(len(means)), column)


def _seeds(line: Line) -> str:
    """Each seed's means, such as "0: 3500 / 3010", nominal first and then what decides."""
    assert line.agent is not None
    shown = []
    for seed, scores in line.agent.seeds.items():
        found = [score["mean"] for score in list(scores.values())[:2]]
        shown.append(f"{seed}: " + " / ".join(f"{mean:.0f}" for mean in found))
    return "; ".join(shown) or EMPTY


def _engine(line: Line) -> str:
    assert line.agent is not None
    return ", ".join([" ".join(list(line.agent.engine.values())[:2]), *list(line.agent.engine.values())[2:]])


def _differs(result: Result) -> list[str]:
    """Each sentence once, with the recipes it holds for unless it holds for all of them."""
    holds: dict[str, list[str]] = {}
    lines = {line.row.recipe: line for line in result.lines if line.agent is not None}
    for name, line in lines.items():
        for sentence in line.differs:
            holds.setdefault(sentence, []).append(name)
    return [
        f"- {sentence}" + ("" if len(recipes) == len(lines) else f" ({', '.join(recipes)})")
        for sentence, recipes in holds.items()
    ]


def _or_empty(value: int | None) -> str:
    return EMPTY if value is None else str(value)


def aligned(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose columns also line up as plain text."""
    widths = [max(len(row[i]) for row in [headings, *rows]) for i in range(len(headings))]
    lines = [headings, ["-" * width for width in widths], *rows]
    padded = [[cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in padded)
