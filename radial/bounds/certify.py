"""Turns bounds into a verdict: `certify_action`.

A certificate needs finite, ordered bounds and a strict inequality. Everything else is unknown.
"""

import warnings

import torch
from torch import Tensor, nn

from radial.bounds.methods import BoundMethod, check_arguments, check_center, crown_ibp, is_ours, method, sound
from radial.bounds.tracing import inspect
from radial.core.ball import Ball
from radial.core.data import BadInput, Bounds, Verdict


def certify_action(network: nn.Module, ball: Ball, bound: BoundMethod | str = crown_ibp) -> list[Verdict]:
    """Certify that the greedy action of each row stays the same over its whole ball.

    network  (B, *obs) → Q-values or logits (B, A); the largest is the action        ball  center (B, *obs)
    bound    a name or a method; the built-in ones always run in their sound form, any other is trusted as it is
    returns  one `Verdict` per row, `CERTIFIED` or `UNKNOWN`

    Certified: for every x in the ball, and in whatever order the network sums, output(action) > output(other).
    An exception while bounding is reported as a warning, and every row is unknown.
    """
    chosen = method(bound)
    chosen = sound(chosen) if is_ours(chosen) else chosen
    check_arguments(network, ball)
    inspect(network)  # before it runs: a forward in train mode would change running statistics
    with torch.no_grad():
        if ball.center.shape[0] == 0:
            return []
        try:
            scores = network(ball.center.clone())  # a copy, for some networks overwrite their input
        except RuntimeError as error:
            check_center(network, ball, error)
            raise
        if scores.ndim != 2 or scores.shape[1] < 2:
            raise BadInput(f"network must return scores (B, A) with A ≥ 2, got shape {tuple(scores.shape)}")
        rows = margins(scores)
        try:
            bounds = chosen(network, ball, rows)
        except BadInput:
            raise  # the arguments are wrong, which is no verdict
        except Exception as error:  # noqa: BLE001  whatever went wrong, it did not prove anything
            warnings.warn(f"no certificate: {type(error).__name__}: {error}", RuntimeWarning, stacklevel=2)
            return [Verdict.UNKNOWN] * ball.center.shape[0]
        proven = strictly_positive(bounds, rows.shape[:2]) & torch.isfinite(scores).all(1)
    return [Verdict.CERTIFIED if yes else Verdict.UNKNOWN for yes in proven.tolist()]


def margins(scores: Tensor) -> Tensor:
    """Rows e_greedy − e_other for each other action: (B, A) → (B, A − 1, A)."""
    batch, actions = scores.shape
    greedy = scores.argmax(1)
    eye = torch.eye(actions, dtype=scores.dtype, device=scores.device)
    others = torch.arange(actions - 1, device=scores.device).expand(batch, -1)
    others = others + (others >= greedy.unsqueeze(1))
    return eye[greedy].unsqueeze(1) - eye[others]


def strictly_positive(bounds: Bounds, shape: tuple[int, ...] | torch.Size) -> Tensor:
    """Rows whose every form is proven > 0, (B,) bool. NaN, inf, crossed or misshapen bounds prove nothing."""
    if bounds.lower.shape != torch.Size(shape):
        return torch.zeros(shape[0], dtype=torch.bool, device=bounds.lower.device)
    proper = torch.isfinite(bounds.lower) & torch.isfinite(bounds.upper) & (bounds.lower <= bounds.upper)
    return (proper & (bounds.lower > 0)).all(1)
