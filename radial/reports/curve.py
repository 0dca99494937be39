"""Return against ε as inline SVG: the strongest attack, the lower bound, and the band between the two.

Lines differ in dashes and marks as well as in colour. Reads plain data of audits.
"""

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from radial.core.text import spell_radius
from radial.reports.cells import kind_of

_WIDTH, _HEIGHT = 640, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 40, 14, 54
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00")
_DASHES = ("", "8 4", "2 3", "10 3 2 3", "5 5", "1 4")
_LABEL = 62  # units that the name of a radius takes, in the larger type of a phone, too
Point = tuple[float, float]


def round_numbers(low: float, high: float, most: int = 6) -> list[float]:
    """The multiples of 1, 2 or 5 times a power of ten in [low, high], as many as there may be: marks of an axis."""
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    step = next(size * power for size in (1, 2, 5, 10, 20) if (high - low) / (size * power) < most)
    return [i * step for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


class Axes:
    """Where ε and return stand on the paper, both to scale."""

    def __init__(self, radii: Sequence[float], values: Sequence[float]) -> None:
        self.radii = sorted({0.0, *radii})
        low, high = min([0.0, *values]), max([0.0, *values])
        margin = 0.05 * (high - low or 1.0)
        self.low, self.high = low - (margin if low < 0 else 0.0), high + margin

    def x(self, radius: float) -> float:
        """Of a radius."""
        return _LEFT + radius / (self.radii[-1] or 1.0) * (_WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        """Of a return."""
        return _TOP + (self.high - value) / (self.high - self.low) * (_HEIGHT - _TOP - _BOTTOM)

    def frame(self) -> str:
        """Grid, numbers, names of the axes."""
        parts = []
        for value in round_numbers(self.low, self.high):
            y = self.y(value)
            parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
            parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:,.6g}</text>')
        foot, free = _HEIGHT - _BOTTOM, math.inf
        for each in reversed(self.radii):  # the largest is always named, a smaller one where there is room
            x = self.x(each)
            parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{foot}" y2="{foot + 5}" class="tick"/>')
            if x > free:
                continue
            named = escape(spell_radius(each))
            parts.append(f'<text x="{x:.1f}" y="{foot + 22}" text-anchor="middle">{named}</text>')
            free = x - _LABEL
        middle = (_LEFT + _WIDTH - _RIGHT) / 2
        parts.append(f'<text x="{middle}" y="{_HEIGHT - 6}" text-anchor="middle">perturbation radius ε</text>')
        return "".join(parts)


def audit_figure(facts: Mapping[str, Any]) -> str:
    """One agent: every attack, and the band of the bracket, whose two sides are means over the same starts."""
    clean = facts["nominal"]["mean"]
    upper = [(0.0, clean)] + [
        (level["radius"], level["worst_return"]) for level in facts["levels"] if level["worst_return"] is not None
    ]
    sides = [
        (level["radius"], level["bracket"]) for level in facts["levels"]
        if level["bracket"] and level["bracket"]["lower"] is not None
    ]  # fmt: skip
    lower = [(0.0, clean)] + [(each, side["lower"]) for each, side in sides]
    above = [(0.0, clean)] + [(each, side["upper"]) for each, side in sides if side["upper"] is not None]
    others = [(level["radius"], one["mean"]) for level in facts["levels"] for one in level["attacks"]]
    axes = Axes([level["radius"] for level in facts["levels"]], [y for _, y in (*upper, *lower, *above, *others)])
    kinds = kind_of(*(side for _, side in sides))
    drawn = axes.frame() + _band(axes, above, lower) + "".join(_tick(axes, point) for point in others)
    y = f"{axes.y(clean):.1f}"
    drawn += f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}" class="clean"/>'
    drawn += _line(axes, upper, _COLOURS[1], "", "circle")
    drawn += _line(axes, lower, _COLOURS[0], "7 4", "square") if sides else ""
    words = [
        ("●—", "strongest attack found", _COLOURS[1]),
        *([("■- -", f"lower bound: {kinds}", _COLOURS[0])] if kinds else []),
        ("–", "each attack", "#555555"),
        ("···", "clean return", "#555555"),
    ]
    return _wrapped(drawn, "Return against ε", words)


def comparison_figure(several: Sequence[Mapping[str, Any]]) -> str:
    """Several agents: the strongest attack on each."""
    lines = [
        [(0.0, facts["nominal"]["mean"])]
        + [(level["radius"], level["worst_return"]) for level in facts["levels"] if level["worst_return"] is not None]
        for facts in several
    ]
    axes = Axes([x for line in lines for x, _ in line], [y for line in lines for _, y in line])
    drawn, words = axes.frame(), []
    for i, (facts, line) in enumerate(zip(several, lines, strict=True)):
        colour, dash, mark = _COLOURS[i % 6], _DASHES[i % 6], ("circle", "square")[i % 2]
        drawn += _line(axes, line, colour, dash, mark)
        words.append(("●—" if mark == "circle" else "■—", facts["agent"], colour))
    return _wrapped(drawn, "Return under the strongest attack, against ε", words)


def _wrapped(drawn: str, title: str, words: list[tuple[str, str, str]]) -> str:
    legend = "".join(
        f'<li><span aria-hidden="true" style="color:{colour}">{mark}</span> {escape(text)}</li>'
        for mark, text, colour in words
    )
    pattern = (
        '<defs><pattern id="hatch" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        '<line x1="0" y1="0" x2="0" y2="7" stroke="#7aa6c2" stroke-width="2"/></pattern></defs>'
    )
    return (
        f'<figure><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}">{pattern}{drawn}</svg>'
        f'<figcaption>{escape(title)}<ul class="legend">{legend}</ul></figcaption></figure>'
    )


def _band(axes: Axes, upper: list[Point], lower: list[Point]) -> str:
    """The area in which the worst-case return lies, at the radii where both bounds are known."""
    below = dict(lower)
    both = [(each, top, below[each]) for each, top in upper if each in below]
    if len(both) < 2:
        return ""
    edge = [(each, top) for each, top, _ in both] + [(each, bottom) for each, _, bottom in reversed(both)]
    points = " ".join(f"{axes.x(x):.1f},{axes.y(y):.1f}" for x, y in edge)
    return f'<polygon points="{points}" fill="url(#hatch)" opacity="0.6"/>'


def _line(axes: Axes, points: list[Point], colour: str, dash: str, mark: str) -> str:
    path = " ".join(f"{axes.x(x):.1f},{axes.y(y):.1f}" for x, y in points)
    drawn = f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"/>'
    for at, value in points:
        x, y = axes.x(at), axes.y(value)
        if mark == "circle":
            drawn += f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>'
        else:
            drawn += f'<rect x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8" fill="{colour}"/>'
    return drawn


def _tick(axes: Axes, point: Point) -> str:
    x, y = axes.x(point[0]), axes.y(point[1])
    return f'<line x1="{x - 6:.1f}" x2="{x + 6:.1f}" y1="{y:.1f}" y2="{y:.1f}" class="tick"/>'
