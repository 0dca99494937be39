"""The contract of an environment: its spaces, the actions it takes, the observations and rewards it may give.

Nothing here steps anything.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from radial.core.checks import brief
from radial.core.data import BadInput, Continuous, Discrete

Array = NDArray[np.generic]

OBSERVATION_DTYPES = tuple(np.dtype(name) for name in ("float32", "float64", "uint8", "int32", "int64"))
NUMBERS = "fiub"  # kinds of NumPy's types
PLAIN_NUMBERS, PLAIN_FLAGS = frozenset((float, int, np.float64, np.float32)), frozenset((bool, np.bool_))
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


class EnvFault(RuntimeError):
    """An environment gave something that is no observation, reward or end; the message says which env and when."""


def observation_shape(space: gymnasium.Space[object]) -> tuple[int, ...]:
    """The shape of one observation: a vector or an image, of a type torch knows."""
    if isinstance(space, gymnasium.spaces.Box) and 1 <= len(space.shape) <= 3 and space.dtype in OBSERVATION_DTYPES:
        return space.shape
    raise BadInput(f"observation space must be a Box of 1 to 3 axes of float, uint8 or int, got {space}")


def actions_of(space: gymnasium.Space[object]) -> Discrete | Continuous:
    """The actions of one env: 0 … n − 1, or vectors."""
    if isinstance(space, gymnasium.spaces.Discrete) and space.start == 0:
        return Discrete(int(space.n))
    if isinstance(space, gymnasium.spaces.Box) and len(space.shape) == 1 and space.dtype in (np.float32, np.float64):
        bounded = bool(np.isfinite(space.low).all() and np.isfinite(space.high).all())
        limits = (tuple(space.low.tolist()), tuple(space.high.tolist())) if bounded else (None, None)
        return Continuous(space.shape[0], *limits)
    raise BadInput(f"action space must be Discrete from 0 or a Box with one axis of floats, got {space}")


def native_action(action: Tensor, actions: Discrete | Continuous, num_envs: int, dtype: torch.dtype) -> Array:
    """The action as the simulator takes it; refused if malformed, because simulators hang on it or read past the end.

    action   (N,) integers in 0 … n − 1, or (N, D) finite floats. Not clipped to the box: the simulator clamps the
             control, the control cost sees the raw action
    dtype    of the simulator's actions
    """
    if not isinstance(action, Tensor):
        raise BadInput(f"action must be a tensor, got {type(action).__name__}")
    shape = (num_envs,) if isinstance(actions, Discrete) else (num_envs, actions.size)
    if action.shape != shape:
        raise BadInput(f"action must have shape {shape}, got {tuple(action.shape)}")
    if isinstance(actions, Discrete):
        if action.dtype not in INTEGERS:
            raise BadInput(f"action must be of an integer type, got {action.dtype}")
        index: Array = action.to("cpu", torch.int64).numpy()
        if index.min() < 0 or index.max() >= actions.n:
            raise BadInput(f"action must be in 0 … {actions.n - 1}, got {index.min()} … {index.max()}")
        return index if dtype is torch.int64 else action.to("cpu", dtype).numpy()
    if not action.dtype.is_floating_point:
        raise BadInput(f"action must be of a floating type, got {action.dtype}")
    vector: Array = action.detach().to("cpu", dtype).numpy()
    finite = np.isfinite(vector)  # after the conversion, which may overflow
    if not finite.all():
        raise BadInput(f"action must be finite, got NaN or inf for env {_first_row(~finite)}")
    return vector


def check_observations(obs: Array, shape: tuple[int, ...], when: str) -> None:
    """Raise `EnvFault` unless `obs` is (N, *obs) and finite."""
    if obs.shape != shape:
        raise EnvFault(f"observations of shape {obs.shape} instead of {shape} at {when}")
    if obs.dtype.kind == "f" and not np.isfinite(obs).all():
        raise EnvFault(f"env {_first_row(~np.isfinite(obs))} gave an observation with NaN or inf at {when}")


def check_rewards(reward: Array, num_envs: int, when: str) -> None:
    """Raise `EnvFault` unless `reward` is (N,) and finite."""
    if reward.shape != (num_envs,):
        raise EnvFault(f"rewards of shape {reward.shape} instead of {(num_envs,)} at {when}")
    if not np.isfinite(reward).all():
        row = _first_row(~np.isfinite(reward))
        raise EnvFault(f"env {row} gave the reward {reward[row]} at {when}")


def as_rewards(reward: object, num_envs: int, when: str) -> NDArray[np.float32]:
    """The rewards (N,), copied; `EnvFault` unless they are finite numbers."""
    given = np.asarray(reward)
    if given.dtype.kind not in NUMBERS:
        raise EnvFault(f"rewards of type {given.dtype} instead of numbers at {when}")
    rewards = np.array(given, dtype=np.float32)
    check_rewards(rewards, num_envs, when)
    return rewards


def as_flags(name: str, flags: object, num_envs: int, when: str) -> NDArray[np.bool_]:
    """`terminated` or `truncated` (N,), copied; `EnvFault` unless each is true or false."""
    given = np.asarray(flags)
    if not is_true_or_false(given):
        raise EnvFault(f"{name} of type {given.dtype} instead of true or false at {when}")
    if given.shape != (num_envs,):
        raise EnvFault(f"{name} of shape {given.shape} instead of {(num_envs,)} at {when}")
    return np.array(given, dtype=np.bool_)


def is_true_or_false(given: Array) -> bool:
    """Whether all entries are booleans, or integers that are 0 or 1."""
    return given.dtype.kind == "b" or (given.dtype.kind in "iu" and bool(((given == 0) | (given == 1)).all()))


def check_one_step(reward: object, terminated: object, truncated: object) -> None:
    """Raise `EnvFault` unless one env gave a number and two flags; vector envs take "1" for 1 and None for False."""
    if type(reward) in PLAIN_NUMBERS and type(terminated) in PLAIN_FLAGS and type(truncated) in PLAIN_FLAGS:
        return  # at every step of every env: quickly
    given = np.asarray(reward)
    if given.size != 1 or given.dtype.kind not in NUMBERS:
        raise EnvFault(f"the reward must be a number, got {brief(reward)}")
    for name, flag in (("terminated", np.asarray(terminated)), ("truncated", np.asarray(truncated))):
        if flag.size != 1 or not is_true_or_false(flag):
            raise EnvFault(f"{name} must be true or false, got {brief(flag.tolist())}")


@contextmanager
def faults_named(when: str) -> Iterator[None]:
    """Turn whatever an env raises into an `EnvFault` that says which env and when."""
    try:
        yield
    except EnvFault as error:
        raise EnvFault(f"{error} at {when}") from error
    except (BadInput, MemoryError):
        raise
    except Exception as error:
        raise EnvFault(
            f"the env raised {type(error).__name__} at {when}: {' '.join(str(error).split())[:300]}"
        ) from error


def check_reset_rows(reset: NDArray[np.bool_], reward: Array, ended: NDArray[np.bool_], when: str) -> None:
    """Raise `EnvFault` unless the rows (N,) that must be resets look like resets: reward 0, no end."""
    wrong = reset & ((reward != 0) | ended)
    if wrong.any():
        raise EnvFault(f"env {_first_row(wrong)} did not reset itself at {when}, the step after its episode ended")


def _first_row(wrong: NDArray[np.bool_]) -> int:
    """The first env with anything wrong."""
    return int(wrong.reshape(len(wrong), -1).any(axis=1).argmax())
