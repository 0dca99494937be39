"""`radial reproduce`: a paper's table or figure beside our own numbers, from the zoo or trained from scratch.

How a table is filled is in `workflows.reproduce`, a figure in `workflows.paper_figures`; how both are shown in
`reports`.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import tyro
from rich.table import Table

from radial.commands.processes import run_all
from radial.commands.scaling import HERE, Scaled
from radial.commands.terminal import print_json, print_table, say, warnings_said, watch
from radial.commands.train import check_number, parse_seeds, train_all
from radial.core.errors import BadInput
from radial.evaluation.threads import one_thread_for

if TYPE_CHECKING:
    from radial.cluster import Place
    from radial.workflows.many import TrainJob
    from radial.workflows.reproduce import Result

SEEDS = "0-2"  # trained where --seeds says nothing


def reproduce(
    table: tyro.conf.Positional[str],
    only: tuple[str, ...] = (),
    train: bool = False,
    seeds: str | None = None,
    scaling: Scaled = HERE,
    episodes: int | None = None,
    fresh: bool = False,
    learned: bool = False,
    fits: Path = Path("runs/adversaries"),
    released: Path | None = None,
    out: Path = Path("results"),
    json: bool = False,
) -> None:
    """Evaluate our agents for a table of a paper and print each cell beside the paper's; or draw one of its figures.

    Writes OUT/TABLE.json (every return), OUT/TABLE.md and OUT/TABLE.png. Each cell is saved when it is finished and
    not played again, so an interrupted command resumes where it stopped.

    Args:
        table: a table (mujoco, mujoco-compounding, atari, atari-approaches, atari-random-starts, atari-margin,
            atari-bounds, procgen, procgen-stochastic, procgen-levels, cartpole-dqn, cartpole-approach-1, cartpole-a3c,
            ddpg) or a figure (gwc-awc-acr, q-bias).
        only: tasks or recipes, such as hopper or walker2d-ppo; the other rows show what is known of them.
        train: train the agents first, in runs/RECIPE-seedN, instead of taking the zoo's. Finished runs are kept,
            unfinished ones resumed. The median seed is the agent.
        seeds: to train with, such as 0-4; default: those of the table, of most 0-2.
        episodes: per cell, of a figure starts or episodes of each agent; default: as many as the paper's.
        fresh: evaluate again what is known.
        learned: also play the columns of learned adversaries, which train against each agent first; --train does.
        fits: where these adversaries are kept, to be used again.
        released: a folder of agents that others released, to be evaluated in place as rows of their own.
        out: where the results are kept.
        scaling: where jobs run.
        json: print one JSON object instead of a table.
    """
    from radial.recipes.recipe import recipe
    from radial.recipes.tables import table as table_named
    from radial.workflows import reproduce as filling
    from radial.workflows.paper_figures import FIGURES

    if table in FIGURES:
        if only or train or seeds is not None or scaling != HERE:
            raise BadInput(
                f"--only, --train, --seeds and where jobs run are for tables; {table} is a figure of the zoo's agents"
            )
        check_number("episodes", episodes, 1)
        _draw(table, out, episodes, fresh, json)
        return
    wanted = table_named(table, FIGURES)
    rows = wanted.chosen(only)
    if not any(recipe(row.recipe).config.env.suite in ("atari", "procgen") for row in rows):
        one_thread_for((1,))  # vectors
    check_number("jobs", scaling.jobs, 1)
    check_number("episodes", episodes, 1)
    if seeds is not None and not train:
        raise BadInput("--seeds needs --train")
    if released is not None and not released.is_dir():
        raise BadInput(f"--released takes a folder, got {released}")
    place, runs = scaling.place(), {}
    if train:
        chosen = {row.recipe: parse_seeds(seeds or row.seeds or SEEDS) for row in rows if row.file is None}
        runs = _train(chosen, place, scaling.storage)
    with warnings_said():
        result = filling.reproduce(
            wanted, out, only=only, runs=runs, episodes=episodes, fresh=fresh, watch=watch, learned=learned or train,
            fits=fits, released=released, place=place if place.on == "ray" else None, storage=scaling.storage, say=say,
        )  # fmt: skip
    _write(result, out)
    shown = result.only(only)
    if json:
        print_json(shown.to_json())
    else:
        _print(shown)
    if not any(entry.ours is not None for line in shown.lines for entry in line.entries):
        say(f"radial: nothing to show: the zoo has no agent for {table}; `radial zoo list` shows which there are")
        sys.exit(1)


def _draw(name: str, out: Path, episodes: int | None, fresh: bool, as_json: bool) -> None:
    """A figure instead of a table."""
    from radial.reports import figures, markdown
    from radial.runs.files import write_atomic
    from radial.workflows.paper_figures import FIGURES

    drawn = FIGURES[name](out, episodes=episodes, fresh=fresh, watch=watch)
    facts = drawn.document()
    text, path = markdown.figure_page(facts), out / f"{name}.md"
    write_atomic(path, text)
    _picture(lambda target: figures.paper_figure(facts, target), path)
    if as_json:
        print_json(drawn.to_json())
    else:
        sys.stdout.write(text)


def _train(seeds: Mapping[str, Sequence[int]], place: "Place", storage: str | None) -> dict[str, list[Path]]:
    """Finished runs by recipe, whatever had to be trained for it: first what others start from, seed by seed.

    seeds  of each recipe
    """
    from radial.recipes.recipe import recipe
    from radial.workflows.train import check_trainable

    starts: dict[str, set[int]] = {}  # an agent is started from one of the same seed
    for name, those in seeds.items():
        if (init := recipe(name).init) is not None:
            starts.setdefault(init, set()).update(those)
    for name in (*starts, *seeds):
        check_trainable(recipe(name).config, min(starts.get(name) or seeds[name]))
    first: dict[str, Sequence[int]] = {name: sorted(one | set(seeds.get(name, ()))) for name, one in starts.items()}
    rest = {name: those for name, those in seeds.items() if name not in first}
    for wave in (first, rest):
        pairs = [(name, seed) for name, those in wave.items() for seed in those]
        if place.on == "ray":
            train_all([_job(name, seed, storage) for name, seed in pairs], place)
            continue
        commands = {f"{name}-seed{seed}": _command(name, seed, storage) for name, seed in pairs}
        missing = {name: command for name, command in commands.items() if command}
        if missing:
            run_all(missing, place.workers)
    return {name: [_folder(name, seed) for seed in those] for name, those in seeds.items()}


def _folder(name: str, seed: int) -> Path:
    return Path("runs") / f"{name}-seed{seed}"


def _job(name: str, seed: int, storage: str | None) -> "TrainJob":
    """The training of a seed of a recipe, from the agent it starts from, which must be there."""
    from radial.agents.convert import own
    from radial.recipes.recipe import recipe
    from radial.workflows.loading import open_agent
    from radial.workflows.many import TrainJob

    known = recipe(name)
    start = None if known.init is None else own(open_agent(_folder(known.init, seed)), "init")
    return TrainJob(name, known.config, seed, _folder(name, seed).absolute(), storage, init=start)


def _command(name: str, seed: int, storage: str | None) -> list[str]:
    """The arguments that train a seed of a recipe, or resume it; none if it is finished."""
    from radial.recipes.recipe import recipe
    from radial.runs.run import CONFIG
    from radial.workflows.seeds import finished

    folder, init = _folder(name, seed), recipe(name).init
    if finished(folder, name, seed):
        return []
    resume = ["--resume"] if (folder / CONFIG).exists() else []
    start = ["--init", str(_folder(init, seed))] if init is not None else []
    kept = [] if storage is None else ["--storage", storage]
    return ["train", name, "--seed", str(seed), "--out", str(folder), "--threads", "1", *start, *kept, *resume]


def _write(result: "Result", out: Path) -> None:
    from radial.reports import figures, markdown
    from radial.runs.files import write_atomic

    page, facts = out / f"{result.table.name}.md", result.report()
    write_atomic(page, markdown.markdown(facts))
    _picture(lambda path: figures.table_figure(facts, path), page)


def _picture(draw: Callable[[Path], None], page: Path) -> None:
    """Draw beside a page, and say where everything is."""
    try:
        draw(page.with_suffix(".png"))
    except BadInput as error:  # a table without a figure is a table
        say(f"no figure: {error}")
    say(f"the table is in {page}, every return in {page.with_suffix('.json')}")


def _print(result: "Result") -> None:
    from radial.reports.markdown import grid, markdown

    if not sys.stdout.isatty():
        sys.stdout.write(markdown(result.report()))
        return
    headings, rows = grid(result.report())
    table = Table(title=": ".join(part for part in (result.table.title, result.table.source) if part))
    labels = {column.label for column in result.table.columns}
    for at, heading in enumerate(headings):
        table.add_column(heading, justify="right" if heading in labels else "left", no_wrap=at > 2)
    for row in rows:
        table.add_row(*row, end_section=row[2] == "ours")
    print_table(table)
    for line in result.lines:
        if line.note:
            say(f"{line.row.task} {line.row.agent}: {line.note}")
