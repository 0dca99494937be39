"""A ramp of ε that follows the bounds: it holds while they are too wide, or while the policy loses its actions.

The ramp of RADIAL's schedules, which follows the return alone, is in `ramp`.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from radial.training.ramp import Ramp

LIMIT = 2.0  # of width/spread at the scores: above it ε holds
KEPT_SHARE = 0.5  # of the teacher's action entropy, number of actions or spread that the student must keep
FIRST_RATIO = 0.5  # at which ε begins
USED = 0.01  # share of the states in which an action must be taken to count as used


class RatioRamp:
    """ε = ε_max·s^(1 − p), where p grows from 0 to 1 in `updates` updates unless it is held; s is where it begins.

    It holds at a ratio above LIMIT, and where the student keeps less than half of the teacher's entropy of actions or
    of their number, or of the spread of its mean actions; the pace is that of a return-controlled `Ramp`, which may
    also go back.
    """

    def __init__(self, radius: float, updates: int, tolerance: float) -> None:
        self.radius, self.updates = radius, max(1, updates)
        self.returns = Ramp(tolerance, 0)
        self.progress, self.first, self.held = 0.0, 0.0, False

    def begin(self, ratio: float) -> None:
        """Start the ramp where the ratio is about FIRST_RATIO. ratio: of the student at ε_max."""
        self.first = min(0.1, FIRST_RATIO / ratio) if math.isfinite(ratio) and ratio > 0 else 1e-6

    @property
    def epsilon(self) -> float:
        """The present ε; 0 before `begin`."""
        return self.radius * self.first ** (1 - self.progress) if self.first else 0.0

    def hear(self, returns: Sequence[float] | None, step: int) -> None:
        """Set the pace from the clean returns of an evaluation; the first ones are the reference."""
        if returns:
            self.returns.hear(step, returns)

    def advance(self, ratio: float, keeps: float) -> None:
        """After an update: one step on, unless it is held.

        ratio  of the student at the present ε        keeps  the share that it keeps of its teacher's actions
        """
        pace = self.returns.pace
        self.held = not (ratio <= LIMIT and keeps >= KEPT_SHARE)
        if self.first and not (self.held and pace > 0):
            self.progress = min(max(self.progress + pace / self.updates, 0.0), 1.0)

    def state(self) -> dict[str, Any]:
        """Everything that changes, as plain values."""
        return {"progress": self.progress, "first": self.first, "returns": self.returns.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Resume from a saved state."""
        self.progress, self.first = float(state["progress"]), float(state["first"])
        self.returns.restore(state["returns"])


def share_kept(student: Tensor, teacher: Tensor, discrete: bool) -> float:
    """How much of the teacher's actions a student keeps on the same states; both scores (B, A).

    The least of: entropy of the greedy actions, and their number; for continuous actions, the spread of each mean.
    """
    if not discrete:
        wide = teacher.std(0)
        return float((student.std(0) / wide.clamp(min=1e-12))[wide > 1e-6].amin()) if bool((wide > 1e-6).any()) else 1.0
    (mine, of_mine), (theirs, of_theirs) = _usage(student), _usage(teacher)
    return min(mine / theirs if theirs > 0 else 1.0, of_mine / of_theirs)


def _usage(scores: Tensor) -> tuple[float, int]:
    """Entropy of the greedy actions over states, in nats, and how many are used in at least 1 % of them."""
    share = torch.bincount(scores.argmax(1), minlength=scores.shape[1]).double() / scores.shape[0]
    return float(-(share * share.clamp(min=1e-300).log()).sum()), int((share >= USED).sum())
