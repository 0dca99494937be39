"""Cross-fitting, by hand: which attack each half is reported under, and that noise is not taken for strength."""

import random
import statistics as plain
from collections.abc import Sequence

from radial.evaluation.crossfit import CrossFitted, cross_fitted


def fitted(
    reported: dict[str, Sequence[float]], chosen_on: dict[str, Sequence[float]] | None = None
) -> CrossFitted[str]:
    """Starts 0, 1, … are reported, −1, −2, … serve the choice alone."""
    returns = {attack: dict(enumerate(values)) for attack, values in reported.items()}
    for attack, values in (chosen_on or {}).items():
        returns[attack] |= {-1 - number: value for number, value in enumerate(values)}
    found = cross_fitted(returns, range(max(map(len, reported.values()))))
    assert found is not None
    return found


def test_each_half_is_reported_under_the_attack_that_the_other_half_chose() -> None:
    found = fitted({"a": [10.0, 1.0, 10.0, 1.0], "b": [2.0, 8.0, 2.0, 8.0]})
    # the odd starts (a: 1, b: 8) choose a for the even ones; the even ones (a: 10, b: 2) choose b for the odd ones
    assert found.attacks == ("a", "b")
    assert found.returns == (10.0, 10.0, 8.0, 8.0)
    assert found.mean == 9.0


def test_other_starts_count_in_the_choice_alone() -> None:
    found = fitted({"a": [10.0, 1.0], "b": [2.0, 8.0]}, {"a": [30.0, 30.0], "b": [0.0, 0.0]})
    assert found.attacks == ("b", "b")  # means without the even start: a 61/3, b 8/3; without the odd one: 70/3, 2/3
    assert found.returns == (2.0, 8.0)


def test_an_attack_that_was_cut_off_counts_with_the_starts_it_finished() -> None:
    found = fitted({"whole": [9.0, 9.0, 9.0, 9.0], "cut": [1.0, 1.0, 1.0]})
    assert found.attacks == ("cut", "cut")
    assert found.returns == (1.0, 1.0, 1.0)  # start 3 was not reached under the strongest attack


def test_one_attack_is_reported_as_it_is_and_equal_ones_by_the_first() -> None:
    assert sorted(fitted({"a": [1.0, 2.0, 3.0]}).returns) == [1.0, 2.0, 3.0]
    assert fitted({"a": [5.0, 5.0], "b": [5.0, 5.0]}).attacks == ("a", "a")


def test_one_episode_leaves_nothing_to_choose_by() -> None:
    assert cross_fitted({"a": {0: 5.0}, "b": {0: 4.0}}, [0]) is None
    assert cross_fitted({}, []) is None


def test_equal_attacks_are_not_made_stronger_by_noise() -> None:
    """The least of ten means of noise around 0 is about −1.5 standard errors; the cross-fitted mean is about 0."""
    draw = random.Random(0)
    found, least = [], []
    for _ in range(300):
        reported = {str(number): [draw.gauss(0, 1) for _ in range(50)] for number in range(10)}
        found.append(fitted(reported).mean)
        least.append(min(plain.mean(returns) for returns in reported.values()))
    assert abs(plain.mean(found)) < 0.03
    assert plain.mean(least) < -0.15
