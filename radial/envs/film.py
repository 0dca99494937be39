"""Rendered pictures of an episode that was played before: its actions are taken again, in an env that can be looked at.

Whoever plays never waits for a renderer, and an episode that cannot be shown is still recorded. Classic control, Box2D,
MuJoCo (off-screen, see `offscreen`) and any registered env with `render_mode="rgb_array"`; Atari shows the emulator's
screen, ProcGen its observations.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from radial.core.data import BadInput, EnvSpec
from radial.envs.atari import Games, emulators_of, picture_of
from radial.envs.atari_frames import SKIP
from radial.envs.atari_pools import Emulators, Picture, Raw, Rows
from radial.envs.gymnasium_vec import quiet_about_age
from radial.envs.make import env_seeds, make_env, suite_of
from radial.envs.offscreen import NotRendered, offscreen

Shot = NDArray[np.uint8]  # (H, W, 3)
SIDE = 320  # pixels of a picture's longer side, at most
RATE = 30.0  # pictures per second of an episode, at most
MOST_BYTES = 128 << 20  # of one film; a longer one has fewer pictures
DEAR = (0, 2)  # mjRND_SHADOW and mjRND_REFLECTION of MuJoCo: slow to draw
FEWEST = 8  # pictures worth the time
_ONE = np.arange(1)
_SAME = 1e-4  # of a reward, or of 1: the recording rounds to float32


@dataclass(frozen=True)
class Take:
    """An episode that can be played again.

    seed, episode  env number `episode` of `make_env(spec, …, seed)`, in its first episode
    actions        (T,) integers or (T, D) floats, as the env got them
    rewards        (T,) that they earned: a film ends where they differ
    """

    spec: EnvSpec
    seed: int
    episode: int
    actions: Sequence[Any]
    rewards: Sequence[float]


@dataclass(frozen=True, eq=False)
class Film:
    """Pictures of one episode.

    at        (K,) increasing: picture k shows the state before action at[k]; the last one may be the end, at[K−1] = T
    pictures  (K,) arrays (H, W, 3)
    fps       steps per second of the env
    note      why it ends before the episode does; None: it does not
    """

    at: tuple[int, ...]
    pictures: tuple[Shot, ...]
    fps: float
    note: str | None = None


class Scene(Protocol):
    """One env that plays an episode and can be looked at at any time."""

    fps: float  # steps per second

    def begin(self) -> None:
        """Start the episode."""

    def act(self, action: Any) -> float:
        """Take one action; its reward."""

    def look(self) -> Shot:
        """What a person would see."""

    def close(self) -> None:
        """Free the simulator."""


def film(
    take: Take,
    *,
    every: int | None = None,
    rate: float = RATE,
    seconds: float = math.inf,
    side: int = SIDE,
    progress: Callable[[int], None] | None = None,
) -> Film:
    """Play an episode again and look at every k-th state of it, and at its end; `NotRendered` if nothing can be seen.

    every    k; None: so that a second of the episode has at most `rate` pictures
    seconds  it may take, roughly; a slow renderer gives fewer pictures
    side     longest side of a picture in pixels; larger ones are reduced
    progress is called with the number of steps done
    """
    suite_of(take.spec)
    kind = SCENES.get(take.spec.suite, GymnasiumScene)
    with offscreen(take.spec):
        try:
            scene = kind(take, side)
        except (NotRendered, BadInput, MemoryError):
            raise
        except Exception as error:  # the env is anybody's
            raise NotRendered(f"{take.spec.id} cannot be rendered: {_line(error)}") from error
        try:
            apart = every or math.ceil(scene.fps / rate)
            return _shoot(scene, take, apart, seconds, side, progress or (lambda step: None))
        finally:
            scene.close()


def _shoot(scene: Scene, take: Take, every: int, seconds: float, side: int, progress: Callable[[int], None]) -> Film:
    scene.begin()
    _look(scene, take, side)  # the first picture of a renderer takes far longer than the others
    begun = time.monotonic()
    first = _look(scene, take, side)
    each, steps = time.monotonic() - begun, len(take.actions)
    affordable = min(seconds / max(each, 1e-6), MOST_BYTES / first.nbytes)
    if affordable < min(FEWEST, steps):
        raise NotRendered(f"no time for pictures: {each:.2g} s each")
    apart = max(every, math.ceil((steps + 1) / affordable))
    at, pictures, note = [0], [first], None
    for step, (action, reward) in enumerate(zip(take.actions, take.rewards, strict=True)):
        earned = scene.act(action)
        if abs(earned - reward) > _SAME * max(1.0, abs(reward)):
            note = f"the env did not repeat itself at step {step}: its pictures end there"
            break
        if (step + 1) % apart == 0 or step + 1 == steps:
            at.append(step + 1)
            pictures.append(_look(scene, take, side))
        progress(step + 1)
    return Film(tuple(at), tuple(pictures), scene.fps, note)


def _look(scene: Scene, take: Take, side: int) -> Shot:
    """One picture, reduced to `side` pixels."""
    try:
        shot = scene.look()
    except Exception as error:  # a renderer may raise anything
        raise NotRendered(f"{take.spec.id} cannot be rendered: {_line(error)}") from error
    if not (isinstance(shot, np.ndarray) and shot.ndim == 3 and shot.shape[2] == 3 and shot.dtype == np.uint8):
        raise NotRendered(f"{take.spec.id} cannot be rendered: its pictures are not arrays (H, W, 3) of bytes")
    height, width = shot.shape[:2]
    if max(height, width) <= side:
        return shot.copy()
    size = max(1, width * side // max(height, width)), max(1, height * side // max(height, width))
    return np.asarray(Image.fromarray(shot).resize(size, Image.Resampling.BOX))


def _line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


# ------------------------------------------------------------------------------------------------------- the scenes


class GymnasiumScene:
    """A registered env, made with `render_mode="rgb_array"`."""

    def __init__(self, take: Take, side: int) -> None:
        options: dict[str, Any] = {key: value for key, value in take.spec.options.items() if key != "backend"}
        if take.spec.options.get("backend") == "envpool":
            raise NotRendered("EnvPool's MuJoCo cannot be rendered: use backend gymnasium")
        if str(gymnasium.spec(take.spec.id).entry_point).startswith("gymnasium.envs.mujoco"):
            follow = {} if {"camera_id", "camera_name"} & set(options) else {"camera_name": "track"}  # if there is one
            options |= {"width": side, "height": side, **follow}
        with quiet_about_age(take.spec.id):
            self._env = gymnasium.make(
                take.spec.id, **options | {"render_mode": "rgb_array", "disable_env_checker": True}
            )
        self._seed = env_seeds(take.seed, take.episode + 1)[take.episode]
        self._dtype = self._env.action_space.dtype
        self.fps = float(self._env.metadata.get("render_fps") or RATE)

    def begin(self) -> None:
        """Reset with the episode's seed."""
        self._env.reset(seed=self._seed)

    def act(self, action: Any) -> float:
        """One step."""
        return float(self._env.step(np.asarray(action, dtype=self._dtype))[1])

    def look(self) -> Shot:
        """The env's own picture."""
        shot: Any = self._env.render()
        viewer = getattr(getattr(self._env.unwrapped, "mujoco_renderer", None), "viewer", None)
        if viewer is not None:  # from the next picture on; without a GPU shadows take four fifths of the time
            viewer.scn.flags[:] = [flag and name not in DEAR for name, flag in enumerate(viewer.scn.flags)]
        return shot

    def close(self) -> None:
        """Free the simulator and its window."""
        self._env.close()


