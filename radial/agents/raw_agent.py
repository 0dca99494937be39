"""What agents without a normaliser share: a network for frames or for vectors, its start, and the door for units.

What the network's outputs mean is each agent's business.
"""

import torch
from torch import Tensor, nn

from radial.core import checks
from radial.core.agent import Agent, Card
from radial.core.data import BadInput, Discrete


class RawAgent(nn.Module, Agent):
    """Frames (C, side, side) become shares of 255, vectors (features,) stay as they are.

    hidden       the sizes of the network's layers; None: two of 64 for vectors, the paper's `sizes` for frames
    valid_range  what an observation can be at all, in network units: [0, 1] for frames, None (anything) for vectors
    """

    network: nn.Module

    def __init__(
        self, observation_shape: tuple[int, ...], n: int, hidden: tuple[int, ...] | None, *, side: int,
        sizes: tuple[int, ...], kind: str,
    ) -> None:  # fmt: skip
        super().__init__()
        for name, value in (("observation_shape", observation_shape), ("hidden", hidden)):
            if not checks.is_sizes(value) and not (name == "hidden" and value is None):
                raise BadInput(f"{name} must be a tuple of whole numbers ≥ 1 for {kind}, got {value!r}")
        checks.check_whole("n", n, 1)
        self.observation_shape: tuple[int, ...] = tuple(observation_shape)
        self.actions: Discrete = Discrete(n)
        self.card = Card(env=None)
        vectors = len(self.observation_shape) == 1
        self.hidden = tuple(hidden or ((64, 64) if vectors else sizes))
        self.valid_range = None if vectors else (0.0, 1.0)
        if not vectors and self.observation_shape[1:] != (side, side):
            shapes = f"(features,) or (channels, {side}, {side})"
            raise BadInput(f"observation_shape must be {shapes} for {kind}, got {self.observation_shape}")
        if not vectors and len(self.hidden) != len(sizes):
            raise BadInput(f"hidden must be {len(sizes)} sizes for {kind} that sees frames, got {self.hidden}")

    def initialize(self, rng: torch.Generator) -> None:
        """PyTorch's own start, from this generator: weights and biases uniform in ±1/√(inputs of a unit)."""
        for layer in self.modules():
            if isinstance(layer, nn.Linear | nn.Conv2d):
                limit = layer.weight[0].numel() ** -0.5
                nn.init.uniform_(layer.weight, -limit, limit, generator=rng)
                assert layer.bias is not None
                nn.init.uniform_(layer.bias, -limit, limit, generator=rng)

    @property
    def has_value(self) -> bool:
        """They all have one."""
        return True

    def units(self) -> Tensor:
        """255 grey levels per unit for frames, 1 for vectors."""
        return torch.tensor(1.0 if self.valid_range is None else 255.0)

    def prepare(self, obs: Tensor) -> Tensor:
        """Frames (B, C, side, side) of 0 … 255 → [0, 1], vectors as they are; float32, the one door for units."""
        if obs.shape[1:] != self.observation_shape:
            shape = ", ".join(str(size) for size in self.observation_shape)
            raise BadInput(f"obs must have shape (B, {shape}), got {tuple(obs.shape)}")
        return obs.float() if self.valid_range is None else obs.float() / 255
