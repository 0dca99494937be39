"""Where a run's metrics go besides metrics.jsonl: TensorBoard events, Weights & Biases, or nowhere.

A service that fails is left with a warning: it never ends a training. The names of the metrics are CleanRL's
(charts/…, losses/…), as is the name of a run: ENV__recipe__seed__time.
"""

import importlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from radial.core.errors import BadInput
from radial.core.text import nearest
from radial.runs.files import warn, write_atomic

EVENTS = "tb"  # the folder of TensorBoard's events
WANDB_RUN = "wandb.json"  # the id by which a resumed run goes on there
PROJECT = "radial"


class Log(Protocol):
    """Takes the metrics of a run."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """The metrics at this step; some may be NaN."""

    def close(self) -> None:
        """No more will come."""


@dataclass(frozen=True)
class Tracking:
    """Which service, and under which name.

    to       a key of SERVICES
    project  of Weights & Biases
    name     of the run there; None: that of its folder
    """

    to: str = "tensorboard"
    project: str = PROJECT
    name: str | None = None

    def __post_init__(self) -> None:
        if self.to not in SERVICES:
            raise BadInput(f"track must be one of {', '.join(SERVICES)}, got {self.to!r}{nearest(self.to, SERVICES)}")

    def check(self) -> None:
        """Refuse a service whose package is missing, before any work."""
        if self.to == "wandb":
            _wandb()

    def open(self, folder: Path, config: Mapping[str, Any], first_step: int | None) -> Log:
        """The log of a run. first_step: events from this step on are replaced; None: the run is new."""
        return SERVICES[self.to](self, folder, config, first_step)


class TensorBoard:
    """Events in tb/. An error of the disk is the run's own and is raised."""

    def __init__(self, how: Tracking, folder: Path, config: Mapping[str, Any], first_step: int | None) -> None:
        from torch.utils.tensorboard import SummaryWriter  # takes a while to import

        self.writer = SummaryWriter(str(folder / EVENTS), purge_step=first_step)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:  # noqa: D102
        for key, value in metrics.items():
            self.writer.add_scalar(key, value, step)
        self.writer.flush()

    def close(self) -> None:  # noqa: D102
        self.writer.close()


class Nowhere:
    """metrics.jsonl alone."""

    def __init__(self, how: Tracking, folder: Path, config: Mapping[str, Any], first_step: int | None) -> None:
        pass

    def log(self, step: int, metrics: Mapping[str, float]) -> None:  # noqa: D102
        pass

    def close(self) -> None:  # noqa: D102
        pass


class WandB:
    """Weights & Biases, by its own settings (WANDB_MODE=offline, WANDB_ENTITY …); the files are in the run's folder."""

    def __init__(self, how: Tracking, folder: Path, config: Mapping[str, Any], first_step: int | None) -> None:
        wandb, self.run = _wandb(), None
        name, there = how.name or folder.absolute().name, folder / WANDB_RUN
        try:
            known = json.loads(there.read_text(encoding="utf-8"))["id"] if there.is_file() else None
            self.run = wandb.init(
                project=how.project, name=name, id=known, resume=None if known is None else "allow", dir=str(folder),
                config=dict(config), settings=wandb.Settings(silent=True),
            )  # fmt: skip
            self.run.define_metric("*", step_metric="global_step")
            write_atomic(there, json.dumps({"id": self.run.id, "project": how.project, "name": name}) + "\n")
        except Exception as error:  # noqa: BLE001  a service may fail in any way
            self._leave(error)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:  # noqa: D102
        if self.run is None:
            return
        try:
            self.run.log({"global_step": step, **metrics})
        except Exception as error:  # noqa: BLE001
            self._leave(error)

    def close(self) -> None:  # noqa: D102
        if self.run is None:
            return
        try:
            self.run.finish()
        except Exception as error:  # noqa: BLE001
            self._leave(error)

    def _leave(self, error: Exception) -> None:
        self.run = None
        text = " ".join(str(error).split())[:200]
        warn(f"Weights & Biases failed and gets no more metrics, the run goes on: {type(error).__name__}: {text}")


class Both:
    """Weights & Biases beside TensorBoard."""

    def __init__(self, how: Tracking, folder: Path, config: Mapping[str, Any], first_step: int | None) -> None:
        self.logs: tuple[Log, ...] = (
            TensorBoard(how, folder, config, first_step),
            WandB(how, folder, config, first_step),
        )

    def log(self, step: int, metrics: Mapping[str, float]) -> None:  # noqa: D102
        for each in self.logs:
            each.log(step, metrics)

    def close(self) -> None:  # noqa: D102
        for each in self.logs:
            each.close()


SERVICES: dict[str, type[TensorBoard | Nowhere | Both]] = {"tensorboard": TensorBoard, "wandb": Both, "none": Nowhere}


def run_name(env: str, recipe: str, seed: int) -> str:
    """CleanRL's name of a run: ENV__recipe__seed__time."""
    return f"{env}__{recipe}__{seed}__{int(time.time())}"


def _wandb() -> Any:
    try:
        return importlib.import_module("wandb")
    except ImportError:
        raise BadInput("--track wandb needs the package wandb: pip install 'radial-rl[wandb]'") from None
