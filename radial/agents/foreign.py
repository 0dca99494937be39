"""Agents around third-party networks: `wrap` for a network, `as_agent` for an object that is nearly an agent.

How a checkpoint is read is in `importers`; before an imported agent is trained or saved, `convert.own` converts it.
"""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from radial.agents.policies import SoftmaxPolicy
from radial.agents.preprocessing import DOORS, AsFloat, Frames, RunningScale
from radial.core.agent import Agent, Card
from radial.core.checks import check_whole, is_finite, is_sizes
from radial.core.data import BadInput, Continuous, Discrete

OutputKind = Literal["q", "categorical", "gaussian"]
Prepare = Callable[[Tensor], Tensor]


class _Wrapped(nn.Module, Agent):
    """The base of the three kinds: the network, a door for units, the shape of an observation if known, a card."""

    def __init__(
        self,
        network: nn.Module,
        prepare: Prepare | None = None,
        *,
        observation_shape: tuple[int, ...] | None = None,
        critic: nn.Module | None = None,
        valid_range: tuple[float, float] | None = None,
    ) -> None:
        super().__init__()
        self.network, self.critic = network, critic
        self.door: Prepare = AsFloat() if prepare is None else prepare
        self.observation_shape, self.valid_range = observation_shape, valid_range
        self.card = Card(env=None)

    def prepare(self, obs: Tensor) -> Tensor:
        """Observations of the env (B, *obs) → the network's input, float32."""
        if self.observation_shape is not None and obs.shape[1:] != self.observation_shape:
            shape = ", ".join(str(size) for size in self.observation_shape)
            raise BadInput(f"obs must have shape (B, {shape}), got {tuple(obs.shape)}")
        return self.door(obs)

    def scores(self, x: Tensor) -> Tensor:
        """Q-values, logits or action means, (B, A)."""
        return self.network(x)

    @property
    def has_value(self) -> bool:
        """Whether a critic was given."""
        return self.critic is not None

    def value(self, x: Tensor) -> Tensor:
        """The critic's estimate, (B,)."""
        return super().value(x) if self.critic is None else self.critic(x).flatten(1)[:, 0]

    def units(self) -> Tensor | None:
        """The door's, if it is one of ours."""
        return self.door.units() if isinstance(self.door, DOORS) else None

    @property
    def normalized(self) -> bool:
        """Whether the door divides by standard deviations."""
        return isinstance(self.door, RunningScale)


class WrappedQ(_Wrapped):
    """The greedy policy of a network of action values."""

    actions: Discrete
    log_std = None

    def act(self, x: Tensor, rng: torch.Generator | None = None) -> Tensor:
        """The best action, (B,) int64; a greedy policy has nothing to sample."""
        return self.scores(x).argmax(-1)

    @property
    def has_value(self) -> bool:
        """The largest Q-value, where no critic was given."""
        return True

    def value(self, x: Tensor) -> Tensor:
        """The critic's estimate, or the largest Q-value, (B,)."""
        return self.scores(x).amax(-1) if self.critic is None else super().value(x)


class WrappedCategorical(SoftmaxPolicy, _Wrapped):
    """A softmax over a network's logits."""

    actions: Discrete


class WrappedGaussian(_Wrapped):
    """A network of action means; `log_std` (D,) is None where the file or the caller does not say."""

    actions: Continuous
    log_std: Tensor | None = None

    def act(self, x: Tensor, rng: torch.Generator | None = None) -> Tensor:
        """The mean action (B, D), or with `rng` a sample."""
        mean = self.scores(x)
        if rng is None:
            return mean
        if self.log_std is None:
            raise BadInput("stochastic must be False: the spread of this policy's actions is not known")
        return mean + self.log_std.exp() * torch.randn(mean.shape, generator=rng, device=rng.device)


