"""What a search for the absolute worst case found, start by start: proven from below, attained from above.

How it is searched for is in `worst_case`.
"""

import math
from dataclasses import dataclass
from typing import Any

from radial.core.text import round_down
from radial.evaluation import statistics
from radial.evaluation.certificates import Terms


@dataclass(frozen=True)
class Start:
    """What is known of the worst case from one first state.

    lower     no sequence of possible actions returns less; −inf: nothing is proven
    upper     `path` returns this much, so the worst case is no better
    greedy    the return of the greedy worst case (GWC) from here
    expanded  states whose possible actions were bounded
    path      possible actions from the first state on
    """

    lower: float
    upper: float
    greedy: float
    expanded: int
    path: tuple[int, ...]

    @property
    def exact(self) -> bool:
        """Whether the search is complete, so that lower = upper = AWC."""
        return self.lower == self.upper


@dataclass(frozen=True)
class AbsoluteWorstCase:
    """AWC of one or more first states; where the budget ended the search, an interval that holds it."""

    terms: Terms
    budget: int  # states per start
    reward_low: float | None
    starts: tuple[Start, ...]
    wall_seconds: float

    @property
    def lower(self) -> float:
        """Mean over the starts of what is proven."""
        return sum(start.lower for start in self.starts) / len(self.starts)

    @property
    def upper(self) -> float:
        """Mean over the starts of what is attained."""
        return statistics.mean([start.upper for start in self.starts])

    @property
    def greedy(self) -> float:
        """Mean over the starts of the greedy worst case."""
        return statistics.mean([start.greedy for start in self.starts])

    @property
    def exact(self) -> bool:
        """Whether every search is complete."""
        return all(start.exact for start in self.starts)

    @property
    def expanded(self) -> int:
        """States bounded in all."""
        return sum(start.expanded for start in self.starts)

    def to_json(self) -> dict[str, Any]:
        """Plain values that `json` can write; a lower end of −inf is null."""
        starts = [
            {
                "lower": _finite(start.lower), "upper": start.upper, "greedy": start.greedy, "exact": start.exact,
                "expanded": start.expanded, "path": list(start.path),
            }
            for start in self.starts
        ]  # fmt: skip
        return {
            "metric": "awc", **self.terms.to_json(), "budget": self.budget, "reward_low": self.reward_low,
            "lower": _finite(self.lower), "upper": self.upper, "exact": self.exact, "greedy": self.greedy,
            "expanded": self.expanded, "starts": starts, "says": str(self), "wall_seconds": self.wall_seconds,
        }  # fmt: skip

    def __str__(self) -> str:
        where = f"at {self.terms.radius:g} ({self.terms.bound}, {self.expanded} states)"
        if self.exact:
            return f"AWC {self.upper:.1f}, exact, {where}"
        unfinished = sum(not start.exact for start in self.starts)
        proven = "nothing" if math.isinf(self.lower) else round_down(self.lower)
        return (
            f"AWC ≤ {self.upper:.1f}, proven ≥ {proven}, {where}: the budget of {self.budget} states ended "
            f"{unfinished} of {len(self.starts)} searches"
        )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
