"""A reproduced table as a figure: one panel per task, the paper's agents beside ours.

Needs matplotlib; the numbers come from `recipes.reproduce`.
"""

from pathlib import Path
from typing import Any

from radial.core.data import BadInput
from radial.recipes.recipe import spell_radius
from radial.recipes.reproduce import Line, Result

# Okabe and Ito's colours, told apart by every kind of sight; the shapes say the same once more.
STYLES = {
    "PPO": ("#000000", "o"),
    "SA-PPO": ("#0072B2", "s"),
    "RADIAL-PPO": ("#D55E00", "D"),
    "RADIAL-PPO, as released": ("#009E73", "^"),
    "DQN": ("#000000", "o"),
    "DQN, small": ("#000000", "P"),
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
    "RADIAL-DQN, small": ("#D55E00", "X"),
    "c=0.25": ("#0072B2", "s"),
    "c=0.5": ("#D55E00", "D"),
    "c=0.75": ("#009E73", "^"),
    "symmetric c=0.5": ("#000000", "o"),
}
OTHER = ("#CC79A7", "v")
PANEL = 4.2  # inches


def figure(result: Result, path: Path) -> None:
    """Write a PNG: mean ± standard error against ε, the paper hollow and dashed, ours solid.

    Where two attacks share an ε, the columns stand side by side instead and nothing is joined by lines; shares of steps
    have an axis of their own on the right.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise BadInput("figures need matplotlib: pip install 'radial-rl[report]'") from None
    tasks = list(dict.fromkeys(line.row.task for line in result.lines))
    agents = list(dict.fromkeys(line.row.agent for line in result.lines))
    width = PANEL * (max(len(tasks), 1) if len(tasks) != 1 or len(agents) < 5 else 2)
    drawing: Any = Figure(figsize=(width, PANEL), layout="constrained")
    panels = drawing.subplots(1, max(len(tasks), 1), squeeze=False)[0]
    shares = any(column.share for column in result.table.columns)
    for panel, task in zip(panels, tasks, strict=False):
        right = _right_axis(panel, last=task == tasks[-1]) if shares else None
        for line in (line for line in result.lines if line.row.task == task):
            _draw(panel, right, line, agents.index(line.row.agent), len(agents))
        panel.set_title(task)
        low, high = panel.get_ylim()
        panel.set_ylim(min(low, 0.0), 1.04 * high)
        panel.grid(axis="y", color="#dddddd", linewidth=0.6)
        panel.set_axisbelow(True)
        panel.spines[["top", "right"]].set_visible(False)
        _ticks(panel, result)
    panels[0].set_ylabel("return, mean ± standard error")
    legend = _legend(agents, result.table.reported)
    columns = min(len(legend), int(width / 2.1) if len(tasks) > 1 else 3)
    drawing.legend(handles=legend, loc="outside lower center", ncols=columns, frameon=False)
    drawing.suptitle(": ".join(part for part in (result.table.title, result.table.source) if part))
    write(drawing, path)


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


def _draw(panel: Any, right: Any, line: Line, agent: int, agents: int) -> None:
    color, marker = STYLES.get(line.row.agent, OTHER)
    places, step, joined = _places(line, agents)
    shift = (agent - (agents - 1) / 2) * step
    for share, axis in ((False, panel), (True, right)):
        here = [(x, e) for x, e in zip(places, line.entries, strict=True) if e.column.share == share]
        told = [(x, e.paper.mean, e.paper.sem) for x, e in here if e.paper.mean is not None]
        ours = [(x, e.ours.mean, e.ours.sem) for x, e in here if e.ours is not None]
        for points, style, fill, side in ((told, "--", "white", -step / 4), (ours, "-", color, step / 4)):
            if not points or (style == "--" and line.row.extra):  # the paper has no such row
                continue
            xs, means, sems = zip(*points, strict=True)
            axis.errorbar(
                [x + shift + side for x in xs], means, [sem or 0.0 for sem in sems], color=color, marker=marker,
                markerfacecolor=fill, linestyle=style if joined else "none", markersize=5.5, linewidth=1.2, capsize=2.5,
            )  # fmt: skip


def _places(line: Line, agents: int) -> tuple[list[float], float, bool]:
    """Where the columns stand, how far two agents stand apart, and whether lines may join them."""
    radii = [entry.column.radius for entry in line.entries]
    if len(set(radii)) == len(radii):
        return radii, 0.012 * (max(radii) or 1.0), True
    return [float(i) for i in range(len(radii))], min(0.2, 0.8 / agents), False


def _ticks(panel: Any, result: Result) -> None:
    places, _, joined = _places(result.lines[0], 1)
    labels = [
        spell_radius(column.radius) if joined else column.label.replace(" ", "\n") for column in result.table.columns
    ]
    panel.set_xticks(places, labels)
    if joined:
        attacks = sorted({column.label.split()[0] for column in result.table.columns} - {"nominal"})
        panel.set_xlabel(f"ε of {', '.join(attacks)} (0: no attack)")
    else:
        panel.set_xlim(places[0] - 0.5, places[-1] + 0.5)


def _legend(agents: list[str], reported: bool) -> list[Any]:
    from matplotlib.lines import Line2D

    drawn = []
    for agent in agents:
        color, marker = STYLES.get(agent, OTHER)
        drawn.append(Line2D([], [], color=color, marker=marker, label=agent))
    if not reported:
        return drawn
    grey: dict[str, Any] = {"color": "#666666", "marker": "o"}
    return [
        *drawn,
        Line2D([], [], linestyle="--", markerfacecolor="white", label="paper", **grey),
        Line2D([], [], label="ours", **grey),
    ]
