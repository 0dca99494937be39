"""`radial bench dqn`: the cost of a robust update of deep Q-learning against a plain one, on Atari's network.

Everything is measured in one run on the same replay and reported as a ratio, because milliseconds mean little on a
shared machine.
"""

import dataclasses
import time
from dataclasses import dataclass, replace

import torch
from rich.table import Table

from radial.agents.q_agent import QAgent
from radial.commands.measure import keep_freed_memory, machine, median_seconds, torch_device
from radial.commands.terminal import print_json, print_table, say
from radial.core.errors import BadInput
from radial.core.schedules import Constant
from radial.envs.make import make_env
from radial.objectives.base import Objective
from radial.objectives.q_objectives import SA, Mix, Plain, RadialOverlap
from radial.recipes.recipe import recipe as recipe_named
from radial.training.dqn import DQNConfig, QLearner, learn, set_up
from radial.training.exploration import explore
from radial.training.replay import Replay

RADIUS = Constant(1 / 255)
OBJECTIVES: dict[str, Objective] = {
    "plain": Plain(),
    "RADIAL, IBP": RadialOverlap(RADIUS),
    "RADIAL, CROWN-IBP": RadialOverlap(RADIUS, bound="crown-ibp"),
    "SA-DQN, CROWN-IBP and IBP mixed": SA(RADIUS, 0.005, bound=Mix(Constant(0.5))),
    "SA-DQN, IBP": SA(RADIUS, 0.005),
}


@dataclass(frozen=True)
class Row:
    """One update: sampling, forward, bounds, backward, Adam."""

    name: str
    milliseconds: float  # median
    ratio: float  # to the plain update
    compile_seconds: float


@dataclass(frozen=True)
class Speed:
    """A training from end to end: acting, remembering and learning with the recipe's own settings."""

    name: str
    env_steps_per_second: float
    updates_per_second: float


def measure(
    config: DQNConfig, repeats: int, steps: int, device: torch.device, threads: int | None
) -> tuple[list[Row], list[Speed], float]:
    """Updates of each objective in turn, training speed plain and RADIAL, and the bytes per step of the replay.

    steps  env steps to fill the replay with before, and to train for
    """
    learners: dict[str, QLearner] = {}
    config = replace(config, replay_capacity=max(steps, config.batch), learning_starts=0)
    actor, _, replay, rng = set_up(config, 0, device)
    _play(config, actor, replay, steps, rng, threads)
    jobs = []
    for name, objective in OBJECTIVES.items():
        _, learners[name], _, _ = set_up(replace(config, objective=objective, replay_capacity=config.batch), 0, device)
        jobs.append(lambda learner=learners[name]: learn(config, learner, replay, 1, rng))
    seconds = median_seconds(jobs, repeats)
    rows = [
        Row(name, 1e3 * took, took / seconds[0], learners[name].compile_seconds)
        for name, took in zip(OBJECTIVES, seconds, strict=True)
    ]
    speeds = [_train(config, name, learners[name], replay, steps, rng, threads) for name in list(OBJECTIVES)[:2]]
    return rows, speeds, replay.nbytes / (replay.slots * replay.num_envs)


def _play(
    config: DQNConfig, actor: QAgent, replay: Replay, steps: int, rng: torch.Generator, threads: int | None
) -> None:
    """Fill the replay with the steps of a random policy."""
    env = make_env(config.env, config.num_envs, 0, threads=threads)
    obs = env.reset()
    replay.begin(obs)
    while env.steps < steps:
        action = explore(actor, obs.to(rng.device), 1.0, rng).cpu()
        seen = env.step(action)
        replay.add(action, seen.reward, seen.terminated, seen.real, seen.obs)
    env.close()


def _train(
    config: DQNConfig, name: str, learner: QLearner, replay: Replay, steps: int, rng: torch.Generator,
    threads: int | None,
) -> Speed:  # fmt: skip
    """Act and learn in the rhythm of the config, for `steps` env steps."""
    env = make_env(config.env, config.num_envs, 1, threads=threads)
    obs = env.reset()
    replay.begin(obs)
    began, updates = time.perf_counter(), 0
    while env.steps < steps:
        action = explore(learner.agent, obs.to(rng.device), 0.01, rng).cpu()
        seen = env.step(action)
        replay.add(action, seen.reward, seen.terminated, seen.real, seen.obs)
        obs = seen.obs
        while updates < env.steps // config.update_every:
            learn(config, learner, replay, 1, rng)
            updates += 1
        learner.write_back()
    took = time.perf_counter() - began
    env.close()
    return Speed(name, steps / took, updates / took)


def bench_dqn(
    recipe: str = "pong-radial-dqn",
    repeats: int = 10,
    steps: int = 1_000,
    threads: int = 2,
    device: str = "cpu",
    json: bool = False,
) -> None:
    """Time per update, robust against plain, and training speed end to end.

    Args:
        recipe: supplies environment, batch and update frequency.
        repeats: updates per objective; the median is reported.
        steps: env steps to fill the replay with, and then to train for.
        threads: of torch and of the simulator.
        device: cpu, or cuda where there is one.
        json: print one JSON object instead of a table.
    """
    config = recipe_named(recipe).config
    if not isinstance(config, DQNConfig):
        raise BadInput(f"recipe must be a DQN recipe such as pong-radial-dqn, got {recipe!r}")
    for name, value in (("repeats", repeats), ("steps", steps), ("threads", threads)):
        if value < 1:
            raise BadInput(f"{name} must be a whole number ≥ 1, got {value}")
    keep_freed_memory()
    torch.set_num_threads(threads)
    say(f"{repeats} updates of each kind, batch {config.batch}, {config.env} …")
    rows, speeds, size = measure(config, repeats, steps, torch_device(device), threads)
    if json:
        print_json({
            "machine": machine(), "recipe": recipe, "batch": config.batch, "repeats": repeats, "threads": threads,
            "updates": [dataclasses.asdict(row) for row in rows],
            "training": [dataclasses.asdict(speed) for speed in speeds],
            "replay_bytes_per_step": size,
        })  # fmt: skip
        return
    table = Table(title=f"One update, {config.env.id}, batch {config.batch}")
    for heading in ("", "ms", "of plain", "compile s"):
        table.add_column(heading, justify="right" if heading else "left")
    for row in rows:
        table.add_row(row.name, f"{row.milliseconds:.0f}", f"{row.ratio:.2f}", f"{row.compile_seconds:.0f}")
    print_table(table)
    for speed in speeds:
        pace = f"{speed.env_steps_per_second:.0f} env steps/s, {speed.updates_per_second:.1f} updates/s"
        say(f"training, {speed.name}: {pace}")
    say(f"a remembered step takes {size:,.0f} bytes")
