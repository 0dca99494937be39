"""The transfer attack: learn to imitate the agent, then attack the copy ("snooping", Inkawhich et al. 2020).

It never asks for the agent's gradients, so it still works where those mislead: a check against gradient masking.
"""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from radial.attacks.fitting import Rollouts, fit_inputs, fresh_env, fresh_mlp, minibatches, size_of
from radial.attacks.gradient import PGD, Memoryless
from radial.core import checks
from radial.core.agent import Agent, Card
from radial.core.ball import Ball
from radial.core.data import Continuous, Discrete, EnvSpec, VecEnv


class Copy(Agent):
    """An imitation of an agent that takes observations as that agent has prepared them."""

    log_std = None

    def __init__(self, network: nn.Module, actions: Discrete | Continuous) -> None:
        self.network, self.actions = network, actions
        self.observation_shape, self.card = None, Card(env=None)

    def prepare(self, obs: Tensor) -> Tensor:
        """Nothing is left to do."""
        return obs

    def scores(self, x: Tensor) -> Tensor:
        """Logits or means, (B, A)."""
        return self.network(x)

    def act(self, x: Tensor, rng: torch.Generator | None = None) -> Tensor:
        """The imitated choice (B,) or mean (B, D); nothing is sampled."""
        return self.scores(x).argmax(-1) if isinstance(self.actions, Discrete) else self.scores(x)


@dataclass(frozen=True, eq=False)
class TransferAttack(Memoryless):
    """PGD with restarts against the copy."""

    copy: Copy = field(repr=False)
    pgd: PGD
    agreement: float  # share of choices the copy gets right; for means, share of their variance explained

    def perturb(self, agent: Agent, ball: Ball, rng: torch.Generator) -> Tensor:
        """The worst point for the copy, (B, *obs)."""
        return self.pgd.perturb(self.copy, ball, rng)


@dataclass(frozen=True)
class Transfer:
    """Fits a tanh MLP to the agent's actions: cross-entropy of its choices, or squared error of its means."""

    samples: int = 8192
    epochs: int = 40
    batch: int = 256
    learning_rate: float = 1e-3
    hidden: int = 64
    num_envs: int = 16

    def __post_init__(self) -> None:
        checks.whole(self, "epochs", "batch", "hidden", "num_envs")
        checks.whole(self, "samples", least=100)
        checks.not_negative(self, "learning_rate")

    def fit(self, agent: Agent, env: EnvSpec | VecEnv | str, seed: int) -> TransferAttack:
        """Play, learn, return the attack. A VecEnv must be fresh, is used up, and stays open."""
        agent, env, seed = fit_inputs(agent, env, seed)
        rng = torch.Generator().manual_seed(seed)
        with fresh_env(env, self.num_envs, seed) as made:
            x = Rollouts(agent, made, rng, stochastic=False, discount=1.0).collect(self.samples).x
            network = fresh_mlp([x.shape[1], self.hidden, self.hidden, size_of(made.actions)], rng)
        x = x + 0.1 * x.std(0) * torch.randn(x.shape, generator=rng)  # around the path, where the attack will look
        with torch.no_grad():
            target = agent.scores(x)
        optimizer = torch.optim.Adam(network.parameters(), lr=self.learning_rate)
        for _ in range(self.epochs):
            for rows in minibatches(len(x), max(1, len(x) // self.batch), rng):
                loss = self.loss(agent.actions, network(x[rows]), target[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        copy = Copy(network.requires_grad_(False), agent.actions)
        return TransferAttack(copy, PGD.strong(), round(agreement(agent.actions, network(x), target), 4))

    def loss(self, actions: Discrete | Continuous, found: Tensor, target: Tensor) -> Tensor:
        """How far the copy is off, ()."""
        if isinstance(actions, Discrete):
            return F.cross_entropy(found, target.argmax(-1))
        return F.mse_loss(found, target)


def agreement(actions: Discrete | Continuous, found: Tensor, target: Tensor) -> float:
    """The share of choices that agree, or of the variance of means that is explained."""
    if isinstance(actions, Discrete):
        return float((found.argmax(-1) == target.argmax(-1)).double().mean())
    return float(1 - F.mse_loss(found, target) / target.var(0, correction=0).mean().clamp(min=1e-12))
