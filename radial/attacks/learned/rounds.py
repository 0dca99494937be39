"""Who competes in a search for the strongest adversary, how a budget is spent on them, who goes on, and
where copies of their runs are kept.

How they are trained is in `halving`.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from radial.agents.policies import CategoricalAgent, GaussianAgent
from radial.core.data import EnvSpec
from radial.envs import envpool_vec
from radial.runs.storage import SharedStorage

_FIRST_SHARE = 0.5  # of the budget goes to the first round, at a constant learning rate; in the second it falls to 0

Policy = GaussianAgent | CategoricalAgent


@dataclass(frozen=True)
class Candidate:
    """One training: a kind of adversary, a learning rate, a number that makes its seed."""

    kind: str
    learning_rate: float  # 0: a constant or a linear one, which is not trained by gradients
    number: int
    warm: bool = False  # starts from the constant of this number, the worst for the agent first
    linear: bool = False  # a linear policy, by the cross-entropy method

    @property
    def trained(self) -> bool:
        """By gradients, in rounds."""
        return self.learning_rate > 0

    @property
    def name(self) -> str:
        """For its folder."""
        how = "-warm" if self.warm else "-linear" if self.linear else ""
        return f"{self.kind}-{self.learning_rate:g}-{self.number}{how}"

    @property
    def title(self) -> str:
        """For readers."""
        if not self.trained:
            return f"{self.kind}, {'linear' if self.linear else 'constants'}"
        return f"{self.kind}, rate {self.learning_rate:g}, {self.number}{', warm' if self.warm else ''}"


@dataclass(frozen=True)
class Trial:
    """A training, and the agent's mean return under it in validation; lower is stronger."""

    candidate: Candidate
    round: int
    steps: int
    validation: float  # infinite: it was cut, because its episodes did not end within its share of the budget

    @property
    def cut(self) -> bool:
        """Whether it ended without a result."""
        return self.validation == math.inf


@dataclass(frozen=True, eq=False)
class Searched:
    """The strongest adversary found; `acts` as in `LearnedAttack`."""

    kind: str
    policy: Policy
    steps: int
    acts: str
    record: dict[str, Any]


def survivors(scores: Mapping[Candidate, float], count: int) -> list[Candidate]:
    """The `count` best, the lowest return first; of two or more one started from nothing and one from a constant.

    A training from a constant is ahead at first, and may stay where it began.
    """
    order = sorted(scores, key=lambda candidate: scores[candidate])
    best = order[:count]
    others = [candidate for candidate in order if candidate.warm != best[0].warm]
    if count > 1 and others and others[0] not in best:
        best[-1] = others[0]
    return best


def rounds(steps: int, candidates: int, rollout: int) -> tuple[int, int, int]:
    """How a budget is spent: steps of each candidate in the first round, of each survivor after it, and their number.

    Whole rollouts each; 0 steps in the second round where the budget has none left.
    """
    whole = lambda share: int(share) // rollout * rollout  # noqa: E731
    if candidates == 1:
        return max(rollout, whole(steps)), 0, 0
    going_on = candidates // 2
    first = max(rollout, whole(_FIRST_SHARE * steps / candidates))
    return first, max(0, whole((steps - first * candidates) / going_on)), going_on


def fast(spec: EnvSpec) -> EnvSpec:
    """The env to train in: EnvPool's MuJoCo where it is installed, whatever an evaluation plays in."""
    if spec.suite == "mujoco" and envpool_vec.installed():
        return replace(spec, options={key: value for key, value in spec.options.items() if key != "backend"})
    return spec


@contextmanager
def kept_in(storage: str | None, folder: Path | None, out: Path | None) -> Iterator[None]:
    """Copies of a trial's run in storage, under the name of its search and its own; nothing without storage."""
    if storage is None or folder is None or out is None:
        yield
        return
    with SharedStorage(f"{storage.rstrip('/')}/{out.name}").kept(folder.name, folder):
        yield
