"""One step of a recurrent cell: LSTMCell, GRUCell and RNNCell, spelled out in the layers they are made of.

The hidden state is a constant (a buffer, or zeros if none is given), or depends on the input like any other value: a
slice of a longer observation bounds it, the step before it in an unrolled network computes it.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from radial.bounds.affine import Combine, Op, Scale
from radial.bounds.layers import Context, dense
from radial.bounds.nonlinear import Product, ReLU, Sigmoid, Tanh

CELLS = (nn.LSTMCell, nn.GRUCell, nn.RNNCell)

Emit = Callable[[Op, list[Any]], Any]  # an operator and the values it acts on, to the value it makes


def cell_step(context: Context, layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any], emit: Emit) -> Any:
    """The value, or for an LSTM the pair (h, c), that a cell makes of its input and its state; other layers refused."""
    if type(layer) not in CELLS or "forward" in vars(layer):
        context.refuse(f"{type(layer).__name__} called with other than one positional input")
    given = dict(zip(("input", "hx"), args, strict=False)) | kwargs
    if len(args) > 2 or given.keys() - {"input", "hx"} or "input" not in given:
        context.refuse(f"this use of {type(layer).__name__}")
    return _Step(context, layer, emit).run(given["input"], given.get("hx"))


class _Step:
    def __init__(self, context: Context, layer: Any, emit: Emit) -> None:
        self.context, self.layer, self.emit, self.size = context, layer, emit, layer.hidden_size

    def run(self, x: Any, state: Any) -> Any:
        x = self._operand(x)
        if isinstance(self.layer, nn.LSTMCell):
            h, c = (None, None) if state is None else state
            return self._lstm(x, self._operand(h), self._operand(c))
        h = self._operand(state)
        return self._gru(x, h) if isinstance(self.layer, nn.GRUCell) else self._rnn(x, h)

    def _operand(self, value: Any) -> Any:
        """A value of shape (B, n): one that depends on the input, or a constant."""
        if value is None:
            return self.context.constant(0.0).expand(1, self.size)
        if not _depends(value):
            value = self.context.constant(value)
        if len(value.shape) != 2 or value.shape[0] != self.context.batch:
            self.context.refuse(f"{type(self.layer).__name__} on a value of shape {tuple(value.shape)}")
        return value

    def _lstm(self, x: Any, h: Any, c: Any) -> tuple[Any, Any]:
        enter, forget, new, out = (self._both(x, h, gate) for gate in range(4))
        enter, forget, out = (self.emit(Sigmoid(), [gate]) for gate in (enter, forget, out))
        added = self.emit(Product(), [enter, self.emit(Tanh(), [new])])
        cell = self.emit(Combine(1.0), [self._times(forget, c), added])
        return self.emit(Product(), [out, self.emit(Tanh(), [cell])]), cell

    def _gru(self, x: Any, h: Any) -> Any:
        reset, update = (self.emit(Sigmoid(), [self._both(x, h, gate)]) for gate in range(2))
        old, own = self._part(h, "hh", 2), self._part(x, "ih", 2)
        new = self.emit(Tanh(), [self._plus(self._times(reset, *old), own)])
        # torch computes (h − n)·z + n. Both appearances of n stay linear, so they cancel in a backward substitution.
        gap = self.emit(Combine(-1.0), [h, new]) if _depends(h) else self.emit(Scale(-torch.ones_like(h), h), [new])
        return self.emit(Combine(1.0), [self.emit(Product(), [update, gap]), new])

    def _rnn(self, x: Any, h: Any) -> Any:
        return self.emit(Tanh() if self.layer.nonlinearity == "tanh" else ReLU(), [self._both(x, h, 0)])

    def _both(self, x: Any, h: Any, gate: int) -> Any:
        """W·x + b + V·h + d of one gate; at least one of x and h depends on the input."""
        first, second = self._part(x, "ih", gate), self._part(h, "hh", gate)
        return self._plus(first[0], second) if _depends(first[0]) else self._plus(second[0], first)

    def _part(self, value: Any, which: str, gate: int) -> tuple[Any, Tensor | None]:
        """W·value + b of one gate, and for a constant Σ|terms| of that sum."""
        rows = slice(gate * self.size, (gate + 1) * self.size)
        weight = getattr(self.layer, f"weight_{which}")[rows]
        bias = getattr(self.layer, f"bias_{which}")[rows] if self.layer.bias else None
        if _depends(value):
            return self.emit(dense(self.context, weight, bias), [value]), None
        wide, shift = self.context.constant(weight), None if bias is None else self.context.constant(bias)
        return F.linear(value, wide, shift), F.linear(value.abs(), wide.abs(), None if shift is None else shift.abs())

    def _plus(self, a: Any, b: tuple[Any, Tensor | None]) -> Any:
        """The sum, where b may be a constant that was itself a sum."""
        value, parts = b
        if _depends(value):
            return self.emit(Combine(1.0), [a, value])
        return self.emit(Scale(torch.ones_like(value), value, parts, terms=self._roundings), [a])

    def _times(self, gate: Any, value: Any, parts: Tensor | None = None) -> Any:
        """The product, for a gate between 0 and 1."""
        if _depends(value):
            return self.emit(Product(), [gate, value])
        # The rounding of the constant itself enters with a factor of at most 1.
        return self.emit(Scale(value, torch.zeros_like(value), parts, terms=self._roundings), [gate])

    @property
    def _roundings(self) -> int:
        return int(max(self.layer.input_size, self.layer.hidden_size)) + 8


def _depends(value: Any) -> bool:
    return hasattr(value, "interval")
