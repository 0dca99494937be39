"""`radial bench procgen`: how fast PPO trains on frames, plain and robust, and what an update takes of memory.

What is measured is in `bench/procgen.py`.
"""

import dataclasses
from typing import TYPE_CHECKING

from rich.table import Table

from radial.commands.terminal import print_json, print_table, say
from radial.core.data import BadInput

if TYPE_CHECKING:
    from radial.bench.procgen import Memory, Row


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
        recipe: whose environment, minibatches, rollout and radius are taken.
        rounds: updates of each kind; the median counts.
        steps: env steps of an update whose speed is measured; its memory is measured with the recipe's whole rollout.
        threads: of torch and of the simulator.
        device: cpu, or cuda where there is one.
        json: print one JSON object instead of tables.
    """
    import torch

    from radial.bench.measure import keep_freed_memory, machine
    from radial.bench.procgen import memory, speeds
    from radial.cli import torch_device
    from radial.recipes.recipe import recipe as recipe_named
    from radial.training.ppo import PPOConfig

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


def _show(rows: "list[Row]", sizes: "list[Memory]", what: str) -> None:
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
