"""Random small networks of every kind the bounds support: the material of the soundness proofs."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from radial.agents.networks import CenteredLinear, MLPActorCritic

Shape = tuple[int, ...]


class Residual(nn.Module):
    """Two skips, one around a nonlinear branch and one around an affine branch (alpha-beta-CROWN issue 103)."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(2, 4, 3, stride=2, padding=1)
        self.first = nn.Sequential(nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 1))
        self.second = nn.Conv2d(4, 4, 3, padding=1)
        self.head = nn.Linear(4 * 4 * 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = x + self.first(x)
        x = self.second(x) - x
        return self.head(torch.relu(x).flatten(1))


class Dueling(nn.Module):
    """Value plus centred advantage, once by the layer and once by subtraction in the forward."""

    def __init__(self, centred_layer: bool) -> None:
        super().__init__()
        self.centred_layer = centred_layer
        self.trunk = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 16), nn.LeakyReLU(0.1))
        self.value = nn.Linear(16, 1)
        self.advantage = CenteredLinear(16, 4) if centred_layer else nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.trunk(x)
        advantage = self.advantage(h)
        if self.centred_layer:
            return self.value(h) + advantage
        return self.value(h) + (advantage - advantage.mean(dim=1, keepdim=True))


class Branches(nn.Module):
    """Concatenation, slicing, constants, clamp, scaling and a permutation."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(6, 8), nn.Linear(3, 8)
        self.head = nn.Linear(16, 3)
        self.register_buffer("mean", torch.linspace(-0.5, 0.5, 6))
        self.register_buffer("std", torch.linspace(0.5, 1.5, 6))

    def forward(self, x: Tensor) -> Tensor:
        x = (x - self.mean) / self.std
        left = torch.clamp(self.left(x) * 0.7, -0.5, 0.8)
        right = torch.sigmoid(self.right(x[:, 1:4]))
        both = torch.cat([left, 1.0 - right], dim=1).view(x.shape[0], 2, 8).permute(0, 2, 1).reshape(x.size(0), -1)
        return -self.head(both) / 2.0


class Conv1d(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(2, 4, 3, stride=2, padding=2, dilation=2),
            nn.ELU(1.3),
            nn.BatchNorm1d(4),
            nn.Flatten(),
            nn.Linear(20, 3),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)


class Recurrent(nn.Module):
    """A step of a cell from a state that is a buffer, and a second step, whose state depends on the input."""

    def __init__(self, cell: type[nn.LSTMCell] | type[nn.GRUCell]) -> None:
        super().__init__()
        self.first, self.second, self.head = cell(5, 6), cell(5, 6), nn.Linear(6, 3)
        self.register_buffer("hidden", torch.linspace(-0.8, 0.9, 6).unsqueeze(0))
        self.pair = cell is nn.LSTMCell

    def forward(self, x: Tensor) -> Tensor:
        h = self.hidden.expand(x.shape[0], -1)
        if self.pair:
            h, c = self.first(x, (h, h))
            return self.head(self.second(x, (h, c))[0])
        return self.head(self.second(x, self.first(x, h)))


def _mlp(*layers: nn.Module) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        modules: list[nn.Module] = [nn.Linear(5, 16)]
        for layer in layers:
            modules += [layer, nn.Linear(16, 16)]
        return nn.Sequential(*modules[:-1], nn.Linear(16, 3))

    return build


def _conv(*layers: nn.Module, features: int) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(*layers, nn.Flatten(), nn.Linear(features, 3))


# name → (builder, shape of one observation)
KINDS: dict[str, tuple[Callable[[], nn.Module], Shape]] = {
    "relu": (_mlp(nn.ReLU(), nn.ReLU()), (5,)),
    "tanh": (_mlp(nn.Tanh(), nn.Tanh()), (5,)),
    "sigmoid": (_mlp(nn.Sigmoid(), nn.LeakyReLU(1.5)), (5,)),
    "elu": (_mlp(nn.ELU(0.7), nn.ELU(1.6)), (5,)),
    "clamp": (_mlp(nn.Hardtanh(-0.4, 0.9), nn.ReLU6()), (5,)),
    "softplus": (_mlp(nn.Softplus(), nn.Softplus(3.0)), (5,)),
    "silu": (_mlp(nn.SiLU(), nn.SiLU()), (5,)),
    "gelu": (_mlp(nn.GELU(), nn.GELU("tanh")), (5,)),
    "layer-norm": (
        lambda: nn.Sequential(
            nn.Linear(5, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 3)
        ),
        (5,),
    ),
    "lstm": (lambda: Recurrent(nn.LSTMCell), (5,)),
    "gru": (lambda: Recurrent(nn.GRUCell), (5,)),
    "conv": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(4, 4, 3, padding=2, dilation=2, groups=2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(64, 3),
        ),
        (2, 8, 8),
    ),
    "strided": (
        lambda: nn.Sequential(nn.Conv2d(1, 4, 5, stride=3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(36, 3)),
        (1, 10, 9),
    ),
    "transposed": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 3, 3, stride=2),
            nn.ReLU(),
            nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(64, 3),
        ),
        (2, 6, 6),
    ),
    "padded": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 3, 3, padding=1, padding_mode="circular"),
            nn.ReLU(),
            nn.ReflectionPad2d(1),
            nn.Conv2d(3, 3, 3, stride=2, padding=1, padding_mode="reflect"),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(27, 3),
        ),
        (1, 4, 4),
    ),
    "max-pool": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 3, 3, padding=1),
            nn.MaxPool2d(3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(3, 3, 3),
            nn.MaxPool2d(2, stride=1),
            nn.Flatten(),
            nn.Linear(3, 3),
        ),
        (1, 8, 8),
    ),
    "avg-pool": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 4, 3),
            nn.Tanh(),
            nn.AvgPool2d(2),
            nn.BatchNorm2d(4),
            nn.Dropout(0.5),
            nn.Flatten(),
            nn.Linear(36, 3),
        ),
        (1, 8, 8),
    ),
    "conv1d": (Conv1d, (2, 9)),
    "residual": (Residual, (2, 8, 8)),
    "dueling": (lambda: Dueling(centred_layer=True), (5,)),
    "dueling-by-hand": (lambda: Dueling(centred_layer=False), (5,)),
    "logits": (lambda: MLPActorCritic(3, 5, (16, 16)).logits, (5,)),
    "branches": (Branches, (6,)),
}


def random_network(kind: str, seed: int, dtype: torch.dtype = torch.float32) -> tuple[nn.Module, Shape]:
    """A network of this kind in eval mode, with random weights of a size at which its layers are busy."""
    build, shape = KINDS[kind]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = build()
        for module in network.modules():
            if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
                module.running_mean.normal_(0, 0.3)
                module.running_var.uniform_(0.3, 2.0)
                nn.init.normal_(module.weight)
                nn.init.normal_(module.bias)
            elif isinstance(module, nn.LayerNorm):
                nn.init.normal_(module.weight)
                nn.init.normal_(module.bias)
            elif isinstance(module, (nn.Linear, nn.Conv1d, nn.Conv2d, nn.ConvTranspose2d)):
                nn.init.normal_(module.weight, std=1.5 / module.weight[0].numel() ** 0.5)
                nn.init.normal_(module.bias, std=0.3)
    return network.to(dtype).eval(), shape
