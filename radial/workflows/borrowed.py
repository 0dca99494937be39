"""The settings that a third party trained an agent with, in the words of our configs, where the file says them.

An importer puts them on the card under the names they have there (`recipe["settings"]`); code in a file is not read.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from radial.core.data import BadInput
from radial.recipes.recipe import Config
from radial.runs.config import check_stored
from radial.training.ddpg import DDPGConfig
from radial.training.dqn import DQNConfig
from radial.training.ppo import PPOConfig

# Stable-Baselines3's name → fields of ours. Its DQN learns in bursts, so its counts of updates are not taken.
FIELDS_IN: dict[type, Mapping[str, tuple[str, ...]]] = {
    PPOConfig: {
        "gamma": ("discount",), "gae_lambda": ("lam",), "ent_coef": ("entropy",), "n_epochs": ("epochs",),
        "learning_rate": ("policy_rate", "value_rate"), "clip_range": ("clip",), "max_grad_norm": ("max_grad_norm",),
    },
    DQNConfig: {
        "gamma": ("discount",), "learning_rate": ("rate",), "batch_size": ("batch",),
        "max_grad_norm": ("max_grad_norm",), "exploration_final_eps": ("exploration",),
    },
    DDPGConfig: {
        "gamma": ("discount",), "learning_rate": ("policy_rate", "value_rate"), "batch_size": ("batch",),
        "tau": ("tau",),
    },
}  # fmt: skip
UPDATES = 64  # of PPO at least: a fine-tuning is shorter than a training, so a rollout may have to be, too
ROLLOUT = 1_024  # env steps at least: a smaller one is too noisy an estimate of the worst case
WHOLE = ("n_epochs", "batch_size", "n_steps", "n_envs")


class Borrowed(NamedTuple):
    """A config with settings of a file in it.

    used  the file's name → its value        ours  names that the file does not say in numbers, or that do not fit
    """

    config: Config
    used: Mapping[str, float]
    ours: tuple[str, ...]


def borrow(base: Config, told: Any, steps: int) -> Borrowed:
    """The config with the settings of a file, each only if it is one that the config accepts."""
    names = FIELDS_IN.get(type(base))
    if names is None or not isinstance(told, Mapping):
        return Borrowed(base, {}, ())
    config, used, ours = base, dict[str, float](), list[str]()
    for name, fields in names.items():
        value: Any = told.get(name)
        found = None if value is None else _accepted(config, dict.fromkeys(fields, value), name)
        if found is None:
            ours.append(name)
        else:
            config, used[name] = found, value
    if isinstance(config, PPOConfig):
        config, sizes = _sized(config, told, steps)
        used, ours = used | sizes, ours + [name for name in ("n_steps", "batch_size") if name not in sizes]
    return Borrowed(config, used, tuple(ours))


def _accepted(config: Config, values: Mapping[str, Any], name: str) -> Config | None:
    """The config with these values, or None where it refuses one."""
    number = next(iter(values.values()))
    if isinstance(number, bool) or not isinstance(number, int | float) or (name in WHOLE and number != int(number)):
        return None
    try:
        found: Config = replace(config, **{key: int(number) if name in WHOLE else number for key in values})  # type: ignore[arg-type]
        check_stored(found)
    except BadInput:
        return None
    return found


def _sized(config: PPOConfig, told: Mapping[str, Any], steps: int) -> tuple[PPOConfig, dict[str, float]]:
    """The config with the file's rollout, short enough for `steps`, and its minibatch; and what was taken."""
    n_steps, n_envs, batch = (told.get(name) for name in ("n_steps", "n_envs", "batch_size"))
    used: dict[str, float] = {}
    rollout, minibatch = config.rollout, config.minibatch
    if type(n_steps) is int and n_steps > 0:
        several = n_envs if type(n_envs) is int and n_envs > 0 else 1
        rollout, used["n_steps"] = max(ROLLOUT, min(n_steps * several, steps // UPDATES)), n_steps
    if type(batch) is int and 2 <= batch <= max(rollout, ROLLOUT) // 2:
        minibatch, used["batch_size"] = batch, batch
    rollout = -(-max(rollout, 2 * minibatch) // config.num_envs) * config.num_envs
    try:
        return replace(config, rollout=rollout, minibatch=minibatch), used
    except BadInput:
        return config, {}
