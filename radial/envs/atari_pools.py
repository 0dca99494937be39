"""Emulators: ale-py's native threads, EnvPool's, or one emulator that can be cloned, all behind `Emulators`.

Episodes are in `atari`, and how frames become observations in `atari_frames`.
"""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from radial.core.data import BadInput, EnvSpec
from radial.envs.atari_frames import SCREEN_WIDTH, SKIP, RawFrames
from radial.envs.envpool_vec import cores

Rows = NDArray[np.intp]
NEVER = 2**30  # frames until a native time limit: ours counts, because theirs shows an old frame at the end


@dataclass(frozen=True, eq=False)
class Raw:
    """The outputs of K emulators.

    frames  (K, *frame) uint8     reward  (K,) float32     over  (K,) bool  the game is over     lives  (K,) int64
    """

    frames: RawFrames
    reward: NDArray[np.float32]
    over: NDArray[np.bool_]
    lives: NDArray[np.int64]

    @staticmethod
    def empty(k: int, shape: tuple[int, ...]) -> "Raw":
        """Room for K frames; no reward, not over, no lives."""
        frames = np.empty((k, *shape), dtype=np.uint8)
        return Raw(frames, np.zeros(k, np.float32), np.zeros(k, np.bool_), np.zeros(k, np.int64))

    def put(self, where: NDArray[np.bool_], other: "Raw") -> None:
        """Replace the rows `where` (K,) by those of `other`, except the reward: a reset earns none."""
        self.frames[where], self.over[where], self.lives[where] = other.frames, other.over, other.lives


class Emulators(Protocol):
    """N emulators; some of them can be reset or stepped while the others stand still."""

    def reset(self, rows: Rows) -> Raw:
        """New games, after 1 … 30 no-ops."""

    def step(self, rows: Rows, action: NDArray[np.int64]) -> Raw:
        """Each presses its action (K,), an index of the game's minimal actions, for as many frames as it skips."""

    def close(self) -> None:
        """Free them."""


