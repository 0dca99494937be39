"""Who plays for A3C: acts in its own environments for a rollout, then moves the model along the rollout's gradient.

The synchronous loop has one player, an asynchronous training one per process; what they share is the model.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from radial.agents.actor_critic import ActorCritic
from radial.core.data import VecEnv
from radial.core.schedules import Schedule
from radial.training.a3c_learner import A3CLearner, Model, estimate
from radial.training.rollouts import check_finite, collect
from radial.training.scores import Scores


class Rhythm(NamedTuple):
    """How a player turns steps into updates, besides its objective."""

    rollout: int  # steps of each env
    discount: float
    lam: float
    rate: Schedule
    adam_eps: float


class Report(NamedTuple):
    """What a player tells of itself, as plain numbers: episodes that ended since the last report, and losses."""

    returns: list[float]
    lengths: list[float]
    metrics: dict[str, float]


class JointActor:
    """An actor-critic at work: it acts on the logits and keeps the values, which come with them for nothing."""

    def __init__(self, agent: ActorCritic) -> None:
        self.agent = agent
        self._values: list[Tensor] = []

    def begin(self) -> None:
        """Forget the values so far."""
        self._values = []

    @torch.no_grad()
    def observe(self, obs: Tensor) -> Tensor:
        """Raw observations (N, *obs) in network units."""
        return self.agent.prepare(obs)

    @torch.no_grad()
    def act(self, x: Tensor, noise: Tensor) -> Tensor:
        """Sampled actions (N,), as `agent.sample` has them."""
        value, logits = self.agent.joint(x)
        self._values.append(value)
        return (logits + noise).argmax(-1)

    def observe_and_act(self, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Both."""
        x = self.observe(obs)
        return x, self.act(x, noise)

    def finish(self) -> None:
        """There is nothing to give back."""

    @torch.no_grad()
    def values(self, last: Tensor) -> Tensor:
        """Of everything acted on since `begin`, and of where that led to (N, *obs): (T + 1, N)."""
        return torch.stack([*self._values, self.agent.value(last)])


class Player:
    """One agent in its own environments, and the model that all players share."""

    def __init__(self, learner: A3CLearner, model: Model, rhythm: Rhythm, num_envs: int, rng: torch.Generator) -> None:
        self.learner, self.model, self.rhythm, self.rng = learner, model, rhythm, rng
        self.actor, self.scores = JointActor(learner.agent), Scores(num_envs)
        self.env: VecEnv | None = None
        self._x: Tensor | None = None

    def enter(self, env: VecEnv) -> None:
        """Begin to play in fresh environments."""
        self.env, self._x = env, self.actor.observe(env.reset().to(self.model.parameters.device))
        self.scores.forget()

    @property
    def seen(self) -> Tensor:
        """What it sees now, (N, *obs) in network units."""
        assert self._x is not None
        return self._x

    def leave(self) -> None:
        """Close the environments."""
        if self.env is not None:
            self.env.close()
            self.env = None

    def update(self, step: int, clock: Callable[[int], int] | None = None) -> int:
        """Take the model as it is, play one rollout, and move the model along its gradient; how many steps were real.

        step   where the training stands, in env steps of all players
        clock  where the objective's schedules stand at an env step; None: there
        """
        assert self.env is not None
        assert self._x is not None
        rhythm = self.rhythm
        self.learner.take(self.model)
        rollout, self._x = collect(self.env, self._x, self.actor, None, self.scores, rhythm.rollout, self.rng)
        real = int(rollout.real.sum())
        check_finite(rollout, step + real)
        if real:  # a rollout of one step may hold nothing but resets
            batch = estimate(rollout, self.actor.values(self._x), rhythm.discount, rhythm.lam)
            gradient = self.learner.gradient(batch, step + real if clock is None else clock(step + real))
            self.model.apply(gradient, rhythm.rate(step), rhythm.adam_eps)
        return real

    def report(self) -> Report:
        """What has happened since the last report."""
        told = Report(self.scores.returns, self.scores.lengths, self.learner.report())
        self.scores.returns, self.scores.lengths = [], []
        return told
