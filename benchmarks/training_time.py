"""Hours of whole trainings, and SA-DQN against RADIAL-DQN, beside what the paper says: JSON and a page.

A run's hours are those of its log, Σ steps / (steps per second), so a run that was interrupted counts what it worked
and not what it waited. Hours depend on what else the machine did; the ratio of two runs at the same time says more.

    python benchmarks/training_time.py runs/*-seed0 --out results/training-time
"""

import argparse
import json
from pathlib import Path
from typing import Any

from radial.reports.markdown import aligned

PAPER = (
    "The paper: 17 hours for RADIAL-DQN against 35 for SA-DQN, both in all, on one RTX 2080; RADIAL-DQN's own loss is "
    "about six times cheaper than SA-DQN's."
)


def training_time(run: Path) -> dict[str, Any]:
    """Steps, hours and steps per second of a run; the steps of the run it started from are not counted."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    seconds, before = 0.0, 0
    for line in lines:
        if line.get("charts/SPS"):
            seconds += (line["step"] - before) / line["charts/SPS"]
        before = line["step"]
    config = json.loads((run / "config.json").read_text())
    objective = config.get("objective", {}).get("type")
    return {
        "run": run.name, "env": config["env"]["id"], "objective": objective, "steps": before,
        "hours": seconds / 3600, "steps_per_second": before / seconds if seconds else None,
    }  # fmt: skip


def ratios(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Hours per step of SA-DQN over those of RADIAL-DQN, of each env that has both."""
    found = []
    for env in dict.fromkeys(run["env"] for run in runs):
        pace = {
            kind: [run["hours"] / run["steps"] for run in runs if run["env"] == env and run["objective"] == kind]
            for kind in ("SA", "RadialOverlap")
        }
        if all(pace.values()):
            means = {kind: sum(each) / len(each) for kind, each in pace.items()}
            found.append({"env": env, "sa_over_radial": means["SA"] / means["RadialOverlap"]})
    return found


def page(document: dict[str, Any]) -> str:
    """The numbers as Markdown."""
    rows = [
        [run["run"], run["env"], f"{run['steps']:,}", f"{run['hours']:.2f}", f"{run['steps_per_second'] or 0:.0f}"]
        for run in document["runs"]
    ]
    parts = ["# Training time", PAPER, aligned(["run", "env", "env steps", "hours", "env steps/s"], rows)]
    parts += [f"SA-DQN takes {each['sa_over_radial']:.2f} times as long per step as RADIAL-DQN on {each['env']}."
              for each in document["ratios"]]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Read the runs, write OUT.json and OUT.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    runs = [training_time(run) for run in options.runs if (run / "metrics.jsonl").exists()]
    document = {"paper": PAPER, "runs": runs, "ratios": ratios(runs)}
    options.out.with_suffix(".json").write_text(json.dumps(document, indent=1, allow_nan=False) + "\n")
    options.out.with_suffix(".md").write_text(page(document))


if __name__ == "__main__":
    main()
