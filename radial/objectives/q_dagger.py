"""QDagger-like learning: deep Q-learning that also imitates a teacher's policy, less and less (Agarwal et al. 2022)."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from radial.core import checks
from radial.core.data import BadInput
from radial.core.schedules import Linear, Schedule, settle
from radial.objectives.base import Coefficients, Unscheduled
from radial.objectives.q_learning import TD, Batch, Nets, OneNetwork, Plain, QLoss, clean_pass, weighted_mean


@dataclass(frozen=True)
class QDagger(OneNetwork, Unscheduled):
    """TD loss + weight·KL(π_teacher ‖ softmax(Q/temperature)): a strong actor-critic as a start for Q-learning.

    weight  falls to 0, from where it is plain Q-learning. While it is at its start the teacher acts, to fill the replay

    QDagger lowers the weight with the ratio of the returns of student and teacher, and has a separate phase of offline
    updates; here it follows a schedule, and updates are made from the first transitions on.
    """

    weight: Schedule = Linear(0.0, 100_000, 300_000, start=1.0)
    temperature: float = 1.0

    def __post_init__(self) -> None:
        settle(self, "weight")
        checks.positive(self, "temperature")

    def teaches(self, step: int) -> bool:
        """Whether the teacher acts at this env step."""
        return self.weight(step) > 0 and self.weight(step) >= self.weight(0)

    def coefficients(self, step: int) -> dict[str, float]:
        """The weight."""
        return {"weight": self.weight(step)}

    def at(self, step: int) -> Any:
        """Plain Q-learning where the weight is 0."""
        return self if self.weight(step) > 0 else Plain()

    def __call__(self, nets: Nets, batch: Batch, at: Coefficients, td: TD) -> QLoss:
        """mean(w·(TD loss + weight·KL)), with w the importance weights."""
        if nets.teacher is None:
            raise BadInput("nets.teacher must be a network for QDagger, got None")
        clean = clean_pass(nets, batch, td)
        with torch.no_grad():
            taught = F.log_softmax(nets.teacher(batch.x), 1)
        learned = F.log_softmax(clean.q / self.temperature, 1)
        apart = F.kl_div(learned, taught, log_target=True, reduction="none").sum(1)
        return clean.loss(clean.td + at["weight"] * apart, batch, teacher_kl=weighted_mean(apart, batch))


def taught(objective: object, step: int) -> bool:
    """Whether an objective has its teacher act at this env step."""
    return isinstance(objective, QDagger) and objective.teaches(step)
