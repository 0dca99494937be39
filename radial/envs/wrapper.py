"""Vector envs around another one: `EnvWrapper` passes everything on, `Clipped` clips actions to the env's box.

Agents trained with clipped actions say so (`clips_actions`); the actions of others go to the simulator as they are.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from radial.core.agent import Agent
from radial.core.data import Continuous, Discrete, Step, VecEnv


class EnvWrapper:
    """A vector env that passes everything on; whoever inherits changes `step`."""

    def __init__(self, env: VecEnv) -> None:
        self.env = env
        self.spec, self.num_envs, self.engine = env.spec, env.num_envs, env.engine
        self.observation_shape, self.actions = env.observation_shape, env.actions

    @property
    def steps(self) -> int:
        """Real steps so far, summed over the envs."""
        return self.env.steps

    def reset(self) -> Tensor:
        """The first observations (N, *obs)."""
        return self.env.reset()

    def step(self, action: Tensor) -> Step:
        """Act in every env."""
        return self.env.step(action)

    def close(self) -> None:
        """Free the simulators."""
        self.env.close()


class Clipped(EnvWrapper):
    """A vector env with a finite box of actions, to which every action is clipped."""

    def __init__(self, env: VecEnv) -> None:
        super().__init__(env)
        assert isinstance(env.actions, Continuous)
        self._low, self._high = torch.tensor(env.actions.low), torch.tensor(env.actions.high)

    def step(self, action: Tensor) -> Step:
        """Act in every env with the nearest action of the box."""
        return self.env.step(action.clamp(self._low, self._high) if action.shape[-1:] == self._low.shape else action)


def as_trained(agent: Agent, env: VecEnv) -> VecEnv:
    """The env as the agent knew it: `Clipped` if its training had that and the box is known."""
    actions = env.actions
    boxed = isinstance(actions, Continuous) and actions.low is not None
    return Clipped(env) if boxed and agent.clips_actions else env


def as_executed(agent: Agent, actions: Discrete | Continuous) -> Callable[[Tensor], Tensor]:
    """Actions (B, D) as the simulator gets them: clipped to the box where `as_trained` does that.

    actions  the env's action space
    """
    if not (isinstance(actions, Continuous) and actions.low is not None and agent.clips_actions):
        return lambda action: action
    low, high = torch.tensor(actions.low), torch.tensor(actions.high)
    return lambda action: action.clamp(low.to(action), high.to(action))
