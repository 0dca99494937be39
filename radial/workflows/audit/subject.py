"""Who is audited, where, and by which bounds: from a path or an agent, and an env's id, the card or the file's name."""

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from radial.agents.foreign import as_agent, known_shape
from radial.agents.zoo import resolve
from radial.core.agent import Agent, described
from radial.core.data import BadInput, EnvSpec
from radial.envs.make import check_card_env, example_for, spec_for, spec_named, spec_told
from radial.evaluation.play import spec_of
from radial.workflows.loading import open_agent


@dataclass(frozen=True)
class Audited:
    """An agent in its env, and notes on how the two were brought together."""

    agent: Agent
    spec: EnvSpec
    name: str
    about: str
    notes: tuple[str, ...]


def audited(
    given: Agent | str | Path,
    env: EnvSpec | str | None,
    name: str | None = None,
    vecnormalize: str | Path | None = None,
) -> Audited:
    """Load an agent from its path if need be, and find the env it acts in."""
    notes: list[str] = []
    if vecnormalize is not None and not isinstance(given, str | Path):
        raise BadInput("vecnormalize is for the file of an agent: this agent is loaded already")
    with _noted(notes):
        path = resolve(str(given)) if isinstance(given, str | Path) else None
        agent = as_agent(given if path is None else open_agent(path, vecnormalize=vecnormalize))
        spec = spec_for(env) if isinstance(env, str) else env or agent.card.env
        if env is None and spec is not None and path is not None:
            check_card_env(spec, path)
        if spec is None and path is not None:
            spec = spec_named(path)
            if spec is None:
                spec = spec_told(agent.card.recipe)
            else:
                notes.append(f"the env is taken from the name of the file: {spec.id}")
    shape = known_shape(agent)
    if spec is None:
        who = "the agent" if path is None else path
        near = "Pong" if len(shape) == 1 and agent.observation_shape is None else example_for(shape)
        raise BadInput(f"{who} has no environment recorded: pass env, such as {near}")
    spec = spec_of(spec, agent)
    card = agent.card
    notes += card.recipe.get("notes", [])
    about = agent.name if card.source is None and card.env is None else described(card)
    recipe = card.recipe.get("name")
    called = name or (str(given) if isinstance(given, str | Path) else agent.name)
    return Audited(agent, spec, called, f"{recipe}, {about}" if recipe else about, tuple(dict.fromkeys(notes)))


@contextmanager
def _noted(notes: list[str]) -> Iterator[None]:
    """Warnings become notes."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    notes += [str(warning.message) for warning in caught if issubclass(warning.category, UserWarning)]


def default_bound(agent: Agent) -> str:
    """CROWN where it is cheap."""
    return "crown-ibp" if any(isinstance(layer, nn.Conv2d) for layer in agent.network.modules()) else "crown"


def texts_of(field: str, given: Any) -> list[str]:
    """Several texts; a single one counts as a list of one."""
    texts = [given] if isinstance(given, str) else list(given) if isinstance(given, Iterable) else [given]
    for text in texts:
        if not isinstance(text, str):
            raise BadInput(f"{field} must be a list of texts, got {text!r}")
    return texts
