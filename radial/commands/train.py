"""`radial train`: a recipe, with one seed or several, each in a folder of its own.

How one is trained is in `workflows.train`; how several processes are looked after is in `processes`.
"""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from radial.commands.limits import MOST, check_limits
from radial.commands.processes import run_all
from radial.commands.scaling import HERE, Scaled
from radial.core.checks import brief, check_most, check_whole
from radial.core.errors import BadInput

if TYPE_CHECKING:
    from radial.cluster import Place
    from radial.recipes.recipe import Config
    from radial.workflows.many import TrainJob

MOST_SEEDS = 10_000  # at a time
TRACEBACK = "error.txt"  # in a run's folder


@dataclass(frozen=True)
class Order:
    """A training as the command line asks for it, for any seed."""

    recipe: str | None
    env: str | None
    algorithm: str | None
    steps: int | None
    num_envs: int | None
    device: str
    init: str | None
    settings: tuple[str, ...]
    track: str
    track_project: str
    storage: str | None

    def __post_init__(self) -> None:
        if self.recipe is None and (self.env is None or self.algorithm is None):
            raise BadInput("train takes a recipe (`radial recipes` lists them), or --env ID --algorithm ppo|dqn|a3c")
        if self.recipe is not None:
            from radial.recipes.book import check_recipe

            check_recipe(self.recipe)
            if self.algorithm is not None:
                raise BadInput(f"--algorithm is for a training without a recipe; {self.recipe} has its own")

    @property
    def name(self) -> str:
        """For folders, and for the card where it is not the recipe's own."""
        where = "" if self.env is None else f"-{self.env.replace('/', '-')}"
        return f"{self.recipe or self.algorithm}{where}"

    def folder(self, seed: int) -> Path:
        """Where a seed is trained if nobody says."""
        return Path("runs") / f"{self.name}-seed{seed}"

    def command(self) -> list[str]:
        """The order as arguments of `radial`, without the seed."""
        options = {
            "--env": self.env, "--algorithm": self.algorithm, "--steps": self.steps, "--num-envs": self.num_envs,
            "--init": self.init, "--device": self.device, "--track": self.track, "--track-project": self.track_project,
            "--storage": self.storage,
        }  # fmt: skip
        given = [part for name, value in options.items() if value is not None for part in (name, str(value))]
        settings = [part for setting in self.settings for part in ("--set", setting)]
        return ["train", *([] if self.recipe is None else [self.recipe]), *given, *settings]


def train(
    recipe: tyro.conf.Positional[str | None] = None,
    env: str | None = None,
    algorithm: str | None = None,
    seed: int | None = None,
    seeds: str | None = None,
    scaling: Scaled = HERE,
    steps: int | None = None,
    num_envs: int | None = None,
    threads: int | None = None,
    device: str = "cpu",
    out: Path | None = None,
    resume: bool = False,
    init: str | None = None,
    set: tyro.conf.UseAppendAction[tuple[tuple[str, ...], ...]] = (),
    track: str = "tensorboard",
    track_project: str = "radial",
) -> None:
    """Train an agent by the name of its recipe; `radial recipes` lists them.

    The folder then holds config.json, metrics.jsonl, TensorBoard events, checkpoints, and the agent itself in agent/.
    SIGINT and SIGTERM save before they stop; --resume resumes from the last checkpoint. After a crash the resumed run
    equals an uninterrupted one bit for bit; after a signal, and with several A3C workers, it does not.

    Args:
        recipe: name of a recipe, such as cartpole-radial-ppo.
        env: another environment for the recipe's settings, or the one of a training without a recipe.
        algorithm: ppo, dqn or a3c: a training without a recipe, with defaults for the kind of observations.
        seed: random seed; default 0.
        seeds: several random seeds, such as 0-4; each is a process with one thread, in DIR/seedN with --out DIR. With
            --on ray finished seeds are skipped and others resumed.
        scaling: where jobs run.
        steps: env steps, such as 300000 or 3e5; the recipe's ramps shrink or stretch in proportion.
        num_envs: parallel environments.
        threads: of torch and of the simulator. Default: one torch thread, which is fastest for small networks, and
            one simulator thread per core.
        device: cpu, or cuda where there is one.
        out: the run's folder; default: runs/RECIPE-seedN.
        resume: resume the run in that folder.
        init: an agent to fine-tune: a run's folder, a zoo name, or a third-party checkpoint.
        set: KEY=VALUE …, any setting by its dotted path, such as policy_rate=1e-3 or value_clip=none.
        track: tensorboard, wandb (Weights & Biases, beside it) or none: where metrics go besides metrics.jsonl.
        track_project: project of Weights & Biases.
    """
    settings = tuple(setting for group in set for setting in group)
    if seed is not None and seeds is not None:
        raise BadInput("give --seed or --seeds, not both")
    check_number("threads", threads, 1)
    check_number("jobs", scaling.jobs, 1)
    place = scaling.place()
    kept = scaling.storage if out is None or seeds is None else in_storage(scaling.storage, out.absolute().name)
    order = Order(recipe, env, algorithm, steps, num_envs, device, init, settings, track, track_project, kept)
    if seeds is None:
        folder = order.folder(seed or 0) if out is None else out
        if place.on == "ray" and not _has_runners(order, seed or 0):
            _on_cluster(order, *_prepared(order, seed or 0), {seed or 0: folder}, place)
        else:
            _train_one(order, seed or 0, threads, folder, resume, place)
        return
    if int(os.environ.get("WORLD_SIZE") or 1) > 1:
        raise BadInput("--seeds is for one process: torchrun trains one seed on several")
    chosen = parse_seeds(seeds)
    folders = {n: order.folder(n) if out is None else out / f"seed{n}" for n in chosen}
    config, source = _prepared(order, chosen[0])  # refuse once, not once per process
    if place.on == "ray":
        _on_cluster(order, config, source, folders, place)
        return
    if not resume:
        _check_free(*folders.values())
    given = [*(["--resume"] if resume else []), "--threads", str(threads or place.resources.cpus)]
    run_all(
        {f"seed {n}": [*order.command(), "--seed", str(n), "--out", str(folders[n]), *given] for n in chosen},
        place.workers,
    )


