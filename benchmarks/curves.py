"""Training curves: return and ε against env steps, of one or more runs, as JSON and as a picture.

Returns are as logged: the mean of the last hundred episodes, exploration included, rewards not clipped. A run that
fine-tunes another one is drawn after it, in the order given.

    python benchmarks/curves.py runs/pong-small-dqn-seed0 --out results/pong-small-curve
"""

import argparse
import json
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

RETURN, RADIUS, SHARE = "charts/episodic_return", "robust/radius", "robust/certified"
STYLES = (("#000000", "-"), ("#D55E00", "--"), ("#0072B2", "-."), ("#009E73", ":"))


def curve(run: Path, points: int = 200) -> list[dict[str, float]]:
    """At most so many lines of a run's log, evenly spread, the last one always."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    known = [{key: line[key] for key in ("step", RETURN, RADIUS, SHARE) if key in line} for line in lines]
    known = [line for line in known if RETURN in line]
    every = -(-len(known) // points)
    return known[::-1][::every][::-1]


def plot(curves: dict[str, list[dict[str, float]]], path: Path) -> None:
    """Return against steps; ε of a robust run as a thin line on an axis of its own."""
    drawing: Any = Figure(figsize=(8.4, 4.2), layout="constrained")
    axes: Any = drawing.subplots()
    right: Any = None
    begun = 0.0
    for (name, lines), (colour, dash) in zip(curves.items(), STYLES, strict=False):
        steps = [begun + line["step"] for line in lines]
        axes.plot(steps, [line[RETURN] for line in lines], dash, color=colour, label=name)
        if any(line.get(RADIUS, 0.0) > 0 for line in lines):
            right = right or axes.twinx()
            right.plot(steps, [line.get(RADIUS, 0.0) for line in lines], color=colour, linewidth=0.7, alpha=0.6)
            right.set_ylabel("ε in training (thin line)")
        begun = steps[-1]
    axes.set_xlabel("env steps")
    axes.set_ylabel("return, mean of 100 episodes")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    drawing.savefig(path, dpi=120)


def main() -> None:
    """Read the runs, write OUT.json and OUT.png."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    curves = {run.name: curve(run) for run in options.runs}
    options.out.with_suffix(".json").write_text(json.dumps(curves, indent=1, allow_nan=False) + "\n")
    plot(curves, options.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
