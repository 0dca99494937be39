"""Products of a gradient step in bfloat16, everything else of it in float32.

Only updates use this. Acting, attacks, certificates and evaluation compute with the float32 weights themselves.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

PRECISIONS = ("float32", "bfloat16")  # of the products in an update
FEW_OUTPUTS = 16  # outputs: a layer with fewer (the heads of V and A) costs nothing and stays in float32
_PRODUCTS: Sequence[Callable[..., Tensor]] = (F.linear, F.conv2d)


def bfloat16_is_fast() -> bool:
    """Whether the processor multiplies bfloat16 itself (AVX512-BF16 or AMX); elsewhere it is emulated and slow."""
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def products_in(precision: str) -> AbstractContextManager[object]:
    """A context in which convolutions and wide linear layers multiply in this precision, forward and backward."""
    return _Bfloat16Products() if precision == "bfloat16" else nullcontext()


class _Bfloat16Products(TorchFunctionMode):
    """Rounds the factors of a product to bfloat16 and returns float32.

    Sums inside a product are float32 in hardware. Between layers all is float32, so a radius far below a rounding of
    its centre still survives. Autograd sees the roundings as casts: gradients reach the float32 weights.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func not in _PRODUCTS or len(args) < 2 or args[1].shape[0] < FEW_OUTPUTS:
            return func(*args, **kwargs)
        factors = tuple(each.bfloat16() if isinstance(each, Tensor) else each for each in args)
        named = {name: each.bfloat16() if isinstance(each, Tensor) else each for name, each in kwargs.items()}
        return func(*factors, **named).float()
