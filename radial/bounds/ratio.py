"""The width of a network's bounds against the spread of its outputs: one number that says whether bounds are alive.

Layer by layer it is in `evaluation.widths`.
"""

import torch
from torch import nn

from radial.bounds.methods import ibp
from radial.core.ball import Ball

TINY_SPREAD = 1e-30


@torch.no_grad()
def width_ratio(network: nn.Module, ball: Ball, differences: bool) -> float:
    """Mean width of the IBP bounds of the outputs by their deviation over the centres (B, *obs), B ≥ 2.

    differences  only differences between outputs matter, as for logits: their mean is left out of the spread
    """
    outputs = network(ball.center).double()
    if differences and outputs.shape[1] > 1:
        outputs = outputs - outputs.mean(1, keepdim=True)
    width = ibp(network, ball).width.double().mean()
    return float(width / outputs.var(0).mean().sqrt().clamp(min=TINY_SPREAD))
