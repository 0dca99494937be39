"""`leaderboard`: agents of one task side by side, each under the same attacks and certificates, ours and others'.

The protocol is fixed, versioned and hashed. A result is known by its version and by the settings of its attack, so a
change of the protocol leaves standing what it does not touch.
Third-party files are evaluated where they lie and never copied. How the result is shown is in `reports`.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from radial.attacks import ATTACKS
from radial.attacks.learned.adversaries import PAAD, SARL, Adversary
from radial.core.agent import Attack
from radial.core.checks import is_finite
from radial.core.data import BadInput, EnvSpec
from radial.core.text import nearest, spell_radius
from radial.envs.make import spec_for
from radial.evaluation import statistics
from radial.evaluation.certificates import acr
from radial.evaluation.play import Fittable, evaluate, fitted, spec_of
from radial.evaluation.reach import reach
from radial.runs.run import derived_seed
from radial.workflows.audit.budget import Clock, OutOfTime
from radial.workflows.ensemble import strongest
from radial.workflows.entrants import Entrant, entrants
from radial.workflows.protocol import ADVERSARIES, Book, CellResult, Watcher, adversary_for, hashed, silent

VERSION = 1  # raised with every change of the protocol
SEED = 1234  # of the reported episodes
_CLEAN = "none"
CERTIFIED = 10  # clean episodes over which certificates are taken


@dataclass(frozen=True)
class Challenge:
    """One task of the leaderboard.

    radii        ε in network units; agents are ranked at the first
    attacks      names in `ATTACKS`, weakest first; worst of all is the strongest of them, chosen on other episodes
    certificate  "reach" of the mean action, or "acr"; `bound` is its method
    learned      the adversaries among them, with their budgets of env steps
    selection    episodes on which the strongest attack is chosen
    """

    title: str
    env: str
    radii: tuple[float, ...]
    attacks: tuple[str, ...]
    certificate: str
    bound: str
    learned: Mapping[str, Adversary]
    episodes: int = 50
    selection: int = 20

    @property
    def spec(self) -> EnvSpec:
        """Where it is played."""
        return spec_of(spec_for(self.env))

    def attack(self, name: str) -> Any:
        """The attack of this name, not yet fitted."""
        return self.learned[name] if name in self.learned else ATTACKS[name]()

    def to_json(self) -> dict[str, Any]:
        """Everything that its numbers depend on."""
        attacks = {name: repr(self.attack(name)) for name in self.attacks}
        return {**{name: value for name, value in vars(self).items() if name != "learned"}, "attacks": attacks}


_CONTINUOUS = ("random", "critic", "mad", "rs", "sarl", "paad")
_DISCRETE = ("random", "mad", "pgd", "pgd-strong", "rs", "sarl", "paad")
_FRAMES = ("random", "mad", "pgd", "paad")
_SHORT = {"sarl": SARL(steps=200_000, restarts=2), "paad": PAAD(steps=200_000, restarts=2)}
_PICTURES = {"paad": PAAD(steps=60_000, restarts=1, episodes=4)}
CHALLENGES: Mapping[str, Challenge] = {
    "hopper": Challenge("Hopper", "Hopper-v4", (0.075, 0.15), _CONTINUOUS, "reach", "crown", ADVERSARIES),
    "walker2d": Challenge("Walker2d", "Walker2d-v4", (0.075, 0.15), _CONTINUOUS, "reach", "crown", ADVERSARIES),
    "halfcheetah": Challenge(
        "HalfCheetah", "HalfCheetah-v4", (0.075, 0.15), _CONTINUOUS, "reach", "crown", ADVERSARIES
    ),
    "cartpole": Challenge("CartPole", "CartPole-v1", (0.04, 0.1), _DISCRETE, "acr", "crown", _SHORT),
    "pong": Challenge("Pong", "Pong", (1 / 255, 3 / 255), _FRAMES, "acr", "ibp", _PICTURES, 20, 10),
    "freeway": Challenge("Freeway", "Freeway", (1 / 255, 3 / 255), _FRAMES, "acr", "ibp", _PICTURES, 20, 10),
}


def protocol(challenges: Mapping[str, Challenge] = CHALLENGES) -> dict[str, Any]:
    """Everything that defines the numbers, as JSON."""
    return {
        "version": VERSION,
        "seed": SEED,
        "selection_seed": derived_seed(SEED, "selection"),
        "challenges": {name: each.to_json() for name, each in challenges.items()},
    }


# ------------------------------------------------------------------------------------------------------------- results


@dataclass(frozen=True)
class Standing:
    """An agent's results: by radius, the return under each attack, the strongest one, and the certificate."""

    entrant: Entrant
    clean: CellResult
    returns: Mapping[float, Mapping[str, CellResult]]
    worst: Mapping[float, str]
    certificate: Mapping[float, CellResult]

    def worst_return(self, radius: float) -> float:
        """The mean return under the strongest attack."""
        return self.returns[radius][self.worst[radius]].mean

    def to_json(self) -> dict[str, Any]:
        """Plain values; evaluations go by their keys."""
        card = self.entrant.agent.card
        return {
            "agent": self.entrant.name, "recipe": self.entrant.recipe, "seed": card.seed, "steps": card.steps,
            "source": card.source, "sha256": self.entrant.sha256, "clean": _cell(self.clean),
            "radii": [
                {
                    "radius": radius, "worst": {"attack": self.worst[radius], **_cell(returns[self.worst[radius]])},
                    "attacks": {name: _cell(cell) for name, cell in returns.items()},
                    "certificate": _cell(self.certificate[radius]),
                }
                for radius, returns in self.returns.items()
            ],
        }  # fmt: skip


