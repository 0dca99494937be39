"""How an action of an adversary becomes an observation, and what the adversary sees.

A form is a pure function of tensors, so that a training can compile it; the adversary's policy is not known here.
"""

import math
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from radial.core import checks
from radial.core.agent import Agent
from radial.core.ball import Ball
from radial.core.data import Continuous, Discrete
from radial.core.search import AttackObjective, pgd

COARSE = 21  # cells along each side of a frame, at most, as an adversary sees it


class Form(Protocol):
    """What the adversary's actions mean."""

    def actions(self, agent: Agent, shape: tuple[int, ...]) -> Discrete | Continuous:
        """The adversary's action space against this agent with observations of this shape."""

    def realise(self, choice: nn.Module, ball: Ball, action: Tensor) -> Tensor:
        """The observations to show instead of the ball's centre, (B, *obs), all in the ball.

        choice  the agent's network (B, *obs) → (B, A)        action  (B,) int64 or (B, D)
        """


@dataclass(frozen=True)
class Shift:
    """The action is the perturbation itself in budgets, cut to [−1, 1]: x + radius·clip(u) (SA-RL, Zhang et al. 2021).

    grid  of frames: cells along each side; a cell moves as a whole: over single pixels nothing is learned in time
    """

    grid: int = 6

    def __post_init__(self) -> None:
        checks.whole(self, "grid")

    def actions(self, agent: Agent, shape: tuple[int, ...]) -> Continuous:
        """One number per feature, or per channel and cell."""
        return Continuous(math.prod(self._cells(shape)))

    def _cells(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape if len(shape) < 3 else (shape[0], min(self.grid, shape[1]), min(self.grid, shape[2]))

    def realise(self, choice: nn.Module, ball: Ball, action: Tensor) -> Tensor:
        """Π(x + radius·clip(u)), (B, *obs)."""
        shape = tuple(ball.center.shape[1:])
        shift = action.clamp(-1, 1).view(-1, *self._cells(shape))
        if len(shape) == 3:
            shift = F.interpolate(shift, size=shape[1:], mode="nearest")
        return ball.project(ball.center + ball.budget() * shift.to(ball.center))


@dataclass(frozen=True)
class Steer:
    """The action says where the agent's own action should go; gradient steps find the observation (PA-AD, Sun et al.).

    Against real-valued actions it is a direction d: ascend ⟨μ(x), d⟩. Against choices it is a target a: ascend
    s_a(x) − max_{y≠a} s_y(x). Nothing is flat at the centre, so the ascent starts there; the best iterate counts.
    """

    steps: int = 3
    step_size: float = 2 / 3  # a share of the radius

    def __post_init__(self) -> None:
        checks.whole(self, "steps")
        checks.positive(self, "step_size")

    def actions(self, agent: Agent, shape: tuple[int, ...]) -> Discrete | Continuous:
        """The agent's own action space."""
        return agent.actions if isinstance(agent.actions, Discrete) else Continuous(agent.actions.size)

    def objective(self, choice: nn.Module, action: Tensor) -> AttackObjective:
        """How well x realises the action, (B, *obs) → (B,)."""
        if action.is_floating_point():
            return lambda x: (choice(x) * action).sum(-1)
        return lambda x: lead_of(choice(x), action)

    def realise(self, choice: nn.Module, ball: Ball, action: Tensor) -> Tensor:
        """The best of the iterates, (B, *obs)."""
        objective = self.objective(choice, action)
        return pgd(objective, ball, steps=self.steps, step_size=self.step_size, start=ball.center)[0]


def lead_of(scores: Tensor, action: Tensor) -> Tensor:
    """The lead of one action's score over the best other, (B, A), (B,) → (B,); 0 where there is no other."""
    if scores.shape[-1] == 1:
        return scores[:, 0] * 0
    own = F.one_hot(action, scores.shape[-1]).bool()
    return scores.masked_fill(~own, 0.0).sum(-1) - scores.masked_fill(own, -math.inf).amax(-1)


# ------------------------------------------------------------------------------------------------------------ the view


def view_size(agent: Agent, shape: tuple[int, ...]) -> int:
    """The number of features that `view` gives for observations of this shape."""
    if len(shape) != 3:
        return math.prod(shape)
    actions = agent.actions.n if isinstance(agent.actions, Discrete) else agent.actions.size
    return shape[0] * min(COARSE, shape[1]) * min(COARSE, shape[2]) + actions


def view(agent: Agent, x: Tensor) -> Tensor:
    """What the adversary sees of prepared observations (B, *obs): (B, features) float32.

    Vectors as they are. Frames as the means of at most 21×21 cells, which keep a small ball visible, and the agent's
    scores divided by their spread, which tell what it is about to do.
    """
    if x.ndim != 4:
        return x.flatten(1).float()
    sides = (min(COARSE, x.shape[2]), min(COARSE, x.shape[3]))
    scores = agent.scores(x)
    scores = (scores - scores.mean(-1, keepdim=True)) / (scores.std(-1, correction=0, keepdim=True) + 1e-6)
    return torch.cat([F.adaptive_avg_pool2d(x, sides).flatten(1), scores], 1).float()
