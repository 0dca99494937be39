"""How far a mean action can move, certified over episodes; and robustness cheap enough to be logged while training.

The certificates of discrete actions over whole episodes are in `certificates`.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from radial.agents.foreign import as_agent
from radial.bounds.certify import margins, strictly_positive
from radial.bounds.methods import BoundMethod, method
from radial.core.agent import Agent
from radial.core.ball import Ball
from radial.core.data import Continuous, EnvSpec, VecEnv
from radial.core.text import round_up
from radial.evaluation.certificates import Terms, evaluation_env
from radial.evaluation.play import Progress, View, play
from radial.evaluation.prover import Prover, check_discrete, check_radius
from radial.evaluation.repeatable import prepared, repeated_action


def reach_of(agent: Agent, x: Tensor, radius: float, bound: BoundMethod) -> Tensor:
    """How far the mean action can move at most, in its widest coordinate, for observations x (B, *obs): (B,).

    max_j max(U_j − μ_j, μ_j − L_j), with bounds of the mean action μ over the ball. In the policy's own units: how an
    env treats an action beyond its limits is not known here.
    """
    bounds = bound(agent.choice, agent.ball(x, radius))
    mean = agent.scores(x).to(bounds.lower)
    return torch.maximum(bounds.upper - mean, mean - bounds.lower).amax(1)


def faintest(agent: Agent, radius: float, width: float = 0.1) -> float:
    """The ε at which IBP's bounds of the scores are `width` wide, on average over noise; at most a hundredth of radius.

    Each layer multiplies the width, so the bounds of a deep network that was not trained for them blow up at a tiny ε:
    of an IMPALA network of FruitBot at 2e-11.
    """
    check_discrete(agent)
    assert agent.observation_shape is not None
    x = torch.rand((8, *agent.observation_shape), generator=torch.Generator().manual_seed(0))
    x = x.to(next(agent.network.parameters()))
    low, high = math.log(radius) - 60, math.log(radius / 100)
    for _ in range(20):
        middle = (low + high) / 2
        with torch.no_grad():
            found = float(method("ibp")(agent.choice, Ball.unchecked(x, math.exp(middle))).width.mean())
        low, high = (middle, high) if found < width else (low, middle)
    return math.exp(low)


def watching(radius: float, bound: BoundMethod | str = "ibp") -> Callable[[Agent, Tensor], dict[str, float]]:
    """A function of an agent and observations x (B, *obs) for a training to log: certified robustness, on average.

    robust/certified  share of the observations whose action nothing in the ball changes; for discrete actions
    robust/reach      how far a mean action can move; for continuous ones

    The fast form of the bounds, up to rounding: it is computed after every update.
    """
    fast = method(bound)

    @torch.no_grad()
    def watch(agent: Agent, x: Tensor) -> dict[str, float]:
        if isinstance(agent.actions, Continuous):
            return {"robust/reach": float(reach_of(agent, x, radius, fast).mean())}
        rows = margins(agent.scores(x))
        bounds = fast(agent.choice, agent.ball(x, radius), rows)
        return {"robust/certified": float(strictly_positive(bounds, rows.shape[:2]).float().mean())}

    return watch


@dataclass(frozen=True)
class ActionReach:
    """How far perturbations can move the mean action along clean episodes: a certificate, not the result of an attack.

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
        mean, most = round_up(self.mean, 3), round_up(self.largest, 3)
        return f"reach {mean}, at most {most}, at {self.terms.radius:g} ({self.terms.bound})"


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
    """How far the mean action can move, over clean episodes; for policies with continuous actions.

    env    an id, a spec, or a fresh VecEnv (used up, left open), as for `evaluate`
    bound  ibp, crown-ibp, crown, best (the tightest of them), or a method; ours in their sound form
    """
    agent = as_agent(agent)
    check_radius(radius, math.inf)
    prover, found = Prover.of(bound), list[Tensor]()

    @torch.no_grad()
    def choose(view: View) -> Tensor:
        x = prepared(agent, view.obs)
        if bool(view.counts.any()):
            found.append(reach_of(agent, x[view.counts], radius, prover.method))
        return repeated_action(agent, x)

    with evaluation_env(agent, env, episodes, seed, num_envs, None) as world:
        played = play(world, choose, episodes, progress=progress)
        terms = Terms(
            agent=name or agent.name, env=world.spec.id, env_options=dict(world.spec.options),
            engine=dict(world.engine), radius=float(radius), p=math.inf, bound=prover.name,
            arithmetic=prover.arithmetic, valid_range=None, rule="reach", horizon=None,
            seed=int(seed), episodes=int(episodes),
        )  # fmt: skip
    moved = torch.cat(found)
    return ActionReach(terms, float(moved.mean()), float(moved.max()), moved.numel(), played.returns)
