"""`radial zoo`: the agents that come with the repository, and how the median seed of a recipe joins them.

How seeds are evaluated and which one is chosen is in `workflows.seeds`.
"""

from pathlib import Path

import tyro
from rich.table import Table

from radial.commands.terminal import print_json, print_table, say, watch


def list_zoo(json: bool = False) -> None:
    """List the agents of the zoo; `radial evaluate NAME` plays one.

    Args:
        json: print a JSON object, with the results on each card.
    """
    from radial.agents.zoo import zoo_agents, zoo_folder
    from radial.recipes.tables import label_of

    agents, broken = zoo_agents()
    for fault in broken:
        say(f"left out: {fault}")
    if json:
        rows = [
            {
                "name": agent.name,
                "env": None if agent.card.env is None else agent.card.env.id,
                "method": agent.method,
                "steps": agent.card.steps,
                "seed": agent.card.seed,
                "results": dict(agent.card.results),
            }
            for agent in agents
        ]
        print_json({"folder": str(zoo_folder()), "agents": rows})
        return
    table = Table(title=f"Agents in {zoo_folder()}")
    for heading in ("agent", "env", "method", "steps", "seed", "results"):
        table.add_column(heading)
    for agent in agents:
        card = agent.card
        table.add_row(
            agent.name, "–" if card.env is None else card.env.id, agent.method, f"{card.steps:,}",
            "–" if card.seed is None else str(card.seed),
            "  ".join(f"{label_of(key)} {_short(value)}" for key, value in card.results.items() if _is_number(value)),
        )  # fmt: skip
    print_table(table)
    if not agents:
        say("no agents there; the variable RADIAL_ZOO names another folder")


def _is_number(value: object) -> bool:
    return not isinstance(value, dict) or "mean" in value


def _short(value: object) -> str:
    """A result in a few letters: numbers rounded, an evaluation by its mean."""
    if isinstance(value, dict):
        value = value["mean"]
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def add_zoo(
    runs: tyro.conf.Positional[tuple[Path, ...]],
    name: str | None = None,
    episodes: int | None = None,
    replace: bool = False,
    json: bool = False,
) -> None:
    """Evaluate finished runs of one recipe and save the median seed in the zoo, with the results of all on its card.

    Each seed is evaluated without an attack and under MAD (PPO) or PGD (DQN, A3C) at the recipe's ε; the lower median
    of the adversarial returns is chosen.

    Args:
        runs: folders of finished runs, one per seed.
        name: in the zoo; default: that of the recipe.
        episodes: per evaluation; default: as many as in the paper, 20 for Atari, 1,000 for ProcGen and 50 elsewhere.
        replace: replace an agent of that name.
        json: print one JSON object instead of a table.
    """
    from radial.recipes.tables import label_of
    from radial.reports.markdown import mean_sem
    from radial.workflows.seeds import add_to_zoo

    added = add_to_zoo(runs, name, episodes=episodes, replace=replace, watch=watch)
    if json:
        print_json(added)
        return
    seeds = added["results"]["seeds"]
    columns = list(next(iter(seeds.values())))
    title = f"{added['recipe']}, {added['results']['protocol']['episodes']} episodes"
    table = Table("seed", *(label_of(column) for column in columns), title=title)
    for seed, found in seeds.items():
        mark = " ←" if seed == str(added["seed"]) else ""
        table.add_row(seed + mark, *(mean_sem(found[column]["mean"], found[column]["sem"]) for column in columns))
    print_table(table)
    say(f"{added['run']} is now {added['folder']}: radial evaluate {added['name']}")
