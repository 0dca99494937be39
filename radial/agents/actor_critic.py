"""Joint actor-critics: one network that gives the logits of a softmax policy and the state's value.

`ActorCritic` is the agent of A3C, and of PPO on Atari; `ImpalaAgent` that of PPO on ProcGen. Policies for vectors with
a critic of their own are in `policies`.
"""

from abc import abstractmethod

import torch
from torch import Tensor, nn

from radial.agents.networks import (
    AtariActorCritic,
    ImpalaResNet,
    JointActorCritic,
    MLPActorCritic,
    NatureActorCritic,
    ShallowNet,
)
from radial.agents.policies import RawAgent, SoftmaxPolicy
from radial.core.data import BadInput


class _Joint(SoftmaxPolicy, RawAgent):
    """A softmax policy and its critic in one network, which can also be asked for its logits alone."""

    network: JointActorCritic | ImpalaResNet | ShallowNet

    @property
    def choice(self) -> nn.Sequential:
        """The network of the logits alone: it decides, and it is bounded and certified."""
        return self.network.logits

    @abstractmethod
    def joint(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The value (B,) and the logits (B, A), in one pass."""

    def scores(self, x: Tensor) -> Tensor:
        """Logits, (B, A). Asked of `choice`: another order of summation could turn a certified action into a tie."""
        return self.choice(x)

    def value(self, x: Tensor) -> Tensor:
        """The value of the policy, (B,)."""
        return self.joint(x)[0]


class ActorCritic(_Joint):
    """The agent of A3C: convolutions for frames (C, 80, 80), an MLP for vectors (features,).

    Frames (C, 84, 84), those of the DQN agents, get the convolutions of DQN: the agent of PPO on Atari.
    """

    network: AtariActorCritic | NatureActorCritic | MLPActorCritic

    def __init__(self, observation_shape: tuple[int, ...], n: int, hidden: tuple[int, ...] | None = None) -> None:
        seen = observation_shape[-1] if observation_shape else None
        frames = NatureActorCritic if seen == NatureActorCritic.SIDE else AtariActorCritic
        super().__init__(
            observation_shape, n, hidden, side=frames.SIDE, sizes=frames.SIZES, kind="an actor-critic",
        )  # fmt: skip
        network = MLPActorCritic if self.valid_range is None else frames
        self.network = network(n, observation_shape[0], self.hidden)

    def joint(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The value (B,) and the logits (B, A), in one pass."""
        outputs = self.network(x)
        return outputs[:, 0], outputs[:, 1:]


class ImpalaAgent(_Joint):
    """The agent of ProcGen: one IMPALA network for frames (3, 64, 64).

    hidden  the network is always the same; this is only recorded
    """

    network: ImpalaResNet | ShallowNet

    def __init__(
        self, observation_shape: tuple[int, ...] = ImpalaResNet.SHAPE, n: int = 15, hidden: tuple[int, ...] = (256,)
    ) -> None:
        self._check_frames(observation_shape, "an IMPALA agent")
        super().__init__(observation_shape, n, hidden, side=64, sizes=hidden, kind="an IMPALA agent")
        self.network = ImpalaResNet(n)

    @staticmethod
    def _check_frames(observation_shape: tuple[int, ...], kind: str) -> None:
        shape = ImpalaResNet.SHAPE
        if tuple(observation_shape) != shape:
            raise BadInput(f"observation_shape must be {shape} for {kind}, got {tuple(observation_shape)}")

    def initialize(self, rng: torch.Generator) -> None:
        """PyTorch's own start, except the joint output: orthogonal with gain 0.01, zero bias (the authors' code)."""
        super().initialize(rng)
        nn.init.orthogonal_(self.network.head.weight, 0.01, generator=rng)
        nn.init.zeros_(self.network.head.bias)

    def joint(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The value (B,) and the logits (B, A), in one pass."""
        outputs = self.network(x)
        return outputs[:, -1], outputs[:, :-1]


class ShallowAgent(ImpalaAgent):
    """An agent for the frames of ProcGen whose network is shallow enough to be certified.

    hidden  the filters of its two convolutions and its units
    """

    network: ShallowNet

    def __init__(
        self, observation_shape: tuple[int, ...] = ImpalaResNet.SHAPE, n: int = 15,
        hidden: tuple[int, ...] = ShallowNet.SIZES,
    ) -> None:  # fmt: skip
        kind = "a shallow agent"
        self._check_frames(observation_shape, kind)
        RawAgent.__init__(self, observation_shape, n, hidden, side=64, sizes=ShallowNet.SIZES, kind=kind)
        self.network = ShallowNet(n, self.hidden)


FRAME_AGENTS: dict[str, type[ImpalaAgent]] = {"impala": ImpalaAgent, "shallow": ShallowAgent}  # that PPO may train
