"""Who acts for A3C: one network that gives a state's value and the logits of a softmax policy.

How it was trained is not known here; the policies of PPO, with a critic of their own, are in `agents.py`.
"""

from torch import Tensor, nn

from radial.agents.networks import AtariActorCritic, MLPActorCritic
from radial.agents.policies import SoftmaxPolicy
from radial.agents.raw_agent import RawAgent

FRAME = 80  # pixels, what the convolutions fit


class ActorCritic(SoftmaxPolicy, RawAgent):
    """A softmax policy and its critic in one: convolutions for frames (C, 80, 80), an MLP for vectors (features,)."""

    network: AtariActorCritic | MLPActorCritic

    def __init__(self, observation_shape: tuple[int, ...], n: int, hidden: tuple[int, ...] | None = None) -> None:
        super().__init__(observation_shape, n, hidden, side=FRAME, sizes=AtariActorCritic.SIZES, kind="an actor-critic")
        network = MLPActorCritic if self.valid_range is None else AtariActorCritic
        self.network = network(n, observation_shape[0], self.hidden)

    @property
    def choice(self) -> nn.Sequential:
        """The network of the logits alone: what decides, and what is bounded and certified."""
        return self.network.logits

    def joint(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The value (B,) and the logits (B, A), in one pass."""
        outputs = self.network(x)
        return outputs[:, 0], outputs[:, 1:]

    def scores(self, x: Tensor) -> Tensor:
        """Logits, (B, A). Asked of `choice`: another order of summation could turn what is certified into a tie."""
        return self.choice(x)

    def value(self, x: Tensor) -> Tensor:
        """What the agent expects of its policy, (B,)."""
        return self.joint(x)[0]
