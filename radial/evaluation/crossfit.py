"""The return under the strongest of several attacks, which is chosen on other episodes than those it is reported on.

The least of several noisy means is too low, and an attack chosen on few episodes is often not the strongest. Both are
mended by using every episode twice, once to choose and once to report, but never for itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from radial.core.data import BadInput
from radial.evaluation import statistics

Key = TypeVar("Key")


@dataclass(frozen=True)
class CrossFitted(statistics.Averaged, Generic[Key]):
    """Reported returns, each half of them under the attack that left least on all other episodes.

    attacks  of the even and of the odd episodes; most often the same
    """

    attacks: tuple[Key, Key]
    returns: tuple[float, ...]


def cross_fitted(chosen_on: Mapping[Key, Sequence[float]], reported: Mapping[Key, Sequence[float]]) -> CrossFitted[Key]:
    """The return under the strongest attack.

    For the even reported episodes the attack is the one with the lowest mean over the selection episodes and the odd
    reported ones; for the odd episodes the other way round. Of equal attacks the first counts.

    chosen_on  returns on the selection episodes, by attack; may be empty for all
    reported   returns on the reported episodes, which start alike for all attacks
    """
    if len({len(returns) for returns in reported.values()}) != 1:
        raise BadInput("reported must be as many episodes for each attack, and at least one attack")
    halves = (slice(0, None, 2), slice(1, None, 2))

    def strongest_without(half: slice) -> Key:
        other = halves[1] if half == halves[0] else halves[0]
        seen = {key: [*chosen_on.get(key, ()), *returns[other]] for key, returns in reported.items()}
        return min(seen, key=lambda key: statistics.mean(seen[key] or list(reported[key])))

    even, odd = (strongest_without(half) for half in halves)
    count = len(reported[even])
    return CrossFitted((even, odd), tuple(reported[odd if number % 2 else even][number] for number in range(count)))
