"""What must hold of every bound, as functions that raise AssertionError. The soundness suite runs them at length; the
mutation suite runs them in brief against bugs planted on purpose.
"""

import math

import torch
from architectures import KINDS, random_network
from torch import Tensor, nn

import radial as rr
from radial.core.search import with_restarts

METHODS = rr.METHODS
NORMS = (math.inf, 2, 1)
TRAINING_TOLERANCE = 1e-5  # relative, for the fast form in float32


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_ball(shape: tuple[int, ...], seed: int, batch: int = 4, dtype: torch.dtype = torch.float32) -> rr.Ball:
    """A ball of random size and norm; every third is cut to [0, 1], every fourth has a budget per feature."""
    rng = generator(seed)
    center = torch.rand((batch, *shape), generator=rng, dtype=dtype)
    p = NORMS[seed % 3]
    radius: float | Tensor = 0.3 * float(torch.rand((), generator=rng)) ** 2
    radius *= {math.inf: 1, 2: 2, 1: 5}[p]
    if seed % 4 == 0:
        radius = radius * torch.rand(shape, generator=rng, dtype=dtype).round(decimals=1)  # some budgets are 0
    low, high = (0.0, 1.0) if seed % 3 == 0 or seed % 5 == 0 else (None, None)
    return rr.Ball(center, radius, p, low, high)


def samples(ball: rr.Ball, count: int, seed: int) -> Tensor:
    """(count, B, *obs): uniform points, corners and sparse corners in turn."""
    rng = generator(seed)
    kinds = ("uniform", "corner", "sparse")
    return torch.stack([ball.sample(rng, kinds[turn % 3]) for turn in range(count)])


def outputs(network: nn.Module, x: Tensor) -> Tensor:
    """(count, B, *obs) → (count, B, A)."""
    with torch.no_grad():
        return network(x.flatten(0, 1)).unflatten(0, x.shape[:2])


def assert_encloses(bounds: rr.Bounds, y: Tensor, relative: float, what: str, finite: bool = True) -> None:
    size = torch.maximum(bounds.lower.abs(), bounds.upper.abs()).double()
    slack = relative * size.amax(-1, keepdim=True) if relative else 0.0  # relative to the largest of a row's outputs
    below = (bounds.lower.double() - slack - y.double()).max()
    above = (y.double() - bounds.upper.double() - slack).max()
    ends = torch.stack([bounds.lower, bounds.upper])
    assert not ends.isnan().any(), f"{what}: not a number"
    assert not finite or bool(ends.isfinite().all()), f"{what}: not finite"
    assert below <= 0, f"{what}: {below:.3g} below the lower bound"
    assert above <= 0, f"{what}: {above:.3g} above the upper bound"


def check_geometry(seed: int) -> None:
    """The ball against points made without its help: its box holds them and its minima lie below them."""
    ball = random_ball((6,), seed, batch=2, dtype=torch.float64)
    rng = generator(seed + 1)
    shift = 2 * torch.rand((500, 2, 6), generator=rng, dtype=torch.float64) - 1
    shift[::2] = shift[::2].sign()
    if ball.p != math.inf:
        shift = shift / torch.linalg.vector_norm(shift, ball.p, dim=2, keepdim=True)
    x = ball.center + shift * ball.radius
    x = x if ball.low is None else x.clamp(ball.low, ball.high)
    rows = torch.randn(2, 3, 6, generator=rng, dtype=torch.float64)
    least = ball.minimum(rows, 0.5)
    assert bool(ball.box().contains(x).all())
    assert bool((torch.einsum("bkn,sbn->sbk", rows, x) + 0.5 >= least - 1e-12).all())


