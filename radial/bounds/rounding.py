"""Rounding errors added to a bound, so that it holds for the network that runs and not only for the one on paper.

The sound form computes in float64 and, at every layer, widens by a bound on two errors at once: that of the network's
own forward pass in its own precision, in any order of summation, with or without fused multiply-add, and that of the
float64 arithmetic used here. Both are multiples of Σ|terms|, the sum of the absolute values of all terms (Higham,
*Accuracy and Stability of Numerical Algorithms*, ch. 3): a sum of n products carries at most γ_n·Σ|terms|.
Kernels that do not add up products of weights and inputs (Winograd, FFT, TF32, bfloat16) are not covered and, where we
can see them, refused; so is flushing denormal numbers to zero.
"""

from dataclasses import dataclass
from typing import NoReturn

import torch
from torch import Tensor, nn

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
        """A bound on the error of any single underflow."""
        return 2.0 * torch.finfo(self.dtype).tiny

    def error(self, terms: int, spread: int, inference: Tensor, ours: Tensor, largest: Tensor) -> Tensor:
        """How far the computed value of a layer may lie from the exact one, elementwise.

        terms      roundings behind one output element of the forward pass; 0: the layer is exact (a ReLU, a reshape)
        spread     terms of the sums of a backward substitution: of the transposed layer, and over the whole layer
        inference  Σ|terms| of the forward pass        ours  Σ|terms| of the float64 computation of the bounds
        largest    the largest partial sum of the forward pass
        """
        forward = gamma(terms, self.unit) * inference + terms * self.tiny if terms else 0.0
        total = (forward + gamma(terms + spread + SPARE, UNIT_64) * ours) * (1 + 2.0**-20)
        # A partial sum beyond the largest float would be inf in the network, however finite it is in float64.
        return torch.where(largest < torch.finfo(self.dtype).max / 4, total, torch.inf)

    def input_error(self, magnitude: Tensor) -> Tensor:
        """The rounding of x ± ε, of ε itself and of a projection: a few units in the last place of the input."""
        return (4 * self.unit + gamma(SPARE + magnitude[:1].numel(), UNIT_64)) * magnitude + self.tiny

    @property
    def smallest_input(self) -> float:
        """Added to every magnitude, so that γ times it covers inputs that underflow."""
        return self.tiny / self.unit * 2

    def outward(self, lower: Tensor, upper: Tensor) -> Bounds:
        """Float64 ends in the network's own dtype, rounded away from each other."""
        return Bounds(self._downward(lower), -self._downward(-upper))

    def _downward(self, x: Tensor) -> Tensor:
        near = x.to(self.dtype)
        return torch.where(near.to(x.dtype) > x, torch.nextafter(near, torch.full_like(near, -torch.inf)), near)


def check_arithmetic(network: nn.Module, device: torch.device, dtype: torch.dtype) -> None:
    """Refuse settings under which torch may run the network in less precision, or by other formulas."""
    if torch.is_autocast_enabled(device.type):
        _refuse("torch.autocast must be off")
    if device.type == "cpu" and bool((torch.full((16,), 1e-39) * torch.ones(16) == 0).any()):
        _refuse("torch.set_flush_denormal must be off")
    if dtype == torch.float32:
        _check_float32(device)
    direct = torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled
    nnpack = not direct and torch.backends.nnpack.is_available() and torch._C._get_nnpack_enabled()
    if nnpack and device.type == "cpu" and any(isinstance(module, nn.Conv2d) for module in network.modules()):
        _refuse("NNPACK, which convolves by Winograd, must be off: torch.backends.nnpack.set_flags(False)")


def _check_float32(device: torch.device) -> None:
    try:
        precision = torch.get_float32_matmul_precision()
    except RuntimeError:  # old and new settings contradict each other
        precision = "mixed"
    if precision != "highest":
        _refuse(f"torch.set_float32_matmul_precision must be 'highest', got {precision!r}")
    backend = torch.backends.cudnn if device.type == "cuda" else torch.backends.mkldnn
    for part in (backend, getattr(backend, "conv", None), getattr(backend, "matmul", None)):
        if getattr(part, "fp32_precision", "none") not in ("none", "ieee"):
            _refuse("every fp32_precision in torch.backends must be 'ieee'")
    if device.type == "cuda" and (torch.backends.cudnn.allow_tf32 or torch.backends.cuda.matmul.allow_tf32):
        _refuse("torch.backends.cudnn.allow_tf32 must be False")


def _refuse(why: str) -> NoReturn:
    raise BadInput(f"a sound bound needs full-precision inference: {why}")