def in_storage(storage: str | None, name: str) -> str | None:
    """A folder of storage: where seeds are trained in DIR/seedN, another DIR has other ones."""
    return None if storage is None else f"{storage.rstrip('/')}/{name}"


def _has_runners(order: Order, seed: int) -> bool:
    """Whether a training acts in the cluster, and itself stays here."""
    from radial.training.ppo import PPOConfig

    config, _ = _prepared(order, seed)
    return isinstance(config, PPOConfig) and config.num_runners > 0


def _on_cluster(
    order: Order, config: "Config", source: str | None, folders: Mapping[int, Path], place: "Place"
) -> None:
    from radial.agents.convert import own
    from radial.agents.zoo import resolve
    from radial.runs.tracking import Tracking
    from radial.workflows.loading import open_agent
    from radial.workflows.many import TrainJob

    start = None if order.init is None else own(open_agent(resolve(order.init)), "init")
    track = Tracking(order.track, order.track_project)
    jobs = [
        TrainJob(order.name, config, n, folder.absolute(), order.storage, order.device, start, track, source)
        for n, folder in folders.items()
    ]
    train_all(jobs, place)


def train_all(jobs: "Sequence[TrainJob]", place: "Place") -> None:
    """Do these trainings at a place, say how each ended, and exit with code 1 if one failed."""
    from radial.commands.terminal import say, warnings_said
    from radial.workflows.many import run_jobs

    with warnings_said():
        found = run_jobs(jobs, place, say)
    failed = [each for each in found if each.error is not None]
    if failed:
        names = ", ".join(f"{each.name} seed {each.seed}" for each in failed)
        say(f"radial: {len(failed)} of {len(found)} failed: {names}")
        sys.exit(1)


def _train_one(order: Order, seed: int, threads: int | None, out: Path, resume: bool, place: "Place") -> None:
    import torch

    from radial.agents.zoo import resolve
    from radial.commands.measure import keep_freed_memory
    from radial.commands.terminal import say, warnings_said
    from radial.recipes.recipe import RECIPES
    from radial.runs.tracking import Tracking
    from radial.training.ranks import follows
    from radial.workflows import train as training

    config, source = _prepared(order, seed)
    if follows():  # a rank of torchrun that writes nothing and says nothing
        torch.set_num_threads(threads or 1)
        start = None if order.init is None else resolve(order.init)
        training.train(config, seed, init=start, device=order.device)
        return
    if not resume:
        _check_free(out)
    if source:
        say(f"{source}; {config.total_steps:,} steps")
    known = None if order.recipe is None else RECIPES()[order.recipe]
    if known is not None and config.total_steps != (full := known.config.total_steps):
        say(f"{config.total_steps:,} steps instead of {full:,}: the ramps shrink or stretch in proportion")
    if order.init is None and known is not None and known.init is not None:
        say(f"training from scratch; the paper fine-tunes a standard agent: --init runs/{known.init}-seed{seed}")
    torch.set_num_threads(threads or 1)
    keep_freed_memory()
    start = None if order.init is None else resolve(order.init)
    with warnings_said(), traceback_kept(out):
        training.train(
            config, seed, out=out, resume=resume, init=start, device=order.device, threads=threads, recipe=order.name,
            track=Tracking(order.track, order.track_project), origin=source, storage=order.storage,
            address=place.address,
        )  # fmt: skip
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


def _prepared(order: Order, seed: int) -> tuple["Config", str | None]:
    """The config with what the command line changes, known to be trainable here, from `init` if given.

    Returns it with a line that says where its settings come from, if that is not a recipe for its own environment.
    """
    from radial.agents.convert import own
    from radial.agents.zoo import resolve
    from radial.recipes.recipe import with_settings, with_steps
    from radial.runs.tracking import Tracking
    from radial.workflows.loading import open_agent
    from radial.workflows.train import check_trainable

    Tracking(order.track, order.track_project).check()
    start = None if order.init is None else own(open_agent(resolve(order.init)), "init")
    config, source = _settings(order)
    if order.steps is not None:
        config = with_steps(config, order.steps)
    # Together: a number of envs that does not fit the recipe may fit what --set changes.
    more = [] if order.num_envs is None else [f"num_envs={order.num_envs}"]
    config = with_settings(config, [*order.settings, *more])
    check_limits({"steps": config.total_steps, "num_envs": config.num_envs})
    check_trainable(config, seed, order.device, start)
    return config, source


def _settings(order: Order) -> tuple["Config", str | None]:
    """The settings of a recipe, of a recipe in another environment, or of an algorithm; and where they come from."""
    from radial.commands.terminal import warnings_said
    from radial.core.text import spell_radius
    from radial.recipes.elsewhere import default_config, in_env
    from radial.recipes.recipe import recipe

    if order.recipe is None:
        with warnings_said():
            config, source = default_config(str(order.algorithm), str(order.env))
        return config, f"{config.env.id}: {source}"
    known = recipe(order.recipe)
    if order.env is None:
        return known.config, None
    with warnings_said():
        config = in_env(known, order.env)
    own, radius = known.config.env.id, config.objective.coefficients(config.total_steps).get("radius")
    units = "" if radius is None else f"; its ε = {spell_radius(radius)} was chosen for {own}"
    return config, f"{config.env.id}: the settings of {order.recipe}, a recipe for {own}{units}"


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
