"""The whole library in a few minutes: train a plain and a RADIAL agent, attack both, certify both, look at the page.

Both agents learn to balance CartPole. Then an adversary perturbs their observations, by at most ε in each of the four
features (metres, radians, and their rates), and only one of them keeps balancing.
"""

import argparse
import multiprocessing
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import radial as rr
from radial.recipes.recipe import with_steps
from radial.reports.cells import certified_number, number, spread
from radial.reports.page import write_page

RECIPES = {"PPO": "cartpole-ppo", "RADIAL-PPO": "cartpole-radial-ppo"}
ATTACKS = ("pgd", "mad", "critic", "random")  # the quick ones
SHARES = (0.25, 0.5, 1.0, 1.5)  # of the radius that RADIAL-PPO is trained for


def audited(job: tuple[str, argparse.Namespace]) -> dict[str, Any]:
    """One agent, in a process of its own: trained, unless it is there already, then audited."""
    title, given = job
    torch.set_num_threads(1)  # a second thread only waits on networks this small
    name = RECIPES[title]
    config = rr.recipe(name).config
    config = config if given.steps is None else with_steps(config, given.steps)
    agent = rr.train(config, given.seed, out=given.out / name, resume=True, threads=1, recipe=name)
    Console(log_path=False).log(f"{title} is trained; now it is attacked and certified …")
    radii = [round(share * rr.recipe(RECIPES["RADIAL-PPO"]).radius, 4) for share in SHARES]
    result = rr.audit(agent, None, radii, episodes=given.episodes, budget=given.budget, attacks=ATTACKS, name=title)
    return result.to_json(trace=True)


def show(found: list[dict[str, Any]], say: Console) -> None:
    """Each agent's return under the strongest attack, its certified lower bound, and its share of certified actions."""
    table = Table(
        "ε",
        *(str(facts["agent"]) for facts in found),
        title="adversarial return | lower bound | certified actions",
    )
    table.add_row("0", *(spread(facts["nominal"]) for facts in found))
    for levels in zip(*(facts["levels"] for facts in found), strict=True):
        cells = (
            f"{number(level['worst_return'])} | {certified_number((level['bracket'] or {}).get('lower'))} | "
            f"{certified_number(level['acr'] and level['acr']['mean'], 2)}"
            for level in levels
        )
        table.add_row(f"{levels[0]['radius']:g}", *cells)
    say.print(table)


def main(arguments: list[str] | None = None) -> Path:
    """Train (or find) both agents, audit them, write one page for both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/demo"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, help="of each training; default: the recipe's")
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--budget", type=float, default=2.0, help="minutes of each audit")
    given = parser.parse_args(arguments)
    say = Console(log_path=False)
    began = time.monotonic()
    say.log("training two CartPole agents, one process each …")
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        found = pool.map(audited, [(title, given) for title in RECIPES], chunksize=1)
    show(found, say)
    for facts in found:
        say.print(f"{facts['agent']}: {facts['verdict']}", highlight=False)
    page = write_page(found, given.out)
    say.print(
        f"{time.monotonic() - began:.0f} s. Look at the page:", page.resolve().as_uri(), highlight=False, soft_wrap=True
    )
    return page


if __name__ == "__main__":
    main()
