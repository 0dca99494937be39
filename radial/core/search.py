"""Search inside a ball for the point that maximises a per-row function: the engine behind every gradient attack.

The caller gives the function; every iterate is projected onto the ball.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from radial.core.ball import Ball
from radial.core.data import BadInput

# The attacker's objective, (B, *obs) → (B,), differentiable; larger is worse for the agent.
AttackObjective = Callable[[Tensor], Tensor]


def pgd(
    objective: AttackObjective, ball: Ball, *, steps: int, step_size: float, start: Tensor, keep_best: bool = True
) -> tuple[Tensor, Tensor]:
    """Projected steepest ascent from `start`, each row on its own.

    steps, step_size  number of steps, and the length of one as a share of the radius
    start             (B, *obs), projected onto the ball first
    keep_best         return the best iterate of each row; False: the last one, as the paper's attack does
    returns           the points (B, *obs) and their objective (B,)
    """
    if steps < 0:
        raise BadInput(f"steps must be ≥ 0, got {steps}")
    if not (math.isfinite(step_size) and step_size > 0):
        raise BadInput(f"step_size must be finite and > 0, got {step_size}")
    x = ball.project(start.detach())
    best_x, best = x, torch.full((x.shape[0],), -math.inf, dtype=x.dtype, device=x.device)
    for step in range(steps + 1):
        with torch.enable_grad():
            x = x.detach().requires_grad_(True)
            value = objective(x)
            # The last iterate is only evaluated: no step follows.
            gradient = torch.autograd.grad(value.sum(), x)[0] if step < steps else None
        better = (value.detach() > best) if keep_best else torch.ones_like(best, dtype=torch.bool)
        best = torch.where(better, value.detach(), best)
        best_x = torch.where(_per_row(better, x), x.detach(), best_x)
        if gradient is not None:
            with torch.no_grad():
                x = ball.project(x + step_size * ball.budget() * steepest(gradient, ball))
    return best_x.detach(), best


def steepest(gradient: Tensor, ball: Ball) -> Tensor:
    """The direction of unit length, in budgets, along which a linear function with this gradient rises fastest."""
    scaled = (gradient * ball.budget()).flatten(1)
    if ball.p == math.inf:
        return gradient.sign()
    if ball.p == 2:
        length = torch.linalg.vector_norm(scaled, dim=1, keepdim=True)
        return (scaled / length.clamp(min=torch.finfo(scaled.dtype).tiny)).view_as(gradient)
    # p = 1: the dual norm is ℓ∞, so the whole budget goes to the one feature with the largest scaled gradient.
    at = scaled.abs().argmax(1, keepdim=True)
    return torch.zeros_like(scaled).scatter(1, at, scaled.gather(1, at).sign()).view_as(gradient)


def with_restarts(
    objective: AttackObjective, ball: Ball, rng: torch.Generator, *, restarts: int, steps: int, step_size: float
) -> tuple[Tensor, Tensor]:
    """The best of `restarts` runs of `pgd`: from the centre, then from corners and uniform points in turn."""
    if restarts < 1:
        raise BadInput(f"restarts must be ≥ 1, got {restarts}")
    best_x, best = pgd(objective, ball, steps=steps, step_size=step_size, start=ball.center)
    for restart in range(1, restarts):
        start = ball.sample(rng, "corner" if restart % 2 else "uniform")
        x, value = pgd(objective, ball, steps=steps, step_size=step_size, start=start)
        better = value > best
        best, best_x = torch.where(better, value, best), torch.where(_per_row(better, x), x, best_x)
    return best_x, best


def _per_row(mask: Tensor, like: Tensor) -> Tensor:
    return mask.view(-1, *[1] * (like.ndim - 1))
