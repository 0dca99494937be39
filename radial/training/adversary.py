"""Adversarial training: an attack on what an agent sees, in its rollouts or in a batch from its replay.

The attacks themselves are passed in. An attack that is a pure function of its noise is compiled: between two steps of
sixteen small environments, ten gradients one operation at a time would take longer than all the rest.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.func import functional_call

from radial.core.agent import Agent, Attack
from radial.core.ball import Ball
from radial.core.data import BadInput
from radial.training.native import Compiled


@runtime_checkable
class Climbing(Protocol):
    """An attack whose randomness can be drawn beforehand."""

    def draws(self, agent: Agent) -> int:
        """Number of N(0, 1) arrays needed, each in the shape of the observations."""

    def climb(self, agent: Agent, ball: Ball, noise: Sequence[Tensor]) -> Tensor:
        """The observations to show in place of the ball's centre, (B, *obs)."""


@runtime_checkable
class Drawless(Protocol):
    """An attack that may need no randomness at all."""

    def draws_nothing(self, agent: Agent) -> bool:
        """Whether its answer to an observation follows from that one alone."""

    def perturb(self, agent: Agent, ball: Ball, rng: torch.Generator) -> Tensor:
        """The observations to show, (B, *obs); `rng` is not used where it draws nothing."""


class Opponent(Protocol):
    """What stands between the environments and an agent in training: an attack, or an adversary that learns as well."""

    def begin(self, radius: float) -> bool:
        """Set the radius before a rollout; return whether there is anything to attack."""

    def __call__(self, x: Tensor, rng: torch.Generator) -> Tensor:
        """The observations the agent is shown instead of x (N, *obs)."""

    def turn(self, step: int, update: int, left: float) -> dict[str, float]:
        """Learn after an update of the agent, if it is its turn; return metrics."""

    def state(self) -> dict[str, Tensor]:
        """Everything to resume from."""

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Resume from a saved state."""

    def leave(self) -> None:
        """Close its own environments; they restart, as the agent's do at a checkpoint."""


@runtime_checkable
class Joining(Protocol):
    """An attack that is no attack yet: it becomes an opponent of one training."""

    def join(self, agent: Any, config: Any, seed: int, make: Any = None) -> Opponent:
        """An opponent of this agent in the training of this config."""


def norm_of(config: Any) -> float:
    """The p of the ball that a training's adversary is confined to: its objective's, ∞ for one without a ball."""
    return float(getattr(config.objective, "p", math.inf))


def check_attack(attack: object | None, name: str | None) -> None:
    """Refuse an attack object without its name in a config, and a name without the object."""
    if (attack is None) != (name is None):
        raise BadInput("attack must be given exactly when config.attack names one")


class _Shown(nn.Module):
    """A pure attack as a forward, for `functional_call`."""

    def __init__(self, agent: Any, attack: Climbing | Drawless, p: float) -> None:
        super().__init__()
        self.agent, self.attack, self.p = agent, attack, p

    def forward(self, x: Tensor, radius: Tensor, noise: Sequence[Tensor]) -> Tensor:
        ball = Ball.unchecked(x, radius, self.p, *(self.agent.valid_range or (None, None)))
        if isinstance(self.attack, Climbing):
            return ball.project(self.attack.climb(self.agent, ball, noise))
        return ball.project(self.attack.perturb(self.agent, ball, torch.Generator()))


class RolloutAttack:
    """Attacks each row of a batch of observations in network units with some probability (Kos and Song 2017).

    agent    an `Agent` that is a module
    compile  compile an attack that is a pure function; any other runs as it is
    p        of the ball it is confined to
    """

    def __init__(self, attack: Attack, agent: Any, probability: float, compile: bool, p: float = math.inf) -> None:
        self.attack, self.agent, self.probability, self.p = attack, agent, probability, p
        self.radius = 0.0
        self._names = [name for name, _ in agent.named_parameters()]
        pure = isinstance(attack, Climbing) or (isinstance(attack, Drawless) and attack.draws_nothing(agent))
        self._pure = _Shown(agent, attack, p) if pure else None  # type: ignore[arg-type]
        self._run = Compiled(self._shown, compile)

    @classmethod
    def of(cls, attack: Attack, agent: Any, config: Any) -> "RolloutAttack":
        """As the config of a training says."""
        return cls(attack, agent, config.attack_probability, config.compile, norm_of(config))

    def begin(self, radius: float) -> bool:
        """Set the radius and take the agent's current weights; return whether there is anything to attack."""
        self.radius = radius
        self._weights = {f"agent.{name}": self.agent.get_parameter(name).detach() for name in self._names}
        return radius > 0

    def __call__(self, x: Tensor, rng: torch.Generator) -> Tensor:
        """The observations the agent is shown instead of x (N, *obs)."""
        if self._pure is None:
            ball = self.agent.ball(x, self.radius, self.p)
            shown = ball.project(self.attack.perturb(self.agent, ball, rng))
        else:
            draws = self.attack.draws(self.agent) if isinstance(self.attack, Climbing) else 0
            drawn = (torch.randn(x.shape, generator=rng, dtype=x.dtype, device=x.device) for _ in range(draws))
            noise = {str(number): array for number, array in enumerate(drawn)}
            with torch.no_grad():
                (shown,) = self._run(x=x, radius=x.new_tensor(self.radius), noise=noise, weights=self._weights)
        chosen = torch.rand(x.shape[0], generator=rng, device=x.device) < self.probability
        return torch.where(chosen.view(-1, *[1] * (x.ndim - 1)), shown, x)

    def turn(self, step: int, update: int, left: float) -> dict[str, float]:
        """Nothing to learn."""
        return {}

    def state(self) -> dict[str, Tensor]:
        """Nothing that changes."""
        return {}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Nothing to restore."""

    def leave(self) -> None:
        """No environments of its own."""

    def _shown(
        self, x: Tensor, radius: Tensor, noise: dict[str, Tensor], weights: Mapping[str, Tensor]
    ) -> tuple[Tensor]:
        assert self._pure is not None
        shown: Tensor = functional_call(self._pure, dict(weights), (x, radius, list(noise.values())))
        return (shown,)
