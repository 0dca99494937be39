"""`train_many`: several configs with several seeds, on this machine or on a cluster, each a run folder of its own.

Where jobs run is in `cluster`; how one is trained in `train`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from radial import cluster
from radial.agents.convert import AnyAgent
from radial.agents.saved import CARD, load_agent
from radial.core.checks import check_whole
from radial.core.data import BadInput
from radial.envs.custom import import_inherited
from radial.jobs import Outcome, Resources
from radial.recipes.recipe import Config
from radial.runs.run import is_run
from radial.runs.storage import SharedStorage, patiently
from radial.runs.tracking import Tracking
from radial.training.ppo import PPOConfig
from radial.workflows.seeds import card_config, trained_with
from radial.workflows.train import AGENT, train

FINISHED = f"{AGENT}/{CARD}"


@dataclass(frozen=True)
class TrainJob:
    """One training: a config, a seed, and the folder of its run.

    init   the agent it starts from, if any; it is sent along, since its file need not be there where the job runs
    track, origin  as in `train`
    """

    name: str
    config: Config
    seed: int
    folder: Path
    storage: str | None = None
    device: str = "cpu"
    init: AnyAgent | None = None
    track: Tracking | None = None
    origin: str | None = None


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
    resources: Resources | None = None,
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
    place = cluster.Place(on, workers, resources or Resources(), address)
    for seed in seeds:
        check_whole("seeds", seed, 0)
    if not configs or not seeds:
        raise BadInput("configs and seeds must be at least one each")
    if storage is not None:
        SharedStorage(storage).check()
        storage = storage if "://" in storage else str(Path(storage).absolute())
    jobs = [
        TrainJob(name, config, seed, Path(out).absolute() / f"{name}-seed{seed}", storage, device)
        for name, config in configs.items() for seed in seeds
    ]  # fmt: skip
    return run_jobs(jobs, place, progress)


def run_jobs(
    jobs: Sequence[TrainJob], place: cluster.Place, progress: Callable[[str], None] | None = None
) -> list[TrainedSeed]:
    """Do these trainings at a place; what is finished, here or in storage, is skipped, what is not resumed."""
    say = progress or (lambda text: None)
    for job in jobs:
        if isinstance(job.config, PPOConfig) and job.config.num_runners and place.on == "ray":
            raise BadInput("num_runners must be 0 for trainings on ray side by side: they would wait for each other")
        _bring_back(job)
    waiting = [job for job in jobs if not is_finished(job)]
    ended = 0

    def tell(number: int, outcome: Outcome[None]) -> None:
        nonlocal ended
        ended += 1
        job = waiting[number]
        say(f"{job.name} seed {job.seed}: {outcome.error or 'done'} ({ended} of {len(waiting)})")

    found = place.map(run_job, waiting, tell)
    errors = {job.folder: outcome.error for job, outcome in zip(waiting, found, strict=True)}
    for job in waiting:
        if errors[job.folder] is None:
            _bring_back(job)  # it may have run on another node
    return [TrainedSeed(job.name, job.seed, job.folder, errors.get(job.folder)) for job in jobs]


def run_job(job: TrainJob) -> None:
    """Train, or resume, in this process."""
    import_inherited()
    patiently(
        lambda: train(
            job.config, job.seed, out=job.folder, resume=is_run(job.folder), recipe=job.name, init=job.init,
            storage=job.storage, device=job.device, quiet=True, track=job.track, origin=job.origin,
        )
    )  # fmt: skip


def is_finished(job: TrainJob) -> bool:
    """Whether a job's run is finished here; a finished one of another config or seed is refused."""
    if not (job.folder / FINISHED).is_file():
        return False
    card = load_agent(job.folder).card
    same = trained_with(card, job.config) == card_config(job.config)
    if (card.recipe.get("name"), card.seed, same) != (job.name, job.seed, True):
        raise BadInput(f"{job.folder} holds another run than {job.name} with seed {job.seed}; move it away")
    return True


def _bring_back(job: TrainJob) -> None:
    """Copy a finished run from storage, unless it is here."""
    if job.storage is not None:
        SharedStorage(job.storage).fetch(job.folder.name, job.folder, FINISHED)
