"""`radial zoo add`: of several seeds of a recipe, the median one joins the zoo.

How they are scored and which one it is, is in `recipes.seeds`.
"""

from pathlib import Path

import tyro
from rich.table import Table

from radial.commands.reproduce import watch
from radial.commands.terminal import print_json, print_table, say


def add_zoo(
    runs: tyro.conf.Positional[tuple[Path, ...]],
    name: str | None = None,
    episodes: int | None = None,
    replace: bool = False,
    json: bool = False,
) -> None:
    """Score finished runs of one recipe, and save the median agent in the zoo with the scores of all on its card.

    Each is played without an attack and, at the recipe's radius, under MAD (PPO) or PGD (DQN); the lower median of the
    latter is taken.

    Args:
        runs: folders of finished runs, one per seed.
        name: in the zoo; default: that of the recipe.
        episodes: per score; default: as many as the paper plays, 20 for Atari and 50 elsewhere.
        replace: an agent of that name.
        json: print one JSON object instead of a table.
    """
    from radial.reports.markdown import number
    from radial.workflows.seeds import add_to_zoo

    added = add_to_zoo(runs, name, episodes=episodes, replace=replace, watch=watch)
    if json:
        print_json(added)
        return
    seeds = added["results"]["seeds"]
    columns = list(next(iter(seeds.values())))
    table = Table("seed", *columns, title=f"{added['recipe']}, {added['results']['protocol']['episodes']} episodes")
    for seed, scores in seeds.items():
        mark = " ←" if seed == str(added["seed"]) else ""
        table.add_row(seed + mark, *(number(scores[column]["mean"], scores[column]["sem"]) for column in columns))
    print_table(table)
    say(f"{added['run']} is now {added['folder']}: radial evaluate {added['name']}")
