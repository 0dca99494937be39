"""Who acts on action values: a dueling network and the door that turns frames or vectors into its units.

Exploration is the training's business; this agent always takes the best action.
"""

import torch
from torch import Tensor, nn

from radial.agents.card import Card
from radial.agents.networks import MLPDueling, NatureDueling
from radial.core.data import BadInput, Discrete

FRAME = 84  # pixels, what the convolutions fit


class QAgent(nn.Module):
    """The greedy policy of a dueling Q-network: convolutions for frames (C, 84, 84), an MLP for vectors (features,).

    valid_range  what an observation can be at all, in network units: [0, 1] for frames, None (anything) for vectors
    """

    def __init__(self, observation_shape: tuple[int, ...], n: int, hidden: tuple[int, ...] = (64, 64)) -> None:
        super().__init__()
        self.observation_shape, self.hidden = tuple(observation_shape), tuple(hidden)
        self.actions = Discrete(n)
        self.card = Card(env=None)
        self.network: NatureDueling | MLPDueling
        self.valid_range: tuple[float, float] | None
        if len(observation_shape) == 1:
            self.network, self.valid_range = MLPDueling(n, observation_shape[0], hidden), None
        elif observation_shape[1:] == (FRAME, FRAME):
            self.network, self.valid_range = NatureDueling(n, observation_shape[0]), (0.0, 1.0)
        else:
            shapes = f"(features,) or (channels, {FRAME}, {FRAME})"
            raise BadInput(f"observation_shape must be {shapes} for a Q agent, got {tuple(observation_shape)}")

    def initialize(self, rng: torch.Generator) -> None:
        """PyTorch's own start, from this generator: weights and biases uniform in ±1/√(inputs of a unit)."""
        for layer in self.modules():
            if isinstance(layer, nn.Linear | nn.Conv2d):
                limit = layer.weight[0].numel() ** -0.5
                nn.init.uniform_(layer.weight, -limit, limit, generator=rng)
                assert layer.bias is not None
                nn.init.uniform_(layer.bias, -limit, limit, generator=rng)

    def prepare(self, obs: Tensor) -> Tensor:
        """Frames (B, C, 84, 84) uint8 → [0, 1]; vectors (B, features) as they are; float32, the one door for units."""
        if obs.shape[1:] != self.observation_shape:
            shape = ", ".join(str(size) for size in self.observation_shape)
            raise BadInput(f"obs must have shape (B, {shape}), got {tuple(obs.shape)}")
        return obs.float() if self.valid_range is None else obs.float() / 255

    @property
    def choice(self) -> nn.Sequential:
        """The network of the centred advantages: the same order of actions as Q, and tighter to bound, without V."""
        return self.network.advantages

    def scores(self, x: Tensor) -> Tensor:
        """Q-values, (B, A)."""
        return self.network(x)

    def value(self, x: Tensor) -> Tensor:
        """What the agent expects: its largest Q-value, (B,)."""
        return self.scores(x).amax(-1)

    def act(self, x: Tensor, rng: torch.Generator | None = None) -> Tensor:
        """The best action, (B,) int64. A greedy policy has nothing to sample, so `rng` changes nothing.

        Asked of the advantages: adding V rounds, and could turn what is certified of `choice` into a tie.
        """
        return self.choice(x).argmax(-1)
