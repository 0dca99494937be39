"""Results as pictures: a reproduced table, one panel per task or per column, and the paper's single figures.

Needs matplotlib. Reads plain data: `Result.report()` of a table, `Drawn.document()` of a figure.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from radial.core.data import BadInput
from radial.core.text import spell_radius
from radial.reports.cells import Document

# Okabe and Ito's colours, told apart by every kind of sight; the shapes say the same once more.
STYLES = {
    "PPO": ("#000000", "o"),
    "SA-PPO (convex)": ("#0072B2", "s"),
    "SA-PPO (SGLD)": ("#56B4E9", "h"),
    "RADIAL-PPO": ("#D55E00", "D"),
    "RADIAL-PPO (likelihood)": ("#D55E00", "D"),
    "RADIAL-PPO (paper's equation)": ("#CC79A7", "v"),
    "RADIAL-PPO (as released)": ("#009E73", "^"),
    "RADIAL-PPO (likelihood) against directors": ("#E69F00", "P"),
    "PPO, released agent, re-scored": ("#000000", "x"),
    "PPO of Stable-Baselines3, released agent, re-scored": ("#666666", "x"),
    "SA-PPO (convex), released agent, re-scored": ("#0072B2", "x"),
    "SA-PPO (SGLD), released agent, re-scored": ("#56B4E9", "x"),
    "RADIAL-PPO, released agent, re-scored": ("#009E73", "x"),
    "DDPG": ("#000000", "o"),
    "SA-DDPG (convex)": ("#0072B2", "s"),
    "SA-DDPG (SGLD)": ("#56B4E9", "h"),
    "DQN": ("#000000", "o"),
    "RS-DQN": ("#E69F00", "p"),
    "SA-DQN": ("#0072B2", "s"),
    "SA-DQN (convex)": ("#0072B2", "s"),
    "SA-DQN (IBP)": ("#0072B2", "s"),
    "SA-DQN (PGD)": ("#56B4E9", "h"),
    "RADIAL-DQN (approach 1)": ("#009E73", "^"),
    "RADIAL-DQN (approach 2)": ("#D55E00", "D"),
    "RADIAL-DQN (IBP)": ("#D55E00", "D"),
    "RADIAL-DQN (C-IBP)": ("#CC79A7", "v"),
    "RADIAL-DQN (symmetric)": ("#666666", "X"),
    "A3C": ("#56B4E9", "o"),
    "RADIAL-A3C (approach 1)": ("#CC79A7", "^"),
    "RADIAL-A3C (approach 2)": ("#CC79A7", "D"),
    "RADIAL-DQN (approach 1, V without bias)": ("#E69F00", "v"),
    "SA-DQN (IBP, margins as released)": ("#56B4E9", "h"),
    "DQN taught by PPO": ("#E69F00", "o"),
    "CAR-DQN": ("#009E73", "s"),
    "adversarial training": ("#666666", "h"),
    "c=0": ("#000000", "v"),
    "c=1": ("#CC79A7", "p"),
    "c=0.25": ("#0072B2", "s"),
    "c=0.5": ("#D55E00", "D"),
    "c=0.75": ("#009E73", "^"),
    "symmetric c=0.5": ("#000000", "o"),
    "PPO (train)": ("#000000", "o"),
    "PPO (eval)": ("#666666", "s"),
    "RADIAL-PPO (train)": ("#D55E00", "D"),
    "RADIAL-PPO (eval)": ("#E69F00", "^"),
    "RADIAL-PPO, approach 2 (train)": ("#0072B2", "P"),
    "RADIAL-PPO, approach 2 (eval)": ("#56B4E9", "X"),
    "PPO, small (train)": ("#009E73", "o"),
    "PPO, small (eval)": ("#009E73", "s"),
    "RADIAL-PPO, small (train)": ("#CC79A7", "D"),
    "RADIAL-PPO, small (eval)": ("#CC79A7", "^"),
}
OTHER = ("#CC79A7", "v")
REDUCED = ", small"  # a reduced agent has the colour of its method, and a mark akin to its
REDUCED_MARKS = {"o": ".", "s": "P", "h": "H", "D": "d", "^": "2", "v": "1", "p": "*", "X": "x"}
PANEL = 4.2  # inches
BLACK, BLUE, ORANGE, GREEN = "#000000", "#0072B2", "#D55E00", "#009E73"


def style_of(agent: str) -> tuple[str, str]:
    """Colour and marker of an agent by its name in a table."""
    if agent in STYLES or not agent.endswith(REDUCED):
        return STYLES.get(agent, OTHER)
    colour, mark = STYLES.get(agent.removesuffix(REDUCED), OTHER)
    return colour, REDUCED_MARKS[mark]


# -------------------------------------------------------------------------------------------------------------- tables


def table_figure(result: Document, path: Path) -> None:
    """Write a PNG: mean ± standard error against ε, the paper hollow and dashed, ours solid.

    Where two attacks share an ε, the columns stand side by side instead and nothing is joined by lines; shares of steps
    have an axis of their own on the right. Agents that differ in their training levels are drawn against those.
    """
    new_figure = figure_class()
    result = _drawn(result)
    lines = result["rows"]
    agents = list(dict.fromkeys(line["agent"] for line in lines))
    tasks = list(dict.fromkeys(line["task"] for line in lines))
    by_levels = all("levels" in line for line in lines)
    count = len(result["columns"]) if by_levels else max(len(tasks), 1)
    width = PANEL * (count if count != 1 or len(agents) < 5 else 2)
    drawing = new_figure(figsize=(width, PANEL), layout="constrained")
    panels = drawing.subplots(1, count, squeeze=False, sharey=by_levels)[0]
    if by_levels:
        _against_levels(panels, result, agents)
    else:
        _against_radius(panels, result, tasks, agents)
    for panel in panels:
        low, high = panel.get_ylim()
        panel.set_ylim(min(low, 0.0), 1.04 * high)
        panel.grid(axis="y", color="#dddddd", linewidth=0.6)
        panel.set_axisbelow(True)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("return, mean ± standard error")
    legend = _legend(agents, result["reported"])
    entry = 0.6 + 0.09 * max(len(handle.get_label()) for handle in legend)  # inches
    columns = min(len(legend), max(1, int(width / entry)))
    drawing.legend(handles=legend, loc="outside lower center", ncols=columns, frameon=False)
    drawing.suptitle(": ".join(part for part in (result["title"], result["source"]) if part))
    write(drawing, path)


def _drawn(result: Document) -> Document:
    """The part of a result that a figure shows: without distances of actions, and columns that are empty throughout."""
    cells = [[line["cells"][at] for line in result["rows"]] for at in range(len(result["columns"]))]
    keep = [
        at
        for at, column in enumerate(result["columns"])
        if not column.get("distance") and any(cell["ours"] or cell["paper"]["mean"] is not None for cell in cells[at])
    ] or list(range(len(result["columns"])))
    rows = [{**line, "cells": [line["cells"][at] for at in keep]} for line in result["rows"]]
    return {**result, "columns": [result["columns"][at] for at in keep], "rows": rows}


def figure_class() -> Any:
    """Matplotlib's Figure, which draws without a display."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise BadInput("figures need matplotlib: pip install 'radial-rl[report]'") from None
    return Figure


