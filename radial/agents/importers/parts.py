"""Layers from the named tensors of a file: each is taken once, in its shape, and a tensor left over is an error.

The importers know by which names a library calls its layers.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

from radial.agents.importers.archive import check_tensor_bytes
from radial.core.data import BadInput

Layer = TypeVar("Layer", nn.Linear, nn.Conv2d)

LAYERS = 16
WIDEST = 1 << 20
# Activations that the bounds have rules for, by the name torch gives the class.
ACTIVATIONS: dict[str, type[nn.Module]] = {
    "ReLU": nn.ReLU, "Tanh": nn.Tanh, "ELU": nn.ELU, "LeakyReLU": nn.LeakyReLU, "Sigmoid": nn.Sigmoid,
    "SiLU": nn.SiLU, "GELU": nn.GELU,
}  # fmt: skip
NATURE = ((8, 4), (4, 2), (3, 1))  # kernel and stride of the three convolutions of Mnih et al. (2015)


class Parts:
    """The state dict of one file, taken apart."""

    def __init__(self, path: Path, data: object) -> None:
        if not isinstance(data, dict) or not data or not all(isinstance(name, str) for name in data):
            raise BadInput(f"{path} must hold a state dict: names and tensors")
        self.path, self.tensors = path, dict(data)
        for name, tensor in self.tensors.items():
            if not isinstance(tensor, Tensor):
                raise BadInput(f"{path}: {name[:60]!r} must be a tensor")
        check_tensor_bytes(path, self.tensors)

    def has(self, name: str) -> bool:
        """Whether a tensor of this name is there."""
        return name in self.tensors

    def starts(self, prefix: str) -> bool:
        """Whether any name begins so."""
        return any(name.startswith(prefix) for name in self.tensors)

    def drop(self, *prefixes: str) -> None:
        """Leave out tensors that are duplicates or not needed."""
        self.tensors = {name: tensor for name, tensor in self.tensors.items() if not name.startswith(prefixes)}

    def take(self, name: str, dimensions: int | None = None) -> Tensor:
        """A tensor of finite numbers, as float32 of its own."""
        if name not in self.tensors:
            raise BadInput(f"{self.path}: {name} is missing")
        tensor: Tensor = self.tensors.pop(name)
        if not tensor.is_floating_point() or tensor.numel() == 0 or max(tensor.shape, default=1) > WIDEST:
            raise BadInput(f"{self.path}: {name} must hold floating numbers, got {tensor.dtype} {tuple(tensor.shape)}")
        if dimensions is not None and tensor.ndim != dimensions:
            raise BadInput(f"{self.path}: {name} must have {dimensions} axes, got {tensor.ndim}")
        if not bool(tensor.isfinite().all()):
            raise BadInput(f"{self.path}: {name} holds NaN or infinity")
        return tensor.detach().float().clone()

    def linear(self, name: str, inputs: int | None = None, biased: bool = True) -> nn.Linear:
        """The layer `name`.weight (out, in), `name`.bias (out,).

        biased  False: the bias may be missing, and is then 0
        """
        weight = self.take(f"{name}.weight", 2)
        missing = not biased and not self.has(f"{name}.bias")
        bias = weight.new_zeros(weight.shape[0]) if missing else self.take(f"{name}.bias", 1)
        self._check(name, bias.shape[0] == weight.shape[0] and inputs in (None, weight.shape[1]))
        return _filled(nn.utils.skip_init(nn.Linear, weight.shape[1], weight.shape[0]), weight, bias)

    def mlp(
        self, name: str, activation: type[nn.Module], inputs: int | None = None, biased: bool = True
    ) -> list[nn.Module]:
        """The layers `name`.0, `name`.2, … as they come, each with an activation behind it."""
        layers: list[nn.Module] = []
        while self.has(f"{name}.{len(layers)}.weight"):
            if len(layers) >= 2 * LAYERS:
                raise BadInput(f"{self.path}: {name} must have at most {LAYERS} layers")
            layer = self.linear(f"{name}.{len(layers)}", inputs, biased)
            layers += [layer, activation()]
            inputs = layer.out_features
        return layers

    def nature(self, name: str) -> tuple[list[nn.Module], int]:
        """The convolutions `name`.0, `name`.2, `name`.4 with ReLU, flattened; and how many channels they take."""
        layers: list[nn.Module] = []
        channels = None
        for i, (kernel, stride) in enumerate(NATURE):
            weight, bias = self.take(f"{name}.{2 * i}.weight", 4), self.take(f"{name}.{2 * i}.bias", 1)
            fits = weight.shape[2:] == (kernel, kernel) and bias.shape[0] == weight.shape[0]
            self._check(f"{name}.{2 * i}", fits and channels in (None, weight.shape[1]))
            shape = (weight.shape[1], weight.shape[0], kernel, stride)
            layers += [_filled(nn.utils.skip_init(nn.Conv2d, *shape), weight, bias), nn.ReLU()]
            channels = weight.shape[0]
        first = layers[0]
        assert isinstance(first, nn.Conv2d)
        return [*layers, nn.Flatten()], first.in_channels

    def stretch(self, scale: Tensor, bias: Tensor) -> nn.Linear:
        """The layer x → scale·x + bias, (n,) each: −1 … 1 stretched to a box of actions."""
        check_tensor_bytes(self.path, more=4 * len(scale) ** 2)  # n numbers become a matrix
        return _filled(nn.utils.skip_init(nn.Linear, len(scale), len(scale)), torch.diag(scale), bias)

    def finish(self) -> None:
        """Refuse a file with tensors nobody took."""
        if self.tensors:
            raise BadInput(f"{self.path}: {min(self.tensors)[:60]!r} belongs to no part that is known here")

    def _check(self, name: str, fits: bool) -> None:
        if not fits:
            raise BadInput(f"{self.path}: {name} does not fit the layer before it, or its own bias")


def network(layers: Iterable[nn.Module]) -> nn.Sequential:
    """Layers one after the other, in eval mode, without gradients of their own."""
    return nn.Sequential(*layers).eval().requires_grad_(False)


def outputs_of(module: nn.Sequential) -> int:
    """How many numbers the last layer gives."""
    last = [layer for layer in module if isinstance(layer, nn.Linear)][-1]
    return last.out_features


def _filled(layer: Layer, weight: Tensor, bias: Tensor) -> Layer:
    with torch.no_grad():
        layer.weight.copy_(weight)
        assert layer.bias is not None
        layer.bias.copy_(bias)
    return layer
