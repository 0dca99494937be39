"""Adam (Kingma and Ba 2015) as a function of tensors, so that a training step compiles whole, optimiser included.

AMSGrad works in place, on memory that several processes may share. All parameters of an agent live in one flat vector;
`Flat` knows which piece is which.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.optim.adam import adam as _torch_adam

BETA1, BETA2 = 0.9, 0.999


class Moments(NamedTuple):
    """What Adam remembers: first and second moments (P,), and the number of steps ()."""

    first: Tensor
    second: Tensor
    steps: Tensor


def start(parameters: Tensor) -> Moments:
    """Moments before the first step."""
    return Moments(torch.zeros_like(parameters), torch.zeros_like(parameters), parameters.new_zeros(()))


def adam(
    parameters: Tensor, gradient: Tensor, moments: Moments, rate: Tensor, eps: float = 1e-5
) -> tuple[Tensor, Moments]:
    """One step: parameters − rate·m̂/(√v̂ + eps). All (P,); rate () or (P,). Nothing is changed in place."""
    steps = moments.steps + 1
    first = moments.first + (1 - BETA1) * (gradient - moments.first)
    second = moments.second + (1 - BETA2) * (gradient * gradient - moments.second)
    step = (first / (1 - BETA1**steps)) / ((second / (1 - BETA2**steps)).sqrt() + eps)
    return parameters - rate * step, Moments(first, second, steps)


@torch.no_grad()
def adam_(parameters: Tensor, gradient: Tensor, moments: Moments, rate: float, eps: float) -> None:
    """The same step in place, in one pass over the vectors: for millions of parameters 20 times as fast as `adam`."""
    _torch_adam(
        [parameters], [gradient], [moments.first], [moments.second], [], [moments.steps],
        fused=True, amsgrad=False, beta1=BETA1, beta2=BETA2, lr=rate, weight_decay=0.0, eps=eps, maximize=False,
    )  # fmt: skip


class MaxMoments(NamedTuple):
    """What AMSGrad remembers: first, second and largest second moments (P,), and the number of steps () float64."""

    first: Tensor
    second: Tensor
    largest: Tensor
    steps: Tensor


def start_amsgrad(parameters: Tensor) -> MaxMoments:
    """Moments before the first step."""
    first, second, largest = (torch.zeros_like(parameters) for _ in range(3))
    return MaxMoments(first, second, largest, parameters.new_zeros((), dtype=torch.float64))


@torch.no_grad()
def amsgrad_(parameters: Tensor, gradient: Tensor, moments: MaxMoments, rate: float, eps: float) -> None:
    """One step of AMSGrad (Reddi et al. 2018), in place and without a lock: others may do the same meanwhile.

    parameters, gradient  (P,)

    parameters ← parameters − rate·√(1 − β₂ᵗ)/(1 − β₁ᵗ)·m/(√v_max + eps), as the RADIAL-A3C code has it. PyTorch's own
    divides √v_max by √(1 − β₂ᵗ) before it adds eps: with eps = 1e-3 another optimiser, for the first thousand steps.
    """
    first, second, largest, steps = moments
    before = steps.to(parameters)  # a copy of its own: others may count meanwhile
    steps += 1
    _torch_adam(
        [parameters], [gradient], [first], [second], [largest], [before],
        fused=True, amsgrad=True, beta1=BETA1, beta2=BETA2, lr=rate, weight_decay=0.0,
        eps=eps / math.sqrt(1 - BETA2 ** (float(before) + 1)), maximize=False,
    )  # fmt: skip


class Flat:
    """Named parameters laid end to end in one vector; kernels of convolutions channels last, which is faster."""

    def __init__(self, named: Iterable[tuple[str, Tensor]]) -> None:
        self.shapes = {name: tensor.shape for name, tensor in named}

    def join(self, named: dict[str, Tensor]) -> Tensor:
        """The vector (P,), without gradient."""
        return torch.cat([_channels_last(named[name].detach()).flatten() for name in self.shapes])

    def split(self, vector: Tensor) -> dict[str, Tensor]:
        """The pieces, as views."""
        pieces = vector.split([shape.numel() for shape in self.shapes.values()])
        return {name: _shaped(piece, shape) for piece, (name, shape) in zip(pieces, self.shapes.items(), strict=True)}

    @torch.no_grad()
    def write(self, vector: Tensor, module: nn.Module) -> None:
        """Give a module the parameters of a vector (P,)."""
        for name, piece in self.split(vector).items():
            module.get_parameter(name).copy_(piece)

    def mark(self, prefix: str) -> Tensor:
        """1 where the vector holds a parameter whose name begins so, 0 elsewhere, (P,)."""
        return torch.cat([torch.full((s.numel(),), float(n.startswith(prefix))) for n, s in self.shapes.items()])


def _channels_last(tensor: Tensor) -> Tensor:
    return tensor.permute(0, 2, 3, 1) if tensor.ndim == 4 else tensor


def _shaped(piece: Tensor, shape: torch.Size) -> Tensor:
    if len(shape) != 4:
        return piece.view(shape)
    out, into, height, width = shape
    return piece.view(out, height, width, into).permute(0, 3, 1, 2)
