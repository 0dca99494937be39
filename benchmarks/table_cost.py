"""What a table costs on a cluster, on paper: recipes × seeds at the speeds of the JSON files here → table_cost.json.

Run as `python benchmarks/table_cost.py`. A training has the threads it was measured with; jobs are packed longest
first, and what others start from comes before them. No GPU was measured: eight of them are counted as eight jobs at a
time at the speed of the CPU, which is an upper limit.
"""

import heapq
import json
from pathlib import Path

from radial.recipes.recipe import Recipe, recipe
from radial.recipes.tables import TABLES, Table, table
from radial.training.a3c import A3CConfig
from radial.training.dqn import DQNConfig

HERE = Path(__file__).parent
SEEDS = 3
CORES, GPUS = 64, 8
ROWS_OF_116 = 29  # agents, with the four columns of MuJoCo's table


def speeds() -> dict[str, tuple[float, int]]:
    """Env steps per second, and threads, by suite and kind of objective."""
    read = {name: json.loads((HERE / f"{name}.json").read_text()) for name in ("ppo", "dqn", "a3c", "procgen")}
    ppo = {row["name"]: row["steps_per_second"] for row in read["ppo"]["rows"]}
    dqn = {row["name"]: row["env_steps_per_second"] for row in read["dqn"]["training"]}
    a3c = {row["name"]: row["env_steps_per_second"] for row in read["a3c"]["training"] if row["workers"] == 2}
    procgen = {row["name"]: row["steps_per_second"] for row in read["procgen"]["speed"]}
    return {
        "vectors plain": (ppo["hopper-ppo"], 2), "vectors robust": (ppo["hopper-radial-ppo"], 2),
        "vectors convex": (ppo["hopper-sa-ppo-convex"], 2), "dqn plain": (dqn["plain"], 2),
        "dqn robust": (dqn["RADIAL, IBP"], 2), "a3c plain": (a3c["plain"], 2), "a3c robust": (a3c["RADIAL"], 2),
        "procgen plain": (procgen["plain"], 2), "procgen robust": (procgen["RADIAL"], 2),
    }  # fmt: skip


def kind(made_by: Recipe) -> str:
    """Which of the measured speeds is a recipe's."""
    config = made_by.config
    plain = type(config.objective).__name__ == "Plain"
    if config.env.suite == "procgen":
        family = "procgen"
    elif config.env.suite == "atari":
        family = "dqn" if isinstance(config, DQNConfig) else "a3c" if isinstance(config, A3CConfig) else "procgen"
    else:
        family = "vectors"
    how = "plain" if plain else "convex" if family == "vectors" and "convex" in made_by.name else "robust"
    return f"{family} {how}"


def makespan(hours: list[float], slots: int) -> float:
    """Hours until all are done, longest first, each on the slot that is free first."""
    free = [0.0] * slots
    for each in sorted(hours, reverse=True):
        heapq.heappush(free, heapq.heappop(free) + each)
    return max(free)


def cost(wanted: Table, copies: float = 1.0) -> dict[str, float | int]:
    """Of one table; `copies` of its rows."""
    known = speeds()
    recipes = dict.fromkeys(row.recipe for row in wanted.rows)
    starts = dict.fromkeys(init for init in (recipe(name).init for name in recipes) if init is not None)
    waves = [list(starts), [name for name in recipes if name not in starts]]
    count = round(copies * SEEDS)
    hours = [
        [recipe(name).config.total_steps / known[kind(recipe(name))][0] / 3600 for name in wave for _ in range(count)]
        for wave in waves
    ]
    threads = max(known[kind(recipe(name))][1] for name in recipes)
    return {
        "cells": round(copies * len(wanted.rows)) * len(wanted.columns), "trainings": sum(map(len, hours)),
        "core_hours": round(threads * sum(map(sum, hours)), 1),
        "hours_on_64_cores": round(sum(makespan(wave, CORES // threads) for wave in hours if wave), 1),
        "hours_on_8_gpus_at_most": round(sum(makespan(wave, GPUS) for wave in hours if wave), 1),
    }  # fmt: skip


def main() -> None:
    """Write table_cost.json."""
    found = {name: cost(table(name)) for name in TABLES()}
    mujoco = table("mujoco")
    found["116 cells as MuJoCo's"] = cost(mujoco, ROWS_OF_116 / len(mujoco.rows))
    told = {"seeds": SEEDS, "cores": CORES, "gpus": GPUS, "tables": found}
    (HERE / "table_cost.json").write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
