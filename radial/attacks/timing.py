"""Critical-moment timing (Lin et al. 2017): any attack, but only in the share of steps where it matters most.

`timed` wraps an attack; the threshold is learned from the agent's clean play.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from radial.attacks.fitting import Rollouts, fit_inputs, fresh_env
from radial.attacks.gradient import attackable
from radial.core import checks
from radial.core.agent import Agent, Attack
from radial.core.ball import Ball
from radial.core.data import BadInput, Discrete, EnvSpec, VecEnv
from radial.core.radius import Radius


def preference(agent: Agent, x: Tensor) -> Tensor:
    """How much the action matters to the agent in x, (B, *obs) → (B,): max_a π(a|x) − min_a π(a|x) for choices.

    Real-valued actions have no such gap; there it is the length of the mean action, how hard the agent intervenes.
    """
    with torch.no_grad():
        scores = agent.scores(x)
    if not isinstance(agent.actions, Discrete):
        return torch.linalg.vector_norm(scores, dim=-1)
    shares = scores.softmax(-1)
    return shares.amax(-1) - shares.amin(-1)


@dataclass(eq=False)
class TimedAttack:
    """The attack where `preference` ≥ threshold, in at most `share` of an episode's steps so far, or one."""

    attack: Attack
    share: float
    threshold: float
    _steps: Tensor = field(default_factory=lambda: torch.zeros(0), repr=False)
    _used: Tensor = field(default_factory=lambda: torch.zeros(0), repr=False)

    def reset(self, done: Tensor) -> None:
        """Forget the counts of rows whose episode ended, and what the attack knows about them."""
        self.attack.reset(done)
        if self._steps.shape != done.shape:
            self._steps, self._used = torch.zeros(done.shape), torch.zeros(done.shape)
        self._steps, self._used = self._steps.masked_fill(done, 0.0), self._used.masked_fill(done, 0.0)

    def check(self, agent: Agent, spec: EnvSpec, radius: Radius, p: float, stochastic: bool = False) -> None:
        """Whatever the attack checks."""
        if hasattr(self.attack, "check"):
            self.attack.check(agent, spec, radius, p, stochastic)

    def perturb(self, agent: Agent, ball: Ball, rng: torch.Generator) -> Tensor:
        """The attack's answer in critical moments, the centre in all others, (B, *obs)."""
        agent = attackable(agent)
        shown = self.attack.perturb(agent, ball, rng)
        now = preference(agent, ball.center) >= self.threshold
        if self._steps.shape == now.shape:
            allowed = self._used + 1 <= (self.share * (self._steps + 1)).clamp(min=1.0)
            now = now & allowed.to(now.device)
            self._steps, self._used = self._steps + 1, self._used + now.cpu()
        return torch.where(now.view(-1, *[1] * (shown.ndim - 1)), shown, ball.center)


@dataclass(frozen=True)
class Timed:
    """An attack in a share of the steps only: those whose preference lies in the top `share` of clean play."""

    attack: Any  # ready, or one with `fit`
    share: float
    samples: int = 4_096
    num_envs: int = 16

    def __post_init__(self) -> None:
        checks.whole(self, "samples", "num_envs")
        if not (checks.is_finite(self.share) and 0 < self.share <= 1):
            raise BadInput(f"share must lie in (0, 1], got {self.share!r}")
        if isinstance(self.attack, type) or not (hasattr(self.attack, "perturb") or hasattr(self.attack, "fit")):
            raise BadInput(f"attack must be an attack such as MAD(), got {self.attack!r}")

    def aimed(self, radius: Radius, p: float) -> "Timed":
        """The same, its attack told the radius and the norm it is for, if it wants to know."""
        inner = self.attack
        return replace(self, attack=inner.aimed(radius, p)) if hasattr(inner, "aimed") else self

    def fit(self, agent: Agent, env: EnvSpec | VecEnv | str, seed: int) -> TimedAttack:
        """Fit the attack if it must be, then play the agent for the threshold; a VecEnv serves for the latter alone."""
        agent, env, seed = fit_inputs(agent, env, seed)
        attack = self.attack.fit(agent, env, seed) if hasattr(self.attack, "fit") else self.attack
        rng = torch.Generator().manual_seed(seed)
        with fresh_env(env, self.num_envs, seed) as made:
            x = Rollouts(agent, made, rng, stochastic=False, discount=1.0).collect(self.samples).x
        threshold = torch.quantile(preference(agent, x), 1 - self.share)
        return TimedAttack(attack, self.share, float(threshold))
