"""ONNX files: outputs are those of onnxruntime, bounds hold, and a graph made to harm is refused with one line."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from radial.agents.convert import own
from radial.agents.foreign import WrappedCategorical, WrappedGaussian, WrappedQ
from radial.agents.importers.onnx_layers import OPERATORS
from radial.agents.saved import load_agent
from radial.bounds.methods import sound
from radial.core.data import BadInput, Continuous, Discrete
from radial.workflows.loading import load

onnx = pytest.importorskip("onnx", reason="writes ONNX files, and onnx is not installed")
runtime = pytest.importorskip("onnxruntime", reason="compares with onnxruntime, which is not installed")
helper = onnx.helper
FLOAT, INT64 = 1, 7
RNG = np.random.default_rng(0)


def numbers(*shape: int) -> Any:
    return RNG.normal(size=shape).astype(np.float32)


def file(
    path: Path, nodes: Sequence[Any], constants: dict[str, Any], shape: Sequence[Any] = ("batch", 3), opset: int = 18,
    kind: int = FLOAT, outputs: Sequence[str] = ("Y",), **model: Any,
) -> Path:  # fmt: skip
    tensors = [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(
        list(nodes), "graph", [helper.make_tensor_value_info("X", kind, list(shape))],
        [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs], tensors,
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8, **model)
    path.write_bytes(made.SerializeToString())
    return path


def node(op: str, inputs: str, output: str, **settings: Any) -> Any:
    return helper.make_node(op, ["" if name == "-" else name for name in inputs.split()], output.split(), **settings)


def mlp(*middle: Any, last: str = "h") -> list[Any]:
    """A first layer X → a (4 numbers), some nodes, and a last layer to Y (2 numbers)."""
    return [node("Gemm", "X W1 B1", "a", transB=1), *middle, node("Gemm", f"{last} W2 B2", "Y", transB=1)]


WEIGHTS = {"W1": numbers(4, 3), "B1": numbers(4), "W2": numbers(2, 4), "B2": numbers(2)}
TABLE = {
    **WEIGHTS,
    "c": numbers(4),
    "scale": np.abs(numbers(4)) + 0.5,
    "one": np.float32(0.3),
    "two": np.float32(1.2),
    "axes": np.array([1]),
    "to": np.array([0, 2, 2]),
    "flat": np.array([-1, 4]),
    "W2w": numbers(2, 8),
    "start": np.array([1]),
    "end": np.array([3]),
    "W2n": numbers(2, 2),
    "pick": np.array([2, 0]),
    "zero": np.array(0),
    "rest": np.array([-1]),
    "zeros": np.array([0]),
    "W2t": numbers(4, 2),
    "W11": numbers(2, 1),
    "ratio": np.float32(0.5),
    "no": np.array(False),
    "fixed": np.array([1, 4]),
}
CONV = {
    "K": numbers(2, 1, 3, 3),
    "b": numbers(2),
    "F": numbers(2, 32),
    "G": numbers(2, 18),
    "H": numbers(2, 2),
    "P": numbers(2, 72),
    "BIG": numbers(2, 50),
    "pads": np.array([0, 0, 1, 0, 0, 0, 0, 1]),
    "mean": numbers(2),
    "var": np.abs(numbers(2)) + 0.1,
    "shape": np.array([1, -1]),
}

VECTORS: dict[str, list[Any]] = {
    **{
        op: mlp(node(op, "a", "h", **settings))
        for op, settings in {
            "Relu": {},
            "Tanh": {},
            "Sigmoid": {},
            "LeakyRelu": {"alpha": 0.2},
            "Elu": {"alpha": 0.7},
            "Softplus": {},
            "Identity": {},
            "Neg": {},
            "Dropout": {},
            "Cast": {"to": FLOAT},
        }.items()
    },
    **{op: mlp(node(op, "a c", "b"), node("Relu", "b", "h")) for op in ("Add", "Sub", "Mul")},
    "Div": mlp(node("Div", "a scale", "b"), node("Relu", "b", "h")),
    "constant first": mlp(node("Sub", "c a", "b"), node("Relu", "b", "h")),
    "two branches": mlp(node("Relu", "a", "b"), node("Tanh", "a", "d"), node("Add", "b d", "h")),
    "SiLU": mlp(node("Sigmoid", "a", "s"), node("Mul", "a s", "h")),
    "Clip": mlp(node("Clip", "a one two", "h")),
    "Clip, one side": mlp(node("Clip", "a - two", "h")),
    "MatMul": [
        node("Gemm", "X W1 B1", "a", transB=1),
        node("Relu", "a", "h"),
        node("MatMul", "h W2t", "b"),
        node("Add", "b B2", "Y"),
    ],
    "Gemm, scaled": [
        node("Gemm", "X W1 B1", "a", transB=1, alpha=0.5, beta=2.0),
        node("Relu", "a", "h"),
        node("Gemm", "h W2t", "Y"),
    ],
    "BatchNormalization": mlp(node("BatchNormalization", "a scale c c scale", "b"), node("Relu", "b", "h")),
    "LayerNormalization": mlp(node("LayerNormalization", "a scale c", "h", axis=-1)),
    "Reshape": mlp(node("Reshape", "a to", "b"), node("Relu", "b", "d"), node("Reshape", "d flat", "h")),
    "Unsqueeze": mlp(node("Unsqueeze", "a axes", "b"), node("Relu", "b", "d"), node("Squeeze", "d axes", "h")),
    "Transpose": mlp(
        node("Reshape", "a to", "b"), node("Transpose", "b", "d", perm=[0, 2, 1]), node("Flatten", "d", "h")
    ),
    "Concat": [
        node("Gemm", "X W1 B1", "a", transB=1),
        node("Relu", "a", "b"),
        node("Concat", "a b", "h", axis=1),
        node("Gemm", "h W2w B2", "Y", transB=1),
    ],
    "Slice": [
        node("Gemm", "X W1 B1", "a", transB=1),
        node("Slice", "a start end axes", "h"),
        node("Gemm", "h W2n B2", "Y", transB=1),
    ],
    "Gather": [
        node("Gemm", "X W1 B1", "a", transB=1),
        node("Gather", "a pick", "h", axis=1),
        node("Gemm", "h W2n B2", "Y", transB=1),
    ],
    "ReduceMean": [
        node("Gemm", "X W1 B1", "a", transB=1),
        node("ReduceMean", "a axes", "h", keepdims=1),
        node("Gemm", "h W11 B2", "Y", transB=1),
    ],
    "ReduceSum": [
        node("Gemm", "X W1 B1", "a", transB=1),
        node("ReduceSum", "a axes", "h", keepdims=1),
        node("Gemm", "h W11 B2", "Y", transB=1),
    ],
    "shapes computed": mlp(
        node("Shape", "a", "s"),
        node("Gather", "s zero", "n", axis=0),
        node("Unsqueeze", "n zeros", "m"),
        node("Concat", "m rest", "t", axis=0),
        node("Reshape", "a t", "b"),
        node("Relu", "b", "h"),
    ),
    "weights computed": [
        node("Transpose", "W2t", "T", perm=[1, 0]),
        *mlp(node("Relu", "a", "h"))[:-1],
        node("Gemm", "h T B2", "Y", transB=1),
    ],
    "dead ends": [*mlp(node("Relu", "a", "h")), node("Tanh", "Y", "unused")],
}
PICTURES: dict[str, list[Any]] = {
    "Conv": [
        node("Conv", "X K b", "a"),
        node("Relu", "a", "h"),
        node("Flatten", "h", "f"),
        node("Gemm", "f F b", "Y", transB=1),
    ],
    "Conv, same": [
        node("Conv", "X K b", "a", auto_pad="SAME_UPPER", strides=[2, 2]),
        node("Flatten", "a", "f"),
        node("Gemm", "f G b", "Y", transB=1),
    ],
    "Conv, one side": [
        node("Conv", "X K b", "a", pads=[0, 0, 2, 2]),
        node("Flatten", "a", "f"),
        node("Gemm", "f P b", "Y", transB=1),
    ],
    "MaxPool": [
        node("Conv", "X K b", "a", pads=[1, 1, 1, 1]),
        node("MaxPool", "a", "h", kernel_shape=[2, 2], strides=[2, 2]),
        node("Reshape", "h shape", "f"),
        node("Gemm", "f G b", "Y", transB=1),
    ],
    "AveragePool": [
        node("Conv", "X K b", "a", pads=[1, 1, 1, 1]),
        node("AveragePool", "a", "h", kernel_shape=[2, 2], strides=[2, 2]),
        node("Flatten", "h", "f"),
        node("Gemm", "f G b", "Y", transB=1),
    ],
    "GlobalAveragePool": [
        node("Conv", "X K b", "a"),
        node("GlobalAveragePool", "a", "h"),
        node("Flatten", "h", "f"),
        node("Gemm", "f H b", "Y", transB=1),
    ],
    "BatchNormalization": [
        node("Conv", "X K b", "a"),
        node("BatchNormalization", "a b b mean var", "h"),
        node("Flatten", "h", "f"),
        node("Gemm", "f F b", "Y", transB=1),
    ],
}


@pytest.mark.parametrize("case", [*VECTORS, *(f"frames, {name}" for name in PICTURES)])
def test_outputs_are_those_of_onnxruntime_and_bounds_hold(case: str, tmp_path: Path) -> None:
    frames = case.startswith("frames, ")
    shape = (1, 6, 6) if frames else (3,)
    nodes, constants = (PICTURES[case.removeprefix("frames, ")], CONV) if frames else (VECTORS[case], TABLE)
    fixed = 1 if case == "frames, MaxPool" else "batch"  # as our own exports have it
    path = file(tmp_path / "a.onnx", nodes, constants, (fixed, *shape))
    agent = load_agent(path, kind="q")
    session = runtime.InferenceSession(path)
    x = torch.randn(5, *shape, generator=torch.Generator().manual_seed(0))
    theirs = np.concatenate([session.run(["Y"], {"X": row[None].numpy()})[0] for row in x])
    torch.testing.assert_close(agent.scores(x), torch.from_numpy(theirs), atol=1e-5, rtol=1e-5)
    ball = agent.ball(x, 0.05)
    sampled = torch.stack([agent.choice(ball.project(x + 0.05 * torch.randn_like(x).sign())) for _ in range(20)])
    for method in ("ibp", "crown-ibp"):
        bounds = sound(method)(agent.choice, ball)
        assert (bounds.lower <= sampled.amin(0) + 1e-5).all()
        assert (bounds.upper >= sampled.amax(0) - 1e-5).all()


def test_every_operator_is_compared() -> None:
    written = {each.op_type for nodes in (*VECTORS.values(), *PICTURES.values()) for each in nodes}
    assert OPERATORS.keys() - written == {"Gelu"}  # of a later version than the others


def test_gelu_of_a_later_version(tmp_path: Path) -> None:
    path = file(tmp_path / "a.onnx", mlp(node("Gelu", "a", "h", approximate="tanh")), WEIGHTS, opset=20)
    x = torch.randn(1, 3)
    theirs = runtime.InferenceSession(path).run(None, {"X": x.numpy()})[0]
    torch.testing.assert_close(load_agent(path, kind="q").scores(x), torch.from_numpy(theirs), atol=1e-5, rtol=1e-5)


def test_axes_and_limits_as_older_versions_write_them(tmp_path: Path) -> None:
    middle = [
        node("Clip", "a", "b", min=-0.5, max=0.5),
        node("Unsqueeze", "b", "d", axes=[1]),
        node("Squeeze", "d", "h", axes=[1]),
    ]
    path = file(tmp_path / "a.onnx", mlp(*middle), WEIGHTS, opset=9)
    x = torch.randn(1, 3)
    theirs = runtime.InferenceSession(path).run(None, {"X": x.numpy()})[0]
    torch.testing.assert_close(load_agent(path, kind="q").scores(x), torch.from_numpy(theirs), atol=1e-5, rtol=1e-5)


KINDS = {
    "q": (WrappedQ, Discrete(2)),
    "categorical": (WrappedCategorical, Discrete(2)),
    "gaussian": (WrappedGaussian, Continuous(2)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_kinds(kind: str, tmp_path: Path) -> None:
    path = file(tmp_path / "CartPole-v1.onnx", mlp(node("Relu", "a", "h")), WEIGHTS)
    agent = load(path, kind=kind)
    assert (type(agent), agent.actions) == KINDS[kind]
    assert agent.observation_shape == (3,)
    assert isinstance(agent.network, nn.Sequential)
    assert agent.card.env is not None
    assert agent.card.source is not None
    assert "CartPole-v1.onnx sha256:" in agent.card.source
    if kind == "categorical":
        assert own(agent, "init").hidden == (4,)  # a plain chain of layers can be fine-tuned


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_the_softmax_of_a_policy_is_left_out(op: str, tmp_path: Path) -> None:
    """Its logits decide the same, and can be bounded."""
    nodes = mlp(node("Relu", "a", "h"))
    nodes = [*nodes[:-1], node("Gemm", "h W2 B2", "z", transB=1), node(op, "z", "Y", axis=-1)]
    path = file(tmp_path / "a.onnx", nodes, WEIGHTS)
    x = torch.randn(4, 3)
    theirs = torch.from_numpy(runtime.InferenceSession(path).run(None, {"X": x.numpy()})[0])
    ours = load_agent(path, kind="categorical").scores(x)
    torch.testing.assert_close(ours.softmax(-1) if op == "Softmax" else ours.log_softmax(-1), theirs)
    with pytest.raises(BadInput, match=f"its operator '{op}' has no rule here"):
        load_agent(path, kind="q")


def test_the_kind_must_be_told(tmp_path: Path) -> None:
    path = file(tmp_path / "a.onnx", mlp(node("Relu", "a", "h")), WEIGHTS)
    with pytest.raises(BadInput, match=r"kind must be one of q, categorical, gaussian .*does not say"):
        load(path)
    with pytest.raises(BadInput, match=r"kind must be one of .*got 'dqn'"):
        load(path, kind="dqn")
    torch.save({"a": torch.ones(1)}, tmp_path / "a.pt")
    with pytest.raises(BadInput, match=r"kind is for \.onnx files"):
        load(tmp_path / "a.pt", kind="q")


# ------------------------------------------------------------------------------------------------------- made to harm


def changed(path: Path, change: Callable[[Any], None]) -> Path:
    model = onnx.load(file(path, mlp(node("Relu", "a", "h")), WEIGHTS))
    change(model)
    path.write_bytes(model.SerializeToString())
    return path


def outside(model: Any) -> None:
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", "../../../etc/passwd"


def branch(model: Any) -> None:
    inner = helper.make_graph([], "inner", [], [helper.make_tensor_value_info("h", FLOAT, None)])
    model.graph.node.insert(1, helper.make_node("If", ["a"], ["q"], then_branch=inner, else_branch=inner))


def resized(*sizes: int) -> Callable[[Any], None]:
    def change(model: Any) -> None:
        model.graph.initializer[0].ClearField("dims")
        model.graph.initializer[0].dims.extend(sizes)

    return change


def inserted(*nodes: Any, **constants: Any) -> Callable[[Any], None]:
    def change(model: Any) -> None:
        for name, value in constants.items():
            model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value), name))
        del model.graph.node[1]
        for i, each in enumerate(nodes):
            model.graph.node.insert(1 + i, each)

    return change


def no_shape(model: Any) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "n"


HUGE = 1 << 30
HOSTILE: dict[str, tuple[Callable[[Any], object], str]] = {
    "external data": (outside, "is in another file"),
    "huge": (resized(HUGE, HUGE), "have more than"),
    "negative": (resized(-4, -3), "not one of plain numbers"),
    "another shape": (resized(5, 3), "does not have the bytes"),
    "many axes": (resized(*[1] * 20), "not one of plain numbers"),
    "texts": (lambda m: setattr(m.graph.initializer[0], "data_type", 8), "not one of plain numbers"),
    "NaN": (lambda m: setattr(m.graph.initializer[0], "raw_data", b"\xff" * 48), "NaN or infinity"),
    "a cycle": (inserted(node("Add", "a h", "b"), node("Relu", "b", "h")), "which nothing before it makes"),
    "itself": (inserted(node("Add", "a h", "h")), "which nothing before it makes"),
    "twice": (inserted(node("Relu", "a", "h"), node("Tanh", "a", "h")), "must make one new value"),
    "over the input": (inserted(node("Relu", "a", "X"), node("Relu", "a", "h")), "must make one new value"),
    "over a weight": (inserted(node("Relu", "a", "W2"), node("Relu", "a", "h")), "must make one new value"),
    "unknown": (inserted(node("NonMaxSuppression", "a", "h")), "has no rule here"),
    "a branch": (branch, "such as a graph"),
    "another set": (lambda m: setattr(m.graph.node[1], "domain", "com.evil"), "not ONNX's own"),
    "a function": (lambda m: m.functions.add(name="Relu", domain="x"), "functions"),
    "sparse": (lambda m: m.graph.sparse_initializer.add(), "sparse"),
    "no version": (lambda m: m.ClearField("opset_import"), "one version"),
    "old": (lambda m: setattr(m.opset_import[0], "version", 3), "one version"),
    "no nodes": (lambda m: m.graph.ClearField("node"), "nodes"),
    "two inputs": (lambda m: m.graph.input.add(name="Z"), "one input and one output"),
    "two outputs": (lambda m: m.graph.output.add(name="Z"), "one input and one output"),
    "no shape": (no_shape, "shape of its input"),
    "integers": (lambda m: setattr(m.graph.input[0].type.tensor_type, "elem_type", INT64), "tensor of floats"),
    "growing": (
        inserted(
            node("Reshape", "a r", "b"), node("Add", "b w", "h"), r=[-1, 4, 1], w=np.zeros((1, 1, 1 << 23), np.float32)
        ),
        "too large",
    ),
    "growing constants": (
        inserted(node("Add", "w v", "u"), node("Relu", "a", "h"), w=np.zeros((1 << 13, 1)), v=np.zeros((1, 1 << 13))),
        "makes a constant of",
    ),
    "a great pad": (
        inserted(
            node("Unsqueeze", "a x", "b"),
            node("Unsqueeze", "b x", "d"),
            node("MaxPool", "d", "e", kernel_shape=[1, 1], pads=[HUGE] * 4),
            node("Flatten", "e", "h"),
            x=[1],
        ),
        "pads that do not fit",
    ),
    "mixing samples": (inserted(node("Reshape", "a r", "h"), r=[-1]), "batch axis"),
    "mixing samples by a transpose": (
        inserted(node("Transpose", "a", "b", perm=[1, 0]), node("Relu", "b", "h")),
        "batch axis",
    ),
    "samples that differ": (
        inserted(node("Add", "a w", "h"), w=np.zeros((2, 4), np.float32)),
        "differs between samples",
    ),
    "division": (inserted(node("Div", "c a", "h"), c=np.float32(1)), "divides by a value"),
    "train mode": (inserted(node("Dropout", "a r t", "h"), r=np.float32(0.5), t=np.array(True)), "train mode"),
    "no operand": (inserted(helper.make_node("Relu", [], ["h"])), "on constants has no rule"),
    "one operand": (inserted(node("Add", "a", "h")), "two operands"),
    "a constant output": (lambda m: setattr(m.graph.output[0], "name", "W1"), "does not depend on its input"),
    "no output": (lambda m: setattr(m.graph.output[0], "name", "nowhere"), "does not depend on its input"),
    "a matrix that does not fit": (inserted(node("Gemm", "a W1", "h", transB=1)), "takes 3 numbers"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_graphs(case: str, tmp_path: Path) -> None:
    change, says = HOSTILE[case]
    path = changed(tmp_path / "evil.onnx", change)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=says) as caught:
        load_agent(path, kind="q")
    assert "\n" not in str(caught.value)
    assert "rr.wrap" in str(caught.value)


def test_random_damage(tmp_path: Path) -> None:
    whole = file(tmp_path / "a.onnx", VECTORS["shapes computed"], TABLE).read_bytes()
    for round in range(150):
        data = bytearray(whole)
        for _ in range(RNG.integers(1, 5)):
            data[RNG.integers(len(data))] = RNG.integers(256)
        (tmp_path / "a.onnx").write_bytes(bytes(data if round % 3 else data[: RNG.integers(len(data))]))
        try:
            load_agent(tmp_path / "a.onnx", kind="q")
        except BadInput:
            continue
