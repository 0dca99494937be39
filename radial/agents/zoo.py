"""The zoo: trained agents that come with the repository, and how a name on the command line becomes a path.

How an agent is saved and loaded is in `agents.saved`.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from radial.agents.hub import HUB, fetch
from radial.agents.saved import CARD, load_agent
from radial.core.agent import Card
from radial.core.data import BadInput
from radial.core.text import nearest

VARIABLE = "RADIAL_ZOO"


@dataclass(frozen=True)
class Resident:
    """An agent of the zoo."""

    name: str
    path: Path
    card: Card

    @property
    def method(self) -> str:
        """The name of its recipe, or where it was imported from."""
        return str(self.card.recipe.get("name") or self.card.source or "unknown")


def zoo_folder() -> Path:
    """Where the agents are: the environment variable RADIAL_ZOO, or `zoo/` beside the package."""
    return Path(os.environ.get(VARIABLE) or Path(__file__).parent.parent.parent / "zoo")


def zoo_names() -> list[str]:
    """The names of the agents in the zoo."""
    folder = zoo_folder()
    return sorted(path.name for path in folder.iterdir() if (path / CARD).is_file()) if folder.is_dir() else []


def zoo_agents() -> tuple[list[Resident], list[str]]:
    """All agents, each loaded and so known to be whole; and one line for each that cannot be loaded."""
    whole, broken = [], []
    for name in zoo_names():
        try:
            whole.append(Resident(name, zoo_folder() / name, load_agent(zoo_folder() / name).card))
        except BadInput as error:
            broken.append(str(error))
    return whole, broken


def resolve(agent: str) -> Path:
    """The path of an agent: a folder or a file of that name, the agent of that name in the zoo, or one of the hub."""
    if agent.startswith(HUB):
        return fetch(agent)
    if Path(agent).exists():
        return Path(agent)
    names = zoo_names()
    if agent in names:
        return zoo_folder() / agent
    raise BadInput(f"no agent {agent!r}: neither a folder, nor a file, nor in the zoo{nearest(agent, names)}")
