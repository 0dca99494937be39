"""The public bound methods: `ibp`, `crown_ibp`, `crown`, their combinations, and `sound`, which covers floating point.

All take a network, a ball and optionally rows, and return `Bounds`. They differ in the enclosure of a layer's value:
boxes throughout (IBP), boxes with one backward substitution from the outputs (CROWN-IBP), or a backward substitution
at every layer (CROWN).
"""

import functools
import inspect
import math
from collections.abc import Callable, Iterator
from numbers import Real
from typing import Protocol

import torch
from torch import Tensor, nn

from radial.bounds.backward import Stop, at_nonlinear, enclose, never
from radial.bounds.graph import Node, Program, build
from radial.bounds.interval import Interval
from radial.bounds.nonlinear import ReLU
from radial.bounds.rounding import Rounding, check_arithmetic
from radial.bounds.tracing import Trace, original
from radial.bounds.witness import Snapshot, check_witnesses
from radial.core.ball import Ball
from radial.core.data import BadInput, Bounds

MEMORY = 1 << 30  # bytes: the default budget for coefficients in one backward pass
_FEW = 256  # samples that are always bounded together
_FORMS = 32  # forms of a layer that should fit into one pass: fewer waste time, more waste memory


class BoundMethod(Protocol):
    """The signature of a bound method."""

    def __call__(self, network: nn.Module, ball: Ball, rows: Tensor | None = None) -> Bounds:
        """Enclose the network's outputs, or linear forms of them, over the ball."""


def ibp(network: nn.Module, ball: Ball, rows: Tensor | None = None, *, outward: bool = False) -> Bounds:
    """Interval bound propagation (Gowal et al. 2018): a box through every layer.

    network  any module torch.fx can trace whose layers have rules; in eval mode
    ball     center (B, *obs)
    rows     (B, K, A), or (1, K, A) for every sample alike: linear forms of the output, merged with everything affine
             behind the last nonlinearity
    outward  widen by the rounding errors; callers write `sound(ibp)`
    returns  Bounds (B, *out), or (B, K) with rows
    """
    return _run(network, ball, rows, outward, MEMORY, tighten_all=False, substitute=False)


def crown_ibp(
    network: nn.Module, ball: Ball, rows: Tensor | None = None, *, outward: bool = False, memory: int = MEMORY
) -> Bounds:
    """CROWN-IBP (Zhang et al. 2020): boxes inside, and one backward substitution from the outputs to the ball.

    Arguments as for `ibp`; memory as for `crown`.
    """
    return _run(network, ball, rows, outward, memory, tighten_all=False, substitute=True)


def crown(
    network: nn.Module, ball: Ball, rows: Tensor | None = None, *, outward: bool = False, memory: int = MEMORY
) -> Bounds:
    """CROWN (Zhang et al. 2018): the inputs of every nonlinearity are bounded by a backward substitution of their own.

    memory  bytes for the coefficients of one pass. A layer of n elements asks for 2n forms, so on convolutional nets
            the passes go in chunks, and many samples go in parts; without gradients the peak stays near twice
            `memory`. With gradients everything is kept for the backward pass.
    """
    return _run(network, ball, rows, outward, memory, tighten_all=True, substitute=True)


METHODS: dict[str, Callable[..., Bounds]] = {"ibp": ibp, "crown-ibp": crown_ibp, "crown": crown}


def outward_arithmetic(name: str, network: nn.Module, ball: Ball, rows: Tensor | None, dtype: torch.dtype) -> Bounds:
    """The numbers of `sound(name)` and none of its checks, so that a caller who has made them can compile the rest.

    name   a key of METHODS
    ball   center (B, *obs) in float64, `Ball.unchecked`        rows  float64
    dtype  of the network, and of the result
    """
    rounding = Rounding(dtype)
    tighten_all, substitute = {"ibp": (False, False), "crown-ibp": (False, True), "crown": (True, True)}[name]
    exact, _ = _bounds(network, ball, rows, rounding, MEMORY, tighten_all, substitute)
    return rounding.outward(exact.lower, exact.upper)


