"""`radial bench procgen`: training speed of PPO on frames, plain and robust, and the peak memory of an update.

Everything is measured in one run and reported as a ratio, because steps per second mean little on a shared machine.
"""

import dataclasses
import math
import statistics
import time
from dataclasses import dataclass, replace
from typing import Any

import torch
from rich.table import Table
from torch import Tensor

from radial.commands.bench_ppo import Trainee, random_action
from radial.commands.measure import keep_freed_memory, machine, peak_bytes, process_peak, torch_device
from radial.commands.terminal import print_json, print_table, say
from radial.core.data import BadInput, VecEnv
from radial.core.schedules import Constant
from radial.envs.make import make_env
from radial.objectives.base import Objective
from radial.objectives.surrogate import Plain, RadialWorstCase
from radial.recipes.recipe import recipe as recipe_named
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
    """Peak memory of an update, in megabytes; None where that cannot be measured."""

    name: str
    rollout_mb: float  # its frames, once
    update_mb: float | None  # everything from the rollout on, beyond what the process held before
    process_mb: float | None  # the whole process at that moment


def objectives(radius: float) -> dict[str, Objective]:
    """The objectives that are compared."""
    return {"plain": Plain(), "RADIAL": RadialWorstCase(Constant(radius))}


def speeds(config: PPOConfig, radius: float, rounds: int, threads: int | None, device: torch.device) -> list[Row]:
    """The environments alone, the network alone, and both objectives in training, in turns on one pool."""
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
    """Peak memory of an update with a whole rollout of the config, plain and robust."""
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


def bench_procgen(
    recipe: str = "fruitbot-radial-ppo",
    rounds: int = 3,
    steps: int = 1_024,
    threads: int = 2,
    device: str = "cpu",
    json: bool = False,
) -> None:
    """Env steps per second of the game alone, of plain and of RADIAL training, and the peak memory of an update.

    Takes several minutes on two cores.

    Args:
        recipe: supplies environment, minibatches, rollout and radius.
        rounds: updates per objective; the median is reported.
        steps: env steps of an update whose speed is measured; its memory is measured with the recipe's whole rollout.
        threads: of torch and of the simulator.
        device: cpu, or cuda where there is one.
        json: print one JSON object instead of tables.
    """
    known = recipe_named(recipe)
    if not isinstance(known.config, PPOConfig) or known.config.env.suite != "procgen":
        raise BadInput(f"recipe must be a ProcGen recipe such as fruitbot-radial-ppo, got {recipe!r}")
    for name, value in (("rounds", rounds), ("threads", threads)):
        if value < 1:
            raise BadInput(f"{name} must be a whole number ≥ 1, got {value}")
    config = known.config
    least = 2 * config.minibatch
    if steps < least or steps % config.num_envs:
        raise BadInput(f"steps must be a multiple of {config.num_envs} envs and ≥ {least}, got {steps}")
    keep_freed_memory()
    torch.set_num_threads(threads)
    say(f"an update of {config.num_envs} × {config.rollout // config.num_envs} steps …")
    sizes = memory(config, known.radius, torch_device(device))
    say(f"{rounds} rounds of {steps:,} steps, {config.env} …")
    rows = speeds(dataclasses.replace(config, rollout=steps), known.radius, rounds, threads, torch_device(device))
    if json:
        print_json({
            "machine": machine(), "recipe": recipe, "rounds": rounds, "steps": steps, "rollout": config.rollout,
            "minibatch": config.minibatch, "chunk": config.chunk,
            "speed": [dataclasses.asdict(row) for row in rows],
            "radial_of_plain": rows[-1].steps_per_second / rows[-2].steps_per_second,
            "memory": [dataclasses.asdict(size) for size in sizes],
        })  # fmt: skip
        return
    _show(rows, sizes, f"{config.env.id}, {config.num_envs} environments")


def _show(rows: list[Row], sizes: list[Memory], what: str) -> None:
    table = Table(title=f"Speed, {what}")
    for heading in ("", "steps/s", "of the game alone", "of plain", "learning"):
        table.add_column(heading, justify="right" if heading else "left")
    plain = rows[-2].steps_per_second
    for at, row in enumerate(rows):
        training = (f"{row.steps_per_second / plain:.2f}", f"{row.learning_share:.0%}") if at > 1 else ("", "")
        table.add_row(row.name, f"{row.steps_per_second:,.0f}", f"{row.ratio:.3f}", *training)
    print_table(table)
    table = Table(title="Memory of an update with the whole rollout, MB")
    for heading in ("", "frames", "update at its peak", "whole process"):
        table.add_column(heading, justify="right" if heading else "left")
    for size in sizes:
        numbers = (size.rollout_mb, size.update_mb, size.process_mb)
        table.add_row(size.name, *("–" if number is None else f"{number:,.0f}" for number in numbers))
    print_table(table)
