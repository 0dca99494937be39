"""Statistics of a list of returns: mean, standard error, interquartile mean and its bootstrap interval.

Plain functions of numbers; how the returns came about is not known here.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from radial.core.data import BadInput

Key = TypeVar("Key")


class Averaged:
    """Results with one number per episode: mean and standard error of `values`, which are the returns by default."""

    returns: tuple[float, ...]

    @property
    def values(self) -> tuple[float, ...]:
        """One number of each episode."""
        return self.returns

    @property
    def mean(self) -> float:
        """Mean over the episodes."""
        return mean(self.values)

    @property
    def sem(self) -> float:
        """Standard error of the mean, as the paper prints it."""
        return sem(self.values)


def mean(returns: Sequence[float]) -> float:
    """Σx/n."""
    return float(_tensor(returns).mean())


def sem(returns: Sequence[float]) -> float:
    """Standard error of the mean as the paper prints it: the population's standard deviation over √n."""
    values = _tensor(returns)
    return float(values.std(correction=0)) / math.sqrt(len(values))


def gains(first: Mapping[int, float], second: Mapping[int, float]) -> list[float]:
    """What the first has above the second, at each start that both finished."""
    return [first[start] - second[start] for start in first if start in second]


def unharmed(
    finished: Mapping[int, float], so_far: Mapping[int, float], instead: Mapping[int, float]
) -> dict[int, float]:
    """The return from each start, where the clock cut some episodes off: by its number.

    Those that are cut are the long ones, so an attack must not win by the others alone: it is taken to do no more harm
    there.

    so_far  of every episode that began        instead  the return without the attack, or under others
    """
    return {start: finished.get(start, max(gone, instead.get(start, gone))) for start, gone in so_far.items()}


def lowest(returns: Mapping[Key, Mapping[int, float]]) -> Key:
    """The one with the lowest mean return, by start; of equal ones the first.

    Two are compared on the starts that both have. Whoever has most is ahead until another one beats it there.
    """
    best, *others = sorted(returns, key=lambda each: -len(returns[each]))
    for other in others:
        found = gains(returns[best], returns[other])
        if found and mean(found) > 0:
            best = other
    return best


def correlation(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Pearson's r of paired numbers; None where one of the lists does not vary, so that nothing can be said."""
    x, y = (values - values.mean() for values in (_tensor(first), _tensor(second)))
    scale = float(x.norm() * y.norm())
    return float(x @ y) / scale if scale > 0 else None


def iqm(returns: Sequence[float]) -> float:
    """Interquartile mean: without the ⌊n/4⌋ lowest and the ⌊n/4⌋ highest (Agarwal et al. 2021)."""
    return float(_iqm_rows(_tensor(returns)))


def iqm_ci95(strata: Sequence[Sequence[float]], *, resamples: int = 2000, seed: int = 0) -> tuple[float, float]:
    """A 95 % percentile interval of the interquartile mean of all returns, by stratified bootstrap.

    strata  groups that are resampled each within itself: one list of returns per trained agent, or a single one
    """
    return bootstrap_ci(strata, _iqm_rows, resamples=resamples, seed=seed)


def bootstrap_ci(
    strata: Sequence[Sequence[float]],
    statistic: Callable[[Tensor], Tensor],
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> tuple[float, float]:
    """The percentile interval of a statistic (…, n) → (…) when each stratum is drawn again with replacement."""
    if not strata:
        raise BadInput("strata must hold at least one list of returns")
    rng = torch.Generator().manual_seed(seed)
    drawn = []
    for returns in strata:
        values = _tensor(returns)
        drawn.append(values[torch.randint(len(values), (resamples, len(values)), generator=rng)])
    found = statistic(torch.cat(drawn, dim=1))
    tail = (1 - level) / 2
    low, high = torch.quantile(found, torch.tensor([tail, 1 - tail], dtype=found.dtype)).tolist()
    return low, high


def _iqm_rows(values: Tensor) -> Tensor:
    cut = values.shape[-1] // 4
    return values.sort(-1).values[..., cut : values.shape[-1] - cut].mean(-1)


def _tensor(returns: Sequence[float]) -> Tensor:
    values = torch.tensor(list(returns), dtype=torch.float64)
    if not len(values) or not bool(torch.isfinite(values).all()):
        raise BadInput("returns must be at least one number, all finite")
    return values
