"""The methods on networks small enough to check on paper, and the contract every method signs."""

import math
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn, tensor

import radial as rr
from radial.agents.networks import CenteredLinear, NatureDueling, mlp
from radial.core.data import Bounds


def linear(weight: list[list[float]], bias: list[float] | None = None) -> nn.Linear:
    layer = nn.Linear(len(weight[0]), len(weight), bias=bias is not None)
    layer.weight.data = tensor(weight)
    if bias is not None:
        layer.bias.data = tensor(bias)
    return layer


def test_ibp_by_hand() -> None:
    """x ∈ [−1, 1]²; h = relu(x₁ + x₂, x₁ − x₂) ∈ [0, 2]²; y = h₁ − h₂ + 1 ∈ [−1, 3]."""
    network = nn.Sequential(linear([[1.0, 1.0], [1.0, -1.0]]), nn.ReLU(), linear([[1.0, -1.0]], [1.0]))
    bounds = rr.ibp(network, rr.Ball(torch.zeros(1, 2), 1.0))
    assert (bounds.lower.item(), bounds.upper.item()) == (-1.0, 3.0)


def test_crown_by_hand() -> None:
    """The same network. Each relu on [−2, 2] lies between 0 (as u = −l) and the chord h ≤ z/2 + 1.

    y ≤ (z₁/2 + 1) − 0 + 1 = (x₁ + x₂)/2 + 2 ≤ 3 and y ≥ 0 − (z₂/2 + 1) + 1 = −(x₁ − x₂)/2 ≥ −1: as good as IBP.
    On a smaller ball around (2, 0), where both are active, y = z₁ − z₂ + 1 = 2·x₂ + 1 exactly, and IBP does not see it.
    """
    network = nn.Sequential(linear([[1.0, 1.0], [1.0, -1.0]]), nn.ReLU(), linear([[1.0, -1.0]], [1.0]))
    bounds = rr.crown(network, rr.Ball(torch.zeros(1, 2), 1.0))
    assert (bounds.lower.item(), bounds.upper.item()) == (-1.0, 3.0)
    ball = rr.Ball(tensor([[2.0, 0.0]]), 0.5)
    exact, boxes = rr.crown(network, ball), rr.ibp(network, ball)
    assert (exact.lower.item(), exact.upper.item()) == (0.0, 2.0)
    assert (boxes.lower.item(), boxes.upper.item()) == (-1.0, 3.0)


def test_crown_is_not_always_tighter_than_ibp() -> None:
    """relu on [−1, 1.1]: the slope below is 1 because 1.1 > 1, so CROWN's lower bound is −1 where IBP says 0."""
    ball = rr.Ball(tensor([[0.05]]), 1.05)
    assert rr.ibp(nn.ReLU(), ball).lower.item() == 0.0
    assert rr.crown(nn.ReLU(), ball).lower.item() == pytest.approx(-1.0)
    assert rr.best_of(rr.ibp, rr.crown)(nn.ReLU(), ball).lower.item() == 0.0


def test_rows_are_merged_with_the_last_layer() -> None:
    """Two equal outputs: their difference is exactly 0, though each alone is uncertain."""
    network = nn.Sequential(linear([[1.0], [1.0]]), nn.ReLU(), linear([[1.0, 2.0], [1.0, 2.0]]))
    ball = rr.Ball(tensor([[1.0]]), 1.0)
    rows = tensor([[[1.0, -1.0]]])
    for method in rr.METHODS.values():
        assert method(network, ball, rows).width.item() == 0.0
        assert method(network, ball).width.min().item() == 6.0


