"""A lower bound of the worst return that grows with the time it is given: best-first search over forced actions.

`worst_case` searches depth first, to be exact in the end; this one always looks where the return could be least, so
that what is proven is as much as possible whenever it is stopped. How an env is copied is in `envs.cloning`.
"""

import heapq
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from radial.core.data import BadInput
from radial.envs.contract import EnvFault
from radial.evaluation.possible import Adversary

if TYPE_CHECKING:
    from radial.envs.cloning import Cloneable

BATCH, PICTURES = 64, 8  # states bounded together: hardly dearer than one
STATES = 20_000


@dataclass(frozen=True)
class Proven:
    """What is known of the worst return from one first state.

    lower     no adversary in the ball can bring the return below this; −inf: nothing is proven
    upper     a sequence of actions that the bounds do not rule out returns this much; inf: none was followed to its
              end. Whether an adversary can force them is another question: this bounds the search, not the worst return
    expanded  states whose possible actions were bounded
    """

    lower: float
    upper: float
    expanded: int

    @property
    def exact(self) -> bool:
        """Whether the search is over: lower = upper is the least return of actions that are not ruled out."""
        return self.lower == self.upper


@dataclass(order=True, slots=True)
class _Open:
    """A state that is not expanded yet, or an end: ordered by the least it can return in all."""

    least: float
    order: int
    total: float
    depth: int
    state: Any
    obs: Tensor | None  # None: the episode is over


def prove(
    adversary: Adversary,
    env: "Cloneable",
    limit: int,
    reward_low: float | None = None,
    *,
    states: int = STATES,
    late: Callable[[], bool] = lambda: False,
) -> Proven:
    """Expand the states that could return least, a batch at a time, until one that ends is among the least.

    env         one that repeats itself after its reset; left open
    limit       steps after which an episode is over in any case
    reward_low  no step pays less; None: unknown, then only a finished search proves anything
    states      at most so many are expanded        late  asked before every batch; True ends the search
    """
    count, expanded, upper = itertools.count(), 0, math.inf
    seen: dict[tuple[bytes, int], float] = {}
    queue = [_Open(_floor(0.0, 0, limit, reward_low), next(count), 0.0, 0, None, env.reset())]
    queue[0].state = env.save()
    size = PICTURES if len(env.observation_shape) > 1 else BATCH
    while queue[0].obs is not None and expanded < states and not late():
        batch: list[_Open] = []
        while queue and queue[0].obs is not None and len(batch) < min(size, states - expanded):
            batch.append(heapq.heappop(queue))
        expanded += len(batch)
        order, possible = adversary.options(torch.stack([node.obs for node in batch if node.obs is not None]))
        for node, actions, allowed in zip(batch, order.tolist(), possible.tolist(), strict=True):
            for action in itertools.compress(actions, allowed):
                child = _step(env, node, action, limit, reward_low, seen, next(count))
                if child is None:
                    continue
                heapq.heappush(queue, child)
                upper = min(upper, child.total) if child.obs is None else upper
    return Proven(queue[0].least, upper, expanded)


def _step(
    env: "Cloneable",
    node: _Open,
    action: int,
    limit: int,
    reward_low: float | None,
    seen: dict[tuple[bytes, int], float],
    order: int,
) -> _Open | None:
    """Where an action leads; None if the same state was reached before with no larger return."""
    env.restore(node.state)
    obs, reward, terminated, truncated = env.step(action)
    if not math.isfinite(reward):
        raise EnvFault(f"{env.spec} gave the reward {reward}")
    if reward_low is not None and reward < reward_low:
        raise BadInput(f"reward_low must be ≤ every reward: it is {reward_low:g}, a step paid {reward:g}")
    total, depth = node.total + reward, node.depth + 1
    if terminated or truncated or depth >= limit:
        return _Open(total, order, total, depth, None, None)
    key = env.fingerprint(), depth
    if seen.get(key, math.inf) <= total:
        return None
    seen[key] = total
    return _Open(_floor(total, depth, limit, reward_low), order, total, depth, env.save(), obs)


def _floor(total: float, depth: int, limit: int, reward_low: float | None) -> float:
    """The least return in all of an episode that goes on: one step comes for sure, the others if they cost."""
    if reward_low is None:
        return -math.inf
    return total + reward_low + (limit - depth - 1) * min(reward_low, 0.0)
