"""`radial bench ppo`: steps per second of training against those of random actions, on one pool of environments.

What is measured is in `bench/ppo.py`.
"""

import dataclasses

from rich.table import Table

from radial.commands.terminal import print_json, print_table, say
from radial.core.data import BadInput

RECIPES = ("hopper-ppo", "hopper-radial-ppo", "hopper-sa-ppo-convex")


def bench_ppo(
    recipes: tuple[str, ...] = RECIPES,
    rounds: int = 10,
    threads: int | None = None,
    device: str = "cpu",
    json: bool = False,
) -> None:
    """How fast recipes train against the same environments stepped with random actions.

    Takes about two minutes, the first time more: the training steps are compiled, and the result is kept on disk.

    Args:
        recipes: which to measure; all must share their environment.
        rounds: updates of each; the median counts.
        threads: of the simulator; default: one per core.
        device: cpu, or cuda where there is one.
        json: print one JSON object instead of a table.
    """
    import torch

    from radial.bench.measure import keep_freed_memory, machine
    from radial.bench.ppo import measure
    from radial.cli import torch_device
    from radial.recipes.recipe import recipe
    from radial.training.ppo import PPOConfig
    from radial.workflows.train import attack_named

    if rounds < 1:
        raise BadInput(f"rounds must be a whole number ≥ 1, got {rounds}")
    if threads is not None and threads < 1:
        raise BadInput(f"threads must be a whole number ≥ 1, got {threads}")
    configs = {name: config for name in recipes if isinstance(config := recipe(name).config, PPOConfig)}
    if len(configs) < len(recipes):
        raise BadInput("recipes must be PPO recipes; `radial bench dqn` and `radial bench a3c` measure the others")
    if not configs or len({(config.env, config.num_envs) for config in configs.values()}) != 1:
        raise BadInput("recipes must share one environment and num_envs, to be measured on one pool")
    keep_freed_memory()
    torch.set_num_threads(1)  # a second thread loses more in waiting than it gains on matrices this small
    say(f"compiling, then {rounds} rounds of {', '.join(recipes)} …")
    attacks = {name: attack_named(config.attack) for name, config in configs.items() if config.attack is not None}
    rows = list(measure(configs, rounds, threads, torch_device(device), attacks))
    if json:
        print_json({"machine": machine(), "rounds": rounds, "rows": [dataclasses.asdict(row) for row in rows]})
        return
    table = Table(title=f"Training speed, {configs[recipes[0]].env.id}, {configs[recipes[0]].num_envs} environments")
    for heading in ("", "steps/s", "of random", "learning", "compile s"):
        table.add_column(heading, justify="right" if heading else "left")
    for row in rows:
        table.add_row(
            row.name, f"{row.steps_per_second:,.0f}", f"{row.ratio:.2f}", f"{row.learning_share:.0%}",
            f"{row.compile_seconds:.0f}",
        )  # fmt: skip
    print_table(table)