def test_the_state_value_cancels_in_margins() -> None:
    """SA-DQN's bounds of a dueling net lose the width of V and of mean(A) in every difference; ours do not."""
    torch.manual_seed(0)
    trunk = nn.Sequential(nn.Linear(4, 8), nn.ReLU())

    class Dueling(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.trunk, self.value, self.advantage = trunk, nn.Linear(8, 1), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            h = self.trunk(x)
            advantage = self.advantage(h)
            return self.value(h) + advantage - advantage.mean(1, keepdim=True)

    network = Dueling()
    ball = rr.Ball(torch.rand(2, 4), 0.1)
    rows = tensor([[[1.0, -1.0, 0.0]]]).expand(2, -1, -1)
    alone = rr.ibp(nn.Sequential(trunk, network.advantage), ball, rows)
    whole = rr.ibp(network, ball, rows)
    assert torch.allclose(whole.lower, alone.lower, atol=1e-6)
    assert torch.allclose(whole.upper, alone.upper, atol=1e-6)


def test_centring_belongs_to_the_layer() -> None:
    """Bounds of the centred head equal those of a linear layer with centred weights, and nothing writes a weight."""
    torch.manual_seed(0)
    head = CenteredLinear(5, 3)
    weight, bias = head.as_linear()
    before = [parameter.clone() for parameter in head.parameters()]
    plain = nn.Linear(5, 3)
    plain.weight.data, plain.bias.data = weight.detach(), bias.detach()
    ball = rr.Ball(torch.rand(2, 5), 0.1)
    for method in rr.METHODS.values():
        assert torch.allclose(method(head, ball).lower, method(plain, ball).lower)
        assert torch.allclose(rr.sound(method)(head, ball).upper, rr.sound(method)(plain, ball).upper)
    assert all(torch.equal(old, new) for old, new in zip(before, head.parameters(), strict=True))
    assert head(torch.rand(4, 5)).sum(1).abs().max() < 1e-6


def test_mixed_by_hand() -> None:
    ball = rr.Ball(tensor([[0.05]]), 1.05)
    half = rr.mixed(rr.ibp, rr.crown, 0.25)(nn.ReLU(), ball)
    assert half.lower.item() == pytest.approx(0.25 * 0.0 + 0.75 * -1.0)

    def broken(*_: object, **__: object) -> rr.Bounds:
        raise RuntimeError

    assert rr.mixed(rr.ibp, broken, 1.0)(nn.ReLU(), ball).lower.item() == 0.0  # a method of weight 0 is not run
    for weight in (-0.1, 1.1, math.nan):
        with pytest.raises(rr.BadInput, match="weight must be a number in"):
            rr.mixed(rr.ibp, rr.crown, weight)


def test_methods_by_name() -> None:
    assert list(rr.METHODS) == ["ibp", "crown-ibp", "crown"]
    ball = rr.Ball(torch.rand(2, 4), 0.1)
    network = mlp((4, 8, 2))
    assert torch.equal(rr.best_of("ibp")(network, ball).lower, rr.ibp(network, ball).lower)
    with pytest.raises(rr.BadInput, match="ibp, crown-ibp, crown"):
        rr.sound("magic")
    with pytest.raises(rr.BadInput, match="sound"):
        rr.sound(lambda network, ball, rows=None: rr.ibp(network, ball, rows))


def test_sound_is_idempotent_and_reaches_combinations() -> None:
    torch.manual_seed(0)
    network, ball = mlp((4, 16, 16, 3), nn.ReLU), rr.Ball(torch.rand(3, 4), 0.05)
    once = rr.sound(rr.ibp)
    assert torch.equal(rr.sound(once)(network, ball).lower, once(network, ball).lower)
    for combined in (rr.mixed("ibp", "crown", 0.5), rr.best_of("ibp", "crown-ibp")):
        fast, wide = combined(network, ball), rr.sound(combined)(network, ball)
        assert bool((wide.lower < fast.lower).all() & (wide.upper > fast.upper).all())
        assert torch.allclose(wide.lower, fast.lower, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", rr.METHODS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("outward", [False, True])
def test_contract(name: str, dtype: torch.dtype, outward: bool) -> None:
    method = rr.sound(name) if outward else rr.METHODS[name]
    torch.manual_seed(0)
    network = mlp((5, 8, 3), nn.ReLU).to(dtype)
    for batch in (0, 1, 4):
        ball = rr.Ball(torch.rand(batch, 5, dtype=dtype), 0.1, low=0.0, high=1.0)
        bounds = method(network, ball)
        rows = torch.ones(batch, 2, 3, dtype=dtype)
        assert bounds.lower.shape == (batch, 3)
        assert method(network, ball, rows).lower.shape == (batch, 2)
        assert method(network, ball, rows[:, :0]).lower.shape == (batch, 0)
        torch.testing.assert_close(method(network, ball, torch.ones(1, 2, 3)).lower, method(network, ball, rows).lower)
        assert bounds.lower.dtype == dtype
        assert bool((bounds.lower <= bounds.upper).all())
        with torch.no_grad():
            assert not method(network, ball).lower.requires_grad
    # Each row of a batch is bounded as if it were alone.
    ball = rr.Ball(torch.rand(4, 5, dtype=dtype), 0.1)
    whole = method(network, ball)
    for row in range(4):
        alone = method(network, rr.Ball(ball.center[row : row + 1], 0.1))
        assert torch.allclose(alone.lower[0], whole.lower[row], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", rr.METHODS)
def test_outputs_of_any_shape(name: str) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Conv2d(2, 2, 2))
    ball = rr.Ball(torch.rand(2, 1, 6, 6), 0.05)
    bounds = rr.METHODS[name](network, ball)
    assert bounds.lower.shape == (2, 2, 3, 3)
    assert bounds.contains(network(ball.center)).all()
    with pytest.raises(rr.BadInput, match="rows must have shape"):
        rr.METHODS[name](network, ball, torch.ones(2, 1, 18))


def test_crown_in_chunks_is_the_same() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)
    )
    ball = rr.Ball(torch.rand(2, 1, 8, 8), 0.02)
    with torch.no_grad():
        whole, pieces = rr.crown(network, ball), rr.crown(network, ball, memory=20_000)
    assert torch.allclose(whole.lower, pieces.lower, atol=1e-6)
    assert torch.allclose(whole.upper, pieces.upper, atol=1e-6)


