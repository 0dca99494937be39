"""What an audit found, as data: one level per radius, each with its attacks, its certificates and its bracket.

Everything becomes JSON with `to_json`; the words around the numbers are in `verdict`, the page in `reports`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from radial.evaluation import statistics


@dataclass(frozen=True)
class Played(statistics.Averaged):
    """Episodes under one attack at one radius; number i starts as number i of every other attack does.

    gap, gap_sem  what the attack costs against the undisturbed episodes, paired
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

    lower   None: nothing is known from below
    kind    "certified": proven for every adversary in the ball (AWC); "estimate": greedy (GWC) and no bound;
            "heuristic": the worst corner of action boxes and no bound; "none"
    starts  how many first states it is about: the mean over them, on both sides
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
    """An audit of one agent: what was asked, what was found, what was cut."""

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
