"""An exact oracle: mixed-integer programming finds the true extremes of small ReLU networks."""

import numpy as np
import pytest
import torch
from architectures import random_network
from scipy.optimize import Bounds as VariableBounds
from scipy.optimize import LinearConstraint, milp
from scipy.sparse import csr_matrix
from torch import nn

import radial as rr

SLACK = 1e-6  # the solver's own tolerance


def exact_extremes(
    network: nn.Sequential, low: np.ndarray, high: np.ndarray, form: np.ndarray, signs: tuple[int, ...] = (1, -1)
) -> tuple[float, ...]:
    """min and max of a linear form of the outputs over a box, by the big-M encoding of each ReLU.

    M is from interval arithmetic. signs: 1 for the minimum, −1 for the maximum
    """
    layers = [module for module in network if isinstance(module, nn.Linear)]
    sizes = [layers[0].in_features, *(layer.out_features for layer in layers)]
    # Variables: the inputs, then z (before) and h (after the ReLU) and a binary for each hidden neuron, then outputs.
    hidden = sum(sizes[1:-1])
    count = sizes[0] + 3 * hidden + sizes[-1]
    lower, upper = np.full(count, -np.inf), np.full(count, np.inf)
    integral = np.zeros(count)
    lower[: sizes[0]], upper[: sizes[0]] = low, high
    rows: list[tuple[dict[int, float], float, float]] = []
    at, before, box_low, box_high = sizes[0], list(range(sizes[0])), low, high
    for index, layer in enumerate(layers):
        weight, bias = layer.weight.detach().numpy(), layer.bias.detach().numpy()
        center, radius = weight @ (box_low + box_high) / 2 + bias, np.abs(weight) @ (box_high - box_low) / 2
        z_low, z_high = center - radius, center + radius
        z = list(range(at, at + len(bias)))
        at += len(bias)
        for i, row in enumerate(weight):
            rows.append(({**dict(zip(before, -row, strict=True)), z[i]: 1.0}, bias[i], bias[i]))
        if index == len(layers) - 1:
            outputs = z
            break
        h, on = list(range(at, at + len(bias))), list(range(at + len(bias), at + 2 * len(bias)))
        at += 2 * len(bias)
        integral[on], lower[on], upper[on] = 1, 0, 1
        lower[h] = 0
        for i in range(len(bias)):
            bottom, top = min(z_low[i], 0.0), max(z_high[i], 0.0)
            rows.append(({h[i]: 1.0, z[i]: -1.0}, 0.0, np.inf))  # h ≥ z
            rows.append(({h[i]: 1.0, z[i]: -1.0, on[i]: -bottom}, -np.inf, -bottom))  # h ≤ z − bottom·(1 − on)
            rows.append(({h[i]: 1.0, on[i]: -top}, -np.inf, 0.0))  # h ≤ top·on
        before, box_low, box_high = h, np.maximum(z_low, 0), np.maximum(z_high, 0)
    matrix = np.zeros((len(rows), count))
    for r, (entries, _, _) in enumerate(rows):
        matrix[r, list(entries)] = list(entries.values())
    constraint = LinearConstraint(csr_matrix(matrix), [r[1] for r in rows], [r[2] for r in rows])
    ends = []
    for sign in signs:
        objective = np.zeros(count)
        objective[outputs] = sign * form
        solved = milp(objective, constraints=constraint, bounds=VariableBounds(lower, upper), integrality=integral)
        assert solved.success, solved.message
        ends.append(sign * solved.fun)
    return tuple(ends)


def small_network(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 12), nn.ReLU(), nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, 3)).double()


def check_exact(seed: int) -> tuple[float, float, float]:
    network = small_network(seed)
    center = torch.rand(1, 4, dtype=torch.float64)
    ball = rr.Ball(center, 0.02 + 0.3 * (seed % 7) / 7)
    box = ball.box()
    low, high = exact_extremes(network, box.lower[0].numpy(), box.upper[0].numpy(), np.eye(3)[seed % 3])
    widths = [high - low]
    with torch.no_grad():
        found = {
            name: method(network, ball)
            for name, method in {**rr.METHODS, "best": rr.best_of(rr.ibp, rr.crown_ibp, rr.crown)}.items()
        }
    for name, bounds in found.items():
        assert bounds.lower[0, seed % 3] <= low + SLACK, f"{name}, seed {seed}"
        assert bounds.upper[0, seed % 3] >= high - SLACK, f"{name}, seed {seed}"
    for name in ("best", "ibp"):
        widths.append(found[name].width[0, seed % 3].item())
    # exact ≤ best of the methods ≤ IBP. (CROWN alone need not lie within IBP; see docs/bounds.md.)
    assert widths[0] - SLACK <= widths[1] <= widths[2] + SLACK
    return widths[0], found["crown"].width[0, seed % 3].item(), widths[2]


