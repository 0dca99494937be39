"""A sound bound around one observation, fast enough for every step of an agent at work.

The checks of `sound` (the trace is the network, the network is a function) are made once, and again when its weights,
modules, hooks or mode change; the arithmetic between is compiled, and compared with the uncompiled one when checked.
"""

import math
import warnings
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call

from radial.bounds.methods import METHODS, outward_arithmetic, sound
from radial.bounds.rounding import check_arithmetic
from radial.core.ball import Ball
from radial.core.data import BadInput, Bounds
from radial.training.native import Compiled, can_compile

CLOSE = 1e-6  # of the largest bound: compiled and uncompiled sums may differ in their order


class StepBound:
    """Bounds of a network's outputs, or of linear forms of them, over the ball around one observation.

    names        keys of METHODS; of several, the tightest in every element
    valid_range  the ball is cut to it; None: not cut
    compiled     False: computed as `sound` does, with all its checks at every call
    """

    def __init__(
        self, network: nn.Module, names: Sequence[str], p: float = math.inf,
        valid_range: tuple[float, float] | None = None, *, compiled: bool = True,
    ) -> None:  # fmt: skip
        self.network, self.names, self.p = network, tuple(names), p
        self.low: float | None = None if valid_range is None else valid_range[0]
        self.high: float | None = None if valid_range is None else valid_range[1]
        self.compiled = compiled and can_compile()
        self._arithmetic = _Arithmetic(self)
        self._native: dict[bool, Compiled] = {}
        self._weights: dict[str, Tensor] = {}
        self._seen: dict[bool, object] = {}  # the state of the network that was checked, with rows and without

    def __call__(self, x: Tensor, radius: float, rows: Tensor | None = None) -> Bounds:
        """Bounds (1, *out), or (1, K) of rows (1, K, A), over the ball around x (1, *obs); in the network's dtype."""
        if not self.compiled:
            return self._checked(x, radius, rows)
        state = self._state()
        if self._seen.get(rows is not None) != state:
            found = self._check(x, radius, rows)
            self._seen[rows is not None] = state
            return found
        check_arithmetic(self.network, x.device, x.dtype)
        return self._fast(x, radius, rows)

    def _checked(self, x: Tensor, radius: float, rows: Tensor | None) -> Bounds:
        ball = Ball(x, radius, self.p, self.low, self.high)
        found = [sound(METHODS[name])(self.network, ball, rows) for name in self.names]
        return _tightest(found)

    def _check(self, x: Tensor, radius: float, rows: Tensor | None) -> Bounds:
        """The checked bounds; and from now on the compiled ones, if they are the same."""
        found = self._checked(x, radius, rows)
        tensors = {**dict(self._arithmetic.named_parameters()), **dict(self._arithmetic.named_buffers())}
        self._weights = {name: tensor.detach() for name, tensor in tensors.items()}
        try:
            fast = self._fast(x, radius, rows)
        except BadInput:
            raise
        except Exception as error:  # noqa: BLE001  a network that cannot be compiled can still be bounded
            why = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
            self._leave(f"its bounds cannot be compiled: {why}")
            return found
        if not (_near(found.lower, fast.lower) and _near(found.upper, fast.upper)):
            self._leave("its compiled bounds differ from the checked ones")
        return found

    def _leave(self, why: str) -> None:
        self.compiled = False
        warnings.warn(f"the guard runs uncompiled, many times slower: {why}", RuntimeWarning, stacklevel=2)

    def _fast(self, x: Tensor, radius: float, rows: Tensor | None) -> Bounds:
        native = self._native.setdefault(rows is not None, Compiled(self._arithmetic.of, wanted=True))
        # As `Ball` has it: a radius is a number of the network's own precision.
        given = {"center": x.double(), "radius": torch.full(x.shape[1:], radius, dtype=x.dtype).double()}
        if rows is not None:
            given["rows"] = rows.double()
        lower, upper = native(**given, weights=self._weights)
        return Bounds(lower, upper)

    def _state(self) -> object:
        """What a check rests on, by versions and identities: writes into a tensor that torch sees count up its version.

        Others (through .data) change the bounds all the same, for these read the weights at every call.
        """
        tensors = [(id(t), t._version, t.data_ptr()) for t in (*self.network.parameters(), *self.network.buffers())]
        modules = [
            (id(module), module.training, len(module._forward_hooks), len(module._forward_pre_hooks))
            for module in self.network.modules()
        ]
        return tensors, modules


class _Arithmetic(nn.Module):
    """The arithmetic as a forward, for `functional_call`."""

    def __init__(self, bound: StepBound) -> None:
        super().__init__()
        self.network, self._bound = bound.network, (bound,)

    def forward(self, center: Tensor, radius: Tensor, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        how = self._bound[0]
        ball = Ball.unchecked(center, radius, how.p, how.low, how.high)
        dtype = next(self.network.parameters()).dtype
        found = _tightest([outward_arithmetic(name, self.network, ball, rows, dtype) for name in how.names])
        return found.lower, found.upper

    def of(
        self, center: Tensor, radius: Tensor, weights: dict[str, Tensor], rows: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """The forward with these weights."""
        given = (center, radius) if rows is None else (center, radius, rows)
        found: tuple[Tensor, ...] = functional_call(self, weights, given)
        return found


def _tightest(found: Sequence[Bounds]) -> Bounds:
    lower, upper = found[0].lower, found[0].upper
    for each in found[1:]:
        lower, upper = torch.maximum(lower, each.lower), torch.minimum(upper, each.upper)
    return Bounds(lower, upper)


def _near(a: Tensor, b: Tensor) -> bool:
    scale = float(torch.cat([a.flatten(), b.flatten()]).abs().nan_to_num(0.0, 0.0, 0.0).max()) if a.numel() else 0.0
    return a.shape == b.shape and bool(((a == b) | (a.isnan() & b.isnan()) | ((a - b).abs() <= CLOSE * scale)).all())
