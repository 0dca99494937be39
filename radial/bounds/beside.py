"""Interval bounds of a network computed beside its ordinary pass: the points and the centres share one batch.

Only for training: fewer and larger products, the numbers of `ibp` up to rounding.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from radial.bounds.affine import Convolution, Dense
from radial.bounds.interval import Interval
from radial.bounds.nonlinear import ReLU
from radial.core.data import BadInput


def through(layers: Iterable[nn.Module], points: Tensor, box: Interval) -> tuple[Tensor, Interval]:
    """Values at points (N, …) and the image of a box (B, …) under affine, ReLU and Flatten layers."""
    for layer in layers:
        if isinstance(layer, nn.ReLU):
            points, box = torch.relu(points), ReLU().interval(box)
        elif isinstance(layer, nn.Flatten):
            radius = box.radius.expand(-1, *box.shape)
            points, box = layer(points), Interval(layer(box.center), layer(radius))
        else:
            # The rule moves centre and radius apart, so the batch of the centre may be longer.
            both = _rule(layer).interval(Interval(torch.cat([points, box.center]), box.radius))
            points, center = both.center[: len(points)], both.center[len(points) :]
            box = Interval(center, both.radius)
    return points, box


def _rule(layer: nn.Module) -> Convolution | Dense:
    if isinstance(layer, nn.Conv2d) and not isinstance(layer.padding, str):
        return Convolution(layer.weight, layer.bias, layer.stride, layer.padding, layer.dilation, layer.groups)
    if isinstance(layer, nn.Linear):
        return Dense(layer.weight, layer.bias)
    effective = getattr(layer, "as_linear", None)
    if effective is not None:
        return Dense(*effective())
    raise BadInput(f"joint must be none for a network with {type(layer).__name__}: only Conv2d, Linear, ReLU, Flatten")
