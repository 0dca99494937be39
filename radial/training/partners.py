"""Who learns beside a PPO agent: WocaR's second critic, and an adversary between it and its environments."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from radial.training.adversary import Opponent
from radial.training.ppo_update import Minibatch
from radial.training.rollouts import Rollout
from radial.training.worst_critic import WorstCritic


class Partners(NamedTuple):
    """Either may be absent; then the loop goes on without it."""

    critic: WorstCritic | None
    adversary: Opponent | None

    def between(self, radius: float) -> Opponent | None:
        """The adversary of the next rollout; None where the radius is 0."""
        return self.adversary if self.adversary is not None and self.adversary.begin(radius) else None

    def judge(self, rollout: Rollout, data: Minibatch, rng: torch.Generator) -> tuple[Minibatch, dict[str, float]]:
        """The data with worst-case values of its actions, from a critic that has learned from the rollout first."""
        if self.critic is None:
            return data, {}
        metrics = self.critic.learn(rollout, rng)
        return data._replace(worst=self.critic.judge(data.x, data.action)), metrics

    def turn(self, step: int, update: int, left: float) -> dict[str, float]:
        """The adversary's turn to learn, after an update of the agent."""
        return {} if self.adversary is None else self.adversary.turn(step, update, left)

    def leave(self) -> None:
        """Close environments of the adversary's own, at a checkpoint."""
        if self.adversary is not None:
            self.adversary.leave()

    def state(self) -> dict[str, Tensor]:
        """Everything to resume from."""
        present = {name: each for name, each in self._asdict().items() if each is not None}
        return {f"{name}.{key}": tensor for name, each in present.items() for key, tensor in each.state().items()}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Resume from the tensors of a checkpoint, of which some are theirs."""
        for name, each in self._asdict().items():
            if each is not None:
                prefix = f"{name}."
                each.restore({key.removeprefix(prefix): t for key, t in tensors.items() if key.startswith(prefix)})
