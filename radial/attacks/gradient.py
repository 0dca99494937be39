"""Attacks that need nothing but the agent: random noise, and ascent on the critic, the action or the scores.

Attacks that first learn a model of their own are in `sarsa` and `compounding`; the projection that makes an answer
legal is the caller's.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from radial.agents.foreign import as_agent
from radial.core import checks
from radial.core.agent import Agent
from radial.core.ball import Ball
from radial.core.data import BadInput, Discrete
from radial.core.search import AttackObjective, pgd, steepest, with_restarts


def attackable(agent: object) -> Agent:
    """The agent as an `Agent`; an attack needs no more of it than its actions and its scores."""
    return as_agent(agent, parts=("actions", "scores"))


class Memoryless:
    """The part that all attacks share which perturb each observation on its own."""

    def reset(self, done: Tensor) -> None:
        """Nothing is remembered, so nothing is forgotten."""

    def draws_nothing(self, agent: Agent) -> bool:
        """Whether its answer to an observation follows from that one alone, so that other rows may be left out."""
        return False


@dataclass(frozen=True)
class NoAttack(Memoryless):
    """Shows the clean observation: an evaluation without an adversary."""

    def draws_nothing(self, agent: Agent) -> bool:  # noqa: D102
        return True

    def perturb(self, agent: Agent, ball: Ball, rng: torch.Generator) -> Tensor:
        """The centre, (B, *obs)."""
        return ball.center


@dataclass(frozen=True)
class RandomNoise(Memoryless):
    """Uniform in the ball: undirected noise, which every attack has to beat."""

    def perturb(self, agent: Agent, ball: Ball, rng: torch.Generator) -> Tensor:
        """A point of the ball, (B, *obs)."""
        return ball.sample(rng)


@dataclass(frozen=True)
class Critic(Memoryless):
    """Descent on the agent's own value V(s′): shows a state the agent believes to be bad (Pattanaik et al. 2018)."""

    steps: int = 10  # of radius/steps each, by the sign of the gradient

    def __post_init__(self) -> None:
        checks.whole(self, "steps")

    def objective(self, agent: Agent, center: Tensor) -> AttackObjective:
        """−V(x), (B, *obs) → (B,)."""
        agent = attackable(agent)
        if not agent.has_value:
            raise BadInput(f"the critic attack needs an agent with a value function, got {agent.name}")
        return lambda x: -agent.value(x)

    def perturb(self, agent: Agent, ball: Ball, rng: torch.Generator) -> Tensor:
        """The last iterate from a uniform start within one step of the centre, (B, *obs)."""
        return ascend_last(self.objective(agent, ball.center), ball, self.steps, near(ball, self.steps).sample(rng))


@dataclass(frozen=True)
class MAD(Memoryless):
    """Maximal action difference (Zhang et al. 2020): noisy ascent on how far the policy moves.

    D(s′) = Σ_j ((μ_j(s′) − μ_j(s))/σ̃_j)² for a Gaussian policy, KL(π(s) ‖ π(s′)) for a categorical one.
    s′ ← Π(s′ + sign(∇D + n)·ε/steps) with n ~ N(0, 1)·√(2ε/steps)/(i + 2) at step i = 0, 1, …; the start is
    s + sign(N(0, 1))·ε/steps, because D is flat at s itself. As in SA-PPO's evaluation, which knows Gaussian policies
    only; against a categorical one n is left out, for it would drown the small divergences of a confident policy.
    """

    steps: int = 10
    stochastic: bool = False  # the agent samples its actions: σ̃ = σ/mean(σ). Otherwise it plays the mean and σ̃ = 1

    def __post_init__(self) -> None:
        checks.whole(self, "steps")

    def objective(self, agent: Agent, center: Tensor) -> AttackObjective:
        """D(x), (B, *obs) → (B,)."""
        agent = attackable(agent)
        if isinstance(agent.actions, Discrete):
            return kl_from(agent, center)
        if not self.stochastic:
            return distance_of_means(agent, center)
        if agent.log_std is None:
            raise BadInput("stochastic must be False: the spread of this policy's actions is not known")
        std = agent.log_std.detach().exp()
        return distance_of_means(agent, center, std / std.mean())

    def draws(self, agent: Agent) -> int:
        """How many arrays N(0, 1) in the shape of the observations it needs: the start, and n of each step."""
        return 1 if isinstance(agent.actions, Discrete) else self.steps + 1

    def perturb(self, agent: Agent, ball: Ball, rng: torch.Generator) -> Tensor:
        """The last iterate, (B, *obs)."""
        return self.climb(agent, ball, [normal_like(ball.center, rng) for _ in range(self.draws(agent))])

    def climb(self, agent: Agent, ball: Ball, noise: Sequence[Tensor]) -> Tensor:
        """The last iterate, (B, *obs), as a function of the drawn noise, which a training can compile."""
        objective = self.objective(agent, ball.center)
        x = one_step_away(ball, self.steps, noise[0])
        if isinstance(agent.actions, Discrete):
            return ascend_last(objective, ball, self.steps, x)
        step = ball.budget() / self.steps
        for i in range(self.steps):
            shaken = gradient(objective, x) + noise[i + 1] * (2 * step).sqrt() / (i + 2)
            x = ball.project(x + step * steepest(shaken, ball))
        return x


