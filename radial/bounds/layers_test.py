"""One row per layer: joining the table is joining the contract, for every method and norm."""

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import radial as rr
from radial.agents.networks import CenteredLinear

FLAT, IMAGE, SEQUENCE = (6,), (2, 6, 6), (2, 9)


class Apply(nn.Module):
    """A function as a network."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class Residual(nn.Module):
    def __init__(self, sign: int) -> None:
        super().__init__()
        self.sign, self.branch = sign, nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.branch(x) if self.sign > 0 else x - self.branch(x)


class Recurrent(nn.Module):
    """One step of a cell whose state is absent, a buffer, part of the input, or all of it."""

    def __init__(self, cell: nn.Module, state: str | None = None) -> None:
        super().__init__()
        self.cell, self.state, self.size = cell, state, cell.hidden_size
        self.pair = isinstance(cell, nn.LSTMCell)
        self.register_buffer("hidden", torch.randn(1, cell.hidden_size))
        self.register_buffer("memory", torch.randn(1, cell.hidden_size))
        self.register_buffer("seen", torch.randn(1, cell.input_size))

    def forward(self, x: Tensor) -> Tensor:
        if self.state is None:
            h, c = self.cell(x)
            return torch.cat([h, c], dim=1)
        if self.state == "constant":
            h, c = self.hidden.expand(x.shape[0], -1), self.memory.expand(x.shape[0], -1)
        elif self.state == "input":
            x, h, c = x[:, : -2 * self.size] if self.pair else x[:, : -self.size], x[:, -self.size :], x[:, : self.size]
        else:
            x, h = self.seen.expand(x.shape[0], -1), x
        if self.pair:
            return self.cell(x, (h, c))[0]
        return self.cell(x, hx=h)


class Function(nn.Module):
    """Weights used through torch.nn.functional instead of layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Parameter(torch.randn(3, 2, 3, 3))
        self.turned = nn.Parameter(torch.randn(3, 3, 1, 1))
        self.dense = nn.Parameter(torch.randn(4, 12))
        self.matrix = nn.Parameter(torch.randn(4, 3))

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(F.conv2d(x, self.conv, stride=2, padding=1))
        h = F.conv_transpose2d(h, self.turned)
        h = F.linear(F.avg_pool2d(F.max_pool2d(h, 2, 1), 1).reshape(x.shape[0], -1), self.dense)
        return torch.tanh(h) @ self.matrix


