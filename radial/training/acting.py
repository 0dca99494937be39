"""Acting while learning to see: each observation first moves the normaliser, then is normalised, then acted on.

All of that is one pure function of tensors, compiled whole: between two steps of sixteen small environments, seventy
separate operations would take longer than the simulator. Whoever acts on frames has nothing to learn of that kind.
"""

import torch
from torch import Tensor, nn
from torch.func import functional_call

from radial.agents.actor_critic import ImpalaAgent
from radial.agents.normalizer import Moments, merge, normalize
from radial.agents.policies import CategoricalAgent, GaussianAgent
from radial.training.compiled import Lazy


class _Sampler(nn.Module):
    """`agent.sample` as a forward, for `functional_call`."""

    def __init__(self, agent: GaussianAgent | CategoricalAgent) -> None:
        super().__init__()
        self.agent = agent

    def forward(self, x: Tensor, noise: Tensor) -> Tensor:
        return self.agent.sample(x, noise)


class Actor:
    """An agent at work in a training; what the normaliser learns meanwhile is written back by `finish`."""

    def __init__(self, agent: GaussianAgent | CategoricalAgent, compile: bool) -> None:
        self.agent = agent
        self._sampler = _Sampler(agent)
        self._names = [name for name, _ in agent.named_parameters() if not name.startswith("critic.")]
        self._run = Lazy(self._both, compile)
        self.begin()

    def begin(self) -> None:
        """Take the agent's weights and statistics as they are now."""
        self._moments = self.agent.normalizer.moments.get()
        self._weights = [self.agent.get_parameter(name).detach() for name in self._names]

    def finish(self) -> None:
        """Give the agent its statistics back."""
        self.agent.normalizer.moments.set(self._moments)

    @torch.no_grad()
    def observe(self, obs: Tensor) -> Tensor:
        """Raw observations (N, *obs), taken in and normalised."""
        x, *moments = self._observe(obs, *self._moments)
        self._moments = Moments(*moments)
        return x

    @torch.no_grad()
    def act(self, x: Tensor, noise: Tensor) -> Tensor:
        """Sampled actions for prepared observations (N, *obs)."""
        return self.agent.sample(x, noise)

    @torch.no_grad()
    def observe_and_act(self, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Both at once, as native code."""
        arguments = (obs, noise, *self._moments, *self._weights)
        x, action, *moments = self._run(*arguments)
        self._moments = Moments(*moments)
        return x, action

    def _observe(self, obs: Tensor, *moments: Tensor) -> tuple[Tensor, ...]:
        known = Moments(*moments)
        if not self.agent.normalizer.frozen:
            known = merge(known, obs)
        return normalize(obs, known, self.agent.normalizer.clip), *[part + 0 for part in known]

    def _both(self, obs: Tensor, noise: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        x, *moments = self._observe(obs, *rest[:3])
        named = {f"agent.{name}": weight for name, weight in zip(self._names, rest[3:], strict=True)}
        return x, functional_call(self._sampler, named, (x, noise)), *moments


class FrameActor:
    """An agent of frames at work in a training; what it observes is kept as it came, one byte per pixel."""

    def __init__(self, agent: ImpalaAgent) -> None:
        self.agent = agent

    def begin(self) -> None:
        """Nothing is copied: the agent acts as it is."""

    def finish(self) -> None:
        """There is nothing to give back."""

    def observe(self, obs: Tensor) -> Tensor:
        """Frames (N, *obs), as they are."""
        return obs

    @torch.no_grad()
    def act(self, x: Tensor, noise: Tensor) -> Tensor:
        """Sampled actions (N,) for frames (N, *obs)."""
        return self.agent.sample(self.agent.prepare(x), noise)

    def observe_and_act(self, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Both."""
        return obs, self.act(obs, noise)
