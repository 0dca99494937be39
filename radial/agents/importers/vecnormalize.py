"""Reads the pickled `VecNormalize` that Stable-Baselines3 users save beside an agent: its running statistics, as data.

Nothing in it is called; the classes it speaks of become inert, and everything but five fields is ignored.
"""

import math
import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from radial.agents.importers.archive import read_pickle
from radial.agents.importers.inert import RANDOM, Inert, InertArray
from radial.agents.preprocessing import RunningScale
from radial.core.data import BadInput

OBJECTS = {
    "stable_baselines3.common.vec_env.vec_normalize.VecNormalize",
    "stable_baselines3.common.running_mean_std.RunningMeanStd",
    *(f"{gym}.spaces.{space}" for gym in ("gym", "gymnasium") for space in ("box.Box", "discrete.Discrete")),
    *RANDOM,
}  # every class in such files, and none is ever imported


def beside(path: Path) -> Path | None:
    """The statistics that belong to an agent's zip: `vecnormalize.pkl` in its folder, or one with the agent's name."""
    stem = path.stem
    names = [f"{stem}_vecnormalize.pkl", f"vecnormalize_{stem}.pkl"]
    steps = re.fullmatch(r"(.+)_(\d+_steps)", stem)  # the names CheckpointCallback gives
    if steps is not None:
        names.append(f"{steps[1]}_vecnormalize_{steps[2]}.pkl")
    names += ["vecnormalize.pkl", "vec_normalize.pkl"]
    found = [path.with_name(name) for name in names if path.with_name(name).is_file()]
    return found[0] if found else None


def read_vecnormalize(path: Path) -> RunningScale | None:
    """The normalisation of observations; None where only rewards were normalised."""
    root = read_pickle(path, OBJECTS)
    if _field(path, root, "norm_obs") is not True:
        return None
    clip, tiny = _number(path, root, "clip_obs"), _number(path, root, "epsilon")
    stats = _field(path, root, "obs_rms")
    mean, variance = _array(path, stats, "mean"), _array(path, stats, "var")
    if mean.shape != variance.shape or bool((variance < 0).any()):
        raise BadInput(f"{path}: the mean and variance of the observations must be of one shape, and none negative")
    return RunningScale(mean, variance, clip, tiny, _number(path, stats, "count"))


def _field(path: Path, thing: object, name: str) -> Any:
    if not isinstance(thing, Inert) or not isinstance(thing.state, dict) or name not in thing.state:
        raise BadInput(f"{path} does not hold the statistics of VecNormalize: there is no field '{name}'")
    return thing.state[name]


def _number(path: Path, thing: object, name: str) -> float:
    value = _field(path, thing, name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not (math.isfinite(value) and value > 0):
        raise BadInput(f"{path}: {name} must be a number > 0")
    return float(value)


def _array(path: Path, stats: object, name: str) -> Tensor:
    array = _field(path, stats, name)
    if not isinstance(array, InertArray) or array.value is None or array.value.size == 0:
        raise BadInput(f"{path}: the {name} of the observations must be an array")
    numbers = torch.from_numpy(array.value.astype("float64"))
    if not bool(numbers.isfinite().all()):
        raise BadInput(f"{path}: the {name} of the observations holds NaN or infinity")
    return numbers
