"""Adversarial training: an attack between the environments and a PPO agent while it plays its rollouts.

The attacks themselves are passed in. An attack that is a pure function of its noise is compiled: between two steps of
sixteen small environments, ten gradients one operation at a time would take longer than all the rest.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.func import functional_call

from radial.core.agent import Agent, Attack
from radial.core.ball import Ball
from radial.training.native import Compiled

if TYPE_CHECKING:
    from radial.training.sight import PPOAgent


@runtime_checkable
class Climbing(Protocol):
    """An attack whose randomness can be drawn beforehand."""

    def draws(self, agent: Agent) -> int:
        """Number of N(0, 1) arrays needed, each in the shape of the observations."""

    def climb(self, agent: Agent, ball: Ball, noise: Sequence[Tensor]) -> Tensor:
        """The observations to show in place of the ball's centre, (B, *obs)."""


class _Climb(nn.Module):
    """`attack.climb` as a forward, for `functional_call`."""

    def __init__(self, agent: "PPOAgent", attack: Climbing) -> None:
        super().__init__()
        self.agent, self.attack = agent, attack

    def forward(self, x: Tensor, radius: Tensor, noise: Sequence[Tensor]) -> Tensor:
        ball = Ball.unchecked(x, radius)
        return ball.project(self.attack.climb(self.agent, ball, noise))


class RolloutAttack:
    """Attacks each row of a step with some probability (SA-PPO's baseline).

    compile  compile a `Climbing` attack; any other runs as it is
    """

    def __init__(self, attack: Attack, agent: "PPOAgent", probability: float, compile: bool) -> None:
        self.attack, self.agent, self.probability = attack, agent, probability
        self.radius = 0.0
        self._names = [name for name, _ in agent.named_parameters()]
        self._climb = _Climb(agent, attack) if isinstance(attack, Climbing) else None
        self._run = Compiled(self._shown, compile)

    def begin(self, radius: float) -> bool:
        """Set the radius and take the agent's current weights; return whether there is anything to attack."""
        self.radius = radius
        self._weights = {f"agent.{name}": self.agent.get_parameter(name).detach() for name in self._names}
        return radius > 0

    def __call__(self, x: Tensor, rng: torch.Generator) -> Tensor:
        """The observations the agent is shown instead of x (N, *obs)."""
        if self._climb is None:
            ball = Ball(x, self.radius)
            shown = ball.project(self.attack.perturb(self.agent, ball, rng))
        else:
            draws = self._climb.attack.draws(self.agent)
            drawn = (torch.randn(x.shape, generator=rng, dtype=x.dtype, device=x.device) for _ in range(draws))
            noise = {str(number): array for number, array in enumerate(drawn)}
            with torch.no_grad():
                (shown,) = self._run(x=x, radius=x.new_tensor(self.radius), noise=noise, weights=self._weights)
        chosen = torch.rand(x.shape[0], generator=rng, device=x.device) < self.probability
        return torch.where(chosen.unsqueeze(-1), shown, x)

    def _shown(
        self, x: Tensor, radius: Tensor, noise: dict[str, Tensor], weights: Mapping[str, Tensor]
    ) -> tuple[Tensor]:
        assert self._climb is not None
        shown: Tensor = functional_call(self._climb, dict(weights), (x, radius, list(noise.values())))
        return (shown,)
