"""A name stands for a new attack of its kind, wherever an attack may be given."""

import inspect

import pytest

import radial as rr
from radial.core.data import BadInput
from radial.evaluation import play


def test_a_name_is_the_attack() -> None:
    agent = rr.CategoricalAgent((4,), 2, (8,))
    agent.normalizer.freeze()
    named = rr.evaluate(agent, "CartPole-v1", "pgd", 0.1, 2)
    given = rr.evaluate(agent, "CartPole-v1", attack=rr.PGD(), radius=0.1, episodes=2)
    assert (named.returns, named.attack) == (given.returns, given.attack)
    assert rr.evaluate(agent, "CartPole-v1", episodes=1).attack == "none"


def test_a_name_of_no_attack_is_refused() -> None:
    with pytest.raises(BadInput, match="did you mean 'pgd'"):
        rr.evaluate(rr.CategoricalAgent((4,), 2, (8,)), "CartPole-v1", "pdg", 0.1)


def test_the_door_looks_as_what_is_behind_it() -> None:
    assert inspect.signature(rr.evaluate) == inspect.signature(play.evaluate)
    assert rr.evaluate.__doc__ == play.evaluate.__doc__
