"""Returns are counted so that every env has its share."""

import torch

from radial.training.rollouts import Returns


def play(returns: Returns, *lengths: int, steps: int) -> None:
    """Reward 1 in each step, and in env i an episode ends every lengths[i] steps."""
    ended = torch.stack([torch.arange(1, steps + 1) % length == 0 for length in lengths], 1)
    ones = torch.ones(steps, len(lengths), dtype=torch.float64)
    returns.add(ones, ended, ones)


def test_after_a_restart_the_short_episodes_do_not_outnumber_the_long_ones() -> None:
    """Two envs bring 100 each. After a restart one of them falls every 5 steps, and the other is still at it at 50."""
    returns = Returns(2, window=20)
    play(returns, 100, 100, steps=1_000)
    assert returns.shared() == [100.0] * 20
    returns.forget()
    play(returns, 5, 100, steps=50)
    assert returns.mean() == (10 * 5 + 10 * 100) / 20
    assert returns.shared()[-10:] == [5.0, 100.0] * 5  # half of the last ones, not all of them
    assert returns.returns[-10:] == [5.0] * 10


def test_a_checkpoint_keeps_the_shares() -> None:
    returns, again = Returns(2), Returns(2)
    play(returns, 2, 3, steps=6)
    assert returns.shared() == [2.0, 2.0, 3.0, 2.0, 3.0]
    again.restore(returns.state())
    assert (again.shared(), again.returns) == (returns.shared(), returns.returns)
    older = Returns(2)
    older.restore({"returns": [1.0], "lengths": [1.0]})
    assert older.shared() == [1.0]
    assert Returns(0).shared() == []
