"""The nouns every room shares: bounds and verdicts, environments and their steps, losses, bad input.

Agents and attacks are in `core.agent`. Nothing here computes beyond inspecting a tensor.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

import torch
from torch import Tensor

from radial.core.errors import BadInput as BadInput

DTYPES = (torch.float32, torch.float64)
LATER: Mapping[str, bool] = {"later": True}  # metadata of a field that older configs do not have


class Verdict(StrEnum):
    """The verdict on one claim. Only `CERTIFIED` is a guarantee; every doubtful case is `UNKNOWN`."""

    CERTIFIED = "certified"  # proven for every point of the ball
    ATTACKED = "attacked"  # falsified: a counterexample was found
    UNKNOWN = "unknown"  # neither


@dataclass(frozen=True, eq=False)
class Bounds:
    """An enclosure of a tensor, element by element.

    lower, upper  (B, *) of one shape; NaN or inf entries enclose nothing and no verdict trusts them.
    """

    lower: Tensor
    upper: Tensor

    def __post_init__(self) -> None:
        if not isinstance(self.lower, Tensor) or not isinstance(self.upper, Tensor):
            raise BadInput("lower and upper must be tensors")
        if self.lower.shape != self.upper.shape:
            raise BadInput(
                f"lower and upper must have one shape, got {tuple(self.lower.shape)} and {tuple(self.upper.shape)}"
            )

    @property
    def width(self) -> Tensor:
        """Upper − lower, (B, *)."""
        return self.upper - self.lower

    def contains(self, y: Tensor) -> Tensor:
        """Which elements of `y` lie inside, (B, *) bool. NaN on either side counts as outside."""
        return (self.lower <= y) & (y <= self.upper)

    def __getitem__(self, index: int | slice | Tensor) -> "Bounds":
        """The bounds of some rows of the batch."""
        return Bounds(self.lower[index], self.upper[index])


# ------------------------------------------------------------------------------------------------- environments


@dataclass(frozen=True)
class EnvSpec:
    """The name of an environment, in plain values that a card can hold: a suite, an id, and options of that suite."""

    suite: str  # a key of radial.envs.make.SUITES
    id: str
    options: Mapping[str, bool | int | float | str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value in self.options.items() if isinstance(self.options, Mapping) else ():
            if isinstance(value, float) and not math.isfinite(value):  # neither a card nor a config could hold it
                raise BadInput(f"env.options.{name} must be finite, got {value}")

    def __hash__(self) -> int:
        return hash((self.suite, self.id, tuple(sorted(self.options.items()))))

    def __str__(self) -> str:
        options = ", ".join(f"{key}={value}" for key, value in sorted(self.options.items()))
        return f"{self.suite}/{self.id}" + (f" ({options})" if options else "")


@dataclass(frozen=True)
class Discrete:
    """Actions 0 … n − 1: int64 (N,)."""

    n: int


@dataclass(frozen=True)
class Continuous:
    """Vectors of `size` real numbers, float32 (N, size). The env decides how to treat actions beyond its limits.

    low, high  those limits, where they are known and finite; ignored when two spaces are compared
    """

    size: int
    low: tuple[float, ...] | None = field(default=None, compare=False, repr=False)
    high: tuple[float, ...] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, eq=False)
class Step:
    """The outcome of one step of N environments.

    obs         (N, *obs)  after the action; where an episode ended, its true last observation
    reward      (N,) float32  the reward for learning, possibly clipped or scaled
    score       (N,) float32  the reward that reported returns sum: the env's own, never clipped or scaled
    terminated  (N,) bool  the episode ended in a state with no future
    truncated   (N,) bool  the episode was cut off (a time limit); the last state still has a value
    real        (N,) bool  False: the env ignored the action and reset itself, because the step before ended the
                episode. Such a row is no transition: its obs is the first of a new episode, its reward is 0
    """

    obs: Tensor
    reward: Tensor
    score: Tensor
    terminated: Tensor
    truncated: Tensor
    real: Tensor

    @property
    def ended(self) -> Tensor:
        """Terminated or truncated, (N,) bool."""
        return self.terminated | self.truncated


class VecEnv(Protocol):
    """N environments that step together and reset themselves; made by `make_env`, never reused after `close`."""

    spec: EnvSpec
    num_envs: int
    observation_shape: tuple[int, ...]
    actions: Discrete | Continuous
    engine: Mapping[str, str]  # backend, its version, the simulator's version: written into every result

    @property
    def steps(self) -> int:
        """Real steps so far, summed over the envs."""

    def reset(self) -> Tensor:
        """The first observations (N, *obs). Call once, before the first step."""

    def step(self, action: Tensor) -> Step:
        """Step every env with its action, (N,) int64 or (N, D) float32; refuse actions malformed or not finite."""

    def close(self) -> None:
        """Free the simulators."""


@dataclass(frozen=True, eq=False)
class Loss:
    """A loss to minimise, and the terms it is made of."""

    total: Tensor  # ()
    parts: Mapping[str, Tensor]  # detached scalars for the log

    @property
    def rows(self) -> tuple[Tensor, ...]:
        """Per-row outputs (B,) that an algorithm needs besides the gradient."""
        return ()


def check_shapes(*pairs: object) -> dict[str, int]:
    """Check tensors against shapes such as "B K A"; a letter must mean one size everywhere.

    pairs    tensor, shape, tensor, shape, …  A shape is letters or numbers, and may end in "*" (anything more).
    returns  the size of each letter
    """
    sizes: dict[str, int] = {}
    for tensor, shape in zip(pairs[::2], pairs[1::2], strict=True):
        if not isinstance(tensor, Tensor) or not isinstance(shape, str):
            raise TypeError("check_shapes takes tensor, shape, tensor, shape, …")
        names = shape.split()
        open_ended = bool(names) and names[-1] == "*"
        names = names[:-1] if open_ended else names
        fits = tensor.ndim >= len(names) if open_ended else tensor.ndim == len(names)
        for name, size in zip(names, tensor.shape, strict=False):
            fits = fits and (int(name) if name.isdigit() else sizes.setdefault(name, size)) == size
        if not fits:
            known = ", ".join(f"{name} = {size}" for name, size in sizes.items())
            raise BadInput(f"expected shape ({shape}) with {known}, got {tuple(tensor.shape)}")
    return sizes
