"""The agent of DQN: a dueling Q-network, played greedily.

It always takes the best action; exploration belongs to the training.
"""

import torch
from torch import Tensor, nn

from radial.agents.networks import MLPDueling, NatureDueling
from radial.agents.policies import RawAgent


class QAgent(RawAgent):
    """The greedy policy of a dueling Q-network: convolutions for frames (C, 84, 84), an MLP for vectors (features,)."""

    network: NatureDueling | MLPDueling
    log_std = None

    def __init__(self, observation_shape: tuple[int, ...], n: int, hidden: tuple[int, ...] | None = None) -> None:
        super().__init__(
            observation_shape, n, hidden, side=NatureDueling.SIDE, sizes=NatureDueling.SIZES, kind="a Q agent"
        )
        network = MLPDueling if self.valid_range is None else NatureDueling
        self.network = network(n, observation_shape[0], self.hidden)

    @property
    def choice(self) -> nn.Sequential:
        """The network of the centred advantages: the same order of actions as Q, and tighter to bound, without V."""
        return self.network.advantages

    def scores(self, x: Tensor) -> Tensor:
        """Q-values, (B, A)."""
        return self.network(x)

    def value(self, x: Tensor) -> Tensor:
        """The largest Q-value, (B,)."""
        return self.scores(x).amax(-1)

    def act(self, x: Tensor, rng: torch.Generator | None = None) -> Tensor:
        """The best action, (B,) int64. A greedy policy has nothing to sample, so `rng` changes nothing.

        Asked of the advantages: adding V rounds, and could turn a certified action into a tie.
        """
        return self.choice(x).argmax(-1)
