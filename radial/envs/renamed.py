"""Environment ids that old agents were trained on and that Gymnasium no longer steps, and what took their place.

Only tasks whose observations, actions and rewards mean the same; physics engines differ, and the note says so.
"""

from dataclasses import dataclass

_MUJOCO = ("Hopper", "Walker2d", "HalfCheetah", "Swimmer", "InvertedPendulum", "InvertedDoublePendulum", "Reacher")
_NEWER = {
    **{f"{task}-v{old}": f"{task}-v4" for task in _MUJOCO for old in (1, 2, 3)},
    "Humanoid-v2": "Humanoid-v4",
    "Humanoid-v3": "Humanoid-v4",
    "Pendulum-v0": "Pendulum-v1",
    "LunarLander-v2": "LunarLander-v3",
    "LunarLanderContinuous-v2": "LunarLanderContinuous-v3",
    "BipedalWalker-v2": "BipedalWalker-v3",
    "BipedalWalkerHardcore-v2": "BipedalWalkerHardcore-v3",
    "CarRacing-v0": "CarRacing-v3",
    "CarRacing-v1": "CarRacing-v3",
    "CarRacing-v2": "CarRacing-v3",
}


@dataclass(frozen=True)
class Renamed:
    """An id that exists now, and one line on what changed."""

    id: str
    note: str


def successor(id: str) -> Renamed | None:
    """What took the place of an id that is gone; None for every other id."""
    now = _NEWER.get(id)
    if now is None:
        return None
    return Renamed(now, f"{id} is gone: {now} takes its place, the same task on a newer engine; scores may differ")
