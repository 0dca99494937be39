"""The world as an adversary sees it: its actions are perturbations, its reward is the agent's loss.

Any training that steps a vector env can live in it; the attacks on top are in `adversaries`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.func import functional_call

from radial.agents.convert import AGENTS
from radial.attacks.learned.forms import Form, view, view_size
from radial.core.agent import Agent
from radial.core.ball import Ball
from radial.core.data import BadInput, Step, VecEnv
from radial.core.radius import Radius, as_budget, largest
from radial.envs.wrapper import EnvWrapper, as_trained
from radial.training.native import Compiled


@dataclass(frozen=True)
class Threat:
    """The set around each observation that the adversary may choose from.

    radius  one number, or one per feature of a vector        p  1, 2 or inf
    """

    radius: Radius
    p: float

    def budget(self) -> float | Tensor:
        """The radius as a `Ball` takes it."""
        return as_budget(self.radius)

    @property
    def largest(self) -> float:
        """The largest radius of a feature."""
        return largest(self.radius)


class _Form(nn.Module):
    """`form.realise` as a forward, for `functional_call`."""

    def __init__(self, choice: nn.Module, form: Form) -> None:
        super().__init__()
        self.choice, self.form = choice, form

    def forward(self, ball: Ball, action: Tensor) -> Tensor:
        return self.form.realise(self.choice, ball, action)


class Realiser:
    """A form against one agent, its forward and backward passes compiled as one function.

    compile  only networks of radial's own are; others may branch on values
    """

    def __init__(self, agent: Agent, form: Form, threat: Threat, compile: bool) -> None:
        self.agent, self.threat = agent, threat
        self._module = _Form(agent.choice, form)
        named = [*self._module.named_parameters(), *self._module.named_buffers()]
        self._weights = {name: each.detach() for name, each in named}
        self._run = Compiled(self._shown, compile and type(agent) in AGENTS.values())

    @torch.no_grad()
    def __call__(self, x: Tensor, action: Tensor) -> Tensor:
        """The observations shown instead of x (N, *obs)."""
        radius = torch.as_tensor(self.threat.radius, dtype=x.dtype, device=x.device)
        (shown,) = self._run(x=x, action=action, radius=radius, weights=self._weights)
        return shown

    def _shown(self, x: Tensor, action: Tensor, radius: Tensor, weights: Mapping[str, Tensor]) -> tuple[Tensor]:
        low, high = self.agent.valid_range or (None, None)
        ball = Ball.unchecked(x, radius, self.threat.p, low, high)
        shown: Tensor = functional_call(self._module, dict(weights), (ball, action))
        return (shown,)


class AdversaryWorld(EnvWrapper):
    """A vector env whose agent is part of it: observations are what the adversary sees, actions what it does.

    The reward is −score, never centred, so that with V(end) = 0 an early end of an agent that still earns is worth
    what the agent loses by it. `score` stays the agent's own.
    """

    def __init__(self, env: VecEnv, agent: Agent, form: Form, realiser: Realiser) -> None:
        super().__init__(as_trained(agent, env))
        self._agent, self._realise, self._shape = agent, realiser, env.observation_shape
        self.observation_shape = (view_size(agent, env.observation_shape),)
        self.actions = form.actions(agent, env.observation_shape)

    @torch.no_grad()
    def _see(self, obs: Tensor) -> Tensor:
        self._x = self._agent.prepare(obs)
        return view(self._agent, self._x)

    def reset(self) -> Tensor:
        """What the adversary sees of the first observations, (N, features)."""
        return self._see(self.env.reset())

    @torch.no_grad()
    def step(self, action: Tensor) -> Step:
        """Show the agent what the adversary's action makes of its observations, and let it act."""
        step = self.env.step(self._agent.act(self._realise(self._x, action)))
        return replace(step, obs=self._see(step.obs), reward=-step.score)


def check_deterministic(agent: Agent, x: Tensor) -> None:
    """Refuse an agent whose action for the same observations (B, *obs) changes from call to call."""
    with torch.no_grad():
        first, second = agent.act(x), agent.act(x)
    if not torch.equal(first, second):
        raise BadInput(
            "agent must act deterministically while an adversary learns against it; act(x) gave two different actions"
        )
