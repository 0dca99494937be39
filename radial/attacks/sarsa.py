"""Robust Sarsa (Zhang et al. 2020): learn the agent's action values from its play, then lead it to low ones.

`RobustSarsa` holds the settings and learns; `SarsaAttack` is the fitted attack. The agent's own critic is
never asked.
"""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from radial.attacks.fitting import (
    Experience,
    Rollouts,
    fit_inputs,
    fresh_env,
    fresh_mlp,
    minibatches,
    policy,
    size_of,
    spread_known,
)
from radial.attacks.gradient import Memoryless, ascend_last, attackable, near
from radial.bounds.methods import mixed
from radial.core import checks
from radial.core.agent import Agent
from radial.core.ball import Ball
from radial.core.data import EnvSpec, VecEnv
from radial.core.schedules import Linear
from radial.core.search import AttackObjective


@dataclass(frozen=True, eq=False)
class SarsaAttack(Memoryless):
    """Descent on (1 − ρ)·Q(s, π(s′)) − ρ·mean_j (π_j(s′) − π_j(s))² over s′: s itself stays true.

    π is the mean action, or the action probabilities; ρ is `mad_ratio`.
    """

    q: nn.Module = field(repr=False)  # (s, a) as one row (B, obs + A) → (B, 1)
    sarsa_radius: float
    sarsa_weight: float
    mad_ratio: float
    steps: int

    def objective(self, agent: Agent, center: Tensor) -> AttackObjective:
        """The objective above, negated, (B, *obs) → (B,)."""
        agent = attackable(agent)
        with torch.no_grad():
            clean = policy(agent, center)

        def worst(x: Tensor) -> Tensor:
            action = policy(agent, x)
            value = self.q(torch.cat([center.flatten(1), action], 1)).squeeze(-1)
            return self.mad_ratio * (action - clean).square().mean(-1) - (1 - self.mad_ratio) * value

        return worst

    def perturb(self, agent: Agent, ball: Ball, rng: torch.Generator) -> Tensor:
        """The last iterate from a uniform start within one step of the centre, (B, *obs)."""
        return ascend_last(self.objective(agent, ball.center), ball, self.steps, near(ball, self.steps).sample(rng))


@dataclass(frozen=True)
class RobustSarsa:
    """Fits Q to r + γ·Q(s_next, a_next), kept smooth: a critic that is itself fooled by s′ would be a poor guide.

    Loss: SmoothL1 + sarsa_weight·mean(max(U − Q, Q − L)²), with U, L the bounds of Q over an ℓ∞ ball around (s, a).
    In the middle third of the training its radius goes from 0 to sarsa_radius and the bounds from CROWN-IBP to IBP.
    A row is a transition with its true successor; the authors' code shuffles first and takes the next row instead.
    """

    sarsa_radius: float = 0.02  # around state and action
    sarsa_weight: float = 0.1
    mad_ratio: float = 0.0  # ρ: 0 is RS, 1 would be MAD alone
    steps: int = 10  # of the attack
    iterations: int = 30
    samples: int = 2048  # transitions per iteration
    epochs: int = 10
    parts: int = 32  # minibatches per epoch
    learning_rate: float = 2.5e-4  # two thirds of the time, then linearly to 0
    discount: float = 0.99
    stochastic: bool = True  # the data: sampled actions, where their spread is known; False: the mean or likeliest
    num_envs: int = 16

    def __post_init__(self) -> None:
        checks.whole(self, "steps", "iterations", "samples", "epochs", "parts", "num_envs")
        checks.not_negative(self, "sarsa_radius", "sarsa_weight", "learning_rate")
        checks.share(self, "mad_ratio", "discount")

    def fit(self, agent: Agent, env: EnvSpec | VecEnv | str, seed: int) -> SarsaAttack:
        """Play, learn, return the attack. A VecEnv must be fresh, is used up, and stays open."""
        agent, env, seed = fit_inputs(agent, env, seed)
        rng = torch.Generator().manual_seed(seed)
        with fresh_env(env, self.num_envs, seed) as made:
            drawn = self.stochastic and spread_known(agent)  # SAC's spread is not imported, DDPG has none
            rollouts = Rollouts(agent, made, rng, stochastic=drawn, discount=self.discount)
            q = fresh_mlp([made.observation_shape[0] + size_of(made.actions), 64, 64, 1], rng)
            self._learn(q, rollouts, rng)
        return SarsaAttack(q.requires_grad_(False), self.sarsa_radius, self.sarsa_weight, self.mad_ratio, self.steps)

    def _learn(self, q: nn.Module, rollouts: Rollouts, rng: torch.Generator) -> None:
        total = self.iterations * self.epochs * self.parts
        ramp = Linear(end=1.0, first_step=total / 3, last_step=2 * total / 3)
        rate = Linear(start=self.learning_rate, end=0.0, first_step=2 * total / 3, last_step=total)
        optimizer = torch.optim.Adam(q.parameters(), lr=self.learning_rate, eps=1e-5)
        step = 0
        for _ in range(self.iterations):
            data = rollouts.collect(self.samples)
            for _ in range(self.epochs):
                for rows in minibatches(len(data), self.parts, rng):
                    optimizer.param_groups[0]["lr"] = rate(step)
                    loss = self.loss(q, data[rows], ramp(step))
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                    step += 1

    def loss(self, q: nn.Module, batch: Experience, ramp: float) -> Tensor:
        """The loss above, (), at `ramp` ∈ [0, 1] of the way to the full radius and to IBP."""
        pair = torch.cat([batch.x.flatten(1), batch.action], 1)
        with torch.no_grad():
            q_next = q(torch.cat([batch.next_x.flatten(1), batch.next_action], 1)).squeeze(-1)
            target = batch.reward + self.discount * torch.where(batch.terminated, 0.0, q_next)
        value = q(pair)
        loss = F.smooth_l1_loss(value.squeeze(-1), target)
        if ramp == 0:  # both bounds are Q itself; CROWN-IBP would only cost time
            return loss
        bounds = mixed("ibp", "crown-ibp", ramp)(q, Ball.unchecked(pair, ramp * self.sarsa_radius))
        far = torch.maximum(bounds.upper - value, value - bounds.lower)
        return loss + self.sarsa_weight * far.square().mean()
