import math

import pytest
import torch

from radial.core.data import BadInput
from radial.evaluation.statistics import bootstrap_ci, correlation, gains, iqm, iqm_ci95, lowest, mean, sem, unharmed


def test_by_hand() -> None:
    returns = [1.0, 3.0, 100.0, 2.0, -50.0, 4.0, 5.0, 6.0]
    assert mean(returns) == 71 / 8
    assert iqm(returns) == (2 + 3 + 4 + 5) / 4  # two of eight fall at either end
    assert mean([2.0, 4.0]) == 3.0
    assert sem([2.0, 4.0]) == pytest.approx(1 / math.sqrt(2))  # the population's deviation is 1, not √2


def test_what_is_cut_is_rounded_down() -> None:
    assert iqm([7.0]) == 7.0
    assert iqm([0.0, 1.0, 5.0]) == 2.0  # nothing is cut from three
    assert iqm([0.0, 1.0, 2.0, 3.0, 100.0]) == 2.0  # one of five at either end
    assert iqm(list(range(50))) == 24.5  # twelve of fifty at either end: 12 … 37


def test_one_return_has_no_spread() -> None:
    assert sem([5.0]) == 0.0
    assert iqm_ci95([[5.0]]) == (5.0, 5.0)
    assert iqm_ci95([[5.0] * 9]) == (5.0, 5.0)


def test_the_bootstrap_of_a_mean_is_the_normal_interval() -> None:
    values = torch.randn(400, generator=torch.Generator().manual_seed(0), dtype=torch.float64).tolist()
    low, high = bootstrap_ci([values], lambda x: x.mean(-1), resamples=4000)
    assert low == pytest.approx(mean(values) - 1.96 * sem(values), abs=0.01)
    assert high == pytest.approx(mean(values) + 1.96 * sem(values), abs=0.01)
    narrow = bootstrap_ci([values], lambda x: x.mean(-1), level=0.5)
    assert narrow[1] - narrow[0] == pytest.approx(2 * 0.6745 * sem(values), rel=0.1)


def test_strata_are_drawn_each_within_itself() -> None:
    """Two agents far apart, each without spread: resampling across them would invent an uncertainty."""
    apart = [[0.0] * 5, [100.0] * 5]
    assert bootstrap_ci(apart, lambda x: x.mean(-1)) == (50.0, 50.0)
    together = bootstrap_ci([apart[0] + apart[1]], lambda x: x.mean(-1))
    assert together[1] - together[0] > 30


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    rng = torch.Generator().manual_seed(1)
    hits = 0
    for seed in range(200):
        low, high = iqm_ci95([torch.rand(50, generator=rng, dtype=torch.float64).tolist()], resamples=400, seed=seed)
        hits += low <= 0.5 <= high
    assert 0.89 <= hits / 200 <= 0.99


def test_the_same_returns_give_the_same_interval() -> None:
    returns = [1.0, 5.0, 2.0, 8.0, 3.0]
    assert iqm_ci95([returns]) == iqm_ci95([returns])
    assert iqm_ci95([returns])[0] <= iqm(returns) <= iqm_ci95([returns])[1]


@pytest.mark.parametrize("returns", [[], [math.nan], [1.0, math.inf]])
def test_bad_input(returns: list[float]) -> None:
    for function in (mean, sem, iqm):
        with pytest.raises(BadInput, match="returns must be at least one number, all finite"):
            function(returns)
    with pytest.raises(BadInput, match="at least one list"):
        iqm_ci95([])


def test_correlation_by_hand() -> None:
    assert correlation([1.0, 2.0, 3.0], [2.0, 4.0, 6.0]) == pytest.approx(1.0)
    assert correlation([1.0, -1.0, 1.0, -1.0], [1.0, 1.0, -1.0, -1.0]) == pytest.approx(0.0)
    assert correlation([1.0, 1.0], [0.0, 3.0]) is None  # what does not vary says nothing


def test_an_episode_that_time_cut_off_counts_as_unharmed() -> None:
    """Three began and one ended, the short one: the attack wins nothing by it alone."""
    finished, so_far = {0: 12.0}, {0: 12.0, 1: 80.0, 2: 600.0}
    assert unharmed(finished, so_far, {0: 500.0, 1: 500.0, 2: 500.0}) == {0: 12.0, 1: 500.0, 2: 600.0}
    assert unharmed(finished, so_far, {}) == {0: 12.0, 1: 80.0, 2: 600.0}
    cut = unharmed(finished, so_far, dict.fromkeys(range(3), 500.0))
    assert lowest({"whole": {0: 90.0, 1: 100.0, 2: 110.0}, "cut": cut}) == "whole"


def test_the_lowest_is_found_on_shared_starts() -> None:
    """What was cut off has the short episodes: by their means b would win, from the same start a does."""
    a, b, elsewhere = {0: 10.0, 1: 500.0}, {0: 20.0}, {7: 0.0}
    assert gains(b, a) == [10.0]
    assert lowest({"b": b, "a": a}) == "a"
    assert lowest({"a": a, "b": {0: 5.0}}) == "b"
    assert lowest({"a": a, "elsewhere": elsewhere}) == "a"
    assert lowest({"first": a, "equal": dict(a)}) == "first"