def _run(
    network: nn.Module,
    ball: Ball,
    rows: Tensor | None,
    outward: bool,
    memory: int,
    tighten_all: bool,
    substitute: bool,
) -> Bounds:
    check_arguments(network, ball, rows, memory)
    if ball.center.shape[0] == 0:
        # No samples: run one and discard it, to learn the shape of the result.
        one = None if rows is None else rows.new_zeros((1, *rows.shape[1:]))
        return _run(network, _any_ball(ball), one, outward, memory, tighten_all, substitute)[:0]
    size = _samples_at_once(network, ball, memory) if substitute else ball.center.shape[0]
    if size < ball.center.shape[0]:
        parts = [
            _run(network, part, None if rows is None else rows if len(rows) == 1 else rows[start : start + size],
                 outward, memory, tighten_all, substitute)
            for start, part in _split(ball, size)
        ]  # fmt: skip
        return Bounds(torch.cat([part.lower for part in parts]), torch.cat([part.upper for part in parts]))
    if outward:
        check_arithmetic(network, ball.center.device, ball.center.dtype)
        rounding = Rounding(ball.center.dtype)
        before = Snapshot(original(network))
        wide = None if rows is None else rows.double()
        exact, traced = _bounds(network, _widened(ball), wide, rounding, memory, tighten_all, substitute)
        bounds = rounding.outward(exact.lower, exact.upper)
        check_witnesses(network, traced, ball, rows, bounds, before)
        return bounds
    rows = None if rows is None else rows.to(ball.center)
    return _bounds(network, ball, rows, None, memory, tighten_all, substitute)[0]


