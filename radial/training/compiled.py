"""Turning a pure function of tensors into native code, backward pass and optimiser included.

The function is run once on stand-ins that record every operation (`make_fx`), so ordinary Python inside it, such as
the walk over a network's layers that computes bounds, costs nothing afterwards. The record is compiled by inductor,
which keeps its results in a cache on disk.
"""

import logging
import shutil
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

log = logging.getLogger(__name__)
Function = Callable[..., Any]


def can_compile() -> bool:
    """Whether there is a C++ compiler for inductor to call."""
    return any(shutil.which(name) for name in ("g++", "clang++", "c++"))


def compiled(function: Function, example: Sequence[Tensor]) -> tuple[Function, float]:
    """The function as native code for tensors of these shapes, and the seconds that took.

    function  of tensors, returning a flat tuple of tensors; no control flow that depends on a value
    """
    began = time.perf_counter()
    if not can_compile():
        log.warning("no C++ compiler found: training runs uncompiled, several times slower")
        return function, 0.0
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx

    graph = make_fx(function, tracing_mode="fake")(*example)
    # The wrapper in C++ too: between sixty small kernels, Python would take a fifth of the time.
    with torch.no_grad(), config.patch(cpp_wrapper=True):
        native: Function = compile_fx(graph, list(example))  # type: ignore[assignment]
        native(*[tensor.clone() for tensor in example])  # inductor compiles at the first call
    return native, time.perf_counter() - began


class Lazy:
    """A function that is compiled when it is first called; with `compile` false it is called as it is."""

    def __init__(self, function: Function, compile: bool) -> None:
        self.seconds = 0.0  # spent compiling
        self._pure = function
        self._function: Function | None = None if compile else function

    def __call__(self, *arguments: Tensor) -> Any:
        """What the function returns."""
        if self._function is None:
            self._function, self.seconds = compiled(self._pure, arguments)
        return self._function(*arguments)
