"""Reading networks: what tracing must see, must refuse, and must never change."""

import gc
import weakref

import pytest
import torch
from torch import Tensor, nn

import radial as rr

BALL = rr.Ball(torch.linspace(-1, 1, 8).view(2, 4), 0.1)


class Branching(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x


class Asserting(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        assert x.ndim == 2
        return x * 2


class Looping(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        for row in x:
            x = x + row
        return x


@pytest.mark.parametrize("network", [Branching(), Asserting(), Looping()])
def test_control_flow_on_the_input_is_an_error_that_says_so(network: nn.Module) -> None:
    with pytest.raises(rr.UnsupportedLayer, match="control flow that depends on its input") as error:
        rr.ibp(network, BALL)
    assert type(network).__name__ in str(error.value)


def test_two_inputs_or_two_outputs_are_refused() -> None:
    class TwoInputs(nn.Module):
        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            return x * mask

    class TwoOutputs(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return x, x

    class Nothing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.ones(2, 2)

    for network, says in ((TwoInputs(), "one input"), (TwoOutputs(), "one tensor"), (Nothing(), "constant")):
        with pytest.raises(rr.BadInput, match=says):
            rr.ibp(network, BALL)


def test_an_optional_input_takes_its_default() -> None:
    class Optional(nn.Module):
        def forward(self, x: Tensor, scale: float = 3.0) -> Tensor:
            return x * scale

    assert torch.allclose(rr.ibp(Optional(), BALL).upper, 3 * (BALL.center + 0.1))


def test_changes_after_the_first_call_are_seen() -> None:
    """A stale trace would certify a network that no longer exists."""

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.layer = 1.0, nn.ReLU()

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x * self.scale)

    network = Scaled()
    for method in (rr.ibp, rr.crown, rr.sound(rr.ibp)):
        network.scale, network.layer = 1.0, nn.ReLU()
        assert method(network, BALL).contains(network(BALL.center)).all()
        network.scale = 50.0
        assert method(network, BALL).contains(network(BALL.center)).all()
        network.layer = nn.Tanh()
        assert method(network, BALL).contains(network(BALL.center)).all()
        network.layer.forward = torch.sigmoid  # type: ignore[method-assign]
        with pytest.raises(rr.UnsupportedLayer):
            method(network, BALL)


def test_weights_are_read_at_every_call() -> None:
    network = nn.Linear(4, 2)
    before = rr.ibp(network, BALL).upper
    with torch.no_grad():
        network.weight.mul_(2)
    assert not torch.allclose(before, rr.ibp(network, BALL).upper)


def test_hooks_are_refused() -> None:
    for register in ("register_forward_hook", "register_forward_pre_hook"):
        network = nn.Sequential(nn.Linear(4, 2))
        handle = getattr(network[0], register)(lambda *a: None)
        with pytest.raises(rr.UnsupportedLayer, match="forward hooks"):
            rr.ibp(network, BALL)
        handle.remove()
        rr.ibp(network, BALL)


def test_parametrised_layers_are_what_they_compute() -> None:
    network = nn.Sequential(torch.nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)), nn.ReLU()).eval()
    bounds = rr.sound(rr.crown)(network, BALL)
    assert bounds.contains(network(BALL.center)).all()


def test_tracing_writes_nothing_into_the_network() -> None:
    class WithConstant(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + torch.tensor([1.0, 2.0, 3.0, 4.0])

    network = WithConstant()
    before = dict(vars(network))
    bounds = rr.ibp(network, BALL)
    assert torch.allclose(bounds.upper, BALL.center + 0.1 + torch.tensor([1.0, 2.0, 3.0, 4.0]))
    assert vars(network) == before


def test_bounds_leave_no_gradient_and_no_mode_behind() -> None:
    network = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2)).eval()
    state = {name: value.clone() for name, value in network.state_dict().items()}
    for method in rr.METHODS:
        rr.certify_action(network, BALL, method)
    assert all(torch.equal(value, state[name]) for name, value in network.state_dict().items())
    assert all(parameter.grad is None for parameter in network.parameters())
    assert not network.training


def test_one_module_used_twice_and_shared_weights() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)
            self.other = nn.Linear(4, 4)
            self.other.weight = self.layer.weight

        def forward(self, x: Tensor) -> Tensor:
            return self.other(torch.relu(self.layer(torch.relu(self.layer(x)))))

    torch.manual_seed(0)
    network = Twice()
    rng = torch.Generator().manual_seed(0)
    for method in rr.METHODS:
        bounds = rr.sound(method)(network, BALL)
        with torch.no_grad():
            assert all(bounds.contains(network(BALL.sample(rng, "corner"))).all() for _ in range(50))


def test_the_usual_residual_block_with_in_place_relus_is_fine() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.relu = nn.Linear(4, 4), nn.Linear(4, 4), nn.ReLU(inplace=True)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.second(self.relu(self.first(x)))

    assert rr.sound(rr.crown)(Block(), BALL).lower.shape == (2, 4)


