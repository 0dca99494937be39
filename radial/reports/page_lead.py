"""The top of the page: the one sentence that matters, the numbers it rests on, and the words of the table explained."""

import math
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from radial.core.text import spell_radius
from radial.reports.cells import number, width

# Words of the tables → what they mean, for a reader who has not met them.
TERMS: dict[str, str] = {
    "ε": "Perturbation radius: the most by which an observation may be changed at each step, in network units.",
    "adversarial return": "Mean return ± standard error under the strongest attack tried at this ε.",
    "IQM, 95 %": "Interquartile mean: the mean of the middle half of the episodes, which no freak episode can move; "
    "in brackets its 95 % bootstrap interval.",
    "lower bound": "No less than this is what the worst adversary leaves; see kind for how far to trust it.",
    "gap": "Strongest attack found minus lower bound, from the same initial states. A small gap pins down the worst "
    "case, a large one is inconclusive.",
    "kind": "Certified: proven for every adversary. Estimate and heuristic: no proof, a worse return may exist.",
    "certified actions": "Share of visited states in which no perturbation of this size can change the action (ACR).",
    "GWC": "Greedy worst case: the return when each step takes the worst action that the bounds cannot rule out. An "
    "estimate of the worst return, no bound.",
    "action box": "Certified bounds of the mean action over the ball, relative to the range of actions.",
}  # fmt: skip


def lead(verdict: str) -> str:
    """The verdict with its decisive sentence first and large; the clean return it starts with is context."""
    sentences = re.split(r"(?<=[.!?])\s+(?=[^\W\d_])", verdict.strip())
    at = next((i for i, text in enumerate(sentences) if not text.startswith("Clean return")), 0)
    first, rest = sentences[at], [text for i, text in enumerate(sentences) if i != at]
    more = f'<p class="more">{escape(" ".join(rest))}</p>' if rest else ""
    return f'<div class="lead"><p class="verdict">{escape(first)}</p>{more}</div>'


def tiles(facts: Mapping[str, Any]) -> str:
    """Up to four numbers at a glance; the adversarial return where the strongest attack costs most."""
    items = [("clean return", number(facts["nominal"]["mean"]), "")]
    attacked = [level for level in facts["levels"] if level["worst_return"] is not None]
    if attacked:
        level = min(attacked, key=lambda one: (one["worst_return"], one["radius"]))
        items.append(("adversarial return", number(level["worst_return"]), f"{level['worst']}, {_at(level)}"))
    rated = [level for level in facts["levels"] if level["acr"] is not None]
    if rated:
        level = rated[-1]  # rounded down: a share that is proven
        items.append(("certified actions", f"{math.floor(100 * level['acr']['mean'])} %", _at(level)))
    boxed = [level for level in facts["levels"] if level["box"] is not None]
    if boxed:
        items.append(("certified action box", width(boxed[-1]["box"]), _at(boxed[-1])))
    if facts["certified_radius"] is not None:
        items.append(("mean certified radius", f"{facts['certified_radius']['mean']:.2g}", "of visited states"))
    cells = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd><dd class='sub'>{escape(sub)}</dd></div>"
        for name, value, sub in items
    )
    return f'<dl class="tiles">{cells}</dl>'


def _at(level: Mapping[str, Any]) -> str:
    return f"ε = {spell_radius(level['radius'])}"


def terms(headings: Sequence[str]) -> str:
    """What the headings mean, each in a sentence."""
    known = [(name, TERMS[name]) for name in headings if name in TERMS]
    if not known:
        return ""
    body = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in known)
    return f'<details class="terms"><summary>What the columns mean</summary><dl>{body}</dl></details>'


def heading(text: str) -> str:
    """A heading of a table; one with a meaning of its own says it when pointed at."""
    meaning = TERMS.get(text)
    inner = escape(text) if meaning is None else f'<abbr title="{escape(meaning)}">{escape(text)}</abbr>'
    return f'<th scope="col">{inner}</th>'
