"""A tour of the bounds: train a tiny controller, enclose it, certify it, attack it, and draw the result.

The controller balances a pole (the observation of CartPole: cart position and speed, pole angle and angular speed). It
imitates a hand-written rule, so that training takes seconds and needs no simulator.
"""

import argparse
import json
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor, nn

import radial as rr
from radial.agents.networks import mlp
from radial.core.search import with_restarts

SCALE = torch.tensor([1.2, 1.0, 0.1, 1.0])  # a typical size of each feature; the network sees observation / SCALE
RADII = [0.0, 0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.07, 0.1, 0.15]


def push_right(x: Tensor) -> Tensor:
    """The rule to imitate: push towards where the pole is falling, but avoid a few bad places on the track."""
    position, speed, angle, turning = (x * SCALE).unbind(1)
    return (0.3 * speed + 8 * angle + turning + torch.sin(4 * position) > 0).long()


def train(rng: torch.Generator, interactive: bool) -> nn.Sequential:
    """A 4–64–64–64–2 network; the larger of its two outputs is the action."""
    torch.manual_seed(0)
    network = mlp((4, 64, 64, 64, 2), nn.ReLU)
    optimiser = torch.optim.Adam(network.parameters(), lr=3e-3)
    for _ in track(range(1500), "training a tiny controller", disable=not interactive):
        x = torch.randn(256, 4, generator=rng)
        loss = nn.functional.cross_entropy(network(x), push_right(x))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return network.eval()


def margin_rows(network: nn.Module, x: Tensor) -> Tensor:
    """Output of the action taken minus that of the other, (B, 1, 2)."""
    taken = network(x).argmax(1)
    sign = (1 - 2 * taken).float()
    return torch.stack([sign, -sign], dim=1).unsqueeze(1)


def attacked_share(network: nn.Module, ball: rr.Ball, rng: torch.Generator) -> float:
    """Share of states whose action PGD can change."""
    rows = margin_rows(network, ball.center)[:, 0]
    _, worst = with_restarts(lambda x: -(network(x) * rows).sum(1), ball, rng, restarts=5, steps=20, step_size=0.2)
    return (worst > 0).float().mean().item()


def tour(network: nn.Module, states: Tensor, rng: torch.Generator, interactive: bool) -> list[dict[str, object]]:
    """For each radius: bounds of one state's margin, certified share by each method, share that PGD changes."""
    found: list[dict[str, object]] = []
    rows = margin_rows(network, states).detach()
    for radius in track(RADII, "growing the ball", disable=not interactive):
        ball = rr.Ball(states, radius)
        one = rr.Ball(states[:1].expand(4000, -1), radius)
        with torch.no_grad():
            seen = (network(one.sample(rng)) * rows[0, 0]).sum(1)
            record: dict[str, object] = {"radius": radius, "seen": [seen.min().item(), seen.max().item()]}
            for name, method in rr.METHODS.items():
                bounds = method(network, ball, rows)
                verdicts = rr.certify_action(network, ball, method)
                record[name] = {
                    "margin": [bounds.lower[0, 0].item(), bounds.upper[0, 0].item()],
                    "certified": verdicts.count(rr.Verdict.CERTIFIED) / len(verdicts),
                }
        record["attacked"] = attacked_share(network, ball, rng)
        found.append(record)
    return found


def draw(found: list[dict[str, object]], path: Path) -> None:
    """Left: one margin and its enclosures. Right: certified share, falsified share, and the gap between."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    radii = [record["radius"] for record in found]
    colours = {"ibp": "#d95f02", "crown-ibp": "#7570b3", "crown": "#1b9e77"}
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for name, colour in colours.items():
        lower, upper = zip(*(record[name]["margin"] for record in found), strict=True)
        left.plot(radii, lower, color=colour, label=name)
        left.plot(radii, upper, color=colour)
        right.plot(
            radii,
            [record[name]["certified"] for record in found],
            color=colour,
            marker="o",
            label=f"certified by {name}",
        )
    low, high = zip(*(record["seen"] for record in found), strict=True)
    left.fill_between(radii, low, high, color="0.8", label="seen in 4,000 samples")
    left.axhline(0, color="black", linewidth=0.8)
    reach = max(abs(found[-1]["crown"]["margin"][0]), abs(found[-1]["crown"]["margin"][1]))
    left.set(xlabel="radius ε (network units)", ylabel="margin of the action taken", ylim=(-1.6 * reach, 1.6 * reach))
    left.set_title("One state: the action is safe while the margin stays above 0", fontsize=10)
    left.legend(frameon=False, fontsize=9, loc="lower left")
    survived = [1 - record["attacked"] for record in found]
    right.plot(radii, survived, color="black", linestyle="--", label="not broken by PGD")
    best = [max(record[name]["certified"] for name in colours) for record in found]
    right.fill_between(radii, best, survived, color="0.92", label="unknown")
    right.set(xlabel="radius ε (network units)", ylabel="share of 500 states", ylim=(-0.02, 1.02))
    right.set_title("All states: proven below, broken above, unknown between", fontsize=10)
    right.legend(frameon=False, fontsize=9, loc="lower left")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=140)


def main() -> None:
    """Run the tour and say where to look."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/demo"), help="folder for bounds.png and bounds.json")
    out: Path = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    console = Console()
    rng = torch.Generator().manual_seed(0)
    network = train(rng, console.is_terminal)
    states = torch.randn(500, 4, generator=rng)
    with torch.no_grad():
        accuracy = (network(states).argmax(1) == push_right(states)).float().mean().item()
    console.print(f"A 4–64–64–64–2 controller, trained to {accuracy:.0%} agreement with its rule.")
    found = tour(network, states, rng, console.is_terminal)

    table = Table(title="Share of 500 states whose action is certified, or changed by PGD")
    for heading in ("ε", *(f"certified ({name})" for name in rr.METHODS), "attacked (PGD)", "unknown"):
        table.add_column(heading, justify="right")
    for record in found:
        shares = [record[name]["certified"] for name in rr.METHODS]  # type: ignore[index]
        attacked = float(record["attacked"])  # type: ignore[arg-type]
        table.add_row(
            f"{record['radius']:g}", *(f"{share:.1%}" for share in shares), f"{attacked:.1%}",
            f"{max(0.0, 1 - max(shares) - attacked):.1%}",
        )  # fmt: skip
    console.print(table)
    (out / "bounds.json").write_text(json.dumps(found, indent=2))
    draw(found, out / "bounds.png")
    console.print(f"Look at {out / 'bounds.png'}; the numbers are in {out / 'bounds.json'}.")
    console.print("Next: `radial bench bounds` measures what a bound costs; docs/bounds.md explains it.")


if __name__ == "__main__":
    main()
