"""Reads an ONNX file as data: nodes, constants, the input's shape. Everything it could point to elsewhere is refused.

The network is built in `onnx_network`. Needs the extra `onnx` for the format's protobuf classes; nothing is executed.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from radial.agents.importers.archive import untrusted
from radial.agents.importers.inert import refuse, short
from radial.agents.importers.storages import TENSOR_BYTES
from radial.core.data import BadInput

NODES = 10_000
AXES = 8
DOMAINS = ("", "ai.onnx")
NOTES = "radial"  # our metadata
NOTES_SIZE = 1 << 20
# ONNX's numbers of types → numpy's, and the field that holds the numbers where they are not raw bytes.
ONNX_TYPES: dict[int, tuple[str, str]] = {
    1: ("<f4", "float_data"), 11: ("<f8", "double_data"), 10: ("<f2", ""),
    6: ("<i4", "int32_data"), 7: ("<i8", "int64_data"), 9: ("|b1", "int32_data"), 2: ("|u1", "int32_data"),
}  # fmt: skip
FLOATS = (1, 11, 2)  # types an input may have: floats, and bytes that the graph converts
LOCAL = 0  # the tensor's numbers are in the file itself


@dataclass(frozen=True)
class OnnxNode:
    """One step: an operator of ONNX's own set, the names of its values, its settings."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class OnnxGraph:
    """A graph without branches and loops of control, functions or files of its own.

    batch  of the input, if the file fixes it
    notes  our metadata, where `radial export` wrote the file
    """

    nodes: tuple[OnnxNode, ...]
    constants: Mapping[str, Tensor]
    input: str
    output: str
    shape: tuple[int, ...]
    batch: int | None
    version: int
    notes: Mapping[str, Any]


def read_graph(path: Path) -> OnnxGraph:
    """The graph of an ONNX file, checked."""
    if find_spec("onnx") is None:
        raise BadInput(f"{path}: ONNX needs onnx: pip install 'radial-rl[onnx]'")
    import onnx
    from google.protobuf.message import DecodeError

    with untrusted(path), path.open("rb") as file:
        data = file.read(2 * TENSOR_BYTES + 1)
        if len(data) > 2 * TENSOR_BYTES:
            refuse(f"it has more than {2 * TENSOR_BYTES} bytes")
        model = onnx.ModelProto()
        try:
            model.ParseFromString(data)
        except DecodeError:
            refuse("it is not an ONNX file")
        return _graph(model)


def _graph(model: Any) -> OnnxGraph:
    graph = model.graph
    if len(model.functions) or len(graph.sparse_initializer) or len(graph.quantization_annotation):
        refuse("it has functions, sparse tensors or quantised ones of its own")
    versions = [each.version for each in model.opset_import if each.domain in DOMAINS]
    if len(versions) != 1 or not 7 <= versions[0] <= 1_000:
        refuse("it must name one version, 7 or later, of ONNX's operators")
    if not 0 < len(graph.node) <= NODES:
        refuse(f"it must have 1 to {NODES} nodes, got {len(graph.node)}")
    reader = _Tensors()
    constants = {each.name: reader.read(each) for each in graph.initializer}
    if len(constants) != len(graph.initializer):
        refuse("two of its tensors have one name")
    inputs = [each for each in graph.input if each.name not in constants]
    if len(inputs) != 1 or len(graph.output) != 1:
        refuse(f"its graph must have one input and one output, got {len(inputs)} and {len(graph.output)}")
    batch, shape = _shape(inputs[0])
    nodes = tuple(_node(node, reader) for node in graph.node)
    notes = _notes(model)
    return OnnxGraph(
        nodes, constants, inputs[0].name, graph.output[0].name, shape, batch, int(versions[0]), notes,
    )  # fmt: skip


def _node(node: Any, reader: "_Tensors") -> OnnxNode:
    if node.domain not in DOMAINS:
        refuse(f"its operator {short(node.op_type)} is of the set {short(node.domain)}, which is not ONNX's own")
    settings: dict[str, Any] = {}
    for each in node.attribute:
        if each.name in settings or each.ref_attr_name:
            refuse(f"a setting of its operator {short(node.op_type)} stands twice or refers to a function")
        settings[each.name] = _setting(each, reader, node.op_type)
    return OnnxNode(node.op_type, tuple(node.input), tuple(node.output), settings)


def _setting(attribute: Any, reader: "_Tensors", op: str) -> Any:
    """A number, a text, a list of numbers or a tensor; graphs are refused."""
    kind = attribute.type
    if kind in (1, 2):
        return float(attribute.f) if kind == 1 else int(attribute.i)
    if kind == 3:
        return attribute.s.decode("utf-8", "replace")
    if kind == 4:
        return reader.read(attribute.t)
    if kind in (6, 7):
        return [float(n) for n in attribute.floats] if kind == 6 else [int(n) for n in attribute.ints]
    refuse(f"its operator {short(op)} has a setting that is no number, text or tensor, such as a graph")


def _shape(value: Any) -> tuple[int | None, tuple[int, ...]]:
    """The fixed batch, if it is, and the shape of one observation."""
    kind = value.type.tensor_type
    dims = list(kind.shape.dim)
    if kind.elem_type not in FLOATS or not 2 <= len(dims) <= AXES:
        refuse("its input must be a tensor of floats with a batch axis and up to 7 others")
    sizes = [int(dim.dim_value) if dim.HasField("dim_value") else None for dim in dims]
    rest = [size for size in sizes[1:] if size is not None and 0 < size < 1 << 20]
    if len(rest) != len(sizes) - 1 or (sizes[0] is not None and sizes[0] < 1):
        refuse("the shape of its input must be given, except for the batch axis")
    return sizes[0], tuple(rest)


class _Tensors:
    """Tensors from their bytes, within one budget."""

    def __init__(self) -> None:
        self.left = TENSOR_BYTES

    def read(self, proto: Any) -> Tensor:
        """One tensor; its numbers must be in the file and be as many as its shape says."""
        name, sizes = short(proto.name), [int(size) for size in proto.dims]
        if proto.data_location != LOCAL or len(proto.external_data):
            refuse(f"its tensor {name} is in another file; save the model with its weights inside")
        if proto.data_type not in ONNX_TYPES or len(sizes) > AXES or any(not 0 <= size < 1 << 31 for size in sizes):
            refuse(f"its tensor {name} is not one of plain numbers")
        kind, field = ONNX_TYPES[proto.data_type]
        count, dtype = math.prod(sizes), np.dtype(kind)
        self.left -= count * max(dtype.itemsize, 4)
        if self.left < 0:
            refuse(f"its tensors have more than {TENSOR_BYTES} bytes")
        if proto.HasField("raw_data"):
            if len(proto.raw_data) != count * dtype.itemsize:
                refuse(f"its tensor {name} does not have the bytes its shape needs")
            flat = np.frombuffer(proto.raw_data, "|u1" if kind == "|b1" else kind)
            flat = flat != 0 if kind == "|b1" else flat  # a byte other than 0 and 1 is no bool
        else:
            numbers = getattr(proto, field) if field else []
            if len(numbers) != count:
                refuse(f"its tensor {name} does not have the numbers its shape needs")
            flat = np.array(numbers, dtype=dtype)
        return torch.from_numpy(flat.reshape(sizes).copy())


def _notes(model: Any) -> Mapping[str, Any]:
    """Our metadata; anything unreadable counts as none."""
    texts = [each.value for each in model.metadata_props if each.key == NOTES and len(each.value) <= NOTES_SIZE]
    try:
        found = json.loads(texts[0]) if len(texts) == 1 else {}
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
