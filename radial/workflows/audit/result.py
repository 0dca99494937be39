"""The result of an audit: one level per radius with its attacks, certificates and bracket; headline; requirements.

Everything becomes JSON with `to_json`; the page is in `reports`.
"""

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from radial.core.data import BadInput
from radial.core.text import round_down, spell_radius
from radial.evaluation import statistics

KEEPS = 0.9  # of the clean return: robust so far
USEFUL = 0.5  # of it: worth certifying


@dataclass(frozen=True)
class Played(statistics.Averaged):
    """Episodes under one attack at one radius; number i starts as number i of every other attack does.

    gap, gap_sem  of the clean return over this one, paired
    """

    attack: str
    radius: float
    settings: str
    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    gap: float = 0.0
    gap_sem: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "attack": self.attack, "radius": self.radius, "settings": self.settings, "returns": list(self.returns),
            "lengths": list(self.lengths), "mean": self.mean, "sem": self.sem,
            "iqm": statistics.iqm(self.returns), "iqm_ci95": list(statistics.iqm_ci95([self.returns])),
            "gap": self.gap, "gap_sem": self.gap_sem,
        }  # fmt: skip


@dataclass(frozen=True)
class Bracket:
    """lower ≤ the worst return ≤ upper.

    lower   None: no lower bound and no estimate of one
    kind    of the lower bound. "certified": for every adversary in the ball (AWC); "estimate": greedy (GWC) and no
            bound; "heuristic": the worst corner of action boxes and no bound; "none"
    starts  how many first states; both bounds are means over the same ones
    """

    lower: float | None
    upper: float | None
    kind: str
    starts: int
    says: str

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        gap = None if self.lower is None or self.upper is None else self.upper - self.lower
        return {
            "lower": self.lower, "upper": self.upper, "gap": gap, "kind": self.kind, "starts": self.starts,
            "says": self.says,
        }  # fmt: skip


@dataclass
class Level:
    """Everything at one radius.

    acr, width, …  None where it does not apply or there was no time
    """

    radius: float
    attacks: dict[str, Played] = field(default_factory=dict)
    acr: dict[str, Any] | None = None
    gwc: dict[str, Any] | None = None
    awc: dict[str, Any] | None = None
    box: dict[str, Any] | None = None
    bracket: Bracket | None = None
    env_units: list[float] | None = None

    @property
    def worst(self) -> Played | None:
        """The attack with the lowest mean return."""
        return min(self.attacks.values(), key=lambda played: played.mean, default=None)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        worst = self.worst
        return {
            "radius": self.radius, "env_units": self.env_units,
            "attacks": [played.to_json() for played in self.attacks.values()],
            "worst": None if worst is None else worst.attack,
            "worst_return": None if worst is None else worst.mean,
            "acr": self.acr, "gwc": self.gwc, "awc": self.awc, "box": self.box,
            "bracket": None if self.bracket is None else self.bracket.to_json(),
        }  # fmt: skip


@dataclass
class AuditResult:
    """An audit of one agent: its settings, its findings, and the work that was cut."""

    facts: Mapping[str, Any]  # agent, env, engine, seed, episodes, bound, …
    nominal: Played
    levels: list[Level]
    certified_radius: dict[str, Any] | None = None
    left_out: Mapping[str, str] = field(default_factory=dict)  # attack → why it does not apply
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    cuts: list[str] = field(default_factory=list)
    trace: dict[str, Any] | None = field(default=None, repr=False)
    verdict: str = ""
    wall_seconds: float = 0.0

    def to_json(self, trace: bool = False) -> dict[str, Any]:
        """Plain values that `json` can write; with the recorded episode only if asked, for it is long."""
        return {
            "format": 1, **self.facts, "verdict": self.verdict, "nominal": self.nominal.to_json(),
            "levels": [level.to_json() for level in self.levels], "certified_radius": self.certified_radius,
            "left_out": dict(self.left_out), "notes": self.notes, "warnings": self.warnings, "cuts": self.cuts,
            "wall_seconds": self.wall_seconds, **({"trace": self.trace} if trace else {}),
        }  # fmt: skip

    def __str__(self) -> str:
        return self.verdict


