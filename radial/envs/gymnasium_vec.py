"""The adapter from `gymnasium.vector.VectorEnv` to `VecEnv`, and vector envs built from Gymnasium's registry.

Every backend so far is a Gymnasium vector env and goes through this adapter. Which env belongs to which suite is in
`make`.
"""

import importlib
import importlib.util
import os
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from torch import Tensor

from radial.core.data import BadInput, Continuous, Discrete, EnvSpec, Step
from radial.envs.contract import (
    EnvFault,
    actions_of,
    as_flags,
    as_rewards,
    check_observations,
    check_one_step,
    check_reset_rows,
    faults_named,
    native_action,
    observation_shape,
)
from radial.envs.watchdog import Watchdog


class GymnasiumVec:
    """N environments of any Gymnasium vector env that resets itself on the step after an episode's end.

    native   Its `metadata["autoreset_mode"]` must be NEXT_STEP. SAME_STEP cannot be converted: such an env has begun
             the next episode already, and the row that should only show its first observation would be a transition
    seeds    one for each env, given at `reset`; None: the native env was seeded when it was made
    engine   backend, version, simulator
    timeout  seconds one native call may take; None: any time
    clip_reward  learn from the reward clipped to ±1; the score stays unclipped
    steps    transitions so far over all envs; reset rows do not count
    """

    def __init__(
        self,
        native: VectorEnv[Any, Any, Any],
        spec: EnvSpec,
        *,
        engine: Mapping[str, str],
        seeds: Sequence[int] | None = None,
        timeout: float | None = 60.0,
        clip_reward: bool = False,
    ) -> None:
        mode = native.metadata.get("autoreset_mode")
        if mode is not AutoresetMode.NEXT_STEP:
            raise BadInput(f"autoreset_mode of {spec} must be NEXT_STEP, got {getattr(mode, 'name', mode)}")
        self.spec = spec
        self.num_envs = int(native.num_envs)
        self.observation_shape = observation_shape(native.single_observation_space)
        self.actions = actions_of(native.single_action_space)
        self.engine = engine
        self.steps = 0
        self._name = str(spec)
        self._native = native
        self._native_dtype = torch.from_numpy(np.empty(0, native.single_action_space.dtype)).dtype
        self._seeds = seeds
        self._clip_reward = clip_reward
        self._calls = 0
        self._ended: np.ndarray[Any, np.dtype[np.bool_]] | None = None  # whose episode ended at the last step
        self._closed = False
        self._pid = os.getpid()
        self._watchdog: AbstractContextManager[None] = nullcontext()
        if timeout is not None:
            watchdog = Watchdog(timeout, f"a step or reset of {spec}")
            self._watchdog = watchdog
            weakref.finalize(self, watchdog.stop)

    def reset(self) -> Tensor:
        """The first observations (N, *obs). Once, before the first step."""
        self._check_alive()
        if self._ended is not None:
            raise RuntimeError(f"{self.spec} was reset already; it resets itself, or make a new one")
        seeds: Any = (
            None if self._seeds is None else list(self._seeds)
        )  # Gymnasium annotates an int; its envs take both
        with self._watchdog, faults_named(f"reset of {self._name}"):
            obs, _ = self._native.reset(seed=seeds)
        self._ended = np.zeros(self.num_envs, dtype=np.bool_)
        return self._observations(obs, "reset")

    def step(self, action: Tensor) -> Step:
        """Act in every env: (N,) integers or (N, D) floats, refused if malformed or not finite."""
        self._check_alive()
        if self._ended is None:
            raise RuntimeError(f"reset {self.spec} before the first step")
        native = native_action(action, self.actions, self.num_envs, self._native_dtype)
        self._calls += 1
        when = f"step {self._calls} of {self._name}"
        with self._watchdog, faults_named(when):
            obs, given, ends, cuts, _ = self._native.step(native)
        # Native envs may hand out their own memory, so everything is copied.
        observations = self._observations(obs, when)
        reward = as_rewards(given, self.num_envs, when)
        terminated = as_flags("terminated", ends, self.num_envs, when)
        truncated = as_flags("truncated", cuts, self.num_envs, when)
        reset, self._ended = self._ended, terminated | truncated
        check_reset_rows(reset, reward, self._ended, when)
        self.steps += self.num_envs - int(np.count_nonzero(reset))
        return Step(
            obs=observations,
            reward=torch.from_numpy(reward.clip(-1, 1) if self._clip_reward else reward.copy()),
            score=torch.from_numpy(reward),
            terminated=torch.from_numpy(terminated),
            truncated=torch.from_numpy(truncated),
            real=torch.from_numpy(~reset),
        )

    def close(self) -> None:
        """Free the simulators; twice is fine."""
        if self._closed or os.getpid() != self._pid:
            return
        self._closed = True
        if isinstance(self._watchdog, Watchdog):
            self._watchdog.stop()
        self._native.close()

    def _observations(self, obs: object, when: str) -> Tensor:
        if not isinstance(obs, np.ndarray):
            raise EnvFault(f"observations of type {type(obs).__name__} instead of an array at {when}")
        check_observations(obs, (self.num_envs, *self.observation_shape), when)
        return torch.from_numpy(obs.copy())

    def _check_alive(self) -> None:
        if self._closed:
            raise RuntimeError(f"{self.spec} is closed; make a new one")
        if os.getpid() != self._pid:
            raise RuntimeError(
                f"{self.spec} belongs to process {self._pid}, and the threads of its simulator do not survive a fork; "
                "start processes with spawn and make the env there"
            )