def _samples_at_once(network: nn.Module, ball: Ball, memory: int) -> int:
    """How many samples are bounded together: their intervals, and `_FORMS` forms of the widest layer, fit into memory.

    With gradients all of them, for autograd keeps everything until the end in any case.
    """
    batch = ball.center.shape[0]
    if batch <= _FEW or torch.is_grad_enabled():
        return batch
    try:  # one sample tells the sizes of all layers
        program = build(network, next(_split(ball, 1))[1], None, lambda program, node: None)
    except RuntimeError as error:
        check_center(network, ball, error)
        raise
    sizes = [node.interval.shape.numel() for node in program.nodes]
    numbers = 12 * (sum(sizes) + max(sizes) * min(max(sizes), _FORMS))
    return max(_FEW, memory // (8 * numbers))


def _split(ball: Ball, size: int) -> Iterator[tuple[int, Ball]]:
    """Where each part begins, and the balls of its samples."""
    for start in range(0, ball.center.shape[0], size):
        yield start, Ball(ball.center[start : start + size], ball.radius, ball.p, ball.low, ball.high)


def _bounds(
    network: nn.Module,
    ball: Ball,
    rows: Tensor | None,
    rounding: Rounding | None,
    memory: int,
    tighten_all: bool,
    substitute: bool,
) -> tuple[Bounds, Trace]:

    def tighten(program: Program, node: Node) -> None:
        # A box is not the image of an ℓ1 or ℓ2 ball even behind one affine layer; the dual norm is tighter there.
        outside_its_image = node.affine and ball.p != math.inf
        if not node.exact and (tighten_all or outside_its_image):
            better = enclose(program, node, None, never, memory)
            node.interval, node.exact = Interval.between(better.lower, better.upper), True

    try:
        program = build(network, ball, rounding, tighten)
    except RuntimeError as error:
        check_center(network, ball, error)
        raise
    _check_rows(program, rows)
    bounds = _read(program, rows, substitute, memory)
    return bounds if rounding is None else _known(program, bounds), program.traced


def _known(program: Program, bounds: Bounds) -> Bounds:
    """Nothing is known, ±∞, of samples with a value on the way that is not finite: ∞ − ∞ there proves nothing."""
    finite = [node.interval.magnitude.flatten(1).isfinite().all(1) for node in program.nodes]
    rows = torch.stack(finite).all(0).view(-1, *[1] * (bounds.lower.ndim - 1))
    known = rows & ~bounds.lower.isnan() & ~bounds.upper.isnan()
    return Bounds(torch.where(known, bounds.lower, -torch.inf), torch.where(known, bounds.upper, torch.inf))


def _read(program: Program, rows: Tensor | None, substitute: bool, memory: int) -> Bounds:
    output = program.output
    if rows is None and (output.exact or not substitute):
        interval = output.interval
        return Bounds(interval.lower, interval.upper)
    stop: Stop = never if substitute else at_nonlinear
    return enclose(program, output, rows, stop, memory)


def _widened(ball: Ball) -> Ball:
    """The same ball in float64; its numbers are those the network sees, exactly."""
    low, high = ball.range()
    return Ball(
        ball.center.double(),
        ball.budget()[0].double(),
        ball.p,
        None if low is None else low[0].double(),
        None if high is None else high[0].double(),
    )


def _any_ball(ball: Ball) -> Ball:
    """A single ball of the same kind, around the valid point nearest to zero."""
    low, high = ball.range()
    center = ball.center.new_zeros((1, *ball.center.shape[1:]))
    center = center if low is None else torch.maximum(center, low)
    center = center if high is None else torch.minimum(center, high)
    return Ball(center, ball.radius, ball.p, ball.low, ball.high)


def check_arguments(network: nn.Module, ball: Ball, rows: Tensor | None = None, memory: int = MEMORY) -> None:
    """Refuse wrong arguments, with one line each."""
    if not isinstance(network, nn.Module):
        raise BadInput(f"network must be a torch.nn.Module, got {type(network).__name__}")
    if not isinstance(ball, Ball):
        raise BadInput(f"ball must be a radial Ball, got {type(ball).__name__}")
    if not isinstance(memory, int) or memory <= 0:
        raise BadInput(f"memory must be a whole number of bytes > 0, got {memory!r}")
    for name, parameter in network.named_parameters():
        if parameter.dtype != ball.center.dtype or parameter.device != ball.center.device:
            raise BadInput(
                f"ball and network must agree: center is {ball.center.dtype} on {ball.center.device}, "
                f"parameter '{name}' is {parameter.dtype} on {parameter.device}"
            )
        break
    if rows is None:
        return
    if not isinstance(rows, Tensor) or rows.ndim != 3 or not rows.is_floating_point():
        what = f"{rows.dtype} {tuple(rows.shape)}" if isinstance(rows, Tensor) else type(rows).__name__
        raise BadInput(f"rows must be a floating tensor (B, K, A), got {what}")
    if rows.shape[0] not in (1, ball.center.shape[0]):
        raise BadInput(f"rows must have batch size {ball.center.shape[0]}, or 1 to share them, got {rows.shape[0]}")


def check_center(network: nn.Module, ball: Ball, error: RuntimeError) -> None:
    """Raise `BadInput` if the network itself cannot take the centre: then the caller is at fault, not a rule."""
    try:
        with torch.no_grad():
            network(ball.center[:1].to(next(network.parameters(), ball.center).dtype, copy=True))
    except RuntimeError:
        line = str(error).strip().splitlines()[0]
        raise BadInput(
            f"center must have the shape the network takes, got (B, *obs) = {tuple(ball.center.shape)}: {line}"
        ) from error


def _check_rows(program: Program, rows: Tensor | None) -> None:
    if rows is not None and program.output.interval.shape != rows.shape[2:]:
        raise BadInput(
            f"rows must have shape (B, K, A) where the network returns (B, A): "
            f"got {tuple(rows.shape)} for an output of shape {tuple(program.output.shape)}"
        )


def inner_values(network: nn.Module, ball: Ball) -> list[tuple[str, str, Interval]]:
    """Every value of the network over the ball, in order: its name, the kind of its operator, its box; by IBP.

    The fast form, for a look inside and for training: no certificate rests on it.
    """
    program = build(network, ball, None, lambda program, node: None)
    kinds = ("input" if node.op is None else type(node.op).__name__ for node in program.nodes)
    return [(node.name, kind, node.interval) for node, kind in zip(program.nodes, kinds, strict=True)]


def rectifier_inputs(network: nn.Module, ball: Ball) -> list[Interval]:
    """The box in front of each ReLU, by IBP, for the regularisers of training; no certificate rests on it."""
    program = build(network, ball, None, lambda program, node: None)
    return [node.inputs[0].interval for node in program.nodes if isinstance(node.op, ReLU)]


# ------------------------------------------------------------------------------------------------------ combinations


def mixed(first: BoundMethod | str, second: BoundMethod | str, weight: float) -> BoundMethod:
    """weight·first + (1 − weight)·second, as in SA-DQN and SA-PPO. A method with weight 0 is not run."""
    if not (isinstance(weight, Real) and 0 <= weight <= 1):
        raise BadInput(f"weight must be a number in [0, 1], got {weight!r}")
    weight = float(weight)
    one, two = method(first), method(second)
    if weight == 1:
        return one
    if weight == 0:
        return two

    def both(network: nn.Module, ball: Ball, rows: Tensor | None = None, *, outward: bool = False) -> Bounds:
        a, b = (_with(m, outward)(network, ball, rows) for m in (one, two))
        lower, upper = (weight * x + (1 - weight) * y for x, y in ((a.lower, b.lower), (a.upper, b.upper)))
        # Rounding must not push the mixture beyond the better of the two, which is itself a bound.
        return Bounds(
            torch.minimum(lower, torch.maximum(a.lower, b.lower)),
            torch.maximum(upper, torch.minimum(a.upper, b.upper)),
        )

    both.__name__ = f"{weight:g}·{method_name(one)} + {1 - weight:g}·{method_name(two)}"
    return both


def best_of(*methods: BoundMethod | str) -> BoundMethod:
    """The tightest of several methods, element by element."""
    if not methods:
        raise BadInput("best_of needs at least one method")
    each = [method(m) for m in methods]

    def tightest(network: nn.Module, ball: Ball, rows: Tensor | None = None, *, outward: bool = False) -> Bounds:
        found = [_with(m, outward)(network, ball, rows) for m in each]
        return Bounds(
            functools.reduce(torch.maximum, (bounds.lower for bounds in found)),
            functools.reduce(torch.minimum, (bounds.upper for bounds in found)),
        )

    tightest.__name__ = f"best of {', '.join(map(method_name, each))}"
    return tightest


def sound(base: BoundMethod | str) -> BoundMethod:
    """The same method, valid for the network in floating point: widened at every layer by the rounding errors.

    Covers the forward pass in the network's own dtype for every batch size, thread count and order of summation,
    and the rounding of x ± ε. See `bounds/rounding.py` for its limits.
    """
    found = method(base)
    if not is_ours(found):
        raise BadInput("sound() takes ibp, crown_ibp, crown, or a combination of them by mixed() or best_of()")
    already = isinstance(found, functools.partial) and found.keywords.get("outward")
    return found if already else functools.partial(found, outward=True)  # type: ignore[call-arg]


def is_ours(base: BoundMethod) -> bool:
    """Whether a method is built in, that is, can round outward."""
    try:
        return "outward" in inspect.signature(base).parameters
    except (TypeError, ValueError):  # builtins have no signature
        return False


def method_name(base: BoundMethod) -> str:
    """The name of a method in results."""
    inner = base.func if isinstance(base, functools.partial) else base
    return next((name for name, known in METHODS.items() if known is inner), getattr(inner, "__name__", repr(inner)))


def method(name: BoundMethod | str) -> BoundMethod:
    """The method of this name, or the given method itself."""
    if isinstance(name, str):
        if name not in METHODS:
            raise BadInput(f"bound method must be one of {', '.join(METHODS)}, got {name!r}")
        return METHODS[name]
    if not callable(name):
        raise BadInput(f"bound method must be a function or one of {', '.join(METHODS)}, got {name!r}")
    return name


def _with(base: BoundMethod, outward: bool) -> BoundMethod:
    return sound(base) if outward else base
