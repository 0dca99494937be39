"""Checks that an agent is what certificates are about: a function, with finite scores, that takes its best action.

Every check raises `BadInput` with one line; `evaluate` asks only whether the scores are finite.
"""

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from radial.bounds.witness import generator_states
from radial.core.agent import Agent
from radial.core.ball import Ball
from radial.core.data import BadInput, Discrete
from radial.envs.contract import EnvFault

if TYPE_CHECKING:
    from radial.envs.cloning import Cloneable

_ALL_TWICE, _ONE_IN = 256, 8  # steps of a search that are taken twice: the first ones, then one of so many
_CLEARLY = 1e-3  # of the largest score: a difference of two scores that no rounding explains


class NotGreedy(BadInput):
    """The agent takes another action than the largest output of the network that is bounded."""


def prepared(agent: Agent, obs: Tensor) -> Tensor:
    """`agent.prepare(obs)`, asked twice, and for one row in another batch: (B, *obs) → (B, *obs)."""
    before, other = generator_states(), obs[:1] if len(obs) > 1 else torch.cat([obs, obs])
    x, again, apart = (agent.prepare(rows.clone()) for rows in (obs, obs, other))
    if before != generator_states():
        raise BadInput("agent.prepare must be a function of the observation: it draws random numbers")
    if not _same(x, again):
        raise BadInput("agent.prepare must be a function of the observation: asked twice, it gave two answers")
    if not _same(x[:1], apart[:1], 1e-5):
        raise BadInput("agent.prepare must treat each observation alone: in another batch it gave another answer")
    return x


def repeated_action(agent: Agent, x: Tensor) -> Tensor:
    """`agent.act(x)` without a generator, asked twice, (B,) or (B, D)."""
    before = generator_states()
    action, again = agent.act(x.clone()), agent.act(x.clone())
    if before != generator_states():
        raise BadInput("agent.act must be deterministic without rng: it draws random numbers")
    if not _same(action, again, 1e-5 if action.is_floating_point() else 0.0):
        raise BadInput("agent.act must be a function of the observation: asked twice, it gave two answers")
    return action


def takes_its_best(agent: Agent, ball: Ball, action: Tensor) -> Tensor:
    """Rows in which the agent's action is the largest output of `agent.choice`, (B,) bool on the CPU.

    Asked at the centre, where it did `action` (B,), and at a corner of the ball. A mask behind the network shows here.
    """
    with torch.no_grad():
        corner = ball.project(ball.sample(torch.Generator().manual_seed(0), "corner"))
        best = agent.choice(ball.center.clone()).argmax(1)
        there = agent.choice(corner.clone()).argmax(1)
        return ((action == best) & (agent.act(corner.clone()) == there)).cpu()


def check_greedy(scores: Tensor, action: Tensor) -> None:
    """Raise `NotGreedy` where an action (B,) is clearly not the largest of the scores (B, A) of `agent.choice`."""
    taken = scores.gather(1, action.view(-1, 1).to(scores.device)).squeeze(1)
    clear = scores.amax(1) - taken > _CLEARLY * scores.abs().amax(1)
    if bool(clear.any()):
        row = int(clear.nonzero()[0])
        raise NotGreedy(
            f"agent.act must take the largest output of agent.choice: it did {int(action[row])} "
            f"where {int(scores[row].argmax())} is larger; no worst case of such an agent is certified"
        )


class Repeats:
    """Watches an env that is saved and restored: one that does not repeat itself certifies nothing."""

    def __init__(self, env: "Cloneable") -> None:
        self.env, self.taken = env, 0

    def check(self, saved: Any, action: int, step: tuple[Tensor, float, bool, bool], depth: int) -> None:
        """Look at a step just taken from a saved state, and take it again: the first ones all, then one in eight.

        step  observation, reward, terminated, truncated
        """
        if not math.isfinite(step[1]):
            raise EnvFault(f"{self.env.spec} gave the reward {step[1]}")
        self.taken += 1
        if self.taken > _ALL_TWICE and self.taken % _ONE_IN:
            return
        mark, before = self.env.fingerprint(), generator_states()
        self.env.restore(saved)
        again = self.env.step(action)
        same = _same(step[0], again[0]) and step[1:] == again[1:] and mark == self.env.fingerprint()
        if not same or before != generator_states():
            raise EnvFault(
                f"{self.env.spec} does not repeat itself: action {action} after {depth} steps, taken twice from the "
                "same saved state, led to two outcomes or drew from a global generator"
            )


def _same(a: Tensor, b: Tensor, tolerance: float = 0.0) -> bool:
    """Whether two answers are equal, NaN included, up to a share of the largest value."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if torch.equal(a, b):
        return True
    close = tolerance * float(a.abs().nan_to_num(0.0, 0.0, 0.0).max()) if tolerance else 0.0
    return bool(((a == b) | ((a != a) & (b != b)) | ((a - b).abs() <= close)).all())


# ---------------------------------------------------------------------------------------------------------- finite


def finite_action(agent: Agent, x: Tensor, rng: torch.Generator | None, who: str, step: int) -> Tensor:
    """`agent.act(x, rng)`, refused if the network's outputs behind it are NaN or infinite.

    −inf is the usual mask of a discrete action, so there some score must be finite, and none NaN or inf.
    """
    action = agent.act(x) if rng is None else agent.act(x, rng)
    # The largest of NaNs is an action like any other, so discrete agents are asked for their scores as well.
    discrete = isinstance(agent.actions, Discrete)
    if not _usable(agent.choice(x) if discrete else action, discrete):
        raise BadInput(f"{who}: the network's outputs are NaN or infinite at step {step}: no action follows")
    return action


def _usable(scores: Tensor, discrete: bool) -> bool:
    if bool(scores.isfinite().all()):
        return True
    return discrete and scores.ndim > 1 and bool(scores.amax(-1).isfinite().all())  # NaN is the largest of all
