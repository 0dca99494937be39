"""Starts from which interval bounds are narrow enough to train on, and batch normalisation folded into its layer.

A start replaces the weights of the layers that decide (`agent.choice`), except the last; a critic keeps its own.
"""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import nn

from radial.agents.networks import ResidualBlock
from radial.core.agent import Agent
from radial.core.data import BadInput

DEFAULT = "default"  # the agent's own start
Norm = nn.BatchNorm1d | nn.BatchNorm2d


class _Layer(NamedTuple):
    """An affine layer: whether a residual sum feeds it, and whether it is the last of a residual branch."""

    layer: nn.Linear | nn.Conv2d
    fed_by_sum: bool
    ends_branch: bool


def _layers(network: nn.Module) -> Iterator[_Layer]:
    """The affine layers of a network in the order of computation."""
    summed, blocks = False, [each for each in network.modules() if isinstance(each, ResidualBlock)]
    inside = {id(layer): block for block in blocks for layer in block.modules() if isinstance(layer, nn.Conv2d)}
    for layer in network.modules():
        if not isinstance(layer, nn.Linear | nn.Conv2d):
            continue
        block = inside.get(id(layer))
        ends = block is not None and layer is block.branch[-1]
        yield _Layer(layer, summed and not ends, ends)
        summed = ends


@torch.no_grad()
def start_ibp(network: nn.Module, rng: torch.Generator) -> None:
    """IBP initialisation (Shi et al. 2021): W ~ N(0, 2π/n²), n inputs of a unit, zero biases; all but the last layer.

    The mean width of the bounds then stays as it is from layer to layer. A residual sum doubles it, so the layer that
    it feeds is halved.
    """
    *layers, _ = _layers(network)
    for layer, fed_by_sum, _ in layers:
        deviation = math.sqrt(2 * math.pi) / layer.weight[0].numel()
        nn.init.normal_(layer.weight, 0.0, deviation / (2 if fed_by_sum else 1), generator=rng)
        _no_bias(layer)


@torch.no_grad()
def start_zero_branches(network: nn.Module, rng: torch.Generator) -> None:
    """He's start with the last convolution of each residual branch at 0: every block begins as the identity.

    Without residual blocks it is He's start alone, W ~ N(0, 2/n), zero biases; the last layer keeps its own.
    """
    *layers, _ = _layers(network)
    for layer, _, ends_branch in layers:
        nn.init.normal_(layer.weight, 0.0, math.sqrt(2 / layer.weight[0].numel()), generator=rng)
        if ends_branch:
            nn.init.zeros_(layer.weight)
        _no_bias(layer)


def _no_bias(layer: nn.Linear | nn.Conv2d) -> None:
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


STARTS: dict[str, Callable[[nn.Module, torch.Generator], None] | None] = {
    DEFAULT: None,
    "ibp": start_ibp,
    "zero-branches": start_zero_branches,
}


def check_start(name: str) -> None:
    """Refuse a start that is none of STARTS."""
    if name not in STARTS:
        raise BadInput(f"start must be one of {', '.join(STARTS)}, got {name!r}")


def start_agent(agent: Agent, name: str, rng: torch.Generator) -> None:
    """Initialise an agent of ours, and then the network that decides by the start of this name."""
    check_start(name)
    agent.initialize(rng)  # type: ignore[attr-defined]
    start = STARTS[name]
    if start is not None:
        start(agent.choice, rng)


# ------------------------------------------------------------------------------------------------- batch normalisation


@torch.no_grad()
def fold_batch_norm(network: nn.Module) -> nn.Module:
    """The network with each batch normalisation behind a linear layer or convolution folded into that layer.

    Only in `nn.Sequential`s, at any depth, where the order of computation is known, and only in eval mode, where a
    batch normalisation is affine: γ·(Wx + b − μ)/√(σ² + ε) + β. Other modules are kept as they are; the network given
    is not changed.
    """
    if not isinstance(network, nn.Sequential) or type(network).forward is not nn.Sequential.forward:
        return network
    folded: list[nn.Module] = []
    for layer in network:
        if isinstance(layer, Norm) and folded and _folds(folded[-1], layer):
            folded[-1] = _fold(folded[-1], layer)
        else:
            folded.append(fold_batch_norm(layer))
    return nn.Sequential(*folded).train(network.training)


def _folds(layer: nn.Module, norm: Norm) -> bool:
    fits = nn.Linear if isinstance(norm, nn.BatchNorm1d) else nn.Conv2d
    return type(layer) is fits and not norm.training and norm.running_mean is not None


def _fold(layer: nn.Module, norm: Norm) -> nn.Module:
    assert isinstance(layer, nn.Linear | nn.Conv2d)
    assert norm.running_var is not None
    assert norm.running_mean is not None
    weight = layer.weight.double()  # the product is rounded once
    scale = (norm.running_var.double() + norm.eps).rsqrt()
    scale = scale if norm.weight is None else scale * norm.weight.double()
    bias = -norm.running_mean.double() if layer.bias is None else layer.bias.double() - norm.running_mean.double()
    bias = bias * scale if norm.bias is None else bias * scale + norm.bias.double()
    made: nn.Linear | nn.Conv2d
    if isinstance(layer, nn.Linear):
        made = nn.Linear(layer.in_features, layer.out_features)
    else:
        made = nn.Conv2d(
            layer.in_channels, layer.out_channels, layer.kernel_size, layer.stride, layer.padding, layer.dilation,  # type: ignore[arg-type]
            layer.groups, True, layer.padding_mode,
        )  # fmt: skip
    made = made.to(layer.weight)
    made.weight.copy_(weight * scale.view(-1, *[1] * (weight.ndim - 1)))
    assert made.bias is not None
    made.bias.copy_(bias)
    return made
