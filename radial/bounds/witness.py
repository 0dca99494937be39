"""The checks before a sound bound is believed: that the trace is the network, and the network a function.

The steps that were bounded are run again on fresh copies, so that no write into shared memory can be seen, and compared
with the network itself at points of the ball; its parameters, buffers, attributes and whatever else its forward can
reach must be as they were.
"""

import dis
import functools
import itertools
import random
import struct
import types
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn

from radial.bounds.layers import UnsupportedLayer
from radial.bounds.tracing import Trace, attribute, original, root_of
from radial.core.ball import Ball
from radial.core.data import Bounds

_ROWS = 4  # samples that are compared one by one
_CLOSE = 2.0**-14  # relative to the largest value inside the network: far above rounding, far below another function
_OBJECTS = 20_000  # that are looked at, attributes within attributes; a network that holds more is refused
_HOOKS = {key for key in vars(nn.Module()) if "hook" in key}
_METHODS = (types.FunctionType, staticmethod, classmethod, property)
_NOT_FUNCTIONS = ("time", "random", "secrets", "uuid", "datetime")  # modules a forward must not ask


# ---------------------------------------------------------------------------------------------------- random and state


def generator_states() -> tuple[bytes, ...]:
    """The states of the global generators of torch, numpy and Python."""
    kind, keys, *rest = np.random.get_state(legacy=True)
    return (
        torch.get_rng_state().numpy().tobytes(),
        repr((kind, rest)).encode() + np.asarray(keys).tobytes(),
        str(hash(random.getstate())).encode(),
    )


class Snapshot:
    """Everything a network's forward could change: its tensors as copies, everything else by value or identity."""

    def __init__(self, network: nn.Module) -> None:
        self.marks: list[object] = []
        self.tensors: list[Tensor] = []
        self._seen: set[int] = set()
        self._modules = {id(module) for module in network.modules()}
        self._kept: list[object] = []  # alive, so that no identity is given twice
        self.generators = generator_states()
        for name, module in network.named_modules():
            self.marks.append(name)
            for key, value in vars(module).items():
                if key in _HOOKS:  # refused elsewhere
                    continue
                self._look(key, value)
            self._look_at_class(type(module))

    def same(self, other: "Snapshot") -> bool:
        """Whether nothing has changed."""
        if self.marks != other.marks or len(self.tensors) != len(other.tensors):
            return False
        return all(_equal(a, b) for a, b in zip(self.tensors, other.tensors, strict=True))

    def _look_at_class(self, cls: type) -> None:
        """Class attributes, and of the methods only those that the forward can call: others may draw numbers."""
        own = [base for base in cls.__mro__ if not _ours(base.__module__)]
        members = {key: value for base in reversed(own) for key, value in vars(base).items() if key[:2] != "__"}
        called, waiting = set[str](), ["forward"]
        while waiting:
            name = waiting.pop()
            function = getattr(members.get(name), "__func__", members.get(name))
            if name not in called and isinstance(function, types.FunctionType):
                waiting += function.__code__.co_names
            called.add(name)
        for key, value in members.items():
            if key in called or not isinstance(value, _METHODS):
                self._look(key, value)

    def _look(self, key: object, value: Any) -> None:
        """Add a value and whatever can be reached from it, however deep it lies."""
        waiting = [(key, value)]
        while waiting:
            key, value = waiting.pop()
            if isinstance(value, (bool, int, float, str, bytes, type(None))):
                self.marks.append((key, type(value).__name__, repr(value)))
                continue
            self.marks.append((key, id(value)))
            self._kept.append(value)
            if id(value) not in self._seen and id(value) not in self._modules:
                self._seen.add(id(value))
                waiting += self._inside(value)
            if len(self._seen) > _OBJECTS:
                raise UnsupportedLayer(f"network must hold at most {_OBJECTS:,} objects, so that all can be watched")

    def _inside(self, value: Any) -> list[tuple[object, Any]]:
        """The parts of a value that are still to be looked at; a tensor or a generator is recorded at once."""
        if isinstance(value, Tensor):
            self.marks.append((tuple(value.shape), str(value.dtype), -1 if value.is_inference() else value._version))
            self.tensors.append(value.detach().clone())
        elif (state := _state(value)) is not None:
            self.marks.append(state)
        else:
            return list(_parts(value))
        return []


