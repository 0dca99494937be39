"""A reproduced table as text: one grid for terminals and Markdown, and the page around it.

The numbers come from `recipes.reproduce`; nothing is computed here but their spelling.
"""

from collections.abc import Sequence

from radial.recipes.protocol import SEED
from radial.recipes.reproduce import WIDTH, Line, Result
from radial.recipes.seeds import RULE

MARKS = {"within": "≈", "above": "▲", "below": "▼"}
EMPTY = "–"
KEY = f"≈ ours is within {WIDTH:g} combined standard errors of the paper, ▲ above, ▼ below, {EMPTY} not evaluated."


def grid(result: Result) -> tuple[list[str], list[list[str]]]:
    """Headings and rows: of each agent first the paper's line, then ours with a mark in each cell.

    An extra row has only ours, compared with the paper's row of the same method.
    """
    headings = ["task", "agent", "", *(column.label for column in result.table.columns), "match"]
    rows = []
    for line in result.lines:
        paper = [number(entry.paper.mean, entry.paper.sem) for entry in line.entries]
        ours = [
            EMPTY if entry.ours is None else f"{number(entry.ours.mean, entry.ours.sem)} {MARKS[str(entry.match)]}"
            for entry in line.entries
        ]
        if line.row.extra:  # what the paper says stands above
            rows.append([line.row.task, line.row.agent, "ours", *ours, _matches(line)])
            continue
        rows.append([line.row.task, line.row.agent, "paper", *paper, ""])
        rows.append(["", "", "ours", *ours, _matches(line)])
    return headings, rows


def number(mean: float, sem: float) -> str:
    """Mean ± standard error with one decimal, as the paper prints it."""
    return f"{mean:.1f} ± {sem:.1f}"


def _matches(line: Line) -> str:
    """How many cells of each mark, such as "3 ≈, 1 ▼"."""
    found = [entry.match for entry in line.entries]
    return ", ".join(f"{found.count(match)} {mark}" for match, mark in MARKS.items() if match in found) or EMPTY


def markdown(result: Result) -> str:
    """The page: what was run, the table, our agents and their scale, what is missing, what differs."""
    parts = [f"# {result.table.title}", _about(result), _table(*grid(result)), KEY]
    agents = _agents(result)
    parts += ["## Our agents", _table(*agents)] if agents[1] else []
    notes = [f"- {line.row.task} {line.row.agent}: {line.note}." for line in result.lines if line.note]
    parts += ["## Empty cells", "\n".join(notes)] if notes else []
    differs = _differs(result)
    parts += ["## Known deviations from the paper", "\n".join(differs)] if differs else []
    return "\n\n".join(parts) + "\n"


def _about(result: Result) -> str:
    evaluated = [line for line in result.lines if any(entry.ours for entry in line.entries)]
    engines = sorted({_engine(line) for line in evaluated})
    return (
        f"`radial reproduce {result.table.name}`: {result.table.source}, each cell beside our own. Ours is played with "
        f"{result.episodes} episodes, evaluation seed {SEED}, the most likely action and a frozen normaliser"
        f"{' on ' + ' and '.join(engines) if engines else ''}; ε is in standard deviations of an observation. "
        f"± is the standard error over the episodes of one agent, not over trainings. Of several seeds that agent is "
        f"the median: {RULE}. The paper reports one agent and does not say how it was chosen."
    )


def _agents(result: Result) -> tuple[list[str], list[list[str]]]:
    headings = [
        "agent",
        "steps",
        "seed",
        "seeds trained",
        "each seed: nominal / MAD at the training ε",
        "commit",
        "weights",
    ]
    rows = []
    for line in result.lines:
        if line.agent is not None:
            agent = line.agent
            rows.append(
                [
                    agent.name, f"{agent.steps:,}", _or_empty(agent.seed), _or_empty(len(agent.seeds) or None),
                    _seeds(line), (agent.commit or EMPTY)[:10], agent.sha256[:12],
                ]
            )  # fmt: skip
    return headings, rows


def _seeds(line: Line) -> str:
    """Each seed's means, such as "0: 3500 / 3010", nominal first."""
    assert line.agent is not None
    shown = []
    for seed, scores in line.agent.seeds.items():
        found = [score["mean"] for score in scores.values()]
        shown.append(f"{seed}: " + " / ".join(f"{mean:.0f}" for mean in found))
    return "; ".join(shown) or EMPTY


def _engine(line: Line) -> str:
    assert line.agent is not None
    return ", ".join([" ".join(list(line.agent.engine.values())[:2]), *list(line.agent.engine.values())[2:]])


def _differs(result: Result) -> list[str]:
    """Each sentence once, with the recipes it holds for unless it holds for all of them."""
    holds: dict[str, list[str]] = {}
    lines = [line for line in result.lines if line.agent is not None]
    for line in lines:
        for sentence in line.differs:
            holds.setdefault(sentence, []).append(line.row.recipe)
    return [
        f"- {sentence}" + ("" if len(recipes) == len(lines) else f" ({', '.join(recipes)})")
        for sentence, recipes in holds.items()
    ]


def _or_empty(value: int | None) -> str:
    return EMPTY if value is None else str(value)


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose columns also line up as plain text."""
    widths = [max(len(row[i]) for row in [headings, *rows]) for i in range(len(headings))]
    lines = [headings, ["-" * width for width in widths], *rows]
    padded = [[cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in padded)
