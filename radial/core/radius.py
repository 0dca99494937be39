"""A perturbation radius as it is given: one number, or one per feature of a vector."""

from typing import Any

import torch
from torch import Tensor

from radial.core.checks import brief, is_finite
from radial.core.errors import BadInput

Radius = float | tuple[float, ...]
SAME = 1e-6  # relative: a radius that was a float32 tensor is not another one


def as_radius(given: Any) -> Radius:
    """The radius as plain floats; lists, NumPy arrays and tensors become tuples."""
    plain = given.tolist() if hasattr(given, "tolist") else given
    numbers = list(plain) if isinstance(plain, list | tuple) else [plain]
    if not numbers or not all(is_finite(each) and each >= 0 for each in numbers):
        raise BadInput(f"radius must be a finite number ≥ 0, or one per feature of a vector, got {brief(plain)}")
    floats = tuple(float(each) for each in numbers)
    return floats if isinstance(plain, list | tuple) else floats[0]


def as_budget(radius: Radius | Tensor) -> float | Tensor:
    """The radius as a `Ball` takes it."""
    return torch.tensor(radius) if isinstance(radius, tuple) else radius


def largest(radius: Radius) -> float:
    """The largest radius of a feature."""
    return max(radius) if isinstance(radius, tuple) else radius


def exceeds(radius: Radius, other: Radius) -> bool:
    """Whether the radius is larger than the other in some feature, by more than rounding."""
    count = next((len(each) for each in (radius, other) if isinstance(each, tuple)), 1)
    mine, theirs = (each if isinstance(each, tuple) else (each,) * count for each in (radius, other))
    return any(one > two * (1 + SAME) for one, two in zip(mine, theirs, strict=True))


def check_features(radius: Radius, shape: tuple[int, ...]) -> None:
    """Refuse a radius per feature that does not fit one observation."""
    if isinstance(radius, tuple) and (len(radius),) != tuple(shape):
        raise BadInput(
            f"radius must be one number, or one per feature of a vector: observations are {tuple(shape)}, "
            f"got {len(radius)} numbers"
        )
