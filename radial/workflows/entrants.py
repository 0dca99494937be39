"""Who takes part in the leaderboard: agents of the zoo, and files and folders that somebody names.

Third-party files are read where they lie and never copied.
"""

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

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

_ZOO = "zoo/"  # before the names of the zoo's agents


class Listed(Protocol):
    """Who has a row on the leaderboard: an agent that can play, or one whose results are known."""

    @property
    def name(self) -> str:
        """The name it is reported by."""

    @property
    def task(self) -> str:
        """The leaderboard's name of it."""

    @property
    def spec(self) -> EnvSpec:
        """Where it plays."""

    @property
    def engine(self) -> Mapping[str, str]:
        """Backend, version and simulator."""

    @property
    def sha256(self) -> str:
        """Of the weights, and of the file they were imported from."""

    @property
    def has_value(self) -> bool:
        """Whether attacks on its value can be run."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """Recipe, seed, steps and source, where its card says."""


@dataclass(frozen=True, eq=False)
class Remembered:
    """An agent whose results are known, though its file is not at hand."""

    name: str
    task: str
    spec: EnvSpec
    sha256: str
    has_value: bool
    facts: Mapping[str, Any]

    @cached_property
    def engine(self) -> Mapping[str, str]:
        """Backend, version and simulator here: what was played on another is not one table with what is played now."""
        return engine_of(self.spec)


@dataclass(frozen=True, eq=False)
class Entrant:
    """An agent that can play."""

    name: str
    task: str
    agent: Loaded
    spec: EnvSpec

    @property
    def has_value(self) -> bool:
        """Whether attacks on its value can be run."""
        return self.agent.has_value

    @property
    def facts(self) -> Mapping[str, Any]:
        """Recipe, seed, steps and source, where its card says; agents that share a recipe are its seeds."""
        card = self.agent.card
        recipe = card.recipe.get("name")
        return {
            "recipe": None if recipe is None else str(recipe), "seed": card.seed, "steps": card.steps,
            "source": card.source,
        }  # fmt: skip

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
    zoo = [(f"{_ZOO}{name}", zoo_folder() / name) for name in zoo_names()]
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


def remembered(
    results: Iterable[Mapping[str, Any]], before: Mapping[str, Any], tasks: Mapping[str, str], found: Sequence[Entrant]
) -> list[Remembered]:
    """Agents that only results know: neither their name nor their weights are among `found`.

    The zoo is always at hand: results of its agents whose weights are no longer there are left out.

    results  facts of evaluations
    before   the leaderboard as it was last shown, for what their cards said
    tasks    the id of each task's env, by the name of the task
    """
    ids = {spec_for(env).id: task for task, env in tasks.items()}
    rows = {row["sha256"]: row for task in before.get("tasks", {}).values() for row in task["rows"]}
    names, weights = {each.name for each in found}, {each.sha256 for each in found}
    known: dict[str, dict[str, Any]] = {}
    with_value = set()
    for each in results:
        key = each["key"]
        sha256 = key["weights"]
        if key["attack"] == "critic":
            with_value.add(sha256)
        if each["env"] in ids and sha256 not in weights and _may_return(each["agent"], names):
            suite = key["env"].partition("/")[0]
            spec = EnvSpec(suite, each["env"], each["env_options"])
            known.setdefault(sha256, {"name": each["agent"], "task": ids[spec.id], "spec": spec})
    return [
        Remembered(
            **identity, sha256=sha256, has_value=sha256 in with_value,
            facts={name: rows.get(sha256, {}).get(name) for name in ("recipe", "seed", "steps", "source")},
        )
        for sha256, identity in known.items()
    ]  # fmt: skip


def refused_before(before: Mapping[str, Any], found: Collection[str]) -> dict[str, str]:
    """Why files that are not at hand now did not take part; `found` are."""
    return {name: why for name, why in before.get("refused", {}).items() if _may_return(name, found)}


def _may_return(name: str, found: Collection[str]) -> bool:
    """Whether an agent that was here before is neither one of the zoo nor another one's namesake."""
    return not name.startswith(_ZOO) and name not in found


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
