"""`radial train`: a recipe, with one seed or several, each in a folder of its own.

How one is trained is in `workflows.train`; how several processes are looked after is in `processes`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from radial.commands.limits import MOST, check_limits
from radial.commands.processes import run_all
from radial.core.checks import brief, check_most, check_whole
from radial.core.data import BadInput

if TYPE_CHECKING:
    from radial.recipes.recipe import Config

MOST_SEEDS = 10_000  # at a time
TRACEBACK = "error.txt"  # in a run's folder


def train(
    recipe: tyro.conf.Positional[str],
    seed: int | None = None,
    seeds: str | None = None,
    jobs: int = 1,
    steps: int | None = None,
    num_envs: int | None = None,
    threads: int | None = None,
    device: str = "cpu",
    out: Path | None = None,
    resume: bool = False,
    init: str | None = None,
    set: tyro.conf.UseAppendAction[tuple[tuple[str, ...], ...]] = (),
) -> None:
    """Train an agent by the name of its recipe; `radial recipes` lists them.

    The folder then holds config.json, metrics.jsonl, TensorBoard events, checkpoints, and the agent itself in agent/.
    SIGINT and SIGTERM save before they stop; --resume resumes from the last checkpoint. After a crash the resumed run
    equals an uninterrupted one bit for bit; after a signal, and with several A3C workers, it does not.

    Args:
        recipe: name of a recipe, such as cartpole-radial-ppo.
        seed: random seed; default 0.
        seeds: several random seeds, such as 0-4; each is a process with one thread, in DIR/seedN with --out DIR.
        jobs: how many of these processes at a time.
        steps: env steps; the recipe's ramps shrink or stretch in proportion.
        num_envs: parallel environments.
        threads: of torch and of the simulator. Default: one torch thread, which is fastest for small networks, and
            one simulator thread per core.
        device: cpu, or cuda where there is one.
        out: the run's folder; default: runs/RECIPE-seedN.
        resume: resume the run in that folder.
        init: an agent to fine-tune: a run's folder, a zoo name, or a third-party checkpoint.
        set: KEY=VALUE …, any setting by its dotted path, such as policy_rate=1e-3 or value_clip=none.
    """
    settings = [setting for group in set for setting in group]
    if seed is not None and seeds is not None:
        raise BadInput("give --seed or --seeds, not both")
    check_number("threads", threads, 1)
    check_number("jobs", jobs, 1)
    if seeds is None:
        folder = Path("runs") / f"{recipe}-seed{seed or 0}" if out is None else out
        _train_one(recipe, seed or 0, steps, num_envs, threads, device, folder, resume, init, settings)
        return
    chosen = parse_seeds(seeds)
    folders = {n: Path("runs") / f"{recipe}-seed{n}" if out is None else out / f"seed{n}" for n in chosen}
    _prepared(recipe, chosen[0], steps, num_envs, device, init, settings)  # refuse once, not once per process
    if not resume:
        _check_free(*folders.values())
    given = [
        *(["--steps", str(steps)] if steps is not None else []),
        *(["--num-envs", str(num_envs)] if num_envs is not None else []),
        *(["--resume"] if resume else []),
        *(["--init", init] if init is not None else []),
        *(part for setting in settings for part in ("--set", setting)),
        *("--device", device, "--threads", str(threads or 1)),
    ]
    run_all({f"seed {n}": ["train", recipe, "--seed", str(n), "--out", str(folders[n]), *given] for n in chosen}, jobs)


def _train_one(
    recipe: str, seed: int, steps: int | None, num_envs: int | None, threads: int | None, device: str,
    out: Path, resume: bool, init: str | None, settings: list[str],
) -> None:  # fmt: skip
    import torch

    from radial.agents.zoo import resolve
    from radial.commands.measure import keep_freed_memory
    from radial.commands.terminal import say, warnings_said
    from radial.recipes.recipe import RECIPES
    from radial.workflows import train as training

    config = _prepared(recipe, seed, steps, num_envs, device, init, settings)
    if not resume:
        _check_free(out)
    known = RECIPES()[recipe]
    full = known.config.total_steps
    if steps is not None and steps != full:
        say(f"{steps:,} steps instead of {full:,}: the ramps shrink or stretch in proportion")
    if init is None and known.init is not None:
        say(f"training from scratch; the paper fine-tunes a standard agent: --init runs/{known.init}-seed{seed}")
    torch.set_num_threads(threads or 1)
    keep_freed_memory()
    start = None if init is None else resolve(init)
    with warnings_said(), traceback_kept(out):
        training.train(config, seed, out=out, resume=resume, init=start, device=device, threads=threads, recipe=recipe)
    say(f"the agent is in {out}: radial evaluate {out}")


@contextmanager
def traceback_kept(folder: Path) -> Iterator[None]:
    """Write the traceback of a failed worker into a run's folder, since the terminal gets one line."""
    from radial.runs.files import write_atomic
    from radial.training.a3c_workers import WorkerFailed

    try:
        yield
    except WorkerFailed as error:
        if folder.is_dir():
            write_atomic(folder / TRACEBACK, f"{error}\n")
            error.summary += f"; the whole traceback is in {folder / TRACEBACK}"
        raise


def _check_free(*folders: Path) -> None:
    """Refuse folders that hold a run, before a word is said about the training."""
    from radial.runs.run import check_free

    for folder in folders:
        check_free(folder)


def _prepared(
    name: str, seed: int, steps: int | None, num_envs: int | None, device: str, init: str | None, settings: list[str]
) -> "Config":
    """The recipe's config with what the command line changes, known to be trainable here, from `init` if given."""
    from radial.agents.convert import own
    from radial.agents.zoo import resolve
    from radial.recipes.recipe import recipe, with_settings, with_steps
    from radial.workflows.loading import open_agent
    from radial.workflows.train import check_trainable

    config = recipe(name).config
    if steps is not None:
        config = with_steps(config, steps)
    # Together: a number of envs that does not fit the recipe may fit what --set changes.
    config = with_settings(config, [*settings, *([] if num_envs is None else [f"num_envs={num_envs}"])])
    check_limits({"steps": config.total_steps, "num_envs": config.num_envs})
    check_trainable(config, seed, device, None if init is None else own(open_agent(resolve(init)), "init"))
    return config


def parse_seeds(text: str) -> list[int]:
    """The seeds of "0-4" (both ends count), of "7", or of "1,3,5"."""
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        digits = first.isdecimal() and (last.isdecimal() if dash else not last) and max(len(first), len(last)) <= 19
        if not digits or int(last or first) < int(first):
            raise BadInput(f"seeds must be such as 0-4 or 1,3,5, each of at most 19 digits, got {brief(text)}")
        more = range(int(first), int(last or first) + 1)
        if more[-1] - more[0] >= MOST_SEEDS - len(seeds):
            raise BadInput(f"seeds must be at most {MOST_SEEDS:,}, got {brief(text)}")
        check_most("each of the seeds", more[-1], MOST["seed"])
        seeds += more
    if len(set(seeds)) < len(seeds):
        raise BadInput(f"seeds must be different from each other, got {brief(text)}")
    return seeds


def check_number(name: str, value: int | None, least: int) -> None:
    """Refuse a number below `least`; None is no number."""
    if value is not None:
        check_whole(name, value, least)
