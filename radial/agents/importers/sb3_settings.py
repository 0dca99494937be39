"""The training settings in the `data` of a Stable-Baselines3 file that are plain numbers, for the agent's card.

Schedules are pickled code and never looked at; newer files print a constant one beside it, and that is read.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

SETTINGS = (
    "n_envs", "n_steps", "batch_size", "n_epochs", "gamma", "gae_lambda", "ent_coef", "learning_rate", "clip_range",
    "max_grad_norm", "exploration_final_eps",
)  # fmt: skip
CONSTANT = re.compile(r"ConstantSchedule\(val=([0-9.eE+-]{1,30})\)")


def plain_settings(fields: Mapping[str, Any]) -> dict[str, float]:
    """The settings of `data` that are finite numbers, or constant schedules printed as such."""
    found: dict[str, float] = {}
    for name in SETTINGS:
        value = fields.get(name)
        if isinstance(value, Mapping):
            shown = CONSTANT.fullmatch(str(value.get("value_schedule"))[:80])
            value = _number(shown[1]) if shown else None
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e12:
            found[name] = value
    return found


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
