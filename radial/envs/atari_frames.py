"""Atari's games and presets: how raw frames make one observation, and which actions are kept.

Nothing here steps an emulator; who does is in `atari_pools`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

RawFrames = NDArray[np.uint8]
Observation = NDArray[Any]

SCREEN_WIDTH = 160
SKIP = 4  # emulator frames per action

# Every game of ale-py 0.12, by its ROM's name.
ROMS = tuple(
    """adventure air_raid alien amidar assault asterix asteroids atlantis atlantis2 backgammon bank_heist
    basic_math battle_zone beam_rider berzerk blackjack bowling boxing breakout carnival casino centipede
    chopper_command combat crazy_climber crossbow darkchambers defender demon_attack donkey_kong double_dunk
    earthworld elevator_action enduro entombed et fishing_derby flag_capture freeway frogger frostbite galaxian
    gopher gravitar hangman haunted_house hero human_cannonball ice_hockey jamesbond journey_escape joust kaboom
    kangaroo keystone_kapers king_kong klax koolaid krull kung_fu_master laser_gates lost_luggage mario_bros
    maze_craze miniature_golf montezuma_revenge mr_do ms_pacman name_this_game othello pacman phoenix pitfall
    pitfall2 pong pooyan private_eye qbert riverraid road_runner robotank seaquest sir_lancelot skiing solaris
    space_invaders space_war star_gunner superman surround tennis tetris tic_tac_toe_3d time_pilot trondead
    turmoil tutankham up_n_down venture video_checkers video_chess video_cube video_pinball warlords
    wizard_of_wor word_zapper yars_revenge zaxxon""".split()  # noqa: SIM905, a list of 108 lines is no easier to read
)
GAMES: dict[str, str] = {rom.title().replace("_", ""): rom for rom in ROMS}  # "BankHeist" → "bank_heist"

# OpenCV's RGB → grey: 15 bits, rounded. The sums stay below 2²⁴, so float32 computes them exactly.
_GREY = np.array([9798, 19235, 3735], dtype=np.float32) / 2**15


@dataclass(frozen=True)
class Preset:
    """How raw frames become observations, and how a reset is done.

    size        of the square observation
    pooled      the raw frames whose maximum, per colour, is shown: the last two or the last three of four
    stack       observations side by side; above 1 the pool resizes and stacks, and presses FIRE in its own way
    rows        game → the rows of the raw frame that are kept; None: all
    kept        game → how many of the first minimal actions are kept; absent: all
    halve       (N, rows, 160, 3) → (N, size, size); None: the pool did it
    limit       agent steps of an episode, unless `max_episode_steps` says otherwise
    revive      a life lost inside an episode is followed by a no-op and the FIRE presses of a reset
    """

    size: int
    pooled: int
    stack: int
    limit: int
    dtype: type = np.uint8
    rows: Callable[[str], slice | None] = lambda game: None
    kept: Mapping[str, int] = field(default_factory=dict)
    halve: Callable[[RawFrames], Observation] | None = None
    revive: bool = False


def halve_grey(frames: RawFrames) -> RawFrames:
    """Grey, 4 black columns on each side, halved: (N, 168, 160, 3) → (N, 84, 84) uint8.

    The grey and the halving are OpenCV's, bit by bit: INTER_AREA of 2×2 pixels is (sum + 2) div 4, rounding ½ up.
    Source: RADIAL-DQN's environment; the black columns halve to two black columns on each side.
    """
    grey = (frames.astype(np.float32) @ _GREY + np.float32(0.5)).astype(np.uint16)
    pairs = grey[:, 0::2] + grey[:, 1::2]
    half = np.zeros((len(frames), 84, 84), dtype=np.uint8)
    half[:, :, 2:82] = (pairs[..., 0::2] + pairs[..., 1::2] + 2) >> 2
    return half


def halve_mean(frames: RawFrames) -> NDArray[np.float32]:
    """The mean of 2×2 pixels and three colours: (N, 160, 160, 3) → (N, 80, 80) float32 in [0, 255], not rounded.

    Source: RADIAL-A3C's environment; a bilinear resize to half the size is this mean.
    """
    pairs = frames[:, 0::2].astype(np.uint16) + frames[:, 1::2]
    six = pairs.reshape(len(frames), 80, 80, 6)  # two pixels of three colours; added slice by slice, 15 times faster
    total = six[..., 0] + six[..., 1]
    for k in range(2, 6):
        total += six[..., k]
    return total.astype(np.float32) / np.float32(12)


_CROP_SHIFT = {"Pong": 10, "RoadRunner": 20}  # 0 for the others

DEFAULT_PRESET = "radial-dqn"
PRESETS: dict[str, Preset] = {
    "radial-dqn": Preset(
        size=84,
        pooled=2,
        stack=1,
        limit=10_000,
        rows=lambda game: slice(21 + _CROP_SHIFT.get(game, 0), 189 + _CROP_SHIFT.get(game, 0)),
        kept={"Pong": 4, "BankHeist": 6, "RoadRunner": 6},
        halve=halve_grey,
    ),
    "radial-a3c": Preset(
        size=80,
        pooled=3,
        stack=1,
        limit=10_000,
        dtype=np.float32,
        rows=lambda game: slice(34, 194),
        halve=halve_mean,
        revive=True,
    ),
    "stack4": Preset(size=84, pooled=2, stack=4, limit=27_000),
}