@dataclass(frozen=True)
class Picture:
    """The settings of a native pool.

    height  of the raw frames         rows  that are kept of them; None: resized to 84×84, grey
    skip    frames per step           pool  show the maximum of the last two frames, per colour
    stack   frames side by side       fire  press FIRE at a reset, in the pool's own way
    """

    height: int
    rows: slice | None
    skip: int = SKIP
    pool: bool = True
    stack: int = 1
    fire: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one frame after the crop."""
        if self.rows is None:
            return (self.stack, 84, 84)
        return (self.rows.stop - self.rows.start, SCREEN_WIDTH, 3)

    @property
    def options(self) -> dict[str, Any]:
        """The options that ale-py and EnvPool call by one name."""
        height, width = (84, 84) if self.rows is None else (self.height, SCREEN_WIDTH)
        return {"img_height": height, "img_width": width, "stack_num": self.stack, "use_fire_reset": self.fire}


class AlePools:
    """ale-py's native pools, one per emulator: a pool of many cannot step some and let others wait at a reset.

    noops  (N,) how many frames passed before the last reset's observation
    """

    def __init__(self, rom: str, seeds: Sequence[int], picture: Picture, threads: int | None) -> None:
        vector_env = importlib.import_module("ale_py.vector_env").AtariVectorEnv
        self._picture = picture
        self._seeds: list[int | None] = list(seeds)
        self._ahead = cores() if threads is None else threads
        self.noops = np.zeros(len(seeds), dtype=np.int64)
        self._pools = [
            vector_env(
                rom,
                1,
                num_threads=1,
                max_num_frames_per_episode=NEVER,
                repeat_action_probability=0.0,
                grayscale=picture.rows is None,
                frameskip=picture.skip,
                maxpool=picture.pool,
                # ale-py draws from 0 … noop_max − 1; without 0, which is drawn again, that is 1 … 30.
                noop_max=30 if picture.fire else 31,
                reward_clipping=False,
                **picture.options,
            )
            for _ in seeds
        ]

    def reset(self, rows: Rows) -> Raw:
        """New games; the first ones are seeded."""
        raw = Raw.empty(len(rows), self._picture.shape)
        for j, row in enumerate(rows):
            seed, self._seeds[row] = self._seeds[row], None
            obs, info = self._pools[row].reset(seed=None if seed is None else np.array([seed]))
            while info["episode_frame_number"][0] == 0 and not self._picture.fire:
                obs, info = self._pools[row].reset()
            raw.frames[j] = self._cut(obs)
            raw.lives[j] = info["lives"][0]
            self.noops[row] = info["episode_frame_number"][0]
        return raw

    def step(self, rows: Rows, action: NDArray[np.int64]) -> Raw:
        """At most `threads` of them at a time."""
        raw = Raw.empty(len(rows), self._picture.shape)
        for j in range(min(self._ahead, len(rows))):
            self._pools[rows[j]].send(action[j : j + 1])
        for j, row in enumerate(rows):
            obs, reward, over, _, info = self._pools[row].recv()
            if j + self._ahead < len(rows):
                self._pools[rows[j + self._ahead]].send(action[j + self._ahead : j + self._ahead + 1])
            raw.frames[j] = self._cut(obs)
            raw.reward[j], raw.over[j], raw.lives[j] = reward[0], over[0], info["lives"][0]
        return raw

    def close(self) -> None:
        """Let the threads end."""
        self._pools = []

    def _cut(self, obs: RawFrames) -> RawFrames:
        return obs[0] if self._picture.rows is None else obs[0, 0, self._picture.rows]


class EnvPools:
    """EnvPool, whose one pool can step some and let others wait."""

    def __init__(self, spec: EnvSpec, seeds: Sequence[int], picture: Picture, threads: int | None) -> None:
        try:
            envpool = importlib.import_module("envpool")
        except ImportError as error:
            raise BadInput(f"{spec} with backend envpool needs EnvPool: pip install 'radial-rl[envpool]'") from error
        self._picture = picture
        self.version = str(envpool.__version__)
        try:
            self._pool = envpool.make(
                f"{spec.id}-v5",
                env_type="gymnasium",
                num_envs=len(seeds),
                seed=list(seeds),
                num_threads=min(len(seeds), cores() if threads is None else threads),
                max_episode_steps=NEVER,
                repeat_action_probability=0.0,
                gray_scale=picture.rows is None,
                frame_skip=picture.skip,
                noop_max=30,
                episodic_life=False,
                reward_clip=False,
                **picture.options,
            )
        except (AssertionError, KeyError, ValueError) as error:
            raise BadInput(f"{spec} is not a game of EnvPool {self.version}; use backend ale") from error

    def reset(self, rows: Rows) -> Raw:
        """New games; EnvPool took the seeds when it was made."""
        obs, info = self._pool.reset(rows.astype(np.int32))
        raw = Raw.empty(len(rows), self._picture.shape)
        raw.frames[:], raw.lives[:] = self._cut(obs), info["lives"]
        return raw

    def step(self, rows: Rows, action: NDArray[np.int64]) -> Raw:
        """All on the pool's threads."""
        obs, reward, over, _, info = self._pool.step(action.astype(np.int32), rows.astype(np.int32))
        raw = Raw.empty(len(rows), self._picture.shape)
        raw.frames[:], raw.reward[:], raw.over[:], raw.lives[:] = self._cut(obs), reward, over, info["lives"]
        return raw

    def close(self) -> None:
        """Let the threads end."""
        self._pool.close()

    def _cut(self, obs: RawFrames) -> RawFrames:
        return obs if self._picture.rows is None else obs.transpose(0, 2, 3, 1)[:, self._picture.rows]


class NoOps:
    """How many no-ops the resets of a pool with this seed begin with: a pool of ale-py's own is asked."""

    def __init__(self, rom: str, seed: int, picture: Picture) -> None:
        self.seed = seed
        self._pool = AlePools(rom, [seed], picture, threads=1)
        self._drawn: list[int] = []

    def __getitem__(self, reset: int) -> int:
        while len(self._drawn) <= reset:
            self._pool.reset(np.arange(1))
            self._drawn.append(int(self._pool.noops[0]))
        return self._drawn[reset]


