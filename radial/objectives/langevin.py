"""Search of a ball inside an objective: noisy steepest ascent, with the constants of the SA-PPO code.

All randomness is passed in, and there is no control flow that depends on a value, so that an update compiles whole.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from radial.core.ball import Ball
from radial.core.search import steepest

INVERSE_BETA = 1e-5  # of the noise: SA-PPO's, whose gradients are small
BatchLoss = Callable[[Tensor], Tensor]  # (B, *obs) → (), differentiable: the mean over the batch


def langevin(loss: BatchLoss, ball: Ball, noise: Tensor, steps: int) -> Tensor:
    """Where stochastic gradient Langevin dynamics end, (B, *obs), without gradient.

    noise  (B, steps + 1, *obs), standard normal: the direction of the start, and the shake of each step

    x ← Π(x + ε/steps·steepest(∇loss + n)), n ~ N(0, 2e-5·ε/steps)/(i + 2) at step i = 0, 1, …; signs for p = ∞. The
    loss is the mean over the batch, as in SA-PPO's code: the noise is scaled against this gradient.
    """
    step = ball.budget() / steps
    x = ball.center + steepest(noise[:, 0], ball) * step
    for i in range(steps):
        shaken = _slope(loss, x) + noise[:, i + 1] * (2 * step * INVERSE_BETA).sqrt() / (i + 2)
        x = ball.project(x + steepest(shaken, ball) * step)
    return x.detach()


def ascend(loss: BatchLoss, ball: Ball, noise: Tensor, steps: int) -> Tensor:
    """Where steps without noise end, (B, *obs): for frames, whose gradients per pixel are far smaller than the noise.

    noise  (B, 1, *obs), standard normal: the direction of the start

    Steps are 1.5·ε/steps long, so that a start in the wrong half of the ball can still reach the far end.
    """
    step = ball.budget() / steps
    x = ball.center + steepest(noise[:, 0], ball) * step
    for _ in range(steps):
        x = ball.project(x + steepest(_slope(loss, x), ball) * (1.5 * step))
    return x.detach()


SEARCHES = {"sgld": langevin, "pgd": ascend}


def draws_of(search: str, steps: int) -> int:
    """Number of noise arrays that a search takes."""
    return {"sgld": steps + 1, "pgd": 1}[search]


def _slope(loss: BatchLoss, x: Tensor) -> Tensor:
    with torch.enable_grad():
        x = x.detach().requires_grad_(True)
        return torch.autograd.grad(loss(x), x)[0]