class OneEnv(NamedTuple):
    """The spaces of one env, as those of a vector env."""

    spec: EnvSpec
    observation_shape: tuple[int, ...]
    actions: Discrete | Continuous


Accept = Callable[[OneEnv], None]


class _Checked(gymnasium.Wrapper[Any, Any, Any, Any]):
    """One env whose rewards and ends are of the right types."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        check_one_step(reward, terminated, truncated)
        return obs, reward, terminated, truncated, info


def make_gymnasium(
    spec: EnvSpec,
    options: Mapping[str, bool | int | float | str],
    seeds: Sequence[int],
    timeout: float | None,
    accept: Accept | None = None,
) -> GymnasiumVec:
    """One env per seed, stepped one after the other, from Gymnasium's registry.

    options  of `gymnasium.make`
    accept   refuses the spaces of the first env, before the others are made
    """
    keywords: dict[str, Any] = {**options, "disable_env_checker": True}  # it would forbid actions beyond the box

    def make() -> gymnasium.Env[Any, Any]:
        return _Checked(gymnasium.make(spec.id, **keywords))

    with quiet_about_age(spec.id):
        with _making(spec):
            first = make()
        try:
            one = OneEnv(spec, observation_shape(first.observation_space), actions_of(first.action_space))
            if accept is not None:
                accept(one)
        except BaseException:
            first.close()
            raise
        with _making(spec):
            makers = [lambda: first, *[make] * (len(seeds) - 1)]
            native = SyncVectorEnv(makers, copy=False, autoreset_mode=AutoresetMode.NEXT_STEP)
    engine = {"backend": "gymnasium", "version": gymnasium.__version__, "simulator": simulator_of(native.envs[0])}
    return GymnasiumVec(native, spec, engine=engine, seeds=seeds, timeout=timeout)


@contextmanager
def _making(spec: EnvSpec) -> Iterator[None]:
    """Tell options that an env refuses, and packages that it misses, from an env that cannot be made at all."""
    try:
        yield
    except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
        raise BadInput(f"{spec} needs a package that is missing: {_remedy(spec, error)}") from error
    except (TypeError, ValueError, LookupError, AssertionError, gymnasium.error.Error) as error:
        raise BadInput(f"{spec} cannot be made with these options: {_line(error)}") from error
    except MemoryError:
        raise
    except Exception as error:
        raise EnvFault(f"{spec} cannot be made: {_line(error)}") from error


def _remedy(spec: EnvSpec, error: Exception) -> str:
    """The pip line for a missing package, where it is ours to know."""
    if spec.suite == "mujoco" and "backend" not in spec.options:
        return "pip install 'radial-rl[mujoco]' or pip install 'radial-rl[envpool]'"
    return "pip install 'radial-rl[mujoco]'" if "mujoco" in str(error).lower() else _line(error)


def _line(error: Exception) -> str:
    return f"{type(error).__name__} {error}".splitlines()[0]


def simulator_of(env: gymnasium.Env[Any, Any]) -> str:
    """The package that computes the physics, with its version if it is an installed one."""
    module = type(env.unwrapped).__module__
    package = "mujoco" if ".mujoco." in module else module.split(".")[0]
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return package


@contextmanager
def quiet_about_age(env_id: str) -> Iterator[None]:
    """Silence warnings about old versions and old model attributes while the env `env_id` is made; pass on all others.

    The paper's numbers belong to -v4. MuJoCo would also append the message to a file in the working directory.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*is out of date", category=DeprecationWarning)
        if "mujoco" not in str(gymnasium.spec(env_id).entry_point) or importlib.util.find_spec("mujoco") is None:
            yield
            return
        mujoco = importlib.import_module("mujoco")
        before = mujoco.get_mju_user_warning()
        mujoco.set_mju_user_warning(_pass_on)
        try:
            yield
        finally:
            mujoco.set_mju_user_warning(before)


def _pass_on(message: str) -> None:
    if "deprecated" not in message:
        warnings.warn(message, UserWarning, stacklevel=2)
