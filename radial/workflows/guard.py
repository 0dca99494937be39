"""`rr.guard`: an agent at work, with a verdict on each action before it is taken.

The bounds are in `step_bound`; certificates over whole episodes are in `evaluation`.
"""

import math
import statistics
import time
import warnings
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from radial.agents.foreign import Guarding, WrappedQ, as_agent
from radial.agents.q_agent import QAgent
from radial.bounds.certify import margins, strictly_positive
from radial.bounds.methods import METHODS, method
from radial.core.agent import Agent
from radial.core.checks import is_finite
from radial.core.data import BadInput, Continuous, Verdict
from radial.core.text import nearest
from radial.evaluation.prover import BEST, check_in_range, check_radius
from radial.evaluation.repeatable import check_greedy, prepared, repeated_action, takes_its_best
from radial.workflows.step_bound import StepBound

RULES = ("greedy", "carrl")
ROUNDS = 8  # halvings at most in the search for a radius
FARTHEST = 4.0  # times the radius: where that search ends
REMEMBERED = 10_000  # latencies
RECENT = 15  # bounds by which the time of the next one is judged
Action = int | np.ndarray[Any, Any]
Fallback = Callable[[Any, Action, Verdict], Action]
Found = TypeVar("Found")


@dataclass(frozen=True)
class GuardedStep:
    """One action, and what is known about it.

    action    for the environment: an int, or float32 (D,)
    verdict   CERTIFIED: no perturbation within the guard's radius changes the action (continuous: moves it by more than
              the tolerance). UNKNOWN: not proven, or not in time
    radius    the largest ε found at which that is proven, up to four times the guard's; 0: none
    reach     continuous actions: how far the mean action can move within the guard's radius; None: not known
    fallback  the action is the fallback's
    seconds   until the verdict, the fallback not counted
    """

    action: Action
    verdict: Verdict
    radius: float
    reach: float | None = None
    fallback: bool = False
    seconds: float = 0.0


@dataclass(frozen=True)
class GuardCounts:
    """The steps of a guard so far. late: beyond the budget; latencies in seconds, of the last 10,000 steps."""

    steps: int = 0
    certified: int = 0
    unknown: int = 0
    fallback: int = 0
    late: int = 0
    latency_median: float = 0.0
    latency_p99: float = 0.0
    latency_max: float = 0.0

    def to_json(self) -> dict[str, float]:
        """Plain values that `json` can write."""
        return asdict(self)


def guard(
    agent: Agent,
    radius: float,
    *,
    bound: str | None = None,
    p: float = math.inf,
    budget: float | None = 0.002,
    fallback: Fallback | None = None,
    rule: str = "greedy",
    tolerance: float = 0.1,
    compiled: bool | None = None,
) -> "Guard":
    """A guard: call it with an observation of the environment, and it returns a `GuardedStep`.

    radius     perturbation radius ε in network units; p its norm
    bound      ibp, crown-ibp, crown or best; None: crown for vectors, crown-ibp for frames. Always outward-rounded
    budget     seconds per step. The action comes first, then the verdict, and the search for the certified radius ends
               when time is up; None: any time
    fallback   called with the observation, the action and the verdict where that is not CERTIFIED; returns the action
    rule       "greedy": the agent's own action. "carrl": the action with the best lower bound of Q inside the ball
               (Lütjens et al. 2019), for agents of Q-values
    tolerance  continuous actions: how far the mean action may move, in its widest coordinate
    compiled   the bounds to native code, at the first step or, if the agent's shape is known, now; takes a while.
               None: for vectors, if there is a C++ compiler
    """
    return Guard(
        as_agent(agent), radius, _bounds_named(bound, agent), p, budget, fallback, rule, tolerance, compiled
    )  # fmt: skip


