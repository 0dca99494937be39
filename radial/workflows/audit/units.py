"""The perturbation radius ε of an audit: which ones are tried, in which units, and the names of features and actions.

ε itself is always in network units; nothing here changes it.
"""

from collections.abc import Iterable
from numbers import Real
from typing import Any

from torch import Tensor

from radial.core.agent import Agent
from radial.core.data import BadInput, EnvSpec
from radial.evaluation.prover import check_radius

PIXELS = (1 / 255, 3 / 255, 5 / 255)  # shares of the whole range: the paper's
NORMALIZED = (0.01, 0.03, 0.075, 0.15)  # standard deviations; 0.075 is the paper's for Hopper
RAW = (0.005, 0.01, 0.02, 0.05, 0.1)  # in the env's units

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


def radii_of(radius: Any, p: float, more: Iterable[float] = ()) -> list[float]:
    """The radii, each once and the smallest first, with those that requirements name.

    radius  one number or several
    """
    if isinstance(radius, str | bytes) or not isinstance(radius, Real | Iterable):
        raise BadInput(f"radius must be a finite number ≥ 0 or a list of such, got {radius!r}")
    given: list[Any] = [radius] if isinstance(radius, Real) else list(radius)
    for each in given:
        check_radius(each, p)
    found = sorted({float(each) for each in given} | set(more))
    if not found:
        raise BadInput("radius must name at least one, such as 0.05; None: a ladder that suits the observations")
    for each in found:
        check_radius(each, p)
    return found


def ladder(agent: Agent) -> tuple[float, ...]:
    """Default radii, small to large, by the kind of observation the network sees."""
    limits = agent.valid_range
    if limits is not None:
        return tuple(radius * (limits[1] - limits[0]) for radius in PIXELS)
    return NORMALIZED if agent.normalized else RAW


def units_of(agent: Agent, shape: tuple[int, ...]) -> Tensor | None:
    """Env units per network unit for each feature, (*shape) float64; None where `prepare` is the caller's own."""
    scale = agent.units()
    if scale is None:
        return None
    scale = scale.detach().double()
    return scale.broadcast_to(shape) if scale.ndim == 0 or scale.shape == shape else None


def in_env_units(units: Tensor | None, radius: float) -> list[float] | None:
    """ε in the env's units: one number per feature, or one for all pixels; None: not known."""
    if units is None:
        return None
    flat = (units * radius).flatten()
    return [float(f"{value:.6g}") for value in (flat[:1] if units.ndim > 1 else flat).tolist()]


def feature_names(spec: EnvSpec, count: int) -> list[str]:
    """Names of the numbers of a vector."""
    known = FEATURES.get(spec.id.split("-")[0], ())
    return list(known) if len(known) == count else [f"feature {i}" for i in range(count)]


def action_names(spec: EnvSpec, count: int) -> list[str]:
    """Names of the actions, or of the axes of an action."""
    known = ACTIONS.get(spec.id.split("-")[0], ())
    return list(known) if len(known) == count else [f"action {i}" for i in range(count)]
