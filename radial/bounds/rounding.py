"""What floating point adds to a bound, so that it holds for the network that runs and not only for the one on paper.

The sound form computes in float64 and, at every layer, widens by a bound on two errors at once: that of the network's
own forward pass in its own precision, in any order of summation, with or without fused multiply-add, and that of the
float64 arithmetic used here. Both are multiples of Σ|terms|, the sum of the absolute values that are added up (Higham,
*Accuracy and Stability of Numerical Algorithms*, ch. 3): a sum of n products carries at most γ_n·Σ|terms|.
Kernels that do not add up products of weights and inputs (Winograd, FFT, TF32, bfloat16) are not covered and, where we
can see them, refused.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from radial.core.data import BadInput, Bounds

UNIT_64 = 2.0**-53
SPARE = 256  # roundings of our own per element and layer, counted generously: splitting, adding up, concretising


def gamma(terms: int, unit: float) -> float:
    """γ_n = n·u/(1 − n·u), the relative error of n roundings, infinite where the theory ends."""
    return terms * unit / (1 - terms * unit) if terms * unit < 0.5 else torch.inf


@dataclass(frozen=True)
class Rounding:
    """The precision a network runs in. Everything here returns float64."""

    dtype: torch.dtype

    @property
    def unit(self) -> float:
        """Unit roundoff u: 2⁻²⁴ for float32."""
        return torch.finfo(self.dtype).eps / 2

    @property
    def tiny(self) -> float:
        """More than any single underflow, flushed to zero or not."""
        return 2.0 * torch.finfo(self.dtype).tiny

    def error(self, terms: int, spread: int, inference: Tensor, ours: Tensor) -> Tensor:
        """How far the computed value of a layer may lie from the exact one, elementwise.

        terms      roundings behind one output element of the forward pass; 0: the layer is exact (a ReLU, a reshape)
        spread     terms of the sums of a backward substitution: of the transposed layer, and over the whole layer
        inference  Σ|terms| of the forward pass        ours  Σ|terms| of what we compute
        """
        forward = gamma(terms, self.unit) * inference + terms * self.tiny if terms else 0.0
        total = (forward + gamma(terms + spread + SPARE, UNIT_64) * ours) * (1 + 2.0**-20)
        # A partial sum beyond the largest float would be inf in the network, whatever float64 says.
        return torch.where(inference < torch.finfo(self.dtype).max / 4, total, torch.inf)

    def input_error(self, magnitude: Tensor) -> Tensor:
        """The rounding of x ± ε, of ε itself and of a projection: a few units in the last place of the input."""
        return (4 * self.unit + gamma(SPARE + magnitude[:1].numel(), UNIT_64)) * magnitude + self.tiny

    @property
    def smallest_input(self) -> float:
        """Added to every magnitude, so that γ times it pays for inputs that a kernel flushes to zero."""
        return self.tiny / self.unit * 2

    def outward(self, lower: Tensor, upper: Tensor) -> Bounds:
        """Float64 ends in the network's own dtype, rounded away from each other."""
        return Bounds(self._downward(lower), -self._downward(-upper))

    def _downward(self, x: Tensor) -> Tensor:
        near = x.to(self.dtype)
        return torch.where(near.to(x.dtype) > x, torch.nextafter(near, torch.full_like(near, -torch.inf)), near)


def check_arithmetic(device: torch.device, dtype: torch.dtype) -> None:
    """Refuse settings under which torch may run a float32 network in less than float32."""
    if torch.is_autocast_enabled(device.type):
        raise BadInput("a sound bound needs full-precision inference: torch.autocast must be off")
    if dtype != torch.float32:
        return
    try:
        precision = torch.get_float32_matmul_precision()
    except RuntimeError:  # old and new settings contradict each other
        precision = "mixed"
    if precision != "highest":
        raise BadInput(
            "a sound bound needs full float32 inference: torch.set_float32_matmul_precision must be 'highest', "
            f"got {precision!r}"
        )
    backend = torch.backends.cudnn if device.type == "cuda" else torch.backends.mkldnn
    for part in (backend, getattr(backend, "conv", None), getattr(backend, "matmul", None)):
        if getattr(part, "fp32_precision", "none") not in ("none", "ieee"):
            raise BadInput(
                "a sound bound needs full float32 inference: torch.backends' fp32_precision must be 'ieee', "
                f"got {part.fp32_precision!r}"  # type: ignore[union-attr]
            )
    if device.type == "cuda" and (torch.backends.cudnn.allow_tf32 or torch.backends.cuda.matmul.allow_tf32):
        raise BadInput("a sound bound needs full float32 inference: torch.backends.cudnn.allow_tf32 must be False")
