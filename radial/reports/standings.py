"""The leaderboard as Markdown, as a figure and as a self-contained page. Reads its JSON, computes nothing but order."""

from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from radial.core.text import round_down, spell_radius
from radial.reports.cells import EMPTY, Document, Grid
from radial.reports.figures import BLACK, BLUE, GREEN, ORANGE, PANEL, figure_class, write
from radial.reports.markdown import aligned

_NAMES = {
    "random": "random", "critic": "critic", "mad": "MAD", "rs": "RS", "sarl": "SA-RL", "paad": "PA-AD",
    "linear": "linear", "pgd": "PGD",
    "pgd-strong": "PGD strong",
}  # fmt: skip
_CERTIFICATES = {"reach": "certified reach", "acr": "certified actions"}
_MARKS = {"clean": (BLACK, "o"), "MAD or PGD": (BLUE, "s"), "learned": (ORANGE, "D"), "worst of all": (GREEN, "|")}
_ABOUT = (
    "Mean return ± standard error over episodes of one agent; higher is better, and the worst of all attacks is what "
    "counts. **Worst of all**: each half of the episodes under the attack that hurt most on all other episodes, so the "
    "number is not the least of several noisy ones; what was fitted at a smaller ε is an attack at a larger one too. "
    "Lowest: the lowest mean of these attacks, where it is below; of several noisy means it is a little too low. "
    "SA-RL, PA-AD and linear (PA-AD's director as a linear function) are adversaries trained against that very agent. "
    "All attacks are white-box and an upper bound of the true worst case, no more; only the certificates are proofs. "
    "Certified reach: how far the mean action can move at most, in its widest coordinate, on average over clean "
    "episodes (lower is better). Certified actions: share of steps whose action no perturbation changes, with the "
    "number of distinct actions in use."
)


def grid(task: Document) -> Grid:
    """One row per agent and radius, best agent first."""
    headings = ["agent", "steps", "ε", "clean", *(_NAMES.get(name, name) for name in task["attacks"])]
    headings += ["worst of all", "lowest", _CERTIFICATES[task["certificate"]]]
    rows, digits = [], _digits(task)
    for row in task["rows"]:
        for i, level in enumerate(row["radii"]):
            first = [row["agent"], f"{row['steps']:,}" if row["steps"] else EMPTY] if i == 0 else ["", ""]
            cells = [_spread(level["attacks"].get(name), digits) for name in task["attacks"]]
            worst = EMPTY if level["worst"] is None else f"{_spread(level['worst'], digits)} ({_strongest(level)})"
            certified = _certified(task["certificate"], level["certificate"])
            clean = _spread(row["clean"], digits) if i == 0 else ""
            rows.append(
                [*first, spell_radius(level["radius"]), clean, *cells, worst, _lowest(level, digits), certified]
            )
    return headings, rows


def _strongest(level: Document) -> str:
    """The attacks behind the worst of all."""
    return ", ".join(_named(one, level) for one in level["worst"]["attacks"])


def _lowest(level: Document, digits: int) -> str:
    """The lowest column, where it is below the worst of all."""
    if level["lowest"] is None:
        return EMPTY
    lowest, worst = (f"{level[name]['mean']:.{digits}f}" for name in ("lowest", "worst"))
    return f"{lowest} ({_named(level['lowest'], level)})" if float(lowest) < float(worst) else ""


def _named(one: Document, level: Document) -> str:
    """An attack; one of a smaller radius is a valid attack here too, and is told as such."""
    name = str(_NAMES.get(one["attack"], one["attack"]))
    return name if one["radius"] == level["radius"] else f"{name} of {spell_radius(one['radius'])}"


def _digits(task: Document) -> int:
    """Decimals of a return: Pong's 21 points need one, Hopper's thousands none."""
    return int(all(abs(row["clean"]["mean"]) < 100 for row in task["rows"] if row["clean"] is not None))


def _spread(cell: Document | None, digits: int) -> str:
    return EMPTY if cell is None else f"{cell['mean']:.{digits}f} ± {cell['sem']:.{digits}f}"


def _certified(kind: str, cell: Document | None) -> str:
    if cell is None:
        return EMPTY
    if kind == "reach":  # an upper bound, rounded up
        return f"{-float(round_down(-1000 * cell['mean'])) / 1000:.3f}"
    return f"{float(round_down(1000 * cell['mean'])) / 1000:.3f} ({cell.get('distinct_actions', EMPTY)} actions)"


def seeds_grid(task: Document) -> Grid:
    """Recipes with several seeds: mean ± standard error over seeds."""
    radii, digits = [spell_radius(radius) for radius in task["radii"]], _digits(task)
    rows = [
        [one["recipe"], str(len(one["seeds"])), *(_spread(cell, digits) for cell in (one["clean"], *worst))]
        for one in task["seeds"]
        for worst in [[one["worst"][radius] for radius in radii]]
    ]
    return ["recipe", "seeds", "clean", *(f"worst of all, ε = {radius}" for radius in radii)], rows


