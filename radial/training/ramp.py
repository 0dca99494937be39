"""A return-controlled ramp: the pace of a training's schedules depends on the return of its last episodes.

The loops read the schedules' clock from a `Guide`, call it at every log line, and keep its state in their checkpoints.
Certified metrics of the agent come from a function that the caller passes in.
"""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from radial.core.agent import Agent
from radial.core.checks import is_finite
from radial.core.data import BadInput

WINDOW = 20  # episodes in the mean of the current return
ROWS = 64  # observations at most that are watched
AVERAGE = "average."  # before the names of the averaged weights in a checkpoint
KEPT_PER_LOOK = 0.9  # of the averaged weights, whenever the guide looks at the agent
Probe = Callable[[Agent, Tensor], Mapping[str, float]]  # (agent, x in network units) → metrics
Judge = Callable[[int, Agent], Sequence[float] | None]  # (env step, agent) → returns of evaluations; None: not now


class Ramp:
    """A clock for schedules that slows down, pauses and reverses as the return drops.

    Up to `first_step` it equals the env steps, and the mean return R₀ of the last episodes is taken as the reference.
    From then on, with R the mean of the last 20, s₀ the deviation of the returns behind R₀ and e the standard error of
    R₀ − R,

    lost = (R₀ − R − e)/max(|R₀|, s₀)
    pace = clip(2 − 2·lost/tolerance, −1, 1)

    so it runs at full pace while less than half of the tolerance is lost, and pauses where all of it is. A drop within
    the standard error does not count as lost.

    tolerance   share of the return that may be lost        first_step  where ε begins to matter
    last_step   where the schedules end: the clock stops there, so that it can reverse at once; None: never
    """

    def __init__(self, tolerance: float, first_step: int, last_step: int | None = None) -> None:
        if not (is_finite(tolerance) and tolerance > 0):
            raise BadInput(f"tolerance must be finite and > 0, got {tolerance!r}")
        self.tolerance, self.first_step, self.last_step = tolerance, first_step, last_step
        self.time, self.since, self.pace = 0.0, 0, 1.0  # the clock at env step `since`, and its speed
        self.reference: float | None = None
        self.scale = self.doubt = 0.0  # max(|R₀|, s₀), and the squared standard error of R₀

    def clock(self, step: int) -> int:
        """The step of the schedules at an env step."""
        return int(self._time(step))

    def _time(self, step: int) -> float:
        time = self.time + self.pace * (step - self.since)
        if self.last_step is not None:
            time = min(time, float(self.last_step))
        return time if self.pace >= 0 else max(time, float(self.first_step))

    def hear(self, step: int, returns: Sequence[float]) -> None:
        """Set the pace from the returns of the last episodes, the latest last."""
        self.time, self.since = self._time(step), step
        if not returns:
            return
        if self.reference is None or step <= self.first_step:
            self.reference, variance = _moments(returns)
            self.scale = max(abs(self.reference), math.sqrt(variance), 1e-8)
            self.doubt = variance / len(returns)
            self.pace = 1.0
            return
        recent = returns[-WINDOW:]
        mean, variance = _moments(recent)
        lost = (self.reference - mean - math.sqrt(self.doubt + variance / len(recent))) / self.scale
        self.pace = min(max(2 - 2 * lost / self.tolerance, -1.0), 1.0)

    def state(self) -> dict[str, Any]:
        """Everything that changes, as plain values."""
        names = ("time", "since", "pace", "reference", "scale", "doubt")
        return {name: getattr(self, name) for name in names}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Resume from a saved state; what is no number is a ValueError."""
        for name in self.state():
            if type(state[name]) not in (int, float) and (name, state[name]) != ("reference", None):
                raise ValueError(f"{name} of the ramp must be a number, got {state[name]!r}")
            setattr(self, name, state[name])


def _moments(values: Sequence[float]) -> tuple[float, float]:
    """Mean and variance."""
    mean = sum(values) / len(values)
    return mean, sum((value - mean) ** 2 for value in values) / len(values)


class AveragedWeights:
    """An agent with the exponential average of the weights that a training passes through.

    One greedy policy of a fine-tuning may return 150 and the next 500; their average changes slowly, and is better than
    most of them.
    """

    def __init__(self) -> None:
        self.agent: Any = None  # a copy of the one in training; None: nothing was averaged yet

    @torch.no_grad()
    def add(self, agent: Any) -> None:
        """Move the average a tenth of the way to the agent's present weights."""
        if self.agent is None:
            self.agent = copy.deepcopy(agent)
        new = agent.state_dict()
        for name, mine in self.agent.state_dict().items():
            if mine.is_floating_point() and mine.shape == new[name].shape:
                mine.lerp_(new[name].to(mine), 1 - KEPT_PER_LOOK)
            else:  # counts are no weights
                mine.copy_(new[name])

    def restore(self, agent: Any, weights: Mapping[str, Tensor]) -> None:
        """Resume from saved weights, which may be none. agent: the one in training."""
        self.agent = copy.deepcopy(agent) if weights else None
        if weights:
            self.agent.load_state_dict(weights)


