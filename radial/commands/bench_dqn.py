"""`radial bench dqn`: the cost of a robust update of deep Q-learning against a plain one, on Atari's network.

Everything is measured in one run on the same replay and reported as a ratio, because milliseconds mean little on a
shared machine.
"""

import copy
import dataclasses
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

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
from radial.training.alongside import Rounds
from radial.training.dqn import DQNConfig, learn, set_up
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


OPTIONS: dict[str, Mapping[str, Any]] = {  # of the same RADIAL update
    "RADIAL, bfloat16 products": {"precision": "bfloat16"},
    "RADIAL, s and s′ in one pass": {"joint": "next"},
    "RADIAL, clean pass and centre in one batch": {"joint": "centre"},
    "RADIAL, bfloat16 products and one batch": {"precision": "bfloat16", "joint": "centre"},
}
CHUNK = 64  # env steps that a training takes before it is another's turn


@dataclass(frozen=True)
class Row:
    """One update: sampling, forward, bounds, backward, Adam."""

    name: str
    milliseconds: float  # median
    ratio: float  # to the plain update
    compile_seconds: float


@dataclass(frozen=True)
class Speed:
    """A training from end to end: acting, remembering and learning."""

    name: str
    env_steps_per_second: float  # median
    ratio: float  # to RADIAL's training in float32 with an update as often as the recipe it is compared with


def measure(
    config: DQNConfig, repeats: int, steps: int, device: torch.device, threads: int | None, before: int | None = None
) -> tuple[list[Row], list[Speed], float]:
    """Updates of each objective and option in turn, training speeds, and the bytes per step of the replay.

    steps   env steps to fill the replay with before, and to train for
    before  env steps per update that training speeds are compared with; None: the config's own
    """
    config = replace(config, replay_capacity=max(steps, config.batch), learning_starts=0)
    plain = replace(config, precision="float32", joint="none", concurrent=False)
    actor, _, replay, rng = set_up(plain, 0, device)
    _play(plain, actor, replay, steps, rng, threads)
    kinds = {name: replace(plain, objective=objective) for name, objective in OBJECTIVES.items()}
    radial = kinds["RADIAL, IBP"]
    kinds |= {name: replace(radial, **changes) for name, changes in OPTIONS.items()}
    learners = {name: set_up(replace(kind, replay_capacity=kind.batch), 0, device)[1] for name, kind in kinds.items()}
    jobs = [partial(learn, kind, learners[name], replay, 1, rng) for name, kind in kinds.items()]
    seconds = median_seconds(jobs, repeats)
    rows = [
        Row(name, 1e3 * took, took / seconds[0], learners[name].compile_seconds)
        for name, took in zip(kinds, seconds, strict=True)
    ]
    speeds = _speeds(config, replace(radial, update_every=before or config.update_every), replay, steps, rng, threads)
    return rows, speeds, replay.nbytes / (replay.slots * replay.num_envs)


def _speeds(
    config: DQNConfig, compared: DQNConfig, replay: Replay, steps: int, rng: torch.Generator, threads: int | None
) -> list[Speed]:
    """Trainings in turn: RADIAL as it was compared with, each option alone, and plain and RADIAL as in the config."""
    radial = replace(config, objective=compared.objective)
    chosen = {"as in the recipe, plain": replace(config, objective=Plain()), "as in the recipe, RADIAL": radial}
    changes: dict[str, Mapping[str, Any]] = {
        f"RADIAL, float32, an update every {compared.update_every} steps": {},
        "… and bfloat16": {"precision": "bfloat16"},
        "… and one batch": {"joint": "centre"},
        "… and acting beside learning": {"concurrent": True},
        f"… and an update every {4 * compared.update_every} steps": {"update_every": 4 * compared.update_every},
    }
    kinds = {name: replace(compared, **change) for name, change in changes.items()} | chosen
    with ExitStack() as stack:
        loops = [stack.enter_context(_Loop(kind, replay, rng, threads)) for kind in kinds.values()]
        seconds = median_seconds([loop.run for loop in loops], max(1, steps // CHUNK), warmup=1)
    return [Speed(name, CHUNK / took, seconds[0] / took) for name, took in zip(kinds, seconds, strict=True)]


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


class _Loop:
    """A training that goes on for a few env steps at a time, on a replay that it does not fill."""

    def __init__(self, config: DQNConfig, replay: Replay, rng: torch.Generator, threads: int | None) -> None:
        self.config, self.replay, self.rng = config, replay, rng
        _, self.learner, _, self.own = set_up(replace(config, replay_capacity=config.batch), 0, rng.device)
        self.acting = copy.deepcopy(self.learner.agent)
        self.rounds = Rounds(self._hand_over, config.concurrent)
        self.env = make_env(config.env, config.num_envs, 1, threads=threads)
        self.obs, self.updates = self.env.reset(), 0

    def _hand_over(self) -> None:
        self.learner.write_back()
        self.acting.load_state_dict(self.learner.agent.state_dict())

    def run(self) -> None:
        """Act and learn in the rhythm of the config for `CHUNK` env steps."""
        end = self.env.steps + CHUNK
        while self.env.steps < end:
            action = explore(self.acting, self.obs.to(self.rng.device), 0.01, self.own).cpu()
            self.obs = self.env.step(action).obs
            due = self.env.steps // self.config.update_every - self.updates
            self.updates += due
            self.rounds.start(partial(self._learn, due))
        self.rounds.wait()

    def _learn(self, times: int) -> None:
        for _ in range(times):
            learn(self.config, self.learner, self.replay, 1, self.rng)

    def __enter__(self) -> "_Loop":
        return self

    def __exit__(self, *error: object) -> None:
        self.rounds.__exit__(None, None, None)
        self.env.close()


def bench_dqn(
    recipe: str = "pong-radial-dqn",
    repeats: int = 10,
    steps: int = 1_000,
    threads: int = 2,
    device: str = "cpu",
    before: int | None = None,
    json: bool = False,
) -> None:
    """Time per update, robust against plain and with each option, and training speed end to end.

    Args:
        recipe: supplies environment, batch and update frequency.
        repeats: updates per objective; the median is reported.
        steps: env steps to fill the replay with, and then to train for.
        threads: of torch and of the simulator.
        device: cpu, or cuda where there is one.
        before: env steps per update that training speeds are compared with (default: the recipe's own).
        json: print one JSON object instead of a table.
    """
    config = recipe_named(recipe).config
    if not isinstance(config, DQNConfig):
        raise BadInput(f"recipe must be a DQN recipe such as pong-radial-dqn, got {recipe!r}")
    for name, value in (("repeats", repeats), ("steps", steps), ("threads", threads), ("before", before)):
        if value is not None and value < 1:
            raise BadInput(f"{name} must be a whole number ≥ 1, got {value}")
    keep_freed_memory()
    torch.set_num_threads(threads)
    say(f"{repeats} updates of each kind, batch {config.batch}, {config.env} …")
    rows, speeds, size = measure(config, repeats, steps, torch_device(device), threads, before)
    if json:
        print_json({
            "machine": machine(), "recipe": recipe, "batch": config.batch, "repeats": repeats,
            "threads": threads, "update_every": config.update_every,
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
        say(f"training, {speed.name}: {speed.env_steps_per_second:.0f} env steps/s, {speed.ratio:.2f} times")
    say(f"a remembered step takes {size:,.0f} bytes")
