"""Agents in other people's files, read as data only. Adding a format is adding a line to `IMPORTERS`."""

from collections.abc import Callable
from pathlib import Path

from radial.agents.agents import CategoricalAgent, GaussianAgent
from radial.agents.importers.papers import read_model

IMPORTERS: dict[str, Callable[[Path], GaussianAgent | CategoricalAgent]] = {
    ".model": read_model,  # RADIAL-PPO and SA-PPO
}
