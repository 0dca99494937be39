"""`radial robustify` on imported agents: a ProcGen, a MuJoCo and several classic-control agents, before and after.

Trains each case in runs/robustify-CASE and writes results/robustify.json, .md and .png: returns and curves, no weights.
A finished case is kept and an unfinished one is resumed. The released agents are read from ../shared/models, or from
the folder in the variable RADIAL_MODELS; agents of Stable-Baselines3's zoo that are not there are trained with its
settings (`zoo_like.py`; LunarLander needs the extra box2d). Fine-tuned agents stay in runs/.

    python benchmarks/robustify.py --only cartpole-dqn cartpole-ppo --threads 2
"""

import argparse
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from zoo_like import trained

import radial as rr

ROOT = Path(__file__).resolve().parent.parent
MODELS = Path(os.environ.get("RADIAL_MODELS") or ROOT.parent / "shared" / "models")
CARTPOLE = rr.EnvSpec("classic", "CartPole-v1")
FRUITBOT = rr.EnvSpec("procgen", "fruitbot", {"distribution_mode": "easy", "split": "train"})
RETURN, RADIUS = "charts/episodic_return", "robust/radius"
CURVE = (RETURN, RADIUS, "robust/pace", "robust/certified", "robust/reach", "robust/divergence")


@dataclass(frozen=True)
class Case:
    """An agent, the perturbation radius to fine-tune it for, and the budget."""

    start: str  # a recipe, a released checkpoint, zoo-like:ENV, or the run of an earlier case
    env: rr.EnvSpec
    radius: float
    steps: int
    episodes: int
    tolerance: float = 0.25
    seed: int = 0
    objective: str | None = None  # None: chosen by the ratio of the agent's bounds
    attacked_at: float | None = None  # ε of a further attack on the agent found
    certified_at: float | None = None  # ε of a further certificate


CASES = {
    "fruitbot": Case(
        "procgen/FruitBot_ppo.pt", FRUITBOT, 2 / 255, 800_000, 32, attacked_at=5 / 255, certified_at=1 / 255
    ),
    "fruitbot-sa": Case("procgen/FruitBot_ppo.pt", FRUITBOT, 5 / 255, 240_000, 32, 0.5, objective="sa"),
    "fruitbot-sa-again": Case("robustify-fruitbot-sa", FRUITBOT, 5 / 255, 100_000, 32, 0.5, objective="sa"),
    "hopper": Case("sa_ppo/ppo-hopper-median.model", rr.EnvSpec("mujoco", "Hopper-v4"), 0.075, 1_024_000, 50),
    "cartpole-dqn": Case("cartpole-dqn", CARTPOLE, 0.02, 90_000, 20),
    "cartpole-ppo": Case("cartpole-ppo", CARTPOLE, 0.1, 120_000, 20),
    "sb3-cartpole-ppo": Case("sb3/ppo-CartPole-v1/CartPole-v1.zip", CARTPOLE, 0.05, 300_000, 20, seed=10),
    "sb3-cartpole-dqn": Case("sb3/dqn-CartPole-v1/CartPole-v1.zip", CARTPOLE, 0.05, 60_000, 20, seed=10),
    "sb3-cartpole-ppo-wide": Case("sb3/ppo-CartPole-v1/CartPole-v1.zip", CARTPOLE, 0.1, 300_000, 20, 0.04, seed=10),
    "sb3-hopper": Case(
        "sb3/ppo-Hopper-v3/Hopper-v3.zip", rr.EnvSpec("mujoco", "Hopper-v4"), 0.05, 300_000, 20, 0.1, objective="distil"
    ),
    "sb3-acrobot-ppo": Case("zoo-like:Acrobot-v1", rr.EnvSpec("classic", "Acrobot-v1"), 0.05, 300_000, 20, 0.1, 10),
    "sb3-lunarlander-ppo": Case(
        "zoo-like:LunarLander-v3", rr.EnvSpec("gymnasium", "LunarLander-v3"), 0.05, 300_000, 20, 0.1, 10
    ),
}


def begun(folder: Path) -> bool:
    """Whether there is a run to resume."""
    return (folder / "config.json").is_file()


def history(folder: Path) -> list[dict[str, float]]:
    """The metrics a run has logged so far."""
    path = folder / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def start_of(case: Case, runs: Path) -> Any:
    """The agent to begin with: a file of the papers, an earlier case's, or one that is trained here by its recipe."""
    if case.start.startswith("zoo-like:"):
        return rr.load(trained(case.start.removeprefix("zoo-like:"), runs / "sb3"), env=case.env)
    if "/" in case.start:
        return rr.load(MODELS / case.start, env=case.env)
    if case.start.startswith("robustify-"):
        return rr.load(runs / case.start)
    folder = runs / f"{case.start}-seed0"
    return rr.train(rr.recipe(case.start).config, 0, out=folder, resume=begun(folder), recipe=case.start)


