"""From bounds to verdicts: the bound that is believed, the actions an adversary can force, the alarm if a proof fails.

How episodes are played is in `play`; certificates over whole episodes are in `certificates` and `worst_case`.
"""

import math
from dataclasses import dataclass
from numbers import Real
from typing import Literal

import torch
from torch import Tensor

from radial.bounds.certify import certify_action
from radial.bounds.methods import METHODS, BoundMethod, best_of, is_ours, method, method_name, sound
from radial.core.agent import Agent
from radial.core.ball import NORMS, Ball
from radial.core.checks import brief
from radial.core.data import BadInput, Bounds, Discrete, Verdict
from radial.core.radius import Radius, largest
from radial.core.text import nearest
from radial.evaluation.repeatable import check_greedy, prepared, repeated_action, takes_its_best

BEST = "best"  # the tightest of all of METHODS

# How an action is ruled out: "bounds", U_i < max_j L_j, as the paper says; "margins", some score_j − score_i > 0.
Elimination = Literal["bounds", "margins"]


class SoundnessError(RuntimeError):
    """A certificate was refuted: a defect of radial, or a bound method of the caller's that is wrong."""


@dataclass(frozen=True)
class Prover:
    """A bound method in its most careful form, and its name for the record.

    arithmetic  "outward-rounded": true of the network in floating point; "as given": a method of the caller's own
    """

    name: str
    method: BoundMethod
    arithmetic: str

    @classmethod
    def of(cls, bound: BoundMethod | str) -> "Prover":
        """By name (ibp, crown-ibp, crown, or best: the tightest of the three), or a method itself."""
        if isinstance(bound, str) and bound not in METHODS and bound != BEST:
            known = (*METHODS, BEST)
            raise BadInput(f"bound must be one of {', '.join(known)}, got {bound!r}{nearest(bound, known)}")
        found = best_of(*METHODS) if bound == BEST else method(bound)
        name = bound if isinstance(bound, str) else method_name(found)
        return cls(name, sound(found), "outward-rounded") if is_ours(found) else cls(name, found, "as given")


# ------------------------------------------------------------------------------------------------- questions, checked


def check_radius(radius: float, p: float) -> None:
    """Refuse a radius or a norm that is none."""
    if isinstance(radius, bool) or not isinstance(radius, Real) or not (0 <= radius < math.inf):
        raise BadInput(f"radius must be a finite number ≥ 0, got {brief(radius)}")
    check_norm(p)


def check_norm(p: float) -> None:
    """Refuse a norm that is none."""
    if p not in NORMS:
        raise BadInput(f"p must be 1, 2 or inf, got {p!r}")


def check_discrete(agent: Agent) -> None:
    """Refuse an agent with continuous actions: none of them is the largest output of a network."""
    if not isinstance(agent.actions, Discrete):
        use = "for continuous ones use rr.reach or `radial audit`"
        raise BadInput(f"certificates of actions need an agent with discrete actions, got {agent.actions}; {use}")


def check_in_range(agent: Agent, radius: Radius) -> None:
    """Refuse a radius beyond the whole range of valid inputs: it was meant in grey levels."""
    limits, most = agent.valid_range, largest(radius)
    if limits is not None and most > limits[1] - limits[0]:
        inside = f"[{limits[0]:g}, {limits[1]:g}]"
        raise BadInput(f"radius must be in network units: inputs lie in {inside}, got {most:g}; use {most:g}/255")


# ------------------------------------------------------------------------------------------------- actions to be forced


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
class ThreatModel:
    """An adversary that may show an agent any point of a ball, and the bounds that say which actions it can force."""

    agent: Agent
    radius: float
    p: float
    prover: Prover
    rule: Elimination

    def __post_init__(self) -> None:
        if self.rule not in ("bounds", "margins"):
            raise BadInput(f"rule must be bounds or margins, got {self.rule!r}")

    @torch.no_grad()
    def options(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Observations (B, *obs) → the actions with the lowest clean score first, and which of those are possible.

        returns  order (B, A) int64, possible (B, A) bool in that order; the agent's own action always is
        """
        network, x = self.agent.choice, prepared(self.agent, obs)
        ball = self.agent.ball(x, self.radius, self.p)
        scores, action = network(x.clone()), repeated_action(self.agent, x)
        check_greedy(scores, action)
        actions = scores.shape[1]
        if self.rule == "bounds":
            possible = possible_actions(self.prover.method(network, ball))
        else:
            possible = possible_by_margins(self.prover.method(network, ball, all_margins(actions, x)), actions)
        if not bool(possible.gather(1, action.view(-1, 1)).all()):
            raise SoundnessError(f"{self.prover.name} ruled out the very action the agent takes: its bounds are wrong")
        possible = possible | ~takes_its_best(self.agent, ball, action).to(possible.device).unsqueeze(1)
        order = scores.argsort(dim=1, stable=True)
        return order, possible.gather(1, order)


def threat_model(agent: Agent, radius: float, p: float, bound: BoundMethod | str, rule: Elimination) -> ThreatModel:
    """The threat model of a checked question."""
    check_radius(radius, p)
    check_discrete(agent)
    return ThreatModel(agent, float(radius), float(p), Prover.of(bound), rule)


# ------------------------------------------------------------------------------------------------------------ the alarm


def certified_rows(agent: Agent, ball: Ball, prover: Prover) -> Tensor:
    """Rows whose action is certified, (B,) bool: of the network, and the agent does as its network says."""
    found = certify_action(agent.choice, ball, prover.method)
    proven = torch.tensor([verdict is Verdict.CERTIFIED for verdict in found], dtype=torch.bool)
    return proven & takes_its_best(agent, ball, repeated_action(agent, ball.center)) if len(found) else proven


class ProofCheck:
    """Certifies steps of an agent, counts them, and raises if a certified action changes after all.

    calls  batches looked at        steps  rows of them        certified  of these
    """

    def __init__(self, bound: BoundMethod | str | Prover) -> None:
        self.prover = bound if isinstance(bound, Prover) else Prover.of(bound)
        self.calls = self.steps = self.certified = 0

    def verdicts(self, agent: Agent, ball: Ball) -> Tensor:
        """Which rows are certified, (B,) bool; counted."""
        proven = certified_rows(agent, ball, self.prover)
        self.calls += 1
        self.steps += len(proven)
        self.certified += int(proven.sum())
        return proven

    def check(self, agent: Agent, ball: Ball, action: Tensor) -> None:
        """Certify the rows of a ball, and compare with the agent's actions (B,) when it was shown points of it."""
        self.refute(agent.act(ball.center), action, self.verdicts(agent, ball), ball)

    def refute(self, clean: Tensor, shown: Tensor, certified: Tensor, ball: Ball) -> None:
        """Raise `SoundnessError` if an action (B,) changed in a row that is certified."""
        wrong = (certified & (clean != shown).cpu()).nonzero().flatten().tolist()
        if wrong:
            row = wrong[0]
            radius = "per feature" if isinstance(ball.radius, Tensor) else f"{ball.radius:g}"
            raise SoundnessError(
                f"step {self.calls - 1}: {self.prover.name} certified action {int(clean[row])} at radius {radius} "
                f"(p = {ball.p:g}), yet the agent did {int(shown[row])} when attacked inside that ball"
            )