def _against_radius(panels: Any, result: Document, tasks: list[str], agents: list[str]) -> None:
    """A panel for each task."""
    columns = result["columns"]
    shares = any(column["share"] for column in columns)
    for panel, task in zip(panels, tasks, strict=False):
        right = _right_axis(panel, last=task == tasks[-1]) if shares else None
        for line in (line for line in result["rows"] if line["task"] == task):
            _draw(panel, right, line, columns, agents)
        panel.set_title(task)
        _ticks(panel, columns)


def _against_levels(panels: Any, result: Document, agents: list[str]) -> None:
    """A panel for each column."""
    levels = sorted({line["levels"] for line in result["rows"]})
    for at, (panel, column) in enumerate(zip(panels, result["columns"], strict=True)):
        for agent in agents:
            here = [(line["levels"], line["cells"][at]) for line in result["rows"] if line["agent"] == agent]
            _points(panel, agent, _means(here, "paper"), "--", hollow=True)
            _points(panel, agent, _means(here, "ours"), "-", hollow=False)
        panel.set_title(column["label"])
        panel.set_xscale("log")
        panel.set_xticks(levels, [str(level) for level in levels])
        panel.set_xticks([], minor=True)
        panel.set_xlabel("training levels")


def _means(
    cells: list[tuple[float, Document]], whose: str, shift: float = 0.0
) -> list[tuple[float, float, float | None]]:
    """Place, mean and standard error of the cells that have a number of the paper's or of ours."""
    found = [(x, cell[whose]) for x, cell in cells if cell[whose] is not None]
    return [(x + shift, one["mean"], one["sem"]) for x, one in found if one["mean"] is not None]


def _points(axis: Any, agent: str, points: list[Any], style: str, *, hollow: bool) -> None:
    """Means with their errors, joined in a style; nothing where there are none. points: (x, mean, error or None)."""
    if not points:
        return
    color, marker = style_of(agent)
    xs, means, sems = zip(*points, strict=True)
    axis.errorbar(
        xs, means, [sem or 0.0 for sem in sems], color=color, marker=marker, markersize=5.5, linewidth=1.2, capsize=2.5,
        markerfacecolor="white" if hollow else color, linestyle=style,
    )  # fmt: skip


def write(drawing: Any, path: Path) -> None:
    """Write a PNG, whole or not at all."""
    temporary = path.with_name(f"{path.name}.tmp")
    drawing.savefig(temporary, dpi=150, format="png", metadata={"Software": None})
    temporary.replace(path)


def _right_axis(panel: Any, last: bool) -> Any:
    right = panel.twinx()
    right.set_ylim(-0.03, 1.04)
    right.spines[["top", "left"]].set_visible(False)
    right.tick_params(labelright=last)
    if last:
        right.set_ylabel("ACR")
    return right