def check_sampling(kind: str, seed: int, points: int, batch: int = 4) -> int:
    """Random points stay inside every bound: the sound form with no tolerance, in float32 and in float64 inference."""
    network, shape = random_network(kind, seed)
    ball = random_ball(shape, seed, batch)
    x = samples(ball, points, seed)
    y = outputs(network, x)
    wide = random_network(kind, seed, torch.float64)[0]
    y64 = outputs(wide, x.double())
    rows = torch.randn(y.shape[1], 2, y.shape[2], generator=generator(seed))
    forms = torch.einsum("bka,sba->sbk", rows.double(), y.double())
    finite = kind != "layer-norm"  # where all digits of a variance may cancel, its sound bounds are ±∞ and say so
    with torch.no_grad():
        for name, method in METHODS.items():
            what = f"{name} on {kind}, seed {seed}, p = {ball.p}"
            assert_encloses(method(network, ball), y, TRAINING_TOLERANCE, what)
            assert_encloses(method(network, ball, rows), forms, TRAINING_TOLERANCE, f"{what}, rows")
            sound = rr.sound(method)
            bounds = sound(network, ball)
            assert_encloses(bounds, y, 0, f"sound {what}", finite)
            assert_encloses(bounds, y64, 0, f"sound {what}, float64 inference", finite)
            assert_encloses(sound(network, ball, rows), forms, 0, f"sound {what}, rows", finite)
    return x.shape[0] * x.shape[1]


def attained_network(seed: int) -> tuple[nn.Module, tuple[int, ...]]:
    """A network whose interval bounds are reached at a corner: non-negative weights, or a single affine layer."""
    kind = seed % 4
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        if kind == 0:
            network: nn.Module = nn.Sequential(
                nn.Linear(12, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 3)
            )
            shape: tuple[int, ...] = (12,)
        elif kind == 1:
            network = nn.Sequential(
                nn.Conv2d(1, 6, 3, stride=2), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(54, 3)
            )
            shape = (1, 14, 14)
        elif kind == 2:
            network, shape = nn.Sequential(nn.Flatten(), nn.Linear(200, 5)), (200,)
        else:
            network = nn.Sequential(nn.Linear(9, 30), nn.Tanh(), nn.Linear(30, 30), nn.Sigmoid(), nn.Linear(30, 4))
            shape = (9,)
        for parameter in network.parameters():
            parameter.data.abs_()  # monotone, and every ReLU active on inputs ≥ 0
    return network.eval(), shape


def check_attained(seed: int, methods: dict[str, object] | None = None) -> int:
    """At the two extreme corners, as float32 computes them, in several batch sizes and thread counts."""
    network, shape = attained_network(seed)
    rng = generator(seed)
    x = torch.rand((1, *shape), generator=rng) * 10 ** float(torch.randint(-2, 3, (), generator=rng))
    radius = float(torch.rand((), generator=rng)) * 10.0 ** -(seed % 6)
    ball = rr.Ball(x, radius)
    corners = torch.cat([x + radius, x - radius, ball.box().upper, ball.box().lower])
    wide = attained_network(seed)[0].double()
    found = []
    threads = torch.get_num_threads()
    with torch.no_grad():
        for count in (1, 2) if seed % 5 == 0 else (1,):  # two threads change the sums of large batches only
            torch.set_num_threads(count)
            found += [network(corners[i : i + 1])[0] for i in range(4)]
            for batch in (7, 128):  # every row of them is looked at
                found += list(network(corners[torch.arange(batch) % 4]))
        torch.set_num_threads(threads)
        found += list(wide(corners.double()))
        y = torch.stack([value.double() for value in found])
        for name, method in (methods or {n: rr.sound(m) for n, m in METHODS.items()}).items():
            assert_encloses(method(network, ball), y.unsqueeze(1), 0, f"sound {name}, attained, seed {seed}")
    return len(found)


class Product(nn.Module):
    """A square and a product: x₀², x₀·x₁."""

    def forward(self, x: Tensor) -> Tensor:
        return x[:, :1] * x


SINGLE: dict[str, nn.Module] = {
    "product": Product(),
    "softplus": nn.Softplus(),
    "silu": nn.SiLU(),
    "gelu": nn.GELU(),
    "gelu by tanh": nn.GELU("tanh"),
    "layer norm": nn.LayerNorm(2, elementwise_affine=False),
}


