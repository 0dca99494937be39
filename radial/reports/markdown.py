"""Results as text: a reproduced table as a grid for terminals and Markdown, the page around it, and pages of figures.

Reads plain data: `Result.report()` of a table, `Drawn.document()` of a figure. Nothing is computed here but spelling.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence

from radial.core.text import round_down, round_up, spell_radius
from radial.reports.cells import EMPTY, Document, Grid

MARKS = {"within": "≈", "above": "▲", "below": "▼"}
_SEEDS = "± of one seed is over its episodes; of all seeds it is the standard error over training seeds."
_UNREPORTED = f"{EMPTY} in a line of the paper: not reported; one of ours without a mark: the paper gives no error."


# ------------------------------------------------------------------------------------------------------------- tables


def grid(result: Document) -> Grid:
    """Headings and rows: of each agent first the paper's line, then ours with a mark in each cell.

    An extra row has only ours, compared with the paper's row of the same method; so has a table without a paper.
    """
    reported, columns = bool(result["reported"]), result["columns"]
    headings = ["task", "agent", "", *(column["label"] for column in columns), *(["match"] * reported)]
    rows = []
    for line in result["rows"]:
        cells = list(zip(columns, line["cells"], strict=True))
        paper = [mean_sem(cell["paper"]["mean"], cell["paper"]["sem"], _fine(column)) for column, cell in cells]
        ours = ["ours", *(_ours(column, cell) for column, cell in cells), *([_matches(line)] * reported)]
        if line["extra"] or not line["reported"]:  # what the paper says stands above, or nowhere
            rows.append([line["task"], _agent(line), *ours])
            continue
        rows.append([line["task"], _agent(line), "paper", *paper, ""])
        rows.append(["", "", *ours])
    return headings, rows


def mean_sem(mean: float | None, sem: float | None, share: bool = False) -> str:
    """Mean ± standard error with one decimal, as the paper prints it; shares with three, and a missing mean as –."""
    digits = 3 if share else 1
    if mean is None:
        return EMPTY
    return f"{mean:.{digits}f}" if sem is None else f"{mean:.{digits}f} ± {sem:.{digits}f}"


def _ours(column: Document, cell: Document) -> str:
    if cell["ours"] is None:
        return EMPTY
    if column.get("distance"):  # one certified number over all steps has no error, and is not rounded down
        return str(round_up(cell["ours"]["mean"], 3))
    found = mean_sem(cell["ours"]["mean"], cell["ours"]["sem"], column["share"])
    return f"{found} {MARKS.get(str(cell['match']), '')}".rstrip()


def _fine(column: Document) -> bool:
    """Whether its numbers are small: shares, and distances of actions."""
    return bool(column["share"] or column.get("distance"))


def _agent(line: Document) -> str:
    """Its name, with what tells it apart: the levels it was trained on; the steps of a reduced one."""
    levels = f", {line['levels']} levels" if "levels" in line else ""
    steps = f", {line['ours']['steps']:,} steps" if line["reduced"] and line["ours"] else ""
    return f"{line['agent']}{levels}{steps}"


def _matches(line: Document) -> str:
    """How many cells of each mark, such as "3 ≈, 1 ▼"."""
    found = [cell["match"] for cell in line["cells"]]
    return ", ".join(f"{found.count(match)} {mark}" for match, mark in MARKS.items() if match in found) or EMPTY


def markdown(result: Document) -> str:
    """The page: the protocol, the table, our agents and their seeds, empty cells, deviations."""
    parts = [f"# {result['title']}", _about(result), aligned(*grid(result)), _legend(result)]
    agents = _agents(result)
    parts += ["## Our agents", aligned(*agents)] if agents[1] else []
    seeds = _every_seed(result)
    parts += ["## Every seed", _SEEDS, aligned(*seeds)] if seeds[1] else []
    notes = [f"- {line['task']} {line['agent']}: {line['note']}." for line in result["rows"] if line["note"]]
    parts += ["## Empty cells", "\n".join(notes)] if notes else []
    differs = _differs(result)
    heading = "## Known deviations from the paper" if result["reported"] else "## Known deviations"
    parts += [heading, "\n".join(differs)] if differs else []
    return "\n\n".join(parts) + "\n"


def _legend(result: Document) -> str:
    """The meaning of the marks that are there."""
    if not result["reported"]:
        return f"{EMPTY} not evaluated."
    within = f"≈ ours is within {result['match_width']:g} combined standard errors of the paper"
    marks = f"{within}, ▲ above, ▼ below, {EMPTY} not evaluated."
    return marks if result["errors_reported"] else f"{marks} {_UNREPORTED}"


def _about(result: Document) -> str:
    protocol, reported = result["protocol"], result["reported"]
    evaluated = [line for line in result["rows"] if any(cell["ours"] for cell in line["cells"])]
    engines = sorted({_engine(line) for line in evaluated})
    what = f"{result['source']}, each cell beside our own. Ours is played" if reported else "our agents, played"
    ours = (
        f"`radial reproduce {result['table']}`: {what} with "
        f"{protocol['episodes']} episodes, evaluation seed {protocol['seed']}, {result['acts']}"
        f"{' on ' + ' and '.join(engines) if engines else ''}; ε is in {result['units']}. "
        f"{result['notes'] + ' ' if result['notes'] else ''}"
        f"± is the standard error over the episodes of one agent, not over training seeds. Of several seeds that agent "
        f"is the median: {protocol['chosen by']}."
    )
    return ours + (" The paper reports one agent and does not say how it was chosen." if reported else "")


def _agents(result: Document) -> Grid:
    headings = [
        "agent",
        "steps",
        "seed",
        "seeds trained",
        f"each seed: clean / {result['selected_under']} at the training ε",
        "commit",
        "weights",
    ]
    rows: dict[str, list[str]] = {}  # an agent may stand in several rows of a table
    for line in result["rows"]:
        agent = line["ours"]
        if agent is not None:
            rows[agent["name"]] = [
                agent["name"], f"{agent['steps']:,}", _or_empty(agent["seed"]), _or_empty(len(agent["seeds"]) or None),
                _seeds(agent["seeds"]), (agent["commit"] or EMPTY)[:10], agent["sha256"][:12],
            ]  # fmt: skip
    return headings, list(rows.values())


def _every_seed(result: Document) -> Grid:
    """Each trained seed in each column, then all of them together; where a table asks."""
    columns = result["columns"]
    rows = []
    several = len({line["task"] for line in result["rows"]}) > 1

    def named(line: Document) -> str:
        return f"{line['task']} {line['agent']}" if several else str(line["agent"])

    for line in result["rows"]:
        seeds = line["ours"]["seeds"] if line["ours"] is not None and result["every_seed"] else {}
        for seed, cells in seeds.items():
            rows.append([named(line), seed, *(_of_seed(cells.get(column["key"]), column) for column in columns)])
        if len(seeds) > 1:
            rows.append([named(line), "all", *(_over_seeds(seeds.values(), column) for column in columns)])
    return ["agent", "seed", *(column["label"] for column in columns)], rows


def _of_seed(cell: Mapping[str, float] | None, column: Document) -> str:
    """One seed in one column; a certified distance is rounded up, as everywhere."""
    if cell is None:
        return EMPTY
    return str(round_up(cell["mean"], 3)) if column["distance"] else mean_sem(cell["mean"], cell["sem"], _fine(column))


def _over_seeds(seeds: Iterable[Mapping[str, Mapping[str, float]]], column: Document) -> str:
    """Mean of the seeds' means ± its standard error, which is that over training seeds: s/√n, s with n − 1."""
    means = [cells[column["key"]]["mean"] for cells in seeds if column["key"] in cells]
    if len(means) < 2:
        return EMPTY
    return mean_sem(statistics.mean(means), statistics.stdev(means) / math.sqrt(len(means)), _fine(column))