def test_a_layer_that_lies_about_being_linear_is_not_believed() -> None:
    class Liar(nn.Linear):
        def as_linear(self) -> tuple[Tensor, Tensor]:
            return self.weight / 10, self.bias

    torch.manual_seed(0)
    for network in (nn.Sequential(Liar(4, 2)), Liar(4, 2)):
        assert rr.sound(rr.ibp)(network, BALL).contains(network(BALL.center)).all()


def test_the_rounding_of_a_declared_layer_is_that_of_its_forward() -> None:
    class Head(nn.Module):
        """Folded, the weights are small; in the forward, numbers of size 100 cancel."""

        def __init__(self) -> None:
            super().__init__()
            self.value, self.advantage = nn.Linear(4, 1), nn.Linear(4, 6)
            self.advantage.weight.data += 100

        def forward(self, x: Tensor) -> Tensor:
            advantage = self.advantage(x)
            return self.value(x) + advantage - advantage.mean(1, keepdim=True)

        def as_linear(self) -> tuple[Tensor, Tensor]:
            weight, bias = self.advantage.weight, self.advantage.bias
            return self.value.weight + weight - weight.mean(0), self.value.bias + bias - bias.mean()

    torch.manual_seed(0)
    network, ball = Head(), rr.Ball(torch.rand(64, 4), 0.0)
    for method in rr.METHODS:
        assert rr.sound(method)(network, ball).contains(network(ball.center)).all()
        assert torch.allclose(rr.METHODS[method](network, ball).lower, network(ball.center), atol=1e-3)


class AsksForItsType(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x * 0.1 if isinstance(x, Tensor) else x)


class Calls(nn.Sequential):
    def __call__(self, x: Tensor) -> Tensor:
        return super().__call__(x * 0.1)


class Wraps(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self._orig_mod = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self._orig_mod(x * 0.1)


class Overwrites(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        x += 2.0
        return self.layer(x)


class Draws(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + torch.randn(2)


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls.add_(1)
        return x * 2


def replaced_forward() -> nn.Module:
    network = nn.Sequential(nn.Linear(4, 2))
    network.forward = lambda x: nn.Sequential.forward(network, x * 0.1)  # type: ignore[method-assign]
    return network


@pytest.mark.parametrize("build", [AsksForItsType, Calls, replaced_forward, Draws])
def test_what_tracing_cannot_see_is_never_certified(build: type[nn.Module]) -> None:
    network = build(nn.Linear(4, 2)) if build is Calls else build()
    for method in rr.METHODS:
        with pytest.raises(rr.BadInput):
            rr.certify_action(network, rr.Ball(BALL.center * 50, 0.1), method)


def test_networks_that_wrap_or_overwrite_are_bounded_as_they_run() -> None:
    for network in (Wraps(), Overwrites()):
        center = BALL.center.clone()
        ball = rr.Ball(center, 0.1)
        for method in rr.METHODS:
            rr.certify_action(network, ball, method)
            bounds = rr.sound(method)(network, ball)
            assert torch.equal(center, BALL.center)  # the ball is not the network's to change
            assert bounds.contains(network(center.clone())).all()


def test_bounding_changes_no_buffer() -> None:
    network = Counts()
    with pytest.raises(rr.UnsupportedLayer, match="in place"):
        rr.ibp(network, BALL)
    assert network.calls.item() == 0


def test_a_normaliser_that_learns_is_read_at_every_call() -> None:
    class Normalised(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.kinds, self.act = nn.Linear(4, 2), ["relu"], torch.relu
            self.register_buffer("var", torch.ones(4))

        def forward(self, x: Tensor) -> Tensor:
            x = self.act(self.layer(x / torch.sqrt(self.var + 1e-8)))
            return x * 3 if "triple" in self.kinds else x

    network = Normalised()

    def holds() -> bool:
        return bool(rr.ibp(network, BALL).contains(network(BALL.center)).all())

    assert holds()
    network.var.fill_(1e-4)
    assert holds()
    network.act = torch.tanh
    assert holds()
    network.kinds.append("triple")
    assert holds()


def test_elements_that_share_an_input_are_not_taken_for_independent() -> None:
    class Difference(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 1, bias=False)
            self.layer.weight.data = torch.tensor([[1.0] * 4 + [-1.0] * 4])

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(torch.cat([x, x], dim=1))

    assert rr.crown(Difference(), BALL).width.abs().max() < 1e-6  # x − x


def test_remembering_a_trace_does_not_keep_the_network_alive() -> None:
    for network in (nn.Sequential(nn.Linear(4, 2), nn.ReLU()), nn.Linear(4, 2)):
        rr.ibp(network, BALL)
    alive = weakref.ref(network)
    del network
    gc.collect()
    assert alive() is None
