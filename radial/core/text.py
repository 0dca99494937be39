"""Formats numbers for people and suggests the nearest known name; knows nothing of their meaning."""

import difflib
import math
from collections.abc import Collection


def spell_radius(radius: float) -> str:
    """Format a radius: "0.075", but "3/255" where that is shorter."""
    plain, pixels = f"{radius:g}", f"{round(radius * 255, 6):g}"
    steps = math.isclose(float(pixels), radius * 255, rel_tol=1e-9) and len(pixels) + 4 < len(plain)
    return f"{pixels}/255" if steps else plain


def round_down(value: float) -> str:
    """Format a certified lower bound: one digit, rounded down; 1e-7 is allowed for the rounding of a mean."""
    return f"{math.floor(10 * value + 1e-6) / 10:.1f}"


def nearest(name: str, known: Collection[str]) -> str:
    """Suggest the nearest known name, such as "; did you mean 'mad'?", or return ""."""
    close = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""