def test_the_first_radius_is_shared_by_the_batch() -> None:
    """Shared or not, the numbers are the same; shared, the first layer's radius costs one sample."""
    torch.manual_seed(0)
    network = NatureDueling(4).eval()
    x = torch.rand(2, 1, 84, 84) * 0.5 + 0.25
    with torch.no_grad():
        shared, own = rr.ibp(network, rr.Ball(x, 1 / 255)), rr.ibp(network, rr.Ball(x, 1 / 255, low=-9.0, high=9.0))
    assert torch.allclose(shared.lower, own.lower, rtol=1e-4)


def test_bounds_are_gradients_of_everything() -> None:
    network = mlp((4, 8, 2))
    center = torch.rand(3, 4, requires_grad=True)
    radius = torch.tensor(0.1, requires_grad=True)
    for method in rr.METHODS.values():
        loss = method(network, rr.Ball(center, radius)).width.sum()
        gradients = torch.autograd.grad(loss, [center, radius, *list(network.parameters())[:-1]])
        assert all(bool(torch.isfinite(g).all()) and bool(g.abs().sum() > 0) for g in gradients)


NET = mlp((3, 4, 2))
BALL = rr.Ball(torch.rand(2, 3), 0.1)


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (lambda: rr.ibp(lambda x: x, BALL), "network must be a torch.nn.Module"),
        (lambda: rr.ibp(NET, torch.rand(2, 3)), "ball must be a radial Ball"),
        (lambda: rr.ibp(NET.double(), BALL), "center is torch.float32"),
        (lambda: rr.ibp(NET.float(), BALL, torch.ones(2, 2)), r"rows must be a floating tensor \(B, K, A\)"),
        (lambda: rr.ibp(NET.float(), BALL, torch.ones(3, 1, 2)), "rows must have batch size 2, or 1"),
        (lambda: rr.ibp(NET.float(), BALL, torch.ones(2, 1, 5)), "rows must have shape"),
        (lambda: rr.ibp(NET.float(), BALL, torch.ones(2, 1, 2, dtype=torch.long)), "rows must be a floating tensor"),
        (lambda: rr.crown(NET.float(), BALL, memory=0), "memory must be a whole number of bytes"),
        (lambda: rr.best_of(), "best_of needs at least one method"),
        (lambda: rr.best_of(3), "bound method must be"),
        (lambda: rr.ibp(nn.Sequential(nn.Linear(3, 2), nn.Dropout()), BALL), "eval mode"),
        (lambda: rr.ibp(nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)), BALL), "eval mode"),
        (lambda: rr.ibp(nn.Linear(4, 2), BALL), "shape"),
    ],
)
def test_bad_input_is_one_line(call: object, names: str) -> None:
    with pytest.raises(rr.BadInput, match=names) as error:
        call()  # type: ignore[operator]
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("method", [rr.crown, rr.crown_ibp])
@pytest.mark.parametrize("p", [math.inf, 2.0])
@pytest.mark.parametrize("outward", [False, True])
def test_many_samples_in_parts_give_the_same(method: Callable[..., Bounds], p: float, outward: bool) -> None:
    torch.manual_seed(0)
    network = mlp((3, 16, 16, 4)).eval()
    ball = rr.Ball(torch.rand(700, 3), torch.tensor([0.1, 0.2, 0.05]) if p == math.inf else 0.1, p, 0.0, 1.0)
    each, shared = torch.randn(700, 2, 4), torch.randn(1, 2, 4)
    for rows in (None, each, shared):
        with torch.no_grad():
            parts = method(network, ball, rows, outward=outward, memory=1 << 20)
            whole = method(network, ball, rows, outward=outward)
        assert parts.lower.shape == whole.lower.shape
        torch.testing.assert_close((parts.lower, parts.upper), (whole.lower, whole.upper), rtol=1e-5, atol=1e-6)


PEAK = """
import resource, torch, radial as rr
from radial.agents.networks import mlp
torch.set_num_threads(1)
network, ball = mlp((11, 64, 64, 3)).eval(), rr.Ball(torch.randn(20_000, 11), 0.05)
with torch.no_grad():
    rr.crown(network, rr.Ball(ball.center[:300], 0.05), memory=1 << 25)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rr.crown(network, ball, memory=1 << 25)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in kB on Linux")
def test_the_peak_of_many_samples_stays_near_the_budget() -> None:
    """20,000 samples with 32 MB: in one piece they took 147 MB."""
    said = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, check=True)
    assert int(said.stdout) < 2 * 32 + 20
