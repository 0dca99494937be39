"""A reproduced table as a figure: one panel per task, or per column where agents differ in their training levels.

Needs matplotlib; the numbers come from `recipes.reproduce`.
"""

from pathlib import Path
from typing import Any

from radial.core.data import BadInput
from radial.core.text import spell_radius
from radial.workflows.reproduce import Line, Result

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
    "A3C": ("#56B4E9", "o"),
    "A3C, small": ("#56B4E9", "P"),
    "RADIAL-A3C (approach 1)": ("#CC79A7", "^"),
    "RADIAL-A3C (approach 2)": ("#CC79A7", "D"),
    "RADIAL-A3C, small": ("#CC79A7", "X"),
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
PANEL = 4.2  # inches


def figure(result: Result, path: Path) -> None:
    """Write a PNG: mean ± standard error against ε, the paper hollow and dashed, ours solid.

    Where two attacks share an ε, the columns stand side by side instead and nothing is joined by lines; shares of steps
    have an axis of their own on the right. Agents that differ in their training levels are drawn against those.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise BadInput("figures need matplotlib: pip install 'radial-rl[report]'") from None
    agents = list(dict.fromkeys(line.row.agent for line in result.lines))
    tasks = list(dict.fromkeys(line.row.task for line in result.lines))
    by_levels = all(line.row.levels is not None for line in result.lines)
    count = len(result.table.columns) if by_levels else max(len(tasks), 1)
    width = PANEL * (count if count != 1 or len(agents) < 5 else 2)
    drawing: Any = Figure(figsize=(width, PANEL), layout="constrained")
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
    legend = _legend(agents, result.table.reported)
    entry = 0.6 + 0.09 * max(len(handle.get_label()) for handle in legend)  # inches
    columns = min(len(legend), max(1, int(width / entry)))
    drawing.legend(handles=legend, loc="outside lower center", ncols=columns, frameon=False)
    drawing.suptitle(": ".join(part for part in (result.table.title, result.table.source) if part))
    write(drawing, path)


def _against_radius(panels: Any, result: Result, tasks: list[str], agents: list[str]) -> None:
    """A panel for each task."""
    shares = any(column.share for column in result.table.columns)
    for panel, task in zip(panels, tasks, strict=False):
        right = _right_axis(panel, last=task == tasks[-1]) if shares else None
        for line in (line for line in result.lines if line.row.task == task):
            _draw(panel, right, line, agents.index(line.row.agent), len(agents))
        panel.set_title(task)
        _ticks(panel, result)


def _against_levels(panels: Any, result: Result, agents: list[str]) -> None:
    """A panel for each column."""
    levels = sorted({line.row.levels or 0 for line in result.lines})
    for at, (panel, column) in enumerate(zip(panels, result.table.columns, strict=True)):
        for agent in agents:
            here = [(line.row.levels, line.entries[at]) for line in result.lines if line.row.agent == agent]
            told = [(x, entry.paper.mean, entry.paper.sem) for x, entry in here if entry.paper.mean is not None]
            ours = [(x, entry.ours.mean, entry.ours.sem) for x, entry in here if entry.ours is not None]
            _points(panel, agent, told, "--", hollow=True)
            _points(panel, agent, ours, "-", hollow=False)
        panel.set_title(column.label)
        panel.set_xscale("log")
        panel.set_xticks(levels, [str(level) for level in levels])
        panel.set_xticks([], minor=True)
        panel.set_xlabel("training levels")


def _points(axis: Any, agent: str, points: list[Any], style: str, *, hollow: bool) -> None:
    """Means with their errors, joined in a style; nothing where there are none. points: (x, mean, error or None)."""
    if not points:
        return
    color, marker = STYLES.get(agent, OTHER)
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


def _draw(panel: Any, right: Any, line: Line, agent: int, agents: int) -> None:
    places, step, joined = _places(line, agents)
    shift = (agent - (agents - 1) / 2) * step
    for share, axis in ((False, panel), (True, right)):
        here = [(x + shift, e) for x, e in zip(places, line.entries, strict=True) if e.column.share == share]
        told = [(x - step / 4, e.paper.mean, e.paper.sem) for x, e in here if e.paper.mean is not None]
        ours = [(x + step / 4, e.ours.mean, e.ours.sem) for x, e in here if e.ours is not None]
        if not line.row.extra:  # else the paper has no such row
            _points(axis, line.row.agent, told, "--" if joined else "none", hollow=True)
        _points(axis, line.row.agent, ours, "-" if joined else "none", hollow=False)


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