# name → (layer, shape of one observation, whether it is affine)
LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], bool]] = {
    "Linear": (lambda: nn.Linear(6, 4), FLAT, True),
    "Linear without bias": (lambda: nn.Linear(6, 4, bias=False), FLAT, True),
    "Linear on the last of three axes": (lambda: nn.Linear(9, 4), SEQUENCE, True),
    "CenteredLinear": (lambda: CenteredLinear(6, 4), FLAT, True),
    "Conv2d": (lambda: nn.Conv2d(2, 3, 3, padding=1), IMAGE, True),
    "Conv2d, stride that leaves a rest": (lambda: nn.Conv2d(2, 3, 3, stride=2), IMAGE, True),
    "Conv2d, many channels": (lambda: nn.Sequential(nn.Conv2d(2, 8, 1), nn.Conv2d(8, 4, 3, stride=2)), IMAGE, True),
    "Conv2d, unequal everything": (
        lambda: nn.Conv2d(2, 4, (3, 2), stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=2), IMAGE, True,
    ),
    "Conv2d, padding same": (lambda: nn.Conv2d(2, 3, 3, padding="same"), IMAGE, True),
    "Conv2d, padding valid": (lambda: nn.Conv2d(2, 3, 3, padding="valid"), IMAGE, True),
    "Conv1d": (lambda: nn.Conv1d(2, 4, 3, stride=2, padding=2, dilation=2, groups=2), SEQUENCE, True),
    "Conv2d, circular": (lambda: nn.Conv2d(2, 3, 3, padding=(1, 2), padding_mode="circular"), IMAGE, True),
    "Conv2d, reflect": (lambda: nn.Conv2d(2, 3, 3, stride=2, padding=2, padding_mode="reflect"), IMAGE, True),
    "Conv2d, replicate": (
        lambda: nn.Conv2d(2, 4, (2, 3), padding="same", groups=2, padding_mode="replicate"), IMAGE, True,
    ),
    "Conv1d, circular": (lambda: nn.Conv1d(2, 3, 3, padding=1, padding_mode="circular"), SEQUENCE, True),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(2, 3, 3), IMAGE, True),
    "ConvTranspose2d, unequal everything": (
        lambda: nn.ConvTranspose2d(2, 4, (3, 2), (2, 1), (1, 2), (1, 0), groups=2, dilation=(1, 2)), IMAGE, True,
    ),
    "ConvTranspose2d, output padding beyond the stride": (
        lambda: nn.ConvTranspose2d(2, 3, 2, stride=1, output_padding=2, dilation=3, bias=False), IMAGE, True,
    ),
    "ConvTranspose1d": (lambda: nn.ConvTranspose1d(2, 3, 3, stride=3, output_padding=1), SEQUENCE, True),
    "ZeroPad2d": (lambda: nn.ZeroPad2d((1, 0, 2, 1)), IMAGE, True),
    "CircularPad2d": (lambda: nn.CircularPad2d((1, 2, 3, 0)), IMAGE, True),
    "ReflectionPad2d": (lambda: nn.ReflectionPad2d(2), IMAGE, True),
    "ReplicationPad2d": (lambda: nn.Sequential(nn.ReplicationPad2d((2, 1, 0, 3)), nn.AvgPool2d(2)), IMAGE, True),
    "padding by a function": (lambda: Apply(lambda x: F.pad(F.pad(x, (1, 2, 0, 1), "reflect"), (1, -2))), IMAGE, True),
    "AvgPool2d": (lambda: nn.AvgPool2d(3, stride=2, padding=1), IMAGE, True),
    "AvgPool2d, ceil, no padding counted": (
        lambda: nn.AvgPool2d(2, stride=2, padding=1, ceil_mode=True, count_include_pad=False), IMAGE, True,
    ),
    "BatchNorm1d": (lambda: nn.BatchNorm1d(6), FLAT, True),
    "BatchNorm1d on sequences": (lambda: nn.BatchNorm1d(2), SEQUENCE, True),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(2), IMAGE, True),
    "BatchNorm2d without weights": (lambda: nn.BatchNorm2d(2, affine=False), IMAGE, True),
    "LayerNorm": (lambda: nn.LayerNorm(6), FLAT, False),
    "LayerNorm over two axes": (lambda: nn.LayerNorm((6, 6)), IMAGE, False),
    "LayerNorm of a sequence": (lambda: nn.Sequential(nn.Linear(9, 5), nn.LayerNorm(5, bias=False)), SEQUENCE, False),
    "LayerNorm by a function": (lambda: Apply(lambda x: F.layer_norm(x, (6,), eps=0.1)), FLAT, False),
    "Dropout": (lambda: nn.Dropout(0.9), FLAT, True),
    "Flatten": (lambda: nn.Flatten(), IMAGE, True),
    "Flatten, the last axes": (lambda: nn.Flatten(-2), IMAGE, True),
    "Identity": (nn.Identity, FLAT, True),
    "ReLU": (nn.ReLU, FLAT, False),
    "ReLU in place": (lambda: nn.Sequential(nn.Linear(6, 6), nn.ReLU(inplace=True)), FLAT, False),
    "LeakyReLU": (lambda: nn.LeakyReLU(0.2), FLAT, False),
    "LeakyReLU, steep": (lambda: nn.LeakyReLU(3.0), FLAT, False),
    "ELU": (nn.ELU, FLAT, False),
    "ELU, steep": (lambda: nn.ELU(2.5), FLAT, False),
    "Tanh": (nn.Tanh, FLAT, False),
    "Sigmoid": (nn.Sigmoid, FLAT, False),
    "ReLU6": (nn.ReLU6, FLAT, False),
    "Hardtanh": (lambda: nn.Hardtanh(-0.3, 0.4), FLAT, False),
    "Softplus": (nn.Softplus, FLAT, False),
    "Softplus, steep": (lambda: nn.Softplus(5.0, 30.0), FLAT, False),
    "SiLU": (nn.SiLU, FLAT, False),
    "GELU": (nn.GELU, FLAT, False),
    "GELU by tanh": (lambda: nn.GELU("tanh"), FLAT, False),
    "MaxPool2d": (lambda: nn.MaxPool2d(2), IMAGE, False),
    "MaxPool2d, overlapping": (lambda: nn.MaxPool2d(3, stride=2, padding=1), IMAGE, False),
    "MaxPool2d, dilated": (lambda: nn.MaxPool2d(2, stride=1, dilation=2), IMAGE, False),
    "clamp from below": (lambda: Apply(lambda x: x.clamp(min=0.1)), FLAT, False),
    "clamp from above": (lambda: Apply(lambda x: torch.clamp(x, max=0.1)), FLAT, False),
    "residual sum": (lambda: Residual(1), FLAT, False),
    "residual difference": (lambda: Residual(-1), FLAT, False),
    "constants": (lambda: Apply(lambda x: 3 - 2 * (x + 1) / 4 - x * 0.5), FLAT, True),
    "negative": (lambda: Apply(lambda x: -x), FLAT, True),
    "concatenation": (lambda: Apply(lambda x: torch.cat([x, -x, x[:, :2]], dim=1)), FLAT, True),
    "slices": (lambda: Apply(lambda x: x[:, 1::2] + x[..., :3]), FLAT, True),
    "sum and mean": (lambda: Apply(lambda x: x.sum(1, keepdim=True) - x.mean(dim=-1, keepdim=True)), FLAT, True),
    "reshape and permute": (
        lambda: Apply(lambda x: x.view(x.size(0), 2, 36).permute(0, 2, 1).transpose(1, 2).reshape(x.shape[0], -1)),
        IMAGE, True,
    ),
    "unsqueeze and squeeze": (lambda: Apply(lambda x: x.unsqueeze(1).squeeze(1).contiguous()), FLAT, True),
    "product of two branches": (lambda: Apply(lambda x: x[:, :3] * torch.sigmoid(x[:, 3:])), FLAT, False),
    "square": (lambda: Apply(lambda x: x * x), FLAT, False),
    "product with broadcasting": (lambda: Apply(lambda x: x.mean(1, keepdim=True) * x), FLAT, False),
    "LSTMCell": (lambda: Recurrent(nn.LSTMCell(6, 4)), FLAT, False),
    "LSTMCell with a state": (lambda: Recurrent(nn.LSTMCell(6, 4, bias=False), "constant"), FLAT, False),
    "LSTMCell with a bounded state": (lambda: Recurrent(nn.LSTMCell(2, 2), "input"), FLAT, False),
    "GRUCell": (lambda: nn.GRUCell(6, 4), FLAT, False),
    "GRUCell with a state": (lambda: Recurrent(nn.GRUCell(6, 4), "constant"), FLAT, False),
    "GRUCell with a bounded state": (lambda: Recurrent(nn.GRUCell(4, 2, bias=False), "input"), FLAT, False),
    "GRUCell of a bounded state alone": (lambda: Recurrent(nn.GRUCell(3, 6), "state"), FLAT, False),
    "RNNCell with a state": (lambda: Recurrent(nn.RNNCell(6, 4, nonlinearity="relu"), "constant"), FLAT, False),
    "functions": (Function, IMAGE, False),
    "torch functions": (
        lambda: Apply(lambda x: F.leaky_relu(torch.sigmoid(x)) + F.elu(x) + F.hardtanh(x) + F.relu6(x)), FLAT, False,
    ),
    "smooth functions": (
        lambda: Apply(lambda x: F.softplus(x, 2) - F.gelu(x) + F.gelu(x, approximate="tanh") * 2 + F.silu(x)), FLAT,
        False,
    ),
}  # fmt: skip


