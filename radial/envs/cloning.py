"""Environments that can be saved and restored exactly, for a search over trajectories: Atari and classic control.

One env at a time, no autoreset; the search itself is in `evaluation`.
"""

import hashlib
import weakref
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import gymnasium
import numpy as np
import torch
from torch import Tensor

from radial.core.checks import is_whole
from radial.core.data import BadInput, Discrete, EnvSpec
from radial.envs.atari import Games, ale_engine, picture_of
from radial.envs.atari_frames import DEFAULT_PRESET, GAMES, PRESETS
from radial.envs.atari_pools import LastThree, Single
from radial.envs.contract import actions_of, observation_shape
from radial.envs.gymnasium_vec import quiet_about_age, simulator_of
from radial.envs.make import MAKING, suite_of
from radial.envs.watchdog import Watchdog, watched

_ROW = np.arange(1)


class Cloneable(Protocol):
    """One environment whose state can be taken out and put back; reset it first.

    engine   backend, version, simulator
    horizon  the most steps of an episode; None: nothing but the game ends it
    """

    spec: EnvSpec
    engine: Mapping[str, str]
    observation_shape: tuple[int, ...]
    actions: Discrete
    horizon: int | None

    def reset(self) -> Tensor:
        """The first observation (*obs) of a new episode."""

    def step(self, action: int) -> tuple[Tensor, float, bool, bool]:
        """Observation (*obs), the env's own reward (`Step.score`), terminated, truncated."""

    def save(self) -> Any:
        """Everything the future depends on. Opaque; a saved state stays as it is."""

    def restore(self, state: Any) -> None:
        """Back to a saved state of this env, or of another one of the same spec."""

    def fingerprint(self) -> bytes:
        """16 bytes, equal for two states if and only if their observations and all their futures are equal.

        Up to a collision of the hash, and up to differences of an emulator that never show.
        """

    def close(self) -> None:
        """Free the simulator."""


def make_cloneable(spec: EnvSpec, seed: int, timeout: float | None = 60.0) -> Cloneable:
    """One env of suite atari or of Gymnasium's classic control, with discrete actions; the seed makes its stream.

    timeout  seconds that a step or reset may take before the process is ended, as with `make_env`; making it may take
             five times as long; None: any time
    """
    if not is_whole(seed, 0) or seed >= 2**31:
        raise BadInput(f"seed must be an integer in 0 … 2³¹ − 1, got {seed!r}")
    suite_of(spec)
    with watched(None if timeout is None else MAKING * timeout, f"making {spec}"):
        if spec.suite == "atari":
            return CloneableAtari(spec, seed, timeout)
        if spec.suite in ("classic", "gymnasium") and _is_classic(spec.id):
            return CloneableClassic(spec, seed, timeout)
    raise BadInput(f"{spec} cannot be cloned; use suite atari or classic control, such as CartPole-v1 or Acrobot-v1")


class CloneableAtari:
    """A game on one emulator, with the frames, presses and lives of the vector env."""

    def __init__(self, spec: EnvSpec, seed: int, timeout: float | None = None) -> None:
        preset = PRESETS[str(spec.options.get("preset", DEFAULT_PRESET))]
        if preset.stack > 1 or spec.options.get("backend") == "envpool":
            raise BadInput(f"{spec} cannot be cloned; use backend ale and preset radial-dqn or radial-a3c")
        if spec.options.get("random_start", 0):
            raise BadInput(f"{spec} cannot be cloned; use random_start 0")
        picture, buttons = picture_of(spec)
        self._single = Single(GAMES[spec.id], seed, picture)
        self._three = LastThree(self._single, 1) if picture.skip == 1 else None
        self._games = Games(spec, self._three or self._single, buttons, [seed])
        self._obs = torch.empty(0)
        self._ended = True
        self._watchdog = _watchdog(self, spec, timeout)
        self.spec = spec
        self.engine: Mapping[str, str] = ale_engine(spec)
        self.observation_shape = self._games.observation_shape
        self.actions = Discrete(self._games.actions)
        self.horizon: int | None = self._games.limit

    def reset(self) -> Tensor:
        """A new game after 1 … 30 no-ops, or with `episodic_life` the next life."""
        with self._watchdog:
            obs = self._games.begin(_ROW)
        self._obs, self._ended = torch.from_numpy(obs[0]), False
        return self._obs.clone()

    def step(self, action: int) -> tuple[Tensor, float, bool, bool]:
        """Press for four frames."""
        _check_step(self.spec, action, self.actions, self._ended)
        with self._watchdog:
            obs, score, terminated, truncated = self._games.act(_ROW, np.array([action]))
        self._obs, self._ended = torch.from_numpy(obs[0]), bool(terminated[0] | truncated[0])
        return self._obs.clone(), float(score[0]), bool(terminated[0]), bool(truncated[0])

    def save(self) -> Any:
        """The emulator and all that is around it: frames, steps, lives."""
        games = self._games
        around = (games.elapsed.copy(), games.lives.copy(), games.lost.copy())
        return self._single.save(), self._three and self._three.save(), around, self._obs, self._ended

    def restore(self, state: Any) -> None:
        """All of it back."""
        single, three, around, self._obs, self._ended = state
        self._single.restore(single)
        if self._three is not None:
            self._three.restore(three)
        self._games.elapsed, self._games.lives, self._games.lost = (each.copy() for each in around)

    def fingerprint(self) -> bytes:
        """Of the emulator with its random numbers, steps, lives, and the frame that is seen."""
        emulator, _, resets, noops = self._single.save()
        games = self._games
        around = (games.elapsed.tolist(), games.lives.tolist(), games.lost.tolist(), self._ended, resets, noops.seed)
        return _digest(emulator.serialize(), repr(around).encode(), self._obs.numpy().tobytes())

    def close(self) -> None:
        """Nothing to free but the watchdog."""
        _stop(self._watchdog)


