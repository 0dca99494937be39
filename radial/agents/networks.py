"""The networks of the papers, each traceable by torch.fx: no checks and no branches in `forward`.

Inputs are in network units ((B, C, H, W) in [0, 1], or normalised vectors); `Agent.prepare`
turns observations into these.
"""

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class CenteredLinear(nn.Module):
    """A linear layer whose outputs always sum to zero: the advantages of a dueling head, A − mean(A).

    Centring is part of the weight, computed on the fly. So interval bounds of the outputs are bounds of the centred
    advantages, and nothing ever has to rewrite a parameter (the authors' code does so before every loss).
    """

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def as_linear(self) -> tuple[Tensor, Tensor]:
        """The weight (out, in) and bias (out,) in effect."""
        weight, bias = self.linear.weight, self.linear.bias
        return weight - weight.mean(0, keepdim=True), bias - bias.mean()

    def forward(self, x: Tensor) -> Tensor:
        """(B, in) → (B, out)."""
        weight, bias = self.as_linear()
        return F.linear(x, weight, bias)


class Dueling(nn.Module):
    """A dueling network (Wang et al. 2016): Q = V + A − mean(A), from shared features.

    The centring is inside the advantage head, so `advantages` orders the actions as Q does and can be bounded alone.
    """

    def __init__(self, features: nn.Sequential, width: int, hidden: int, actions: int) -> None:
        super().__init__()
        self.features = features
        self.advantage = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), CenteredLinear(hidden, actions))
        self.value = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    @cached_property  # a network that stays the same one is traced once
    def advantages(self) -> nn.Sequential:
        """X → A − mean(A), (B, A), as a network of its own that shares these weights."""
        return nn.Sequential(self.features, self.advantage)

    @cached_property
    def beyond_first(self) -> nn.Sequential:
        """The same from the output of the first layer on: with interval bounds that layer is known already."""
        return nn.Sequential(self.features[1:], self.advantage)

    def forward(self, x: Tensor) -> Tensor:
        """(B, *obs) → Q (B, A)."""
        features = self.features(x)
        return self.value(features) + self.advantage(features)


class NatureDueling(Dueling):
    """The dueling network of the Atari DQN agents: the convolutions of Mnih et al. (2015), for 84×84 frames.

    sizes  the filters of the three convolutions and the units of each head
    """

    SIZES = (32, 64, 64, 512)  # of the paper
    SIDE = 84  # pixels of a frame

    def __init__(self, actions: int, channels: int = 1, sizes: Sequence[int] = SIZES) -> None:
        first, second, third, units = sizes
        features = nn.Sequential(
            nn.Conv2d(channels, first, 8, stride=4), nn.ReLU(),
            nn.Conv2d(first, second, 4, stride=2), nn.ReLU(),
            nn.Conv2d(second, third, 3), nn.ReLU(),
            nn.Flatten(),
        )  # fmt: skip
        super().__init__(features, 7 * 7 * third, units, actions)


class MLPDueling(Dueling):
    """A dueling network for vectors: ReLU layers as features, the last width also that of the two heads."""

    def __init__(self, actions: int, inputs: int, hidden: Sequence[int]) -> None:
        features = mlp([inputs, *hidden], nn.ReLU).append(nn.ReLU())
        super().__init__(features, hidden[-1], hidden[-1], actions)


class Outputs(nn.Module):
    """Some outputs of a linear layer, with its weights and without computing the others."""

    def __init__(self, linear: nn.Linear, which: slice) -> None:
        super().__init__()
        self.linear, self.which = linear, which

    def as_linear(self) -> tuple[Tensor, Tensor]:
        """The weight (kept, in) and bias (kept,) in effect."""
        return self.linear.weight[self.which], self.linear.bias[self.which]

    def forward(self, x: Tensor) -> Tensor:
        """(B, in) → (B, kept)."""
        weight, bias = self.as_linear()
        return F.linear(x, weight, bias)


class JointActorCritic(nn.Module):
    """One network for policy and value (Mnih et al. 2016): its last layer gives V, then the logits."""

    def __init__(self, model: nn.Sequential) -> None:
        super().__init__()
        self.model = model

    @cached_property  # a network that stays the same one is traced once
    def logits(self) -> nn.Sequential:
        """X → logits (B, A), as a network of its own that shares these weights: the one to certify."""
        *trunk, head = self.model
        assert isinstance(head, nn.Linear)
        return nn.Sequential(*trunk, Outputs(head, slice(1, None)))

    def forward(self, x: Tensor) -> Tensor:
        """(B, *obs) → (B, 1 + A): the state's value, then the logits."""
        return self.model(x)


class AtariActorCritic(JointActorCritic):
    """The A3C network: four convolutions with max-pooling, a layer of units, one joint output for 80×80 frames.

    sizes  the filters of the four convolutions and the units
    """

    SIZES = (32, 32, 64, 64, 512)  # of the paper
    SIDE = 80  # pixels of a frame

    def __init__(self, actions: int, channels: int = 1, sizes: Sequence[int] = SIZES) -> None:
        first, second, third, fourth, units = sizes
        super().__init__(
            nn.Sequential(
                nn.Conv2d(channels, first, 5, padding=2), nn.MaxPool2d(2), nn.ReLU(),
                nn.Conv2d(first, second, 5, padding=1), nn.MaxPool2d(2), nn.ReLU(),
                nn.Conv2d(second, third, 4, padding=1), nn.MaxPool2d(2), nn.ReLU(),
                nn.Conv2d(third, fourth, 3, padding=1), nn.MaxPool2d(2), nn.ReLU(),
                nn.Flatten(), nn.Linear(4 * 4 * fourth, units), nn.ReLU(),
                nn.Linear(units, 1 + actions),
            )
        )  # fmt: skip
        # Channels last: twice as fast on a processor, where all acting is. (Its types are missing in torch.)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