def check_single(name: str, seed: int) -> None:
    """One layer on 200 random boxes, nothing around it to hide a gap: a grid of 21² points in each."""
    rng = generator(seed)
    center = 2.5 * torch.randn(200, 2, generator=rng)
    radius = 10.0 ** -(seed % 5) * torch.rand(2, generator=rng) * 4
    ball = rr.Ball(center, radius)
    steps = torch.cartesian_prod(torch.linspace(-1, 1, 21), torch.linspace(-1, 1, 21)).unsqueeze(1)
    x = (center + steps * radius).clamp(ball.box().lower, ball.box().upper)
    y = outputs(SINGLE[name], x)
    with torch.no_grad():
        for method in METHODS:
            assert_encloses(rr.sound(method)(SINGLE[name], ball), y, 0, f"sound {method} on {name} alone, seed {seed}")


def check_overflow() -> None:
    """Where float32 overflows, no finite bound may be given, whatever float64 could still represent."""
    network = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    for layer, size in ((0, 1e25), (2, 1e25), (4, 1e-30)):  # 1e50 on the way, 1e20 at the end
        nn.init.constant_(network[layer].weight, size)
        nn.init.zeros_(network[layer].bias)
    x = torch.ones(1, 2)
    assert bool(network(x).isinf().all())
    for name, method in METHODS.items():
        with torch.no_grad():
            bounds = rr.sound(method)(network, rr.Ball(x, 0.1))
        assert not bool(torch.isfinite(bounds.upper).any()), f"{name}: a finite bound for an infinite output"


def check_zero_radius(kind: str, seed: int) -> None:
    """At radius 0 the bounds are the output."""
    network, shape = random_network(kind, seed, torch.float64)
    center = torch.rand((3, *shape), generator=generator(seed), dtype=torch.float64)
    with torch.no_grad():
        y = network(center)
        for p in NORMS:
            for name, method in METHODS.items():
                bounds = method(network, rr.Ball(center, 0.0, p))
                for end in (bounds.lower, bounds.upper):
                    assert torch.allclose(end, y, rtol=1e-9, atol=1e-9), f"{name} on {kind}, seed {seed}, p = {p}"


