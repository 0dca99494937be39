"""A second implementation as witness: auto_LiRPA 0.3 on ReLU networks, to nine digits. `make test-oracle` installs it.

Its release of 2022 does not import on current torch; the three lines of `_shims` stand in for what has moved since.
"""

import importlib
import sys
import types
from typing import Any

import numpy as np
import pytest
import torch
from architectures import random_network
from torch import nn

import radial as rr


def _shims() -> None:
    if "numpy.lib.arraysetops" not in sys.modules:
        module = types.ModuleType("numpy.lib.arraysetops")
        module.isin = np.isin  # type: ignore[attr-defined]
        sys.modules[module.__name__] = module
    import torch.onnx.symbolic_helper as helper
    from torch.onnx._internal.torchscript_exporter._globals import GLOBALS

    helper._set_opset_version = lambda version: setattr(GLOBALS, "export_onnx_opset_version", version)
    torch._C.Node.__getitem__ = lambda node, key: getattr(node, node.kindOf(key))(key)


def load_lirpa() -> Any:
    """The module, made to work; ImportError where it is not installed."""
    _shims()
    limit = sys.getrecursionlimit()
    module = importlib.import_module("auto_LiRPA")
    sys.setrecursionlimit(limit)  # it raises it to a million, at which a deeply nested file ends the process
    if "_fitted" in vars(module):
        return module
    module._fitted = True  # type: ignore[attr-defined]
    members = module.BoundedModule._named_members  # torch has since added an argument that it does not know
    module.BoundedModule._named_members = lambda *args, remove_duplicate=True, **kwargs: members(*args, **kwargs)
    return module


@pytest.fixture(scope="module")
def lirpa() -> Any:
    try:
        return load_lirpa()
    except ImportError:
        pytest.skip("the oracle is optional: run `make test-oracle`")


# Without its shortcut for neurons that IBP already shows to be stable: there it is IBP and not CROWN.
OPTIONS = {"sparse_intermediate_bounds": False, "sparse_conv_intermediate_bounds": False}
METHODS = {"ibp": "IBP", "crown-ibp": "CROWN-IBP", "crown": "CROWN"}


def build(seed: int) -> tuple[nn.Module, tuple[int, ...]]:
    torch.manual_seed(seed)
    if seed % 3 == 0:
        return nn.Sequential(nn.Linear(5, 20), nn.ReLU(), nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 3)), (5,)
    if seed % 3 == 1:
        layers = [nn.Conv2d(2, 4, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(4, 6, 3), nn.ReLU(), nn.Flatten()]
        return nn.Sequential(*layers, nn.Linear(24, 3)), (2, 8, 8)
    return random_network("residual", seed)[0], (2, 8, 8)


def check_agreement(lirpa: Any, seed: int, dtype: torch.dtype) -> int:
    """Both implementations give the same bounds, by every method; returns the number of balls."""
    tolerance = 1e-9 if dtype == torch.float64 else 1e-4
    network, shape = build(seed)
    network = network.to(dtype).eval()
    center = torch.rand(2, *shape, dtype=dtype)
    radius = 0.01 * (1 + seed % 5)
    # auto_LiRPA traces with the default dtype
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        bounded = lirpa.BoundedModule(network, torch.zeros_like(center), bound_opts=OPTIONS)
        x = lirpa.BoundedTensor(center, lirpa.PerturbationLpNorm(norm=np.inf, eps=radius))
        theirs = {name: bounded.compute_bounds(x=(x,), method=method) for name, method in METHODS.items()}
    finally:
        torch.set_default_dtype(before)
    for name, (lower, upper) in theirs.items():
        ours = rr.METHODS[name](network, rr.Ball(center, radius))
        scale = upper.abs().max()
        assert (ours.lower - lower).abs().max() <= tolerance * scale, f"{name}, seed {seed}"
        assert (ours.upper - upper).abs().max() <= tolerance * scale, f"{name}, seed {seed}"
    return len(center)


@pytest.mark.parametrize(
    "seeds", [pytest.param(range(20), id="short"), pytest.param(range(20, 220), id="long", marks=pytest.mark.nightly)]
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_agreement(lirpa: Any, seeds: range, dtype: torch.dtype) -> None:
    assert sum(check_agreement(lirpa, seed, dtype) for seed in seeds) == 2 * len(seeds)
