"""One self-contained HTML page for one or several audits: the verdict, the figure, the tables, and the inspector.

Everything that comes from files or names is escaped; the page asks nothing of any network. Reads plain data only.
"""

import json
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from radial.core.data import BadInput
from radial.core.text import digits_down, spell_radius
from radial.reports.cells import EMPTY, every_attack, number, rows_of
from radial.reports.curve import audit_figure, comparison_figure
from radial.reports.page_lead import heading, lead, terms, tiles

_PAGE, _DATA = "audit.html", "audit.json"
LARGEST_PAGE = 5_000_000  # bytes
_CSP = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
_SCOPE = (
    "Threat model: a white-box adversary that perturbs the observation by at most ε in each feature, at every step. A "
    "failed attack proves nothing. Certified numbers hold for every such perturbation, for this network and these "
    "initial states; they say nothing about perturbed dynamics, actions or rewards, and nothing about larger ε. "
    "Estimates and heuristics are no bounds: a worse return may exist."
)


def check_folder(folder: Path, field: str) -> None:
    """Refuse, before the long work whose page it is for, a folder that cannot be written to; nothing is left behind.

    field  what the caller calls it, for the message
    """
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            taken = [name for name in (_PAGE, _DATA) if (folder / name).is_dir()]
    except OSError as error:
        raise BadInput(f"{field} must be a folder that can be written to, got {folder}: {error.strerror}") from None
    finally:
        for each in missing:
            with suppress(OSError):
                each.rmdir()
    if taken:
        raise BadInput(f"{field} must be a folder for {taken[0]}, but {folder / taken[0]} is a folder")


def write_page(several: Sequence[Mapping[str, Any]], folder: Path) -> Path:
    """Write `audit.html`, and for a single audit `audit.json` beside it; each whole or not at all."""
    page = folder / _PAGE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if len(several) == 1:
            _write(folder / _DATA, json.dumps(several[0], allow_nan=False, ensure_ascii=False))
        _write(page, render(several))
    except OSError as error:
        raise BadInput(f"{folder} must be a folder that can be written to: {error.strerror}") from None
    return page


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(f"{path.name}.tmp-{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def render(several: Sequence[Mapping[str, Any]]) -> str:
    """The page; recorded episodes are shortened until it is small enough."""
    traces = [dict(facts["trace"]) if facts.get("trace") else None for facts in several]
    # where the rest alone is too large, no shorter episode helps
    hopeless = len(_page(several, [None] * len(several)).encode()) >= LARGEST_PAGE
    while True:
        page = _page(several, traces)
        longest = max((trace for trace in traces if trace), key=_steps, default=None)
        if hopeless or len(page.encode()) < LARGEST_PAGE or longest is None:
            return page
        before = _steps(longest)
        _shorten(longest)
        if _steps(longest) >= before:
            return page


def _steps(trace: Mapping[str, Any]) -> int:
    return max(len(trace["reward"]), len(trace["nominal"]["reward"]))


def _shorten(trace: dict[str, Any]) -> None:
    """Keep the first three quarters."""
    keep = max(1, _steps(trace) * 3 // 4)
    per_step = ("verdicts", "clean_action", "action", "scores", "moved", "lower", "upper", "reward", "raw", "delta",
                "frames", "shown", "amplified")  # fmt: skip
    trace |= {name: trace[name][:keep] for name in per_step if name in trace}
    trace["nominal"] = {
        name: value[:keep] if isinstance(value, list) else value for name, value in trace["nominal"].items()
    }
    pictures = trace.get("pictures")
    if pictures:
        trace["pictures"] = pictures | {name: _first(pictures[name], keep) for name in ("clean", "attacked")}


def _first(film: Mapping[str, Any] | None, steps: int) -> dict[str, Any] | None:
    """The pictures of the first steps."""
    if film is None:
        return None
    kept = sum(step <= steps for step in film["at"])
    return {name: film[name][:kept] for name in ("at", "images")}


def _page(several: Sequence[Mapping[str, Any]], traces: Sequence[Mapping[str, Any] | None]) -> str:
    here = files("radial.reports")
    style, script = (here.joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "inspector.js"))
    title = "Audit of " + ", ".join(str(facts["agent"]) for facts in several)
    body = [f"<h1>{escape(title)}</h1>"]
    if len(several) > 1:
        body.append(comparison_figure(several))
        rows = [[str(facts["agent"]), str(facts["verdict"])] for facts in several]
        body.append(f'<div class="words">{_table(["agent", "verdict"], rows)}</div>')
    for i, (facts, trace) in enumerate(zip(several, traces, strict=True)):
        body.append(_agent(facts, trace, i, len(several) > 1))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        f'content="width=device-width, initial-scale=1"><meta http-equiv="Content-Security-Policy" content="{_CSP}">'
        f'<link rel="icon" href="data:,"><title>{escape(title)}</title><style>{style}</style></head>'
        f"<body><main>{''.join(body)}</main><script>{script}</script></body></html>\n"
    )


