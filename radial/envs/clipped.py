"""The wrapper many trainings put around an env: actions are cut to the env's box before they are taken.

Agents trained that way say so (`clips_actions`); others are sent to the simulator as they are.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from radial.core.data import Continuous, Step, VecEnv
from radial.envs.wrapper import Wrapped


class Clipped(Wrapped):
    """A vector env with a finite box of actions, to which whatever comes is cut."""

    def __init__(self, env: VecEnv) -> None:
        super().__init__(env)
        assert isinstance(env.actions, Continuous)
        self._low, self._high = torch.tensor(env.actions.low), torch.tensor(env.actions.high)

    def step(self, action: Tensor) -> Step:
        """Act in every env with the nearest action of the box."""
        return self.env.step(action.clamp(self._low, self._high) if action.shape[-1:] == self._low.shape else action)


def as_trained(agent: Any, env: VecEnv) -> VecEnv:
    """The env as the agent knew it: with `Clipped` around it if its training had that, and the box is known."""
    actions = env.actions
    boxed = isinstance(actions, Continuous) and actions.low is not None
    return Clipped(env) if boxed and getattr(agent, "clips_actions", False) else env


def as_executed(agent: Any, actions: Any) -> Callable[[Tensor], Tensor]:
    """What becomes of actions (B, D) on their way to the simulator: cut to the box where `as_trained` does that.

    actions  the env's space of actions
    """
    boxed = isinstance(actions, Continuous) and actions.low is not None
    if not (boxed and getattr(agent, "clips_actions", False)):
        return lambda action: action
    low, high = torch.tensor(actions.low), torch.tensor(actions.high)
    return lambda action: action.clamp(low.to(action), high.to(action))