AttackLoss = Literal["cross-entropy", "margin"]


@dataclass(frozen=True)
class PGD(Memoryless):
    """Projected gradient ascent (Madry et al. 2018), by default the protocol of RADIAL's Atari tables.

    Against agents that choose among actions it climbs `loss` against the clean choice, against Gaussian ones the
    squared distance of the means. One run ends where it ends, as in the paper; of several the best point counts: the
    first starts at the centre, then corners and uniform points take turns.
    """

    steps: int = 10
    step_size: float = 0.1  # a share of the radius
    restarts: int = 1  # runs in all
    random_start: bool = False  # of a single run. Means are flat at the centre, so against them it always is random
    loss: AttackLoss = "cross-entropy"  # or "margin", max_{y≠a} s_y − s_a, which is > 0 just where the choice changes

    def __post_init__(self) -> None:
        checks.whole(self, "steps")
        checks.whole(self, "restarts")
        checks.positive(self, "step_size")
        if self.loss not in ("cross-entropy", "margin"):
            raise BadInput(f"loss must be cross-entropy or margin, got {self.loss!r}")

    @classmethod
    def procgen(cls) -> "PGD":
        """The protocol of RADIAL's ProcGen tables: steps of a fifth of the radius instead of a tenth.

        The label is the likeliest action also where actions are sampled.
        """
        return cls(step_size=0.2)

    @classmethod
    def strong(cls) -> "PGD":
        """Several runs on the margin, the best point of all: a state that survives is hard to attack at all."""
        return cls(steps=20, step_size=0.25, restarts=5, loss="margin")

    def objective(self, agent: Agent, center: Tensor) -> AttackObjective:
        """The loss, or the squared distance, at x, (B, *obs) → (B,)."""
        agent = attackable(agent)
        if not isinstance(agent.actions, Discrete):
            return distance_of_means(agent, center)
        return margin_against(agent, center) if self.loss == "margin" else cross_entropy(agent, center)

    def draws_nothing(self, agent: Agent) -> bool:
        """Only a single run that starts at the centre."""
        return self.restarts == 1 and not self.random_start and isinstance(agent.actions, Discrete)

    def perturb(self, agent: Agent, ball: Ball, rng: torch.Generator) -> Tensor:
        """The last iterate of one run, or the best point of several, (B, *obs)."""
        objective = self.objective(agent, ball.center)
        if self.restarts > 1:
            settings = {"restarts": self.restarts, "steps": self.steps}
            return with_restarts(objective, ball, rng, step_size=self.step_size, **settings)[0]
        flat = not isinstance(agent.actions, Discrete)
        start = ball.sample(rng) if self.random_start or flat else ball.center
        return pgd(objective, ball, steps=self.steps, step_size=self.step_size, start=start, keep_best=False)[0]


