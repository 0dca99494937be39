"""Atari games as the papers preprocess them: FIRE at a reset, lost lives, time limits.

Frames and presets are in `atari_frames`, emulators in `atari_pools`; envs that can be cloned are in `cloning`.
"""

import functools
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from radial.core.data import BadInput, EnvSpec
from radial.envs.atari_frames import DEFAULT_PRESET, GAMES, PRESETS, SKIP, Observation, Preset
from radial.envs.atari_pools import AlePools, Emulators, EnvPools, LastThree, Picture, Raw, Rows, emulator
from radial.envs.gymnasium_vec import GymnasiumVec

NOOP = 0
PRESSES = (1, 2)  # of a reset, where the game has FIRE: it and the action after it


class Games:
    """The episodes of N emulators: rows begin and act, each by itself or all at once.

    elapsed  (N,) agent steps of the episode
    lives    (N,) left
    lost     (N,) bool: the last episode ended with a life and not with the game, which goes on after the next reset
    """

    def __init__(self, spec: EnvSpec, emulators: Emulators, buttons: Sequence[str], seeds: Sequence[int]) -> None:
        options, num_envs = spec.options, len(seeds)
        self.emulators = emulators
        self.preset: Preset = PRESETS[str(options.get("preset", DEFAULT_PRESET))]
        self.limit = int(options.get("max_episode_steps", self.preset.limit))
        self.episodic_life = bool(options.get("episodic_life", False))
        self.transpose = bool(options.get("transpose", False))
        self.actions = self.preset.kept.get(spec.id, len(buttons))
        # A stack presses FIRE in the pool's own way, or not at all.
        self.presses = PRESSES if "FIRE" in buttons and self.preset.stack == 1 else ()
        self.observation_shape: tuple[int, ...] = (self.preset.stack, self.preset.size, self.preset.size)
        self.random_start = int(options.get("random_start", 0))
        self._streams = [np.random.default_rng([seed, self.random_start]) for seed in seeds]
        self.elapsed = np.zeros(num_envs, dtype=np.int64)
        self.lives = np.zeros(num_envs, dtype=np.int64)
        self.lost = np.zeros(num_envs, dtype=np.bool_)

    def begin(self, rows: Rows) -> Observation:
        """The first observations (K, *obs) of new episodes: a new game, or the next life of the one that goes on."""
        new = ~self.lost[rows]
        raw = self.emulators.reset(rows[new]) if new.all() else self._next_life(rows, new)
        raw = self._press(rows, raw, self.presses, new)
        if self.random_start and new.any():
            raw.put(new, self._wander(rows[new]))
        self.elapsed[rows[new]] = 0
        self.lost[rows] = False
        self.lives[rows] = raw.lives
        return self._see(raw)

    def act(
        self, rows: Rows, action: NDArray[np.int64]
    ) -> tuple[Observation, NDArray[np.float32], NDArray[np.bool_], NDArray[np.bool_]]:
        """One step: observations (K, *obs), scores, terminated and truncated (K,)."""
        raw = self.emulators.step(rows, action)
        self.elapsed[rows] += 1
        terminated = raw.over.copy()
        lost = (raw.lives > 0) & (raw.lives < self.lives[rows]) & ~terminated
        if self.episodic_life:
            self.lost[rows] = lost & (self.elapsed[rows] < self.limit)
            terminated |= lost
        elif self.preset.revive and lost.any():
            over = np.zeros(int(lost.sum()), dtype=np.bool_)
            raw.put(lost, self._press(rows[lost], None, (NOOP, *self.presses), over))
            terminated[lost] = over
        self.lives[rows] = raw.lives
        return self._see(raw), raw.reward, terminated, (self.elapsed[rows] >= self.limit) & ~terminated

    def _wander(self, rows: Rows) -> Raw:
        """Random actions at the start of new games, 0 … `random_start` for each: so that their courses differ.

        No-ops alone leave a deterministic game only a few starts. A game that these actions end begins anew.
        """
        left = np.array([self._streams[row].integers(self.random_start + 1) for row in rows])
        raw = self._press(rows, None, (NOOP,), np.zeros(len(rows), dtype=np.bool_))
        while (going := left > 0).any():
            action = np.array([self._streams[row].integers(self.actions) for row in rows[going]])
            after = self.emulators.step(rows[going], action)
            if after.over.any():
                after.put(after.over.copy(), self.emulators.reset(rows[going][after.over]))
            raw.put(going, after)
            left -= 1
        return raw

    def _next_life(self, rows: Rows, new: NDArray[np.bool_]) -> Raw:
        """A new game where it is one, a no-op elsewhere; where that ends the game, `new` becomes True."""
        over = np.zeros(int((~new).sum()), dtype=np.bool_)
        after = self._press(rows[~new], None, (NOOP,), over)
        raw = Raw.empty(len(rows), after.frames.shape[1:])
        raw.put(~new, after)
        if new.any():
            raw.put(new, self.emulators.reset(rows[new]))
        new[~new] = over
        return raw

    def _press(self, rows: Rows, raw: Raw | None, actions: Sequence[int], new: NDArray[np.bool_]) -> Raw:
        """Each action in turn, and a new game where that ends one: there `new` (K,) becomes True."""
        for action in actions:
            raw = self.emulators.step(rows, np.full(len(rows), action, dtype=np.int64))
            if raw.over.any():
                over = raw.over.copy()
                raw.put(over, self.emulators.reset(rows[over]))
                new |= over
        assert raw is not None
        return raw

    def _see(self, raw: Raw) -> Observation:
        obs: Observation = raw.frames if self.preset.halve is None else self.preset.halve(raw.frames)[:, None]
        return np.ascontiguousarray(obs.swapaxes(2, 3)) if self.transpose else obs


