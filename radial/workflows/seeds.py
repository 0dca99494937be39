"""Several seeds of one recipe: what each of them scores, and which one stands for all.

How they are trained is in `training`; how one agent is scored is in `protocol`.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from radial.agents.convert import AnyAgent
from radial.agents.saved import CARD, load_agent, save
from radial.agents.zoo import zoo_folder
from radial.core.agent import Card
from radial.core.checks import check_whole
from radial.core.data import BadInput
from radial.recipes.recipe import Config, Recipe, recipe
from radial.runs.config import decode, encode
from radial.training.ppo import PPOConfig
from radial.workflows.protocol import (
    LABELS,
    NOMINAL,
    SEED,
    Column,
    Measure,
    Score,
    Subject,
    Watch,
    episodes_for,
    silent,
)
from radial.workflows.train import AGENT

LARGE = 1_000_000  # weights


def deciding(made_by: Recipe) -> Column:
    """Under what seeds of a recipe are compared: its radius, and the attack that its paper reports."""
    if made_by.config.env.suite == "procgen":
        return Column("pgd-procgen", made_by.radius)
    return Column("mad" if isinstance(made_by.config, PPOConfig) else "pgd", made_by.radius)


def rule(by: Column) -> str:
    """How one seed is chosen, in words."""
    return f"the lower median of the seeds' mean returns under {LABELS[by.attack]} at the recipe's radius"


def how_to_train(made_by: Recipe) -> str:
    """The commands that put an agent of a recipe into the zoo, in words."""
    init = "" if made_by.init is None else f" --init runs/{made_by.init}-seed0"
    first = "" if made_by.init is None else f"`radial train {made_by.init}`, then "
    name = made_by.name
    return f"{first}`radial train {name} --seeds 0-2{init}`, then `radial zoo add runs/{name}-seed*`"


def median_seed(scores: Mapping[int, float]) -> int:
    """The seed of the lower median: of n scores the ⌈n/2⌉-th lowest, among equal ones that of the lower seed first.

    A best seed says what luck can do, a median what the method does; the lower one, because it is an agent and no mean.
    """
    if not scores:
        raise BadInput("seeds must be at least one")
    return sorted(scores, key=lambda seed: (scores[seed], seed))[(len(scores) - 1) // 2]


def score_seeds(
    subjects: Mapping[int, Subject], by: Column, measure: Measure, more: Sequence[Column] = ()
) -> dict[int, dict[Column, Score]]:
    """What each seed scores without an attack, in the column that decides, and in `more`."""
    columns = dict.fromkeys((NOMINAL, by, *more))
    return {seed: {column: measure(subject, column) for column in columns} for seed, subject in subjects.items()}


def summarize_seeds(scores: Mapping[int, Mapping[Column, Score]], by: Column) -> dict[str, Any]:
    """All seeds' scores and the chosen one's, as JSON for a card; `chosen` is the seed.

    scores  by seed
    by      the column that decides
    """
    chosen = median_seed({seed: columns[by].mean for seed, columns in scores.items()})
    table = {str(seed): {column.label: _numbers(score) for column, score in scores[seed].items()} for seed in scores}
    facts = next(iter(scores[chosen].values())).facts
    protocol = {"episodes": facts["episodes"], "seed": SEED, "engine": facts["engine"], "chosen by": rule(by)}
    return {**table[str(chosen)], "seeds": table, "chosen": chosen, "protocol": protocol}


def _numbers(score: Score) -> dict[str, float]:
    return {"mean": score.mean, "sem": score.sem}


def seeds_on_card(card: Card) -> dict[str, dict[str, dict[str, float]]]:
    """What `summarize_seeds` left on a card; nothing where the card holds anything else."""
    seeds: Any = card.results.get("seeds")
    try:
        return {
            seed: {label: {key: float(score[key]) for key in ("mean", "sem")} for label, score in row.items()}
            for seed, row in seeds.items()
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        return {}


def finished(run: Path, name: str, seed: int) -> bool:
    """Whether a run of this recipe and seed is there and finished; a finished one of another config is refused."""
    if not (run / AGENT / CARD).is_file():
        return False
    card, config = load_agent(run).card, recipe(name).config
    made_by, own = _made_by(card)
    try:  # a setting that is younger than the run had its default there
        same = plain(decode(type(config), own or {})) == plain(config)
    except BadInput:
        same = False
    if (made_by, card.seed, same) != (name, seed, True):
        raise BadInput(f"{run} holds another run than {name} with seed {seed} as it is now; move it away")
    return True


def _made_by(card: Card) -> tuple[Any, Any]:
    """Recipe and config; which agent a training started from may differ from seed to seed."""
    return card.recipe.get("name"), card.recipe.get("config")


def plain(config: Config) -> dict[str, Any]:
    """A config as a card holds it."""
    return json.loads(json.dumps(encode(config)))


def subjects_of(runs: Sequence[Path]) -> tuple[Recipe, dict[int, Subject]]:
    """The agents of finished runs by their seeds, known to be of one recipe and one config."""
    if not runs:
        raise BadInput("runs must be at least one folder")
    subjects: dict[int, Subject] = {}
    for run in runs:
        subject = Subject(str(run), run)
        seed, first = subject.card.seed, next(iter(subjects.values()), subject)
        if seed is None or not subject.card.recipe.get("name"):
            raise BadInput(f"{run} must say which recipe and seed it was trained with")
        if seed in subjects:
            raise BadInput(f"runs must have different seeds, {subjects[seed].name} and {run} both have {seed}")
        if (_made_by(subject.card), subject.card.steps) != (_made_by(first.card), first.card.steps):
            raise BadInput(f"runs must be of one recipe with one config, {first.name} and {run} differ")
        subjects[seed] = subject
    return recipe(str(first.card.recipe["name"])), subjects


def dtype_for(agent: AnyAgent) -> torch.dtype:
    """What a zoo keeps weights in: float16 for networks of frames, whose files would be 13 MB, else float32."""
    return torch.float16 if sum(weights.numel() for weights in agent.parameters()) > LARGE else torch.float32


def add_to_zoo(
    runs: Sequence[Path],
    name: str | None = None,
    *,
    episodes: int | None = None,
    replace: bool = False,
    watch: Watch = silent,
) -> dict[str, Any]:
    """Score finished runs of one recipe and save the median agent in the zoo, with all scores on its card.

    name      in the zoo; None: that of the recipe
    episodes  per score; None: as many as the paper plays
    replace   an agent of that name
    """
    if episodes is not None:
        check_whole("episodes", episodes, 1)
    made_by, subjects = subjects_of(runs)
    count = episodes_for(made_by.config.env) if episodes is None else episodes
    name = made_by.name if name is None else name
    folder = zoo_folder() / name
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}", name):
        raise BadInput(f"name must be letters, digits and . _ + -, got {name!r}")
    if folder.exists() and not replace:
        raise BadInput(f"{folder} is there already; --replace puts the new agent in its place")
    by = deciding(made_by)
    for subject in subjects.values():
        subject.round_to(dtype_for(subject.agent))
    scores = score_seeds(subjects, by, lambda subject, column: subject.score(column, count, watch))
    summary = summarize_seeds(scores, by)
    chosen = subjects[summary.pop("chosen")]
    save(chosen.agent, folder, dtype=dtype_for(chosen.agent), results={**chosen.card.results, **summary})
    return {
        "name": name, "folder": str(folder), "recipe": made_by.name, "run": chosen.name, "seed": chosen.card.seed,
        "steps": chosen.card.steps, "commit": chosen.card.commit, "results": summary,
    }  # fmt: skip
