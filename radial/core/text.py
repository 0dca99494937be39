"""How numbers are spelled for people, and which name a misspelt one may be. What they mean is not known here."""

import difflib
import math
from collections.abc import Collection


def spell_radius(radius: float) -> str:
    """A radius as people read it: "0.075", but "3/255" where that is shorter."""
    plain, pixels = f"{radius:g}", f"{round(radius * 255, 6):g}"
    steps = math.isclose(float(pixels), radius * 255, rel_tol=1e-9) and len(pixels) + 4 < len(plain)
    return f"{pixels}/255" if steps else plain


def round_down(value: float) -> str:
    """How what is proven from below is said: one digit, rounded down; 1e-7 is left to the rounding of a mean."""
    return f"{math.floor(10 * value + 1e-6) / 10:.1f}"


def nearest(name: str, known: Collection[str]) -> str:
    """Such as "; did you mean 'mad'?", or nothing."""
    close = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""
