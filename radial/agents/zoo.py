"""The zoo: trained agents that come with the repository, and how a name on the command line becomes a path.

How an agent is saved and loaded is in `agents.saved`.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from radial.agents.hub import HUB, fetch
from radial.core.errors import BadInput
from radial.core.text import nearest

if TYPE_CHECKING:  # torch comes with it, and a mistyped name need not wait for that
    from radial.core.agent import Card

VARIABLE = "RADIAL_ZOO"
CARD = "card.json"  # in the folder of an agent
MOST_BESIDE = 1_000  # files among which one may have been meant
SHIPPED = "_zoo"  # the folder in an installed package; setup.py puts it there


@dataclass(frozen=True)
class Resident:
    """An agent of the zoo."""

    name: str
    path: Path
    card: "Card"

    @property
    def method(self) -> str:
        """The name of its recipe, or where it was imported from."""
        return str(self.card.recipe.get("name") or self.card.source or "unknown")


def zoo_folder() -> Path:
    """Where the agents are: in a checkout `zoo/`, else the folder that was installed; RADIAL_ZOO names another."""
    package = Path(__file__).parent.parent
    checkout = package.parent / "zoo"
    here = checkout if (package.parent / "pyproject.toml").is_file() else package / SHIPPED
    return Path(os.environ.get(VARIABLE) or here)


def check_own_zoo() -> None:
    """Refuse to add agents to the folder that was installed: the next installation would remove them."""
    if zoo_folder().name == SHIPPED:
        raise BadInput(f"{zoo_folder()} belongs to the installed package; set {VARIABLE} to a folder of your own")


def zoo_names() -> list[str]:
    """The names of the agents in the zoo."""
    folder = zoo_folder()
    return sorted(path.name for path in folder.iterdir() if (path / CARD).is_file()) if folder.is_dir() else []


def zoo_agents() -> tuple[list[Resident], list[str]]:
    """All agents, each loaded and so known to be whole; and one line for each that cannot be loaded."""
    from radial.agents.saved import load_agent

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
    near = nearest(agent, [*names, *_beside(Path(agent))])
    raise BadInput(f"no agent {agent!r}: neither a folder, nor a file, nor in the zoo{near}")


def _beside(path: Path) -> list[str]:
    """Paths that may have been meant: those in the deepest folder of the path that is there."""
    folder = next((each for each in path.parents if each.is_dir()), None)
    try:
        found = [] if folder is None else sorted(folder.iterdir())[:MOST_BESIDE]
    except OSError:
        return []
    return [str(each) for each in found if not each.name.startswith(".")]
