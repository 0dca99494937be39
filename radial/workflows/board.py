"""The leaderboard's cells: played where they are not known yet, one after the other or as jobs side by side.

Which there are is in `challenges`; what is made of them in `standing`, how they are ranked in `leaderboard`.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from radial.attacks.learned.adversaries import Adversary
from radial.cluster import Place
from radial.core.agent import Attack
from radial.core.text import spell_radius
from radial.envs.custom import import_inherited
from radial.evaluation.certificates import Search, acr
from radial.evaluation.play import Fittable, evaluate, fitted
from radial.evaluation.reach import reach
from radial.runs.run import derived_seed
from radial.workflows.audit.budget import Clock, OutOfTime
from radial.workflows.challenges import PLAYED, SEED, Challenge
from radial.workflows.entrants import Entrant, Listed
from radial.workflows.protocol import Book, CellResult, Watcher, adversary_for, hashed, silent

NO_ATTACK = "none"
CLEAN_PART, CERTIFICATE_PART = "clean", "certificate"  # parts of a level; any other is the name of an attack
SELECTION_SEED = derived_seed(SEED, "selection")
CERTIFIED = 10  # clean episodes over which certificates are taken

Turn = tuple[Entrant, Challenge, float]  # an agent at a radius of its task


class Cells(Protocol):
    """Results by their keys: a `Book`, or what a job has found so far."""

    def get(self, key: Mapping[str, Any], play: Callable[[], CellResult]) -> CellResult:
        """The result known under a key, or else that of `play`."""


@dataclass
class CellBoard:
    """Plays what is not in the book yet, while there is time."""

    book: Cells
    fits: Path | None
    watch: Watcher
    clock: Clock
    storage: str | None = None
    ready: dict[tuple[str, str, float], Attack] = field(default_factory=dict)

    def play(self, entrant: Entrant, challenge: Challenge, radius: float) -> None:
        """All cells of an agent at one radius of its task."""
        with suppress(OutOfTime):
            for part in parts(entrant, challenge):
                self.part(entrant, challenge, radius, part)

    def part(self, entrant: Entrant, challenge: Challenge, radius: float, part: str) -> list[CellResult]:
        """Some cells at a radius that belong together: clean, the certificate, or those under an attack."""
        if part == CLEAN_PART:
            return [self._cell(entrant, challenge, NO_ATTACK, 0.0, SEED, challenge.episodes)]
        if part == CERTIFICATE_PART:
            return [self._certificate(entrant, challenge, radius)]
        chosen = self._cell(entrant, challenge, part, radius, SELECTION_SEED, challenge.selection)
        return [chosen, self._cell(entrant, challenge, part, radius, SEED, challenge.episodes)]

    def _cell(
        self, entrant: Entrant, challenge: Challenge, attack: str, radius: float, seed: int, episodes: int
    ) -> CellResult:
        """Episodes under an attack."""
        key = cell_key(entrant, challenge, attack, radius, seed, episodes)

        def play() -> CellResult:
            self.clock.tick()
            ready = None if attack == NO_ATTACK else self._attack(entrant, challenge, attack, radius)
            with self.watch(f"{entrant.name}, {attack} {spell_radius(radius)}", episodes) as progress:
                found = evaluate(
                    entrant.agent, entrant.spec, ready, radius, episodes, seed, name=entrant.name, progress=progress
                )
            return CellResult.of({"key": key, **found.to_json(), "attack": attack, "attack_settings": found.attack})

        return self.book.get(key, play)

    def _certificate(self, entrant: Entrant, challenge: Challenge, radius: float) -> CellResult:
        """Certified reach of the mean action, or certified actions, over clean episodes."""
        key = certificate_key(entrant, challenge, radius)
        # The share certified is all that the table shows; how hard to look for the others' counterexamples is not.
        certify: Any = {"reach": reach, "acr": partial(acr, search=Search(restarts=1))}[challenge.certificate]

        def play() -> CellResult:
            self.clock.tick()
            with self.watch(f"{entrant.name}, {challenge.certificate} {spell_radius(radius)}", CERTIFIED) as progress:
                found = certify(
                    entrant.agent, entrant.spec, radius, challenge.bound, CERTIFIED, SEED, name=entrant.name,
                    progress=progress,
                )  # fmt: skip
            return CellResult.of({"key": key, **found.to_json()})

        return self.book.get(key, play)

    def _attack(self, entrant: Entrant, challenge: Challenge, name: str, radius: float) -> Attack:
        """The attack, fitted once per agent and radius, so that it is chosen and reported as the same attack."""
        known = (entrant.sha256, name, radius)
        if known not in self.ready:
            made = challenge.attack(name)
            self.ready[known] = self._fit(entrant, name, made, radius) if isinstance(made, Fittable) else made
        return self.ready[known]

    def _fit(self, entrant: Entrant, name: str, attack: Any, radius: float) -> Attack:
        if isinstance(attack, Adversary):
            return adversary_for(entrant, entrant.spec, name, attack, radius, self.fits, self.storage)
        return fitted(attack, entrant.agent, entrant.spec, radius, math.inf, derived_seed(SEED, "fit", name))


def _key(entrant: Listed, what: str, radius: float, seed: int, episodes: int) -> dict[str, Any]:
    return {
        "protocol": PLAYED.get(what, 1), "weights": entrant.sha256, "env": str(entrant.spec),
        "engine": dict(entrant.engine), "attack": what, "radius": radius, "seed": seed, "episodes": episodes,
    }  # fmt: skip


def cell_key(
    entrant: Listed, challenge: Challenge, attack: str, radius: float, seed: int, episodes: int
) -> dict[str, Any]:
    """Everything that the returns under an attack depend on."""
    settings = challenge.described(attack)
    return {**_key(entrant, attack, radius, seed, episodes), "attack_settings": settings}


def certificate_key(entrant: Listed, challenge: Challenge, radius: float) -> dict[str, Any]:
    """Everything that a certificate depends on."""
    return {**_key(entrant, challenge.certificate, radius, SEED, CERTIFIED), "bound": challenge.bound}


def part_keys(entrant: Entrant, challenge: Challenge, radius: float, part: str) -> list[dict[str, Any]]:
    """The keys of the cells of `CellBoard.part`."""
    if part == CLEAN_PART:
        return [cell_key(entrant, challenge, NO_ATTACK, 0.0, SEED, challenge.episodes)]
    if part == CERTIFICATE_PART:
        return [certificate_key(entrant, challenge, radius)]
    chosen = cell_key(entrant, challenge, part, radius, SELECTION_SEED, challenge.selection)
    return [chosen, cell_key(entrant, challenge, part, radius, SEED, challenge.episodes)]


def attacks_on(entrant: Listed, challenge: Challenge) -> list[str]:
    """The attacks that can be run against an agent."""
    return [name for name in challenge.attacks if name != "critic" or entrant.has_value]


def parts(entrant: Listed, challenge: Challenge) -> list[str]:
    """The parts of each level of an agent, see `CellBoard.part`."""
    return [CLEAN_PART, CERTIFICATE_PART, *attacks_on(entrant, challenge)]


# ------------------------------------------------------------------------------------------------------------- as jobs


class _Found(dict[str, CellResult]):
    """What a job has found so far, as `Cells`."""

    def get(self, key: Mapping[str, Any], play: Callable[[], CellResult]) -> CellResult:  # type: ignore[override]
        if hashed(key) not in self:
            self[hashed(key)] = play()
        return self[hashed(key)]


@dataclass(frozen=True, eq=False)
class PartJob:
    """A part of a level, see `CellBoard.part`.

    entrant  sent along, since its file need not be there where the job runs
    until    wall-clock time after which it is not begun; None: any time
    """

    entrant: Entrant
    challenge: Challenge
    radius: float
    part: str
    fits: Path | None
    storage: str | None
    until: float | None

    @property
    def name(self) -> str:
        """For the person who waits."""
        return f"{self.entrant.name}, {self.part} {spell_radius(self.radius)}"


def play_part(job: PartJob) -> list[Mapping[str, Any]]:
    """The facts of its cells, as JSON; none if it is too late."""
    import_inherited()
    vars(job.entrant).pop("engine", None)  # of the machine that sent it
    left = None if job.until is None else job.until - time.time()
    board = CellBoard(_Found(), job.fits, silent, Clock(left), job.storage)
    with suppress(OutOfTime):
        return [found.facts for found in board.part(job.entrant, job.challenge, job.radius, job.part)]
    return []


def play_side_by_side(
    board: "CellBoard", book: Book, turns: Sequence[Turn], place: Place, say: Callable[[str], None] | None = None
) -> None:
    """Play what the book lacks of these turns as jobs, and keep each part when it ends."""
    until = None if board.clock.seconds is None else time.time() + board.clock.left()
    jobs: dict[str, PartJob] = {}
    for entrant, challenge, radius in turns:
        for part in parts(entrant, challenge):
            at = 0.0 if part == CLEAN_PART else radius
            job = PartJob(entrant, challenge, at, part, board.fits, board.storage, until)
            if any(book.lacks(key) for key in part_keys(entrant, challenge, radius, part)):
                jobs[job.name] = job
    place.each(play_part, jobs, say, lambda found: book.add(*(CellResult.of(facts) for facts in found)))
