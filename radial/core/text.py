"""Formats numbers for people, suggests the nearest known name, and makes text from files fit to print.

Knows nothing of the meaning of either.
"""

import difflib
import math
from collections.abc import Collection

_SPACES = set("\u00a0\u1680\u202f\u205f\u3000").union(map(chr, range(0x2000, 0x200B)))  # not printable to Python


def spell_radius(radius: float | tuple[float, ...]) -> str:
    """Format a radius: "0.075", but "3/255" where that is shorter; "(0.1, 0)" if it is per feature."""
    if isinstance(radius, tuple):
        return f"({', '.join(spell_radius(each) for each in radius)})"
    plain, pixels = f"{radius:g}", f"{round(radius * 255, 6):g}"
    steps = math.isclose(float(pixels), radius * 255, rel_tol=1e-9) and len(pixels) + 4 < len(plain)
    return f"{pixels}/255" if steps else plain


def round_down(value: float, digits: int = 1) -> str:
    """Format a certified lower bound, rounded down; 1e-6 of the last digit is allowed for the rounding of a mean."""
    unit = 10**digits
    return f"{math.floor(unit * value + 1e-6) / unit:.{digits}f}"


def round_up(value: float, digits: int = 1) -> str:
    """Format an upper bound, rounded up; the same is allowed."""
    unit = 10**digits
    return f"{math.ceil(unit * value - 1e-6) / unit:.{digits}f}"


def percent_down(share: float) -> str:
    """A certified share as a whole percentage, rounded down: "99 %" of 0.9996."""
    return f"{round_down(100 * share, 0)} %"


def digits_down(value: float, significant: int = 3) -> str:
    """A lower bound ≥ 0 with some significant digits, rounded down: a certified radius."""
    if not (value > 0 and math.isfinite(value)):
        return f"{value:g}"
    unit = 10.0 ** (significant - 1 - math.floor(math.log10(value)))
    return f"{math.floor(unit * value * (1 + 1e-12)) / unit:.{significant}g}"


def nearest(name: str, known: Collection[str]) -> str:
    """Suggest the nearest known name, such as "; did you mean 'mad'?", or return ""."""
    close = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""


def clean(text: str, keep: str = "\n\t") -> str:
    """Text that a terminal shows and does not obey: escapes, overrides and surrogates become "\ufffd".

    keep  control characters that may stay
    """
    return text if text.isprintable() else "".join("\ufffd" if _unseen(c) and c not in keep else c for c in text)


def clean_json(text: str) -> str:
    """JSON with the same meaning, in which such characters are spelled by their numbers."""
    return "".join(_spelled(c) if _unseen(c) and c != "\n" else c for c in text)


def _unseen(character: str) -> bool:
    """Control and format characters, such as bidirectional overrides; line separators; surrogates."""
    return not character.isprintable() and character not in _SPACES


def _spelled(character: str) -> str:
    code = ord(character)
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000  # two surrogates, as JSON has it
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"


def has_surrogate(value: object) -> bool:
    """Whether a string anywhere in JSON data has half a character, which no file or terminal takes."""
    rest = [value]
    while rest:
        one = rest.pop()
        if isinstance(one, dict):
            rest += [*one.keys(), *one.values()]
        elif isinstance(one, list):
            rest += one
        elif isinstance(one, str) and not one.isascii() and any("\ud800" <= c <= "\udfff" for c in one):
            return True
    return False