class AtariScene:
    """A game with the episodes of the vector env, on emulators that show their whole screen."""

    def __init__(self, take: Take, side: int) -> None:
        spec = take.spec
        picture, buttons = picture_of(spec)
        whole = Picture(picture.height, slice(0, picture.height), picture.skip, picture.pool, fire=picture.fire)
        seed = env_seeds(take.seed, take.episode + 1)[take.episode]
        self._screen = _Screen(emulators_of(spec, [seed], whole, 1), picture.rows)
        self._games = Games(spec, self._screen, buttons, [seed])
        self.fps = 60 / SKIP

    def begin(self) -> None:
        """A new game, as the pools begin it."""
        self._games.begin(_ONE)

    def act(self, action: Any) -> float:
        """Press for four frames."""
        return float(self._games.act(_ONE, np.array([action], dtype=np.int64))[1][0])

    def look(self) -> Shot:
        """The emulator's screen: of pooled frames their maximum, so that nothing flickers."""
        return self._screen.shown

    def close(self) -> None:
        """Free the emulator."""
        self._screen.close()


class _Screen:
    """Emulators whose whole last frame is remembered; the rows of the observation are passed on."""

    def __init__(self, inner: Emulators, rows: slice | None) -> None:
        self._inner, self._rows = inner, rows or slice(None)
        self.shown: Shot = np.zeros((1, 1, 3), np.uint8)

    def reset(self, rows: Rows) -> Raw:
        """New games."""
        return self._cut(self._inner.reset(rows))

    def step(self, rows: Rows, action: NDArray[np.int64]) -> Raw:
        """Press."""
        return self._cut(self._inner.step(rows, action))

    def close(self) -> None:
        """Free them."""
        self._inner.close()

    def _cut(self, raw: Raw) -> Raw:
        self.shown = raw.frames[0].copy()
        return Raw(raw.frames[:, self._rows].copy(), raw.reward, raw.over, raw.lives)


class ObservedScene:
    """A vector env whose observations are pictures (3, H, W) of bytes."""

    def __init__(self, take: Take, side: int) -> None:
        self._env = make_env(take.spec, 1, take.seed, numbers=[take.episode])
        self._obs = torch.empty(0)
        self.fps = 15.0

    def begin(self) -> None:
        """The first observation."""
        self._obs = self._env.reset()

    def act(self, action: Any) -> float:
        """One step."""
        step = self._env.step(torch.tensor([action]))
        self._obs = step.obs
        return float(step.score[0])

    def look(self) -> Shot:
        """The observation."""
        return np.ascontiguousarray(self._obs[0].permute(1, 2, 0).numpy())

    def close(self) -> None:
        """Free the simulator."""
        self._env.close()


SCENES: dict[str, Callable[[Take, int], Scene]] = {
    "mujoco": GymnasiumScene,
    "classic": GymnasiumScene,
    "gymnasium": GymnasiumScene,
    "atari": AtariScene,
    "procgen": ObservedScene,
}
