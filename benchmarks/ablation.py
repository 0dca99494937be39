"""Where does the robustness of RADIAL-PPO on Hopper come from? Trains variants of a recipe for a quarter of its steps.

Each variant changes one thing; the ramps shrink with the steps. The judge is a linear director that learns against the
finished agent; MAD stands beside it. A finished run is kept, an unfinished one resumed, so the script may be stopped at
any time. Writes results/ablation-ppo.json and .md.

    python benchmarks/ablation.py --only recipe released --jobs 2
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import radial as rr

RECIPE, LOSS_ALONE, DIRECTED = "hopper-radial-ppo", "hopper-radial-ppo-undisturbed", "hopper-robust"
STEPS = 1_024_000
# Heading of a column, its attack, its ε.
COLUMNS: tuple[tuple[str, Any, float], ...] = (
    ("clean", None, 0.0), ("MAD 0.075", rr.MAD, 0.075), ("MAD 0.15", rr.MAD, 0.15),
    ("linear 0.075", rr.LinearDirector, 0.075),
)  # fmt: skip


def objective(kind: str, kappa: float = 0.5, detach_std: bool = False) -> list[str]:
    """The recipe with another objective: its ramp stays."""
    fields = {"type": kind, "kappa": kappa, "detach_std": detach_std, "bound": "ibp"}
    return [f"objective.{name}={json.dumps(value)}" for name, value in fields.items()]


CEILING = "max_std=0.3"
VARIANTS: dict[str, tuple[str, str, list[str]]] = {
    "recipe": ("**the recipe**: κ 0.98, half of the steps under MAD", RECIPE, []),
    "undisturbed": ("**the loss alone**: κ 0.98, no attack in the rollouts", LOSS_ALONE, []),
    "directors": ("the loss, κ 0.98, under linear directors, with γ 0.995 and σ falling to 0.2", DIRECTED, []),
    "directors-alone": ("the same without the loss: plain PPO", DIRECTED, ["objective.kappa=1.0"]),
    "adversarial": ("the attack alone: plain PPO, half of the steps under MAD", RECIPE, ["objective.kappa=1.0"]),
    "ppo": ("plain PPO", LOSS_ALONE, ["objective.kappa=1.0"]),
    "kappa-0.95": ("the loss alone, κ 0.95", LOSS_ALONE, ["objective.kappa=0.95"]),
    "kappa-0.9": ("the loss alone, κ 0.9", LOSS_ALONE, ["objective.kappa=0.9"]),
    "ceiling": ("the loss alone, σ ≤ 0.3", LOSS_ALONE, [CEILING]),
    "detached-std": ("the loss alone, σ detached in the bounded term", LOSS_ALONE, ["objective.detach_std=true"]),
    "crown-ibp": ("the loss alone, CROWN-IBP for IBP", LOSS_ALONE, ["objective.bound=crown-ibp"]),
    "paper": ("the paper's form, κ 0.5", LOSS_ALONE, objective("RadialWorstCase")),
    "paper-detached": ("the same, σ detached", LOSS_ALONE, objective("RadialWorstCase", detach_std=True)),
    "paper-ceiling": ("the same, σ ≤ 0.3", LOSS_ALONE, [*objective("RadialWorstCase"), CEILING]),
    "released": ("six-way minimum, raw advantages, κ 0.5", LOSS_ALONE, objective("RadialReleased")),
    "released-1x2048": ("the same, 1 env × 2,048 steps", LOSS_ALONE, [*objective("RadialReleased"), "num_envs=1"]),
}


def train(name: str, seed: int, runs: Path) -> subprocess.Popen[bytes]:
    """One variant in a process of its own."""
    _, recipe, changes = VARIANTS[name]
    settings = [part for setting in changes for part in ("--set", setting)]
    command = [
        sys.executable, "-m", "radial", "train", recipe, "--steps", str(STEPS), "--seed", str(seed), "--threads", "1",
        "--out", str(runs / f"{name}-seed{seed}"), "--resume", *settings,
    ]  # fmt: skip
    return subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"})


def measure(run: Path) -> dict[str, object]:
    """Clean return and return under each attack, 50 episodes each."""
    agent = rr.load(run)
    lines = (run / "metrics.jsonl").read_text().splitlines()
    last = json.loads(lines[-1])
    found: dict[str, object] = {
        "steps": last["step"],
        "std": last["charts/std"],
        "width": last.get("robust/bound_width"),
    }
    for name, attack, radius in COLUMNS:
        result = rr.evaluate(agent, "Hopper-v4", attack and attack(), radius, 50, seed=0)
        found[name] = {"mean": result.mean, "sem": result.sem}
        found["engine"] = dict(result.engine)
    return found


def cell(found: Any) -> str:
    """A mean with its error; – where it was not measured."""
    return "–" if found is None else f"{found['mean']:.0f} ± {found['sem']:.0f}"


def table(results: dict[str, dict[str, dict[str, object]]]) -> str:
    """Markdown, one line per run."""
    lines = [
        "# Ablation of RADIAL-PPO on Hopper",
        "",
        f"Hopper-v4, {STEPS:,} steps (a quarter of the recipe, ramps in proportion); 50 episodes, mean ± SEM. The "
        "linear director learned against each agent; –: not measured.",
        "",
        f"| variant | seed | {' | '.join(name for name, _, _ in COLUMNS)} | mean σ | bound width |",
        f"|---|---|{'---|' * len(COLUMNS)}---|---|",
    ]
    for name, seeds in results.items():
        for seed, row in seeds.items():
            cells = [cell(row.get(column)) for column, _, _ in COLUMNS]
            width = "–" if row["width"] is None else f"{row['width']:.2f}"
            lines.append(f"| {VARIANTS[name][0]} | {seed} | {' | '.join(cells)} | {row['std']:.2f} | {width} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Train what is missing, measure it, write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=list(VARIANTS), default=list(VARIANTS))
    parser.add_argument("--seeds", type=int, nargs="*", default=[0])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--runs", type=Path, default=Path("runs/ablation"))
    parser.add_argument("--out", type=Path, default=Path("results"))
    options = parser.parse_args()
    waiting = [(name, seed) for seed in options.seeds for name in options.only]
    running: list[subprocess.Popen[bytes]] = []
    for name, seed in waiting:
        if (options.runs / f"{name}-seed{seed}" / "agent").exists():
            continue
        if len(running) >= options.jobs:
            running.pop(0).wait()
        running.append(train(name, seed, options.runs))
    for process in running:
        process.wait()
    file = options.out / "ablation-ppo.json"
    results = json.loads(file.read_text()) if file.exists() else {}
    for name, seed in waiting:
        run = options.runs / f"{name}-seed{seed}"
        known = results.get(name, {}).get(str(seed), {})
        if any(column not in known for column, _, _ in COLUMNS) and (run / "agent").exists():
            results.setdefault(name, {})[str(seed)] = measure(run)
            options.out.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(results, indent=2) + "\n")
    results = {name: results[name] for name in VARIANTS if name in results}
    (options.out / "ablation-ppo.md").write_text(table(results))
    print(table(results))


if __name__ == "__main__":
    main()