@pytest.mark.parametrize(
    "seeds",
    [pytest.param(range(100), id="short"), pytest.param(range(100, 2100), id="long", marks=pytest.mark.nightly)],
)
def test_no_bound_is_tighter_than_the_truth(seeds: range) -> None:
    widths = np.array([check_exact(seed) for seed in seeds])
    exact, crown, ibp = widths.mean(axis=0)
    assert exact <= crown <= ibp  # on average CROWN is the tighter one


def test_the_oracle_itself_agrees_with_a_grid() -> None:
    """On one input dimension a fine grid is as good as exact."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(1, 5), nn.ReLU(), nn.Linear(5, 2)).double()
    low, high = exact_extremes(network, np.array([-1.0]), np.array([1.0]), np.array([1.0, 0.0]))
    grid = network(torch.linspace(-1, 1, 100_001, dtype=torch.float64).unsqueeze(1))[:, 0]
    assert low == pytest.approx(grid.min().item(), abs=1e-4)
    assert high == pytest.approx(grid.max().item(), abs=1e-4)


def spiked_network(seed: int, where: torch.Tensor, conv: bool) -> nn.Module:
    """Scores (1, 2·bump(x)): action 0 everywhere but in a tiny neighbourhood of `where`, flat elsewhere.

    bump(x) = relu(1 − s·Σ|x − where|). The gradient vanishes outside the bump, so PGD has nothing to follow
    (in the spirit of SoundnessBench, Zhou et al. 2024).
    """
    n, sharpness = where.numel(), 200.0
    first = nn.Linear(n, 2 * n)
    first.weight.data = torch.cat([torch.eye(n), -torch.eye(n)])
    first.bias.data = torch.cat([-where, where])  # |x − where| = relu(x − where) + relu(where − x)
    second = nn.Linear(2 * n, 1)
    second.weight.data.fill_(-sharpness)
    second.bias.data.fill_(1.0)
    last = nn.Linear(1, 2)
    last.weight.data = torch.tensor([[0.0], [2.0]])
    last.bias.data = torch.tensor([1.0, 0.0])
    layers = [first, nn.ReLU(), second, nn.ReLU(), last]
    if conv:  # the same function behind a convolution that only copies pixels
        copy = nn.Conv2d(1, 1, 1)
        copy.weight.data.fill_(1.0)
        copy.bias.data.fill_(0.0)
        layers = [copy, nn.Flatten(), *layers]
    return nn.Sequential(*layers).eval()


def check_planted(seed: int) -> None:
    """A counterexample hidden in the ball is never certified away, by any method; elsewhere there is a certificate."""
    rng = torch.Generator().manual_seed(seed)
    conv = seed % 2 == 1
    shape = (1, 4, 4) if conv else (6,)
    center = torch.rand((1, *shape), generator=rng)
    radius = 0.1
    hidden = center + radius * (2 * torch.rand((1, *shape), generator=rng) - 1)
    network = spiked_network(seed, hidden.flatten(), conv)
    ball, far = rr.Ball(center, radius), rr.Ball(center + 10, radius)
    with torch.no_grad():
        assert network(hidden).argmax() == 1  # the counterexample is real …
        assert all(network(ball.sample(rng, kind)).argmax() == 0 for kind in ("uniform", "corner"))  # … and hidden
    for method in (*rr.METHODS, rr.best_of("ibp", "crown-ibp", "crown")):
        assert rr.certify_action(network, ball, method) == [rr.Verdict.UNKNOWN]
        assert rr.certify_action(network, far, method) == [rr.Verdict.CERTIFIED]  # where there is no spike


@pytest.mark.parametrize(
    "seeds", [pytest.param(range(10), id="short"), pytest.param(range(10, 70), id="long", marks=pytest.mark.nightly)]
)
def test_planted_counterexamples_are_never_certified(seeds: range) -> None:
    for seed in seeds:
        check_planted(seed)


def test_certified_states_survive_every_attack() -> None:
    """Every certified state is attacked; a success would mean the certificate is wrong."""
    from radial.core.search import with_restarts

    certified = 0
    for kind in ("relu", "tanh", "dueling", "conv"):
        network, shape = random_network(kind, seed=5)
        center = torch.rand((60, *shape), generator=torch.Generator().manual_seed(1))
        ball = rr.Ball(center, 0.03)
        verdicts = rr.certify_action(network, ball, rr.crown)
        rows = torch.tensor([verdict == rr.Verdict.CERTIFIED for verdict in verdicts])
        greedy = network(center).argmax(1)

        def margin(x: torch.Tensor, network: nn.Module = network, greedy: torch.Tensor = greedy) -> torch.Tensor:
            scores = network(x)
            own = scores.gather(1, greedy.unsqueeze(1))
            return (scores.scatter(1, greedy.unsqueeze(1), -torch.inf) - own).amax(1)

        rng = torch.Generator().manual_seed(2)
        _, worst = with_restarts(margin, ball, rng, restarts=5, steps=30, step_size=0.1)
        assert bool((worst[rows] < 0).all())
        certified += int(rows.sum())
    assert certified >= 40