def _draw(panel: Any, right: Any, line: Document, columns: list[Document], agents: list[str]) -> None:
    """One agent; nothing of the paper's for an extra row, which the paper does not have."""
    places, step, joined = _places(columns, len(agents))
    shift = (agents.index(line["agent"]) - (len(agents) - 1) / 2) * step
    cells = list(zip(columns, places, line["cells"], strict=True))
    for share, axis in ((False, panel), (True, right)):
        here = [(x + shift, cell) for column, x, cell in cells if column["share"] == share]
        if not line["extra"]:
            _points(axis, line["agent"], _means(here, "paper", -step / 4), "--" if joined else "none", hollow=True)
        _points(axis, line["agent"], _means(here, "ours", step / 4), "-" if joined else "none", hollow=False)


def _places(columns: list[Document], agents: int) -> tuple[list[float], float, bool]:
    """Where the columns stand, how far two agents stand apart, and whether lines may join them."""
    radii = [column["radius"] for column in columns]
    if len(set(radii)) == len(radii):
        return radii, 0.012 * (max(radii) or 1.0), True
    return [float(i) for i in range(len(radii))], min(0.2, 0.8 / agents), False


def _ticks(panel: Any, columns: list[Document]) -> None:
    places, _, joined = _places(columns, 1)
    labels = [spell_radius(column["radius"]) if joined else column["label"].replace(" ", "\n") for column in columns]
    panel.set_xticks(places, labels)
    if joined:
        attacks = sorted({column["label"].split()[0] for column in columns if column["radius"] > 0})
        panel.set_xlabel(f"ε of {', '.join(attacks)} (0: clean)")
    else:
        panel.set_xlim(places[0] - 0.5, places[-1] + 0.5)


def _legend(agents: list[str], reported: bool) -> list[Any]:
    from matplotlib.lines import Line2D

    drawn = []
    for agent in agents:
        color, marker = style_of(agent)
        drawn.append(Line2D([], [], color=color, marker=marker, label=agent))
    if not reported:
        return drawn
    grey: dict[str, Any] = {"color": "#666666", "marker": "o"}
    return [
        *drawn,
        Line2D([], [], linestyle="--", markerfacecolor="white", label="paper", **grey),
        Line2D([], [], label="ours", **grey),
    ]


# ------------------------------------------------------------------------------------------------------ single figures


def paper_figure(drawn: Document, path: Path) -> None:
    """Write one of the paper's figures as a PNG."""
    drawing = figure_class()(figsize=(8.4, PANEL), layout="constrained")
    _PLOTS[drawn["figure"]](drawing, drawn)
    drawing.suptitle(drawn["title"])
    write(drawing, path)


def _plot_worst_cases(drawing: Any, drawn: Document) -> None:
    panel = drawing.subplots()
    pixels = [point["radius"] * 255 for point in drawn["points"]]
    low, high = zip(*(point["awc_share"] for point in drawn["points"]), strict=True)
    panel.errorbar(
        pixels, [point["acr"] for point in drawn["points"]], [point["acr_sem"] for point in drawn["points"]],
        color=BLUE, marker="s", capsize=2.5, label="ACR",
    )  # fmt: skip
    panel.plot(pixels, [point["gwc_share"] for point in drawn["points"]], color=ORANGE, marker="D", label="GWC")
    panel.plot(pixels, low, color=BLACK, marker="o", label="AWC, proven")
    panel.plot(pixels, high, color=BLACK, marker="o", markerfacecolor="white", linestyle="--", label="AWC, not refuted")
    panel.fill_between(pixels, low, high, color=BLACK, alpha=0.15, linewidth=0)
    panel.set_ylim(-0.04, 1.04)
    panel.set_xlabel("255·ε")
    panel.set_ylabel("share of starts (ACR: of steps)")
    _finish(panel, columns=4)


def _plot_q_bias(drawing: Any, drawn: Document) -> None:
    panels = drawing.subplots(1, 2)
    for point, color in zip(drawn["points"], (BLACK, ORANGE, BLUE, GREEN), strict=False):
        pairs = list(zip(point["predicted"], point["realised"], strict=True))
        panels[0].plot([p for p, _ in pairs], color=color, linewidth=1.0, label=f"{point['agent']}, predicted")
        panels[0].plot([r for _, r in pairs], color=color, linewidth=0.8, linestyle=":", label="realised")
        panels[1].plot([p - r for p, r in pairs], color=color, linewidth=1.0, label=point["agent"])
    panels[0].set_ylabel("Q(s, a), first episode")
    panels[1].set_ylabel("predicted − realised")
    panels[1].axhline(0.0, color="#666666", linewidth=0.8)
    for panel in panels:
        panel.set_xlabel("step")
        _finish(panel, columns=1)


def _finish(panel: Any, columns: int) -> None:
    panel.grid(axis="y", color="#dddddd", linewidth=0.6)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    # below, where no curve can be
    panel.legend(frameon=False, fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=columns)


_PLOTS: dict[str, Callable[[Any, Document], None]] = {"gwc-awc-acr": _plot_worst_cases, "q-bias": _plot_q_bias}