class AtariVectorEnv(VectorEnv[Any, Any, Any]):
    """`Games` as a Gymnasium vector env that resets itself on the step after an episode's end."""

    def __init__(self, games: Games, num_envs: int) -> None:
        self._games = games
        self._ended = np.zeros(num_envs, dtype=np.bool_)
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        self.single_observation_space = gymnasium.spaces.Box(0, 255, games.observation_shape, games.preset.dtype)
        self.single_action_space = gymnasium.spaces.Discrete(games.actions)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin everywhere; the emulators were seeded when they were made."""
        return self._games.begin(np.arange(self.num_envs)), {}

    def step(
        self, actions: NDArray[np.int64]
    ) -> tuple[Observation, NDArray[np.float32], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Act where an episode goes on, begin one where it ended at the last step."""
        going, due = np.flatnonzero(~self._ended), np.flatnonzero(self._ended)
        if len(due) == 0:
            obs, score, terminated, truncated = self._games.act(going, actions)
        else:
            obs = np.empty((self.num_envs, *self._games.observation_shape), dtype=self._games.preset.dtype)
            score = np.zeros(self.num_envs, dtype=np.float32)
            terminated, truncated = np.zeros((2, self.num_envs), dtype=np.bool_)
            if len(going):
                obs[going], score[going], terminated[going], truncated[going] = self._games.act(going, actions[going])
            obs[due] = self._games.begin(due)
        self._ended = terminated | truncated
        return obs, score, terminated, truncated, {}

    def close(self, **kwargs: Any) -> None:
        """Free the emulators."""
        self._games.emulators.close()


def make_atari(spec: EnvSpec, seeds: Sequence[int], threads: int | None, timeout: float | None) -> GymnasiumVec:
    """One game per seed; `Step.reward` is the score clipped to ±1."""
    picture, buttons = picture_of(spec)
    emulators = emulators_of(spec, seeds, picture, threads)
    engine = _pool_engine(spec) if spec.options.get("backend") == "envpool" else ale_engine(spec)
    native = AtariVectorEnv(Games(spec, emulators, buttons, seeds), len(seeds))
    return GymnasiumVec(native, spec, engine=engine, timeout=timeout, clip_reward=True)


def emulators_of(spec: EnvSpec, seeds: Sequence[int], picture: Picture, threads: int | None) -> Emulators:
    """One emulator per seed, of the backend that the spec names."""
    emulators: Emulators
    if spec.options.get("backend") == "envpool":
        emulators = EnvPools(spec, seeds, picture, threads)
    else:
        emulators = AlePools(GAMES[spec.id], seeds, picture, threads)
    return LastThree(emulators, len(seeds)) if picture.skip == 1 else emulators


def ale_engine(spec: EnvSpec) -> dict[str, str]:
    """Backend, version and simulator of ale-py."""
    return {"backend": "ale", "version": version("ale-py"), "simulator": _simulator(f"ALE {version('ale-py')}", spec)}


def _pool_engine(spec: EnvSpec) -> dict[str, str]:
    """The same of EnvPool."""
    simulator = _simulator(f"ALE built into envpool {version('envpool')}", spec)
    return {"backend": "envpool", "version": version("envpool"), "simulator": simulator}


def _simulator(emulator: str, spec: EnvSpec) -> str:
    preset = spec.options.get("preset", DEFAULT_PRESET)
    return f"{emulator}, its ROM {GAMES[spec.id]}, {preset}, frame skip {SKIP}, sticky 0"


def picture_of(spec: EnvSpec) -> tuple[Picture, tuple[str, ...]]:
    """The settings of a game's emulators, and the names of its minimal actions."""
    preset = PRESETS[str(spec.options.get("preset", DEFAULT_PRESET))]
    height, buttons = _facts(GAMES[spec.id])
    rows = preset.rows(spec.id)
    if rows is not None and rows.stop > height:
        raise BadInput(f"{spec} has frames of {height} rows, too few for its preset; use preset stack4")
    if preset.stack > 1:
        return Picture(height, None, stack=preset.stack, fire=True), buttons
    if preset.pooled == 3:
        return Picture(height, rows, skip=1, pool=False), buttons
    return Picture(height, rows), buttons


@functools.cache  # a ROM takes a tenth of a second to load
def _facts(rom: str) -> tuple[int, tuple[str, ...]]:
    """Rows of a raw frame, minimal actions."""
    ale = emulator(rom, 0)
    return int(ale.getScreenDims()[0]), tuple(action.name for action in ale.getMinimalActionSet())
