"""Agents in other people's files, read as data only. Adding a format is adding a line to `IMPORTERS`."""

from collections.abc import Callable
from pathlib import Path

from radial.agents.agents import CategoricalAgent, GaussianAgent
from radial.agents.importers.cleanrl import read_cleanrl
from radial.agents.importers.papers import read_model
from radial.agents.importers.sb3 import read_sb3
from radial.agents.wrapped import Wrapped

IMPORTERS: dict[str, Callable[[Path], GaussianAgent | CategoricalAgent | Wrapped]] = {
    ".model": read_model,  # RADIAL-PPO and SA-PPO
    ".zip": read_sb3,  # Stable-Baselines3
    ".cleanrl_model": read_cleanrl,  # CleanRL
}
