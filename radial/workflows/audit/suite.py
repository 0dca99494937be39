"""Which attacks an audit runs, in which order, and a warning if their results do not fit together.

Cheap and strong ones come first, so that a short budget still says something; those that must learn, or play many
episodes to choose a loss, come last.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from radial.attacks import ATTACKS
from radial.attacks.corners import MOST_FEATURES
from radial.attacks.fitting import spread_known
from radial.core.agent import Agent
from radial.core.data import BadInput
from radial.core.radius import Radius
from radial.core.text import nearest, spell_radius
from radial.evaluation import statistics
from radial.evaluation.play import Aiming
from radial.evaluation.statistics import lowest
from radial.workflows.audit.subject import texts_of

QUICK = ("pgd", "mad", "critic", "random", "fgsm", "corners")
# The last two cost most; an adversary that learns without gradients needs the most steps.
LEARNED = ("transfer", "linear", "paad", "compounding", "rs", "rs+mad", "pgd-strong", "sarl")
ON_VECTORS = ("transfer", "rs", "rs+mad", "compounding", "linear")  # of these
MASKED = 0.05  # of the range of returns
# Which ones climb a loss by the agent's own gradients, step by step; and the others, with and without foresight.
GRADIENT = ("pgd", "pgd-procgen", "pgd-strong", "mad", "critic", "fgsm", "rs", "rs+mad", "compounding")
GRADIENT_FREE = {
    "random": "random noise", "corners": "a search among corners", "transfer": "an attack on a copy",
    "sarl": "an adversary without gradients",
}  # fmt: skip
STEERING = dict.fromkeys(("linear", "paad", "learned"), "an adversary that learned to steer it")
ENVS = 16  # in which an attack learns that does not say
ENVS_OF_FRAMES = 10  # and at most
AUDIT_STEPS = 200_000  # of an adversary that learns, at most


def attacks_of(given: Any) -> list[str] | None:
    """Names of attacks that exist; None: all that apply."""
    if given is None:
        return None
    names = texts_of("attacks", given)
    for name in names:
        if name not in ATTACKS:
            known = [each for each in ATTACKS if each != "none"]
            raise BadInput(f"attack {name!r} cannot be run: known are {', '.join(known)}{nearest(name, known)}")
    return names


def applicable(agent: Agent, observation_shape: tuple[int, ...]) -> tuple[list[str], dict[str, str]]:
    """The attacks that can be run against an agent, in order, and why the others cannot."""
    left_out: dict[str, str] = {}
    if not agent.has_value:
        left_out["critic"] = "the agent has no value function"
    for name in ON_VECTORS:
        if len(observation_shape) != 1:
            left_out[name] = "it learns on vectors, not on pictures"
    if math.prod(observation_shape) > MOST_FEATURES:
        left_out["corners"] = f"it searches among the corners of at most {MOST_FEATURES} numbers"
    if not spread_known(agent):
        left_out["compounding"] = "it samples the policy, whose standard deviation is not known"
    unknown = [name for name in (*QUICK, *LEARNED) if name not in ATTACKS]
    assert not unknown, unknown
    return [name for name in (*QUICK, *LEARNED) if name not in left_out], left_out


def chosen(names: Sequence[str], left_out: dict[str, str], asked: Sequence[str] | None) -> list[str]:
    """Those of the applicable attacks that were asked for, in their order; one that does not apply is refused."""
    if asked is None:
        return list(names)
    for name in asked:
        if name in left_out:
            raise BadInput(f"attack {name!r} cannot be run: {left_out[name]}")
    return [name for name in dict.fromkeys((*names, *ATTACKS)) if name in asked and name != "none"]


def aimed(name: str, radius: Radius, p: float) -> tuple[Any, str]:
    """The attack of this name, for one ball if it learns for one, and the name under which it is kept."""
    made = ATTACKS[name]()
    return (made.aimed(radius, p), f"{name} at {radius!r}") if isinstance(made, Aiming) else (made, name)


def envs_to_fit(attack: Any, agent: Agent) -> int:
    """How many envs an attack learns in; few on frames, where a step costs more."""
    frames = agent.observation_shape is not None and len(agent.observation_shape) > 1
    count = int(getattr(attack, "num_envs", ENVS))
    return min(count, ENVS_OF_FRAMES) if frames else count


def masking(returns: Mapping[str, Mapping[int, float]], radius: Radius, width: float) -> str | None:
    """A warning if an attack without the agent's gradients, or one that learned, beats every gradient attack clearly.

    The best of each kind are compared, on the starts that both finished.

    returns  of each attack at one radius, by the number of the start
    width    of the range in which the return can move
    """
    known = {name: returns[name] for name in GRADIENT if name in returns}
    if not known:
        return None
    best = lowest(known)
    for others, why in (
        (GRADIENT_FREE, "this agent may mask its gradients"),
        (STEERING, "those look no further than one step"),
    ):
        found = {name: returns[name] for name in others if name in returns}
        rival = lowest(found) if found else best
        gain = statistics.gains(returns[best], returns[rival])
        if gain and statistics.mean(gain) > max(2 * statistics.sem(gain), MASKED * width):
            return (
                f"at ε = {spell_radius(radius)} the return under {others[rival]} ({rival}) is "
                f"{statistics.mean(gain):.1f} below that under the best gradient attack ({best}): {why}, so trust the "
                "strongest attack only"
            )
    return None
