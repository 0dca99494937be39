"""`radial bench a3c`: training speed with one, two and four workers, plain and robust, and where the time goes.

Everything is measured in one run and reported as a ratio, because steps per second mean little on a shared machine.
"""

import dataclasses
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from rich.table import Table
from torch import Tensor

from radial.commands.measure import keep_freed_memory, machine
from radial.commands.terminal import print_json, print_table, say
from radial.core.data import BadInput, Step
from radial.core.schedules import Constant
from radial.envs.make import make_env
from radial.envs.wrapper import EnvWrapper
from radial.objectives.base import Objective
from radial.objectives.policy_gradient import Plain, RadialOverlap
from radial.recipes.recipe import recipe as recipe_named
from radial.training.a3c import A3CConfig, make_player, player_in_worker, set_up
from radial.training.a3c_player import JointActor, Player
from radial.training.a3c_workers import Board, Crew

WARM_UP = 2  # updates of each worker that are not counted: compilation, first touch of memory
FOREVER = 1 << 60  # env steps


@dataclass(frozen=True)
class Speed:
    """A training from end to end, in processes of its own."""

    name: str
    workers: int
    env_steps_per_second: float
    ratio: float  # to the plain training with one worker


@dataclass(frozen=True)
class Share:
    """Where the time of a player goes: the simulator, acting, and everything that learns."""

    name: str
    milliseconds: float  # of one rollout with its update, the mean
    env: float
    forward: float
    update: float


def objectives(radius: float) -> dict[str, Objective]:
    """The objectives that are compared."""
    return {"plain": Plain(), "RADIAL": RadialOverlap(Constant(radius))}


def speeds(config: A3CConfig, radius: float, workers: Sequence[int], seconds: float) -> Iterator[Speed]:
    """Each training in turn, for so many seconds once all its workers are at work."""
    base: float | None = None
    for count in workers:
        for name, objective in objectives(radius).items():
            pace = _pace(replace(config, objective=objective, workers=count, total_steps=FOREVER), seconds)
            base = pace if base is None else base
            yield Speed(name, count, pace, pace / base)


def _pace(config: A3CConfig, seconds: float) -> float:
    """Env steps per second of worker processes."""
    training = set_up(config, 0, torch.device("cpu"))
    training.model.share()
    board = Board.fresh(config.workers, 0, config.total_steps)
    build = partial(player_in_worker, config, 0, 0, training.model, make_env)
    with Crew(build, board, config.patience) as crew:
        while int(board.updates.min()) < WARM_UP:
            crew.look()
        began, before, enough = time.perf_counter(), board.step, int(board.updates.sum()) + 2 * config.workers
        while time.perf_counter() < began + seconds or int(board.updates.sum()) < enough:
            crew.look(min(0.05, seconds))
        return (board.step - before) / (time.perf_counter() - began)


class _Clock:
    """Seconds spent inside `with clock:`."""

    def __init__(self) -> None:
        self.seconds, self._began = 0.0, 0.0

    def __enter__(self) -> None:
        self._began = time.perf_counter()

    def __exit__(self, *error: object) -> None:
        self.seconds += time.perf_counter() - self._began


class _TimedEnv(EnvWrapper):
    """Environments whose steps are timed."""

    clock: _Clock

    def step(self, action: Tensor) -> Step:
        """One step of the clock and of the env."""
        with self.clock:
            return self.env.step(action)


class _TimedActor(JointActor):
    """An actor whose forward passes are timed."""

    clock: _Clock

    def act(self, x: Tensor, noise: Tensor) -> Tensor:
        """As a `JointActor` acts."""
        with self.clock:
            return super().act(x, noise)

    def values(self, last: Tensor) -> Tensor:
        """As a `JointActor` has them."""
        with self.clock:
            return super().values(last)


