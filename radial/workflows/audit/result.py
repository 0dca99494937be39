"""The result of an audit: one level per radius with its attacks, certificates and bracket; requirements.

Everything becomes JSON with `to_json`; the headline is in `verdict`, the page in `reports`.
"""

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from radial.core.data import BadInput
from radial.evaluation import statistics
from radial.evaluation.crossfit import cross_fitted
from radial.evaluation.statistics import lowest

NOTICED = 0.1  # of the range of returns: a smaller gap is no clear effect
ERRORS = 2.0  # standard errors of a gap: a smaller one is no clear effect either


@dataclass(frozen=True)
class Played(statistics.Averaged):
    """Episodes under one attack at one radius.

    gap, gap_sem  of the clean return over this one, paired by their starts
    numbers       of the starts: those with the same number begin alike; empty: 0, 1, 2, …
    unharmed      return of the starts that time cut off, by which attacks are compared and nothing else
    """

    attack: str
    radius: float
    settings: str
    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    gap: float = 0.0
    gap_sem: float = 0.0
    numbers: tuple[int, ...] = ()
    unharmed: Mapping[int, float] = field(default_factory=dict)

    @property
    def by_start(self) -> dict[int, float]:
        """The return from each start, by its number."""
        return dict(zip(self.numbers or range(len(self.returns)), self.returns, strict=True))

    def gaps(self, clean: "Played") -> dict[int, float]:
        """What clean episodes return above these, by the number of the start."""
        known = clean.by_start
        return {number: known[number] - reached for number, reached in self.by_start.items() if number in known}

    def clear(self, width: float) -> bool:
        """Whether its effect is clear: the gap exceeds a tenth of the range of returns, and two standard errors."""
        return self.gap > NOTICED * width and self.gap > ERRORS * self.gap_sem

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "attack": self.attack, "radius": self.radius, "settings": self.settings, "returns": list(self.returns),
            "lengths": list(self.lengths), "mean": self.mean, "sem": self.sem,
            "iqm": statistics.iqm(self.returns), "iqm_ci95": list(statistics.iqm_ci95([self.returns])),
            "gap": self.gap, "gap_sem": self.gap_sem, "starts": list(self.by_start),
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
        """The strongest attack, on the starts that it shares with the others: the episodes that are reported, too."""
        return self.attacks[lowest(self.returns)] if self.attacks else None

    @property
    def held_out(self) -> dict[str, float] | None:
        """The return if the strongest attack is chosen on other episodes; None: there are too few.

        Each half of the starts is judged by the attack that was the strongest on the other half, so every episode
        counts once. `worst` is the least of several noisy means and so a little lower.
        """
        found = cross_fitted(self.returns, set[int]().union(*self.returns.values()))
        return None if found is None or len(found.returns) < 2 else {"mean": found.mean, "sem": found.sem}

    @property
    def returns(self) -> dict[str, dict[int, float]]:
        """Of each attack, by the number of the start; what time cut off counts as unharmed."""
        return {name: {**played.unharmed, **played.by_start} for name, played in self.attacks.items()}

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        worst = self.worst
        return {
            "radius": self.radius, "env_units": self.env_units,
            "attacks": [played.to_json() for played in self.attacks.values()],
            "worst": None if worst is None else worst.attack,
            "worst_return": None if worst is None else worst.mean, "held_out": self.held_out,
            "acr": self.acr, "gwc": self.gwc, "awc": self.awc, "box": self.box,
            "bracket": None if self.bracket is None else self.bracket.to_json(),
        }  # fmt: skip


@dataclass
class AuditResult:
    """An audit of one agent: its settings, its findings, and the work that was cut.

    random       mean return of uniformly random actions from the same starts; None: not known
    horizon      returns are those of the first so many steps, because no clean episode ended in time; None: of episodes
    interrupted  by Ctrl-C
    """

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
    random: float | None = None
    horizon: int | None = None
    interrupted: bool = False

    @property
    def width(self) -> float:
        """The range in which the return can move: from that of random actions to the clean one.

        Random actions are what is left of a policy that sees nothing. Where their return is not known: |clean return|.
        """
        clean = self.nominal.mean
        return abs(clean) if self.random is None else abs(clean - self.random)

    def largest_drop(self) -> tuple[float, int, Played] | None:
        """The radius, the number of the start and the attack of the episode that lost most; None: there is none.

        Of equal ones that at the smallest radius; where no attack did anything, one at the largest.
        """
        drops = [
            (gap, level.radius, number, played)
            for level in self.levels
            for played in level.attacks.values()
            for number, gap in played.gaps(self.nominal).items()
        ]
        if not drops:
            return None
        gap, radius, number, played = max(drops, key=lambda one: (one[0], -one[1], -one[2]))
        if gap <= 0:
            gap, radius, number, played = max(drops, key=lambda one: (one[1], -one[2]))
        return radius, number, played

    def to_json(self, trace: bool = False) -> dict[str, Any]:
        """Plain values that `json` can write; with the recorded episode only if asked, for it is long."""
        return {
            "format": 1, **self.facts, "range": {"random": self.random, "width": self.width, "horizon": self.horizon},
            "interrupted": self.interrupted, "verdict": self.verdict, "nominal": self.nominal.to_json(),
            "levels": [level.to_json() for level in self.levels], "certified_radius": self.certified_radius,
            "left_out": dict(self.left_out), "notes": self.notes, "warnings": self.warnings, "cuts": self.cuts,
            "wall_seconds": self.wall_seconds, **({"trace": self.trace} if trace else {}),
        }  # fmt: skip

    def __str__(self) -> str:
        return self.verdict


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
