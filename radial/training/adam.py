"""Adam (Kingma and Ba 2015) and AMSGrad on flat vectors: as a pure function that compiles, and in place.

AMSGrad works on memory that several processes may share.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.optim.adam import adam as _torch_adam

BETA1, BETA2 = 0.9, 0.999


class AdamState(NamedTuple):
    """Adam's memory: first and second moments (P,), and the number of steps ()."""

    first: Tensor
    second: Tensor
    steps: Tensor


def start(parameters: Tensor) -> AdamState:
    """The state before the first step."""
    return AdamState(torch.zeros_like(parameters), torch.zeros_like(parameters), parameters.new_zeros(()))


def adam(
    parameters: Tensor, gradient: Tensor, state: AdamState, rate: Tensor, eps: float = 1e-5
) -> tuple[Tensor, AdamState]:
    """One step: parameters − rate·m̂/(√v̂ + eps). All (P,); rate () or (P,). Nothing is changed in place."""
    steps = state.steps + 1
    first = state.first + (1 - BETA1) * (gradient - state.first)
    second = state.second + (1 - BETA2) * (gradient * gradient - state.second)
    step = (first / (1 - BETA1**steps)) / ((second / (1 - BETA2**steps)).sqrt() + eps)
    return parameters - rate * step, AdamState(first, second, steps)


@torch.no_grad()
def adam_(parameters: Tensor, gradient: Tensor, state: AdamState, rate: float, eps: float) -> None:
    """Take the step of `adam` in place, in one pass over the vectors: 20 times as fast for millions of parameters."""
    _torch_adam(
        [parameters], [gradient], [state.first], [state.second], [], [state.steps],
        fused=True, amsgrad=False, beta1=BETA1, beta2=BETA2, lr=rate, weight_decay=0.0, eps=eps, maximize=False,
    )  # fmt: skip


class AMSGradState(NamedTuple):
    """AMSGrad's memory: first, second and largest second moments (P,), and the number of steps () float64."""

    first: Tensor
    second: Tensor
    largest: Tensor
    steps: Tensor


def start_amsgrad(parameters: Tensor) -> AMSGradState:
    """The state before the first step."""
    first, second, largest = (torch.zeros_like(parameters) for _ in range(3))
    return AMSGradState(first, second, largest, parameters.new_zeros((), dtype=torch.float64))


@torch.no_grad()
def amsgrad_(parameters: Tensor, gradient: Tensor, state: AMSGradState, rate: float, eps: float) -> None:
    """One step of AMSGrad (Reddi et al. 2018), in place and without a lock: others may do the same concurrently.

    parameters, gradient  (P,)

    parameters ← parameters − rate·√(1 − β₂ᵗ)/(1 − β₁ᵗ)·m/(√v_max + eps), as in the RADIAL-A3C code. PyTorch's own
    divides √v_max by √(1 − β₂ᵗ) before it adds eps: with eps = 1e-3 a different optimiser for the first thousand steps.
    """
    first, second, largest, steps = state
    before = steps.to(parameters)  # a private copy: other processes may count concurrently
    steps += 1
    _torch_adam(
        [parameters], [gradient], [first], [second], [largest], [before],
        fused=True, amsgrad=True, beta1=BETA1, beta2=BETA2, lr=rate, weight_decay=0.0,
        # PyTorch adds eps after dividing by √(1 − β₂ᵗ); dividing eps as well gives the form above.
        eps=eps / math.sqrt(1 - BETA2 ** (float(before) + 1)), maximize=False,
    )  # fmt: skip
