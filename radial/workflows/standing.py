"""An agent's results as a row of the leaderboard: read from what is known, nothing is played.

The cells themselves are in `board`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from radial.evaluation.crossfit import CrossFitted, cross_fitted
from radial.workflows.board import NO_ATTACK, SELECTION_SEED, attacks_on, cell_key, certificate_key
from radial.workflows.challenges import SEED, Challenge
from radial.workflows.entrants import Listed
from radial.workflows.protocol import CellResult

Known = Callable[[Mapping[str, Any]], CellResult | None]  # the result under a key
_Attack = tuple[str, float]  # its name and its radius
_Returns = dict[_Attack, dict[int, float]]  # by the number of the episode; −1, −2, … are the selection episodes


@dataclass(frozen=True)
class Level:
    """An agent's results at a radius; None: not known, in `worst` and `lowest` until all attacks are.

    worst   by (attack, its radius): what a smaller ball allows a larger one does too, so the strongest attack at a
            radius may be one that was fitted for a smaller radius; it may be none at all
    lowest  the attack whose reported episodes have the lowest mean: never above a column, and a little too low, since
            the episodes that it is reported on have chosen it
    """

    attacks: Mapping[str, CellResult]
    certificate: CellResult | None
    worst: CrossFitted[_Attack] | None
    lowest: tuple[_Attack, CellResult] | None


@dataclass(frozen=True)
class Standing:
    """An agent's results by radius."""

    entrant: Listed
    clean: CellResult | None
    levels: Mapping[float, Level]

    def worst_return(self, radius: float) -> float | None:
        """The mean return under the strongest attack; None: not all attacks are known."""
        worst = self.levels[radius].worst if radius in self.levels else None
        return None if worst is None else worst.mean

    def to_json(self) -> dict[str, Any]:
        """Plain values; evaluations go by their keys."""
        return {
            "agent": self.entrant.name, **self.entrant.facts, "sha256": self.entrant.sha256,
            "clean": None if self.clean is None else _cell(self.clean),
            "radii": [{"radius": radius, **_level(level)} for radius, level in self.levels.items()],
        }  # fmt: skip


def standing_of(entrant: Listed, challenge: Challenge, known: Known) -> Standing | None:
    """The results of an agent at the radii where any are known; None: nowhere."""
    levels, reported, returns = dict[float, Level](), dict[_Attack, CellResult](), _Returns()
    clean = known(cell_key(entrant, challenge, NO_ATTACK, 0.0, SEED, challenge.episodes))
    complete = True  # at this radius and below, since what is fitted there takes part here
    for radius in challenge.radii:
        found = {}
        for name in attacks_on(entrant, challenge):
            chosen = known(cell_key(entrant, challenge, name, radius, SELECTION_SEED, challenge.selection))
            cell = known(cell_key(entrant, challenge, name, radius, SEED, challenge.episodes))
            if cell is not None:
                found[name] = reported[name, radius] = cell
            if cell is not None and chosen is not None:
                selection = {-1 - number: value for number, value in enumerate(chosen.facts["returns"])}
                returns[name, radius] = selection | dict(enumerate(cell.facts["returns"]))
            else:
                complete = False
        certificate = known(certificate_key(entrant, challenge, radius))
        if found or certificate is not None or (clean is not None and radius == challenge.radii[0]):
            worst = cross_fitted(returns, range(challenge.episodes)) if complete else None
            lowest = min(reported.items(), key=lambda each: each[1].mean) if complete else None
            levels[radius] = Level(found, certificate, worst, lowest)
    return Standing(entrant, clean, levels) if levels else None


def _level(level: Level) -> dict[str, Any]:
    return {
        "worst": None if level.worst is None else _worst(level.worst),
        "lowest": None if level.lowest is None else {**_attack(level.lowest[0]), **_cell(level.lowest[1])},
        "attacks": {name: _cell(cell) for name, cell in level.attacks.items()},
        "certificate": None if level.certificate is None else _cell(level.certificate),
    }


def _worst(found: CrossFitted[_Attack]) -> dict[str, Any]:
    """The strongest attacks, of the even and the odd episodes where these differ, and what they left."""
    return {"attacks": [_attack(one) for one in dict.fromkeys(found.attacks)], "mean": found.mean, "sem": found.sem}


def _attack(one: _Attack) -> dict[str, Any]:
    attack, radius = one
    return {"attack": attack, "radius": radius}


def _cell(result: CellResult) -> dict[str, Any]:
    more = {"distinct_actions": result.facts["distinct_actions"]} if "distinct_actions" in result.facts else {}
    return {"mean": result.mean, "sem": result.sem, "evaluation": result.key, **more}