# --------------------------------------------------------------------------------------------------------- the headline


def headline(result: AuditResult, attacked: bool = True) -> str:
    """Two or three sentences, of numbers in the result alone: where it breaks, up to where it holds, the certificate.

    attacked  False: the caller asked for no attack
    """
    nominal = result.nominal.mean
    said = [f"Clean return {nominal:.1f} ± {result.nominal.sem:.1f}."]
    tried = [(level.radius, level.worst) for level in result.levels if level.worst is not None]
    if not tried:
        why = "There was no time for an attack." if attacked else "No attack was asked for."
        return " ".join([*said, why, _certificate(result)])
    broken = [(radius, worst) for radius, worst in tried if not _keeps(worst.mean, nominal, KEEPS)]
    first, worst = min(broken, key=lambda pair: pair[0], default=(math.inf, None))
    if worst is not None:
        said.append(f"Not robust: at ε = {spell_radius(first)} {worst.attack} reduces the return to {worst.mean:.1f}.")
    below = [radius for radius, _ in tried if radius < first]
    if below:
        said.append(f"No attack tried costs more than a tenth of it up to ε = {spell_radius(max(below))}.")
    return " ".join([*said, _certificate(result)])


def _keeps(value: float, nominal: float, share: float) -> bool:
    return nominal - value <= (1 - share) * abs(nominal)


def _certificate(result: AuditResult) -> str:
    """The certified return, which holds against every adversary and not only those that were tried.

    Of several radii the largest at which half of the clean return is certified; if there is none, the best certificate.
    """
    certified = [
        (level.radius, level.bracket.lower, level.bracket.starts) for level in result.levels
        if level.bracket is not None and level.bracket.kind == "certified" and level.bracket.lower is not None
    ]  # fmt: skip
    useful = [one for one in certified if _keeps(one[1], result.nominal.mean, USEFUL)]
    if certified:
        radius, lower, starts = max(useful) if useful else max(certified, key=lambda one: one[1])
        what = "Certified" if useful else "Little is certified"
        whose = f"mean return from these {starts} starts" if starts > 1 else "return from this one start"
        return f"{what}: at ε = {spell_radius(radius)} no adversary can bring the {whose} below {round_down(lower)}."
    if result.certified_radius is not None:
        mean = result.certified_radius["mean"]
        if mean == 0:
            return "No action in the visited states is certified at any ε."
        return f"Mean certified radius over visited states: ε = {mean:.2g}. No return is certified."
    return "No return is certified."


# --------------------------------------------------------------------------------------------------------- requirements

COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt,
}  # fmt: skip
SPELLED = {"≥": ">=", "≤": "<="}


def _certified_lower(level: Level) -> float | None:
    certified = level.bracket is not None and level.bracket.kind == "certified"
    return level.bracket.lower if certified and level.bracket is not None else None


AT_RADIUS: dict[str, Callable[[Level], float | None]] = {
    "return": lambda level: None if level.worst is None else level.worst.mean,
    "acr": lambda level: None if level.acr is None else level.acr["mean"],
    "gwc": lambda level: None if level.gwc is None else level.gwc["mean"],
    "lower": _certified_lower,
    "width": lambda level: None if level.box is None else level.box["width"],
}
OVERALL: dict[str, Callable[[AuditResult], float | None]] = {
    "nominal": lambda result: result.nominal.mean,
    "radius": lambda result: None if result.certified_radius is None else result.certified_radius["mean"],
}


@dataclass(frozen=True)
class Requirement:
    """One line of a contract: a metric, at a radius if it has one, compared with a number.

    About something that was not measured it is broken, never passed over.
    """

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
        if not math.isfinite(value):
            return f"{self.text}: {self.metric} is {value:g}, which is no number"
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
