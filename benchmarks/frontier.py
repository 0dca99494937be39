"""What was trained for the worst of all attacks: clean return against that under a linear director.

Each finished run is judged once: 30 episodes clean, under MAD, and under a linear director that learned against it.
Writes results/frontier.json, .md and .png.

    python benchmarks/frontier.py runs/hopper-robust-seed0 runs/hopper-robust-other-seed0
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

EPISODES, RADIUS = 30, 0.075
# Heading of a column, its attack, its ε.
COLUMNS: tuple[tuple[str, Any, float], ...] = (
    ("clean", None, 0.0), ("MAD", rr.MAD, RADIUS), ("MAD at 0.15", rr.MAD, 0.15), ("linear", rr.LinearDirector, RADIUS),
)  # fmt: skip
BARS = {"Hopper-v4": (2600, 3500), "Walker2d-v4": (3700, 4800), "HalfCheetah-v4": (4500, 4800)}  # worst, clean


def objective(config: dict[str, Any]) -> str:
    """The loss, with its weight."""
    found = config["objective"]
    kind, kappa, weight, spread = (found.get(name) for name in ("type", "kappa", "weight", "spread"))
    parts = [kind, "" if kappa is None else f"κ {kappa['value']:g}", "" if weight is None else f"weight {weight:g}"]
    return " ".join(filter(None, [*parts, "" if spread is None else f"at σ {spread:g}"]))


def ceiling(config: dict[str, Any]) -> str:
    """The ceiling on σ, a schedule by its ends and the step where it stops."""
    limit = config["max_std"]
    if not isinstance(limit, dict):
        return "–" if limit is None else f"{limit:g}"
    return f"{limit['start']:g} → {limit['end']:g} at {limit['last_step'] / 1e6:.1f} M"


def ramp(config: dict[str, Any]) -> str:
    """Where ε of the directors ends, and between which steps it grows."""
    grows = config["attack_radius"]
    return f"{grows['end']:g}, {grows['first_step'] / 1e6:.1f} to {grows['last_step'] / 1e6:.1f} M"


def judged(run: Path, pool: str) -> dict[str, Any]:
    """What a run was, and what its agent returns."""
    agent = rr.load(run)
    card, env = agent.card, agent.card.env
    config = card.recipe["config"]
    row: dict[str, Any] = {
        "task": env.id, "recipe": card.recipe["name"], "seed": card.seed, "steps": card.steps, "commit": card.commit,
        "pool": pool, "objective": objective(config), "discount": config["discount"], "ceiling": ceiling(config),
        "directors": ramp(config),
    }  # fmt: skip
    for column, attack, radius in COLUMNS:
        found = rr.evaluate(agent, env.id, attack and attack(), radius, EPISODES, seed=0)
        row[column] = {"mean": found.mean, "sem": found.sem}
    row["reach"] = rr.reach(agent, env.id, RADIUS, episodes=3).mean
    return row


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown, a line per run, the best of each task first."""
    lines = [
        "# Trained for the worst of all attacks: what was tried",
        "",
        f"`benchmarks/frontier.py`: {EPISODES} episodes, mean ± SEM, ε = {RADIUS}; MAD also at 0.15. Three quarters of "
        "the envs train under linear directors; the pool of those keeps the latest or the hardest. *linear* is a new "
        "director that learned against the finished agent; reach is how far an observation in the ball can move the "
        "mean action, certified. One seed each: differences of a few hundred are noise.",
        "",
        "| task | objective | γ | ceiling on σ | directors: ε | pool | steps | seed | "
        f"{' | '.join(name for name, _, _ in COLUMNS)} | reach |",
        "|---|---|---|---|---|---|---|---|" + "---|" * len(COLUMNS) + "---|",
    ]
    for row in sorted(rows, key=lambda row: (row["task"], -row["linear"]["mean"])):
        cells = [f"{row[name]['mean']:.0f} ± {row[name]['sem']:.0f}" for name, _, _ in COLUMNS]
        settings = [row["objective"], f"{row['discount']:g}", row["ceiling"], row["directors"], row["pool"]]
        lines.append(
            f"| {row['task']} | {' | '.join(settings)} | {row['steps']:,} | {row['seed']} | {' | '.join(cells)} "
            f"| {row['reach']:.3f} |"
        )
    return "\n".join(lines) + "\n"


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """One panel per task; the dashed lines are what is aimed at."""
    tasks = sorted({row["task"] for row in rows})
    figure, panels = pyplot.subplots(1, len(tasks), figsize=(4.2 * len(tasks), 3.8), squeeze=False)
    for panel, task in zip(panels[0], tasks, strict=True):
        for pool, color, shape in (("hardest", "#D55E00", "D"), ("latest", "#0072B2", "o")):
            here = [row for row in rows if row["task"] == task and row["pool"] == pool]
            worst, clean = ([row[name]["mean"] for row in here] for name in ("linear", "clean"))
            panel.scatter(worst, clean, color=color, marker=shape, label=f"pool of the {pool}", s=24)
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
    parser.add_argument("--pool", choices=["latest", "hardest"], default="hardest", help="which directors it kept")
    parser.add_argument("--out", type=Path, default=Path("results"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    file = options.out / "frontier.json"
    results: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    for run in options.runs:
        if run.name not in results:
            results[run.name] = judged(run, options.pool)
            file.write_text(json.dumps(results, indent=1) + "\n")
            print(run.name, json.dumps(results[run.name]), flush=True)
    (options.out / "frontier.md").write_text(table(list(results.values())))
    draw(list(results.values()), options.out / "frontier.png")


if __name__ == "__main__":
    main()