def _cell(result: CellResult) -> dict[str, Any]:
    more = {"distinct_actions": result.facts["distinct_actions"]} if "distinct_actions" in result.facts else {}
    return {"mean": result.mean, "sem": result.sem, "evaluation": result.key, **more}


def leaderboard(
    out: Path,
    *,
    only: Collection[str] = (),
    agents: Sequence[Path] = (),
    fits: Path | None = None,
    budget: float | None = None,
    fresh: bool = False,
    challenges: Mapping[str, Challenge] = CHALLENGES,
    watch: Watcher = silent,
) -> dict[str, Any]:
    """Play the zoo and other agents; every cell is saved in `out/leaderboard.json` and not played again.

    All agents are played at the first radius before any is at the second, so that a short budget ranks them all.

    only    tasks to play; of the others the table shows what is known
    agents  files or folders of more agents
    fits    where fitted adversaries are kept; None: fitted again by each call that needs one
    budget  minutes, after which nothing new is begun; None: as long as it takes
    fresh   play again what is known
    """
    if budget is not None and not (is_finite(budget) and budget >= 0):
        raise BadInput(f"budget must be a number of minutes ≥ 0 or None, got {budget!r}")
    check_tasks(only, challenges)
    found, refused = entrants(agents, {name: each.env for name, each in challenges.items()})
    told = protocol(challenges)
    book = Book(out / "leaderboard.json", fresh=fresh, watch=watch)
    board = _Board(book, fits, watch, Clock(None if budget is None else 60 * budget))
    for number in range(max(len(each.radii) for each in challenges.values())):
        for one in (each for each in found if not only or each.task in only):
            board.play(one, challenges[one.task], number)
    tasks, waiting = {}, list[str]()
    for name, challenge in challenges.items():
        standings = {each.name: board.known(each, challenge) for each in found if each.task == name}
        waiting += [agent for agent, standing in standings.items() if standing is None]
        ranked = [standing for standing in standings.values() if standing is not None]
        if ranked:
            tasks[name] = _told(challenge, ranked)
    document = {"protocol": told, "hash": hashed(told), "tasks": tasks, "waiting": waiting, "refused": refused}
    if tasks:
        book.save(document)
    return document


def check_tasks(only: Collection[str], challenges: Mapping[str, Challenge]) -> None:
    """Refuse a task that there is not."""
    for name in only:
        if name not in challenges:
            raise BadInput(f"only must be tasks of {', '.join(challenges)}, got {name!r}{nearest(name, challenges)}")


def _told(challenge: Challenge, standings: Sequence[Standing]) -> dict[str, Any]:
    first = challenge.radii[0]
    ranked = sorted(standings, key=lambda each: each.worst_return(first), reverse=True)
    return {
        "title": challenge.title, "env": str(challenge.spec), "engine": dict(ranked[0].entrant.engine),
        "episodes": challenge.episodes, "selection": challenge.selection, "radii": list(challenge.radii),
        "certificate": challenge.certificate, "bound": challenge.bound, "attacks": list(challenge.attacks),
        "rows": [each.to_json() for each in ranked],
        "seeds": over_seeds(ranked, challenge.radii),
    }  # fmt: skip


def over_seeds(standings: Sequence[Standing], radii: Sequence[float]) -> list[dict[str, Any]]:
    """Recipes of which several seeds take part: mean and standard error over the seeds' means, s/√n with n − 1."""
    groups: dict[str, list[Standing]] = defaultdict(list)
    for each in standings:
        if each.entrant.recipe is not None and each.entrant.agent.card.seed is not None:
            groups[each.entrant.recipe].append(each)
    rows = []
    for recipe, group in groups.items():
        seeds = {each.entrant.agent.card.seed for each in group}
        if len(seeds) == len(group) > 1:
            worst = {spell_radius(r): _spread([each.worst_return(r) for each in group]) for r in radii}
            clean = _spread([each.clean.mean for each in group])
            rows.append({"recipe": recipe, "seeds": sorted(seeds, key=str), "clean": clean, "worst": worst})
    return rows


def _spread(means: Sequence[float]) -> dict[str, float]:
    n = len(means)
    return {"mean": statistics.mean(means), "sem": statistics.sem(means) * math.sqrt(n / (n - 1))}