def standings_markdown(board: Document) -> str:
    """The page as Markdown."""
    parts = ["# Leaderboard", _protocol(board), _ABOUT]
    for task in board["tasks"].values():
        parts += [f"## {task['title']}", _where(task), aligned(*grid(task))]
        seeds = seeds_grid(task)
        parts += ["Over training seeds:", aligned(*seeds)] if seeds[1] else []
    refused = [f"- {name}: {why}" for name, why in board["refused"].items() if not why.startswith("no task here")]
    refused += [f"- Not ranked yet: {', '.join(board['waiting'])}."] if board["waiting"] else []
    parts += ["## Not evaluated", "\n".join(refused)] if refused else []
    return "\n\n".join(parts) + "\n"


def _protocol(board: Document) -> str:
    told = board["protocol"]
    return (
        f"`radial leaderboard`, protocol {told['version']} ({board['hash']}): evaluation seed {told['seed']}, "
        f"more episodes for the choice of the strongest attack with seed {told['selection_seed']}."
    )


def _where(task: Document) -> str:
    engine = ", ".join(f"{key} {value}" for key, value in task["engine"].items())
    selection = task["selection"]
    return (
        f"{task['env']} ({engine}); {task['episodes']} episodes per cell, {selection} more that help to choose the "
        f"strongest attack; ranked by the worst of all attacks at ε = {spell_radius(task['radii'][0])}; certificates "
        f"by {task['bound']}."
    )


def standings_page(board: Document) -> str:
    """One self-contained HTML page; it asks nothing of any network."""
    style = files("radial.reports").joinpath("page.css").read_text(encoding="utf-8")
    body = ["<h1>Leaderboard</h1>", f'<p class="about">{escape(_protocol(board))}</p>', f"<p>{_bold(_ABOUT)}</p>"]
    for task in board["tasks"].values():
        body += [f"<h2>{escape(task['title'])}</h2>", f'<p class="about">{escape(_where(task))}</p>']
        body += [_table(*grid(task))]
        seeds = seeds_grid(task)
        body += ["<h3>Over training seeds</h3>", _table(*seeds)] if seeds[1] else []
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width'
        ', initial-scale=1"><link rel="icon" href="data:,"><title>Leaderboard</title>'
        f"<style>{style} main {{ max-width: 1400px; }}</style></head><body><main>{''.join(body)}</main></body></html>\n"
    )


def _bold(text: str) -> str:
    parts = escape(text).split("**")
    return "".join(f"<strong>{part}</strong>" if i % 2 else part for i, part in enumerate(parts))


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in headings)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def standings_figure(board: Document, path: Path) -> None:
    """Write a PNG: each agent a line, from its clean return down to the worst of all at the first radius."""
    tasks = list(board["tasks"].values())
    height = sum(0.42 * len(task["rows"]) + 1.3 for task in tasks)
    drawing = figure_class()(figsize=(2.4 * PANEL, height), layout="constrained")
    panels = drawing.subplots(len(tasks), 1, squeeze=False, height_ratios=[len(task["rows"]) + 2 for task in tasks])
    for panel, task in zip(panels[:, 0], tasks, strict=True):
        _panel(panel, task)
    names = list(_MARKS)
    keys = [
        panels[0, 0].scatter([], [], color=color, marker=marker, s=_size(marker)) for color, marker in _MARKS.values()
    ]
    drawing.legend(keys, names, loc="outside lower center", ncols=len(names), frameon=False, fontsize="small")
    write(drawing, path)


def _panel(panel: Any, task: Mapping[str, Any]) -> None:
    rows = task["rows"][::-1]  # the best on top
    for y, row in enumerate(rows):
        points = _points(row, task["radii"][0])
        values = sorted(points.values())
        panel.plot(values, [y] * len(values), color="#bbbbbb", linewidth=1.2, zorder=1)
        for name, value in points.items():
            color, marker = _MARKS[name]
            panel.scatter([value], [y], color=color, marker=marker, s=_size(marker), zorder=2)
    panel.set_yticks(range(len(rows)), [row["agent"] for row in rows], fontsize="small")
    panel.set_title(f"{task['title']}, ε = {spell_radius(task['radii'][0])}", loc="left", fontsize="medium")
    panel.set_xlabel("mean return", fontsize="small")
    panel.grid(axis="x", color="#dddddd", linewidth=0.6)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    panel.set_ylim(-0.6, len(rows) - 0.4)


def _size(marker: str) -> int:
    return 160 if marker == "|" else 34


def _points(row: Document, radius: float) -> dict[str, float]:
    """What is known of a row at a radius, by the name of its mark."""
    level = next((each for each in row["radii"] if each["radius"] == radius), None)
    attacks = {} if level is None else level["attacks"]
    worst = None if level is None else level["worst"]
    cells = {
        "clean": [row["clean"]],
        "MAD or PGD": [attacks[name] for name in ("mad", "pgd", "pgd-strong") if name in attacks],
        "learned": [attacks[name] for name in ("sarl", "paad", "linear") if name in attacks],
        "worst of all": [worst],
    }
    known = {name: [cell["mean"] for cell in found if cell is not None] for name, found in cells.items()}
    return {name: min(means) for name, means in known.items() if means}