class Guide:
    """A ramp and the function that watches the agent, as one object for a training loop.

    judge  returns that set the pace in place of the training's own, which are those of the exploring policy; it judges
           the average of the weights
    """

    def __init__(self, ramp: Ramp, watch: Probe, judge: Judge | None = None) -> None:
        self.ramp, self.watch, self.judge = ramp, watch, judge
        self.averaged = AveragedWeights()

    @property
    def settings(self) -> dict[str, float]:
        """Its settings, for a run's config."""
        last = {} if self.ramp.last_step is None else {"last_step": self.ramp.last_step}
        return {"tolerance": self.ramp.tolerance, "first_step": self.ramp.first_step, **last}

    def ask(self, step: int, agent: Agent) -> Sequence[float] | None:
        """The judge's word on the averaged agent; None: not now, or there is no judge."""
        if self.judge is None:
            return None
        self.averaged.add(agent)
        return self.judge(step, self.averaged.agent)

    def look(self, step: int, agent: Agent, x: Tensor, returns: Sequence[float]) -> dict[str, float]:
        """Set the pace, watch the agent at observations x (B, *obs) in network units, and return the metrics."""
        heard: Sequence[float] | None = returns
        if self.judge is not None:
            judged = self.ask(step, agent)
            heard = judged if step > self.ramp.first_step else None  # the original's returns stay the reference
        self.ramp.hear(step, heard or ())
        return {"robust/pace": self.ramp.pace, **self.watch(agent, x)}


def some(rows: Tensor) -> Tensor:
    """A few rows (≤ ROWS, …) of many, evenly spread, for `Guide.look`.

    The stride is odd: a balancing policy alternates its actions, and an even one would see every other state only.
    """
    stride = -(-rows.shape[0] // ROWS)
    return rows[:: stride if stride == 1 else stride | 1]


def guide_state(guide: Guide | None) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What a checkpoint keeps of a guide: tensors and plain values."""
    if guide is None:
        return {}, {}
    averaged = guide.averaged.agent
    weights = {} if averaged is None else averaged.state_dict()
    return {f"{AVERAGE}{name}": tensor for name, tensor in weights.items()}, {"guide": guide.ramp.state()}


def restore_guide(guide: Guide | None, agent: Any, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
    """Resume a guide, if there is one, from a checkpoint."""
    if guide is not None:
        guide.ramp.restore(state["guide"])
        weights = {name.removeprefix(AVERAGE): t for name, t in tensors.items() if name.startswith(AVERAGE)}
        guide.averaged.restore(agent, weights)


def time_at(guide: Guide | None, step: int) -> int:
    """The step of the schedules at an env step: the same, unless a guide sets the clock."""
    return step if guide is None else guide.ramp.clock(step)
