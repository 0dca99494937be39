"""What ε means outside the network: env units per feature, the names of features, and radii worth trying.

ε itself is always in network units; nothing here changes it.
"""

from typing import Any

import torch
from torch import Tensor

from radial.agents.normalizer import TINY
from radial.core.data import EnvSpec

PIXELS = (1 / 255, 3 / 255, 5 / 255)  # shares of the whole range: the paper's
NORMALIZED = (0.01, 0.03, 0.075, 0.15)  # standard deviations; 0.075 is the paper's for Hopper
RAW = (0.005, 0.01, 0.02, 0.05, 0.1)  # whatever the env's units are

FEATURES: dict[str, tuple[str, ...]] = {
    "CartPole": ("cart position", "cart velocity", "pole angle", "pole angular velocity"),
    "Acrobot": ("cos θ1", "sin θ1", "cos θ2", "sin θ2", "angular velocity 1", "angular velocity 2"),
    "Pendulum": ("cos θ", "sin θ", "angular velocity"),
    "MountainCar": ("position", "velocity"),
    "MountainCarContinuous": ("position", "velocity"),
    "LunarLander": ("x", "y", "velocity x", "velocity y", "angle", "angular velocity", "left leg", "right leg"),
    "Hopper": (
        "height", "torso angle", "thigh angle", "leg angle", "foot angle", "velocity x", "velocity z",
        "torso rotation", "thigh rotation", "leg rotation", "foot rotation",
    ),
}  # fmt: skip
ACTIONS: dict[str, tuple[str, ...]] = {
    "CartPole": ("push left", "push right"),
    "Acrobot": ("torque −1", "no torque", "torque +1"),
    "MountainCar": ("left", "nothing", "right"),
    "LunarLander": ("nothing", "left engine", "main engine", "right engine"),
    "Hopper": ("thigh", "leg", "foot"),
    "Pendulum": ("torque",),
}


def units_of(agent: Any, shape: tuple[int, ...]) -> Tensor | None:
    """Env units per network unit for each feature, (*shape) float64; None where `prepare` is somebody's own."""
    if hasattr(agent, "normalizer"):
        scale = agent.normalizer.moments.std + TINY
    elif hasattr(agent, "door"):
        if not hasattr(agent.door, "units"):
            return None
        scale = agent.door.units()
    else:
        scale = torch.tensor(1.0 if getattr(agent, "valid_range", None) is None else 255.0)
    scale = scale.detach().double()
    return scale.broadcast_to(shape) if scale.ndim == 0 or scale.shape == shape else None


def ladder(agent: Any) -> tuple[float, ...]:
    """Radii to try if nobody says: small to large, by what kind of observation the network sees."""
    limits = getattr(agent, "valid_range", None)
    if limits is not None:
        return tuple(radius * (limits[1] - limits[0]) for radius in PIXELS)
    normalized = hasattr(agent, "normalizer") and float(agent.normalizer.moments.count) >= 2
    return NORMALIZED if normalized or hasattr(getattr(agent, "door", None), "clip") else RAW


def feature_names(spec: EnvSpec, count: int) -> list[str]:
    """What the numbers of a vector are called."""
    known = FEATURES.get(spec.id.split("-")[0], ())
    return list(known) if len(known) == count else [f"feature {i}" for i in range(count)]


def action_names(spec: EnvSpec, count: int) -> list[str]:
    """What the actions, or the axes of an action, are called."""
    known = ACTIONS.get(spec.id.split("-")[0], ())
    return list(known) if len(known) == count else [f"action {i}" for i in range(count)]
