"""What PPO on frames costs, plain and robust, and how much memory an update takes: `radial bench procgen`.

Everything is measured in one run and reported as a ratio, because steps per second mean little on a shared machine.
"""

import math
import statistics
import time
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from radial.bench.measure import peak_bytes, process_peak
from radial.bench.ppo import Trainee, random_action
from radial.core.data import VecEnv
from radial.core.schedules import Constant
from radial.envs.make import make_env
from radial.objectives.base import Objective
from radial.objectives.surrogate import Plain, RadialWorstCase
from radial.training.ppo import PPOConfig, estimate, set_up
from radial.training.ppo_update import Minibatch
from radial.training.rollouts import Rollout

WARM_UP = 1  # rounds that are not counted
MINIBATCHES = 2  # of an update whose memory is measured; each takes as much as the last


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    steps_per_second: float  # median over rounds, real env steps; of the network alone, frames
    ratio: float  # to the environments alone
    learning_share: float  # of the time, the rest is acting and simulating


@dataclass(frozen=True)
class Memory:
    """What an update takes at its peak, in megabytes; None where that cannot be measured."""

    name: str
    rollout_mb: float  # its frames, once
    update_mb: float | None  # everything from the rollout on, beyond what the process held before
    process_mb: float | None  # the whole process at that moment


def objectives(radius: float) -> dict[str, Objective]:
    """What is compared."""
    return {"plain": Plain(), "RADIAL": RadialWorstCase(Constant(radius))}


def speeds(config: PPOConfig, radius: float, rounds: int, threads: int | None, device: torch.device) -> list[Row]:
    """The environments alone, the network alone, and both trainings, in turns on one pool."""
    env = make_env(config.env, config.num_envs, 0, threads=threads)
    obs = env.reset()
    rng = torch.Generator().manual_seed(0)
    trainees = [
        Trainee(name, replace(config, objective=objective), device) for name, objective in objectives(radius).items()
    ]
    alone: list[float] = []
    forward: list[float] = []
    for _ in range(WARM_UP + rounds):
        obs, speed = _wander(env, config.rollout // config.num_envs, rng)
        alone.append(speed)
        forward.append(_look(trainees[0], obs.to(device), config.rollout // config.num_envs))
        for trainee in trainees:
            trainee.round(env, obs)
    env.close()
    base = statistics.median(alone[WARM_UP:])
    seen = statistics.median(forward[WARM_UP:])
    rows = [Row("environments", base, 1.0, 0.0), Row("forward", seen, seen / base, 0.0)]
    for trainee in trainees:
        pace, share = (statistics.median(found[WARM_UP:]) for found in (trainee.speeds, trainee.shares))
        rows.append(Row(trainee.name, pace, pace / base, share))
    return rows


def _wander(env: VecEnv, steps: int, rng: torch.Generator) -> tuple[Tensor, float]:
    """Random actions for some steps: where they led, and env steps per second."""
    began, real = time.perf_counter(), 0
    for _ in range(steps):
        step = env.step(random_action(env, rng))
        real += int(step.real.sum())
    return step.obs, real / (time.perf_counter() - began)


def _look(trainee: Trainee, obs: Tensor, times: int) -> float:
    """Frames per second that an agent chooses actions for."""
    noise = trainee.agent.noise(trainee.rng, obs.shape[0])
    began = time.perf_counter()
    for _ in range(times):
        trainee.actor.act(obs, noise).cpu()
    return times * obs.shape[0] / (time.perf_counter() - began)


def memory(config: PPOConfig, radius: float, device: torch.device) -> list[Memory]:
    """What an update with a whole rollout of the config takes, plain and robust."""
    found = []
    for name, objective in objectives(radius).items():
        job = _Update(replace(config, objective=objective, compile=False), device)
        peak = peak_bytes(job, device)
        whole = None if peak is None else process_peak()
        found.append(Memory(name, job.frames / 1e6, *(None if size is None else size / 1e6 for size in (peak, whole))))
    return found


class _Update:
    """An update on frames that are made up, from a whole rollout through a few of its minibatches."""

    def __init__(self, config: PPOConfig, device: torch.device) -> None:
        self.config = config
        self.agent, self.learner, _, self.rng = set_up(config, 0, device)
        self.shape = (config.rollout // config.num_envs, config.num_envs)
        self.frames = (self.shape[0] + 1) * self.shape[1] * math.prod(self.agent.observation_shape)  # bytes

    def __call__(self) -> None:
        config = self.config
        data = estimate(self._rollout(), self.learner.sight, config.discount, config.lam)
        few = Minibatch(*[column[: MINIBATCHES * config.minibatch] for column in data])
        self.learner.learn(few, config.total_steps, 1.0, self.rng)

    def _rollout(self) -> Rollout:
        """Noise, in which nothing ends."""
        steps, envs = self.shape
        on: dict[str, Any] = {"generator": self.rng, "device": self.rng.device}
        x = torch.randint(256, (steps + 1, envs, *self.agent.observation_shape), dtype=torch.uint8, **on)
        action = torch.randint(2, self.shape, **on)
        never = torch.zeros(self.shape, dtype=torch.bool, device=self.rng.device)
        return Rollout(x, action, torch.rand(self.shape, **on), never, never, ~never)
