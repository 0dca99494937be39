"""`leaderboard`: agents of one task side by side, each under the same attacks and certificates, ours and others'.

The protocol is fixed, versioned and hashed. A result is known by its version and by the settings of its attack, so a
change of the protocol leaves standing what it does not touch.
Third-party files are evaluated where they lie and never copied; their results are shown when they are not at hand,
too. How the result is shown is in `reports`.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from radial.cluster import Place
from radial.core.checks import is_finite
from radial.core.data import BadInput
from radial.core.text import nearest, spell_radius
from radial.evaluation import statistics
from radial.runs.files import read_json
from radial.workflows.audit.budget import Clock
from radial.workflows.board import CellBoard, play_side_by_side
from radial.workflows.challenges import CHALLENGES, Challenge, protocol
from radial.workflows.entrants import Listed, entrants, refused_before, remembered
from radial.workflows.protocol import Book, Watcher, hashed, silent
from radial.workflows.standing import Standing, standing_of


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
    place: Place | None = None,
    storage: str | None = None,
    say: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Play the zoo and other agents; every cell is saved in `out/leaderboard.json` and not played again.

    All agents are played at the first radius before any is at the second, so that a short budget ranks them all.

    only    tasks to play; of the others the table shows what is known
    agents  files or folders of more agents
    fits    where fitted adversaries are kept; None: fitted again by each call that needs one
    budget  minutes, after which nothing new is begun; None: as long as it takes
    fresh   play again what is known
    place   where cells are played; None: here, one after the other
    storage a shared folder or a URI for copies of the results, and of adversaries in training
    say     gets a line for each job that ended elsewhere
    """
    if budget is not None and not (is_finite(budget) and budget >= 0):
        raise BadInput(f"budget must be a number of minutes ≥ 0 or None, got {budget!r}")
    check_tasks(only, challenges)
    envs = {name: each.env for name, each in challenges.items()}
    found, refused = entrants(agents, envs)
    before = read_json(out / "leaderboard.json") if (out / "leaderboard.json").exists() else {}
    told = protocol(challenges)
    book = Book(out / "leaderboard.json", fresh=fresh, watch=watch, storage=storage)
    board = CellBoard(
        book, None if fits is None else fits.absolute(), watch, Clock(None if budget is None else 60 * budget), storage
    )
    turns = [
        (one, challenges[one.task], challenges[one.task].radii[number])
        for number in range(max(len(each.radii) for each in challenges.values()))
        for one in found
        if (not only or one.task in only) and number < len(challenges[one.task].radii)
    ]
    if place is None or place.is_here:
        for turn in turns:
            board.play(*turn)
    else:
        play_side_by_side(board, book, turns, place, say)
    listed: list[Listed] = [*found, *remembered((one.facts for one in book.all()), before, envs, found)]
    tasks, waiting = {}, list[str]()
    for name, challenge in challenges.items():
        all_known = [(each, standing_of(each, challenge, book.known)) for each in listed if each.task == name]
        standings = [standing for _, standing in all_known if standing is not None]
        ranked = {each.entrant.name for each in standings if each.worst_return(challenge.radii[0]) is not None}
        waiting += [each.name for each, _ in all_known if each.name not in ranked]
        if standings:
            tasks[name] = _told(challenge, standings)
    refused |= refused_before(before, [*refused, *(each.name for each in found)])
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

    def strength(each: Standing) -> float:
        worst = each.worst_return(first)
        return -math.inf if worst is None else worst  # not ranked, so below those that are

    ranked = sorted(standings, key=strength, reverse=True)
    return {
        "title": challenge.title, "env": str(challenge.spec), "engine": dict(ranked[0].entrant.engine),
        "episodes": challenge.episodes, "selection": challenge.selection, "radii": list(challenge.radii),
        "certificate": challenge.certificate, "bound": challenge.bound, "attacks": list(challenge.attacks),
        "rows": [each.to_json() for each in ranked],
        "seeds": over_seeds(ranked, challenge.radii),
    }  # fmt: skip


def over_seeds(standings: Sequence[Standing], radii: Sequence[float]) -> list[dict[str, Any]]:
    """Recipes of which several seeds take part: mean and standard error over the seeds' means, s/√n with n − 1.

    Equal weights count once: the zoo's agent is usually one of the runs. Of two agents with other weights and the same
    seed nobody knows which one is meant, so their recipe has no row.
    """
    groups: dict[str, dict[str, Standing]] = defaultdict(dict)
    for each in standings:
        facts = each.entrant.facts
        if facts["recipe"] is not None and facts["seed"] is not None:
            groups[facts["recipe"]].setdefault(each.entrant.sha256, each)
    rows = []
    for recipe, distinct in groups.items():
        group = list(distinct.values())
        seeds = {each.entrant.facts["seed"] for each in group}
        if len(seeds) == len(group) > 1:
            worst = {spell_radius(r): _spread([each.worst_return(r) for each in group]) for r in radii}
            clean = _spread([None if each.clean is None else each.clean.mean for each in group])
            rows.append({"recipe": recipe, "seeds": sorted(seeds, key=str), "clean": clean, "worst": worst})
    return rows


def _spread(means: Sequence[float | None]) -> dict[str, float] | None:
    """None: not all are known."""
    known = [mean for mean in means if mean is not None]
    n = len(means)
    if len(known) < n:
        return None
    return {"mean": statistics.mean(known), "sem": statistics.sem(known) * math.sqrt(n / (n - 1))}