class Guard(Guarding):
    """An agent that says of each action whether it is certified; made by `guard`.

    counts  what it said so far
    rounds  halvings in the search for the certified radius, at most; 0: the verdict alone
    agent   the guarded agent for `rr.evaluate`: with rule "carrl" it acts by that rule, else it is the agent itself
    """

    def __init__(
        self, agent: Agent, radius: float, names: tuple[str, ...], p: float, budget: float | None,
        fallback: Fallback | None, rule: str, tolerance: float, compiled: bool | None,
    ) -> None:  # fmt: skip
        check_radius(radius, p)
        _check(agent, budget, fallback, rule, tolerance)
        check_in_range(agent, radius)
        self.radius, self.p, self.names, self.rule = float(radius), float(p), names, rule
        self.budget, self.fallback, self.tolerance, self.rounds = budget, fallback, tolerance, ROUNDS
        self.agent = agent if rule == "greedy" else CarrlAgent(agent, self.radius, names, self.p)
        self._base, self._continuous = agent, isinstance(agent.actions, Continuous)
        fast = len(agent.observation_shape or (1,)) == 1 if compiled is None else compiled
        self._choice = StepBound(agent.choice, names, p, agent.valid_range, compiled=fast)
        self._values = StepBound(agent.network, names, p, agent.valid_range, compiled=fast)
        self._cost: dict[str, deque[float]] = {}  # seconds of the last bounds, by what is bounded
        self._counts, self._times, self._checked = GuardCounts(), deque[float](maxlen=REMEMBERED), False
        if agent.observation_shape is not None:
            self._begin(np.zeros(agent.observation_shape, dtype=np.float32))

    @property
    def counts(self) -> GuardCounts:
        """The steps so far, and how long they took."""
        times = sorted(self._times)
        if not times:
            return self._counts
        late = times[min(len(times) - 1, math.ceil(0.99 * len(times)) - 1)]
        return replace(
            self._counts, latency_median=statistics.median(times), latency_p99=late, latency_max=times[-1]
        )  # fmt: skip

    def __call__(self, obs: Any) -> GuardedStep:
        """The action for one observation (*obs) of the environment, and the verdict on it."""
        if not self._checked:
            self._begin(obs)
        begun = time.perf_counter()
        with torch.no_grad():
            step = self._step(obs, begun)
        seconds = time.perf_counter() - begun
        certified = step.verdict is Verdict.CERTIFIED
        falls = not certified and self.fallback is not None
        if falls:
            assert self.fallback is not None
            step = replace(step, action=self.fallback(obs, step.action, step.verdict), fallback=True)
        self._times.append(seconds)
        late = self.budget is not None and seconds > self.budget
        before = self._counts
        self._counts = GuardCounts(
            before.steps + 1, before.certified + certified, before.unknown + (not certified), before.fallback + falls,
            before.late + late,
        )  # fmt: skip
        return replace(step, seconds=seconds)

    def acting(self) -> Agent:
        """`agent`, for evaluations and certificates; a guard with a fallback is refused, since that is played nowhere.

        They show an agent prepared observations, and a fallback takes those of the environment.
        """
        if self.fallback is not None:
            raise BadInput("agent must be a guard without a fallback, which is not played here: pass guard.agent")
        return self.agent

    # ----------------------------------------------------------------------------------------------------- one step

    def _step(self, obs: Any, begun: float) -> GuardedStep:
        x = self._base.prepare(_batch(obs))
        if self._continuous:
            return self._continuous_step(x, begun)
        scores = self._base.choice(x)
        action = int(self._base.act(x)[0])
        if self.rule == "carrl" and (lower := self._lower(x, begun)) is not None:
            action = int(lower.argmax())
        elif action != int(scores.argmax()):  # something behind the network decides, and that is not bounded
            return GuardedStep(action, Verdict.UNKNOWN, 0.0)
        if not bool(scores.isfinite().all()):
            return GuardedStep(action, Verdict.UNKNOWN, 0.0)
        # `margins` of the action that was chosen: of the greedy one, or of CARRL's
        rows = margins(torch.nn.functional.one_hot(torch.tensor([action]), scores.shape[1]).to(scores))

        def holds(radius: float) -> bool:
            return bool(strictly_positive(self._choice(x, radius, rows), rows.shape[:2]).all())

        proven, largest = self._search(holds, begun)
        return GuardedStep(action, Verdict.CERTIFIED if proven else Verdict.UNKNOWN, largest)

    def _continuous_step(self, x: Tensor, begun: float) -> GuardedStep:
        mean = self._base.scores(x)
        action = self._base.act(x)[0].cpu().numpy()
        moved: dict[float, float] = {}

        def holds(radius: float) -> bool:
            bounds = self._choice(x, radius)
            ends = torch.maximum(bounds.upper.double() - mean.double(), mean.double() - bounds.lower.double())
            moved[radius] = float(ends.max())
            return moved[radius] <= self.tolerance  # NaN is not

        proven, largest = self._search(holds, begun)
        verdict = Verdict.CERTIFIED if proven else Verdict.UNKNOWN
        return GuardedStep(action, verdict, largest, moved.get(self.radius))

    def _lower(self, x: Tensor, begun: float) -> Tensor | None:
        """Lower bounds of the Q-values, (A,); None: no time for them, or they bound nothing."""
        found = self._timed("values", begun, lambda: self._values(x, self.radius))
        return found.lower[0] if found is not None and bool(found.lower.isfinite().all()) else None

    def _search(self, holds: Callable[[float], bool], begun: float) -> tuple[bool, float]:
        """Whether a claim holds at the guard's radius, and the largest radius at which it does, as far as time goes."""
        proven = self._timed("choice", begun, lambda: holds(self.radius))
        if proven is None:
            return False, 0.0
        low, high = (self.radius, FARTHEST * self.radius) if proven else (0.0, self.radius)
        for _ in range(self.rounds if self.radius > 0 else 0):
            middle = (low + high) / 2
            found = self._timed("choice", begun, partial(holds, middle), more=True)
            if found is None:
                break
            low, high = (middle, high) if found else (low, middle)
        return proven, low

    def _timed(self, what: str, begun: float, ask: Callable[[], Found], *, more: bool = False) -> Found | None:
        """The answer, unless the time that it takes is no longer left.

        more  beyond the verdict: judged by the time it usually takes and not by the least
        """
        now = time.perf_counter()
        cost = self._cost.setdefault(what, deque(maxlen=RECENT))
        expected = 0.0 if not cost else statistics.median(cost) if more else min(cost)
        if self.budget is not None and now + expected > begun + (0.9 if more else 1.0) * self.budget:
            return None
        found = ask()
        cost.append(time.perf_counter() - now)
        return found

    # --------------------------------------------------------------------------------------------------- the checks

    def _begin(self, obs: Any) -> None:
        """Check once that the agent is a function that takes its best action, and compile and time the bounds."""
        agent, budget = self._base, self.budget
        with torch.no_grad():
            x = prepared(agent, _batch(obs))
            action = repeated_action(agent, x)
            if not self._continuous:
                check_greedy(agent.choice(x), action)
                if not bool(takes_its_best(agent, agent.ball(x, self.radius, self.p), action).all()):
                    warnings.warn("the agent does not always take the best action of its network", stacklevel=3)
            self.budget = None
            for _ in range(3):  # checked and compiled; then twice as it will be
                self._cost.clear()
                self._step(obs, time.perf_counter())
            self.budget, self._checked = budget, True
        slowest = max((min(times) for times in self._cost.values()), default=0.0)
        if budget is not None and slowest > budget:
            text = f"a bound takes {1e3 * slowest:.1f} ms, more than the budget of {1e3 * budget:g} ms"
            warnings.warn(f"{text}: every verdict will be unknown", UserWarning, stacklevel=3)