def _agent(facts: Mapping[str, Any], trace: Mapping[str, Any] | None, i: int, several: bool) -> str:
    engine = ", ".join(f"{key} {value}" for key, value in facts["engine"].items())
    parts = [f"<h2>{escape(str(facts['agent']))}</h2>" if several else ""]
    parts.append(lead(str(facts["verdict"])))
    source = re.sub(r"sha256:(\w{12})\w+", r"sha256:\1…", str(facts["about"]))
    played = "episode" if facts["episodes"] == 1 else "episodes"
    about = f"{source} · {facts['env']} ({engine}) · {facts['episodes']} {played}, seed {facts['seed']}"
    parts.append(f'<p class="about">{escape(about)}</p>')
    parts += [f'<p class="alarm"><strong>Warning:</strong> {escape(text)}</p>' for text in facts["warnings"]]
    parts.append(f'<div class="glance">{audit_figure(facts)}{tiles(facts)}</div>')
    headings, rows = rows_of(facts)
    parts.append(_table(headings, rows) + terms(headings))
    if trace is not None:
        parts.append(_inspector(trace, i))
    parts.append(_details("Every attack: mean ± standard error, from the same initial states", every_attack(facts)))
    parts.append(_units(facts))
    parts.append(_certified(facts))
    parts.append(
        f"<details><summary>Threat model, and scope of the certificates</summary><p>{escape(_SCOPE)}</p></details>"
    )
    parts.append(_notes(facts))
    return f'<section class="agent">{"".join(parts)}</section>'


def _inspector(trace: Mapping[str, Any], i: int) -> str:
    # In a script element only "<" could end it; JSON has another spelling for it.
    shown = {name: value for name, value in trace.items() if name != "world"}  # which is for playing it again
    data = json.dumps(shown, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    last = _steps(trace) - 1
    changed = trace["first_changed"] if trace["first_changed"] is not None and trace["first_changed"] <= last else None
    title = f"Inspector: {trace['attack']} at ε = {spell_radius(trace['radius'])}, one episode step by step"
    jump = " disabled>no action was changed" if changed is None else f' data-step="{int(changed)}">first changed action'
    jump += "" if changed is None else f": step {int(changed)}"
    return (
        f'<section class="inspector" data-trace="trace-{i}"><h3>{escape(title)}</h3>'
        f'<div class="controls"><button type="button" class="back" aria-label="one step back">‹</button>'
        f'<input type="range" min="0" max="{last}" value="0" step="1" aria-label="step">'
        f'<button type="button" class="next" aria-label="one step on">›</button>'
        f'<button type="button" class="play">play</button>'
        f'<button type="button" class="jump"{jump}</button></div>'
        f'<p class="now" role="status"></p><div class="timeline"></div><div class="stage"></div>'
        f'<div class="panes"><div class="views"></div>'
        f'<div><h4 class="bars-title"></h4><div class="bars"></div></div></div>'
        f"<noscript>The inspector needs scripts; everything else on this page does not.</noscript></section>"
        f'<script type="application/json" id="trace-{i}">{data}</script>'
    )


def _units(facts: Mapping[str, Any]) -> str:
    levels = [level for level in facts["levels"] if level["env_units"]]
    if not levels:
        return ""
    names = facts["features"] or ["every pixel"]
    headings = ["feature", *(f"ε = {spell_radius(level['radius'])}" for level in levels)]
    count = len(levels[0]["env_units"])
    names = names if len(names) == count else [f"feature {k}" for k in range(count)]
    rows = [[name, *(f"± {level['env_units'][k]:.4g}" for level in levels)] for k, name in enumerate(names)]
    return _details("ε in the environment's own units", (headings, rows))


def _certified(facts: Mapping[str, Any]) -> str:
    found = facts["certified_radius"]
    if found is None:
        return ""
    said = (
        f"Mean certified radius {digits_down(found['mean'])} (median {digits_down(found['median'])}, least "
        f"{digits_down(found['least'])}, most {digits_down(found['most'])}) over {found['states']} of {found['of']} "
        f"visited states, by {facts['bound']}, "
        f"{facts['arithmetic']}."
    )
    return f"<p>{escape(said)}</p>"


def _notes(facts: Mapping[str, Any]) -> str:
    items = [*facts["notes"]]
    items += [f"attack {name} does not apply: {why}" for name, why in facts["left_out"].items()]
    items += [f"no time for {', '.join(facts['cuts'])}"] if facts["cuts"] else []
    items.append(f"{number(facts['wall_seconds'])} seconds in all")
    return f'<ul class="notes">{"".join(f"<li>{escape(str(text))}</li>" for text in items)}</ul>'


def _details(title: str, grid: tuple[list[str], list[list[str]]]) -> str:
    return f"<details><summary>{escape(title)}</summary>{_table(*grid)}</details>" if grid[1] else ""


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(heading(text) for text in headings)
    # On a narrow screen each row is a block of lines, and the heading stands before its cell.
    cells = [[_cell(name, text) for name, text in zip(headings, row, strict=True)] for row in rows]
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in cells)
    table = f'<table class="stacks"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    return f'<div class="scroll">{table}</div>'


def _cell(name: str, text: str) -> str:
    none = ' class="none"' if text == EMPTY else ""
    return f'<td{none} data-label="{escape(name)}">{escape(text)}</td>'
