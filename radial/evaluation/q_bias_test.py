"""Predicted minus realised values, against closed forms on CartPole, which pays 1 for every step."""

from typing import Any

import pytest
import torch
from torch import Tensor

from radial.core.data import BadInput, Discrete
from radial.evaluation.play import evaluate
from radial.evaluation.q_bias import q_bias, realised


class Steady:
    """Always pushes right and always expects 7."""

    observation_shape, actions = (4,), Discrete(2)
    network: Any = None

    def prepare(self, obs: Tensor) -> Tensor:
        return obs.float()

    def scores(self, x: Tensor) -> Tensor:
        return torch.tensor([3.0, 7.0]).expand(x.shape[0], 2)

    def act(self, x: Tensor, rng: torch.Generator | None = None) -> Tensor:
        return torch.ones(x.shape[0], dtype=torch.int64)


def test_discounted_to_the_end_by_hand() -> None:
    assert realised(torch.tensor([1.0, 0.0, -1.0]), 0.5).tolist() == [0.75, -0.5, -1.0]


def test_every_step_of_an_episode_that_pays_one() -> None:
    found = q_bias(Steady(), "CartPole-v1", episodes=3, seed=5, discount=0.9)
    lengths = [len(curve) for curve in found.predicted]
    assert lengths == [int(total) for total in found.returns]
    assert min(lengths) < max(lengths)  # what an env plays on while it waits for others does not count
    for curve, length in zip(found.realised, lengths, strict=True):
        assert curve == pytest.approx([(1 - 0.9 ** (length - t)) / 0.1 for t in range(length)])
    first = [7 - value for value in found.realised[0]]
    assert found.errors[0] == pytest.approx(first)
    assert found.means[0] == pytest.approx(sum(first) / len(first))
    assert found.mean == pytest.approx(sum(found.means) / 3)
    facts = found.to_json()
    assert (facts["episodes"], len(facts["predicted"]), facts["lengths"]) == (3, lengths[0], lengths)


def test_the_episodes_are_those_of_an_evaluation() -> None:
    ours = q_bias(Steady(), "CartPole-v1", episodes=3, seed=5)
    assert ours.returns == evaluate(Steady(), "CartPole-v1", episodes=3, seed=5).returns


def test_bad_input() -> None:
    for more, says in (({"episodes": 0}, "episodes"), ({"discount": 1.5}, "discount")):
        with pytest.raises(BadInput, match=says):
            q_bias(Steady(), "CartPole-v1", **more)
