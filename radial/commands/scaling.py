"""Where a command's jobs run: the options that `train`, `reproduce`, `leaderboard`, `attack fit` and `audit` share.

What becomes of them is in `cluster`; copies in shared storage are made by `runs.storage`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from radial.cluster import Place, is_installed
from radial.core.errors import BadInput
from radial.jobs import Resources


@dataclass(frozen=True)
class Scaling:
    """Where jobs run, as a command line says it."""

    jobs: int = 1
    """how many at a time, here or in a cluster that is started here."""
    on: str = "local"
    """local: processes of this machine; ray: a Ray cluster."""
    address: str | None = None
    """of a running Ray cluster, auto or HOST:PORT; default: one is started here, on loopback, for this command."""
    cpus_per_job: int = 1
    """of each job, and its threads."""
    gpus_per_job: float = 0.0
    """of each job; needs --on ray."""
    storage: str | None = None
    """a shared folder or a URI such as s3://bucket/runs, for copies of runs and results: a job whose node dies resumes
    elsewhere, and a command that is started again, on any machine, goes on."""

    def __post_init__(self) -> None:
        if self.storage is not None and "://" not in self.storage:  # for processes in other folders
            object.__setattr__(self, "storage", str(Path(self.storage).expanduser().absolute()) if self.storage else "")

    def place(self) -> Place:
        """The same for `cluster.map`, checked as far as that is possible before anything starts."""
        place = Place(self.on, self.jobs, Resources(self.cpus_per_job, self.gpus_per_job), self.address)
        if self.on == "ray" and not is_installed():
            raise BadInput("--on ray needs Ray: pip install 'radial-rl[ray]'")
        if self.storage is not None:
            from radial.runs.storage import SharedStorage

            SharedStorage(self.storage).check()
        return place


Scaled = Annotated[Scaling, tyro.conf.arg(name="")]  # without a prefix: --on, not --scaling.on
HERE = Scaling()
