"""`train_many`: several configs with several seeds, on this machine or on a cluster, each a run folder of its own.

Where jobs run is in `cluster`; how one is trained in `train`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from radial import cluster
from radial.agents.saved import CARD
from radial.core.checks import check_whole
from radial.core.data import BadInput
from radial.recipes.recipe import Config
from radial.runs.run import is_run
from radial.runs.storage import SharedStorage
from radial.workflows.train import AGENT, train


@dataclass(frozen=True)
class TrainJob:
    """One training: a config, a seed, and the folder of its run."""

    name: str
    config: Config
    seed: int
    folder: Path
    storage: str | None
    device: str


@dataclass(frozen=True)
class TrainedSeed:
    """How one training ended; with an error there may be a run to resume."""

    name: str
    seed: int
    folder: Path
    error: str | None


def train_many(
    configs: Mapping[str, Config],
    seeds: Sequence[int],
    *,
    out: str | Path = "runs",
    on: str = "local",
    workers: int = 1,
    resources: cluster.Resources | None = None,
    address: str | None = None,
    storage: str | None = None,
    device: str = "cpu",
    progress: Callable[[str], None] | None = None,
) -> list[TrainedSeed]:
    """Train every config with every seed, in OUT/NAME-seedN; what is finished is skipped, what is not resumed.

    configs  by the name their runs go by
    on       "local": `workers` processes; "ray": a cluster at `address`, or one started here
    storage  a shared folder or a URI: a job whose node dies resumes elsewhere from its last checkpoint there
    """
    cluster.check_where(on, address)
    for seed in seeds:
        check_whole("seeds", seed, 0)
    if not configs or not seeds:
        raise BadInput("configs and seeds must be at least one each")
    if storage is not None:
        SharedStorage(storage)
    jobs = [
        TrainJob(name, config, seed, Path(out).absolute() / f"{name}-seed{seed}", storage, device)
        for name, config in configs.items() for seed in seeds
    ]  # fmt: skip
    say = progress or (lambda text: None)
    waiting = [job for job in jobs if not _finished(job)]

    def tell(number: int, outcome: cluster.Outcome[None]) -> None:
        job = waiting[number]
        say(f"{job.name} seed {job.seed}: {outcome.error or 'done'}")

    ended = cluster.map(
        run_job, waiting, on=on, resources=resources, workers=workers, address=address, progress=tell
    )  # fmt: skip
    errors = {job.folder: outcome.error for job, outcome in zip(waiting, ended, strict=True)}
    for job in jobs:
        if storage is not None and errors.get(job.folder) is None:  # it may have run on another node
            SharedStorage(storage).fetch(job.folder.name, job.folder)
    return [TrainedSeed(job.name, job.seed, job.folder, errors.get(job.folder)) for job in jobs]


def run_job(job: TrainJob) -> None:
    """Train, or resume, in this process."""
    train(
        job.config, job.seed, out=job.folder, resume=is_run(job.folder), recipe=job.name, storage=job.storage,
        device=job.device, quiet=True,
    )  # fmt: skip


def _finished(job: TrainJob) -> bool:
    return (job.folder / AGENT / CARD).is_file()