def _seeds(seeds: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """Each seed's means, such as "0: 3500 / 3010": clean, then under the attack by which one is chosen."""
    shown = []
    for seed, cells in seeds.items():
        found = [cell["mean"] for cell in list(cells.values())[:2]]
        shown.append(f"{seed}: " + " / ".join(f"{mean:.0f}" for mean in found))
    return "; ".join(shown) or EMPTY


def _engine(line: Document) -> str:
    words = list(line["ours"]["engine"].values())
    return ", ".join([" ".join(words[:2]), *words[2:]])


def _differs(result: Document) -> list[str]:
    """Each sentence once, with the recipes it holds for unless it holds for all of them."""
    holds: dict[str, list[str]] = {}
    lines = {line["recipe"]: line for line in result["rows"] if line["ours"] is not None and "file" not in line}
    for name, line in lines.items():
        for sentence in line["differs"]:
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


# ------------------------------------------------------------------------------------------------------------ figures


def figure_page(drawn: Document) -> str:
    """The page of a figure: the protocol, the numbers, and the agents."""
    about, headings, rows = _PAGES[drawn["figure"]](drawn)
    agents = [
        [one["name"], f"{one['steps']:,}", str(one["seed"]), (one["commit"] or EMPTY)[:10], one["sha256"][:12]]
        for one in drawn["agents"]
    ]
    parts = [
        f"# {drawn['title']}",
        f"`radial reproduce {drawn['figure']}`: {drawn['source']}. {about}",
        aligned(headings, rows),
        "## Our agents",
        aligned(["agent", "steps", "seed", "commit", "weights"], agents),
    ]
    return "\n\n".join(parts) + "\n"


def _worst_cases(drawn: Document) -> tuple[str, list[str], list[list[str]]]:
    protocol = drawn["protocol"]
    about = (
        f"{protocol['starts']} starts, evaluation seed {protocol['seed']}, the first {protocol['horizon']} steps, "
        f"bounds by {protocol['bound']}, rounded outward. The share of starts from which a crossing is certain: under "
        "the greedy worst case (GWC), and over all sequences of possible actions (AWC), where a search ends after "
        f"{protocol['budget']:,} states; from … to where some did. ACR is the certified share of the steps of clean "
        "episodes until the first reward. The paper draws (x + 1)/2 of +1 and −1, which is the same share, and leaves "
        "out the starts that are unknown after 2,000 paths."
    ) + _tracked(drawn.get("summary", {}))
    rows = []
    for point in drawn["points"]:
        low, high = point["awc_share"]
        worst = f"{low:.3f}" if low == high else f"{round_down(low, 3)} … {round_up(high, 3)}"
        rate = f"{round_down(point['acr'], 3)} ± {point['acr_sem']:.3f}"
        rows.append(
            [spell_radius(point["radius"]), rate, f"{point['gwc_share']:.3f}", worst, str(point["awc_unknown"])]
        )
    return about, ["ε", "ACR", "GWC", "AWC", "AWC unknown"], rows


def _tracked(summary: Document) -> str:
    """Whether GWC follows AWC, in words; nothing for a result that is older than the question."""
    if not summary:
        return ""

    def said(name: str) -> str:
        return "undefined, for one of the two does not vary" if summary[name] is None else f"{summary[name]:.2f}"

    same = "" if summary["same_answer"] is None else f", the same answer in a share of {summary['same_answer']:.2f}"
    return (
        f" Does GWC track AWC? Their correlation over {summary['starts_known']} starts and radii with a known AWC is "
        f"{said('gwc_awc_of_starts')}{same}; of their shares over ε it is {said('gwc_awc_of_radii')}, of ACR and AWC "
        f"{said('acr_awc_of_radii')}."
    )


def _q_bias(drawn: Document) -> tuple[str, list[str], list[list[str]]]:
    protocol = drawn["protocol"]
    about = (
        f"{protocol['episodes']} greedy, clean episodes of each agent, evaluation seed {protocol['seed']}. The error "
        f"of a step is Q(s, a) − Σ γᵏ·r to the end of the episode, γ {protocol['discount']:g}, r clipped to ±1 as in "
        "training; of an episode its mean; ± is the standard error over episodes."
    )
    rows = [
        [
            point["agent"], f"{point['mean']:.3f} ± {point['sem']:.3f}",
            f"{min(point['errors']):.3f} … {max(point['errors']):.3f}",
            f"{sum(point['returns']) / len(point['returns']):.1f}",
        ]
        for point in drawn["points"]
    ]  # fmt: skip
    return about, ["agent", "predicted − realised", "least … most of an episode", "mean return"], rows


_PAGES: dict[str, Callable[[Document], tuple[str, list[str], list[list[str]]]]] = {
    "gwc-awc-acr": _worst_cases,
    "q-bias": _q_bias,
}