@dataclass(frozen=True)
class FGSM(Memoryless):
    """One step of the whole radius from the clean observation, by the sign of a gradient (Goodfellow et al. 2015).

    The gradient of the cross-entropy of the clean choice, as in RADIAL's Atari code. Means of Gaussian policies are
    flat at the centre, so against them the gradient is taken a random tenth of the radius away.
    """

    def objective(self, agent: Agent, center: Tensor) -> AttackObjective:
        """Cross-entropy or squared distance at x, (B, *obs) → (B,)."""
        return PGD().objective(agent, center)

    def draws_nothing(self, agent: Agent) -> bool:
        """Against agents that choose among actions."""
        return isinstance(agent.actions, Discrete)

    def perturb(self, agent: Agent, ball: Ball, rng: torch.Generator) -> Tensor:
        """Where the step ends, (B, *obs)."""
        at = (
            ball.center
            if isinstance(agent.actions, Discrete)
            else one_step_away(ball, 10, normal_like(ball.center, rng))
        )
        slope = gradient(self.objective(agent, ball.center), at)
        return ball.project(ball.center + ball.budget() * steepest(slope, ball))


# ---------------------------------------------------------------------------------------------------- the objectives


def distance_of_means(agent: Agent, center: Tensor, scale: Tensor | None = None) -> AttackObjective:
    """Σ_j ((μ_j(x) − μ_j(center))/scale_j)², (B, *obs) → (B,)."""
    with torch.no_grad():
        clean = agent.scores(center)

    def distance(x: Tensor) -> Tensor:
        change = agent.scores(x) - clean
        return (change if scale is None else change / scale).square().sum(-1)

    return distance


def kl_from(agent: Agent, center: Tensor) -> AttackObjective:
    """KL(π(center) ‖ π(x)) of softmax policies, (B, *obs) → (B,)."""
    with torch.no_grad():
        clean = agent.scores(center).log_softmax(-1)
    return lambda x: (clean.exp() * (clean - agent.scores(x).log_softmax(-1))).sum(-1)


def cross_entropy(agent: Agent, center: Tensor) -> AttackObjective:
    """−log of the softmax share of the clean choice, (B, *obs) → (B,)."""
    network = agent.choice
    with torch.no_grad():
        clean = network(center).argmax(-1)
    return lambda x: F.cross_entropy(network(x), clean, reduction="none")


def margin_against(agent: Agent, center: Tensor) -> AttackObjective:
    """max_{y≠a} s_y(x) − s_a(x) for the clean choice a, (B, *obs) → (B,)."""
    network = agent.choice
    with torch.no_grad():
        clean = network(center)
        own = F.one_hot(clean.argmax(-1), clean.shape[-1]).bool()

    def margin(x: Tensor) -> Tensor:
        found = network(x)
        return found.masked_fill(own, -math.inf).amax(-1) - found.masked_fill(~own, 0.0).sum(-1)

    return margin


# ---------------------------------------------------------------------------------------------------------- the steps


def ascend_last(objective: AttackObjective, ball: Ball, steps: int, start: Tensor) -> Tensor:
    """Where `steps` steps of radius/steps end: the attacks of the SA-PPO family keep the last iterate, (B, *obs)."""
    return pgd(objective, ball, steps=steps, step_size=1 / steps, start=start, keep_best=False)[0]


def near(ball: Ball, steps: int) -> Ball:
    """The ball of one step around the same centre."""
    return Ball(ball.center, ball.radius / steps, ball.p, ball.low, ball.high)


def one_step_away(ball: Ball, steps: int, noise: Tensor) -> Tensor:
    """One step from the centre in a random direction, sign(N(0, 1))·ε/steps for p = ∞: off the flat spot, (B, *obs)."""
    return ball.project(ball.center + ball.budget() / steps * steepest(noise, ball))


def gradient(objective: AttackObjective, x: Tensor) -> Tensor:
    """∇ of each row's objective at x, (B, *obs); leaves nothing on any parameter."""
    with torch.enable_grad():
        x = x.detach().requires_grad_(True)
        return torch.autograd.grad(objective(x).sum(), x)[0]


def normal_like(x: Tensor, rng: torch.Generator) -> Tensor:
    """N(0, 1) in the shape, dtype and place of x."""
    return torch.randn(x.shape, generator=rng, dtype=x.dtype, device=x.device)