@dataclass
class _Board:
    """Plays what is not in the book yet, while there is time."""

    book: Book
    fits: Path | None
    watch: Watcher
    clock: Clock
    ready: dict[tuple[str, str, float], Attack] = field(default_factory=dict)

    def play(self, entrant: Entrant, challenge: Challenge, number: int) -> None:
        """All cells of an agent at one radius of its task, by its number."""
        if number < len(challenge.radii):
            with suppress(OutOfTime):
                self._level(entrant, challenge, challenge.radii[number])

    def known(self, entrant: Entrant, challenge: Challenge) -> Standing | None:
        """The results of an agent at the radii where all are known; None: not even at the first."""
        self.clock = Clock(0.0)
        returns, worst, certificate = {}, {}, {}
        with suppress(OutOfTime):
            for radius in challenge.radii:
                level = self._level(entrant, challenge, radius)
                returns[radius], worst[radius], certificate[radius] = level
        if not returns:
            return None
        clean = self._cell(entrant, challenge, _CLEAN, 0.0, SEED, challenge.episodes)
        return Standing(entrant, clean, returns, worst, certificate)

    def _level(
        self, entrant: Entrant, challenge: Challenge, radius: float
    ) -> tuple[dict[str, CellResult], str, CellResult]:
        """The returns at a radius, the strongest attack on the selection episodes, and the certificate."""
        self._cell(entrant, challenge, _CLEAN, 0.0, SEED, challenge.episodes)
        certificate = self._certificate(entrant, challenge, radius)
        names = [name for name in challenge.attacks if self._applies(entrant, name)]
        selection = derived_seed(SEED, "selection")
        chosen_on = {
            name: self._cell(entrant, challenge, name, radius, selection, challenge.selection).facts["returns"]
            for name in names
        }
        returns = {name: self._cell(entrant, challenge, name, radius, SEED, challenge.episodes) for name in names}
        return returns, strongest(chosen_on), certificate

    def _applies(self, entrant: Entrant, name: str) -> bool:
        return name != "critic" or entrant.agent.has_value

    def _cell(
        self, entrant: Entrant, challenge: Challenge, attack: str, radius: float, seed: int, episodes: int
    ) -> CellResult:
        """Episodes under an attack."""
        settings = repr(challenge.attack(attack))
        key = {**self._key(entrant, attack, radius, seed, episodes), "attack_settings": settings}

        def play() -> CellResult:
            self.clock.tick()
            ready = None if attack == _CLEAN else self._attack(entrant, challenge, attack, radius)
            with self.watch(f"{entrant.name}, {attack} {spell_radius(radius)}", episodes) as progress:
                found = evaluate(
                    entrant.agent, entrant.spec, ready, radius, episodes, seed, name=entrant.name, progress=progress
                )
            return CellResult.of({"key": key, **found.to_json(), "attack": attack, "attack_settings": found.attack})

        return self.book.get(key, play)

    def _certificate(self, entrant: Entrant, challenge: Challenge, radius: float) -> CellResult:
        """Certified reach of the mean action, or certified actions, over clean episodes."""
        key = {**self._key(entrant, challenge.certificate, radius, SEED, CERTIFIED), "bound": challenge.bound}
        certify: Any = {"reach": reach, "acr": acr}[challenge.certificate]

        def play() -> CellResult:
            self.clock.tick()
            with self.watch(f"{entrant.name}, {challenge.certificate} {spell_radius(radius)}", CERTIFIED) as progress:
                found = certify(
                    entrant.agent, entrant.spec, radius, challenge.bound, CERTIFIED, SEED, name=entrant.name,
                    progress=progress,
                )  # fmt: skip
            return CellResult.of({"key": key, **found.to_json()})

        return self.book.get(key, play)

    def _key(self, entrant: Entrant, what: str, radius: float, seed: int, episodes: int) -> dict[str, Any]:
        return {
            "protocol": VERSION, "weights": entrant.sha256, "env": str(entrant.spec), "engine": dict(entrant.engine),
            "attack": what, "radius": radius, "seed": seed, "episodes": episodes,
        }  # fmt: skip

    def _attack(self, entrant: Entrant, challenge: Challenge, name: str, radius: float) -> Attack:
        """The attack, fitted once per agent and radius, so that it is chosen and reported as the same attack."""
        known = (entrant.sha256, name, radius)
        if known not in self.ready:
            made = challenge.attack(name)
            self.ready[known] = self._fit(entrant, name, made, radius) if isinstance(made, Fittable) else made
        return self.ready[known]

    def _fit(self, entrant: Entrant, name: str, attack: Any, radius: float) -> Attack:
        if isinstance(attack, Adversary):
            return adversary_for(entrant, entrant.spec, name, attack, radius, self.fits)
        return fitted(attack, entrant.agent, entrant.spec, radius, math.inf, derived_seed(SEED, "fit", name))