class Single:
    """One emulator without a pool, which can be saved: row 0 and nothing else.

    Its games begin as those of a pool with this seed, and its frames are those of the pools, also where a game is over:
    there the pools show the last frame they have, not the end.
    """

    def __init__(self, rom: str, seed: int, picture: Picture) -> None:
        self._picture = picture
        self._noops = NoOps(rom, seed, picture)
        self._resets = 0
        self._ale = emulator(rom, seed)
        self._actions = self._ale.getMinimalActionSet()
        self._shown = np.zeros(picture.shape, dtype=np.uint8)

    def reset(self, rows: Rows) -> Raw:
        """A new game, after 1 … 30 no-ops."""
        self._ale.reset_game()
        for _ in range(self._noops[self._resets]):
            self._ale.act(0)
            if self._ale.game_over():
                self._ale.reset_game()
        self._resets += 1
        self._shown = self._screen()
        return self._raw(0.0)

    def step(self, rows: Rows, action: NDArray[np.int64]) -> Raw:
        """Press the action for `skip` frames, or until the game is over."""
        button, reward, pooled = self._actions[int(action[0])], 0.0, []
        for left in reversed(range(self._picture.skip)):
            reward += self._ale.act(button)
            if self._ale.game_over():
                pooled.append(self._shown)
                break
            if left == 0 or (left == 1 and self._picture.pool):
                pooled.append(self._screen())
        self._shown = np.maximum.reduce(pooled)
        return self._raw(reward)

    def close(self) -> None:
        """Nothing to free."""

    def save(self) -> tuple[Any, RawFrames, int, NoOps]:
        """The emulator with its random numbers, the last frame, how many games were begun, and how the next will."""
        return self._ale.cloneState(include_rng=True), self._shown, self._resets, self._noops

    def restore(self, state: tuple[Any, RawFrames, int, NoOps]) -> None:
        """Back to a saved state, which stays as it is."""
        emulated, self._shown, self._resets, self._noops = state
        self._ale.restoreState(emulated)

    def _screen(self) -> RawFrames:
        return self._ale.getScreenRGB()[self._picture.rows]

    def _raw(self, reward: float) -> Raw:
        return Raw(
            self._shown[None].copy(),
            np.array([reward], dtype=np.float32),
            np.array([self._ale.game_over()]),
            np.array([self._ale.lives()]),
        )


class LastThree:
    """Emulators that skip nothing, stepped four times: the maximum of the last three frames is shown.

    Where a game is over early, of the last three there are; RADIAL-A3C's way.

    last  (3, N, *frame), in no order; black where a new game has shown fewer
    next  (N,) the place of the frame that comes next
    """

    def __init__(self, emulators: Emulators, num_envs: int) -> None:
        self.emulators, self._num_envs = emulators, num_envs
        self._last = np.zeros((3, num_envs, 0), np.uint8)
        self._next = np.zeros(num_envs, np.intp)

    def reset(self, rows: Rows) -> Raw:
        """Forget the frames of the game before."""
        raw = self.emulators.reset(rows)
        if not self._last.size:  # how large a frame is shows with the first
            self._last = np.zeros((3, self._num_envs, *raw.frames.shape[1:]), np.uint8)
        self._last[:, rows] = 0
        self._put(rows, raw.frames)
        return raw

    def step(self, rows: Rows, action: NDArray[np.int64]) -> Raw:
        """Four frames, or until the game is over."""
        total = Raw.empty(len(rows), ())
        going = np.arange(len(rows))
        for _ in range(SKIP):
            raw = self.emulators.step(rows[going], action[going])
            self._put(rows[going], raw.frames)
            total.reward[going] += raw.reward
            total.over[going], total.lives[going] = raw.over, raw.lives
            going = going[~raw.over]
            if not len(going):
                break
        return Raw(self._last[:, rows].max(axis=0), total.reward, total.over, total.lives)

    def _put(self, rows: Rows, frames: RawFrames) -> None:
        self._last[self._next[rows], rows] = frames
        self._next[rows] = (self._next[rows] + 1) % 3

    def close(self) -> None:
        """Free the emulators."""
        self.emulators.close()

    def save(self) -> tuple[Any, ...]:
        """The frames that are remembered."""
        return self._last.copy(), self._next.copy()

    def restore(self, state: tuple[Any, ...]) -> None:
        """Remember those frames again."""
        self._last, self._next = (each.copy() for each in state)


def emulator(rom: str, seed: int) -> Any:
    """One `ALEInterface` without sticky actions, silent."""
    try:
        ale_py = importlib.import_module("ale_py")
    except ImportError as error:
        raise BadInput("suite atari needs ale-py: pip install 'radial-rl[atari]'") from error
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    ale = ale_py.ALEInterface()
    ale.setInt("random_seed", seed)
    ale.setFloat("repeat_action_probability", 0.0)
    ale.loadROM(ale_py.roms.get_rom_path(rom))
    return ale
