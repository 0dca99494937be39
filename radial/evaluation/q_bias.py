"""Overestimation of Q-values: predicted minus realised, along clean greedy episodes."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from radial.agents.foreign import as_agent
from radial.core.agent import Agent
from radial.core.checks import check_whole
from radial.core.data import BadInput, Discrete, EnvSpec, Step, VecEnv
from radial.envs.make import make_env
from radial.envs.wrapper import EnvWrapper
from radial.evaluation import statistics
from radial.evaluation.play import Progress, View, check_spaces, play, spec_of, streams


@dataclass(frozen=True)
class QBias(statistics.Averaged):
    """Predicted and realised values at every step of some episodes.

    predicted  Q(s, a) of the action taken
    realised   Σ_k γ^k r_{t+k} to the end of the episode, r as in training: Atari's is clipped to ±1
    """

    agent: str
    env: str  # its id
    engine: Mapping[str, str]
    discount: float
    seed: int
    predicted: tuple[tuple[float, ...], ...]  # of each episode
    realised: tuple[tuple[float, ...], ...]
    returns: tuple[float, ...]
    wall_seconds: float

    @property
    def errors(self) -> tuple[tuple[float, ...], ...]:
        """Predicted minus realised, of each step of each episode."""
        pairs = zip(self.predicted, self.realised, strict=True)
        return tuple(tuple(p - r for p, r in zip(*pair, strict=True)) for pair in pairs)

    @property
    def means(self) -> tuple[float, ...]:
        """The mean error of each episode."""
        return tuple(statistics.mean(errors) for errors in self.errors)

    @property
    def values(self) -> tuple[float, ...]:
        """The mean error of each episode."""
        return self.means

    def to_json(self) -> dict[str, Any]:
        """Plain values; of the curves only that of the first episode, to six digits."""
        return {
            "metric": "q-bias", "agent": self.agent, "env": self.env, "engine": dict(self.engine),
            "discount": self.discount, "seed": self.seed, "episodes": len(self.returns),
            "errors": list(self.means), "mean": self.mean, "sem": self.sem, "returns": list(self.returns),
            "lengths": [len(curve) for curve in self.predicted],
            "predicted": [_short(value) for value in self.predicted[0]],
            "realised": [_short(value) for value in self.realised[0]], "wall_seconds": self.wall_seconds,
        }  # fmt: skip


def _short(value: float) -> float:
    return float(f"{value:.6g}")


def q_bias(
    agent: Agent,
    env: EnvSpec | str,
    episodes: int = 5,
    seed: int = 0,
    *,
    discount: float = 0.99,
    name: str | None = None,
    progress: Progress | None = None,
) -> QBias:
    """Play clean greedy episodes, an env for each, and compare Q(s, a) with the discounted return that followed.

    An episode that a time limit cuts ends there for the realised value as well, as in the authors' figure.
    """
    agent = as_agent(agent)
    check_whole("episodes", episodes, 1)
    if not 0 <= discount <= 1:
        raise BadInput(f"discount must lie in [0, 1], got {discount!r}")
    begun, spec = time.perf_counter(), spec_of(env, agent)
    expected: list[Tensor] = []

    @torch.no_grad()
    def choose(view: View) -> Tensor:
        x = agent.prepare(view.obs)
        action = agent.act(x)
        expected.append(agent.scores(x).gather(1, action.unsqueeze(1)).squeeze(1).double().cpu())
        return action

    world = make_env(spec, episodes, streams(seed)[0])
    try:
        check_spaces(agent, world)
        if not isinstance(world.actions, Discrete):
            raise BadInput(f"q_bias needs an env with discrete actions, those of {spec} are continuous")
        recorded = Recorded(world)
        played = play(recorded, choose, episodes, progress=progress)
    finally:
        world.close()
    predicted, reward = torch.stack(expected), torch.stack(recorded.rewards)  # (T, N)
    curves = [realised(reward[:length, i], discount) for i, length in enumerate(played.lengths)]
    return QBias(
        agent=name or agent.name,
        env=spec.id,
        engine=dict(world.engine),
        discount=discount,
        seed=int(seed),
        predicted=tuple(tuple(predicted[:length, i].tolist()) for i, length in enumerate(played.lengths)),
        realised=tuple(tuple(curve.tolist()) for curve in curves),
        returns=played.returns,
        wall_seconds=time.perf_counter() - begun,
    )


def realised(reward: Tensor, discount: float) -> Tensor:
    """G_t = r_t + γ·G_{t+1} of one episode's rewards (T,), with G_T = 0; (T,)."""
    found, total = [], 0.0
    for value in reversed(reward.tolist()):
        total = value + discount * total
        found.append(total)
    return torch.tensor(found[::-1], dtype=torch.float64)


class Recorded(EnvWrapper):
    """A vector env that remembers every reward it gave."""

    def __init__(self, env: VecEnv) -> None:
        super().__init__(env)
        self.rewards = list[Tensor]()

    def step(self, action: Tensor) -> Step:
        """Act in every env, and remember the rewards as in training, (N,)."""
        step = self.env.step(action)
        self.rewards.append(step.reward.double().cpu())
        return step