def check_affine_exact(seed: int) -> None:
    """On affine networks with every linear layer there is, bounds equal the closed form centre ± dual norm."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = nn.Sequential(
            nn.Conv2d(2, 3, 3, stride=2, padding=1), nn.BatchNorm2d(3),
            nn.Conv2d(3, 3, 2, dilation=2, groups=3), nn.AvgPool2d(2, stride=1), nn.Flatten(), nn.Linear(12, 4),
        ).double().eval()  # fmt: skip
        network[1].running_mean.normal_()
        network[1].running_var.uniform_(0.5, 2)
    shape = (2, 10, 9)
    center = torch.rand((2, *shape), generator=generator(seed), dtype=torch.float64)
    network[5] = nn.Linear(network[:5](center).shape[1], 4).double()
    jacobian = torch.autograd.functional.jacobian(network, center[:1])[0, :, 0].flatten(1)  # (A, n)
    radius = torch.rand(shape, generator=generator(seed + 1), dtype=torch.float64)
    for p, dual in ((math.inf, 1), (2, 2), (1, math.inf)):
        reach = torch.linalg.vector_norm(jacobian * radius.flatten(), dual, dim=1)
        y = network(center)
        # One box per layer is exact only behind one layer; for p = ∞ that leaves the substituting methods.
        for name, method in METHODS.items():
            if name == "ibp" and p == math.inf:
                continue
            bounds = method(network, rr.Ball(center, radius, p))
            assert torch.allclose(bounds.lower, y - reach, rtol=1e-9), f"{name}, p = {p}, lower"
            assert torch.allclose(bounds.upper, y + reach, rtol=1e-9), f"{name}, p = {p}, upper"


def check_attacks(kind: str, seed: int, states: int, steps: int, restarts: int) -> int:
    """PGD, which goes where bounds would break, cannot cross them."""
    network, shape = random_network(kind, seed)
    ball = random_ball(shape, 3 * seed, batch=states)  # p = ∞
    with torch.no_grad():
        all_bounds = {name: rr.sound(method)(network, ball) for name, method in METHODS.items()}
        actions = network(ball.center).shape[1]
    rng = generator(seed)
    direction = torch.nn.functional.one_hot(torch.randint(actions, (states,), generator=rng), actions)
    direction = direction * (torch.randint(2, (states, 1), generator=rng) * 2 - 1)
    x, _ = with_restarts(
        lambda z: (network(z) * direction).sum(1), ball, rng, restarts=restarts, steps=steps, step_size=0.1
    )
    assert bool(ball.contains(x).all())
    with torch.no_grad():
        y = network(x).unsqueeze(0)
    for name, bounds in all_bounds.items():
        assert_encloses(bounds, y, 0, f"sound {name} under PGD on {kind}, seed {seed}")
    return states


def check_nested(kind: str, seed: int) -> int:
    """A larger ball has larger IBP bounds, and the best of two methods lies within each."""
    network, shape = random_network(kind, seed, torch.float64)
    center = torch.rand((8, *shape), generator=generator(seed), dtype=torch.float64)
    compared = 0
    with torch.no_grad():
        before = None
        for radius in (0.0, 1e-6, 1e-3, 0.01, 0.05, 0.2):
            ball = rr.Ball(center, radius)
            bounds = rr.ibp(network, ball)
            best = rr.best_of(rr.ibp, rr.crown)(network, ball)
            assert bool((best.lower >= bounds.lower).all() & (best.upper <= bounds.upper).all())
            if before is not None:
                assert bool((bounds.lower <= before.lower + 1e-12).all()), f"ibp on {kind}, seed {seed}: lower grew"
                assert bool((bounds.upper >= before.upper - 1e-12).all()), f"ibp on {kind}, seed {seed}: upper fell"
            before, compared = bounds, compared + bounds.lower.numel()
    return compared


def check_gradient(kind: str, seed: int) -> None:
    """Autograd against central differences, along a random direction in parameters, centre and radius together."""
    network, shape = random_network(kind, seed, torch.float64)
    rng = generator(seed)
    center = torch.rand((2, *shape), generator=rng, dtype=torch.float64)
    radius = 0.05 * torch.rand(shape, generator=rng, dtype=torch.float64) + 0.01
    p = NORMS[seed % 3]
    method = list(METHODS.values())[seed // 3 % 3]
    leaves = [center.requires_grad_(), radius.requires_grad_(), *network.parameters()]
    weights = torch.randn(2, 2, generator=rng, dtype=torch.float64)

    def value() -> Tensor:
        bounds = method(network, rr.Ball(center, radius, p, -1.0, 2.0))
        return (weights[0, 0] * bounds.lower + weights[0, 1] * bounds.upper).sin().sum()

    gradients = torch.autograd.grad(value(), leaves)
    direction = [torch.randn(leaf.shape, generator=rng, dtype=torch.float64) for leaf in leaves]
    slope = sum((g * d).sum() for g, d in zip(gradients, direction, strict=True))

    def difference(step: float) -> Tensor:
        ends = []
        with torch.no_grad():
            for sign in (1, -1):
                for leaf, d in zip(leaves, direction, strict=True):
                    leaf += sign * step * d
                ends.append(value())
                for leaf, d in zip(leaves, direction, strict=True):
                    leaf -= sign * step * d
        return (ends[0] - ends[1]) / (2 * step)

    # A kink (a ReLU, the largest of several) may lie within one step; then a smaller one is on the right side of it.
    numeric = [difference(step) for step in (1e-6, 1e-7, 1e-8)]
    agrees = [torch.allclose(slope, found, rtol=1e-5, atol=1e-7) for found in numeric]
    assert any(agrees), f"{kind}, seed {seed}: {slope} against {numeric}"


def every_kind() -> list[str]:
    return list(KINDS)
