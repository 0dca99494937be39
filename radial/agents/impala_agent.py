"""Who acts for PPO on pixels: one residual network that gives the logits of a softmax policy and a state's value.

How it was trained is not known here; policies for vectors, with a critic of their own, are in `agents.py`.
"""

import torch
from torch import Tensor, nn

from radial.agents.networks import ImpalaResNet
from radial.agents.policies import SoftmaxPolicy
from radial.agents.raw_agent import RawAgent
from radial.core.data import BadInput

FRAME = (3, 64, 64)  # colours, pixels: what the network fits


class ImpalaAgent(SoftmaxPolicy, RawAgent):
    """A softmax policy and its critic in one IMPALA network, for frames (3, 64, 64): the agent of ProcGen.

    hidden  of a network for vectors; here the network is always the same, and it is only recorded
    """

    network: ImpalaResNet

    def __init__(
        self, observation_shape: tuple[int, ...] = FRAME, n: int = 15, hidden: tuple[int, ...] = (256,)
    ) -> None:
        if tuple(observation_shape) != FRAME:
            raise BadInput(f"observation_shape must be {FRAME} for an IMPALA agent, got {tuple(observation_shape)}")
        super().__init__(observation_shape, n, hidden, side=FRAME[-1], sizes=hidden, kind="an IMPALA agent")
        self.network = ImpalaResNet(n)

    def initialize(self, rng: torch.Generator) -> None:
        """PyTorch's own start, except the joint output: orthogonal with gain 0.01, zero bias (the authors' code)."""
        super().initialize(rng)
        nn.init.orthogonal_(self.network.head.weight, 0.01, generator=rng)
        nn.init.zeros_(self.network.head.bias)

    @property
    def choice(self) -> nn.Sequential:
        """The network of the logits alone: what decides, and what is bounded and certified."""
        return self.network.logits

    def joint(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The value (B,) and the logits (B, A), in one pass."""
        outputs = self.network(x)
        return outputs[:, -1], outputs[:, :-1]

    def scores(self, x: Tensor) -> Tensor:
        """Logits, (B, A). Asked of `choice`: another order of summation could turn what is certified into a tie."""
        return self.choice(x)

    def value(self, x: Tensor) -> Tensor:
        """What the agent expects of its policy, (B,)."""
        return self.joint(x)[0]
