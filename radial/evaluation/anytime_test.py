"""What is proven grows with the search, never passes the truth, and ends at it."""

import math

import pytest
import torch
from torch import nn

from radial.agents.foreign import wrap
from radial.core.data import BadInput, EnvSpec
from radial.envs.cloning import make_cloneable
from radial.envs.make import env_seeds
from radial.evaluation.anytime import Proven, prove
from radial.evaluation.play import streams
from radial.evaluation.possible import adversary_of
from radial.evaluation.worst_case import awc

SPEC = EnvSpec("classic", "CartPole-v1", {"max_episode_steps": 12})


def agent() -> object:
    layer = nn.Linear(4, 2, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0.0, 0.0, -1.0, -0.5], [0.0, 0.0, 1.0, 0.5]]))
    return wrap(nn.Sequential(layer), "categorical")


def found(radius: float, states: int, reward_low: float | None = 1.0) -> Proven:
    env = make_cloneable(SPEC, env_seeds(streams(0)[0], 1)[0])
    adversary = adversary_of(agent(), radius, math.inf, "ibp", "margins")  # type: ignore[arg-type]
    try:
        return prove(adversary, env, 12, reward_low, states=states)
    finally:
        env.close()


@pytest.mark.parametrize("radius", [0.01, 0.6])
def test_a_finished_search_is_the_absolute_worst_case(radius: float) -> None:
    truth = awc(agent(), SPEC, radius, rule="margins")  # type: ignore[arg-type]
    assert truth.exact
    ours = found(radius, 100_000)
    assert (ours.lower, ours.exact) == (truth.upper, True)


def test_what_is_proven_grows() -> None:
    lower = [found(0.6, states).lower for states in (1, 8, 64)]
    assert lower == sorted(lower)
    assert lower[0] == 2.0  # a step was taken, and one more comes for sure
    assert lower[-1] > 4
    assert lower[-1] <= found(0.6, 100_000).lower


def test_without_a_least_reward_only_a_finished_search_proves_anything() -> None:
    assert found(0.6, 8, None).lower == -math.inf
    with pytest.raises(BadInput, match="reward_low must be ≤ every reward"):
        found(0.6, 8, 2.0)
