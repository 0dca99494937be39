"""Rollouts: acting in many environments for some steps, the transitions that on-policy learning uses, and returns.

The actor is passed in; learning from a rollout is left to the algorithms.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from radial.agents.normalizer import RewardScale
from radial.core.data import VecEnv
from radial.training.adversary import Opponent


class Acting(Protocol):
    """An agent acting in a training; its normaliser may update between `begin` and `finish`."""

    @property
    def agent(self) -> Any:
        """The agent; its `noise(rng, *shape)` makes its actions random."""

    def begin(self) -> None:
        """Take the agent's current weights and statistics."""

    def observe(self, obs: Tensor) -> Tensor:
        """Raw observations (N, *obs) → the observations to keep: prepared ones, or raw frames."""

    def act(self, x: Tensor, noise: Tensor) -> Tensor:
        """Sampled actions for kept observations (N, *obs)."""

    def observe_and_act(self, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """`observe` and `act` in one call."""

    def finish(self) -> None:
        """Return the updated statistics to the agent."""


@dataclass(frozen=True, eq=False)
class Rollout:
    """Transitions, with leading (T, N); `x`, the kept observations, has one row more: x[1:] are the successors.

    Rows that are not `real` are resets (see `Step`): no action was taken there, and they must not be trained on.
    """

    x: Tensor  # (T + 1, N, *obs)
    action: Tensor
    reward: Tensor
    terminated: Tensor
    ended: Tensor
    real: Tensor


class Returns:
    """Running episode returns and lengths, from the env's own reward."""

    def __init__(self, num_envs: int, window: int = 100) -> None:
        self.running = torch.zeros(num_envs, dtype=torch.float64)
        self.length = torch.zeros(num_envs, dtype=torch.float64)
        self.window = window
        self.returns: list[float] = []  # of the last `window` episodes
        self.lengths: list[float] = []
        self.by_env: list[list[float]] = [[] for _ in range(num_envs)]  # the last returns of each env

    def shared(self) -> list[float]:
        """The last returns, in rounds of one for each env, the latest round last.

        Where all envs restart together, as at a checkpoint, short episodes end first and outnumber the long ones for a
        while. In rounds every env counts alike, one in a long episode with what it brought before.
        """
        deepest = max((len(each) for each in self.by_env), default=0)
        return [each[-k] for k in range(deepest, 0, -1) for each in self.by_env if len(each) >= k] or self.returns

    def state(self) -> dict[str, list[Any]]:
        """What a checkpoint keeps; episodes under way are not part of it."""
        return {"returns": self.returns, "lengths": self.lengths, "by_env": self.by_env}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Resume from a saved state; older ones do not say which env an episode was of.

        What is no list of as many numbers is a ValueError.
        """
        returns, lengths = state["returns"], state["lengths"]
        for values in (returns, lengths):
            if not isinstance(values, list) or not all(type(value) in (int, float) for value in values):
                raise ValueError("returns and lengths must be lists of numbers")
        if len(returns) != len(lengths):
            raise ValueError(f"{len(returns)} returns and {len(lengths)} lengths")
        self.returns, self.lengths = list(returns), list(lengths)
        self.by_env = [list(each) for each in state.get("by_env", self.by_env)]

    def forget(self) -> None:
        """Drop the episodes under way."""
        self.running.zero_()
        self.length.zero_()

    def add(self, score: Tensor, ended: Tensor, real: Tensor) -> None:
        """Add the steps of a rollout, (T, N)."""
        for t in range(score.shape[0]):
            self.running += score[t]
            self.length += real[t]
            if bool(ended[t].any()):
                self.returns = (self.returns + self.running[ended[t]].tolist())[-self.window :]
                self.lengths = (self.lengths + self.length[ended[t]].tolist())[-self.window :]
                each = -(-self.window // len(self.by_env))
                for i in ended[t].nonzero()[:, 0].tolist():
                    self.by_env[i] = [*self.by_env[i], float(self.running[i])][-each:]
                self.running[ended[t]] = 0.0
                self.length[ended[t]] = 0.0

    def extend(self, returns: list[float], lengths: list[float]) -> None:
        """Add episodes that ended elsewhere."""
        self.returns = (self.returns + returns)[-self.window :]
        self.lengths = (self.lengths + lengths)[-self.window :]

    def mean(self) -> float | None:
        """The mean return of the last episodes; None before the first has ended."""
        return sum(self.returns) / len(self.returns) if self.returns else None

    def metrics(self) -> dict[str, float]:
        """Mean return and length, under CleanRL's names."""
        mean = self.mean()
        if mean is None:
            return {}
        return {
            "charts/episodic_return": mean,
            "charts/episodic_length": sum(self.lengths) / len(self.lengths),
        }


class Columns(NamedTuple):
    """A rollout as the environments gave it, with leading (T, N); `x` has one row more."""

    x: Tensor
    action: Tensor
    reward: Tensor
    score: Tensor
    terminated: Tensor
    ended: Tensor
    real: Tensor


def collect(
    env: VecEnv,
    x: Tensor,
    actor: Acting,
    scale: RewardScale | None,
    returns: Returns,
    steps: int,
    rng: torch.Generator,
    adversary: Opponent | None = None,
) -> tuple[Rollout, Tensor]:
    """Act for `steps` steps in every env from the kept observations x; return the rollout and the next x."""
    columns, x = act_out(env, x, actor, steps, rng, adversary)
    return to_learn_from(columns, scale, returns, x.device), x


def act_out(
    env: VecEnv, x: Tensor, actor: Acting, steps: int, rng: torch.Generator, adversary: Opponent | None = None
) -> tuple[Columns, Tensor]:
    """Act for `steps` steps in every env from the kept observations x; return the columns and the next x."""
    actor.begin()
    rows: list[tuple[Tensor, ...]] = []
    noise = actor.agent.noise(rng, steps, env.num_envs)
    obs: Tensor | None = None  # None before the first step, where x is already observed
    for t in range(steps):
        if obs is not None and adversary is None:
            x, action = actor.observe_and_act(obs, noise[t])
        else:
            x = x if obs is None else actor.observe(obs)
            x = x if adversary is None else adversary(x, rng)
            action = actor.act(x, noise[t])
        step = env.step(action.cpu())
        rows.append((x, action, step.reward, step.score, step.terminated, step.ended, step.real))
        obs = step.obs.to(x.device)
    assert obs is not None
    x = actor.observe(obs)
    actor.finish()
    xs, *columns = zip(*rows, strict=True)
    return Columns(torch.stack([*xs, x]), *(torch.stack(column) for column in columns)), x


def to_learn_from(columns: Columns, scale: RewardScale | None, returns: Returns, device: torch.device) -> Rollout:
    """The rollout to learn from: rewards scaled, episodes counted."""
    x, action, reward, score, terminated, ended, real = columns
    returns.add(score, ended, real)
    reward = reward if scale is None else scale.over_time(reward, ended, real)
    return Rollout(*(column.to(device) for column in (x, action, reward, terminated, ended, real)))


def check_rollout(rollout: Rollout, step: int) -> None:
    """Raise before anything is learned from NaN or inf."""
    for name in ("x", "action", "reward"):
        column: Tensor = getattr(rollout, name)
        if column.is_floating_point() and not bool(torch.isfinite(column).all()):
            raise FloatingPointError(f"{name} is not finite in the rollout that ends at step {step}")


SHOWN = {
    "return": "charts/episodic_return", "ε": "robust/radius", "κ": "robust/kappa", "width": "robust/bound_width",
    "std": "charts/std", "restarts": "charts/restarts", "certified": "robust/certified", "reach": "robust/reach",
    "pace": "robust/pace",
}  # fmt: skip


def shown(metrics: Mapping[str, float], **more: str) -> dict[str, float]:
    """The metrics that a progress line shows, under short names."""
    names = SHOWN | more
    return {short: metrics[name] for short, name in names.items() if name in metrics}
