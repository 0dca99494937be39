"""How numbers are spelled for people. What they mean is not known here."""

import math


def spell_radius(radius: float) -> str:
    """A radius as people read it: "0.075", but "3/255" where that is shorter."""
    plain, pixels = f"{radius:g}", f"{round(radius * 255, 6):g}"
    steps = math.isclose(float(pixels), radius * 255, rel_tol=1e-9) and len(pixels) + 4 < len(plain)
    return f"{pixels}/255" if steps else plain
