"""The compounding attack of RADIAL's appendix: learn the dynamics, then bend the trajectory.

`Compounding` holds the settings and learns a dynamics model; `CompoundingAttack` is the fitted attack.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from radial.agents.policies import DeterministicAgent
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
from radial.attacks.gradient import Memoryless, ascend_last, attackable, normal_like, one_step_away
from radial.core import checks
from radial.core.agent import Agent
from radial.core.ball import Ball
from radial.core.data import BadInput, EnvSpec, VecEnv
from radial.core.search import AttackObjective


class Dynamics(nn.Module):
    """F(s, a) ≈ s_next in the agent's own units: an MLP for the change, in standard deviations of the change."""

    mean: Tensor
    std: Tensor

    def __init__(self, network: nn.Module, change: Tensor) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("mean", change.mean(0))
        self.register_buffer("std", change.std(0) + 1e-6)  # features that never move stay where they are

    def forward(self, x: Tensor, action: Tensor) -> Tensor:
        """(B, obs), (B, A) → (B, obs)."""
        return x + self.mean + self.std * self.network(torch.cat([x, action], 1))


@dataclass(frozen=True, eq=False)
class CompoundingAttack(Memoryless):
    """Ascent on the distance to which one perturbed observation leads within `horizon` steps of the learned dynamics.

    maximise ‖ŝ_n(δ) − ŝ_n(0)‖² over the ball, where ŝ_1(δ) = F(s, π(s + δ)) and ŝ_{k+1} = F(ŝ_k, π(ŝ_k))
    (RADIAL, appendix "Compounding attack on MuJoCo", items 2 and 3: s_perturbed and s_target). The dynamics start
    from the true s: only the observation is perturbed. The ascent starts off the centre, where the objective is flat.
    """

    dynamics: nn.Module = field(repr=False)
    horizon: int
    steps: int
    unexplained: float  # share of the held-out variance of the change that the model misses

    def objective(self, agent: Agent, center: Tensor) -> AttackObjective:
        """The squared distance above, (B, *obs) → (B,)."""
        victim = attackable(agent)

        def follow(view: Tensor) -> Tensor:
            state = self.dynamics(center, policy(victim, view))
            for _ in range(self.horizon - 1):
                state = self.dynamics(state, policy(victim, state))
            return state

        with torch.no_grad():
            target = follow(center)
        return lambda x: (follow(x) - target).square().sum(-1)

    def perturb(self, agent: Agent, ball: Ball, rng: torch.Generator) -> Tensor:
        """The last iterate, (B, *obs)."""
        start = one_step_away(ball, self.steps, normal_like(ball.center, rng))
        return ascend_last(self.objective(agent, ball.center), ball, self.steps, start)


@dataclass(frozen=True)
class Compounding:
    """Fits the dynamics model to the agent's own play, half of it sampled, half as it acts when evaluated.

    Sampled actions show the effect of actions; the others visit the states of an evaluation, which a policy with a
    wide distribution would hardly reach.
    """

    horizon: int = 3  # n
    steps: int = 10  # of the attack
    samples: int = 16_384  # transitions in all
    epochs: int = 200
    batch: int = 512
    learning_rate: float = 2e-3  # linearly to 0
    hidden: int = 128
    num_envs: int = 16

    def __post_init__(self) -> None:
        checks.whole(self, "steps", "horizon", "epochs", "batch", "hidden", "num_envs")
        checks.whole(self, "samples", least=100)
        checks.not_negative(self, "learning_rate")

    def fit(self, agent: Agent, env: EnvSpec | VecEnv | str, seed: int) -> CompoundingAttack:
        """Play, learn, return the attack. A VecEnv must be fresh, is used up, and stays open."""
        agent, env, seed = fit_inputs(agent, env, seed)
        if not spread_known(agent) and not isinstance(agent, DeterministicAgent):  # DDPG's is known to be none
            raise BadInput("the compounding attack needs an agent with a known spread of its actions, got none")
        rng = torch.Generator().manual_seed(seed)
        with fresh_env(env, self.num_envs, seed) as made:
            rollouts = Rollouts(agent, made, rng, stochastic=True, discount=1.0)
            sampled = rollouts.collect(self.samples // 2)
            rollouts.stochastic = False
            data = _join(sampled, rollouts.collect(self.samples - self.samples // 2))
            size = made.observation_shape[0]
            network = fresh_mlp([size + size_of(made.actions), self.hidden, self.hidden, size], rng)
        data = data[torch.randperm(len(data), generator=rng)]
        held_out = max(1, len(data) // 10)
        train, test = data[torch.arange(held_out, len(data))], data[torch.arange(held_out)]
        dynamics = Dynamics(network, train.next_x - train.x)
        self._learn(dynamics, train, rng)
        with torch.no_grad():
            unexplained = round(float(self.loss(dynamics, test)), 4)
        return CompoundingAttack(dynamics.requires_grad_(False), self.horizon, self.steps, unexplained)

    def _learn(self, dynamics: Dynamics, data: Experience, rng: torch.Generator) -> None:
        optimizer = torch.optim.Adam(dynamics.parameters(), lr=self.learning_rate)
        parts = max(1, len(data) // self.batch)
        for epoch in range(self.epochs):
            optimizer.param_groups[0]["lr"] = self.learning_rate * (1 - epoch / self.epochs)
            for rows in minibatches(len(data), parts, rng):
                loss = self.loss(dynamics, data[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

    def loss(self, dynamics: Dynamics, batch: Experience) -> Tensor:
        """Mean squared error of the next state in standard deviations of its change, (): 1 explains nothing."""
        return ((dynamics(batch.x, batch.action) - batch.next_x) / dynamics.std).square().mean()


def _join(first: Experience, second: Experience) -> Experience:
    return Experience(**{name: torch.cat([value, vars(second)[name]]) for name, value in vars(first).items()})