WrappedAgent = WrappedQ | WrappedCategorical | WrappedGaussian
WRAPPERS: dict[str, type[WrappedQ] | type[WrappedCategorical] | type[WrappedGaussian]] = {
    "q": WrappedQ,
    "categorical": WrappedCategorical,
    "gaussian": WrappedGaussian,
}


def wrap(
    module: nn.Module,
    kind: OutputKind,
    prepare: Prepare | None = None,
    *,
    actions: int | None = None,
    observation_shape: tuple[int, ...] | None = None,
    critic: nn.Module | None = None,
    valid_range: tuple[float, float] | None = None,
    log_std: Tensor | None = None,
    clips_actions: bool = False,
) -> WrappedAgent:
    """An agent around any network (B, *obs) → (B, A) that torch.fx can trace, in eval mode.

    kind         "q": the largest output is the action; "categorical": outputs are logits; "gaussian": outputs are means
    prepare      observations of the env (B, *obs) → the network's input, float32; default: only the conversion
    actions      how many outputs; default: those of the last linear layer
    critic       (B, *obs) → (B, 1), if there is one: some attacks ask it
    valid_range  the values an observation can take after `prepare`, such as (0, 1) for frames
    """
    if not isinstance(kind, str) or kind not in WRAPPERS:
        raise BadInput(f"kind must be one of {', '.join(WRAPPERS)}, got {kind!r}")
    for name, given in (("module", module), ("critic", critic)):
        if not isinstance(given, nn.Module) and not (name == "critic" and given is None):
            raise BadInput(f"{name} must be a torch.nn.Module, got {type(given).__name__}")
    _check(prepare, observation_shape, valid_range)
    if log_std is not None and not isinstance(log_std, Tensor):
        raise BadInput(f"log_std must be a tensor (D,) or None, got {log_std!r}")
    count = _outputs(module) if actions is None else check_whole("actions", actions, 1)
    agent = WRAPPERS[kind](module, prepare, observation_shape=observation_shape, critic=critic, valid_range=valid_range)
    if isinstance(agent, WrappedGaussian):
        if log_std is not None and (log_std.shape != (count,) or not bool(log_std.isfinite().all())):
            raise BadInput(f"log_std must be {count} finite numbers, got {tuple(log_std.shape)}: {str(log_std)[:60]}")
        agent.actions, agent.log_std = Continuous(count), log_std
    else:
        agent.actions = Discrete(count)
    agent.clips_actions = clips_actions
    return agent


def _check(prepare: object, observation_shape: object, valid_range: object) -> None:
    """Refuse arguments that are no function, no shape or no range."""
    if prepare is not None and not callable(prepare):
        raise BadInput(f"prepare must be a function from observations to the network's input, got {prepare!r}")
    if observation_shape is not None and not (isinstance(observation_shape, tuple) and is_sizes(observation_shape)):
        raise BadInput(f"observation_shape must be a tuple of sizes ≥ 1 such as (4,), got {observation_shape!r}")
    if valid_range is not None:
        ends = list(valid_range) if isinstance(valid_range, tuple | list) else []
        if len(ends) != 2 or not all(is_finite(end) for end in ends) or ends[0] >= ends[1]:
            raise BadInput(f"valid_range must be two finite numbers, the smaller one first, got {valid_range!r}")


def known_shape(agent: Agent) -> tuple[int, ...]:
    """The shape of one observation, or as much of it as is known: the number of frames, or nothing."""
    if agent.observation_shape is not None:
        return tuple(agent.observation_shape)
    return (agent.door.channels,) if isinstance(agent, _Wrapped) and isinstance(agent.door, Frames) else ()


def _outputs(module: nn.Module) -> int:
    layers = [layer for layer in module.modules() if isinstance(layer, nn.Linear)]
    if not layers:
        raise BadInput("actions must be given: the module has no linear layer to tell how many outputs there are")
    return layers[-1].out_features


# ----------------------------------------------------------------------------------------- agents without inheritance

