"""Requirements such as `return@0.05>=400`: what continuous integration asks of an agent.

A requirement about something that was not measured is broken, never passed over.
"""

import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass

from radial.core.data import BadInput
from radial.workflows.audit.result import AuditResult, Level

COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt,
}  # fmt: skip
SPELLED = {"≥": ">=", "≤": "<="}


def _of_bracket(level: Level) -> float | None:
    certified = level.bracket is not None and level.bracket.kind == "certified"
    return level.bracket.lower if certified and level.bracket is not None else None


AT_RADIUS: dict[str, Callable[[Level], float | None]] = {
    "return": lambda level: None if level.worst is None else level.worst.mean,
    "acr": lambda level: None if level.acr is None else level.acr["mean"],
    "gwc": lambda level: None if level.gwc is None else level.gwc["mean"],
    "lower": _of_bracket,
    "width": lambda level: None if level.box is None else level.box["width"],
}
OVERALL: dict[str, Callable[[AuditResult], float | None]] = {
    "nominal": lambda result: result.nominal.mean,
    "radius": lambda result: None if result.certified_radius is None else result.certified_radius["mean"],
}


@dataclass(frozen=True)
class Requirement:
    """One line of a contract: a metric, at a radius if it has one, compared with a number."""

    text: str
    metric: str
    radius: float | None
    sign: str
    limit: float

    def broken(self, result: AuditResult) -> str | None:
        """Why the result does not meet it, in one line; None: it does."""
        value = self._value(result)
        if value is None:
            return f"{self.text}: {self.metric} was not measured"
        return None if COMPARE[self.sign](value, self.limit) else f"{self.text}: {self.metric} is {value:g}"

    def _value(self, result: AuditResult) -> float | None:
        if self.radius is None:
            return OVERALL[self.metric](result)
        level = next((level for level in result.levels if level.radius == self.radius), None)
        return None if level is None else AT_RADIUS[self.metric](level)


def requirement(text: str) -> Requirement:
    """Read `METRIC@RADIUS>=NUMBER`; radii may be written 3/255, signs ≥ and ≤."""
    number = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?"
    found = re.fullmatch(
        rf"\s*(\w+)\s*(?:@\s*({number})(?:/(\d+))?)?\s*(>=|<=|≥|≤|>|<)\s*({number})\s*", text, re.IGNORECASE
    )
    known = f"{', '.join(f'{name}@RADIUS' for name in AT_RADIUS)}, {', '.join(OVERALL)}"
    if found is None:
        raise BadInput(f"a requirement must read like return@0.05>=400, got {text!r}")
    name, radius, divisor, sign, limit = found.groups()
    if name not in (AT_RADIUS if radius is not None else OVERALL):
        raise BadInput(f"a requirement must be about one of {known}, got {text!r}")
    if divisor is not None and float(divisor) == 0:
        raise BadInput(f"a requirement's radius must be a number, got {text!r}")
    at = None if radius is None else float(radius) / float(divisor or 1)
    if at is not None and not 0 <= at < math.inf:
        raise BadInput(f"a requirement's radius must be finite and ≥ 0, got {text!r}")
    return Requirement(text.strip(), name, at, SPELLED.get(sign, sign), float(limit))
