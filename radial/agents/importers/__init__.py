"""Agents in other people's files, read as data only. Adding a format is adding a line to `IMPORTERS`."""

from collections.abc import Callable
from pathlib import Path

from radial.agents.importers.papers import read_model
from radial.agents.importers.procgen import read_procgen
from radial.agents.registry import AnyAgent

IMPORTERS: dict[str, Callable[[Path], AnyAgent]] = {
    ".model": read_model,  # RADIAL-PPO and SA-PPO on MuJoCo
    ".pt": read_procgen,  # RADIAL's PPO on ProcGen
}