def build(name: str, dtype: torch.dtype = torch.float64) -> tuple[nn.Module, rr.Ball, bool]:
    make, shape, affine = LAYERS[name]
    torch.manual_seed(0)
    layer = make().to(dtype).eval()
    for module in layer.modules():
        if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
        if isinstance(module, nn.LayerNorm):
            for parameter in module.parameters():
                nn.init.normal_(parameter)
    center = torch.randn(3, *shape, dtype=dtype)
    return layer, rr.Ball(center, 0.4), affine


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("method", rr.METHODS)
@pytest.mark.parametrize("p", [1, 2, math.inf])
def test_layer(name: str, method: str, p: float) -> None:
    layer, ball, affine = build(name)
    rng = torch.Generator().manual_seed(1)
    for radius in (0.05, 0.4, 2.0):
        ball = rr.Ball(ball.center, radius, p)
        bounds = rr.METHODS[method](layer, ball)
        with torch.no_grad():
            for turn in range(40):
                y = layer(ball.sample(rng, ("uniform", "corner")[turn % 2]))
                assert (y >= bounds.lower - 1e-9).all()
                assert (y <= bounds.upper + 1e-9).all()
            widest = (layer(ball.center) - bounds.lower).abs().max()
        assert widest < 100 * radius  # sound because large would be no bound at all
    point = rr.METHODS[method](layer, rr.Ball(ball.center, 0.0, p))
    assert torch.allclose(point.lower, layer(ball.center), atol=1e-9)
    assert torch.allclose(point.upper, layer(ball.center), atol=1e-9)
    if affine and (method != "ibp" or p != math.inf):
        reach = bounds.upper - layer(ball.center)
        assert torch.allclose(reach, layer(ball.center) - bounds.lower, atol=1e-9)  # symmetric
        twice = rr.METHODS[method](layer, rr.Ball(ball.center, 4.0, p)).upper - layer(ball.center)
        assert torch.allclose(twice, 2 * reach, atol=1e-9)  # and proportional to the radius


