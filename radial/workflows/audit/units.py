"""The perturbation radius ε of an audit: which ones are tried, in the env's units, and against what observations do.

ε itself is always in network units; nothing here changes it.
"""

from collections.abc import Iterable, Sequence
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from radial.core.agent import Agent
from radial.core.data import BadInput
from radial.core.text import spell_radius
from radial.evaluation.prover import check_in_range, check_radius
from radial.workflows.audit.names import action_names as action_names
from radial.workflows.audit.names import feature_names as feature_names
from radial.workflows.audit.states import Visited

PIXELS = (1 / 255, 3 / 255, 5 / 255)  # shares of the whole range: the paper's
NORMALIZED = (0.01, 0.03, 0.075, 0.15)  # standard deviations; 0.075 is the paper's for Hopper
SHARES = (0.01, 0.025, 0.05, 0.1, 0.25)  # of the visited range of the narrowest feature
NARROW = 0.01  # of the median range: a feature that moves less does not set the scale
LARGE = 0.5  # of a feature's visited range


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


def check_radii(agent: Agent, radii: Iterable[float]) -> None:
    """Refuse radii that were meant in grey levels."""
    for each in radii:
        check_in_range(agent, each)


def in_order(radii: Sequence[float]) -> list[int]:
    """In which order radii tell most: the middle one, the largest, then down to the smallest."""
    last = len(radii) - 1
    return list(dict.fromkeys([len(radii) // 2, last, *range(last, -1, -1)]))


# ------------------------------------------------------------------------------------------------- the visited range


def spread_of(visited: Visited) -> Tensor:
    """How far each number of an observation moved in the clean episodes, (F,) in network units; of pictures: (1,)."""
    x = visited.x(slice(None)) if visited.prepare is None else visited.thinned(64).x(slice(None))
    x = x.double()
    if x.ndim > 2:
        return (x.amax() - x.amin()).view(1)
    return x.amax(0) - x.amin(0)


def _moving(spread: Tensor) -> Tensor:
    """Which features set the scale, (F,) bool: not those that stand still, or nearly so beside the others."""
    moves = spread > 0
    if not bool(moves.any()):
        return moves
    ranges = spread[moves].sort().values
    return moves & (spread >= NARROW * ranges[len(ranges) // 2])


def ladder(agent: Agent, spread: Tensor, frames: bool) -> tuple[float, ...]:
    """Default radii, small to large: grey levels, standard deviations, or shares of the narrowest feature's range.

    spread  (F,) how far each feature moved, in network units        frames  observations are pictures
    """
    limits = agent.valid_range
    if limits is not None:
        return tuple(radius * (limits[1] - limits[0]) for radius in PIXELS)
    if agent.normalized:
        return NORMALIZED
    moving = _moving(spread)
    narrowest = float(spread[moving].min()) if bool(moving.any()) else 1.0
    return tuple(float(f"{share * narrowest:.2g}") for share in (PIXELS if frames else SHARES))


def too_large(radii: Iterable[float], spread: Tensor, names: Sequence[str]) -> str | None:
    """A warning about radii of more than half of the range in which a feature moves; None: there is none."""
    moving = _moving(spread)
    if not names or not bool(moving.any()):
        return None
    at = int(torch.where(moving, spread, torch.inf).argmin())
    large = [radius for radius in radii if radius > LARGE * float(spread[at])]
    if not large:
        return None
    said = ", ".join(spell_radius(radius) for radius in large)
    share = 100 * min(large) / float(spread[at])
    return (
        f"ε = {said}: large against what is observed; ± {spell_radius(min(large))} is {share:.0f} % of the range in "
        f"which '{names[at]}' moves in clean episodes"
    )


# ---------------------------------------------------------------------------------------------------- the env's units


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


def epsilon_in_words(radius: float, env_units: Sequence[float] | None, names: Sequence[str]) -> str | None:
    """One line: ε in the env's units; None: not known."""
    if not env_units:
        return None
    said = f"ε = {spell_radius(radius)} in the environment's units"
    if not names:
        return f"{said}: ± {env_units[0]:.3g} in every pixel"
    low, high = min(env_units), max(env_units)
    if low == high:
        return f"{said}: ± {low:.3g} in every feature"
    least, most = (names[list(env_units).index(end)] for end in (low, high))
    return f"{said}: from ± {low:.3g} ({least}) to ± {high:.3g} ({most})"