def shares(config: A3CConfig, radius: float, rounds: int, device: torch.device) -> list[Share]:
    """One player of each kind in this process, in turns, `rounds` updates each."""
    config = replace(config, workers=1, total_steps=FOREVER)
    players = {name: _timed(replace(config, objective=one), device) for name, one in objectives(radius).items()}
    took = {name: _Clock() for name in players}
    for number in range(WARM_UP + rounds):
        for name, (player, env, forward) in players.items():
            if number == WARM_UP:
                took[name].seconds = env.seconds = forward.seconds = 0.0
            with took[name]:
                player.update(1)
    found = []
    for name, (player, env, forward) in players.items():
        player.leave()
        whole = took[name].seconds
        inside = (env.seconds / whole, forward.seconds / whole)
        found.append(Share(name, 1e3 * whole / rounds, *inside, 1 - sum(inside)))
    return found


def _timed(config: A3CConfig, device: torch.device) -> tuple[Player, _Clock, _Clock]:
    training = set_up(config, 0, device)
    player = make_player(config, training.agent, training.model, training.rng)
    env, actor = _TimedEnv(make_env(config.training_env, config.num_envs, 0, threads=1)), _TimedActor(training.agent)
    env.clock, actor.clock = _Clock(), _Clock()
    player.actor = actor
    player.enter(env)
    return player, env.clock, actor.clock


def bench_a3c(
    recipe: str = "pong-radial-a3c",
    workers: tuple[int, ...] = (1, 2, 4),
    seconds: float = 20.0,
    rounds: int = 5,
    json: bool = False,
) -> None:
    """Env steps per second with one, two and four workers, plain and robust, and the shares of env, forward and update.

    Args:
        recipe: supplies environment, rollouts and radius.
        workers: numbers of processes to measure.
        seconds: per measurement, once the workers are warm.
        rounds: updates per objective for the shares.
        json: print one JSON object instead of tables.
    """
    known = recipe_named(recipe)
    config = known.config
    if not isinstance(config, A3CConfig):
        raise BadInput(f"recipe must be an A3C recipe such as pong-radial-a3c, got {recipe!r}")
    if not workers or min(workers) < 1:
        raise BadInput(f"workers must be whole numbers ≥ 1, got {workers}")
    if rounds < 1:
        raise BadInput(f"rounds must be a whole number ≥ 1, got {rounds}")
    if not 0 < seconds < float("inf"):
        raise BadInput(f"seconds must be finite and > 0, got {seconds}")
    keep_freed_memory()
    torch.set_num_threads(1)  # as a worker has
    parts = shares(config, known.radius, rounds, torch.device("cpu"))
    found = []
    for speed in speeds(config, known.radius, workers, seconds):
        found.append(speed)
        say(f"{speed.name}, workers {speed.workers}: {speed.env_steps_per_second:.0f} env steps/s")
    if json:
        print_json({
            "machine": machine(), "recipe": recipe, "num_envs": config.num_envs, "rollout": config.rollout,
            "seconds": seconds, "rounds": rounds,
            "training": [dataclasses.asdict(speed) for speed in found],
            "shares": [dataclasses.asdict(share) for share in parts],
        })  # fmt: skip
        return
    _show(found, parts, f"{config.env.id}, {config.num_envs} × {config.rollout} steps per update")


def _show(paces: list[Speed], parts: list[Share], size: str) -> None:
    table = Table(title=f"Training speed, {size}; of one plain worker")
    for heading in ("", "workers", "env steps/s", "of plain, 1"):
        table.add_column(heading, justify="right" if heading else "left")
    for speed in paces:
        table.add_row(speed.name, str(speed.workers), f"{speed.env_steps_per_second:.0f}", f"{speed.ratio:.2f}")
    print_table(table)
    table = Table(title=f"Where a worker's time goes, {size}")
    for heading in ("", "ms per update", "env", "forward", "update"):
        table.add_column(heading, justify="right" if heading else "left")
    for part in parts:
        numbers = (f"{part.env:.0%}", f"{part.forward:.0%}", f"{part.update:.0%}")
        table.add_row(part.name, f"{part.milliseconds:.0f}", *numbers)
    print_table(table)
