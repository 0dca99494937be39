"""A reproduced table as a figure: one panel per task, the paper's agents beside ours.

Needs matplotlib; the numbers come from `recipes.reproduce`.
"""

from pathlib import Path
from typing import Any

from radial.core.data import BadInput
from radial.recipes.reproduce import Line, Result

# Okabe and Ito's colours, told apart by every kind of sight; the shapes say the same once more.
STYLES = {
    "PPO": ("#000000", "o"),
    "SA-PPO": ("#0072B2", "s"),
    "RADIAL-PPO": ("#D55E00", "D"),
    "RADIAL-PPO, as released": ("#009E73", "^"),
}
OTHER = ("#CC79A7", "v")


def figure(result: Result, path: Path) -> None:
    """Write a PNG: mean ± standard error against ε, the paper hollow and dashed, ours solid.

    Where two attacks share an ε, the columns stand side by side instead and nothing is joined by lines.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise BadInput("figures need matplotlib: pip install 'radial-rl[report]'") from None
    tasks = list(dict.fromkeys(line.row.task for line in result.lines))
    agents = list(dict.fromkeys(line.row.agent for line in result.lines))
    drawing: Any = Figure(figsize=(4.2 * max(len(tasks), 1), 4.2), layout="constrained")
    panels = drawing.subplots(1, max(len(tasks), 1), squeeze=False)[0]
    for panel, task in zip(panels, tasks, strict=False):
        for line in (line for line in result.lines if line.row.task == task):
            _draw(panel, line, agents.index(line.row.agent), len(agents))
        panel.set_title(task)
        low, high = panel.get_ylim()
        panel.set_ylim(min(low, 0.0), 1.04 * high)
        panel.grid(axis="y", color="#dddddd", linewidth=0.6)
        panel.set_axisbelow(True)
        panel.spines[["top", "right"]].set_visible(False)
        _ticks(panel, result)
    panels[0].set_ylabel("return, mean ± standard error")
    drawing.legend(handles=_legend(agents), loc="outside lower center", ncols=len(agents) + 2, frameon=False)
    drawing.suptitle(f"{result.table.title}: {result.table.source}")
    temporary = path.with_name(f"{path.name}.tmp")
    drawing.savefig(temporary, dpi=150, format="png", metadata={"Software": None})
    temporary.replace(path)


def _draw(panel: Any, line: Line, agent: int, agents: int) -> None:
    color, marker = STYLES.get(line.row.agent, OTHER)
    places, step, joined = _places(line)
    shift = (agent - (agents - 1) / 2) * step
    paper = [(x, entry.paper.mean, entry.paper.sem) for x, entry in zip(places, line.entries, strict=True)]
    ours = [(x, e.ours.mean, e.ours.sem) for x, e in zip(places, line.entries, strict=True) if e.ours is not None]
    for points, style, fill, side in ((paper, "--", "white", -step / 4), (ours, "-", color, step / 4)):
        if not points or (style == "--" and line.row.extra):  # the paper has no such row
            continue
        xs, means, sems = zip(*points, strict=True)
        panel.errorbar(
            [x + shift + side for x in xs], means, sems, color=color, marker=marker, markerfacecolor=fill,
            linestyle=style if joined else "none", markersize=5.5, linewidth=1.2, capsize=2.5,
        )  # fmt: skip


def _places(line: Line) -> tuple[list[float], float, bool]:
    """Where the columns stand, how far two agents stand apart, and whether lines may join them."""
    radii = [entry.column.radius for entry in line.entries]
    if len(set(radii)) == len(radii):
        return radii, 0.012 * (max(radii) or 1.0), True
    return [float(i) for i in range(len(radii))], 0.2, False


def _ticks(panel: Any, result: Result) -> None:
    places, _, joined = _places(result.lines[0])
    labels = [f"{column.radius:g}" if joined else column.label.replace(" ", "\n") for column in result.table.columns]
    panel.set_xticks(places, labels)
    if joined:
        attacks = sorted({column.label.split()[0] for column in result.table.columns} - {"nominal"})
        panel.set_xlabel(f"ε of {', '.join(attacks)} (0: no attack)")
    else:
        panel.set_xlim(places[0] - 0.5, places[-1] + 0.5)


def _legend(agents: list[str]) -> list[Any]:
    from matplotlib.lines import Line2D

    drawn = []
    for agent in agents:
        color, marker = STYLES.get(agent, OTHER)
        drawn.append(Line2D([], [], color=color, marker=marker, label=agent))
    grey: dict[str, Any] = {"color": "#666666", "marker": "o"}
    return [
        *drawn,
        Line2D([], [], linestyle="--", markerfacecolor="white", label="paper", **grey),
        Line2D([], [], label="ours", **grey),
    ]