class NatureActorCritic(JointActorCritic):
    """The convolutions of Mnih et al. (2015), a layer of units and one joint output, for 84×84 frames: PPO's on Atari.

    sizes  the filters of the three convolutions and the units
    """

    SIZES = (32, 64, 64, 512)
    SIDE = 84  # pixels of a frame, those of the DQN agents

    def __init__(self, actions: int, channels: int = 1, sizes: Sequence[int] = SIZES) -> None:
        first, second, third, units = sizes
        super().__init__(
            nn.Sequential(
                nn.Conv2d(channels, first, 8, stride=4), nn.ReLU(),
                nn.Conv2d(first, second, 4, stride=2), nn.ReLU(),
                nn.Conv2d(second, third, 3), nn.ReLU(),
                nn.Flatten(), nn.Linear(7 * 7 * third, units), nn.ReLU(),
                nn.Linear(units, 1 + actions),
            )
        )  # fmt: skip
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


class MLPActorCritic(JointActorCritic):
    """The same for vectors: ReLU layers and one joint output."""

    def __init__(self, actions: int, inputs: int, hidden: Sequence[int]) -> None:
        super().__init__(mlp([inputs, *hidden, 1 + actions], nn.ReLU))


class ResidualBlock(nn.Module):
    """x + conv(relu(conv(relu(x))))."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            nn.ReLU(), nn.Conv2d(channels, channels, 3, padding=1),
            nn.ReLU(), nn.Conv2d(channels, channels, 3, padding=1),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) → (B, C, H, W)."""
        return x + self.branch(x)


class ImpalaResNet(nn.Module):
    """The IMPALA network of the ProcGen agents, for 64×64×3 frames."""

    SHAPE = (3, 64, 64)  # colours and pixels of a frame

    def __init__(self, actions: int = 15) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, after in pairwise([3, 16, 32, 32]):
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.MaxPool2d(3, stride=2, padding=1)]
            layers += [ResidualBlock(after), ResidualBlock(after)]
        layers += [nn.Flatten(), nn.ReLU(), nn.Linear(2048, 256), nn.ReLU()]
        self.trunk = nn.Sequential(*layers)
        self.head = nn.Linear(256, actions + 1)
        # Channels last: acting takes half the time on a processor. (Its types are missing in torch.)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    @cached_property  # a network that stays the same one is traced once
    def logits(self) -> nn.Sequential:
        """X → logits (B, A), as a network of its own that shares these weights: the one to certify."""
        return nn.Sequential(self.trunk, Outputs(self.head, slice(None, -1)))

    def forward(self, x: Tensor) -> Tensor:
        """(B, 3, 64, 64) → (B, A + 1): the logits, then the state's value."""
        return self.head(self.trunk(x))


class StateActionValue(nn.Module):
    """Q(x, u) of a continuous action u: one MLP of both, laid end to end."""

    def __init__(self, inputs: int, size: int, hidden: Sequence[int], activation: type[nn.Module]) -> None:
        super().__init__()
        self.body = mlp([inputs + size, *hidden, 1], activation)

    def forward(self, x: Tensor, action: Tensor) -> Tensor:
        """(B, features), (B, D) → (B,)."""
        return self.body(torch.cat([x, action], -1)).squeeze(-1)


class ShallowNet(nn.Module):
    """Two convolutions and two linear layers for 64×64×3 frames: few enough for bounds that stay narrow.

    sizes  the filters of the two convolutions and the units
    """

    SIZES = (16, 32, 256)

    def __init__(self, actions: int = 15, sizes: Sequence[int] = SIZES) -> None:
        super().__init__()
        first, second, units = sizes
        self.trunk = nn.Sequential(
            nn.Conv2d(3, first, 8, stride=4), nn.ReLU(),
            nn.Conv2d(first, second, 4, stride=2), nn.ReLU(),
            nn.Flatten(), nn.Linear(6 * 6 * second, units), nn.ReLU(),
        )  # fmt: skip
        self.head = nn.Linear(units, actions + 1)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    @cached_property
    def logits(self) -> nn.Sequential:
        """X → logits (B, A), as a network of its own that shares these weights: the one to certify."""
        return nn.Sequential(self.trunk, Outputs(self.head, slice(None, -1)))

    def forward(self, x: Tensor) -> Tensor:
        """(B, 3, 64, 64) → (B, A + 1): the logits, then the state's value."""
        return self.head(self.trunk(x))


ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU}  # that agents of PPO may have


def mlp(sizes: Sequence[int], activation: type[nn.Module] = nn.Tanh) -> nn.Sequential:
    """A plain network sizes[0] → … → sizes[-1] with an activation between its linear layers."""
    layers: list[nn.Module] = []
    for before, after in pairwise(sizes):
        layers += [nn.Linear(before, after), activation()]
    return nn.Sequential(*layers[:-1])