class CloneableClassic:
    """CartPole, Acrobot, MountainCar: a few numbers are all there is."""

    def __init__(self, spec: EnvSpec, seed: int, timeout: float | None = None) -> None:
        options: dict[str, Any] = dict(spec.options)
        with quiet_about_age(spec.id):
            try:
                env = gymnasium.make(spec.id, disable_env_checker=True, **options)
            except (TypeError, ValueError, gymnasium.error.Error) as error:
                raise BadInput(f"{spec} cannot be made with these options: {str(error).splitlines()[0]}") from error
        actions = actions_of(env.action_space)
        if not isinstance(actions, Discrete):
            raise BadInput(f"{spec} cannot be cloned: its actions are continuous; use CartPole-v1 or Acrobot-v1")
        self._env: Any = env
        self._core: Any = env.unwrapped
        self._limit = _time_limit(env)
        self._seed: int | None = seed
        self._obs = torch.empty(0)
        self._ended = True
        self._watchdog = _watchdog(self, spec, timeout)
        self.spec = spec
        self.engine: Mapping[str, str] = {
            "backend": "gymnasium",
            "version": gymnasium.__version__,
            "simulator": simulator_of(env),
        }
        self.observation_shape = observation_shape(env.observation_space)
        self.actions = actions
        self.horizon: int | None = None if self._limit is None else int(self._limit._max_episode_steps)

    def reset(self) -> Tensor:
        """The first episode is seeded."""
        with self._watchdog:
            obs, _ = self._env.reset(seed=self._seed)
        self._seed = None
        self._obs, self._ended = torch.from_numpy(np.array(obs)), False
        return self._obs.clone()

    def step(self, action: int) -> tuple[Tensor, float, bool, bool]:
        """One step of the simulation."""
        _check_step(self.spec, action, self.actions, self._ended)
        with self._watchdog:
            obs, reward, terminated, truncated, _ = self._env.step(action)
        self._obs, self._ended = torch.from_numpy(np.array(obs)), bool(terminated or truncated)
        return self._obs.clone(), float(reward), bool(terminated), bool(truncated)

    def save(self) -> Any:
        """State, steps, random numbers."""
        beyond = getattr(self._core, "steps_beyond_terminated", None)
        elapsed = None if self._limit is None else self._limit._elapsed_steps
        noise = self._core.np_random.bit_generator.state
        return _copy(self._core.state), beyond, elapsed, noise, self._seed, self._obs, self._ended

    def restore(self, state: Any) -> None:
        """All of it back."""
        inner, beyond, elapsed, noise, self._seed, self._obs, self._ended = state
        self._core.state = _copy(inner)
        if hasattr(self._core, "steps_beyond_terminated"):
            self._core.steps_beyond_terminated = beyond
        if self._limit is not None:
            self._limit._elapsed_steps = elapsed
        self._core.np_random.bit_generator.state = noise

    def fingerprint(self) -> bytes:
        """Of state, steps and random numbers."""
        inner, *rest, obs, ended = self.save()
        return _digest(np.asarray(inner).tobytes(), repr((rest, ended)).encode(), obs.numpy().tobytes())

    def close(self) -> None:
        """Free the simulation."""
        _stop(self._watchdog)
        self._env.close()


def _watchdog(env: Cloneable, spec: EnvSpec, timeout: float | None) -> AbstractContextManager[None]:
    """A watch over steps and resets, which ends with the env."""
    if timeout is None:
        return nullcontext()
    watchdog = Watchdog(timeout, f"a step or reset of {spec}")
    weakref.finalize(env, watchdog.stop)
    return watchdog


def _stop(watchdog: AbstractContextManager[None]) -> None:
    if isinstance(watchdog, Watchdog):
        watchdog.stop()


def _is_classic(id: str) -> bool:
    return "classic_control" in str(gymnasium.spec(id).entry_point)


def _time_limit(env: Any) -> Any:
    """The wrapper that counts steps, or None."""
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, gymnasium.wrappers.TimeLimit):
            return env
        env = env.env
    return None


def _copy(state: Any) -> Any:
    return None if state is None else np.array(state)


def _check_step(spec: EnvSpec, action: int, actions: Discrete, ended: bool) -> None:
    if ended:
        raise RuntimeError(f"reset {spec} before a step: it is new, or its episode has ended")
    if not is_whole(action, 0) or action >= actions.n:
        raise BadInput(f"action must be an integer in 0 … {actions.n - 1}, got {action!r}")


def _digest(*parts: bytes) -> bytes:
    """Of the parts with their lengths, so that no two lists run together."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()
