"""A recorded episode: bounds are rounded outward, and it begins where it is told to."""

import torch

from radial.agents.foreign import wrap
from radial.core.data import EnvSpec
from radial.workflows.audit.trace import _round, play_once

CARTPOLE = EnvSpec("classic", "CartPole-v1", {"max_episode_steps": 3})


def test_bounds_are_rounded_outward() -> None:
    values = torch.tensor([1.2345678, -1.2345678, 123456.7, 0.0, 1e-7], dtype=torch.float64)
    lower, upper = (torch.tensor(_round(values, way), dtype=torch.float64) for way in (-1, 1))
    assert (lower <= values).all()
    assert (upper >= values).all()
    assert (upper - lower <= 1.01e-4 * values.abs()).all()


def test_an_episode_from_another_start() -> None:
    agent = wrap(torch.nn.Linear(4, 2), "q", observation_shape=(4,))
    zero, two = (play_once(agent, CARTPOLE, None, 0.0, float("inf"), 0, episode=number)["raw"][0] for number in (0, 2))
    assert not torch.equal(zero, two)
    again = play_once(agent, CARTPOLE, None, 0.0, float("inf"), 0, episode=2)["raw"][0]
    assert torch.equal(again, two)
