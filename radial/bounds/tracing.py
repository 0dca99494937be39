"""Writes down a network's forward as a list of steps: torch.fx with proxies that also see writes into a tensor.

`h += y` on fx's own proxies is recorded as `h + y`, which is wrong wherever another name still means the old tensor.
Here it is a step of its own, and each write that cannot be recorded is refused.
"""

import operator
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor, fx, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from radial.bounds import layers
from radial.bounds.layers import UnsupportedLayer
from radial.core.data import BadInput

# Augmented assignments, which write into their first operand.
IN_PLACE = (
    operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ifloordiv, operator.imod, operator.ipow,
    operator.imatmul, operator.iand, operator.ior, operator.ixor, operator.ilshift, operator.irshift, operator.setitem,
)  # fmt: skip


class _Writes:
    """The part of a proxy that sees writes: augmented assignments become steps, all others are refused."""

    tracer: Any

    def __getattr__(self, name: str) -> Any:
        return _Part(self, name)  # type: ignore[arg-type]

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in ("tracer", "node", "root", "attr", "_node"):  # fx's own
            _refuse_write(f"the attribute .{name} of a tensor")
        object.__setattr__(self, name, value)

    def __setitem__(self, index: Any, value: Any) -> None:
        _refuse_write("elements of a tensor")

    def __delitem__(self, index: Any) -> None:
        _refuse_write("elements of a tensor")


def _refuse_write(what: str) -> NoReturn:
    raise UnsupportedLayer(f"no bound rule for a forward that writes in place into {what}")


def _recorded(target: Any) -> Any:
    return lambda self, other: self.tracer.create_proxy("call_function", target, (self, other), {})


for _target in IN_PLACE[:-1]:
    setattr(_Writes, f"__{_target.__name__}__", _recorded(_target))


class _Recorded(_Writes, fx.Proxy):
    """A value of the network while it is traced."""


class _Part(_Writes, fx.proxy.Attribute):
    """An attribute of such a value, or its method before the call."""


class _Tracer(fx.Tracer):
    """fx's tracer, which stops at every module that has a rule and writes nothing into the network.

    sound  trace into modules that only declare themselves linear, for the rounding of their forward counts
    """

    proxy_buffer_attributes = True  # arithmetic on buffers is done at every call, not once

    def __init__(self, sound: bool) -> None:
        super().__init__()
        self.sound = sound
        self.constants: dict[str, Tensor] = {}

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return _Recorded(node, self)

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
    network = original(network)
    fingerprint, modules = inspect(network)
    known = _TRACES.get(network)
    if not sound and fingerprint is not None and known is not None and known[0] == fingerprint:
        return known[1], {"0": network} if known[1].single else modules
    tracer = _Tracer(sound)
    # fx would look inside a network that is a single layer; in a container it is called as a whole.
    single = tracer.is_leaf_module(network, "")
    root = nn.Sequential(network) if single else network
    try:
        with _as_it_was(modules.values(), refuse=sound):
            graph = tracer.trace(root)
    except UnsupportedLayer:
        raise
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
_HOOKS = torch.nn.modules.module
_CALL = nn.Module._call_impl
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
        if module._compiled_call_impl is not None or type(module)._call_impl is not _CALL or "_call_impl" in state:
            raise UnsupportedLayer(
                f"the call of {type(module).__name__} at '{name or 'the network'}' was replaced (by compile()?); "
                "torch.fx would miss it"
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


def original(network: nn.Module) -> nn.Module:
    """The module inside torch.compile's wrapper, which computes the same; any other network as it is."""
    compiled = type(network).__name__ == "OptimizedModule" and type(network).__module__.startswith("torch._dynamo")
    return network.get_submodule("_orig_mod") if compiled else network


def root_of(network: nn.Module, traced: Trace) -> nn.Module:
    """The module whose paths the steps of a trace name."""
    network = original(network)
    return nn.Sequential(network) if traced.single else network


def attribute(module: nn.Module, path: str) -> Any:
    """The parameter or buffer of this path."""
    *parents, name = path.split(".")
    return getattr(module.get_submodule(".".join(parents)), name)


@contextmanager
def _as_it_was(modules: Iterable[nn.Module], refuse: bool) -> Iterator[None]:
    """Put back attributes that tracing a forward set, which may be proxies; refuse such a forward if asked."""
    kept = [(module, dict(vars(module))) for module in modules]
    try:
        yield
    finally:
        changed = []
        for module, before in kept:
            now = vars(module)
            if now.keys() != before.keys() or any(now[key] is not before[key] for key in before):
                changed += [key for key in {*now, *before} if now.get(key) is not before.get(key)]
                now.clear()
                now.update(before)
    if changed and refuse:
        raise UnsupportedLayer(f"the forward sets self.{min(changed)}: a network that changes itself has no bounds")