class CarrlAgent(Agent):
    """An agent of Q-values that takes the action with the best lower bound inside the ball around what it sees.

    CARRL, Lütjens et al. 2019: argmax_a min_{s' in the ball} Q(s', a). Attacks see the network of the agent behind it.
    """

    log_std = None

    def __init__(self, agent: Agent, radius: float, names: tuple[str, ...], p: float) -> None:
        self.behind, self.radius, self.p = agent, radius, p
        self._methods = [method(name) for name in names]  # not rounded outward: a rule, not a proof
        self.network, self.actions, self.observation_shape = agent.network, agent.actions, agent.observation_shape
        self.valid_range, self.clips_actions, self.card = agent.valid_range, agent.clips_actions, agent.card

    def prepare(self, obs: Tensor) -> Tensor:
        """As the agent behind it."""
        return self.behind.prepare(obs)

    def scores(self, x: Tensor) -> Tensor:
        """Q-values, (B, A)."""
        return self.behind.scores(x)

    @property
    def choice(self) -> torch.nn.Module:
        """The network of the agent behind it, which decides where the ball is a point."""
        return self.behind.choice

    def lower_bounds(self, x: Tensor) -> Tensor:
        """Lower bounds of the Q-values over the ball around x (B, *obs), (B, A)."""
        with torch.no_grad():
            ball = self.ball(x.detach(), self.radius, self.p)
            found = [bound(self.network, ball).lower for bound in self._methods]
        return torch.stack(found).amax(0)

    def act(self, x: Tensor, rng: torch.Generator | None = None) -> Tensor:
        """The action with the best lower bound, (B,) int64; there is nothing to sample."""
        return self.lower_bounds(x).argmax(-1)

    def units(self) -> Tensor | None:
        """As the agent behind it."""
        return self.behind.units()

    @property
    def name(self) -> str:
        """Of the agent behind it, and the rule."""
        return f"{self.behind.name}, CARRL at {self.radius:g}"


def _bounds_named(bound: str | None, agent: Agent) -> tuple[str, ...]:
    if bound is None:
        shape = getattr(agent, "observation_shape", None) or (1,)
        return ("crown",) if len(shape) == 1 else ("crown-ibp",)
    if bound == BEST:
        return tuple(METHODS)
    if bound not in METHODS:
        known = (*METHODS, BEST)
        raise BadInput(f"bound must be one of {', '.join(known)}, got {bound!r}{nearest(str(bound), known)}")
    return (bound,)


def _check(agent: Agent, budget: float | None, fallback: Fallback | None, rule: str, tolerance: float) -> None:
    if budget is not None and not (is_finite(budget) and budget > 0):
        raise BadInput(f"budget must be seconds > 0 or None, got {budget!r}")
    if fallback is not None and not callable(fallback):
        raise BadInput(f"fallback must be a function of observation, action and verdict, got {fallback!r}")
    if rule not in RULES:
        raise BadInput(f"rule must be one of {', '.join(RULES)}, got {rule!r}{nearest(str(rule), RULES)}")
    if rule == "carrl" and not isinstance(agent, QAgent | WrappedQ):
        raise BadInput(f"rule carrl needs an agent of Q-values, such as one of DQN; got {type(agent).__name__}")
    if not (is_finite(tolerance) and tolerance >= 0):
        raise BadInput(f"tolerance must be a finite number ≥ 0, got {tolerance!r}")


def _batch(obs: Any) -> Tensor:
    """One observation as a batch of one."""
    if isinstance(obs, Tensor):
        return obs.unsqueeze(0)
    return torch.as_tensor(np.asarray(obs)).unsqueeze(0)
