"""The nouns every room shares: `Bounds`, `Verdict`, the error for bad input, and `check_shapes`.

No computation lives here beyond looking at a tensor.
"""

from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor

DTYPES = (torch.float32, torch.float64)


class BadInput(ValueError):
    """The caller's argument is wrong; the message is one line that names it and what is allowed."""


class Verdict(StrEnum):
    """What is known about one claim. Only `CERTIFIED` is a promise; `UNKNOWN` is the answer to every doubt."""

    CERTIFIED = "certified"  # proven for every point of the ball
    ATTACKED = "attacked"  # a counterexample is in hand
    UNKNOWN = "unknown"  # neither


@dataclass(frozen=True, eq=False)
class Bounds:
    """An enclosure of a tensor, element by element.

    lower, upper  (B, *) of one shape; NaN or inf entries enclose nothing and no verdict trusts them.
    """

    lower: Tensor
    upper: Tensor

    def __post_init__(self) -> None:
        if not isinstance(self.lower, Tensor) or not isinstance(self.upper, Tensor):
            raise BadInput("lower and upper must be tensors")
        if self.lower.shape != self.upper.shape:
            raise BadInput(
                f"lower and upper must have one shape, got {tuple(self.lower.shape)} and {tuple(self.upper.shape)}"
            )

    @property
    def width(self) -> Tensor:
        """Upper − lower, (B, *)."""
        return self.upper - self.lower

    def contains(self, y: Tensor) -> Tensor:
        """Which elements of `y` lie inside, (B, *) bool. NaN on either side counts as outside."""
        return (self.lower <= y) & (y <= self.upper)

    def __getitem__(self, index: int | slice | Tensor) -> "Bounds":
        """The bounds of some rows of the batch."""
        return Bounds(self.lower[index], self.upper[index])


def check_shapes(*pairs: object) -> dict[str, int]:
    """Check tensors against shapes such as "B K A"; a letter must mean one size everywhere.

    pairs    tensor, shape, tensor, shape, …  A shape is letters or numbers, and may end in "*" (anything more).
    returns  the size of each letter
    """
    sizes: dict[str, int] = {}
    for tensor, shape in zip(pairs[::2], pairs[1::2], strict=True):
        if not isinstance(tensor, Tensor) or not isinstance(shape, str):
            raise TypeError("check_shapes takes tensor, shape, tensor, shape, …")
        names = shape.split()
        open_ended = bool(names) and names[-1] == "*"
        names = names[:-1] if open_ended else names
        fits = tensor.ndim >= len(names) if open_ended else tensor.ndim == len(names)
        for name, size in zip(names, tensor.shape, strict=False):
            fits = fits and (int(name) if name.isdigit() else sizes.setdefault(name, size)) == size
        if not fits:
            known = ", ".join(f"{name} = {size}" for name, size in sizes.items())
            raise BadInput(f"expected shape ({shape}) with {known}, got {tuple(tensor.shape)}")
    return sizes
