"""Who takes part in the leaderboard: agents of the zoo, and files and folders that somebody names.

Third-party files are read where they lie and never copied.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from safetensors.torch import save as safetensors_bytes

from radial.agents.convert import Loaded
from radial.agents.importers import IMPORTERS
from radial.agents.saved import CARD
from radial.agents.zoo import zoo_folder, zoo_names
from radial.core.data import BadInput, EnvSpec
from radial.envs.make import spec_for
from radial.evaluation.play import spec_of
from radial.workflows.loading import load
from radial.workflows.protocol import engine_of


@dataclass(frozen=True, eq=False)
class Entrant:
    """An agent on the leaderboard.

    recipe, seed, steps  from its card, where it says
    """

    name: str
    task: str
    agent: Loaded
    spec: EnvSpec

    @property
    def recipe(self) -> str | None:
        """The recipe it was trained with; agents that share one are its seeds."""
        found = self.agent.card.recipe.get("name")
        return None if found is None else str(found)

    @cached_property
    def sha256(self) -> str:
        """Of the weights, and of the file they were imported from."""
        weights = {name: tensor.detach().cpu().contiguous() for name, tensor in self.agent.state_dict().items()}
        return hashlib.sha256((self.agent.card.source or "").encode() + safetensors_bytes(weights)).hexdigest()

    @cached_property
    def engine(self) -> Mapping[str, str]:
        """Backend, version and simulator."""
        return engine_of(self.spec)


def entrants(agents: Sequence[Path], tasks: Mapping[str, str]) -> tuple[list[Entrant], dict[str, str]]:
    """The zoo's agents and those of `agents` that have a task here, and why others do not take part.

    agents  files, agents' or runs' folders, or folders that hold any of these
    tasks   the id of each task's env, by the name of the task
    """
    for path in agents:
        if not path.exists():
            raise BadInput(f"agents must be files or folders, {path} does not exist")
    found, refused = list[Entrant](), dict[str, str]()
    zoo = [(f"zoo/{name}", zoo_folder() / name) for name in zoo_names()]
    others = [(_called(each, path), each) for path in agents for each in sorted(_inside(path))]
    for name, path in (*zoo, *others):
        try:
            agent = load(path)
            task = _task(agent.card.env, path, tasks)
        except BadInput as error:
            refused[name] = str(error)
            continue
        if task is None:
            refused[name] = f"no task here is {agent.card.env or 'known for it'}"
        else:
            spec = spec_of(agent.card.env or spec_for(tasks[task]))
            found.append(Entrant(name, task, agent, spec))
    return found, refused


def _inside(path: Path) -> Iterator[Path]:
    """Agents in a folder: ours by their card, others by the suffix of their file."""
    if path.is_file() or (path / CARD).is_file() or (path / "agent" / CARD).is_file():
        yield path
        return
    for each in path.iterdir():
        if each.is_dir() or each.suffix in IMPORTERS:
            yield from _inside(each)


def _called(path: Path, given: Path) -> str:
    """Its path below the folder that was given; folders repeat their agent's name."""
    return path.name if path == given else str(path.relative_to(given.parent))


def _task(env: EnvSpec | None, path: Path, tasks: Mapping[str, str]) -> str | None:
    """The task of an env, or in the name of a file."""
    if env is not None:
        return next((name for name, each in tasks.items() if spec_for(each).id == env.id), None)
    words = re.findall(r"[a-z0-9]+", path.stem.lower())
    return next((name for name in tasks if name in words), None)