AGENT_PARTS = ("network", "actions", "prepare", "scores", "act")  # that make any object an agent


class Guarding:
    """An object that watches an agent; where an agent is asked for, `acting` stands for it."""

    def acting(self) -> Agent:
        """The agent as it acts under watch."""
        raise NotImplementedError


def as_agent(given: object, field: str = "agent", parts: tuple[str, ...] = AGENT_PARTS) -> Agent:
    """An `Agent` as it is; any other object with the `parts` of one behind the same interface.

    field  the caller's name of it, for the message where it is no agent
    parts  the attributes that are needed here; an attack gets by with fewer than an evaluation
    """
    if isinstance(given, Agent):
        return given
    if isinstance(given, Guarding):
        return given.acting()
    if not all(hasattr(given, part) for part in parts):
        raise no_agent(field, given)
    return _Adapted(given)


def no_agent(field: str, given: object) -> BadInput:
    """The error where something else than an agent is given."""
    hint = "; rr.wrap makes an agent of a network" if isinstance(given, nn.Module) else ""
    what = type(given).__name__ if isinstance(given, nn.Module) else repr(given)[:60]
    return BadInput(f"{field} must be an agent, its path or its name in the zoo, got {what}{hint}")


class _Adapted(Agent):
    """Any object with the parts of an agent, completed by the defaults of `Agent`.

    The only place where attributes of an agent are looked up by name; whatever else is asked for is the object's own.
    """

    def __init__(self, given: Any) -> None:
        self._given = given
        network = getattr(given, "network", None)
        self.network = network if isinstance(network, nn.Module) else _Scores(given)
        self.actions = given.actions
        self.observation_shape = getattr(given, "observation_shape", None)
        self.valid_range = getattr(given, "valid_range", None)
        self.clips_actions = bool(getattr(given, "clips_actions", False))
        self.log_std = getattr(given, "log_std", None)
        card = getattr(given, "card", None)
        self.card = card if isinstance(card, Card) else Card(env=None)

    def __getattr__(self, name: str) -> Any:
        if name == "_given" or name.startswith("__"):  # while it is copied there is no object yet
            raise AttributeError(name)
        return getattr(self._given, name)

    def prepare(self, obs: Tensor) -> Tensor:
        """The object's own."""
        x: Tensor = self._given.prepare(obs)
        return x

    def scores(self, x: Tensor) -> Tensor:
        """The object's own."""
        scores: Tensor = self._given.scores(x)
        return scores

    def act(self, x: Tensor, rng: torch.Generator | None = None) -> Tensor:
        """The object's own; called without `rng` where there is none, so `act(x)` alone will do."""
        action: Tensor = self._given.act(x) if rng is None else self._given.act(x, rng)
        return action

    @property
    def choice(self) -> nn.Module:
        """The object's own if it has one, else its network."""
        choice = getattr(self._given, "choice", None)
        return self.network if choice is None else choice

    @property
    def has_value(self) -> bool:
        """Whether the object has a `value` to call."""
        return bool(getattr(self._given, "has_value", callable(getattr(self._given, "value", None))))

    def value(self, x: Tensor) -> Tensor:
        """The object's own."""
        value: Tensor = self._given.value(x) if self.has_value else super().value(x)
        return value

    def units(self) -> Tensor | None:
        """The object's own, or 255 grey levels per unit where observations have a range."""
        units = getattr(self._given, "units", None)
        return units() if callable(units) else torch.tensor(1.0 if self.valid_range is None else 255.0)

    @property
    def normalized(self) -> bool:
        """Whether the object says so."""
        return bool(getattr(self._given, "normalized", False))

    @property
    def name(self) -> str:
        """Where it was imported from, or the object's type."""
        return self.card.source or type(self._given).__name__


class _Scores(nn.Module):
    """The scores of an object that has no network, as one."""

    def __init__(self, given: Any) -> None:
        super().__init__()
        self._given = given

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self._given.scores(x)
        return scores
