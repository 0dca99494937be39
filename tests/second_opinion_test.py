"""A second opinion at scale: verdicts and bounds of random networks and balls against an exact solver.

Networks differ in depth and width, balls in size, budget per feature and valid range. The solver says for
each whether the greedy action can change at all; a certificate where it can is a disagreement. The other witness,
auto_LiRPA, is in `oracle_test`; the two together see more than 2,000 instances a night.
"""

from collections import Counter
from itertools import pairwise

import pytest
import torch
from exact_test import SLACK, exact_extremes
from torch import nn

import radial as rr
from radial.bounds.certify import margins

BEST = rr.best_of(*rr.METHODS)


def random_case(seed: int) -> tuple[nn.Sequential, rr.Ball]:
    """2 to 5 inputs, 1 to 3 hidden layers of 3 to 12, 2 to 4 actions; a box of any size, often cut or uneven."""
    rng = torch.Generator().manual_seed(seed)

    def draw(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=rng))

    hidden = [draw(3, 12) for _ in range(draw(1, 3))]
    sizes = [draw(2, 5), *hidden, draw(2, 4)]
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(sizes):
        layer = nn.Linear(fan_in, fan_out)
        layer.weight.data = torch.randn(fan_out, fan_in, generator=rng) * (2 / fan_in) ** 0.5
        layer.bias.data = 0.3 * torch.randn(fan_out, generator=rng)
        layers += [layer, nn.ReLU()]
    radius: float | torch.Tensor = 10 ** float(-1.5 + 1.5 * torch.rand((), generator=rng))
    if seed % 4 == 0:
        radius = radius * 2 * torch.rand(sizes[0], generator=rng).round(decimals=1)  # some budgets are 0
    low, high = (0.0, 1.0) if seed % 3 == 0 else (None, None)
    center = torch.rand(1, sizes[0], generator=rng)
    return nn.Sequential(*layers[:-1]).eval(), rr.Ball(center, radius, low=low, high=high)


def check_verdicts(seed: int) -> Counter[str]:
    """Exact margins against ours: no bound above the truth, and no certificate where the action changes."""
    network, ball = random_case(seed)
    box = ball.box()
    with torch.no_grad():
        rows = margins(network(ball.center))
        found = {
            name: rr.sound(method)(network, ball, rows) for name, method in rr.METHODS.items()
        }  # best: one of them
    truth = [
        exact_extremes(network, box.lower[0].double().numpy(), box.upper[0].double().numpy(), row, signs=(1,))[0]
        for row in rows[0].double().numpy()
    ]
    size = 1 + max(abs(value) for value in truth)
    for name, bounds in found.items():
        above = (bounds.lower[0].double() - torch.tensor(truth)).max()
        assert above <= SLACK * size, f"{name}, seed {seed}: a margin of {above:.3g} more than the truth"
    robust = min(truth) > SLACK * size
    verdicts = {name: rr.certify_action(network, ball, name)[0] for name in rr.METHODS}
    verdicts["best"] = rr.certify_action(network, ball, BEST)[0]
    for name, verdict in verdicts.items():
        wrong = verdict == rr.Verdict.CERTIFIED and min(truth) < -SLACK * size
        assert not wrong, f"{name}, seed {seed}: certified, yet a margin can be {min(truth):.3g}"
    certified = verdicts["best"] == rr.Verdict.CERTIFIED
    return Counter(instances=1, robust=int(robust), certified=int(certified))


@pytest.mark.parametrize(
    "seeds", [pytest.param(range(60), id="short"), pytest.param(range(60, 2060), id="long", marks=pytest.mark.nightly)]
)
def test_the_exact_solver_never_disagrees(seeds: range) -> None:
    seen: Counter[str] = Counter()
    for seed in seeds:
        seen += check_verdicts(seed)
    assert seen["instances"] == len(seeds)
    assert 0.1 < seen["robust"] / len(seeds) < 0.9  # both answers are asked for …
    assert seen["certified"] >= 0.5 * seen["robust"]  # … and the certificates are not empty


def test_a_wrong_bound_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Margins that are a little too good: the solver objects to nearly every one of them."""

    def boastful(network: nn.Module, ball: rr.Ball, rows: torch.Tensor | None = None) -> rr.Bounds:
        bounds = rr.crown(network, ball, rows)
        return rr.Bounds(bounds.lower + 0.5 * bounds.width, bounds.upper)

    monkeypatch.setitem(rr.METHODS, "ibp", boastful)
    monkeypatch.setattr(rr, "sound", lambda method: method)
    caught = 0
    for seed in range(20):
        try:
            check_verdicts(seed)
        except AssertionError:
            caught += 1
    assert caught >= 15
