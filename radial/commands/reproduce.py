"""`radial reproduce`: a paper's table beside our own numbers, from the zoo or trained from scratch.

How a table is filled is in `recipes.reproduce`, how it is shown in `reports`.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import tyro
from rich.table import Table

from radial.commands.processes import run_all
from radial.commands.terminal import print_json, print_table, progress, say
from radial.commands.train import check_number, parse_seeds
from radial.core.data import BadInput

if TYPE_CHECKING:
    from radial.recipes.reproduce import Result

SEEDS = "0-2"  # trained where --seeds says nothing


def reproduce(
    table: tyro.conf.Positional[str],
    only: tuple[str, ...] = (),
    train: bool = False,
    seeds: str | None = None,
    jobs: int = 1,
    episodes: int = 50,
    fresh: bool = False,
    out: Path = Path("results"),
    json: bool = False,
) -> None:
    """Fill a table of a paper with our agents, and show each cell beside the paper's.

    Writes OUT/TABLE.json (every return), OUT/TABLE.md and OUT/TABLE.png. Each cell is saved when it is finished and
    not played again, so a command that was stopped goes on where it stopped.

    Args:
        table: mujoco or mujoco-compounding.
        only: tasks or recipes, such as hopper or walker2d-ppo; the other rows show what is known of them.
        train: train the agents first, in runs/RECIPE-seedN, instead of taking the zoo's. A finished run is not
            trained again and an unfinished one goes on. The median seed is the agent.
        seeds: to train with, such as 0-4; default 0-2.
        jobs: how many trainings at a time.
        episodes: per cell.
        fresh: play again what is known.
        out: where the results are kept.
        json: print one JSON object instead of a table.
    """
    from radial.recipes import reproduce as filling
    from radial.recipes.tables import table as table_named

    wanted = table_named(table)
    rows = wanted.chosen(only)
    check_number("jobs", jobs, 1)
    check_number("episodes", episodes, 1)
    if seeds is not None and not train:
        raise BadInput("--seeds needs --train")
    runs = {}
    if train:
        runs = _train(list(dict.fromkeys(row.recipe for row in rows)), parse_seeds(seeds or SEEDS), jobs)
    result = filling.reproduce(wanted, out, only=only, runs=runs, episodes=episodes, fresh=fresh, watch=watch)
    _write(result, out)
    shown = result.only(only)
    if json:
        print_json(shown.to_json())
    else:
        _print(shown)


@contextmanager
def watch(what: str, episodes: int) -> Iterator[Callable[[int], None]]:
    """Say what is played, and how far it is."""
    say(what)
    with progress(episodes, "episodes") as show:
        yield show


def _train(recipes: Sequence[str], seeds: Sequence[int], jobs: int) -> dict[str, list[Path]]:
    """Finished runs by recipe, whatever had to be trained for it."""
    from radial.algorithms.run import CONFIG
    from radial.recipes.recipe import recipe
    from radial.recipes.seeds import finished
    from radial.recipes.training import check

    folders = {(name, seed): Path("runs") / f"{name}-seed{seed}" for name in recipes for seed in seeds}
    commands = {}
    for (name, seed), folder in folders.items():
        check(recipe(name).config, seed)
        if not finished(folder, name, seed):
            resume = ["--resume"] if (folder / CONFIG).exists() else []
            given = ["--seed", str(seed), "--out", str(folder), "--threads", "1", *resume]
            commands[folder.name] = ["train", name, *given]
    if commands:
        run_all(commands, jobs)
    return {name: [folders[name, seed] for seed in seeds] for name in recipes}


def _write(result: "Result", out: Path) -> None:
    from radial.algorithms.files import write_atomic
    from radial.reports.figures import figure
    from radial.reports.tables import markdown

    page = out / f"{result.table.name}.md"
    write_atomic(page, markdown(result))
    try:
        figure(result, page.with_suffix(".png"))
    except BadInput as error:  # a table without a figure is a table
        say(f"no figure: {error}")
    say(f"the table is in {page}, every return in {page.with_suffix('.json')}")


def _print(result: "Result") -> None:
    from radial.reports.tables import grid, markdown

    if not sys.stdout.isatty():
        sys.stdout.write(markdown(result))
        return
    headings, rows = grid(result)
    table = Table(title=f"{result.table.title}: {result.table.source}")
    for at, heading in enumerate(headings):
        table.add_column(heading, justify="right" if 2 < at < len(headings) - 1 else "left", no_wrap=at > 2)
    for row in rows:
        table.add_row(*row, end_section=row[2] == "ours")
    print_table(table)
    for line in result.lines:
        if line.note:
            say(f"{line.row.task} {line.row.agent}: {line.note}")
