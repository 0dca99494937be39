"""Policies with a critic of their own, and the two bases of all agents: normalised observations, or raw ones.

How an agent was trained is not known here; the card only records it.
"""

import math
from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.distributions import Categorical

from radial.agents.networks import ACTIVATIONS, StateActionValue, mlp
from radial.agents.normalizer import TINY, Normalizer
from radial.core import checks
from radial.core.agent import Agent, Card
from radial.core.data import BadInput, Continuous, Discrete


class SoftmaxPolicy(Agent):
    """A policy whose scores are the logits of a softmax."""

    actions: Discrete
    log_std = None

    def act(self, x: Tensor, rng: torch.Generator | None = None) -> Tensor:
        """The likeliest action (B,) int64, or with `rng` a sample."""
        return self.scores(x).argmax(-1) if rng is None else self.sample(x, self.noise(rng, x.shape[0]))

    def noise(self, rng: torch.Generator, *shape: int) -> Tensor:
        """The noise of `sample`: numbers of Gumbel's distribution (*shape, A)."""
        uniform = torch.rand((*shape, self.actions.n), generator=rng, device=rng.device)
        return -(-uniform.clamp(min=1e-20).log()).log()

    def sample(self, x: Tensor, noise: Tensor) -> Tensor:
        """The largest logit + noise, (B,): a sample of the softmax."""
        return (self.scores(x) + noise).argmax(-1)

    def log_prob(self, x: Tensor, action: Tensor) -> Tensor:
        """Log probability of actions (B,) int64, (B,)."""
        return Categorical(logits=self.scores(x)).log_prob(action)


class _Normalized(nn.Module, Agent):
    """The base of PPO's agents for vectors: a policy and a critic of one shape, a normaliser in `prepare`, a card.

    activation     a key of ACTIVATIONS
    clips_actions  actions are clipped to the env's box before they are taken
    """

    network: nn.Module
    critic: nn.Module
    observation_shape: tuple[int, ...]

    def __init__(
        self, observation_shape: tuple[int, ...], hidden: tuple[int, ...], outputs: int, activation: str
    ) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise BadInput(f"activation must be one of {', '.join(ACTIVATIONS)}, got {activation!r}")
        if len(observation_shape) != 1:
            raise BadInput(f"observation_shape must be (features,) for an MLP agent, got {observation_shape}")
        self.observation_shape, self.hidden = tuple(observation_shape), tuple(hidden)
        self.activation = activation
        self.network = mlp([observation_shape[0], *hidden, outputs], ACTIVATIONS[activation])
        self.critic = mlp([observation_shape[0], *hidden, 1], ACTIVATIONS[activation])
        self.normalizer = Normalizer(self.observation_shape)
        self.card = Card(env=None)

    def initialize(self, rng: torch.Generator) -> None:
        """Orthogonal weights, gain √2 inside, 0.01 for the policy's output and 1 for the critic's; zero biases."""
        for net, gain in ((self.network, 0.01), (self.critic, 1.0)):
            layers = [layer for layer in net.modules() if isinstance(layer, nn.Linear)]
            for layer in layers:
                nn.init.orthogonal_(layer.weight, gain if layer is layers[-1] else math.sqrt(2), generator=rng)
                nn.init.zeros_(layer.bias)

    def prepare(self, obs: Tensor) -> Tensor:
        """Raw observations (B, *obs) → normalised ones, float32; the one door for units."""
        if obs.shape[1:] != self.observation_shape:
            raise BadInput(f"obs must have shape (B, {self.observation_shape[0]}), got {tuple(obs.shape)}")
        return self.normalizer(obs)

    def scores(self, x: Tensor) -> Tensor:
        """Logits or action means, (B, A)."""
        return self.network(x)

    @property
    def has_value(self) -> bool:
        """There is always a critic."""
        return True

    def units(self) -> Tensor:
        """The standard deviation of each feature."""
        return self.normalizer.moments.std + TINY

    @property
    def normalized(self) -> bool:
        """Unless the normaliser has seen nothing, when it is the identity."""
        return float(self.normalizer.moments.count) >= 2

    def value(self, x: Tensor) -> Tensor:
        """The critic's estimate of the (scaled) return, (B,)."""
        return self.critic(x).squeeze(-1)


