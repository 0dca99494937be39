"""How fast PPO trains against the same pool stepped with random actions: `radial bench ppo`.

Everything is measured in one run and reported as a ratio, because steps per second mean little on a shared machine.
"""

import statistics
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor

from radial.core.agent import Attack
from radial.core.data import Continuous, VecEnv
from radial.envs.make import make_env
from radial.training.adversary import RolloutAttack
from radial.training.ppo import PPOConfig, estimate, set_up
from radial.training.rollouts import Returns, collect
from radial.training.sight import sight_of

WARM_UP = 2  # rounds that are not counted: compilation, first touch of memory


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str  # a recipe, or "random actions"
    steps_per_second: float  # median over rounds, real env steps
    ratio: float  # to random actions
    learning_share: float  # of the time, the rest is acting and simulating
    compile_seconds: float


class Trainee:
    """One training in progress on the shared pool."""

    def __init__(self, name: str, config: PPOConfig, device: torch.device, attack: Attack | None = None) -> None:
        self.name, self.config = name, config
        self.agent, self.learner, self.scale, self.rng = set_up(config, 0, device)
        self.sight = sight_of(self.agent)
        self.actor = self.sight.actor(config.compile)
        self.adversary = attack and RolloutAttack(attack, self.agent, config.attack_probability, config.compile)
        self.speeds: list[float] = []
        self.shares: list[float] = []

    def round(self, env: VecEnv, obs: Tensor) -> None:
        """One rollout and one update, with the recipe's own hyperparameters, a quarter of the way."""
        config, time_now = self.config, self.config.total_steps // 4
        between = self.adversary if self.adversary and self.adversary.begin(config.attack_radius(time_now)) else None
        self.actor.begin()
        x = self.actor.observe(obs)
        self.actor.finish()
        began = time.perf_counter()
        rollout, _ = collect(
            env,
            x,
            self.actor,
            self.scale,
            Returns(config.num_envs),
            config.rollout // config.num_envs,
            self.rng,
            between,
        )
        acted = time.perf_counter()
        data = estimate(rollout, self.sight, config.discount, config.lam)
        self.learner.learn(data, time_now, 1.0, self.rng)
        ended = time.perf_counter()
        self.speeds.append(int(rollout.real.sum()) / (ended - began))
        self.shares.append((ended - acted) / (ended - began))


def measure(
    configs: dict[str, PPOConfig],
    rounds: int,
    threads: int | None,
    device: torch.device,
    attacks: Mapping[str, Attack] = MappingProxyType({}),
) -> Iterator[Row]:
    """Random stepping and each training in turn, round after round, on one pool of environments.

    attacks  the objects behind the attacks that configs name, by the names of the configs
    """
    first = next(iter(configs.values()))
    env = make_env(first.env, first.num_envs, 0, threads=threads)
    env.reset()
    rng = torch.Generator().manual_seed(0)
    trainees = [Trainee(name, config, device, attacks.get(name)) for name, config in configs.items()]
    random_speeds: list[float] = []
    for _ in range(WARM_UP + rounds):
        began = time.perf_counter()
        real = 0
        for _ in range(first.rollout // first.num_envs):
            step = env.step(random_action(env, rng))
            real += int(step.real.sum())
        random_speeds.append(real / (time.perf_counter() - began))
        for trainee in trainees:
            trainee.round(env, step.obs)
    env.close()
    base = statistics.median(random_speeds[WARM_UP:])
    yield Row("random actions", base, 1.0, 0.0, 0.0)
    for trainee in trainees:
        speed = statistics.median(trainee.speeds[WARM_UP:])
        share = statistics.median(trainee.shares[WARM_UP:])
        yield Row(trainee.name, speed, speed / base, share, trainee.learner.compile_seconds)


def random_action(env: VecEnv, rng: torch.Generator) -> Tensor:
    """Any action for each env."""
    if isinstance(env.actions, Continuous):
        return 2 * torch.rand((env.num_envs, env.actions.size), generator=rng) - 1
    return torch.randint(env.actions.n, (env.num_envs,), generator=rng)
