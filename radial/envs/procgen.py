"""ProcGen's sixteen games: which levels are played, and the way to EnvPool and the libraries of Qt it needs.

The adapter around the pool is in `gymnasium_vec`, and how a pool is made in `envpool_vec`.
"""

import ctypes
import importlib
import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from radial.core.data import BadInput, EnvSpec
from radial.envs.envpool_vec import make_pool
from radial.envs.gymnasium_vec import GymnasiumVec

BUILT_IN = {"1.2.5": "procgen 0.10.7"}  # EnvPool does not tell
MODES = ("easy", "hard", "extreme", "memory", "exploration")
GAMES: dict[str, tuple[str, ...]] = {  # and the distributions of levels each has
    "bigfish": ("easy", "hard"),
    "bossfight": ("easy", "hard"),
    "caveflyer": ("easy", "hard", "memory", "exploration"),
    "chaser": ("easy", "hard", "extreme"),
    "climber": ("easy", "hard", "exploration"),
    "coinrun": ("easy", "hard", "exploration"),
    "dodgeball": ("easy", "hard", "extreme", "memory"),
    "fruitbot": ("easy", "hard"),
    "heist": ("easy", "hard", "memory", "exploration"),
    "jumper": ("easy", "hard", "memory", "exploration"),
    "leaper": ("easy", "hard", "extreme", "exploration"),
    "maze": ("easy", "hard", "memory", "exploration"),
    "miner": ("easy", "hard", "memory"),
    "ninja": ("easy", "hard", "exploration"),
    "plunder": ("easy", "hard"),
    "starpilot": ("easy", "hard", "extreme"),
}
FRAME = (3, 64, 64)
ALL = 2**31 - 1  # levels there are: 0 … ALL − 1
PIP = "pip install 'radial-rl[procgen]'"
QT = ("libQt5Core.so.5", "libQt5Gui.so.5")  # in this order: the second needs the first
SYSTEM = {  # libraries that Qt needs and pip does not have → the package of Debian and Ubuntu that has it
    "libGL.so.1": "libgl1",
    "libglib-2.0.so.0": "libglib2.0-0",
    "libgthread-2.0.so.0": "libglib2.0-0",
    "libz.so.1": "zlib1g",
}


@dataclass(frozen=True)
class Levels:
    """Which levels an episode's is drawn from: start … start + count − 1 of a distribution."""

    mode: str
    start: int
    count: int

    def __str__(self) -> str:
        which = "all levels" if self.count == ALL else f"levels {self.start} … {self.start + self.count - 1}"
        return f"{self.mode}, {which}"


SPLITS = {"train": (0, 200), "test": (0, ALL)}  # start and count, as in the paper


def levels_of(spec: EnvSpec) -> Levels:
    """The levels a spec asks for: a split by name (default: train), or `num_levels` from `start_level` (default: 0)."""
    options = spec.options
    mode = str(options.get("distribution_mode", "easy"))
    if mode not in GAMES[spec.id]:
        raise BadInput(f"option distribution_mode of {spec.id} must be {' or '.join(GAMES[spec.id])}, got {mode!r}")
    own = [name for name in ("num_levels", "start_level") if name in options]
    if not own:
        return Levels(mode, *SPLITS[str(options.get("split", "train"))])
    if "split" in options:
        raise BadInput(f"give split or {own[0]}, not both: split {options['split']} says which levels")
    if "num_levels" not in options:
        raise BadInput("option start_level needs num_levels: how many levels from there on")
    start, count = int(options.get("start_level", 0)), int(options["num_levels"])
    if start + count > ALL:
        raise BadInput(f"start_level + num_levels must be at most {ALL}, got {start + count}")
    return Levels(mode, start, count)


def make_procgen(spec: EnvSpec, seeds: Sequence[int], threads: int | None, timeout: float | None) -> GymnasiumVec:
    """One game per seed, each episode in a level drawn from the spec's; frames (3, 64, 64) uint8, 15 actions."""
    levels = levels_of(spec)
    envpool = _import_envpool()
    options = {"start_level": levels.start, "num_levels": 0 if levels.count == ALL else levels.count}  # 0: all
    native = make_pool(f"{spec.id.capitalize()}{levels.mode.capitalize()}-v0", options, seeds, threads)
    version = str(envpool.__version__)
    simulator = f"{BUILT_IN.get(version, f'procgen built into envpool {version}')}, {levels}"
    engine = {"backend": "envpool", "version": version, "simulator": simulator}
    return GymnasiumVec(native, spec, engine=engine, timeout=timeout)


# ------------------------------------------------------------------------------------------------------ EnvPool and Qt


def _import_envpool() -> Any:
    """EnvPool with its ProcGen, whose libraries of Qt are loaded first."""
    if importlib.util.find_spec("envpool") is None:
        raise BadInput(f"suite procgen needs EnvPool: {PIP}")
    if sys.platform == "linux":
        _load_qt()
    try:
        envpool, games = importlib.import_module("envpool"), importlib.import_module("envpool.procgen")
        if "ProcgenEnvSpec" not in vars(games):  # imported before Qt was there, for another suite
            importlib.reload(games)
    except ImportError as error:
        raise BadInput(f"suite procgen needs EnvPool, which cannot be imported: {_line(error)}") from error
    return envpool


def _load_qt() -> None:
    """Load the Qt of the system if it has one, else that of the package PyQt5-Qt5; twice is fine.

    EnvPool's module finds libraries already loaded under their name, so no search path is needed.
    """
    try:
        ctypes.CDLL(QT[1], mode=ctypes.RTLD_GLOBAL)
    except OSError:
        package = importlib.util.find_spec("PyQt5")
        folders = (package.submodule_search_locations if package else None) or []
        library = next((Path(folder) / "Qt5" / "lib" for folder in folders), Path())
        if not all((library / name).is_file() for name in QT):
            raise BadInput(f"suite procgen needs Qt 5: {PIP}, or apt-get install libqt5gui5") from None
        for name in QT:
            _load(library / name)


def _load(path: Path) -> None:
    try:
        ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        missing = next((name for name in SYSTEM if str(error).startswith(f"{name}:")), None)
        remedy = _line(error) if missing is None else f"{missing} is missing: apt-get install {SYSTEM[missing]}"
        raise BadInput(f"suite procgen cannot load {path.name}: {remedy}") from error


def _line(error: Exception) -> str:
    return str(error).splitlines()[0]
