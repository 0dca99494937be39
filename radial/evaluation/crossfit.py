"""The return under the strongest of several attacks, which is chosen on other episodes than those it is reported on.

The least of several noisy means is too low, and an attack chosen on few episodes is often not the strongest. Both are
mended by using every episode twice, once to choose and once to report, but never for itself.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from radial.evaluation import statistics

Attacking = TypeVar("Attacking")


@dataclass(frozen=True)
class CrossFitted(statistics.Averaged, Generic[Attacking]):
    """Reported returns, each half of them under the attack that left least on all other episodes.

    attacks  of the two halves, every second start each; most often the same
    """

    attacks: tuple[Attacking, ...]
    returns: tuple[float, ...]


def cross_fitted(
    returns: Mapping[Attacking, Mapping[int, float]], reported: Collection[int]
) -> CrossFitted[Attacking] | None:
    """The return under the strongest attack; None where nothing is left to choose by, or to report.

    returns   of each attack, by the number of the start, alike for all attacks; some may lack some
    reported  the starts to report on; the others serve the choice alone
    """
    starts, attacks, found = sorted(reported), list[Attacking](), list[float]()
    for half in (starts[::2], starts[1::2]):
        others = {
            attack: rest
            for attack, all_of_it in returns.items()
            if (rest := {start: value for start, value in all_of_it.items() if start not in half})
        }
        if not others:
            continue
        strongest = statistics.lowest(others)
        attacks.append(strongest)
        found += [returns[strongest][start] for start in half if start in returns[strongest]]
    return CrossFitted(tuple(attacks), tuple(found)) if found else None
