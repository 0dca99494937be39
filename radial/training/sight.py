"""Acting and evaluation for PPO's two kinds of agents: a policy and a critic on vectors, or one network on frames.

A normaliser keeps changing, so for vectors a rollout keeps the normalised observations. Frames are kept raw, one byte
per pixel, and converted when needed, some rows at a time; policy and value then come out of one pass.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call

from radial.agents.actor_critic import FRAME_AGENTS, ActorCritic, ImpalaAgent
from radial.agents.networks import ImpalaResNet
from radial.agents.normalizer import Moments, merge, normalize
from radial.agents.policies import CategoricalAgent, GaussianAgent, agent_for
from radial.core.agent import Agent
from radial.core.data import BadInput, Continuous, Discrete
from radial.losses.policy import Categorical
from radial.training.native import Compiled
from radial.training.rollouts import Rollout

VectorAgent = GaussianAgent | CategoricalAgent
FrameAgent = ImpalaAgent | ActorCritic
PPOAgent = VectorAgent | FrameAgent
ROWS_AT_ONCE = 256  # frames at a time in passes without gradient


def agent_to_train(
    observation_shape: tuple[int, ...], actions: Discrete | Continuous, hidden: tuple[int, ...], activation: str,
    network: str = "impala",
) -> PPOAgent:  # fmt: skip
    """The agent that fits an environment's spaces; on frames `network` says which, a key of FRAME_AGENTS."""
    if len(observation_shape) == 1:
        return agent_for(observation_shape, actions, hidden, activation)
    if isinstance(actions, Continuous):
        raise BadInput(f"PPO on frames needs discrete actions, those of the env are {actions.size} real numbers")
    if observation_shape[1:] != ImpalaResNet.SHAPE[1:]:  # Atari's frames, or those of another env
        # Two sizes are those of the default, for vectors: the network for frames then has its own.
        return ActorCritic(observation_shape, actions.n, hidden if len(hidden) > 2 else None)
    if network == "impala":
        return ImpalaAgent(observation_shape, actions.n)  # whose network has one size
    return FRAME_AGENTS[network](observation_shape, actions.n, hidden)


def sight_of(agent: PPOAgent, prepared: bool = False) -> "Sight":
    """The `Sight` that fits this agent. prepared: of frames it keeps what the network sees, not bytes."""
    return FrameSight(agent, prepared) if isinstance(agent, FrameAgent) else VectorSight(agent)


# -------------------------------------------------------------------------------------------------------------- vectors


class VectorSight:
    """A rollout keeps normalised vectors, (B, features)."""

    def __init__(self, agent: VectorAgent) -> None:
        self.agent = agent

    def actor(self, compiled: bool) -> "Actor":
        """The agent as an actor in a training."""
        return Actor(self.agent, compiled)

    @property
    def value_share(self) -> Mapping[str, Tensor]:
        """1 at the parameters that serve the value alone, by name: the critic's."""
        named = self.agent.named_parameters()
        return {name: torch.ones_like(parameter) for name, parameter in named if name.startswith("critic.")}

    def prepared(self, kept: Tensor) -> Tensor:
        """Kept observations in network units, which they already are."""
        return kept

    def look(self, kept: Tensor) -> tuple[Tensor, Agent]:
        """Kept observations in network units, and the agent to evaluate on them."""
        return kept, self.agent

    def log_prob(self, kept: Tensor, action: Tensor) -> Tensor:
        """Log-probability of actions (B, *), (B,)."""
        return self.agent.log_prob(kept, action)

    @torch.no_grad()
    def scores(self, kept: Tensor) -> Tensor:
        """Logits or action means, (B, A)."""
        return self.agent.scores(kept)

    @torch.no_grad()
    def judge(self, rollout: Rollout) -> tuple[Tensor, Tensor]:
        """Values (T + 1, N) of a rollout, and log-probabilities (R,) of the actions of its real rows."""
        steps, envs = rollout.reward.shape
        value = self.agent.value(rollout.x.flatten(0, 1)).view(steps + 1, envs)
        return value, self.agent.log_prob(rollout.x[:-1][rollout.real], rollout.action[rollout.real])


class _Sampler(nn.Module):
    """`agent.sample` as a forward, for `functional_call`."""

    def __init__(self, agent: VectorAgent) -> None:
        super().__init__()
        self.agent = agent

    def forward(self, x: Tensor, noise: Tensor) -> Tensor:
        return self.agent.sample(x, noise)


