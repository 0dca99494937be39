"""The whole library in a few minutes: train a plain and a RADIAL agent, attack both, certify both, draw what was found.

Both agents learn to balance CartPole. Then an adversary moves what they see, by at most ε in each of the four numbers
(metres, radians, and their rates), and only one of them keeps balancing.
"""

import argparse
import json
import multiprocessing
import time
from pathlib import Path

import torch
from jinja2 import Environment
from rich.console import Console
from rich.table import Table

import radial as rr
from radial.evaluation.episodes import View, play

RECIPES = {"PPO": "cartpole-ppo", "RADIAL-PPO": "cartpole-radial-ppo"}
ATTACKS = {"MAD": rr.MAD(), "PGD": rr.PGD(), "critic": rr.Critic()}
EPISODES = 20
STATES = 1_000  # visited states to certify


def train(job: tuple[str, Path, int]) -> None:
    """One agent, in a process of its own; a finished one is kept."""
    name, out, seed = job
    torch.set_num_threads(1)
    recipe = rr.recipe(name)
    rr.train(recipe.config, seed, out=out / name, resume=True, threads=1, recipe=name)


def visited(agent: rr.CategoricalAgent) -> torch.Tensor:
    """Prepared observations from the agent's own undisturbed episodes, (STATES, 4)."""
    seen: list[torch.Tensor] = []

    def choose(view: View) -> torch.Tensor:
        x = agent.prepare(view.obs)
        seen.append(x[view.counts])
        return agent.act(x)

    env = rr.make_env(rr.EnvSpec("classic", "CartPole-v1"), 10, seed=7)
    play(env, choose, 10)
    env.close()
    states = torch.cat(seen)
    return states[torch.randperm(len(states), generator=torch.Generator().manual_seed(0))[:STATES]]


def certified_share(agent: rr.CategoricalAgent, states: torch.Tensor, radius: float) -> float:
    """The share of states whose action is proven to be the same for every perturbation."""
    verdicts = rr.certify_action(agent.network, rr.Ball(states, radius), rr.best_of("ibp", "crown"))
    return verdicts.count(rr.Verdict.CERTIFIED) / len(verdicts)


def examine(agent: rr.CategoricalAgent, radii: list[float], say: Console) -> list[dict[str, float]]:
    """For each radius: the mean return under each attack, the worst of them, and the certified share."""
    states = visited(agent)
    rows = []
    for radius in radii:
        returns = {
            name: rr.evaluate(agent, "CartPole-v1", attack, radius, EPISODES, seed=1).mean
            for name, attack in ATTACKS.items()
        }
        row = {"radius": radius, **returns, "worst": min(returns.values())}
        row["certified"] = certified_share(agent, states, radius)
        rows.append(row)
        say.log(f"ε = {radius:<5g} return {row['worst']:5.0f} under the worst attack, {row['certified']:.0%} certified")
    return rows


def draw(found: dict[str, list[dict[str, float]]], trained: float, path: Path) -> None:
    """Two panels over ε: what attacks leave of the return, and what is proven."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for (name, rows), colour in zip(found.items(), ("#d55e00", "#0072b2"), strict=True):
        radii = [row["radius"] for row in rows]
        left.plot(radii, [row["worst"] for row in rows], "o-", color=colour, label=name)
        right.plot(radii, [row["certified"] for row in rows], "o-", color=colour, label=name)
    for axes in (left, right):
        axes.axvline(trained, color="grey", linestyle=":", linewidth=1)
        axes.set_xlabel("ε, in the units of an observation")
        axes.spines[["top", "right"]].set_visible(False)
    left.annotate("trained for", (trained, 400), xytext=(4, 0), textcoords="offset points", color="grey", fontsize=9)
    left.set_ylabel(f"mean return, worst of {len(ATTACKS)} attacks")
    left.set_ylim(0, 520)
    right.set_ylabel("share of states with a certified action")
    right.set_ylim(-0.02, 1.02)
    left.legend(frameon=False)
    figure.savefig(path, dpi=150)


PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>CartPole, attacked</title>
<style>
 body { font: 16px/1.5 system-ui, sans-serif; max-width: 54rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
 img { max-width: 100% } table { border-collapse: collapse; margin: 1rem 0 }
 td, th { padding: .2rem .9rem; text-align: right; border-bottom: 1px solid #ddd }
</style>
<h1>CartPole, attacked</h1>
<p>Two agents, trained alike for {{ steps }} steps; one of them against bounds on what a perturbed observation can make
it do. 500 is a perfect score. Each number is the mean of {{ episodes }} episodes; the attacks see the whole agent.</p>
<img src="cartpole.png" alt="return under attack and certified share, over the size of the perturbation">
{% for name, rows in found.items() %}
<h2>{{ name }}</h2>
<table><tr>{% for key in rows[0] %}<th>{{ "ε" if key == "radius" else key }}</th>{% endfor %}</tr>
{% for row in rows %}<tr>{% for key, value in row.items() %}
<td>{{ "%.0f%%" | format(100 * value) if key == "certified"
       else "%g" | format(value) if key == "radius" else "%.0f" | format(value) }}</td>{% endfor %}</tr>
{% endfor %}</table>
{% endfor %}
<p>Certified means proven: no perturbation of that size can change the action in that state, floating-point rounding
included. An attack that fails proves nothing.</p>
</html>
"""


def main() -> None:
    """Train (or find) both agents, examine them, write a figure, a page and the numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/demo"))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    say = Console(log_path=False)
    torch.set_num_threads(1)  # a second thread only waits on networks this small
    began = time.monotonic()
    say.log("training two CartPole agents, one process each …")
    jobs = [(name, options.out, options.seed) for name in RECIPES.values()]
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        pool.map(train, jobs)
    trained = rr.recipe(RECIPES["RADIAL-PPO"]).radius
    radii = [round(share * trained, 4) for share in (0, 0.25, 0.5, 0.75, 1, 1.25, 1.5)]
    found = {}
    for title, name in RECIPES.items():
        say.log(f"attacking and certifying {title} …")
        found[title] = examine(rr.load(options.out / name), radii, say)
    draw(found, trained, options.out / "cartpole.png")
    (options.out / "cartpole.json").write_text(json.dumps(found, indent=2))
    steps = f"{rr.recipe(RECIPES['PPO']).config.total_steps:,}"
    page = Environment(autoescape=True).from_string(PAGE).render(found=found, episodes=EPISODES, steps=steps)
    (options.out / "index.html").write_text(page, encoding="utf-8")
    table = Table(title=f"mean return under the worst of {len(ATTACKS)} attacks | certified share")
    for heading in ("ε", *RECIPES):
        table.add_column(heading, justify="right")
    for rows in zip(*found.values(), strict=True):
        table.add_row(f"{rows[0]['radius']:g}", *(f"{row['worst']:.0f} | {row['certified']:.0%}" for row in rows))
    say.print(table)
    say.print(f"{options.out / 'index.html'} and {options.out / 'cartpole.png'}, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
