"""Reads a network: torch.fx traces it, and every step becomes a node with a bound rule or an error that names it.

Nothing is ever skipped. Values that do not depend on the input (weights, shapes, constants) are computed as the network
itself would compute them; every other step must have a rule in `layers`.
"""

import operator
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from radial.bounds import layers
from radial.bounds.affine import Op
from radial.bounds.functions import function_op
from radial.bounds.interval import Interval
from radial.bounds.layers import UnsupportedLayer
from radial.bounds.recurrent import CELLS, Emit, cell_step
from radial.bounds.rounding import Rounding
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
    compiled = type(network).__name__ == "OptimizedModule" and type(network).__module__.startswith("torch._dynamo")
    if compiled:  # torch.compile's wrapper computes the same as the module inside
        network = network.get_submodule("_orig_mod")
    traced, modules = trace(network, sound=rounding is not None)
    root = nn.Sequential(network) if traced.single else network
    program = Program(ball, rounding)
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
    traced: "Trace",
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
        return traced.constants[target] if target in traced.constants else _attribute(root, target)
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
    if layer is not None:
        return layer(*args, **kwargs)
    name = str(getattr(node.target, "__name__", node.target))
    if (node.op == "call_method" and name.endswith("_")) or node.target in _IN_PLACE:
        raise UnsupportedLayer(
            f"no bound rule for {name} at '{node.name}', which changes a tensor of the network in place"
        )
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


def _attribute(module: nn.Module, path: str) -> Any:
    *parents, name = path.split(".")
    return getattr(module.get_submodule(".".join(parents)), name)


# --------------------------------------------------------------------------------------------------------- tracing


class _Tracer(fx.Tracer):
    """fx's tracer, which stops at every module that has a rule and writes nothing into the network.

    sound  trace into modules that only declare themselves linear, for the rounding of their forward counts
    """

    proxy_buffer_attributes = True  # arithmetic on buffers is done at every call, not once

    def __init__(self, sound: bool) -> None:
        super().__init__()
        self.sound = sound
        self.constants: dict[str, Tensor] = {}

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return layers.has_rule(m, self.sound) or super().is_leaf_module(m, module_qualified_name)

    def create_arg(self, a: Any) -> Any:
        # fx would store a tensor made in forward as an attribute of the network.
        if isinstance(a, Tensor) and not isinstance(a, nn.Parameter) and not self._is_buffer(a):
            name = f"_constant_{len(self.constants)}"
            self.constants[name] = a
            return self.create_node("get_attr", name, (), {})
        return super().create_arg(a)

    def _is_buffer(self, a: Tensor) -> bool:
        return any(a is buffer for buffer in self.root.buffers())


class TracedStep(NamedTuple):
    """One line of the traced forward, and for a module called with one positional argument its rule."""

    node: fx.Node
    rule: layers.LayerRule | None


class Trace(NamedTuple):
    """The traced forward, and the tensors it makes. Holds no module, so that it does not keep a network alive."""

    steps: list[TracedStep]
    constants: dict[str, Tensor]
    single: bool  # the network is one layer, traced inside a container


_TRACES: "weakref.WeakKeyDictionary[nn.Module, tuple[object, Trace]]" = weakref.WeakKeyDictionary()


def trace(network: nn.Module, sound: bool = False) -> tuple[Trace, dict[str, nn.Module]]:
    """The network's forward as a list of steps, and the modules they name.

    The fast form reuses the last trace while the modules and their attributes are unchanged, as far as that can be
    seen: a change of a class attribute or a global cannot. The sound form traces anew each time.
    """
    fingerprint, modules = inspect(network)
    known = _TRACES.get(network)
    if not sound and fingerprint is not None and known is not None and known[0] == fingerprint:
        return known[1], {"0": network} if known[1].single else modules
    tracer = _Tracer(sound)
    # fx would look inside a network that is a single layer; in a container it is called as a whole.
    single = tracer.is_leaf_module(network, "")
    root = nn.Sequential(network) if single else network
    try:
        graph = tracer.trace(root)
    except fx.proxy.TraceError as error:
        raise UnsupportedLayer(
            f"the forward of {type(network).__name__} has control flow that depends on its input "
            f"(an if, a loop or an assert on the tensor or its shape), which no bound can follow: {_line(error)}"
        ) from error
    except Exception as error:
        raise UnsupportedLayer(f"torch.fx cannot trace {type(network).__name__}: {_line(error)}") from error
    steps = []
    for node in graph.nodes:
        simple = node.op == "call_module" and len(node.args) == 1 and not node.kwargs
        simple = simple and isinstance(node.args[0], fx.Node)
        steps.append(TracedStep(node, layers.rule_for(root.get_submodule(str(node.target)), sound) if simple else None))
    result = Trace(steps, tracer.constants, single)
    if not sound and not tracer.constants:  # a tensor made in forward may differ the next time
        _TRACES[network] = fingerprint, result
    return result, {"0": network} if single else modules


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no message'}"


_PLAIN = (bool, int, float, str, type(None))
_INTERNAL = set(vars(nn.Module())) - {"training"}  # torch's own bookkeeping
_IN_PLACE = (operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.setitem)
_HOOKS = torch.nn.modules.module
_BY_MODE = (_BatchNorm, _DropoutNd)  # layers whose output depends on the mode


def inspect(network: nn.Module) -> tuple[list[object] | None, dict[str, nn.Module]]:
    """A fingerprint of all that a trace visibly depends on, or None if too much is hidden; and the modules by name.

    Refuses anything tracing would miss: hooks, a forward or a __call__ put over the network's own, and layers in train
    mode, which draw random numbers or mix samples.
    """
    if isinstance(network, torch.jit.ScriptModule):
        raise UnsupportedLayer("network must be an ordinary torch.nn.Module: torch.fx cannot trace a scripted one")
    if "forward" in vars(network) or type(network).__call__ is not nn.Module.__call__:
        raise UnsupportedLayer(
            f"the forward or __call__ of {type(network).__name__} was replaced; torch.fx would miss it"
        )
    if _HOOKS._global_forward_hooks or _HOOKS._global_forward_pre_hooks:
        raise UnsupportedLayer(
            "global forward hooks are registered; they may change what a layer computes: remove them"
        )
    parts: list[object] = []
    modules = dict(network.named_modules(remove_duplicate=False))
    lasting = True
    for name, module in modules.items():
        state = module.__dict__
        if state["_forward_hooks"] or state["_forward_pre_hooks"]:
            raise UnsupportedLayer(
                f"{type(module).__name__} at '{name or 'the network'}' has forward hooks, which may change what it "
                "computes: remove them (for weight_norm and spectral_norm use torch.nn.utils.parametrizations)"
            )
        if state["training"] and isinstance(module, _BY_MODE):
            raise BadInput(f"network must be in eval mode: {type(module).__name__} at '{name}' is in train mode")
        parts += (name, id(module))
        lasting = _describe(module, parts) and lasting
    return parts if lasting else None, modules


def _describe(module: nn.Module, parts: list[object]) -> bool:
    """Add a module's own attributes to a fingerprint; False if they could change without changing it."""
    torch_layer = type(module) in layers.MODULES or type(module) is nn.Sequential
    state = vars(module)
    for key in state.keys() - _INTERNAL:
        value = state[key]
        if isinstance(value, _PLAIN):
            parts += (key, value)
        elif key == "forward" or not torch_layer:  # functions and objects by identity
            if isinstance(value, (list, tuple, dict, set)):
                return False  # its contents may change unseen
            parts += (key, id(value))
    return True
