"""A bound in your own PyTorch loop: three lines make any classifier of observations robust, and one certifies it.

The task is a toy: tell on which side of a circle a point lies. Without the bound the network learns it as well, but
points near the circle can be pushed across.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

import radial as rr

RADIUS = 0.05


def data(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Points of a square that keep a distance to the circle, and whether they lie inside."""
    points = 2 * torch.rand(4 * count, 2, generator=torch.Generator().manual_seed(seed)) - 1
    far = points.norm(dim=1).sub(0.7).abs() > 0.1
    return points[far][:count], (points[far][:count].norm(dim=1) < 0.7).long()


def train(weight: float, steps: int) -> nn.Module:
    """weight·robust loss + (1 − weight)·plain loss, by Adam."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    x, y = data(512, seed=1)
    for step in range(steps):
        loss = F.cross_entropy(network(x), y)
        if weight > 0:
            ball = rr.Ball(x, RADIUS * min(1.0, 2 * step / steps))
            margin = torch.stack([F.one_hot(1 - y, 2) - F.one_hot(y, 2)], 1).float()  # other − own
            worst = rr.crown_ibp(network, ball, margin).upper  # (B, 1): no point of the ball does worse
            loss = (1 - weight) * loss + weight * F.softplus(worst).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return network.eval()


def main(arguments: list[str] | None = None) -> dict[str, float]:
    """Certified shares of fresh points, without and with the bound in the loss."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    given = parser.parse_args(arguments)
    x, y = data(200, seed=2)
    shares = {}
    for name, weight in (("plain", 0.0), ("with a bound", 0.5)):
        network = train(weight, given.steps)
        verdicts = rr.certify_action(network, rr.Ball(x, RADIUS), rr.crown)
        right = (network(x).argmax(1) == y).tolist()
        sure = [v is rr.Verdict.CERTIFIED and ok for v, ok in zip(verdicts, right, strict=True)]
        shares[name] = sum(sure) / len(sure)
        print(f"{name}: {sum(right) / len(right):.2f} right, {shares[name]:.2f} right and certified")
    return shares


if __name__ == "__main__":
    main()
