"""What a search for an adversary was asked for, and what it tried: plain JSON, in its folder and in its attack.

Every env step of a search's budget is in one of its trials, also where a trial was cut before it had a result.
"""

import errno
import json
import math
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from radial.agents.weights import weights_id
from radial.attacks.learned.rounds import Candidate, Trial
from radial.core.agent import Agent
from radial.core.data import BadInput, EnvSpec
from radial.runs.files import read_json, write_atomic

if TYPE_CHECKING:
    from radial.attacks.learned.adversaries import Adversary

FIT_RECORD = "search.json"


def asked_for(settings: "Adversary", agent: Agent, spec: EnvSpec, seed: int) -> dict[str, Any]:
    """Everything that decides the result of a fit, which trains in `spec`."""
    how = {name: value for name, value in asdict(settings).items() if name != "compile"}
    whole = {
        **how, "kinds": settings.kinds, "p": str(float(settings.p)), "seed": seed, "env": asdict(spec),
        "agent": weights_id(agent.choice),
    }  # fmt: skip
    found: dict[str, Any] = json.loads(json.dumps(whole))
    return found


def differing(asked: Mapping[str, Any], there: Mapping[str, Any]) -> list[str]:
    """The settings in which the fit that is there is not the one asked for."""
    return sorted(name for name, value in asked.items() if there.get(name, ...) != value)


def kept_settings(folder: Path) -> dict[str, Any] | None:
    """What the fit in a folder, finished or not, was asked for; None: no fit is there."""
    path = folder / FIT_RECORD
    return dict(read_json(path).get("settings", {})) if path.exists() else None


def check_fit_folder(folder: Path, field: str = "out") -> None:
    """Refuse a folder that no fit can be in: one that holds something else, or cannot be made; nothing stays written.

    field  the caller's name of it
    """
    if folder.is_dir() and any(folder.iterdir()) and not (folder / FIT_RECORD).is_file():
        raise BadInput(f"{field} must be a new folder, an empty one or that of a fit: {folder} holds something else")
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)  # no question about permissions answers for every file system
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, "it cannot be written to")
    except OSError as error:
        raise BadInput(f"{field} must be a folder that can be written to, got {folder}: {error.strerror}") from None
    finally:
        for each in missing:
            with suppress(OSError):
                each.rmdir()


def kept_trials(folder: Path) -> list[Trial]:
    """The trials of the fit in a folder, as `write_search` wrote them."""
    return [
        Trial(Candidate(**each["candidate"]), each["round"], each["steps"], _or_cut(each["validation"]))
        for each in read_json(folder / FIT_RECORD)["trials"]
    ]


def write_search(folder: Path, settings: Mapping[str, Any], trials: Iterable[Trial]) -> None:
    """Keep what was asked for and what was tried so far."""
    folder.mkdir(parents=True, exist_ok=True)
    found = {"settings": settings, "trials": [asdict(trial) | {"validation": _result(trial)} for trial in trials]}
    write_atomic(folder / FIT_RECORD, json.dumps(found, indent=2, allow_nan=False) + "\n")


def tried(trials: Iterable[Trial]) -> dict[str, Any]:
    """The trials in order, and how the lowest return fell with the steps spent; a cut trial has steps and no result."""
    spent, lowest = 0, math.inf
    told: list[dict[str, Any]] = []
    curve: list[list[float]] = []
    for trial in trials:
        spent, lowest = spent + trial.steps, min(lowest, trial.validation)
        told.append({
            "name": trial.candidate.title, **asdict(trial.candidate), "round": trial.round, "steps": trial.steps,
            "validation": _result(trial),
        })  # fmt: skip
        if not trial.cut:
            curve.append([spent, lowest])
    return {"steps": spent, "trials": told, "curve": curve}


def _result(trial: Trial) -> float | None:
    return None if trial.cut else trial.validation


def _or_cut(validation: float | None) -> float:
    return math.inf if validation is None else validation
