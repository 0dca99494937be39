"""Reads a traced network: every step becomes a node with a bound rule, or an error that names it.

Nothing is ever skipped. Values that do not depend on the input (weights, shapes, constants) are computed as the network
itself would compute them; every other step must have a rule in `layers`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx, nn

from radial.bounds import layers
from radial.bounds.affine import Op
from radial.bounds.functions import function_op
from radial.bounds.interval import Interval
from radial.bounds.layers import UnsupportedLayer
from radial.bounds.recurrent import CELLS, Emit, cell_step
from radial.bounds.rounding import Rounding
from radial.bounds.tracing import IN_PLACE, Trace, attribute, root_of, trace
from radial.core.ball import Ball
from radial.core.data import BadInput


@dataclass(eq=False, slots=True)
class Node:
    """A value of the network that depends on the input: its operator, its inputs, and its interval."""

    name: str
    op: Op | None  # None: the input itself
    inputs: list["Node"]
    interval: Interval
    error: Tensor | None  # (B, *shape), float64: how far floating point may move it; None in the fast form
    affine: bool  # an affine function of the network's input
    boxed: bool  # for p = ∞: each element is a function of one input element, so products of intervals are exact
    exact: bool  # for p = ∞: the interval cannot be improved

    @property
    def shape(self) -> torch.Size:
        """(B, *shape)."""
        return self.interval.center.shape


@dataclass(eq=False)
class Program:
    """The network as the list of its nodes in the order of computation, with an interval at each."""

    ball: Ball
    rounding: Rounding | None
    nodes: list[Node] = field(default_factory=list)
    output: Node = field(init=False, repr=False)  # the value the network returns
    traced: Trace = field(init=False, repr=False)

    def add_input(self) -> Node:
        """Add the ball itself as the first node."""
        if self.ball.clipped:
            box = self.ball.box()
            interval = Interval.between(box.lower, box.upper)
        else:
            interval = Interval(self.ball.center, self.ball.budget())
        error = None
        if self.rounding is not None:
            error = self.rounding.input_error(interval.magnitude)
            interval = Interval(interval.center, interval.radius + error)
        is_box = self.ball.p == torch.inf
        node = Node("input", None, [], interval, error, affine=True, boxed=is_box, exact=is_box)
        self.nodes.append(node)
        return node

    def add(self, name: str, op: Op, inputs: list[Node]) -> Node:
        """Add the image of nodes under an operator, widened by its rounding error."""
        interval = op.interval(*[node.interval for node in inputs])
        error = None
        if self.rounding is not None:
            sizes = [node.interval.magnitude + self.rounding.smallest_input for node in inputs]
            spread = op.spread + interval.shape.numel()
            inference = op.inference(*sizes)
            error = self.rounding.error(op.terms, spread, inference, op.magnitude(*sizes), inference * op.partial)
            interval = Interval(interval.center, interval.radius + error)
        if interval.center.ndim < 2:
            raise UnsupportedLayer(f"the value at '{name}' has no axis besides the batch; keep one (keepdim, [:, :1])")
        affine, boxed = op.affine, True
        for node in inputs:
            affine, boxed = affine and node.affine, boxed and node.boxed
        node = Node(
            name,
            op,
            inputs,
            interval,
            error,
            affine=affine,
            # A layer that repeats elements (by broadcasting, say) leaves them correlated.
            boxed=boxed and op.separable and interval.center.numel() <= inputs[0].interval.center.numel(),
            exact=boxed and op.affine and len(inputs) == 1,
        )
        self.nodes.append(node)
        return node


Tighten = Callable[[Program, Node], None]


def build(network: nn.Module, ball: Ball, rounding: Rounding | None, tighten: Tighten) -> Program:
    """Interpret the traced network on intervals.

    tighten  called on each node that a nonlinear layer is about to use, and on the output; it may replace the interval
    """
    traced, modules = trace(network, sound=rounding is not None)
    root = root_of(network, traced)
    program = Program(ball, rounding)
    program.traced = traced
    values: dict[Any, Any] = {}
    for step in traced.steps:
        node, rule = step
        layer = modules[str(node.target)] if node.op == "call_module" else None
        rule = None if type(layer) in CELLS else rule  # a cell is several operators
        if rule is not None and isinstance(values[node.args[0]], Node):  # the common case, for speed
            x = values[node.args[0]]
            context = layers.Context(node, root, x, rounding is not None)
            result = _apply(layers.Applied(rule(context, layer), [x]), node, program, tighten)
        else:
            result = _evaluate(node, layer, values, root, traced, program, tighten)
        values[node] = result
    if not isinstance(result, Node):
        kind = "a constant" if isinstance(result, (Tensor, int, float)) else f"a {type(result).__name__}"
        raise BadInput(f"network must return one tensor that depends on its input, got {kind}")
    tighten(program, result)
    program.output = result
    return program


def _evaluate(
    node: fx.Node,
    layer: nn.Module | None,
    values: dict[Any, Any],
    root: nn.Module,
    traced: Trace,
    program: Program,
    tighten: Tighten,
) -> Any:
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda used: values[used])
    if node.op == "output":
        return args[0]
    if node.op == "placeholder":
        return _input(node, args, program)
    if node.op == "get_attr":
        target = str(node.target)
        return traced.constants[target] if target in traced.constants else attribute(root, target)
    sets = [value for value in _leaves((args, kwargs)) if isinstance(value, Node)]
    if not sets:
        return _compute(node, layer, args, kwargs)
    context = layers.Context(node, root, sets[0], program.rounding is not None)
    if layer is not None:
        emit: Emit = lambda op, inputs: _apply(layers.Applied(op, inputs), node, program, tighten)  # noqa: E731
        return cell_step(context, layer, args, kwargs, emit)
    return _apply(function_op(context, args, kwargs), node, program, tighten)


def _apply(built: Any, node: fx.Node, program: Program, tighten: Tighten) -> Any:
    if not isinstance(built, layers.Applied):
        return built  # the answer to a question about shapes
    if not built.op.affine:
        for used in built.inputs:
            tighten(program, used)
    return program.add(node.name, built.op, built.inputs)


def _input(node: fx.Node, default: tuple[Any, ...], program: Program) -> Any:
    if not program.nodes:
        return program.add_input()
    if not default:
        raise BadInput(f"network must take one input, but forward also asks for '{node.target}'")
    return default[0]


def _compute(node: fx.Node, layer: nn.Module | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Compute a weight, shape or constant, which does not depend on the input, as the network would."""
    name = str(getattr(node.target, "__name__", node.target))
    writes = layer is None and name.endswith("_") and not name.endswith("__")
    writes = writes or (node.target in IN_PLACE and not isinstance(args[0], (int, float, tuple)))
    if writes or "out" in kwargs or kwargs.get("inplace") or getattr(layer, "inplace", False):
        raise UnsupportedLayer(
            f"no bound rule for {name} at '{node.name}', which changes a tensor of the network in place"
        )
    if layer is not None:
        return layer(*args, **kwargs)
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)
    return node.target(*args, **kwargs)  # type: ignore[operator]


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, (tuple, list)):
        for part in value:
            yield from _leaves(part)
    elif isinstance(value, dict):
        for part in value.values():
            yield from _leaves(part)
    else:
        yield value
