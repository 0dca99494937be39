"""SA-DDPG's regulariser: how far perturbations move a deterministic action (Zhang et al. 2020). Pure functions."""

import torch
from torch import Tensor

from radial.core.data import Bounds, check_shapes


def action_shift(action: Tensor, other: Tensor) -> Tensor:
    """‖π(s) − π(ŝ)‖₂, (B,). action, other  (B, D)."""
    check_shapes(action, "B D", other, "B D")
    return torch.linalg.vector_norm(other - action, dim=-1)


def action_shift_bound(bounds: Bounds, action: Tensor) -> Tensor:
    """√Σ_d max(U_d − π_d, π_d − L_d)², (B,): the largest ‖π(s) − π(ŝ)‖₂ while π(ŝ) lies in bounds; exact for a box.

    action  (B, D), the clean one
    """
    check_shapes(action, "B D", bounds.lower, "B D")
    return torch.linalg.vector_norm(torch.maximum(bounds.upper - action, action - bounds.lower), dim=-1)