def _equal(a: Tensor, b: Tensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype or a.device != b.device:
        return False
    return torch.equal(a, b) or bool(((a == b) | ((a != a) & (b != b))).all())


def _state(value: Any) -> object:
    """The position of a generator of random numbers or of a counter; None: it is neither."""
    if isinstance(value, torch.Generator):
        return value.get_state().numpy().tobytes()
    if isinstance(value, random.Random):
        return hash(value.getstate())
    if isinstance(value, np.random.Generator):
        return repr(value.bit_generator.state)
    if isinstance(value, np.random.RandomState):
        return repr(value.get_state(legacy=False))
    if isinstance(value, np.ndarray):
        return value.tobytes()
    return repr(value) if isinstance(value, itertools.count) else None


def _parts(value: Any) -> Iterator[tuple[object, Any]]:
    """The values inside a container, an object or a function of the user's own."""
    if isinstance(value, dict):
        yield from list(value.items())
    elif isinstance(value, (list, tuple, set, frozenset, deque)):
        yield from enumerate(list(value))
    elif isinstance(value, types.ModuleType):
        if value.__name__ in _NOT_FUNCTIONS:
            raise UnsupportedLayer(
                f"network must be a function of its input: its forward asks the module '{value.__name__}'"
            )
    elif isinstance(value, types.MethodType):
        yield "self", value.__self__
        yield "function", value.__func__
    elif isinstance(value, (staticmethod, classmethod)):
        yield "function", value.__func__
    elif isinstance(value, property):
        yield from (("get", value.fget), ("set", value.fset))
    elif isinstance(value, types.FunctionType):
        yield from _reached(value)
    elif not isinstance(value, type) and not _ours(type(value).__module__):
        yield from list(getattr(value, "__dict__", {}).items())
        slots = [name for base in type(value).__mro__ for name in vars(base).get("__slots__", ())]
        yield from ((name, getattr(value, name, None)) for name in slots if not name.startswith("__"))


def _reached(function: types.FunctionType) -> Iterator[tuple[object, Any]]:
    """The defaults, closure and globals of a function, unless it is torch's or radial's."""
    if _ours(function.__module__ or ""):
        return
    yield from enumerate(function.__defaults__ or ())
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not yet set
            continue
    for name in _global_names(function.__code__):
        if name in function.__globals__:
            yield name, function.__globals__[name]


@functools.lru_cache(maxsize=1024)
def _global_names(code: types.CodeType) -> tuple[str, ...]:
    """The globals that a piece of code reads, those of functions inside it included."""
    names = [str(step.argval) for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL"]
    inner = [_global_names(constant) for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return (*dict.fromkeys(itertools.chain(names, *inner)),)


def _ours(module: str) -> bool:
    """Whether a module is torch's, radial's or Python's own, whose functions keep no state of a network."""
    return module.split(".")[0] in ("torch", "radial", "builtins", "numpy", "typing", "collections", "abc", "functools")


# ------------------------------------------------------------------------------------------------------------- replay


def replay(network: nn.Module, traced: Trace, x: Tensor) -> tuple[Tensor, float]:
    """Run a trace as the bounds read it, each step on copies of its own; and the largest value on the way."""
    root, values, largest, given = root_of(network, traced), dict[fx.Node, Any](), 0.0, False
    for node, _ in traced.steps:
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda used: _copied(values[used]))
        if node.op == "output":
            assert isinstance(args[0], Tensor)
            return args[0], largest
        if node.op == "placeholder":
            value, given = (args[0] if given else x.clone()), True
        elif node.op == "get_attr":
            target = str(node.target)
            value = traced.constants[target] if target in traced.constants else attribute(root, target)
        else:
            value = _call(root, node)(*args, **kwargs)
        if isinstance(value, Tensor) and value.is_floating_point() and value.numel() and node.op != "get_attr":
            largest = max(largest, float(value.detach().abs().nan_to_num(0.0, 0.0).max()))
        values[node] = value
    raise AssertionError("a trace ends with its output")


def _call(root: nn.Module, node: fx.Node) -> Callable[..., Any]:
    if node.op == "call_module":
        return root.get_submodule(str(node.target))
    if node.op == "call_method":
        name = str(node.target)
        return lambda own, *rest, **named: getattr(own, name)(*rest, **named)
    assert callable(node.target)
    return node.target


def _copied(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value


# ---------------------------------------------------------------------------------------------------------- the checks


@torch.no_grad()
def check_witnesses(
    network: nn.Module, traced: Trace, ball: Ball, rows: Tensor | None, bounds: Bounds, before: Snapshot
) -> None:
    """Refuse a network that is not what was traced, or is no function of its input, sample by sample."""
    _check_generators(before)
    box, rng = ball.box(), torch.Generator().manual_seed(_seed(ball.center))
    inside = ball.project(ball.sample(rng, "uniform"))
    proven = torch.isfinite(bounds.lower) & torch.isfinite(bounds.upper)
    for x in (ball.center, ball.project(box.lower), ball.project(box.upper), inside):
        y = _outputs(network, x)
        seen = y if rows is None else (rows.double() @ y.double().unsqueeze(-1)).squeeze(-1)
        if seen.shape != bounds.lower.shape or bool((proven & ~bounds.contains(seen)).any()):
            raise UnsupportedLayer(
                "network must compute what torch.fx traces: run on a point of the ball, it left its own bounds "
                "(does its forward ask what kind of object its input is, or does as_linear() disagree with it?)"
            )
    _check_replay(network, traced, inside, y, rng)
    if not before.same(Snapshot(original(network))):
        raise UnsupportedLayer(
            "network must not change itself: a parameter, buffer, attribute or counter moved in its forward"
        )
    _check_generators(before)


def _check_generators(before: Snapshot) -> None:
    if before.generators != generator_states():
        raise UnsupportedLayer("network must be deterministic: its forward draws random numbers")


def _check_replay(network: nn.Module, traced: Trace, x: Tensor, y: Tensor, rng: torch.Generator) -> None:
    """Compare the trace with the network, and the network with itself: again, in another batch, with gradients."""
    count = _ROWS if x[0].numel() < 1000 else 1
    at = torch.randperm(len(x), generator=rng)[:count].to(x.device)
    again = torch.cat([at, at[:1]] if len(at) + 1 != len(x) else [at, at[:1], at[:1]])  # another batch size, always
    some = x[again]
    expected, largest = replay(network, traced, some)
    if expected.shape != (len(again), *y.shape[1:]):
        raise UnsupportedLayer("network must return one row for each sample of its batch")
    close = _CLOSE * max(largest, torch.finfo(x.dtype).tiny)
    if _apart(expected, y[again], close):
        own = _outputs(network, some)
        if _apart(own, y[again], close):
            raise UnsupportedLayer(
                "network must be a function of each sample alone: run again in a batch of another size, it answered "
                "differently (does it count its calls, draw numbers, or use the batch size as a number?)"
            )
        raise UnsupportedLayer(
            "network must compute what torch.fx traces: its traced steps, each on copies of its own, gave another "
            "answer (does its forward write into a tensor that has a second name?)"
        )
    with torch.enable_grad():
        own = _outputs(network, some).detach()
    if _apart(own, y[again], close):
        raise UnsupportedLayer(
            "network must be a function of each sample alone: run again in a batch of another size, or with gradients, "
            "it answered differently (does it count its calls, or use the batch size as a number?)"
        )


def _outputs(network: nn.Module, x: Tensor) -> Tensor:
    y: Tensor = network(x.clone())  # a copy, for some networks overwrite their input
    return y


def _apart(a: Tensor, b: Tensor, close: float) -> bool:
    """Whether two answers differ by more than rounding; NaN and inf equal themselves."""
    if a.shape != b.shape:
        return True
    return bool((((a - b).abs() > close) | (a.isfinite() != b.isfinite())).any())


def _seed(x: Tensor) -> int:
    """A seed that belongs to the samples, so that the same question gets the same answer."""
    total = float(x.double().sum())
    return int.from_bytes(struct.pack("<d", total)[:7], "little")
