"""Everything that was trained for the worst of all attacks: clean return against that under a linear director.

Each finished run is judged once: 30 episodes clean, under MAD, and under a linear director that learned against it.
Rows say in which settings a training differs from its recipe. Writes results/frontier.json, .md and .png.

    python benchmarks/frontier.py runs/hopper-robust-seed0 runs/hopper-robust-sigma-seed0
"""

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import torch
from matplotlib import pyplot

import radial as rr
from radial.recipes.recipe import recipe
from radial.workflows.reproduce import changed_settings
from radial.workflows.seeds import card_config, trained_with

EPISODES, RADIUS = 30, 0.075
# Heading of a column, its attack, its ε.
COLUMNS: tuple[tuple[str, Any, float], ...] = (
    ("clean", None, 0.0), ("MAD", rr.MAD, RADIUS), ("MAD at 0.15", rr.MAD, 0.15), ("linear", rr.LinearDirector, RADIUS),
)  # fmt: skip
BARS = {"Hopper-v4": (2600, 3500), "Walker2d-v4": (3700, 4800), "HalfCheetah-v4": (4500, 4800)}  # worst, clean


def at(config: Any, path: str) -> Any:
    """The value of a setting by its dotted path; none where it is not set."""
    for name in path.split("."):
        config = config.get(name) if isinstance(config, dict) else None
    return config


def told(value: Any) -> str:
    """A setting in a few letters, a schedule by its ends."""
    if isinstance(value, dict) and "end" in value:
        return f"{value.get('start', 0):g} → {value['end']:g}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def judged(run: Path) -> dict[str, Any]:
    """What a run was, and what its agent returns."""
    agent = rr.load(run)
    card, env = agent.card, agent.card.env
    name = card.recipe["name"]
    today = card_config(recipe(name).config)
    then = trained_with(card, recipe(name).config)
    row: dict[str, Any] = {
        "task": env.id, "recipe": name, "seed": card.seed, "steps": card.steps, "commit": card.commit,
        "changed": {path: at(then, path) for path in changed_settings(today, then)},
    }  # fmt: skip
    for column, attack, radius in COLUMNS:
        found = rr.evaluate(agent, env.id, attack and attack(), radius, EPISODES, seed=0)
        row[column] = {"mean": found.mean, "sem": found.sem}
    row["reach"] = rr.reach(agent, env.id, RADIUS, episodes=3).mean
    return row


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown, a line per run, the best of each task first."""
    lines = [
        "# Trained for the worst of all attacks: everything that was tried",
        "",
        f"`benchmarks/frontier.py`: {EPISODES} episodes, mean ± SEM, ε = {RADIUS}; MAD also at 0.15. The linear "
        "director learned against each agent; reach is how far an observation in the ball can move the mean action, "
        "certified. One seed each: differences of a few hundred are noise. Steps and ramps are those of the recipe "
        "unless said.",
        "",
        f"| task | recipe | with | seed | steps | {' | '.join(name for name, _, _ in COLUMNS)} | reach |",
        "|---|---|---|---|---|" + "---|" * len(COLUMNS) + "---|",
    ]
    for row in sorted(rows, key=lambda row: (row["task"], -row["linear"]["mean"])):
        ramps = ("first_step", "last_step", "total_steps")
        shown = {path: value for path, value in row["changed"].items() if not path.endswith(ramps)}
        settings = ", ".join(f"{path} {told(value)}" for path, value in shown.items()) or "as it is"
        cells = [f"{row[name]['mean']:.0f} ± {row[name]['sem']:.0f}" for name, _, _ in COLUMNS]
        lines.append(
            f"| {row['task']} | {row['recipe']} | {settings} | {row['seed']} | {row['steps']:,} | {' | '.join(cells)} "
            f"| {row['reach']:.3f} |"
        )
    return "\n".join(lines) + "\n"


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """One panel per task; the dashed lines are what is aimed at."""
    tasks = sorted({row["task"] for row in rows})
    figure, panels = pyplot.subplots(1, len(tasks), figsize=(4.2 * len(tasks), 3.8), squeeze=False)
    for panel, task in zip(panels[0], tasks, strict=True):
        for long, color, label in ((True, "#D55E00", "4,096,000 steps"), (False, "#0072B2", "fewer")):
            here = [row for row in rows if row["task"] == task and (row["steps"] >= 4_000_000) == long]
            worst, clean = ([row[name]["mean"] for row in here] for name in ("linear", "clean"))
            panel.scatter(worst, clean, color=color, label=label, s=24)
        worst_bar, clean_bar = BARS[task]
        panel.axvline(worst_bar, color="#999999", linestyle="--", linewidth=1)
        panel.axhline(clean_bar, color="#999999", linestyle="--", linewidth=1)
        panel.set(title=task, xlabel=f"return under a linear director, ε = {RADIUS}", ylabel="clean return")
        panel.legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=150)


def main() -> None:
    """Judge what is new, and write all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="*")
    parser.add_argument("--out", type=Path, default=Path("results"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    file = options.out / "frontier.json"
    results: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    for run in options.runs:
        if run.name not in results:
            results[run.name] = judged(run)
            file.write_text(json.dumps(results, indent=1) + "\n")
            print(run.name, json.dumps(results[run.name]), flush=True)
    (options.out / "frontier.md").write_text(table(list(results.values())))
    draw(list(results.values()), options.out / "frontier.png")


if __name__ == "__main__":
    main()
