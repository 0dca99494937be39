"""Does acting by the lower bound of Q (CARRL) help? The zoo's CartPole Q agents, greedy and guarded, 50 episodes each.

The linear director is fitted against each rule separately: it sees which action is taken, not the gradient of Q alone.
Known cells are kept, so the script may be stopped at any time. Writes results/carrl.json and .md.

    python benchmarks/carrl.py
"""

import argparse
import json
import math
from pathlib import Path
from typing import Any

import torch

import radial as rr
from radial.core.agent import Agent, Attack
from radial.envs.make import spec_for
from radial.reports.markdown import aligned

ENV = "CartPole-v1"
AGENTS = ("cartpole-dqn", "cartpole-radial-dqn", "cartpole-sa-dqn")
RADII = (0.04, 0.1)
ATTACKS = {"none": "clean", "random": "random", "pgd": "PGD", "linear": "linear director"}
STEPS = 40_000  # of each linear director, without restarts: a tenth of the leaderboard's
EPISODES, SEED, FIT_SEED = 50, 1234, 4321


def acting(name: str, radius: float, rule: str) -> Agent:
    """An agent that acts by a rule."""
    agent: Agent = rr.load(name)
    if rule == "greedy":
        return agent
    return rr.guard(agent, radius, rule=rule, budget=None, compiled=False).agent


def attack_on(agent: Agent, attack: str, radius: float) -> Attack | str | None:
    """An attack for `evaluate`, fitted if it learns."""
    if attack != "linear":
        return None if attack == "none" else attack
    director = rr.LinearDirector(steps=STEPS, restarts=1).aimed(radius, math.inf)
    return director.fit(agent, spec_for(ENV), FIT_SEED)


def measure(name: str, radius: float, rule: str, attack: str) -> dict[str, Any]:
    """One cell: every return."""
    agent = acting(name, radius, rule)
    found = rr.evaluate(agent, ENV, attack_on(agent, attack, radius), radius, EPISODES, seed=SEED)
    return {
        "agent": name, "radius": radius, "rule": rule, "attack": attack, "mean": found.mean, "sem": found.sem,
        "returns": list(found.returns), "seed": SEED, "engine": dict(found.engine),
    }  # fmt: skip


def table(cells: dict[str, dict[str, Any]]) -> str:
    """Markdown, one line per agent, radius and rule."""
    rows = []
    for name in AGENTS:
        for radius in RADII:
            for rule in ("greedy", "carrl"):
                known = [cells.get(called(name, radius, rule, attack)) for attack in ATTACKS]
                shown = ["–" if cell is None else f"{cell['mean']:.0f} ± {cell['sem']:.0f}" for cell in known]
                rows.append([name, f"{radius:g}", {"carrl": "CARRL"}.get(rule, rule), *shown])
    return "\n\n".join([
        "# CARRL beside the greedy agent",
        f"{ENV}, {EPISODES} episodes per cell, mean ± standard error; `benchmarks/carrl.py`. Each linear director was "
        f"fitted with {STEPS:,} steps against the rule that it attacks.",
        aligned(["agent", "ε", "acts by", *ATTACKS.values()], rows),
    ]) + "\n"  # fmt: skip


def called(name: str, radius: float, rule: str, attack: str) -> str:
    """The name of a cell in the file."""
    return f"{name}, {radius:g}, {rule}, {attack}"


def main() -> None:
    """Play what is missing, write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results"))
    out: Path = parser.parse_args().out
    torch.set_num_threads(1)
    out.mkdir(parents=True, exist_ok=True)
    file = out / "carrl.json"
    cells = json.loads(file.read_text()) if file.exists() else {}
    wanted = [(name, r, rule, a) for name in AGENTS for r in RADII for rule in ("greedy", "carrl") for a in ATTACKS]
    for cell in wanted:
        if called(*cell) not in cells:
            cells[called(*cell)] = measure(*cell)
            file.write_text(json.dumps(cells, indent=1) + "\n")
    (out / "carrl.md").write_text(table(cells))
    print(table(cells))


if __name__ == "__main__":
    main()
