"""Which actions an adversary can force on an agent in one state: all that the bounds cannot rule out.

What that does to an episode is in `certificates` and `worst_case`.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from radial.bounds.methods import BoundMethod
from radial.core.agent import Agent
from radial.core.data import BadInput, Bounds
from radial.evaluation.play import check_radius
from radial.evaluation.prover import Prover, SoundnessError, ball_of, ranking

# How an action is ruled out: "bounds", U_i < max_j L_j, as the paper says; "margins", some score_j − score_i > 0.
Rule = Literal["bounds", "margins"]


def possible_actions(bounds: Bounds) -> Tensor:
    """Γ = {i : U_i ≥ max_j L_j}, the actions that bounds (B, A) of the scores cannot rule out, (B, A) bool.

    Step 2 of Algorithms 1 and 2 of the RADIAL paper. A row with NaN, inf or crossed bounds rules out nothing.
    """
    lower, upper = bounds.lower, bounds.upper
    if lower.ndim != 2:
        raise BadInput(f"bounds must be of scores (B, A), got shape {tuple(lower.shape)}")
    proper = (torch.isfinite(lower) & torch.isfinite(upper) & (lower <= upper)).all(1, keepdim=True)
    return (upper >= lower.amax(1, keepdim=True)) | ~proper


def possible_by_margins(bounds: Bounds, actions: int) -> Tensor:
    """The actions i without a j for which score_j − score_i is proven > 0, (B, A) bool.

    bounds  (B, A·A) of the forms of `all_margins`. Tighter than Γ, for a difference is bounded as a whole
    """
    lower, upper = (end.view(-1, actions, actions) for end in (bounds.lower, bounds.upper))
    proper = torch.isfinite(lower) & torch.isfinite(upper) & (lower <= upper)
    return ~((lower > 0) & proper.flatten(1).all(1).view(-1, 1, 1)).any(1)


def all_margins(actions: int, like: Tensor) -> Tensor:
    """The forms e_j − e_i for all pairs (j, i), (1, A·A, A)."""
    eye = torch.eye(actions, dtype=like.dtype, device=like.device)
    return (eye.unsqueeze(1) - eye.unsqueeze(0)).view(1, -1, actions)


@dataclass(frozen=True)
class Adversary:
    """All that can be forced on an agent at one radius: who is attacked, in which ball, proven by what."""

    agent: Agent
    radius: float
    p: float
    prover: Prover
    rule: Rule

    def __post_init__(self) -> None:
        if self.rule not in ("bounds", "margins"):
            raise BadInput(f"rule must be bounds or margins, got {self.rule!r}")

    @torch.no_grad()
    def options(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Observations (B, *obs) → the actions with the lowest nominal score first, and which of those are possible.

        returns  order (B, A) int64, possible (B, A) bool in that order; the agent's own action always is
        """
        network = ranking(self.agent)
        x = self.agent.prepare(obs)
        ball = ball_of(self.agent, x, self.radius, self.p)
        scores = network(x)
        actions = scores.shape[1]
        if self.rule == "bounds":
            possible = possible_actions(self.prover.method(network, ball))
        else:
            possible = possible_by_margins(self.prover.method(network, ball, all_margins(actions, x)), actions)
        if not bool(possible.gather(1, self.agent.act(x).view(-1, 1)).all()):
            raise SoundnessError(f"{self.prover.name} ruled out the very action the agent takes: its bounds are wrong")
        order = scores.argsort(dim=1, stable=True)
        return order, possible.gather(1, order)


def adversary_of(agent: Agent, radius: float, p: float, bound: BoundMethod | str, rule: Rule) -> Adversary:
    """The adversary of a checked question."""
    check_radius(radius, p)
    ranking(agent)
    return Adversary(agent, float(radius), float(p), Prover.of(bound), rule)
