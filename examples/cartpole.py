"""The whole library in a few minutes: train an agent, make it robust, attack both, certify both, look at the page.

The agent learns to balance CartPole. Then an adversary perturbs its observations, by at most ε in each of the four
features (metres, radians, and their rates). `robustify` fine-tunes it with RADIAL's loss, and it keeps balancing.
"""

import argparse
import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import radial as rr
from radial.core.text import round_down
from radial.recipes.recipe import with_steps
from radial.reports.cells import EMPTY, number, spread
from radial.reports.page import write_page

PLAIN, ROBUST = "PPO", "RADIAL-PPO"
ATTACKS = ("pgd", "mad", "critic", "random")  # the quick ones
RADIUS = 0.05  # that RADIAL-PPO is trained for
SHARES = (0.2, 1.0, 2.0)  # of it, at which both are audited: where return is certified, as trained, and beyond


class Stage:
    """Lines that say which agent is at which stage."""

    def __init__(self, title: str) -> None:
        self.title, self.console = title, Console(log_path=False)

    def __call__(self, text: str) -> None:
        """One line."""
        self.console.log(f"{self.title}: {text}", highlight=False)

    @contextmanager
    def watch(self, what: str, total: int) -> Iterator[Any]:
        """One line for each measurement of `robustify`."""
        self(f"{what} return of {total} episodes" if "certified" not in what else what)
        yield lambda *_: None


def begun(folder: Path) -> bool:
    """Whether there is a run to resume."""
    return (folder / "config.json").is_file()


def trained(given: argparse.Namespace) -> Any:
    """The plain agent, trained unless it is there already."""
    config = rr.recipe("cartpole-ppo").config
    config = config if given.steps is None else with_steps(config, given.steps)
    folder = given.out / "ppo"
    return rr.train(config, given.seed, out=folder, resume=begun(folder), threads=1, recipe="cartpole-ppo")


def made_robust(given: argparse.Namespace, say: Stage) -> Any:
    """The robust agent; the plain one where nothing better was found."""
    folder = given.out / "radial-ppo"
    say(f"fine-tuning for ε = {RADIUS:g}, {given.robust_steps:,} steps")
    found = rr.robustify(
        rr.load(given.out / "ppo"), RADIUS, given.robust_steps, tolerance=0.02, seed=given.seed,
        episodes=given.episodes, out=folder, resume=begun(folder), threads=1, quiet=True,
        watch=say.watch,
    )  # fmt: skip
    say("no agent was better than PPO: it is audited again" if found.failed else f"kept the agent of {found.kept:,}")
    return found.agent


def audited(job: tuple[str, argparse.Namespace]) -> dict[str, Any]:
    """One agent, in a process of its own: made robust if it is to be, then attacked and certified."""
    title, given = job
    torch.set_num_threads(1)  # a second thread only waits on networks this small
    say = Stage(title)
    agent = made_robust(given, say) if title == ROBUST else rr.load(given.out / "ppo")
    radii = [round(share * RADIUS, 4) for share in SHARES]
    say("attacking and certifying it")
    result = rr.audit(
        agent, None, radii, episodes=given.episodes, budget=given.budget, attacks=ATTACKS, name=title, progress=say
    )
    return result.to_json(trace=True)


def show(found: list[dict[str, Any]], say: Console) -> None:
    """Each agent's return under the strongest attack, its certified lower bound, and its share of certified actions."""
    table = Table(
        "ε",
        *(str(facts["agent"]) for facts in found),
        title="return under the strongest attack | certified return at least | certified actions",
    )
    table.add_row("0", *(spread(facts["nominal"]) for facts in found))
    for levels in zip(*(facts["levels"] for facts in found), strict=True):
        cells = (f"{number(level['worst_return'])} | {_certified(level)} | {_share(level)}" for level in levels)
        table.add_row(f"{levels[0]['radius']:g}", *cells)
    say.print(table)


def _certified(level: dict[str, Any]) -> str:
    bracket = level["bracket"] or {}
    lower = bracket.get("lower") if bracket.get("kind") == "certified" else None
    return EMPTY if lower is None else round_down(lower)


def _share(level: dict[str, Any]) -> str:
    """A certified share, rounded down as every bound."""
    return EMPTY if level["acr"] is None else f"{int(100 * level['acr']['mean'] + 1e-9) / 100:.2f}"


def headline(found: list[dict[str, Any]]) -> str:
    """What the two agents differ in, in one sentence; what there was no time for is left out."""
    plain, robust = found
    said = [f"Clean, PPO returns {plain['nominal']['mean']:.0f} and RADIAL-PPO {robust['nominal']['mean']:.0f}"]
    pairs = list(zip(plain["levels"], robust["levels"], strict=True))
    for one, other in sorted(pairs, key=lambda pair: abs(pair[0]["radius"] - RADIUS)):  # the ε it was trained for first
        if None not in (one["worst_return"], other["worst_return"]):
            left = f"{one['worst_return']:.0f} and {other['worst_return']:.0f}"
            said.append(f"with observations off by up to {one['radius']:g} the strongest attack leaves them {left}")
            break
    for one, other in pairs:
        if _certified(other) != EMPTY:
            least = f"{_certified(other)} ({_certified(one)} for PPO)"
            said.append(f"off by up to {one['radius']:g} RADIAL-PPO is certified to return at least {least}")
            break
    return "; ".join(said) + "."


def main(arguments: list[str] | None = None) -> Path:
    """Train (or find) both agents, audit them, write one page for both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/demo"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, help="of the plain training; default: the recipe's")
    parser.add_argument("--robust-steps", type=int, default=60_000, help="of the fine-tuning")
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--budget", type=float, default=0.75, help="minutes of each audit")
    given = parser.parse_args(arguments)
    say, began = Console(log_path=False), time.monotonic()
    torch.set_num_threads(1)
    Stage(PLAIN)("1 of 3, training it to balance")
    trained(given)
    Stage(ROBUST)(f"2 of 3, fine-tuning a copy of it, while {PLAIN} is audited; 3 of 3, auditing both")
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        found = pool.map(audited, [(title, given) for title in (PLAIN, ROBUST)], chunksize=1)
    show(found, say)
    page = write_page(found, given.out)
    say.print(headline(found), highlight=False)
    say.print(
        f"{time.monotonic() - began:.0f} s. Look at the page:", page.resolve().as_uri(), highlight=False, soft_wrap=True
    )
    return page


if __name__ == "__main__":
    main()
