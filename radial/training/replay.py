"""The replay buffer: a ring that holds every observation once, sampled uniformly or by priority.

Saving and resuming a ring is in replay_disk.py; acting and learning are in the loops.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from radial.core import checks
from radial.core.data import BadInput
from radial.core.schedules import Linear, Schedule

REPLAY_DTYPES = (torch.uint8, torch.float32, torch.float64)  # of observations
COLUMNS = {"reward": torch.float32, "action": torch.int32, "terminated": torch.bool, "valid": torch.bool}  # of a row
Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Prioritised:
    """Prioritised sampling by |TD error| (Schaul et al. 2016); defaults are those of SA-DQN.

    P(i) = pᵢ^α / Σ p^α with pᵢ = priority + offset, and importance weights (n·P(i))^−β
    """

    alpha: float = 0.5  # 0: uniform
    beta: Schedule = Linear(1.0, 80_000, 6_000_000, start=0.4)  # 1: the weights undo all of the bias
    offset: float = 1e-5  # so that a transition with TD error 0 is still sampled, if seldom

    def __post_init__(self) -> None:
        checks.share(self, "alpha")
        checks.positive(self, "offset")


class Sample(NamedTuple):
    """B transitions. The discount of a row is 0 where `terminated`; a truncated one still has a future.

    obs, next_obs  (B, *obs)  next_obs is the true successor `steps` later, also at the end of an episode
    action         (B,) int64 or (B, D) float32        reward  (B,) float32, Σ γᵏ·r of `steps` steps
    terminated     (B,) bool
    steps          (B,) float32, how many steps lie between the two: n, or fewer where the episode ended
    position       (B,) int64  names of the transitions, for `Replay.update`; on the CPU, and never used twice
    weight         (B,) float32  importance weights, of which the largest is 1; all 1 if sampled evenly
    """

    obs: Tensor
    action: Tensor
    reward: Tensor
    next_obs: Tensor
    terminated: Tensor
    steps: Tensor
    position: Tensor
    weight: Tensor


class Replay:
    """A ring of time slots with one row per env: the observation, and the action taken from it with its outcome.

    The successor of a row is the row of the same env in the next slot, so each observation is held once. A row is a
    transition (`valid`) if its action was a real step: not where an env reset itself (`Step.real`), not where the
    envs were rebuilt, and not in the newest slot, whose actions are still to come. Those rows take room too.
    """

    columns: dict[str, Tensor]  # obs (slots, N, *obs) and `COLUMNS` (slots, N)
    written: int  # slots ever begun; the newest is written − 1, and slot t lies at t mod slots
    added: int  # transitions ever

    def __init__(
        self,
        capacity: int,
        observation_shape: Sequence[int],
        dtype: torch.dtype,
        num_envs: int,
        *,
        prioritised: Prioritised | None = None,
        action_size: int | None = None,
    ) -> None:
        check_memory(capacity, observation_shape, dtype, num_envs, prioritised, action_size)
        self.slots, self.num_envs = _slots(capacity, num_envs), num_envs
        self.observation_shape, self.dtype, self.prioritised = tuple(observation_shape), dtype, prioritised
        self.action_size = action_size  # of vectors of real numbers; None: an action is a whole number
        self.clear()

    def clear(self) -> None:
        """Empty the replay."""
        self.columns = {}  # free the old memory before taking the new; zeros take none until they are written
        shape, rows = (self.slots, self.num_envs), self.slots * self.num_envs
        self.columns = {"obs": torch.zeros(*shape, *self.observation_shape, dtype=self.dtype)}
        self.columns |= {name: torch.zeros(shape, dtype=kind) for name, kind in COLUMNS.items()}
        if self.action_size is not None:
            self.columns["action"] = torch.zeros(*shape, self.action_size)
        self.written = self.added = self._count = 0
        self.max_priority = 1.0  # the largest so far, which new transitions are given
        self._order = np.zeros(rows, np.int64)  # where the transitions lie, oldest first: a queue in a ring
        self._tree = None if self.prioritised is None else SumTree(rows)

    def __len__(self) -> int:
        """Transitions that can be sampled."""
        return self._count

    @property
    def nbytes(self) -> int:
        """Memory held, in bytes; `bytes_needed` predicts it."""
        tree = 0 if self._tree is None else self._tree.node.nbytes
        return sum(column.nbytes for column in self.columns.values()) + self._order.nbytes + tree

    @staticmethod
    def bytes_needed(
        capacity: int,
        observation_shape: Sequence[int],
        dtype: torch.dtype,
        num_envs: int,
        prioritised: Prioritised | None = None,
        action_size: int | None = None,
    ) -> int:
        """Memory that a replay will hold, in bytes: per row its observation and 18, with priorities 16 to 32 more."""
        rows = _slots(capacity, num_envs) * num_envs
        row = math.prod(observation_shape) * dtype.itemsize + sum(kind.itemsize for kind in COLUMNS.values()) + 8
        row += 0 if action_size is None else 4 * (action_size - 1)
        return rows * row + (0 if prioritised is None else 8 * SumTree.nodes(rows))

    # ------------------------------------------------------------------------------------------------------ writing

    def begin(self, obs: Tensor) -> None:
        """Store first observations (N, *obs), at the start and whenever the envs were rebuilt.

        The slot before keeps the last observations of the old envs: the true successors of their last steps.
        """
        self._check_obs(obs)
        self._advance(obs)

    def add(self, action: Tensor, reward: Tensor, terminated: Tensor, real: Tensor, next_obs: Tensor) -> None:
        """Store one step of every env, from the newest observations; the arguments (N, …) are those of `Step`."""
        if not self.written:
            raise BadInput("a replay must begin with first observations before steps are added")
        given = {"action": action, "reward": reward, "terminated": terminated, "valid": real}
        for name, value in given.items():
            shape = tuple(self.columns[name].shape[1:])
            if value.shape != shape:
                shown = "real" if name == "valid" else name
                raise BadInput(f"{shown} must have shape {shape}, got {tuple(value.shape)}")
        if not bool(torch.isfinite(reward).all()):
            raise FloatingPointError("reward is not finite in the step added to the replay")
        self._check_obs(next_obs)
        slot = (self.written - 1) % self.slots
        for name, value in given.items():
            self.columns[name][slot].copy_(value)
        valid = self.columns["valid"][slot].numpy()
        if self._tree is not None and self.prioritised is not None:
            self._tree.fill(slot * self.num_envs, valid * self.max_priority**self.prioritised.alpha)
        self._append(np.flatnonzero(valid) + slot * self.num_envs)
        self._advance(next_obs)

    def update(self, index: Tensor, priority: Tensor) -> None:
        """Set priorities (B,) ≥ 0 of the transitions (B,) named by `Sample.position`; overwritten ones are ignored."""
        if self._tree is None or self.prioritised is None:
            raise BadInput("update needs a replay with prioritised=Prioritised(...)")
        p = priority.detach().cpu().double().numpy()
        if not bool(((p >= 0) & (p < 1e39)).all()):  # NaN is neither; any float32 is allowed, and their sum is finite
            raise FloatingPointError("priority must be finite and ≥ 0")
        p = p + self.prioritised.offset
        time, env = np.divmod(index.cpu().numpy(), self.num_envs)
        row = time % self.slots * self.num_envs + env
        alive = (time > self.written - 1 - self.slots) & self.columns["valid"].view(-1).numpy()[row]
        if alive.any():
            self.max_priority = max(self.max_priority, float(p[alive].max()))
            self._tree.set(row[alive], p[alive] ** self.prioritised.alpha)

    def _check_obs(self, obs: Tensor) -> None:
        shape = (self.num_envs, *self.observation_shape)
        if obs.dtype != self.dtype or obs.shape != shape:
            expected = f"{self.dtype} of shape {shape}"
            raise BadInput(f"observations must be {expected}, got {obs.dtype} of shape {tuple(obs.shape)}")
        if obs.is_floating_point() and not bool(torch.isfinite(obs).all()):
            raise FloatingPointError("an observation added to the replay is not finite")

    def _append(self, rows: Indices) -> None:
        self._order[(self.added + np.arange(len(rows))) % len(self._order)] = rows
        self.added += len(rows)
        self._count += len(rows)

    def _advance(self, obs: Tensor) -> None:
        """Make the oldest slot the newest: its transitions, the oldest of all, leave the queue from the front."""
        slot = self.written % self.slots
        self._count -= int(self.columns["valid"][slot].sum())
        for name in COLUMNS:
            self.columns[name][slot].zero_()
        self.columns["obs"][slot].copy_(obs)
        if self._tree is not None:
            self._tree.fill(slot * self.num_envs, np.zeros(self.num_envs))
        self.written += 1

    # ----------------------------------------------------------------------------------------------------- sampling

    def sample(
        self,
        batch: int,
        rng: torch.Generator,
        *,
        n_step: int = 1,
        discount: float = 1.0,
        beta: float | None = None,
        device: str | torch.device = "cpu",
    ) -> Sample:
        """`batch` transitions with replacement: each equally likely, or by its priority.

        n_step    steps from an observation to its successor, whose rewards are summed with `discount` γ
        beta      of the importance weights; for a prioritised replay only
        """
        if not len(self):
            raise BadInput("the replay holds no transition yet")
        if (beta is None) != (self.prioritised is None):
            raise BadInput("beta must be given exactly when the replay is prioritised")
        row, weight = self._even(batch, rng) if beta is None else self._by_priority(batch, rng, beta)
        slot = row // self.num_envs
        newest = (self.written - 1) % self.slots
        time = self.written - 1 - (newest - slot) % self.slots
        here = torch.from_numpy(row)
        flat = {name: column.flatten(0, 1) for name, column in self.columns.items()}
        reward, terminated = flat["reward"][here], flat["terminated"][here]
        there = (here + self.num_envs) % len(self._order)
        steps = torch.ones(batch)
        for k in range(1, n_step):  # while the episode continues: the row reached is a transition, the last no end
            on = flat["valid"][there] & ~terminated & (steps == k)
            reward = torch.where(on, reward + discount**k * flat["reward"][there], reward)
            terminated = torch.where(on, flat["terminated"][there], terminated)
            there = torch.where(on, (there + self.num_envs) % len(self._order), there)
            steps += on
        return Sample(
            obs=flat["obs"].index_select(0, here).to(device),
            action=flat["action"].index_select(0, here).to(device, torch.int64 if self.action_size is None else None),
            reward=reward.to(device),
            next_obs=flat["obs"].index_select(0, there).to(device),
            terminated=terminated.to(device),
            steps=steps.to(device),
            position=torch.from_numpy(time * self.num_envs + row % self.num_envs),
            weight=torch.from_numpy(weight).to(device, torch.float32),
        )

    def _even(self, batch: int, rng: torch.Generator) -> tuple[Indices, Floats]:
        place = torch.randint(len(self), (batch,), generator=rng, device=rng.device).cpu().numpy()
        return self._order[(self.added - len(self) + place) % len(self._order)], np.ones(batch)

    def _by_priority(self, batch: int, rng: torch.Generator, beta: float) -> tuple[Indices, Floats]:
        """One draw from each of `batch` equal parts of Σ p^α; weights are divided by the largest of the batch."""
        assert self._tree is not None
        share = torch.rand(batch, generator=rng, device=rng.device, dtype=torch.float64).cpu().numpy()
        row = self._tree.find((np.arange(batch) + share) / batch * self._tree.total)
        weight = (len(self) * self._tree.leaf[row] / self._tree.total) ** -beta
        return row, weight / weight.max()

    # ------------------------------------------------------------------------------------------------ to be resumed

    def tensors(self) -> dict[str, Tensor]:
        """The priorities p^α of every row, for a checkpoint: they change all over the ring between two of them."""
        return {} if self._tree is None else {"priority": torch.from_numpy(self._tree.leaf.copy())}

    def restore(self, written: int, added: int, max_priority: float, priority: Tensor | None) -> None:
        """Set the counters, and rebuild queue and priorities from the columns, which are already filled."""
        self.written, self.added, self._count, self.max_priority = written, added, 0, max_priority
        slots = np.arange(max(0, written - self.slots), written) % self.slots  # in order of time
        time, env = self.columns["valid"].numpy()[slots].nonzero()
        self.added -= len(time)
        self._append(slots[time] * self.num_envs + env)
        if self._tree is not None and priority is not None:
            self._tree.fill(0, priority.numpy())


class SumTree:
    """Numbers ≥ 0 that can be drawn in proportion to their size, in log₂ n steps for a whole batch.

    node  node k is the sum of nodes 2k and 2k + 1; the root is node 1. A node is always computed from its two, never
          corrected by a difference, so the leaves alone determine every bit of it
    """

    def __init__(self, leaves: int) -> None:
        self.node: Floats = np.zeros(self.nodes(leaves))
        self._first = len(self.node) // 2
        self.leaf = self.node[self._first : self._first + leaves]

    @staticmethod
    def nodes(leaves: int) -> int:
        """Two for each leaf, rounded up to a power of two."""
        return 2 << (leaves - 1).bit_length()

    @property
    def total(self) -> float:
        """The sum of all leaves."""
        return float(self.node[1])

    def fill(self, first: int, values: Floats) -> None:
        """Set neighbouring leaves, from `first` on."""
        low, high = self._first + first, self._first + first + len(values)
        self.node[low:high] = values
        while low > 1:
            low, high = low // 2, (high + 1) // 2
            self.node[low:high] = self.node[2 * low : 2 * high : 2] + self.node[2 * low + 1 : 2 * high : 2]

    def set(self, index: Indices, values: Floats) -> None:
        """Set leaves (B,) anywhere; of two values for one leaf the last wins."""
        node = self._first + index
        self.node[node] = values
        while node[0] > 1:
            node = node // 2
            self.node[node] = self.node[2 * node] + self.node[2 * node + 1]

    def find(self, mass: Floats) -> Indices:
        """For each mass (B,) in [0, total] the leaf i with Σ_{j<i} leaf ≤ mass < Σ_{j≤i} leaf; never a leaf of 0."""
        node = np.ones(len(mass), np.int64)
        while node[0] < self._first:
            left = self.node[2 * node]
            right = (mass >= left) & (self.node[2 * node + 1] > 0)  # the second: roundings may lead past the end
            mass = np.where(right, mass - left, mass)
            node = 2 * node + right
        return node - self._first


# ------------------------------------------------------------------------------------------------------------ memory


def check_memory(
    capacity: int,
    observation_shape: Sequence[int],
    dtype: torch.dtype,
    num_envs: int,
    prioritised: Prioritised | None = None,
    action_size: int | None = None,
) -> int:
    """Return the bytes that a replay will hold, or raise `BadInput` if that is more than the free memory."""
    checks.check_whole("replay_capacity", capacity, 1)
    checks.check_whole("num_envs", num_envs, 1)
    if dtype not in REPLAY_DTYPES:
        raise BadInput(f"observations must be uint8, float32 or float64 to be held in a replay, got {dtype}")

    def needed(capacity: int) -> int:
        return Replay.bytes_needed(capacity, observation_shape, dtype, num_envs, prioritised, action_size)

    free = free_memory()
    if free is not None and needed(capacity) > free:
        most = bisect_right(range(1, capacity), free, key=needed)
        advice = f"use at most {most:,}" if most else "not even one transition fits"
        memory = f"{in_words(needed(capacity))} of memory and {in_words(free)} are free"
        raise BadInput(f"replay_capacity {capacity:,} needs {memory}: {advice}")
    return needed(capacity)


def free_memory() -> int | None:
    """Bytes this process may still take, by the system's free memory and its own limit; None if neither is known."""
    known = [free for free in (_free_in_system(), _free_in_limit()) if free is not None]
    return min(known, default=None)


def _free_in_system(path: Path = Path("/proc/meminfo")) -> int | None:
    try:
        lines = path.read_text().splitlines()
        return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)
    except (OSError, ValueError, IndexError):
        return None


def _free_in_limit() -> int | None:
    try:
        import resource  # not on every system

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except (ImportError, OSError, ValueError, IndexError):
        return None
    return None if limit == resource.RLIM_INFINITY else max(0, limit - used)


def _slots(capacity: int, num_envs: int) -> int:
    return -(-capacity // num_envs) + 1  # one more: the newest observations are no transitions yet


def in_words(count: int) -> str:
    """Format a number of bytes, such as 1.4 GB."""
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if count >= unit:
            return f"{count / unit:.3g} {name}"
    return f"{count:,} bytes"