class RawAgent(nn.Module, Agent):
    """The base of agents without a normaliser: frames (C, side, side) are divided by 255, vectors (features,) are not.

    hidden       the sizes of the network's layers; None: two of 64 for vectors, the paper's `sizes` for frames
    valid_range  the values an observation can take, in network units: [0, 1] for frames, None (any) for vectors
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
        """Every one of them has a value function."""
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


class GaussianAgent(_Normalized):
    """A normal distribution around an MLP's mean, with a standard deviation that does not depend on the state."""

    actions: Continuous
    log_std: nn.Parameter

    def __init__(
        self, observation_shape: tuple[int, ...], size: int, hidden: tuple[int, ...] = (64, 64),
        activation: str = "tanh",
    ) -> None:  # fmt: skip
        super().__init__(observation_shape, hidden, size, activation)
        self.actions = Continuous(size)
        self.log_std = nn.Parameter(torch.zeros(size))

    def act(self, x: Tensor, rng: torch.Generator | None = None) -> Tensor:
        """The mean action (B, D), or with `rng` a sample. Never clipped here: the env does, or the simulator."""
        return self.scores(x) if rng is None else self.sample(x, self.noise(rng, x.shape[0]))

    def noise(self, rng: torch.Generator, *shape: int) -> Tensor:
        """The noise of `sample`: standard normal numbers (*shape, D)."""
        return torch.randn((*shape, self.actions.size), generator=rng, device=rng.device)

    def sample(self, x: Tensor, noise: Tensor) -> Tensor:
        """Mean + σ·noise, (B, D)."""
        return self.scores(x) + self.log_std.exp() * noise

    def log_prob(self, x: Tensor, action: Tensor) -> Tensor:
        """Log density of actions (B, D), summed over their dimensions, (B,)."""
        z = (action - self.scores(x)) / self.log_std.exp()
        return (-0.5 * z**2 - self.log_std - 0.5 * math.log(2 * math.pi)).sum(-1)


class DeterministicAgent(_Normalized):
    """The agent of DDPG: one action per state, u = tanh(MLP) stretched to the box of actions, and a critic Q(s, u).

    The stretch is a layer of the network, so bounds, attacks and certificates are of the action itself. Imported actors
    of TD3, DDPG and SAC have this form; a critic is then missing and begins untrained.
    """

    actions: Continuous
    log_std = None
    network: nn.Sequential
    critic: StateActionValue

    def __init__(
        self, observation_shape: tuple[int, ...], size: int, hidden: tuple[int, ...] = (64, 64),
        activation: str = "relu",
    ) -> None:  # fmt: skip
        super().__init__(observation_shape, hidden, size, activation)
        self.actions = Continuous(size)
        self.network = nn.Sequential(*self.network, nn.Tanh(), nn.Linear(size, size))
        self.critic = StateActionValue(observation_shape[0], size, hidden, ACTIVATIONS[activation])
        self.stretch_to([-1.0] * size, [1.0] * size)

    @torch.no_grad()
    def stretch_to(self, low: Sequence[float], high: Sequence[float]) -> None:
        """Make −1 … 1 the box [low, high], D numbers each."""
        ends = [torch.tensor(end, dtype=torch.float64) for end in (low, high)]
        self.stretch.weight.copy_(torch.diag((ends[1] - ends[0]) / 2))
        self.stretch.bias.copy_((ends[0] + ends[1]) / 2)

    @property
    def stretch(self) -> nn.Linear:
        """The layer u → action of the env, (B, D) → (B, D)."""
        layer = self.network[-1]
        assert isinstance(layer, nn.Linear)
        return layer

    @cached_property  # a network that stays the same one is traced once
    def squashed(self) -> nn.Sequential:
        """X → u in [−1, 1], (B, D), as a network of its own that shares these weights: what is trained."""
        return nn.Sequential(*list(self.network)[:-1])

    def initialize(self, rng: torch.Generator) -> None:
        """Uniform in ±1/√(inputs of a unit), the last layer of each network in ±3e-3 (Lillicrap et al. 2016)."""
        for net in (self.squashed, self.critic):
            layers = [layer for layer in net.modules() if isinstance(layer, nn.Linear)]
            for layer in layers:
                limit = 3e-3 if layer is layers[-1] else layer.in_features**-0.5
                for parameter in (layer.weight, layer.bias):
                    nn.init.uniform_(parameter, -limit, limit, generator=rng)

    def act(self, x: Tensor, rng: torch.Generator | None = None) -> Tensor:
        """The action (B, D). There is nothing to sample, so `rng` changes nothing."""
        return self.scores(x)

    def value(self, x: Tensor) -> Tensor:
        """The critic's estimate at the agent's own action, Q(s, π(s)), (B,)."""
        return self.critic(x, self.squashed(x))


class CategoricalAgent(SoftmaxPolicy, _Normalized):
    """A softmax over an MLP's logits."""

    def __init__(
        self, observation_shape: tuple[int, ...], n: int, hidden: tuple[int, ...] = (64, 64), activation: str = "tanh"
    ) -> None:
        super().__init__(observation_shape, hidden, n, activation)
        self.actions = Discrete(n)


def agent_for(
    observation_shape: tuple[int, ...],
    actions: Discrete | Continuous,
    hidden: tuple[int, ...] = (64, 64),
    activation: str = "tanh",
) -> GaussianAgent | CategoricalAgent:
    """The agent that fits an environment's spaces."""
    if isinstance(actions, Continuous):
        return GaussianAgent(observation_shape, actions.size, hidden, activation)
    return CategoricalAgent(observation_shape, actions.n, hidden, activation)
