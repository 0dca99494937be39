"""SA-DDPG's regulariser by hand, and the bound as the worst corner of the box."""

import torch

from radial.core.data import Bounds
from radial.losses.action_shift import action_shift, action_shift_bound

CLEAN = torch.tensor([[0.0, 0.5]])
BOX = Bounds(torch.tensor([[-0.1, 0.1]]), torch.tensor([[0.3, 0.6]]))


def test_by_hand() -> None:
    assert torch.allclose(action_shift(CLEAN, torch.tensor([[0.3, 0.1]])), torch.tensor([0.5]))  # 3, 4, 5
    assert torch.allclose(action_shift_bound(BOX, CLEAN), torch.tensor([0.5]))  # to 0.3 and to 0.1


def test_no_action_of_the_box_is_further_away_and_the_gradient_is_finite_where_nothing_moves() -> None:
    inside = BOX.lower + BOX.width * torch.rand(100, 2, generator=torch.Generator().manual_seed(0))
    assert (action_shift(CLEAN.expand(100, 2), inside) <= 0.5).all()
    still = CLEAN.clone().requires_grad_(True)
    action_shift(still, still.detach()).sum().backward()
    assert still.grad is not None
    assert still.grad.isfinite().all()
