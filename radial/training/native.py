"""Compiles functions of tensors to native code, backward pass and optimiser included.

The function is traced once on fake tensors (`make_fx`), so ordinary Python inside it, such as the walk over a network's
layers that computes bounds, costs nothing afterwards. Inductor compiles the trace and caches it on disk.
"""

import logging
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

log = logging.getLogger(__name__)


def can_compile() -> bool:
    """Whether there is a C++ compiler for inductor to call."""
    return any(shutil.which(name) for name in ("g++", "clang++", "c++"))


class Compiled:
    """A function of named tensors, NamedTuples and dicts of them, compiled at its first call.

    function  returns a flat tuple of tensors; no control flow that depends on a value
    wanted    False: call it uncompiled
    """

    def __init__(self, function: Callable[..., tuple[Tensor, ...]], wanted: bool) -> None:
        self.seconds = 0.0  # spent compiling
        self._function, self._wanted = function, wanted
        self._native: Callable[..., Any] | None = None

    def __call__(self, **named: Any) -> tuple[Tensor, ...]:
        """Call the function, compiled if possible."""
        if not self._wanted:
            return self._function(**named)
        leaves = list[Tensor]()
        for value in named.values():  # once per minibatch, so in the cheapest way
            if isinstance(value, tuple):
                leaves.extend(value)
            elif isinstance(value, dict):
                leaves.extend(value.values())
            else:
                leaves.append(value)
        if self._native is None:
            self._compile(named, leaves)
        return self._native(*leaves) if self._native is not None else self._function(**named)

    def _compile(self, named: Mapping[str, Any], leaves: list[Tensor]) -> None:
        if not can_compile():
            log.warning("no C++ compiler found: training runs uncompiled, several times slower")
            self._wanted = False
            return
        from torch._inductor import config
        from torch._inductor.compile_fx import compile_fx

        # make_fx and inductor take positional tensors only, so the named arguments are flattened here and nowhere else.
        def flat(*tensors: Tensor) -> tuple[Tensor, ...]:
            rest = iter(tensors)
            return self._function(**{name: _rebuilt(value, rest) for name, value in named.items()})

        began = time.perf_counter()
        # Fake tensors carry shapes and no values, so a branch on a value fails here instead of being frozen in.
        graph = make_fx(flat, tracing_mode="fake")(*leaves)
        # With the wrapper in C++ too: around sixty small kernels, Python would take a fifth of the time.
        with torch.no_grad(), config.patch(cpp_wrapper=True):
            native: Callable[..., Any] = compile_fx(graph, list(leaves))  # type: ignore[assignment]
            # Inductor compiles at the first call; on copies, so that this warm-up cannot touch the arguments.
            native(*[tensor.clone() for tensor in leaves])
        self._native, self.seconds = native, time.perf_counter() - began


def _rebuilt(like: Any, rest: Iterator[Tensor]) -> Any:
    if isinstance(like, Tensor):
        return next(rest)
    if isinstance(like, dict):
        return {key: next(rest) for key in like}
    return type(like)(*(next(rest) for _ in like))