def run(name: str, runs: Path, threads: int) -> dict[str, Any]:
    """One case: its returns before and after, and its curve."""
    case = CASES[name]
    start, folder = start_of(case, runs), runs / f"robustify-{name}"
    began, busy, earlier = time.perf_counter(), time.process_time(), history(folder)
    found = rr.robustify(
        start,
        case.radius,
        case.steps,
        env=case.env,
        episodes=case.episodes,
        tolerance=case.tolerance,
        objective=case.objective,
        seed=case.seed,
        out=folder,
        resume=begun(folder),
        threads=threads,
    )
    seconds, used = time.perf_counter() - began, time.process_time() - busy
    facts = found.to_json() | {"seed": case.seed, "seconds": round(seconds + (earlier[-1]["time"] if earlier else 0.0))}
    facts |= {"cpu_seconds": round(used), "further": further(case, found)}
    lines = history(folder)
    facts["curve"] = [{key: line[key] for key in ("step", *CURVE) if key in line} for line in lines]
    return facts


def further(case: Case, found: Any) -> dict[str, Any]:
    """Scores of the agent found at other radii than its own."""
    scores: dict[str, Any] = {}
    if case.attacked_at is not None:
        scores["attacked"] = rr.evaluate(
            found.agent, case.env, found.attack, case.attacked_at, case.episodes, case.seed
        ).to_json()
    if case.certified_at is not None:
        scores["certified"] = rr.acr(found.agent, case.env, case.certified_at, "ibp", 8, case.seed).to_json()
    return scores


def row(name: str, facts: dict[str, Any]) -> str:
    """A case as a line of the table."""
    cells = [name, facts["objective"], f"{facts['kappa']:.3g}", f"{facts['steps']:,}", f"{facts['radius']:.4g}"]
    cells.append("the original was kept" if facts.get("failed") else f"{facts['reached']:.4g}")
    for side in ("before", "after"):
        standing = facts[side]
        played = [standing["nominal"], standing["attacked"]]
        cells += ["; ".join(f"{one['mean']:.1f} ± {one['sem']:.1f}" for one in played)]
        cells += [f"{standing['certified']['mean']:.3f}"]
    said = facts.get("further") or {}
    more = [f"{one['mean']:.1f} ± {one['sem']:.1f} at {one['radius']:.4g}" for one in [said.get("attacked")] if one]
    more += [
        f"ACR {one['mean']:.3f} at {one['radius']:.4g}, {one['distinct_actions']} actions"
        for one in [said.get("certified")]
        if one
    ]
    return f"| {' | '.join([*cells, '; '.join(more), str(facts['seconds'])])} |"


def scale(known: dict[str, dict[str, Any]]) -> str:
    """How many episodes each case was scored on, and its seed."""
    said = (
        f"{len(facts['after']['nominal']['returns'])} ({name}, seed {facts.get('seed', 0)})"
        for name, facts in known.items()
    )
    return ", ".join(said)


def plot(known: dict[str, dict[str, Any]], path: Path) -> None:
    """A panel for each case: the training return, ε as a thin line, and the returns before and after at the sides."""
    drawing: Any = Figure(figsize=(9.6, 3.2 * -(-len(known) // 2)), layout="constrained")
    panels = drawing.subplots(-(-len(known) // 2), 2, squeeze=False).flatten()
    for panel, (name, facts) in zip(panels, known.items(), strict=False):
        lines = [line for line in facts["curve"] if RETURN in line]
        steps = [line["step"] for line in lines]
        panel.plot(steps, [line[RETURN] for line in lines], color="#000000", label="in training")
        for side, step in (("before", 0), ("after", facts["steps"])):
            for what, colour, mark in (("nominal", "#0072B2", "o"), ("attacked", "#D55E00", "v")):
                found = facts[side][what]
                label = {"nominal": "clean", "attacked": "adversarial"}[what] if side == "before" else None
                panel.errorbar(step, found["mean"], found["sem"], color=colour, marker=mark, capsize=3, label=label)
        right = panel.twinx()
        right.plot(steps, [line.get(RADIUS, 0.0) for line in lines], color="#666666", linewidth=0.8)
        right.set_ylabel("ε (thin line)")
        right.set_ylim(0, 1.1 * facts["radius"])
        low, high = panel.get_ylim()
        panel.set_ylim(min(0, 1.1 * low), max(0, 1.1 * high))
        panel.set_title(name, fontsize="medium")
        panel.set_xlabel("env steps")
        panel.set_ylabel("return")
        panel.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:,.0f}k")
        panel.grid(axis="y", alpha=0.3)
    for panel in panels[len(known) :]:
        panel.set_axis_off()
    drawing.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    drawing.savefig(path, dpi=110)


def main() -> None:
    """Run the cases that are asked for and write what is known of all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--results", type=Path, default=ROOT / "results")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    path = options.results / "robustify.json"
    known: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    for name in options.only:
        known[name] = run(name, options.runs, options.threads)
        options.results.mkdir(exist_ok=True)
        path.write_text(json.dumps(known, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
        headings = ["case", "objective", "κ", "steps", "ε", "reached"]
        headings += ["before", "certified", "after", "certified", "after, elsewhere", "seconds"]
        page = [
            "# Agents made robust",
            "",
            "`python benchmarks/robustify.py`. Before and after: clean return; return under the attack at ε. Certified "
            "by IBP at ε: the share of certified actions; for Hopper, a bound on the shift of the mean action. "
            f"One run each; episodes of each score: {scale(known)}.",
            "",
            f"| {' | '.join(headings)} |",
            f"|{'---|' * len(headings)}",
            *(row(case, facts) for case, facts in known.items()),
        ]
        (options.results / "robustify.md").write_text("\n".join(page) + "\n")
        plot(known, path.with_suffix(".png"))


if __name__ == "__main__":
    main()
