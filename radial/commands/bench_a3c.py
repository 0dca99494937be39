"""`radial bench a3c`: how fast workers train together, and where their time goes, on Atari's network.

What is measured is in `bench/a3c.py`.
"""

import dataclasses
from typing import TYPE_CHECKING

from rich.table import Table

from radial.commands.terminal import print_json, print_table, say
from radial.core.data import BadInput

if TYPE_CHECKING:
    from radial.bench.a3c import Share, Speed


def bench_a3c(
    recipe: str = "pong-radial-a3c",
    workers: tuple[int, ...] = (1, 2, 4),
    seconds: float = 20.0,
    rounds: int = 5,
    json: bool = False,
) -> None:
    """Env steps per second with one, two and four workers, plain and robust, and the shares of env, forward and update.

    Args:
        recipe: whose environment, rollouts and radius are taken.
        workers: how many processes, in turn.
        seconds: for each of these trainings, once its workers are at work.
        rounds: updates of each kind for the shares.
        json: print one JSON object instead of tables.
    """
    import torch

    from radial.bench.a3c import shares, speeds
    from radial.bench.measure import keep_freed_memory, machine
    from radial.recipes.recipe import recipe as recipe_named
    from radial.training.a3c import A3CConfig

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


def _show(speeds: "list[Speed]", shares: "list[Share]", size: str) -> None:
    table = Table(title=f"Training speed, {size}; of one plain worker")
    for heading in ("", "workers", "env steps/s", "of plain, 1"):
        table.add_column(heading, justify="right" if heading else "left")
    for speed in speeds:
        table.add_row(speed.name, str(speed.workers), f"{speed.env_steps_per_second:.0f}", f"{speed.ratio:.2f}")
    print_table(table)
    table = Table(title=f"Where a worker's time goes, {size}")
    for heading in ("", "ms per update", "env", "forward", "update"):
        table.add_column(heading, justify="right" if heading else "left")
    for part in shares:
        numbers = (f"{part.env:.0%}", f"{part.forward:.0%}", f"{part.update:.0%}")
        table.add_row(part.name, f"{part.milliseconds:.0f}", *numbers)
    print_table(table)
