"""The numbers of an audit as table cells, for terminals and for the page. Reads plain data, computes nothing."""

from collections.abc import Mapping
from typing import Any

from radial.core.text import round_down, round_up, spell_radius

EMPTY = "–"
Document = Mapping[str, Any]  # plain data of a result
Grid = tuple[list[str], list[list[str]]]  # headings and rows
_NOTHING = "nothing is certified"
_KINDS = ("certified", "estimate", "heuristic")  # of lower bounds


def number(value: float | None, digits: int = 1) -> str:
    """A number, or – where there is none."""
    return EMPTY if value is None else f"{value:.{digits}f}"


def certified_number(value: float | None, digits: int = 1) -> str:
    """A certified number, never rounded up, or – where there is none."""
    return EMPTY if value is None else round_down(value, digits)


def spread(facts: Document | None, digits: int = 1) -> str:
    """Mean ± standard error."""
    return EMPTY if facts is None else f"{facts['mean']:.{digits}f} ± {facts['sem']:.{digits}f}"


def rows_of(facts: Document) -> Grid:
    """The table of an audit: one row per radius, the strongest attack and the lower bound on the worst case.

    The gap lies between means over the starts of the lower bound, which may be fewer than the episodes.
    """
    discrete = facts["discrete"]
    headings = ["ε", "worst attack", "adversarial return", "IQM, 95 %", "lower bound", "gap", "kind"]
    headings += ["certified actions", "GWC"] if discrete else ["action box"]
    rows = [["0", "none", spread(facts["nominal"]), interval(facts["nominal"]), *[""] * (len(headings) - 4)]]
    for level in facts["levels"]:
        worst = next((one for one in level["attacks"] if one["attack"] == level["worst"]), None)
        side = level["bracket"] or {"lower": None, "gap": None, "kind": "none", "starts": 0}
        row = [spell_radius(level["radius"]), level["worst"] or EMPTY, spread(worst), interval(worst)]
        nothing = str(side.get("says", "")).startswith(_NOTHING)  # the bound is one of every policy
        row += (
            ["–", "–", _NOTHING] if nothing else [certified_number(side["lower"]), number(side["gap"]), kind_of(side)]
        )
        if discrete:
            row += [_rate(level["acr"]), spread(level["gwc"])]
        else:
            row += [width(level["box"])]
        rows.append(row)
    return headings, rows


def _rate(facts: Document | None) -> str:
    """A share of certified actions, and how many distinct actions there were; older audits do not say."""
    if facts is None:
        return EMPTY
    rate, count = f"{round_down(facts['mean'], 3)} ± {facts['sem']:.3f}", facts.get("distinct_actions")
    return rate if count is None else f"{rate} ({count} distinct)"


def kind_of(*sides: Document) -> str:
    """The kinds of lower bounds, and over how many initial states they are means: "certified, 2 or 3 starts"."""
    said = []
    for kind in dict.fromkeys(side["kind"] for side in sides if side["kind"] in _KINDS):
        starts = sorted({int(side["starts"]) for side in sides if side["kind"] == kind})
        counts = " or ".join(str(n) for n in starts)
        said.append(f"{kind}, {counts} {'start' if starts == [1] else 'starts'}")
    return "; ".join(said)


def interval(facts: Document | None) -> str:
    """The interquartile mean and its interval."""
    if facts is None:
        return EMPTY
    low, high = facts["iqm_ci95"]
    return f"{facts['iqm']:.1f} ({low:.1f} … {high:.1f})"


def width(box: Document | None) -> str:
    """How wide the certified action box is."""
    if box is None:
        return EMPTY
    return f"{round_up(100 * box['width'], 0)} % of the range" if box["relative"] else round_up(box["width"], 3)


def every_attack(facts: Document) -> Grid:
    """All attacks at all radii: mean ± standard error."""
    names = list(dict.fromkeys(one["attack"] for level in facts["levels"] for one in level["attacks"]))
    headings = ["attack", *(f"ε = {spell_radius(level['radius'])}" for level in facts["levels"])]
    rows = []
    for name in names:
        cells = [next((one for one in level["attacks"] if one["attack"] == name), None) for level in facts["levels"]]
        rows.append([name, *(spread(cell) for cell in cells)])
    return headings, rows
