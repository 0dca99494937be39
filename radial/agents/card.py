"""What is written about an agent beside its weights."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from radial.core.data import EnvSpec


@dataclass(frozen=True)
class Card:
    """What a reader of a saved agent must know: where it acts, and how it came to be."""

    env: EnvSpec | None
    recipe: Mapping[str, Any] = field(default_factory=dict)  # the config it was trained with, as JSON
    seed: int | None = None
    steps: int = 0  # env steps it was trained for
    commit: str | None = None  # of radial
    source: str | None = None  # where it was imported from
    results: Mapping[str, Any] = field(default_factory=dict)


def described(card: Card) -> str:
    """Where an agent comes from, in a line."""
    return card.source or f"{card.recipe.get('name') or 'an agent'} on {card.env}, seed {card.seed}, {card.steps} steps"
