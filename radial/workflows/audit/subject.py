"""Who is audited, and where: from a path or an agent, and an env's id or what the card or the file's name says."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from radial.agents.foreign import no_agent
from radial.agents.preprocessing import Frames
from radial.agents.saved import load
from radial.agents.zoo import resolve
from radial.core.agent import described
from radial.core.data import BadInput, EnvSpec
from radial.envs.make import example_for, spec_for, spec_named, stacked
from radial.evaluation.play import name_of, spec_of

PARTS = ("network", "actions", "prepare", "scores", "act")  # of an agent


@dataclass(frozen=True)
class Subject:
    """An agent in its env, and notes on how the two were brought together."""

    agent: Any
    spec: EnvSpec
    name: str
    about: str
    notes: tuple[str, ...]


def subject(agent: Any, env: EnvSpec | str | None, name: str | None = None) -> Subject:
    """Load what must be loaded, and find out where it acts."""
    notes: list[str] = []
    with _noted(notes):
        path = resolve(str(agent)) if isinstance(agent, str | Path) else None
        loaded: Any = agent if path is None else load(path)
        if not all(hasattr(loaded, part) for part in PARTS):
            raise no_agent("agent", loaded)
        spec = spec_for(env) if isinstance(env, str) else env or getattr(getattr(loaded, "card", None), "env", None)
        if spec is None and path is not None:
            spec = spec_named(path)
            if spec is not None:
                notes.append(f"the env is taken from the name of the file: {spec.id}")
    door = getattr(loaded, "door", None)
    shape = (door.channels,) if isinstance(door, Frames) else getattr(loaded, "observation_shape", None)
    if spec is None:
        who = "the agent" if path is None else path
        near = "Pong" if isinstance(door, Frames) else example_for(shape)
        raise BadInput(f"{who} does not say where it acts: give env, such as {near}")
    spec = stacked(spec_of(spec), shape or ())
    card = getattr(loaded, "card", None)
    notes += card.recipe.get("notes", []) if card is not None else []
    about = name_of(loaded) if card is None or (card.source is None and card.env is None) else described(card)
    recipe = None if card is None else card.recipe.get("name")
    called = name or (str(agent) if isinstance(agent, str | Path) else name_of(loaded))
    return Subject(loaded, spec, called, f"{recipe}, {about}" if recipe else about, tuple(dict.fromkeys(notes)))


@contextmanager
def _noted(notes: list[str]) -> Iterator[None]:
    """Warnings become notes."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    notes += [str(warning.message) for warning in caught if issubclass(warning.category, UserWarning)]
