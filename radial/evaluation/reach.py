"""What bounds say of an agent whatever its actions are: which actions are certified, or how far a mean action can move.

How often an action is certified over whole episodes is in `certificates`; this is also cheap enough to be watched while
an agent is trained.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from radial.bounds.certify import margins, strictly_positive
from radial.bounds.methods import BoundMethod, method
from radial.core.agent import Agent
from radial.core.ball import Ball
from radial.core.data import Continuous, EnvSpec, VecEnv
from radial.evaluation.certificates import Terms, opened
from radial.evaluation.play import Progress, View, check_radius, name_of, play
from radial.evaluation.prover import Prover, ball_of, ranking


def reach_of(agent: Agent, x: Tensor, radius: float, bound: BoundMethod) -> Tensor:
    """How far the mean action can move at most, in its widest coordinate, for observations x (B, *obs): (B,).

    max_j max(U_j − μ_j, μ_j − L_j), with bounds of the mean action μ over the ball. In the policy's own units: what an
    env does with an action beyond its limits is not known here.
    """
    bounds = bound(agent.network, ball_of(agent, x, radius, math.inf))
    mean = agent.scores(x).to(bounds.lower)
    return torch.maximum(bounds.upper - mean, mean - bounds.lower).amax(1)


def faintest(agent: Any, radius: float, width: float = 0.1) -> float:
    """The ε at which IBP's bounds of the scores are `width` wide, on average over noise; at most a hundredth of radius.

    Each layer multiplies the width, so a deep network that was trained without a thought for it feels very little: an
    IMPALA network of FruitBot 2e-11.
    """
    x = torch.rand((8, *agent.observation_shape), generator=torch.Generator().manual_seed(0))
    x = x.to(next(agent.network.parameters()))
    low, high = math.log(radius) - 60, math.log(radius / 100)
    for _ in range(20):
        middle = (low + high) / 2
        with torch.no_grad():
            found = float(method("ibp")(ranking(agent), Ball.unchecked(x, math.exp(middle))).width.mean())
        low, high = (middle, high) if found < width else (low, middle)
    return math.exp(low)


def watching(radius: float, bound: BoundMethod | str = "ibp") -> Callable[[Any, Tensor], dict[str, float]]:
    """A function of an agent and observations x (B, *obs) for a training to log: what is proven there, on average.

    robust/certified  share of the observations whose action nothing in the ball changes; for discrete actions
    robust/reach      how far a mean action can move; for continuous ones

    The fast form of the bounds, up to rounding: it is asked for after every update.
    """
    fast = method(bound)

    @torch.no_grad()
    def watch(agent: Any, x: Tensor) -> dict[str, float]:
        if isinstance(agent.actions, Continuous):
            return {"robust/reach": float(reach_of(agent, x, radius, fast).mean())}
        rows = margins(agent.scores(x))
        bounds = fast(ranking(agent), ball_of(agent, x, radius, math.inf), rows)
        return {"robust/certified": float(strictly_positive(bounds, rows.shape[:2]).float().mean())}

    return watch


@dataclass(frozen=True)
class ActionReach:
    """How far perturbations can move the mean action of an undisturbed agent: what is proven, not what was found.

    mean, largest  over all steps
    """

    terms: Terms
    mean: float
    largest: float
    steps: int
    returns: tuple[float, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values that `json` can write."""
        facts = asdict(replace(self, terms=None)) | {"returns": list(self.returns)}  # type: ignore[arg-type]
        return {"metric": "reach", **self.terms.to_json(), **{k: v for k, v in facts.items() if k != "terms"}}

    def __str__(self) -> str:
        return f"reach {self.mean:.3f}, at most {self.largest:.3f}, at {self.terms.radius:g} ({self.terms.bound})"


def reach(
    agent: Agent,
    env: EnvSpec | VecEnv | str,
    radius: float,
    bound: BoundMethod | str = "ibp",
    episodes: int = 20,
    seed: int = 0,
    *,
    num_envs: int = 20,
    name: str | None = None,
    progress: Progress | None = None,
) -> ActionReach:
    """How far the mean action can move, over undisturbed episodes; for policies with continuous actions.

    env    an id, a spec, or a fresh VecEnv (used up, left open), as for `evaluate`
    bound  ibp, crown-ibp, crown, best (the tightest of them), or a method; ours in their sound form
    """
    check_radius(radius, math.inf)
    prover, found = Prover.of(bound), list[Tensor]()

    @torch.no_grad()
    def choose(view: View) -> Tensor:
        x = agent.prepare(view.obs)
        if bool(view.counts.any()):
            found.append(reach_of(agent, x[view.counts], radius, prover.method))
        return agent.act(x)

    with opened(agent, env, episodes, seed, num_envs, None) as world:
        played = play(world, choose, episodes, progress=progress)
        terms = Terms(
            agent=name or name_of(agent), env=world.spec.id, env_options=dict(world.spec.options),
            engine=dict(world.engine), radius=float(radius), p=math.inf, bound=prover.name,
            arithmetic=prover.arithmetic, valid_range=None, rule="reach", horizon=None,
            seed=int(seed), episodes=int(episodes),
        )  # fmt: skip
    moved = torch.cat(found)
    return ActionReach(terms, float(moved.mean()), float(moved.max()), moved.numel(), played.returns)
