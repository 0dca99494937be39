"""Cross-fitting, by hand: which attack each half is reported under, and that noise is not taken for strength."""

import random
import statistics as plain

import pytest

from radial.core.data import BadInput
from radial.evaluation.crossfit import cross_fitted


def test_each_half_is_reported_under_the_attack_that_the_other_half_chose() -> None:
    reported = {"a": [10.0, 1.0, 10.0, 1.0], "b": [2.0, 8.0, 2.0, 8.0]}
    found = cross_fitted({}, reported)
    # the odd episodes (a: 1, b: 8) choose a for the even ones; the even ones (a: 10, b: 2) choose b for the odd ones
    assert found.attacks == ("a", "b")
    assert found.returns == (10.0, 8.0, 10.0, 8.0)
    assert found.mean == 9.0


def test_selection_episodes_count_as_well() -> None:
    reported = {"a": [10.0, 1.0], "b": [2.0, 8.0]}
    found = cross_fitted({"a": [30.0, 30.0], "b": [0.0, 0.0]}, reported)
    assert found.attacks == ("b", "b")  # means without the even one: a 61/3, b 8/3; without the odd one: 70/3, 2/3
    assert found.returns == (2.0, 8.0)


def test_one_attack_is_reported_as_it_is_and_equal_ones_by_the_first() -> None:
    assert cross_fitted({}, {"a": [1.0, 2.0, 3.0]}).returns == (1.0, 2.0, 3.0)
    assert cross_fitted({}, {"a": [5.0, 5.0], "b": [5.0, 5.0]}).attacks == ("a", "a")
    assert cross_fitted({}, {"a": [5.0], "b": [4.0]}).attacks[0] == "b"  # one episode: nothing else to choose by


def test_equal_attacks_are_not_made_stronger_by_noise() -> None:
    """The least of ten means of noise around 0 is about −1.5 standard errors; the cross-fitted mean is about 0."""
    draw = random.Random(0)
    found, least = [], []
    for _ in range(300):
        reported = {number: [draw.gauss(0, 1) for _ in range(50)] for number in range(10)}
        found.append(cross_fitted({}, reported).mean)
        least.append(min(plain.mean(returns) for returns in reported.values()))
    assert abs(plain.mean(found)) < 0.03
    assert plain.mean(least) < -0.15


def test_attacks_with_different_numbers_of_episodes_are_refused() -> None:
    with pytest.raises(BadInput, match="reported must be as many episodes"):
        cross_fitted({}, {"a": [1.0], "b": [1.0, 2.0]})
    with pytest.raises(BadInput, match="at least one attack"):
        cross_fitted({}, {})
