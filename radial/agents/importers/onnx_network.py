"""Builds a torch network from an ONNX graph: the operators that bound rules cover, each as a layer or a torch function.

Shapes are followed on tensors without memory, so that a graph made to grow is refused before anything is computed.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from radial.agents.foreign import WrappedAgent, wrap
from radial.agents.importers.archive import file_source, untrusted
from radial.agents.importers.inert import refuse, short
from radial.agents.importers.onnx_fold import fold
from radial.agents.importers.onnx_graph import OnnxGraph, OnnxNode, read_graph
from radial.agents.importers.onnx_layers import OPERATORS, Call, Operand, Operation
from radial.agents.preprocessing import AsFloat, Frames, RunningScale
from radial.core.agent import Card
from radial.core.checks import is_finite
from radial.core.data import BadInput

KINDS = ("q", "categorical", "gaussian")
SAMPLES = 2  # in which shapes are followed, where the file leaves the batch open: a mixture of samples shows
LARGEST = 1 << 24  # numbers in one value of one sample
LAST = ("Softmax", "LogSoftmax")  # left out at the end of a categorical policy, whose outputs we take for logits


def read_onnx(path: Path, kind: str | None = None) -> WrappedAgent:
    """The agent of an `.onnx` file.

    kind  what its outputs are; None: what `radial export` noted in the file
    """
    graph = read_graph(path)
    told: Any = graph.notes.get("kind") if kind is None else kind
    if told not in KINDS:
        why = "an ONNX file does not say what its outputs are" if told is None else f"got {str(told)[:60]!r}"
        raise BadInput(f"{path}: kind must be one of {', '.join(KINDS)} (--kind on the command line): {why}")
    with untrusted(path):
        body, outputs = _Builder(graph, told).build()
    door, limits = _door(path, graph)
    agent = wrap(
        body, told, door, actions=outputs, observation_shape=graph.shape, valid_range=limits,
        clips_actions=told == "gaussian" and graph.notes.get("clips_actions") is not False,
    )  # fmt: skip
    agent.card = Card(env=None, recipe={"name": f"{told} network of an ONNX file"}, source=file_source(path))
    return agent


def _door(path: Path, graph: OnnxGraph) -> tuple[nn.Module, tuple[float, float] | None]:
    """What is done to observations before the network: nothing, or what `radial export` noted."""
    told = graph.notes.get("prepare", "as-is")
    if told == "frames":
        return Frames(graph.shape[0]), (0.0, 1.0)
    if told == "as-is":
        return AsFloat(), None
    facts = told if isinstance(told, dict) else {}
    numbers = [facts.get(name) for name in ("mean", "std")]
    size = graph.shape[0] if len(graph.shape) == 1 else -1
    whole = [isinstance(each, list) and len(each) == size and all(map(is_finite, each)) for each in numbers]
    if not all(whole) or not is_finite(facts.get("clip")) or min(numbers[1] or [0]) <= 0 or facts["clip"] <= 0:
        raise BadInput(
            f"{path}: what is done to observations before its network is not known; use rr.wrap with prepare"
        )
    mean, std = (torch.tensor(each, dtype=torch.float64) for each in numbers)
    return RunningScale(mean, std**2, float(facts["clip"]), 0.0, 2.0), None


class OnnxNetwork(nn.Module):
    """The steps of a graph, one after the other: layers, and functions of values and constants."""

    def __init__(self, layers: Sequence[nn.Module], constants: Sequence[Tensor], steps: Sequence["_Work"]) -> None:
        super().__init__()
        self.layers, self.steps = nn.ModuleList(layers), tuple(steps)
        for i, each in enumerate(constants):
            self.register_buffer(f"constant{i}", each)

    def forward(self, x: Tensor) -> Tensor:
        """(B, *obs) → (B, A)."""
        values = {0: x}
        for step in self.steps:
            given = [self._found(each, values) for each in step.args]
            values[step.made] = self.layers[step.does](*given) if isinstance(step.does, int) else step.does(*given)
        return values[self.steps[-1].made]

    def _found(self, given: Any, values: dict[int, Tensor]) -> Any:
        if isinstance(given, list | tuple):
            return type(given)(self._found(each, values) for each in given)
        if isinstance(given, Fixed):
            return getattr(self, f"constant{given.number}")
        return values[given.number] if isinstance(given, Moving) else given


@dataclass(frozen=True)
class Moving:
    """A value that depends on the input: its number, and its shape on the meta device."""

    number: int
    like: Tensor


@dataclass(frozen=True)
class Fixed:
    """The constant with this number."""

    number: int


@dataclass(frozen=True)
class _Work:
    """One step: a layer by its number or a function, its arguments, the number of the value it makes."""

    does: int | Callable[..., Any]
    args: Sequence[Any]
    made: int


class _Builder:
    def __init__(self, graph: OnnxGraph, kind: str) -> None:
        self.graph, self.kind = graph, kind
        self.batch = graph.batch or SAMPLES
        self.values: dict[str, Moving | Tensor] = dict(graph.constants)
        self.layers: list[nn.Module] = []
        self.constants: list[Tensor] = []
        self.work: list[_Work] = []

    def build(self) -> tuple[nn.Module, int]:
        """The network in eval mode, and how many outputs it has."""
        graph = self.graph
        if graph.input in self.values:
            refuse("its input has the name of a constant")
        self.values[graph.input] = Moving(0, torch.empty((self.batch, *graph.shape), device="meta"))
        for node in graph.nodes:
            self._step(node)
        end = self.values.get(graph.output)
        if not isinstance(end, Moving):
            refuse("its output does not depend on its input")
        if end.like.ndim != 2 or end.like.shape[0] != self.batch or not self.work:
            refuse(f"its output must have the shape (batch, actions), got {tuple(end.like.shape)}")
        network = self._network(end.number)
        return network.eval().requires_grad_(False), end.like.shape[1]

    def _network(self, end: int) -> nn.Module:
        """What the output needs; a plain chain of layers is a Sequential, which can be converted and trained."""
        needed, kept = {end}, []
        for step in reversed(self.work):
            if step.made in needed:
                needed |= set(_numbers(step.args))
                kept.append(step)
        kept.reverse()
        before = [0, *(step.made for step in kept)]
        plain = all(
            isinstance(step.does, int) and step.args[0].number == i for step, i in zip(kept, before, strict=False)
        )
        if plain:
            return nn.Sequential(*(self.layers[step.does] for step in kept if isinstance(step.does, int)))
        return OnnxNetwork(self.layers, self.constants, kept)

    def _operands(self, node: OnnxNode) -> list[Any]:
        """The values a node takes; None where an optional one is left out."""
        found: list[Any] = []
        for name in node.inputs:
            if name and name not in self.values:
                refuse(f"its operator {short(node.op)} takes {short(name)}, which nothing before it makes")
            found.append(self.values[name] if name else None)
        return found

    def _step(self, node: OnnxNode) -> None:
        outputs = [name for name in node.outputs if name]
        if len(outputs) != 1 or outputs[0] in self.values:
            refuse(f"its operator {short(node.op)} must make one new value")
        operands = self._operands(node)
        if not any(isinstance(each, Moving) for each in operands):
            made: Moving | Tensor = fold(node, operands)
        elif node.op == "Shape" and len(operands) == 1 and not node.settings:
            made = torch.tensor(operands[0].like.shape)
        elif node.op in LAST and outputs[0] == self.graph.output and self.kind == "categorical":
            made = operands[0]
        else:
            made = self._apply(node, operands)
        self.values[outputs[0]] = made

    def _apply(self, node: OnnxNode, operands: list[Any]) -> Moving:
        if node.op not in OPERATORS:
            refuse(f"its operator {short(node.op)} has no rule here; known are {', '.join(OPERATORS)}")
        shown = [each.like if isinstance(each, Moving) else each for each in operands]
        step = Operation(node, shown, [isinstance(each, Moving) for each in operands], self.graph.version, self.batch)
        made = OPERATORS[node.op](step)
        if isinstance(made, Call):
            given = [_resolved(each, operands) for each in made.args]
            like = _followed(made.function, *(_meta(each) for each in given))
            return self._done(made.function, [self._placed(each) for each in given], like)
        value: Moving = operands[0]
        for layer in made:
            weights = {key: each.to("meta") for key, each in layer.state_dict().items()}
            like = _followed(partial(torch.func.functional_call, layer.eval(), weights), (value.like,))
            self.layers.append(layer)
            value = self._done(len(self.layers) - 1, [value], like)
        return value

    def _done(self, does: int | Callable[..., Any], args: Sequence[Any], like: Tensor) -> Moving:
        self.work.append(_Work(does, args, len(self.work) + 1))
        return Moving(len(self.work), like)

    def _placed(self, given: Any) -> Any:
        """An argument with its constants numbered."""
        if isinstance(given, list | tuple):
            return type(given)(self._placed(each) for each in given)
        if not isinstance(given, Tensor):
            return given
        self.constants.append(given)
        return Fixed(len(self.constants) - 1)


def _numbers(given: Any) -> Iterator[int]:
    """The values among arguments."""
    if isinstance(given, list | tuple):
        for each in given:
            yield from _numbers(each)
    elif isinstance(given, Moving):
        yield given.number


def _resolved(given: Any, operands: Sequence[Any]) -> Any:
    """An argument of a function, with the operands in their places."""
    if isinstance(given, list | tuple):
        return type(given)(_resolved(each, operands) for each in given)
    return operands[given.index] if isinstance(given, Operand) else given


def _meta(given: Any) -> Any:
    if isinstance(given, list | tuple):
        return type(given)(_meta(each) for each in given)
    return given.like if isinstance(given, Moving) else given.to("meta") if isinstance(given, Tensor) else given


def _followed(function: Callable[..., Tensor], *given: Any) -> Tensor:
    """The shape of a result, computed without its numbers."""
    try:
        made = function(*given)
    except (RuntimeError, TypeError, IndexError, ValueError) as error:
        refuse(f"one of its operators does not fit its values: {str(error).splitlines()[0][:120]}")
    if made.ndim < 1 or made.numel() > LARGEST * max(made.shape[0], 1) or made.numel() == 0:
        refuse(f"a value in it has the shape {tuple(made.shape)}, which is empty or too large")
    return made
