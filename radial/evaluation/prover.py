"""What an adversary may show an agent, which network decides, which bound is believed, and the alarm if one is wrong.

How episodes are played is in `episodes`, what the bounds say about them in `certificates` and `worst_case`.
"""

import warnings
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from radial.bounds.certify import certify_action
from radial.bounds.methods import METHODS, BoundMethod, best_of, is_ours, method, method_name, sound
from radial.core.agent import Agent
from radial.core.ball import Ball
from radial.core.data import BadInput, Discrete, Verdict
from radial.core.text import nearest

BEST = "best"  # the tightest of all of METHODS


class SoundnessError(RuntimeError):
    """What was proven impossible has happened: a defect of radial, or a bound method of the caller's that is wrong."""


@dataclass(frozen=True)
class Prover:
    """A bound method in its most careful form, and what to call it in a result.

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


def ranking(agent: Agent) -> nn.Module:
    """The network whose largest output is the action: the agent's `choice` if it has one, else its `network`."""
    actions = getattr(agent, "actions", None)
    if not isinstance(actions, Discrete):
        if actions is None:
            raise BadInput(f"agent must be an agent, as rr.load and rr.wrap give, got {agent!r}")
        use = "for continuous ones use rr.reach or `radial audit`"
        raise BadInput(f"certificates of actions need an agent with discrete actions, got {actions}; {use}")
    choice = getattr(agent, "choice", None)
    return agent.network if choice is None else choice


def valid_range(agent: Agent) -> tuple[float, float] | None:
    """The values an observation can take at all, in network units; None: any."""
    return getattr(agent, "valid_range", None)


def ball_of(agent: Agent, x: Tensor, radius: float, p: float) -> Ball:
    """Everything that may be shown in place of x (B, *obs): the ball, cut to the agent's valid range."""
    low, high = valid_range(agent) or (None, None)
    return Ball(x, radius, p, low, high)


def doubt(agent: Agent, radius: float) -> str | None:
    """What is odd about a radius, in one line: it covers the whole valid range, so it may be meant in pixels."""
    limits = valid_range(agent)
    if limits is None or radius <= limits[1] - limits[0]:
        return None
    return f"radius {radius:g} on inputs in [{limits[0]:g}, {limits[1]:g}]: did you mean {radius:g}/255?"


def warn_of_pixels(agent: Agent, radius: float) -> None:
    """Say what `doubt` says, as a warning to the caller of the caller."""
    text = doubt(agent, radius)
    if text is not None:
        warnings.warn(text, UserWarning, stacklevel=3)


class Audit:
    """Watches steps of an agent: counts those whose action is certified, and raises if one of them changes after all.

    calls  batches looked at        steps  rows of them        certified  of these, proven
    """

    def __init__(self, bound: BoundMethod | str) -> None:
        self.prover = Prover.of(bound)
        self.calls = self.steps = self.certified = 0

    def verdicts(self, agent: Agent, ball: Ball) -> Tensor:
        """Which rows are certified, (B,) bool; counted."""
        found = certify_action(ranking(agent), ball, self.prover.method)
        self.calls += 1
        self.steps += len(found)
        self.certified += found.count(Verdict.CERTIFIED)
        return torch.tensor([verdict is Verdict.CERTIFIED for verdict in found], dtype=torch.bool)

    def check(self, agent: Agent, ball: Ball, action: Tensor) -> None:
        """Certify the rows of a ball, and compare with what the agent did, (B,), when shown points of it."""
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
