"""The dueling network as an objective sees it: its parts, and bounds of its advantages over a ball."""

import math
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from radial.bounds.beside import through
from radial.bounds.interval import Interval
from radial.bounds.mix import AnyBound, bound_terms
from radial.core.ball import Ball
from radial.core.data import Bounds
from radial.objectives.base import Coefficients

BoundTerms = list[tuple[float, Bounds]]  # bounds, and the weight of a loss there
DUAL = {1.0: math.inf, 2.0: 2.0, math.inf: 1.0}  # 1/p + 1/q = 1


class DuelingNetwork(Protocol):
    """Q = value(features) + advantage(features), with centred advantages: all that an objective needs of a network."""

    features: nn.Sequential  # (B, *obs) → (B, F), beginning with a linear layer or a convolution
    advantage: nn.Sequential  # (B, F) → A − mean(A), (B, A)
    value: nn.Sequential  # (B, F) → V, (B, 1)

    @property
    def advantages(self) -> nn.Module:
        """(B, *obs) → A − mean(A), (B, A): the network to bound."""

    @property
    def beyond_first(self) -> nn.Module:
        """The same network from the output of the first layer on."""

    def __call__(self, x: Tensor) -> Tensor:
        """(B, *obs) → Q (B, A)."""


def bound_advantages(net: DuelingNetwork, ball: Ball, first: Tensor, bound: AnyBound, at: Coefficients) -> BoundTerms:
    """Bounds of the centred advantages (B, A); arguments as for `bound_beyond`."""
    return bound_beyond(net.features[0], net.beyond_first, net.advantages, ball, first, bound, at)


def bound_beyond(
    layer: nn.Module, beyond: nn.Module, whole: Any, ball: Ball, first: Tensor, bound: AnyBound, at: Coefficients
) -> BoundTerms:
    """Bounds of a network over a ball of one radius for all features, not clipped.

    layer  its first        beyond  the rest of it        first  (B, …)  output of the first layer at the centre

    Bounds of an affine layer are its own output ± ε·‖w‖q, q the dual of p: exact, and for p = ∞ interval bounds. So
    IBP reuses the output of the first layer, the most expensive one for frames; its radius is a number per channel.
    """
    if bound != "ibp" or is_padded(layer):
        return bound_terms(whole, ball, bound, at)
    return bound_terms(beyond, Ball.unchecked(first, first_spread(layer, ball, first)[0]), bound, at)


def is_padded(layer: nn.Module) -> bool:
    """Whether fewer weights of a first layer see the ball at a border, so that its radius is no number per channel."""
    return isinstance(layer, nn.Conv2d) and layer.padding not in (0, (0, 0))


def first_spread(layer: nn.Module, ball: Ball, first: Tensor) -> Tensor:
    """The radius of an affine layer's output over a ball, (1, channels, 1, …) to stand beside `first` (B, …)."""
    weight: Tensor = layer.weight  # type: ignore[assignment]
    spread = ball.radius * torch.linalg.vector_norm(weight.flatten(1), DUAL[ball.p], dim=1)
    return spread.view(1, -1, *[1] * (first.ndim - 2))


def joint_pass(net: DuelingNetwork, x: Tensor, ball: Ball) -> tuple[Tensor, Tensor, Tensor, Bounds]:
    """Output of the first layer, features and advantages at x (N, *obs), and interval bounds of the advantages (B, A).

    ball  around the first B rows of x, for a first layer that is not padded. One batch holds x and the centres
    """
    layer = net.features[0]
    first = layer(x)
    box = Interval(first[: ball.center.shape[0]], first_spread(layer, ball, first))
    features, inside = through(list(net.features)[1:], first, box)
    advantage, inside = through(net.advantage, features, inside)
    return first, features, advantage, Bounds(inside.lower, inside.upper)
