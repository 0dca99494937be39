"""What a caller of `audit` may ask for, read and checked before anything is played."""

from collections.abc import Iterable, Sequence
from numbers import Real
from typing import Any

from radial.attacks import ATTACKS
from radial.core.data import BadInput
from radial.core.text import nearest
from radial.evaluation.play import check_radius


def radii_of(radius: Any, p: float, more: Iterable[float] = ()) -> list[float]:
    """The radii, each once and the smallest first, with those that requirements name.

    radius  one number or several
    """
    if isinstance(radius, str | bytes) or not isinstance(radius, Real | Iterable):
        raise BadInput(f"radius must be a finite number ≥ 0 or a list of such, got {radius!r}")
    given: list[Any] = [radius] if isinstance(radius, Real) else list(radius)
    for each in given:
        check_radius(each, p)
    found = sorted({float(each) for each in given} | set(more))
    if not found:
        raise BadInput("radius must name at least one, such as 0.05; None: a ladder that suits the observations")
    for each in found:
        check_radius(each, p)
    return found


def texts_of(field: str, given: Any) -> list[str]:
    """Several texts; a single one counts as a list of one."""
    texts = [given] if isinstance(given, str) else list(given) if isinstance(given, Iterable) else [given]
    for text in texts:
        if not isinstance(text, str):
            raise BadInput(f"{field} must be a list of texts, got {text!r}")
    return texts


def attacks_of(given: Any) -> list[str] | None:
    """Names of attacks that exist; None: all that apply."""
    if given is None:
        return None
    names = texts_of("attacks", given)
    for name in names:
        if name not in ATTACKS:
            known = [each for each in ATTACKS if each != "none"]
            raise BadInput(f"attack {name!r} cannot be run: known are {', '.join(known)}{nearest(name, known)}")
    return names


def chosen(names: Sequence[str], left_out: dict[str, str], asked: Sequence[str] | None) -> list[str]:
    """Those of the applicable attacks that were asked for, in their order; one that does not apply is refused."""
    if asked is None:
        return list(names)
    for name in asked:
        if name in left_out:
            raise BadInput(f"attack {name!r} cannot be run: {left_out[name]}")
    return [name for name in dict.fromkeys((*names, *ATTACKS)) if name in asked and name != "none"]
