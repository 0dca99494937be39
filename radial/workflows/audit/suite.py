"""Which attacks an audit runs, in which order, and the alarm if their results do not fit together.

Cheap and strong ones come first, so that a short budget still says something; those that must learn come last.
"""

from collections.abc import Mapping
from typing import Any

from radial.attacks import ATTACKS
from radial.core.data import Discrete
from radial.core.text import spell_radius
from radial.evaluation import statistics

QUICK = ("pgd", "mad", "critic", "random", "fgsm", "pgd-strong")  # the last costs as much as all others
LEARNED = ("transfer", "rs", "rs+mad", "compounding")


def applicable(agent: Any, observation_shape: tuple[int, ...]) -> tuple[list[str], dict[str, str]]:
    """The attacks that can be run against an agent, in order, and why the others cannot."""
    left_out: dict[str, str] = {}
    if not callable(getattr(agent, "value", None)):
        left_out["critic"] = "the agent has no value function"
    for name in LEARNED:
        if len(observation_shape) != 1:
            left_out[name] = "it learns on vectors, not on pictures"
    if not isinstance(agent.actions, Discrete) and getattr(agent, "log_std", None) is None:
        left_out["compounding"] = "it samples the policy, whose spread is not known"
    unknown = [name for name in (*QUICK, *LEARNED) if name not in ATTACKS]
    assert not unknown, unknown
    return [name for name in (*QUICK, *LEARNED) if name not in left_out], left_out


def masking(returns: Mapping[str, tuple[float, ...]], radius: float) -> str | None:
    """A warning if attacks without the network's own gradients do better than plain PGD, episode by episode.

    returns  of each attack at one radius, paired by episode
    """
    if "pgd" not in returns:
        return None
    for name, what in (("random", "random noise"), ("transfer", "an attack on a copy"), ("pgd-strong", "restarts")):
        if name not in returns:
            continue
        gains = [plain - other for plain, other in zip(returns["pgd"], returns[name], strict=True)]
        gain, error = statistics.mean(gains), statistics.sem(gains)
        if gain > max(2 * error, 0.05 * abs(statistics.mean(returns["pgd"]))):
            return (
                f"at ε = {spell_radius(radius)} {what} ({name}) brought the return {gain:.1f} below plain PGD's: "
                "gradients may mislead attacks on this agent, so trust the strongest one only"
            )
    return None