class Actor:
    """An actor on vectors: each observation first updates the normaliser, then is normalised, then acted on.

    All of that is one pure function of tensors, compiled whole: between two steps of sixteen small environments,
    seventy separate operations would take longer than the simulator.
    """

    def __init__(self, agent: VectorAgent, compiled: bool) -> None:
        self.agent = agent
        self._sampler = _Sampler(agent)
        self._names = [name for name, _ in agent.named_parameters() if not name.startswith("critic.")]
        self._run = Compiled(self._both, compiled)
        self.begin()

    def begin(self) -> None:
        """Take the agent's current weights and statistics."""
        self._moments = self.agent.normalizer.moments.get()
        self._weights = {f"agent.{name}": self.agent.get_parameter(name).detach() for name in self._names}

    def finish(self) -> None:
        """Write the statistics back into the agent."""
        self.agent.normalizer.moments.set(self._moments)

    @torch.no_grad()
    def observe(self, obs: Tensor) -> Tensor:
        """Update the normaliser with raw observations (N, *obs), and normalise them."""
        x, *moments = self._observe(obs, self._moments)
        self._moments = Moments(*moments)
        return x

    @torch.no_grad()
    def act(self, x: Tensor, noise: Tensor) -> Tensor:
        """Sampled actions for prepared observations (N, *obs)."""
        return self.agent.sample(x, noise)

    @torch.no_grad()
    def observe_and_act(self, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """`observe` and `act` in one call, as native code."""
        x, action, *moments = self._run(obs=obs, noise=noise, moments=self._moments, weights=self._weights)
        self._moments = Moments(*moments)
        return x, action

    def _observe(self, obs: Tensor, known: Moments) -> tuple[Tensor, ...]:
        if not self.agent.normalizer.frozen:
            known = merge(known, obs)
        return normalize(obs, known, self.agent.normalizer.clip), *[part + 0 for part in known]

    def _both(self, obs: Tensor, noise: Tensor, moments: Moments, weights: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        x, *moved = self._observe(obs, moments)
        return x, functional_call(self._sampler, dict(weights), (x, noise)), *moved


# --------------------------------------------------------------------------------------------------------------- frames


class FrameSight:
    """A rollout keeps raw frames, (B, *obs), one byte per pixel.

    is_prepared  it keeps frames in network units instead, four bytes per pixel: an attack moves a pixel by less than 1
    """

    def __init__(self, agent: FrameAgent, is_prepared: bool = False) -> None:
        self.agent, self.is_prepared = agent, is_prepared

    def actor(self, compiled: bool) -> "FrameActor":
        """The agent as an actor in a training; nothing is compiled."""
        return FrameActor(self.agent, self)

    @property
    def value_share(self) -> Mapping[str, Tensor]:
        """1 at the parameters that serve the value alone, by name: those of one output of the last layer."""
        at, row = ("network.head", -1)
        if isinstance(self.agent, ActorCritic):
            at, row = f"network.model.{len(self.agent.network.model) - 1}", 0
        head = self.agent.get_submodule(at)
        shares = {f"{at}.{name}": torch.zeros_like(parameter) for name, parameter in head.named_parameters()}
        for share in shares.values():
            share[row] = 1.0
        return shares

    def prepared(self, kept: Tensor) -> Tensor:
        """Kept frames in network units."""
        return kept if self.is_prepared else self.agent.prepare(kept)

    def look(self, kept: Tensor) -> tuple[Tensor, Agent]:
        """Kept frames in network units, and the agent after one pass over them."""
        x = self.prepared(kept)
        return x, OnePass(self.agent, x)

    def log_prob(self, kept: Tensor, action: Tensor) -> Tensor:
        """Log-probability of actions (B,), (B,)."""
        return Categorical().log_prob(self._joint(kept)[1], action)

    @torch.no_grad()
    def scores(self, kept: Tensor) -> Tensor:
        """Logits, (B, A)."""
        return self._joint(kept)[1]

    @torch.no_grad()
    def judge(self, rollout: Rollout) -> tuple[Tensor, Tensor]:
        """Values (T + 1, N) of a rollout, and log-probabilities (R,) of the actions of its real rows."""
        (steps, envs), real = rollout.reward.shape, rollout.real
        value, scores = self._joint(rollout.x.flatten(0, 1))
        acted = scores[: steps * envs][real.flatten()]
        return value.view(steps + 1, envs), Categorical().log_prob(acted, rollout.action[real])

    def _joint(self, kept: Tensor) -> tuple[Tensor, Tensor]:
        """Values (B,) and logits (B, A), `ROWS_AT_ONCE` rows at a time."""
        parts = (self.agent.joint(self.prepared(part)) for part in kept.split(ROWS_AT_ONCE))
        values, scores = zip(*parts, strict=True)
        return torch.cat(values), torch.cat(scores)


class OnePass(Agent):
    """An agent whose one network gives policy and value, at one batch: the network runs once for both."""

    log_std = None

    def __init__(self, agent: FrameAgent, x: Tensor) -> None:
        self._agent, self._x = agent, x
        self.network, self.actions, self.card = agent.network, agent.actions, agent.card
        self.observation_shape, self.valid_range = agent.observation_shape, agent.valid_range
        self._value, self._scores = agent.joint(x)

    @property
    def choice(self) -> nn.Module:
        """The network of the logits alone."""
        return self._agent.choice

    @property
    def has_value(self) -> bool:
        """True."""
        return True

    def prepare(self, obs: Tensor) -> Tensor:
        """Prepare as the agent does."""
        return self._agent.prepare(obs)

    def act(self, x: Tensor, rng: torch.Generator | None = None) -> Tensor:
        """Act as the agent does."""
        return self._agent.act(x, rng)

    def scores(self, x: Tensor) -> Tensor:
        """Logits, (B, A); already computed for the batch."""
        return self._scores if x is self._x else self._agent.scores(x)

    def value(self, x: Tensor) -> Tensor:
        """The value, (B,); already computed for the batch."""
        return self._value if x is self._x else self._agent.value(x)


class FrameActor:
    """An actor on frames: it keeps its raw observations, one byte per pixel, or what the network sees."""

    def __init__(self, agent: FrameAgent, sight: FrameSight) -> None:
        self.agent, self.sight = agent, sight

    def begin(self) -> None:
        """Do nothing: the agent acts with its own weights."""

    def finish(self) -> None:
        """Do nothing: there are no statistics to return."""

    def observe(self, obs: Tensor) -> Tensor:
        """Frames (N, *obs) as they are kept."""
        return self.agent.prepare(obs) if self.sight.is_prepared else obs

    @torch.no_grad()
    def act(self, x: Tensor, noise: Tensor) -> Tensor:
        """Sampled actions (N,) for kept frames (N, *obs)."""
        return self.agent.sample(self.sight.prepared(x), noise)

    def observe_and_act(self, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Kept frames, and the actions sampled for them."""
        x = self.observe(obs)
        return x, self.act(x, noise)


Sight = VectorSight | FrameSight
