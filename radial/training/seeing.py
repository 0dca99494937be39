"""How PPO looks at its two kinds of agents: a policy and a critic on normalised vectors, or one network on frames.

A normaliser moves on, so of vectors a rollout keeps what the networks saw. Frames are kept as they came, one byte per
pixel, and become numbers when they are looked at, some rows at a time; policy and value then come out of one pass.
"""

import torch
from torch import Tensor, nn

from radial.agents.actor_critic import ImpalaAgent
from radial.agents.policies import CategoricalAgent, GaussianAgent, agent_for
from radial.core.data import BadInput, Continuous, Discrete
from radial.losses.policy import Categorical
from radial.training.acting import Actor, FrameActor
from radial.training.adam import Flat
from radial.training.rollouts import Acting, Rollout

PPOAgent = GaussianAgent | CategoricalAgent | ImpalaAgent
ROWS = 256  # frames at a time where nothing is learned


class OnePass:
    """An agent whose one network gives policy and value, at one batch: whoever asks, the network runs once."""

    def __init__(self, agent: ImpalaAgent, x: Tensor) -> None:
        self._agent, self._x, self.valid_range = agent, x, agent.valid_range
        self._value, self._scores = agent.joint(x)

    @property
    def network(self) -> nn.Module:
        """What acts."""
        return self._agent.network

    @property
    def choice(self) -> nn.Module:
        """The network of the logits alone."""
        return self._agent.choice

    @property
    def actions(self) -> Discrete:
        """Its actions."""
        return self._agent.actions

    def scores(self, x: Tensor) -> Tensor:
        """Logits, (B, A): of the batch they are known."""
        return self._scores if x is self._x else self._agent.scores(x)

    def value(self, x: Tensor) -> Tensor:
        """The value, (B,): of the batch it is known."""
        return self._value if x is self._x else self._agent.value(x)


def agent_to_train(
    observation_shape: tuple[int, ...], actions: Discrete | Continuous, hidden: tuple[int, ...], activation: str
) -> PPOAgent:
    """The agent that fits an environment's spaces."""
    if len(observation_shape) == 1:
        return agent_for(observation_shape, actions, hidden, activation)
    if isinstance(actions, Continuous):
        raise BadInput(f"PPO on frames needs discrete actions, those of the env are {actions.size} real numbers")
    return ImpalaAgent(observation_shape, actions.n)


def actor_for(agent: PPOAgent, compile: bool) -> Acting:
    """Who acts for it in a training."""
    return FrameActor(agent) if isinstance(agent, ImpalaAgent) else Actor(agent, compile)


def look(agent: PPOAgent, kept: Tensor) -> tuple[Tensor, GaussianAgent | CategoricalAgent | OnePass]:
    """What a rollout kept (B, *obs) in network units, and the agent as it sees that."""
    if not isinstance(agent, ImpalaAgent):
        return kept, agent
    x = agent.prepare(kept)
    return x, OnePass(agent, x)


def prepared(agent: PPOAgent, kept: Tensor) -> Tensor:
    """What a rollout kept (B, *obs) in network units."""
    return agent.prepare(kept) if isinstance(agent, ImpalaAgent) else kept


def mark_value(agent: PPOAgent, flat: Flat) -> Tensor:
    """1 where an agent's flat parameters serve the value alone, 0 elsewhere, (P,): its critic, or its last output."""
    marks = flat.mark("critic.")
    if isinstance(agent, ImpalaAgent):
        pieces = flat.split(marks)
        pieces["network.head.weight"][-1] = 1.0
        pieces["network.head.bias"][-1] = 1.0
    return marks


def log_prob(agent: PPOAgent, kept: Tensor, action: Tensor) -> Tensor:
    """Log-probability of actions (B,) at what a rollout kept (B, *obs)."""
    if not isinstance(agent, ImpalaAgent):
        return agent.log_prob(kept, action)
    _, scores = _joint(agent, kept)
    return Categorical().log_prob(scores, action)


@torch.no_grad()
def scores_of(agent: PPOAgent, kept: Tensor) -> Tensor:
    """Logits or action means (B, A) at what a rollout kept (B, *obs)."""
    return _joint(agent, kept)[1] if isinstance(agent, ImpalaAgent) else agent.scores(kept)


@torch.no_grad()
def judge(agent: PPOAgent, rollout: Rollout) -> tuple[Tensor, Tensor]:
    """Values (T + 1, N) of a rollout, and log-probabilities (R,) of what was done in its real rows."""
    steps, envs = rollout.reward.shape
    rows, real = rollout.x.flatten(0, 1), rollout.real
    if not isinstance(agent, ImpalaAgent):
        value = agent.value(rows).view(steps + 1, envs)
        return value, agent.log_prob(rollout.x[:-1][real], rollout.action[real])
    value, scores = _joint(agent, rows)
    acted = scores[: steps * envs][real.flatten()]
    return value.view(steps + 1, envs), Categorical().log_prob(acted, rollout.action[real])


def _joint(agent: ImpalaAgent, kept: Tensor) -> tuple[Tensor, Tensor]:
    """Values (B,) and logits (B, A), `ROWS` rows at a time."""
    values, scores = zip(*(agent.joint(agent.prepare(part)) for part in kept.split(ROWS)), strict=True)
    return torch.cat(values), torch.cat(scores)
