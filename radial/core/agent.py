"""The complete `Agent`, its card, and the `Attack` protocol.

Everything any part of radial asks an agent for is declared here, with types. Networks, training, saving and importing
are elsewhere.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from radial.core.ball import Ball
from radial.core.data import Continuous, Discrete, EnvSpec


@dataclass(frozen=True)
class Card:
    """The record kept beside an agent's weights: its environment, and its provenance."""

    env: EnvSpec | None
    recipe: Mapping[str, Any] = field(default_factory=dict)  # the config it was trained with, as JSON
    seed: int | None = None
    steps: int = 0  # env steps it was trained for
    commit: str | None = None  # of radial
    source: str | None = None  # where it was imported from
    results: Mapping[str, Any] = field(default_factory=dict)


def described(card: Card) -> str:
    """The provenance of an agent, in one line."""
    return card.source or f"{card.recipe.get('name') or 'an agent'} on {card.env}, seed {card.seed}, {card.steps} steps"


class Agent(ABC):
    """A policy with its network. After `prepare`, the only conversion of units, everything (ε too) is in network units.

    network            the network with all its outputs; `choice` is the part that decides
    actions            the action space
    observation_shape  of one observation; None: not known
    valid_range        the values an observation can take at all, in network units; None: any
    clips_actions      actions were clipped to the env's box in training, so evaluation clips them too
    log_std            (D,) of a Gaussian policy; None: a policy over discrete actions, or not known
    card               its environment and provenance
    """

    network: nn.Module
    actions: Discrete | Continuous
    observation_shape: tuple[int, ...] | None
    valid_range: tuple[float, float] | None = None
    clips_actions: bool = False
    log_std: Tensor | None
    card: Card

    @abstractmethod
    def prepare(self, obs: Tensor) -> Tensor:
        """Observations of the env (B, *obs) → the network's input, float32: the only conversion of units."""

    @abstractmethod
    def scores(self, x: Tensor) -> Tensor:
        """Q-values, logits or action means, (B, A)."""

    @abstractmethod
    def act(self, x: Tensor, rng: torch.Generator | None = None) -> Tensor:
        """Actions for the env, (B,) int64 or (B, D): the greedy or mean action, or with `rng` a sample."""

    @property
    def choice(self) -> nn.Module:
        """The network that decides, (B, *obs) → (B, A): its largest output is the action, or it is the mean action.

        It orders the actions as `scores` does and is the network to bound, attack and certify.
        """
        return self.network

    @property
    def has_value(self) -> bool:
        """Whether the agent has a value function."""
        return False

    def value(self, x: Tensor) -> Tensor:
        """The value function, (B, *obs) → (B,); only where `has_value`."""
        raise NotImplementedError(f"{type(self).__name__} has no value function")

    def units(self) -> Tensor | None:
        """Env units per network unit, () or (*obs); None: `prepare` is not known well enough to say."""
        return torch.ones(())

    @property
    def normalized(self) -> bool:
        """Whether one network unit is a standard deviation of the observations."""
        return False

    @property
    def name(self) -> str:
        """Where it was imported from, or its type."""
        return self.card.source or type(self).__name__

    def ball(self, x: Tensor, radius: float | Tensor, p: float = math.inf) -> Ball:
        """The threat model at x (B, *obs): all observations the agent may be shown, clipped to the valid range."""
        low, high = self.valid_range or (None, None)
        return Ball(x, radius, p, low, high)


class Attack(Protocol):
    """Perturbs prepared observations inside a ball. The caller projects the result onto the ball again."""

    def perturb(self, agent: Agent, ball: Ball, rng: torch.Generator) -> Tensor:
        """The observations the agent is shown, (B, *obs); rows are independent."""

    def reset(self, done: Tensor) -> None:
        """Forget everything about the rows (B,) whose episode ended."""
