"""`radial bench dqn`: what a robust update costs against a plain one, on Atari's network.

What is measured is in `bench/dqn.py`.
"""

import dataclasses

from rich.table import Table

from radial.commands.terminal import print_json, print_table, say
from radial.core.data import BadInput


def bench_dqn(
    recipe: str = "pong-radial-dqn",
    repeats: int = 10,
    steps: int = 1_000,
    threads: int = 2,
    device: str = "cpu",
    json: bool = False,
) -> None:
    """How long updates take, robust against plain, and how fast a training is from end to end.

    Args:
        recipe: whose environment, batch and rhythm are taken.
        repeats: updates of each kind; the median counts.
        steps: env steps to remember first, and to train for.
        threads: of torch and of the simulator.
        device: cpu, or cuda where there is one.
        json: print one JSON object instead of a table.
    """
    import torch

    from radial.bench.dqn import measure
    from radial.bench.measure import keep_freed_memory, machine
    from radial.cli import torch_device
    from radial.recipes.recipe import recipe as recipe_named
    from radial.training.dqn import DQNConfig

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
