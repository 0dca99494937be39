"""Losses of a student that learns from a teacher's scores, at a point and in the worst case of bounds.

Not every state matters: where a teacher's actions are almost tied, either will do. So a state weighs as much as its
teacher's choice does there, and where it weighs little the student may settle on an action of its own.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from radial.core.data import Bounds, check_shapes
from radial.losses.policy import Categorical, Gaussian

SHARPNESS = 0.1  # temperature of the teacher's policy, in units of how much its choice matters on average
MOST = 5.0  # weight of a state at most, in the mean 1


class Lesson(NamedTuple):
    """What a teacher says of states: target logits or means (B, A), and the weight of each state (B,)."""

    target: Tensor
    weight: Tensor


def discrete_lesson(scores: Tensor, matters: Tensor) -> Lesson:
    """The lesson of logits or Q-values (B, A).

    matters  (), the mean over many states of max(z) − mean(z): the unit of temperature and weight
    """
    check_shapes(scores, "B A")
    importance = scores.amax(1) - scores.mean(1)
    unit = matters.clamp(min=torch.finfo(scores.dtype).tiny)
    return Lesson(scores / (SHARPNESS * unit), (importance / unit).clamp(max=MOST))


def mattering(scores: Tensor) -> Tensor:
    """Mean over the states of max(z) − mean(z), ()."""
    return (scores.amax(1) - scores.mean(1)).mean()


def imitated(outputs: Tensor, lesson: Lesson) -> Tensor:
    """weight·KL(teacher ‖ softmax(outputs)), (B,)."""
    return lesson.weight * Categorical().divergence(lesson.target, outputs)


def worst_imitated(bounds: Bounds, lesson: Lesson) -> Tensor:
    """The same for the worst outputs inside bounds, (B,): an upper bound, each action at its own worst."""
    return lesson.weight * Categorical().divergence_bound(bounds, lesson.target)


def settled_choice(bounds: Bounds, outputs: Tensor, lesson: Lesson) -> Tensor:
    """(1 − weight)₊·(−log of the least probability of the student's own greedy action), (B,).

    It pulls states that matter little away from the border between two actions, on whichever side they are.
    """
    own = outputs.detach().argmax(1)
    return (1 - lesson.weight).clamp(min=0) * -Categorical().log_prob_bounds(bounds, own).lower


def followed(outputs: Tensor, mean: Tensor, spread: Tensor) -> Tensor:
    """Squared error of mean actions (B, D) in units of the spread (D,) of the teacher's over states; mean over D, (B,).

    outputs  the student's        mean  the teacher's
    """
    check_shapes(outputs, "B D", mean, "B D", spread, "D")
    return Gaussian(spread.log()).divergence(mean, outputs) / mean.shape[1]


def worst_followed(bounds: Bounds, mean: Tensor, spread: Tensor) -> Tensor:
    """The same at the farthest means inside bounds, (B,)."""
    return Gaussian(spread.log()).divergence_bound(bounds, mean) / mean.shape[1]
