"""Several seeds of one recipe: the results of each, and the median seed that stands for all.

How they are trained is in `train`; how one agent is evaluated is in `protocol`.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from radial.agents.convert import AnyAgent
from radial.agents.saved import CARD, load_agent, save
from radial.agents.zoo import check_own_zoo, zoo_folder
from radial.core.agent import Card
from radial.core.checks import check_whole
from radial.core.data import BadInput
from radial.recipes.recipe import Config, Recipe, recipe
from radial.recipes.tables import CLEAN, LABELS, TABLES, Column
from radial.runs.config import decode, encode
from radial.training.ddpg import DDPGConfig
from radial.training.ppo import PPOConfig
from radial.workflows.protocol import (
    ADVERSARIES,
    SEED,
    CellResult,
    EvaluatedAgent,
    Measure,
    Watcher,
    episodes_for,
    silent,
)
from radial.workflows.train import AGENT

LARGE = 1_000_000  # weights


def selection_column(made_by: Recipe) -> Column:
    """The column by which seeds of a recipe are compared: its judge, or the attack its paper reports, at its radius."""
    if made_by.judge is not None:
        return Column(made_by.judge.attack, made_by.judge.radius)
    if made_by.config.env.suite == "procgen":
        return Column("pgd-procgen", made_by.radius)
    return Column("mad" if isinstance(made_by.config, PPOConfig | DDPGConfig) else "pgd", made_by.radius)


def selection_rule(by: Column) -> str:
    """How one seed is chosen, in words."""
    return f"the lower median of the seeds' mean returns under {LABELS[by.attack]} at the recipe's radius"


def columns_for(made_by: Recipe) -> list[Column]:
    """What tables ask of every seed of a recipe, less the adversaries that learn, which meet the median alone."""
    asking = [
        table for table in TABLES().values() if table.every_seed and made_by.name in {row.recipe for row in table.rows}
    ]
    return [column for table in asking for column in table.columns if column.attack not in ADVERSARIES]


def how_to_train(made_by: Recipe, seeds: str = "0-2") -> str:
    """The commands that put an agent of a recipe into the zoo, in words."""
    init = "" if made_by.init is None else f" --init runs/{made_by.init}-seed0"
    first = "" if made_by.init is None else f"`radial train {made_by.init}`, then "
    name = made_by.name
    return f"{first}`radial train {name} --seeds {seeds}{init}`, then `radial zoo add runs/{name}-seed*`"


def median_seed(returns: Mapping[int, float]) -> int:
    """The seed of the lower median: of n returns the ⌈n/2⌉-th lowest, among equal ones that of the lower seed first.

    A best seed shows luck, a median the method; the lower median, because it is one of the agents and no mean of two.
    """
    if not returns:
        raise BadInput("seeds must be at least one")
    return sorted(returns, key=lambda seed: (returns[seed], seed))[(len(returns) - 1) // 2]


def seed_columns(by: Column, more: Sequence[Column] = ()) -> list[Column]:
    """What each seed is evaluated in."""
    return list(dict.fromkeys((CLEAN, by, *more)))


def evaluate_seeds(
    agents: Mapping[int, EvaluatedAgent], by: Column, measure: Measure, more: Sequence[Column] = ()
) -> dict[int, dict[Column, CellResult]]:
    """The results of each seed without an attack, in the column `by` which one is chosen, and in `more`."""
    columns = seed_columns(by, more)
    return {seed: {column: measure(agent, column) for column in columns} for seed, agent in agents.items()}


def summarize_seeds(results: Mapping[int, Mapping[Column, CellResult]], by: Column) -> dict[str, Any]:
    """All seeds' results and the chosen one's, as JSON for a card; `chosen` is the seed.

    results  by seed
    by       the column by which one is chosen
    """
    chosen = median_seed({seed: columns[by].mean for seed, columns in results.items()})
    table = {str(seed): {column.key: _numbers(one) for column, one in row.items()} for seed, row in results.items()}
    facts = next(iter(results[chosen].values())).facts
    protocol = {"episodes": facts["episodes"], "seed": SEED, "engine": facts["engine"], "chosen by": selection_rule(by)}
    return {**table[str(chosen)], "seeds": table, "chosen": chosen, "protocol": protocol}


def _numbers(result: CellResult) -> dict[str, float]:
    return {"mean": result.mean, "sem": result.sem}


def seeds_on_card(card: Card) -> dict[str, dict[str, dict[str, float]]]:
    """The results of each seed that `summarize_seeds` left on a card; empty where the card holds anything else."""
    seeds: Any = card.results.get("seeds")
    try:
        return {
            seed: {column: {name: float(cell[name]) for name in ("mean", "sem")} for column, cell in row.items()}
            for seed, row in seeds.items()
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        return {}


def finished(run: Path, name: str, seed: int) -> bool:
    """Whether a run of this recipe and seed is there and finished; a finished one of another config is refused."""
    if not (run / AGENT / CARD).is_file():
        return False
    card, config = load_agent(run).card, recipe(name).config
    same = trained_with(card, config) == card_config(config)
    if (card.recipe.get("name"), card.seed, same) != (name, seed, True):
        raise BadInput(f"{run} holds another run than {name} with seed {seed} as it is now; move it away")
    return True


def _made_by(card: Card) -> tuple[Any, Any]:
    """Recipe and config; which agent a training started from may differ from seed to seed."""
    return card.recipe.get("name"), card.recipe.get("config")


def card_config(config: Config) -> dict[str, Any]:
    """A config as a card holds it."""
    return json.loads(json.dumps(encode(config)))


def trained_with(card: Card, config: Config) -> dict[str, Any]:
    """The config on a card, in the form of `config`: a setting younger than the card had its default there."""
    own: dict[str, Any] = card.recipe.get("config") or {}
    try:
        return card_config(decode(type(config), own))
    except BadInput:  # of another algorithm, or with settings that are gone
        return own


def agents_of(runs: Sequence[Path]) -> tuple[Recipe, dict[int, EvaluatedAgent]]:
    """The agents of finished runs by their seeds, known to be of one recipe and one config."""
    if not runs:
        raise BadInput("runs must be at least one folder")
    agents: dict[int, EvaluatedAgent] = {}
    for run in runs:
        agent = EvaluatedAgent(str(run), run)
        seed, first = agent.card.seed, next(iter(agents.values()), agent)
        if seed is None or not agent.card.recipe.get("name"):
            raise BadInput(f"{run} must say which recipe and seed it was trained with")
        if seed in agents:
            raise BadInput(f"runs must have different seeds, {agents[seed].name} and {run} both have {seed}")
        if (_made_by(agent.card), agent.card.steps) != (_made_by(first.card), first.card.steps):
            raise BadInput(f"runs must be of one recipe with one config, {first.name} and {run} differ")
        agents[seed] = agent
    return recipe(str(first.card.recipe["name"])), agents


def dtype_for(agent: AnyAgent) -> torch.dtype:
    """The dtype of weights in the zoo: float16 for networks of frames, whose files would be 13 MB, else float32."""
    return torch.float16 if sum(weights.numel() for weights in agent.parameters()) > LARGE else torch.float32


def add_to_zoo(
    runs: Sequence[Path],
    name: str | None = None,
    *,
    episodes: int | None = None,
    replace: bool = False,
    watch: Watcher = silent,
) -> dict[str, Any]:
    """Evaluate finished runs of one recipe and save the median seed in the zoo, with all results on its card.

    name      in the zoo; None: that of the recipe
    episodes  per evaluation; None: as many as the paper plays
    replace   replace an agent of that name
    """
    if episodes is not None:
        check_whole("episodes", episodes, 1)
    check_own_zoo()
    made_by, agents = agents_of(runs)
    count = episodes_for(made_by.config.env) if episodes is None else episodes
    name = made_by.name if name is None else name
    folder = zoo_folder() / name
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}", name):
        raise BadInput(f"name must be letters, digits and . _ + -, got {name!r}")
    if folder.exists() and not replace:
        raise BadInput(f"{folder} is there already; --replace puts the new agent in its place")
    by = selection_column(made_by)
    for agent in agents.values():
        agent.round_to(dtype_for(agent.agent))
    more = columns_for(made_by)
    results = evaluate_seeds(agents, by, lambda agent, column: agent.evaluate(column, count, watch), more)
    summary = summarize_seeds(results, by)
    chosen = agents[summary.pop("chosen")]
    save(chosen.agent, folder, dtype=dtype_for(chosen.agent), results={**chosen.card.results, **summary})
    return {
        "name": name, "folder": str(folder), "recipe": made_by.name, "run": chosen.name, "seed": chosen.card.seed,
        "steps": chosen.card.steps, "commit": chosen.card.commit, "results": summary,
    }  # fmt: skip