@pytest.mark.parametrize("name", LAYERS)
def test_sound_form_of_each_layer_holds_in_float32(name: str) -> None:
    layer, ball, _ = build(name, torch.float32)
    rng = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for method in rr.METHODS:
            bounds = rr.sound(method)(layer, ball)
            for turn in range(30):
                assert bounds.contains(layer(ball.sample(rng, ("uniform", "corner")[turn % 2]))).all()


class Unknown(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(6, 6), nn.Softsign()

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.first(x))


class OwnForward(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).exp()


def patched() -> nn.Module:
    network = nn.Sequential(nn.Linear(6, 6), nn.ReLU())
    network[1].forward = torch.exp  # type: ignore[method-assign]
    return network


REFUSED: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], str]] = {
    "a layer without a rule": (Unknown, FLAT, "Softsign at 'norm'"),
    "a function without a rule": (lambda: Apply(torch.exp), FLAT, "function exp"),
    "a method without a rule": (lambda: Apply(lambda x: x.abs()), FLAT, "method abs"),
    "a subclass with a forward of its own": (lambda: nn.Sequential(OwnForward(6, 6)), FLAT, "exp"),
    "a forward replaced on the instance": (patched, FLAT, "ReLU"),
    "Mish": (nn.Mish, FLAT, "Mish"),
    "Softplus that falls": (lambda: nn.Softplus(-1.0), FLAT, "beta"),
    "Softplus that jumps": (lambda: nn.Softplus(threshold=3.0), FLAT, "threshold"),
    "Softplus that overflows": (lambda: nn.Softplus(threshold=100.0), FLAT, "threshold"),
    "LayerNorm over the batch": (lambda: Apply(lambda x: F.layer_norm(x, (6, 6))), FLAT, "LayerNorm of shape"),
    "LayerNorm without eps": (lambda: nn.LayerNorm(6, eps=0.0), FLAT, "eps"),
    "a product of two branches of different axes": (
        lambda: Apply(lambda x: x * x.mean(1)), IMAGE, "different numbers of axes",
    ),
    "a cell on a sequence": (lambda: nn.GRUCell(9, 3), SEQUENCE, "GRUCell on a value of shape"),
    "a whole LSTM": (lambda: nn.LSTM(9, 3), SEQUENCE, "LSTM"),
    "a power": (lambda: Apply(lambda x: x**2), FLAT, "pow"),
    "division by the input": (lambda: Apply(lambda x: 1 / x), FLAT, "division by a value"),
    "softmax": (lambda: Apply(lambda x: x.softmax(1)), FLAT, "softmax"),
    "flatten of the batch": (lambda: nn.Flatten(0), IMAGE, "batch axis"),
    "reshape of the batch": (lambda: Apply(lambda x: x.reshape(-1, 2)), FLAT, "batch axis first"),
    "transpose of the batch": (lambda: Apply(lambda x: x.transpose(0, 1)), FLAT, "batch axis"),
    "permutation of the batch": (lambda: Apply(lambda x: x.permute(1, 0)), FLAT, "batch axis"),
    "mean over the batch": (lambda: Apply(lambda x: x - x.mean(0, keepdim=True)), FLAT, "batch axis"),
    "mean over everything": (lambda: Apply(lambda x: x - x.mean()), FLAT, "whole batch"),
    "cat over the batch": (lambda: Apply(lambda x: torch.cat([x, x])), FLAT, "batch axis"),
    "one sample": (lambda: Apply(lambda x: x[0]), FLAT, "selects samples"),
    "some samples": (lambda: Apply(lambda x: x[1:]), FLAT, "selects samples"),
    "mean over no axis": (lambda: Apply(lambda x: x - x.mean(dim=())), FLAT, "whole batch"),
    "a convolution without a batch": (lambda: nn.Conv2d(6, 6, 3), (6, 6), "axes"),
    "max-pooling without channels": (lambda: nn.MaxPool2d(2), (6, 6), "axes"),
    "an output without an axis": (lambda: Apply(lambda x: x.sum(1)), FLAT, "no axis besides the batch"),
    "keywords only": (lambda: Apply(lambda x: torch.flatten(input=x, start_dim=1)), IMAGE, "keywords only"),
    "padding with ones": (lambda: Apply(lambda x: F.pad(x, (1, 1), value=1.0)), IMAGE, "value other than 0"),
    "padding of the batch": (lambda: Apply(lambda x: F.pad(x, (0, 0, 1, 1))), FLAT, "padding of widths"),
    "padding without channels": (lambda: nn.ReflectionPad2d(1), (6, 6), "axes"),
    "ceil mode of max-pooling": (lambda: nn.MaxPool2d(2, ceil_mode=True), IMAGE, "ceil_mode"),
    "BatchNorm of the batch itself": (lambda: nn.BatchNorm1d(6, track_running_stats=False), FLAT, "running statistics"),
    "in place on a value used again": (
        lambda: Apply(lambda x: (lambda h: F.relu(h, inplace=True) + h)(x * 1.0)), FLAT, "used again",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("method", rr.METHODS)
def test_what_has_no_rule_is_refused_by_name(name: str, method: str) -> None:
    make, shape, says = REFUSED[name]
    network = make().eval()
    with pytest.raises(rr.UnsupportedLayer) as error:
        rr.METHODS[method](network, rr.Ball(torch.rand(6, *shape), 0.1))
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_the_error_says_how_to_add_a_layer() -> None:
    with pytest.raises(rr.UnsupportedLayer, match=r"no bound rule for Mish .* MODULES in bounds/layers.py"):
        rr.ibp(nn.Sequential(nn.Mish()), rr.Ball(torch.rand(1, 3), 0.1))
