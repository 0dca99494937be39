"""Files made to do harm. Each is refused with one line or read as inert data; nothing of it ever runs.

The files are built here, opcode by opcode. A canary file tells whether a command was run.
"""

import hashlib
import io
import json
import math
import pickle
import random
import resource
import struct
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch

from radial.agents.actor_critic import ImpalaAgent
from radial.agents.convert import AnyAgent
from radial.agents.policies import CategoricalAgent
from radial.agents.saved import CARD, WEIGHTS, load_agent, save
from radial.core.data import BadInput

# ----------------------------------------------------------- an assembler: each function writes code for one value


def text(value: str) -> bytes:
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def raw(data: bytes) -> bytes:
    return b"B" + struct.pack("<I", len(data)) + data


def num(value: int) -> bytes:
    return b"J" + struct.pack("<i", value)


def real(value: float) -> bytes:
    return b"G" + struct.pack(">d", value)


def tup(*items: bytes) -> bytes:
    return b"(" + b"".join(items) + b"t"


def lst(*items: bytes) -> bytes:
    return b"](" + b"".join(items) + b"e"


def dic(**items: bytes) -> bytes:
    return b"}(" + b"".join(text(key) + value for key, value in items.items()) + b"u"


def name(dotted: str) -> bytes:
    module, _, attribute = dotted.rpartition(".")
    return f"c{module}\n{attribute}\n".encode()


def call(function: bytes, *args: bytes) -> bytes:
    return function + tup(*args) + b"R"


def new(dotted: str, **state: bytes) -> bytes:
    return name(dotted) + b")\x81" + dic(**state) + b"b"


NONE, TRUE, FALSE = b"N", b"\x88", b"\x89"
REBUILD_TENSOR, RECONSTRUCT = name("torch._utils._rebuild_tensor_v2"), name("numpy.core.multiarray._reconstruct")
SCALAR, ENCODE, ORDERED = name("numpy.core.multiarray.scalar"), name("_codecs.encode"), name("collections.OrderedDict")


def storage(key: str, count: int, kind: str = "torch.FloatStorage") -> bytes:
    return tup(text("storage"), name(kind), text(key), text("cpu"), num(count)) + b"Q"


def tensor(key: str, *shape: int) -> bytes:
    strides, count = [], 1
    for size in reversed(shape):
        strides.insert(0, count)
        count *= size
    size, stride = tup(*map(num, shape)), tup(*map(num, strides))
    return call(REBUILD_TENSOR, storage(key, count), num(0), size, stride, FALSE, call(ORDERED))


def dtype(code: str, order: str = "<", fields: bytes = NONE) -> bytes:
    state = tup(num(3), text(order), NONE, NONE, fields, num(-1), num(-1), num(0))
    return call(name("numpy.dtype"), text(code), FALSE, TRUE) + state + b"b"


def array(data: bytes, *shape: int, kind: bytes | None = None) -> bytes:
    start = call(RECONSTRUCT, name("numpy.ndarray"), tup(num(0)), raw(b"b"))
    return start + tup(num(1), tup(*map(num, shape)), kind or dtype("f8"), FALSE, raw(data)) + b"b"


# ----------------------------------------------------------------------------------- an honest file, 2 → 4 → 4 → 1

FLOATS = {"w0": 8, "b": 4, "w1": 16, "w2": 4, "out": 1}
MEMBERS = {f"archive/data/{key}": struct.pack(f"<{n}f", *[0.25] * n) for key, n in FLOATS.items()}


def network(**last: bytes) -> dict[str, bytes]:
    layers = {"affine_layers.0.weight": tensor("w0", 4, 2), "affine_layers.0.bias": tensor("b", 4)}
    layers |= {"affine_layers.1.weight": tensor("w1", 4, 4), "affine_layers.1.bias": tensor("b", 4)}
    return layers | {key.replace("_dot_", "."): value for key, value in last.items()}


def running(count: int, *shape: int) -> bytes:
    data = struct.pack("<2d", 0.5, 9.0)[: 8 * (shape[0] if shape else 1)]
    return new(
        "policy_gradients.torch_utils.RunningStat", _n=num(count), _M=array(data, *shape), _S=array(data, *shape)
    )


def entries() -> dict[str, bytes]:
    """The five entries of a `.model` file."""
    policy = network(final_mean_dot_weight=tensor("w2", 1, 4), final_mean_dot_bias=tensor("out", 1))
    critic = network(final_dot_weight=tensor("w2", 1, 4), final_dot_bias=tensor("out", 1))
    torch_utils = "policy_gradients.torch_utils."
    states = new(torch_utils + "ZFilter", center=TRUE, scale=TRUE, clip=real(10.0), rs=running(10, 2))
    env = new("policy_gradients.custom_env.Env", state_filter=states,
              reward_filter=new(torch_utils + "RewardFilter", rs=running(9)))  # fmt: skip
    return {
        "policy_model": dic(log_stdev=tensor("out", 1), **policy),
        "val_model": dic(**critic),
        "policy_opt": dic(step=num(1)),
        "val_opt": dic(step=num(1)),
        "envs": lst(env),
    }


def zipped(members: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for member, data in members.items():
            archive.writestr(zipfile.ZipInfo(member), data, method)
    return out.getvalue()


def program(**changed: bytes) -> bytes:
    return b"\x80\x02" + dic(**(entries() | changed)) + b"."


def model(pickled: bytes | None = None, **members: bytes) -> bytes:
    others = {key.replace("__", "/"): value for key, value in members.items()}
    return zipped({"archive/data.pkl": pickled or program(), **MEMBERS, "archive/version": b"3\n", **others})


# ---------------------------------------------------------------------------- an honest file of ProcGen, 2 + 1 outputs


def _shapes() -> dict[str, tuple[int, ...]]:
    """The state dict of the authors' files: every layer by its number, and the last one again by another name."""
    layers = {0: (16, 3), 4: (32, 16), 8: (32, 32)}
    convolutions = {f"model.{i}": shape for i, shape in layers.items()}
    for i, width in ((2, 16), (3, 16), (6, 32), (7, 32), (10, 32), (11, 32)):
        convolutions |= {f"model.{i}.model.{j}": (width, width) for j in (1, 3)}
    weights = {name: (*shape, 3, 3) for name, shape in convolutions.items()}
    weights |= {"model.14": (256, 2048), "model.16": (3, 256), "logits_fc": (3, 256)}
    return {
        f"{name}.{part}": shape if part == "weight" else shape[:1]
        for name, shape in weights.items()
        for part in ("weight", "bias")
    }


SHAPES = _shapes()
COUNTS = {math.prod(shape) for shape in SHAPES.values()}
NUMBERS = {f"archive/data/n{count}": struct.pack("<f", 0.25) * count for count in COUNTS}


def state_dict(**changed: bytes | None) -> bytes:
    """Its pickle, with values replaced, added, or (None) left out; `__` in a name is a dot."""
    honest: dict[str, bytes | None] = {key: tensor(f"n{math.prod(shape)}", *shape) for key, shape in SHAPES.items()}
    honest |= {key.replace("__", "."): value for key, value in changed.items()}
    return b"\x80\x02" + dic(**{key: value for key, value in honest.items() if value is not None}) + b"."


def procgen(pickled: bytes, **members: bytes) -> bytes:
    others = {key.replace("__", "/"): value for key, value in members.items()}
    return zipped({"archive/data.pkl": pickled, **NUMBERS, "archive/version": b"3\n", **others})


# ------------------------------------------------------------------------------------------- payloads of the pickle

CALLS = [
    "os.system", "posix.system", "nt.system", "os.popen", "os.execvp", "os.spawnlp", "os.remove", "os.unlink",
    "subprocess.Popen", "subprocess.call", "subprocess.run", "subprocess.check_output", "subprocess.getoutput",
    "builtins.eval", "builtins.exec", "builtins.open", "builtins.compile", "builtins.__import__", "builtins.getattr",
    "builtins.print", "builtins.input", "__builtin__.eval", "pty.spawn", "runpy.run_path", "runpy.run_module",
    "importlib.import_module", "pickle.loads", "pickle.load", "_pickle.loads", "marshal.loads", "dill.loads",
    "joblib.load", "torch.load", "torch.serialization.load", "torch.storage._load_from_bytes", "torch.jit.load",
    "torch.hub.load", "torch.hub.load_state_dict_from_url", "torch.package.PackageImporter", "torch.ops.load_library",
    "torch.utils.cpp_extension.load_inline", "torch._utils._rebuild_device_tensor_from_numpy", "numpy.load",
    "numpy.memmap", "numpy.f2py.compile", "numpy.core.numeric._frombuffer", "numpy.testing._private.utils.runstring",
    "operator.attrgetter", "operator.methodcaller", "functools.partial", "functools.reduce", "itertools.starmap",
    "copyreg._reconstructor", "copyreg.__newobj__", "types.FunctionType", "types.CodeType", "ctypes.CDLL",
    "code.interact", "pdb.run", "cProfile.run", "timeit.timeit", "bdb.Bdb.run", "webbrowser.open", "shutil.rmtree",
    "shutil.copyfile", "socket.create_connection", "urllib.request.urlopen", "site.execsitecustomize", "platform.popen",
    "commands.getoutput", "asyncio.create_subprocess_shell", "multiprocessing.Process", "cloudpickle.loads",
    "radial.agents.saved.save", "radial.agents.importers.restricted.REBUILD", "logging.config.dictConfig",
]  # fmt: skip

DEEP, MANY, BIG = 20_000, 200_001, 1 << 30

INERT = "policy_gradients.torch_utils.Identity"  # a class that may appear

TRICKS: dict[str, Callable[[str], bytes]] = {
    "stack-global": lambda c: text("os") + text("system") + b"\x93" + tup(text(c)) + b"R",
    "stack-global-not-text": lambda c: num(1) + text("system") + b"\x93" + tup(text(c)) + b"R",
    "global-dotted": lambda c: call(b"cos\npath.os.system\n", text(c)),
    "inst": lambda c: b"(" + text(c) + b"ios\nsystem\n",
    "obj": lambda c: b"(" + name("os.system") + text(c) + b"o",
    "newobj": lambda c: name("os.system") + tup(text(c)) + b"\x81",
    "newobj-of-text": lambda c: text("os.system") + tup(text(c)) + b"\x81",
    "newobj-ex": lambda c: name("subprocess.Popen") + tup(text(c)) + dic(shell=TRUE) + b"\x92",
    "ext1": lambda c: b"\x82\x01",
    "ext2": lambda c: b"\x83\x01\x00",
    "ext4": lambda c: b"\x84\x01\x00\x00\x00",
    "build-setstate": lambda c: name("os.system") + b")\x81" + text(c) + b"b",
    "build-name": lambda c: name(INERT) + dic(__setstate__=text(c)) + b"b",
    "build-class": lambda c: new(INERT, __class__=name("os.system"), __reduce_ex__=name("os.system")),
    "build-slots": lambda c: name(INERT) + b")\x81" + tup(NONE, dic(a=text(c))) + b"b",
    "build-int": lambda c: num(1) + dic(real=num(2)) + b"b",
    "reduce-text": lambda c: text("os.system") + tup(text(c)) + b"R",
    "reduce-args-not-a-tuple": lambda c: name(INERT) + lst(text(c)) + b"R",
    "reduce-of-reduce": lambda c: call(call(name(INERT), text("os"), text("system")), text(c)),
    "reduce-of-array": lambda c: call(array(bytes(8), 1), text(c)),
    "reduce-of-storage-type": lambda c: call(name("torch.FloatStorage"), num(1 << 30)),
    "reduce-of-ndarray": lambda c: call(name("numpy.ndarray"), tup(num(1 << 30))),
    "newobj-of-tensor-function": lambda c: REBUILD_TENSOR + tup(text(c)) + b"\x81",
    "reduce-of-newobj": lambda c: call(new(INERT, __call__=text(c)), text(c)),
    "memo-callable": lambda c: name("os.system") + b"q\x630" + b"h\x63" + tup(text(c)) + b"R",
    "memo-callable-no-pop": lambda c: lst(name("os.system") + b"q\x63", call(b"h\x63", text(c))),
    "memo-missing": lambda c: b"j\xff\xff\xff\xff",
    "memo-text": lambda c: b"g99\n",
    "dup": lambda c: name("os.system") + b"2",
    "reduce-ex": lambda c: call(name("builtins.object.__reduce_ex__"), num(4)),
    "tensor-hooks": lambda c: call(REBUILD_TENSOR, storage("b", 4), num(0), tup(num(4)), tup(num(1)), FALSE,
                                   call(name("os.system"), text(c))),
    "tensor-of-name": lambda c: call(REBUILD_TENSOR, name("os.system"), num(0), tup(num(4)), tup(num(1)), FALSE),
    "tensor-of-tensor": lambda c: call(REBUILD_TENSOR, tensor("b", 4), num(0), tup(num(4)), tup(num(1)), FALSE),
    "tensor-no-arguments": lambda c: call(REBUILD_TENSOR),
    "tensor-offset": lambda c: call(REBUILD_TENSOR, storage("b", 4), num(1), tup(num(4)), tup(num(1)), FALSE),
    "tensor-negative-offset": lambda c: call(REBUILD_TENSOR, storage("b", 4), num(-1), tup(num(4)), tup(num(1)), FALSE),
    "tensor-stride": lambda c: call(REBUILD_TENSOR, storage("b", 4), num(0), tup(num(4)), tup(num(2)), FALSE),
    "tensor-negative-stride": lambda c: call(REBUILD_TENSOR, storage("b", 4), num(3), tup(num(4)), tup(num(-1)), FALSE),
    "tensor-expanded": lambda c: call(REBUILD_TENSOR, storage("b", 4), num(0), tup(num(BIG)), tup(num(0)), FALSE),
    "tensor-empty-but-wide": lambda c: call(REBUILD_TENSOR, storage("b", 4), num(0), tup(num(BIG), num(0)),
                                            tup(num(1), num(1)), FALSE),
    "tensor-no-strides": lambda c: call(REBUILD_TENSOR, storage("b", 4), num(0), tup(num(4)), tup(), FALSE),
    "tensor-dimensions": lambda c: call(REBUILD_TENSOR, storage("b", 4), num(0), tup(*[num(1)] * 99),
                                        tup(*[num(1)] * 99), FALSE),
    "storage-path": lambda c: storage("../../../etc/passwd", 4),
    "storage-missing": lambda c: storage("nothing", 4),
    "storage-too-long": lambda c: storage("b", BIG),
    "storage-negative": lambda c: storage("b", -4),
    "storage-type": lambda c: storage("b", 4, "os.system"),
    "storage-untyped": lambda c: storage("b", 16, "torch.storage.UntypedStorage"),
    "storage-text": lambda c: text("os.system") + b"Q",
    "persistent-text": lambda c: b"Pos.system\n",
    "dtype-object": lambda c: dtype("O8", "|"),
    "dtype-code": lambda c: dtype("__import__('os').system('x')"),
    "dtype-fields": lambda c: dtype("f8", fields=dic(a=tup(dtype("O8"), num(0)))),
    "dtype-order": lambda c: dtype("f8", order="@"),
    "dtype-of-name": lambda c: call(name("numpy.dtype"), name("os.system"), FALSE, TRUE),
    "array-object": lambda c: array(b"", 1, kind=dtype("O8", "|")),
    "array-list": lambda c: call(RECONSTRUCT) + tup(num(1), tup(num(1)), dtype("f8"), FALSE, lst(num(1))) + b"b",
    "array-subtype": lambda c: call(RECONSTRUCT, name("os.system"), tup(text(c)), raw(b"b")),
    "array-short": lambda c: array(b"\0" * 8, BIG, BIG),
    "array-negative": lambda c: array(b"", -1),
    "array-state": lambda c: call(RECONSTRUCT) + call(name("os.system"), text(c)) + b"b",
    "scalar-object": lambda c: call(SCALAR, dtype("O8", "|"), raw(pickle.dumps(c))),
    "scalar-of-name": lambda c: call(SCALAR, name("os.system"), text(c)),
    "scalar-short": lambda c: call(SCALAR, dtype("f8"), raw(b"1")),
    "encode-codec": lambda c: call(ENCODE, text(c), text("unicode_escape")),
    "encode-of-name": lambda c: call(ENCODE, name("os.system"), text("latin1")),
    "encode-outside-latin1": lambda c: call(ENCODE, text("€"), text("latin1")),
    "bytes-of-a-size": lambda c: call(name("__builtin__.bytes"), num(1 << 30)),
    "encode-amplified": lambda c: lst(text("a" * (1 << 20)) + b"q\x63",
                                      *[call(ENCODE, b"h\x63", text("latin1"))] * 2_000),
    "ordered-dict-of-items": lambda c: call(ORDERED, lst(tup(text("a"), call(name("os.system"), text(c))))),
    "ordered-dict-class": lambda c: call(ORDERED) + dic(__class__=name("os.system"), clear=name("os.system")) + b"b",
    "setitem-on-name": lambda c: name("os.environ") + text("A") + text("B") + b"s",
    "append-to-name": lambda c: name("sys.path") + text("/tmp") + b"a",
    "append-to-tuple": lambda c: tup() + text("/tmp") + b"a",
    "setitems-odd": lambda c: b"}(" + text("a") + b"u",
    "key-list": lambda c: b"}(" + lst() + num(1) + b"u",
    "key-inert": lambda c: b"}(" + new(INERT, __hash__=name("os.system")) + num(1) + b"u",
    "key-deep-tuple": lambda c: b"}(" + b")" + b"\x85" * DEEP + num(1) + b"u",
    "key-colliding": lambda c: b"}(" + b"\x8a\x14" + b"\xff" * 19 + b"\x01" + num(1) + b"u",
    "deep-lists": lambda c: b"]" * DEEP + b"a" * (DEEP - 1),
    "deep-marks": lambda c: b"(" * DEEP + b"t" * DEEP,
    "list-of-itself": lambda c: b"]q\x63h\x63a",
    "dict-of-itself": lambda c: b"}q\x63" + text("a") + b"h\x63s",
    "many-operations": lambda c: b"](" + b"N" * MANY + b"e",
    "long-integer": lambda c: b"\x8a\xff" + b"\x7f" * 255,
    "long4-declared": lambda c: b"\x8b" + struct.pack("<i", 2**31 - 1),
    "long4-negative": lambda c: b"\x8b" + struct.pack("<i", -1),
    "bytes8-declared": lambda c: b"\x8e" + struct.pack("<Q", 1 << 62),
    "bytearray8-declared": lambda c: b"\x96" + struct.pack("<Q", 1 << 62),
    "text-declared": lambda c: b"X" + struct.pack("<I", 2**32 - 1),
    "text8-declared": lambda c: b"\x8d" + struct.pack("<Q", 1 << 63),
    "text-not-utf8": lambda c: b"X" + struct.pack("<I", 2) + b"\xff\xfe",
    "frame-declared": lambda c: b"\x95" + struct.pack("<Q", 1 << 62) + b"N",
    "integer-digits": lambda c: b"I" + b"9" * 100_000 + b"\n",
    "long-digits": lambda c: b"L" + b"9" * 100_000 + b"L\n",
    "string-escape": lambda c: b"S'\\x41" + c.encode() + b"'\n",
    "next-buffer": lambda c: b"\x97\x98",
    "unknown-operation": lambda c: b"\xff",
    "protocol-255": lambda c: b"\x80\xffN",
    "early-stop": lambda c: b"N.",
    "take-too-much": lambda c: b"000000",
    "tuple-too-much": lambda c: b"\x87\x87\x87\x87\x87",
    "marks-left": lambda c: b"(((",
    "no-mark": lambda c: b"eeeeee",
    "long-name": lambda c: b"c" + b"a" * 100_000 + b"\nb\n",
    "name-without-end": lambda c: b"cos",
}  # fmt: skip
HARMLESS = {"build-slots", "deep-lists", "deep-marks", "list-of-itself", "dict-of-itself", "frame-declared"}  # odd data
PAYLOADS = TRICKS | {path: lambda c, path=path: call(name(path), text(c)) for path in CALLS}  # type: ignore[misc]


def attempt(path: Path) -> AnyAgent | str:
    """The agent, or why there is none."""
    try:
        return load_agent(path)
    except BadInput as error:
        return str(error)


def check(path: Path, canary: Path) -> object:
    """Refused in one line, or loaded with the honest numbers; quickly, in little memory, and nothing has run."""
    memory, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    answer = attempt(path)
    if isinstance(answer, str):
        assert "\n" not in answer
        assert len(answer) < 600
    else:
        assert all((value == 0.25).all() for value in answer.parameters())
    assert time.process_time() - start < 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 500_000  # kB
    assert not canary.exists()
    return answer


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_the_honest_file_loads(tmp_path: Path) -> None:
    agent = load_agent(write(tmp_path / "honest.model", model()))
    assert agent.observation_shape == (2,)
    assert agent.hidden == (4, 4)
    assert agent.card.steps == 9
    assert agent.normalizer.moments.std.tolist() == [(0.5 / 9) ** 0.5, 1.0]


def test_the_canary_would_notice(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    pickle.loads(call(name("os.system"), text(f"touch {canary}")) + b".")
    assert canary.exists()


@pytest.mark.parametrize("payload", PAYLOADS)
def test_payloads_everywhere(payload: str, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    code = PAYLOADS[payload](f"touch {canary}")
    policy = entries()["policy_model"].removesuffix(b"u") + text("extra") + code + b"u"
    pickles = [program(**{key: code}) for key in entries()]  # instead of each of the five entries
    pickles += [code + b".", program(policy_model=policy), program(envs=lst(code)), program(extra=code)]
    for pickled in pickles:
        answer = check(write(tmp_path / "evil.model", model(pickled)), canary)
        assert isinstance(answer, str) or payload in HARMLESS
    check(write(tmp_path / "bare.model", code + b"."), canary)  # a pickle that is in no archive


@pytest.mark.parametrize("payload", PAYLOADS)
def test_payloads_in_a_state_dict(payload: str, tmp_path: Path) -> None:
    """A file of ProcGen holds tensors and nothing else, so here odd data is refused as well."""
    canary = tmp_path / "canary"
    code = PAYLOADS[payload](f"touch {canary}")
    for pickled in (code + b".", state_dict(extra=code), state_dict(model__16__bias=code)):
        assert isinstance(check(write(tmp_path / "evil.pt", procgen(pickled)), canary), str)
    check(write(tmp_path / "bare.pt", code + b"."), canary)


def test_the_honest_state_dict_loads(tmp_path: Path) -> None:
    agent = check(write(tmp_path / "honest.pt", procgen(state_dict())), tmp_path / "canary")
    assert isinstance(agent, ImpalaAgent)
    assert agent.actions.n == 2


@pytest.mark.parametrize(
    ("pickled", "message"),
    [
        (state_dict(model__16__bias=None), "it must be a state dict with model.16.weight"),
        (b"\x80\x02" + lst() + b".", "is not an agent of the papers"),
        (b"\x80\x02" + dic(model_state_dict=dic()) + b".", "is not an agent of the papers"),
        (state_dict(step=num(9)), "is not an agent of the papers"),
        (state_dict(model__0__weight=None), "network.trunk.0.weight is missing"),
        (state_dict(model__1__weight=tensor("n16", 16)), "'network.trunk.1.weight' belongs to no part of this agent"),
        (state_dict(**{"x" * 999: tensor("n16", 16)}), "'x{60}' belongs to no part of this agent"),
        (state_dict(**{"model.0.weight\n": tensor("n16", 16)}), r"'model.0.weight\\n' belongs to no part"),
        (state_dict(model__8__bias=tensor("n16", 16)), r"trunk.8.bias must have shape \(32,\), got \(16,\)"),
        (state_dict(logits_fc__bias=tensor("n16", 16)), "logits_fc.bias and model.16.bias must be the same tensor"),
        (state_dict(model__16__bias=tensor("n16", 16), logits_fc__bias=None), r"head.weight must have shape \(16, 256"),
        (state_dict(model__16__bias=tensor("one", 1), logits_fc__bias=None), "must have two numbers or more"),
        (state_dict(model__16__bias=tensor("long", 3)), "model.16.bias must be the same tensor"),
        (state_dict(model__16__bias=tensor("nan", 3), logits_fc__bias=None), "network.head.bias holds NaN or infinity"),
    ],
)  # fmt: skip
def test_what_is_no_agent_of_procgen(pickled: bytes, message: str, tmp_path: Path) -> None:
    data = {"one": bytes(4), "long": struct.pack("<3f", 1, 2, 3), "nan": struct.pack("<3f", 0, math.nan, 0)}
    members = {f"archive__data__{key}": value for key, value in data.items()}
    with pytest.raises(BadInput, match=message) as caught:
        load_agent(write(tmp_path / "a.pt", procgen(pickled, **members)))
    assert "\n" not in str(caught.value)


# ------------------------------------------------------------------------------------------------------- the archive


def patched(data: bytes, field: int, value: bytes) -> bytes:
    """One field of the first entry in the zip's directory, changed."""
    at = data.index(b"PK\1\2") + field
    return data[:at] + value + data[at + len(value) :]


def special(mode: int) -> bytes:
    out = io.BytesIO(model())
    with zipfile.ZipFile(out, "a") as archive:
        member = zipfile.ZipInfo("archive/link")
        member.external_attr = mode << 16
        archive.writestr(member, "/etc/passwd")
    return out.getvalue()


def doubled() -> bytes:
    out = io.BytesIO(model())
    with zipfile.ZipFile(out, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("archive/data.pkl", program())
    return out.getvalue()


ARCHIVES: dict[str, Callable[[], bytes]] = {
    **{
        f"name {member!r}": lambda member=member: zipped({"archive/data.pkl": program(), **MEMBERS, member: b"x"})
        for member in ("../evil", "/etc/evil", "archive/../../evil", "archive/data/..", "C:evil", "a\\..\\b", "a\nb")
    },
    "symbolic link": lambda: special(0o120777),
    "device": lambda: special(0o020666),
    "fifo": lambda: special(0o010666),
    "two of one name": doubled,
    "two pickles": lambda: model(other__data_dot_pkl=b"N.").replace(b"data_dot_pkl", b"data.pkl\0\0\0\0"),
    "two roots": lambda: zipped({"a/data.pkl": program(), "b/data.pkl": program(), **MEMBERS}),
    "no pickle": lambda: zipped(MEMBERS),
    "pickle at the root": lambda: zipped({"data.pkl": program(), **MEMBERS}),
    "pickle too deep": lambda: zipped({"a/b/data.pkl": program(), **MEMBERS}),
    "bomb": lambda: zipped({"archive/data.pkl": b"N" * 50_000_000}, zipfile.ZIP_DEFLATED),
    "bomb beside": lambda: zipped({"archive/data.pkl": program(), "x": bytes(50_000_000)}, zipfile.ZIP_DEFLATED),
    "packed": lambda: zipped({"archive/data.pkl": program(), **MEMBERS}, zipfile.ZIP_DEFLATED),
    "bzip2": lambda: zipped({"archive/data.pkl": program(), **MEMBERS}, zipfile.ZIP_BZIP2),
    "lzma": lambda: zipped({"archive/data.pkl": program(), **MEMBERS}, zipfile.ZIP_LZMA),
    "unknown packing": lambda: patched(model(), 10, b"\x63\x00"),
    "encrypted": lambda: patched(model(), 8, b"\x01\x00"),
    "declares 4 GB": lambda: patched(model(), 24, b"\xfe\xff\xff\xff"),
    "packed and unpacked 4 GB": lambda: patched(model(), 20, b"\xfe\xff\xff\xff" * 2),
    "starts elsewhere": lambda: patched(model(), 42, b"\xfe\xff\xff\x7f"),
    "starts in another member": lambda: patched(model(), 42, b"\x20\x00\x00\x00"),
    "wrong checksum": lambda: patched(model(), 16, b"\0\0\0\0"),
    "1001 members": lambda: zipped({f"archive/{i}": b"" for i in range(1001)}),
    "huge directory": lambda: zipped({f"archive/{i}" + "x" * 1000: b"" for i in range(1100)}),
    "big-endian": lambda: model(archive__byteorder=b"big"),
    "zip in zip": lambda: zipped({"archive/data.pkl": model()}),
    "huge pickle": lambda: zipped({"archive/data.pkl": bytes((64 << 20) + 1)}),
    "long text": lambda: zipped({"archive/data.pkl": text("a" * (60 << 20)) + b"."}),
    "storage shorter than its tensor": lambda: model(archive__data__b=b"\0" * 12),
    "NaN in a weight": lambda: model(archive__data__b=struct.pack("<4f", 1, 2, 3, float("nan"))),
    "empty file": lambda: b"",
    "text file": lambda: b"hello\n" * 100,
    "only a zip's end": lambda: b"PK\5\6" + bytes(18),
    "end that lies": lambda: b"PK\5\6" + b"\xff" * 16 + bytes(2),
    "legacy torch file": lambda: pickle.dumps(0x1950A86A20F9469CFC6C) + pickle.dumps(1001),
    "trailing bytes": lambda: model() + b"\0" * 1000,
    "bytes in front": lambda: b"\0" * 1000 + model(),
    "pickle goes on": lambda: model(program() + call(name("os.system"), text("true")) + b"."),
    **{f"cut at {part}/10": lambda part=part: model()[: len(model()) * part // 10] for part in range(1, 10)},
}  # type: ignore[dict-item]


@pytest.mark.parametrize("case", ARCHIVES)
def test_archives(case: str, tmp_path: Path) -> None:
    answer = check(write(tmp_path / "evil.model", ARCHIVES[case]()), tmp_path / "canary")
    assert isinstance(answer, str) or case == "trailing bytes"
    assert [path.name for path in tmp_path.iterdir()] == ["evil.model"]


@pytest.mark.parametrize("suffix", [".pkl", ".npz", ""])
def test_other_files_are_not_guessed_at(suffix: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"agent{suffix}", pickle.dumps({}))
    with pytest.raises(BadInput, match=r"is not an agent: expected a folder, or a file ending in \.model, \.pt, "):
        load_agent(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"policy_model": dic()}, "affine_layers.0.weight is missing"),
        ({"policy_model": tensor("b", 4)}, "has no state dict 'policy_model'"),
        ({"val_model": dic(a=num(1))}, "has no state dict 'val_model'"),
        ({"val_model": dic()}, "affine_layers.0.weight is missing"),
        ({"envs": lst()}, "has the field 'state_filter'"),
        ({"envs": lst(new(INERT, state_filter=num(1)))}, "has the field 'center'"),
        ({"envs": dic()}, "has the field 'state_filter'"),
    ],
)
def test_what_is_no_agent(changes: dict[str, bytes], message: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=message):
        load_agent(write(tmp_path / "a.model", model(program(**changes))))


# ------------------------------------------------------------------------------------------ our own format, attacked


def honest_folder(parent: Path) -> Path:
    agent = CategoricalAgent((2,), 2, (3,))
    for parameter in agent.parameters():
        torch.nn.init.constant_(parameter, 0.25)
    return save(agent, parent / "agent")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return honest_folder(tmp_path)


def change_weights(folder: Path, data: bytes) -> None:
    """Replace the weights and let the card agree, so that the hash is not what saves us."""
    (folder / WEIGHTS).write_bytes(data)
    card = json.loads((folder / CARD).read_text())
    (folder / CARD).write_text(json.dumps(card | {"sha256": hashlib.sha256(data).hexdigest()}))


def listed(data: bytes) -> dict[str, dict[str, object]]:
    return json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])


def with_header(data: bytes, header: bytes | dict[str, object]) -> bytes:
    encoded = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(encoded).to_bytes(8, "little") + encoded + data[8 + int.from_bytes(data[:8], "little") :]


def entry(**changes: object) -> Callable[[bytes], bytes]:
    """One tensor's line in the header, changed."""
    return lambda data: with_header(
        data, listed(data) | {"network.0.weight": listed(data)["network.0.weight"] | changes}
    )


def tensors_with(**changes: torch.Tensor) -> Callable[[bytes], bytes]:
    named = {key.replace("__", "."): value for key, value in changes.items()}
    return lambda data: safetensors.torch.save(safetensors.torch.load(data) | named)


def repeat_first(header: str) -> bytes:
    """The same line twice: both times right, and still refused."""
    end = header.index("}") + 1
    return ("{" + header[1:end] + ", " + header[1:]).encode()


COUNT = "normalizer__moments__count"
HOSTILE_WEIGHTS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "short": lambda data: data[:7],
    "cut in the header": lambda data: data[:100],
    "cut in the numbers": lambda data: data[:-1],
    "longer": lambda data: data + b"\0",
    "header of 2^62 bytes": lambda data: (1 << 62).to_bytes(8, "little") + data[8:],
    "header of 2^64 − 1 bytes": lambda data: b"\xff" * 8 + data[8:],
    "header of 2 MB": lambda data: with_header(data, json.dumps(listed(data)).encode() + b" " * (2 << 20)),
    "header of no bytes": lambda data: bytes(8) + data[8:],
    "not JSON": lambda data: with_header(data, b"{nothing}"),
    "not UTF-8": lambda data: with_header(data, b'{"\xff": 1}'),
    "a list": lambda data: with_header(data, b"[1, 2]"),
    "a number": lambda data: with_header(data, b"12"),
    "deep": lambda data: with_header(data, b"[" * 500_000),
    "deep object": lambda data: with_header(data, b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
    "digits": lambda data: with_header(data, b'{"a": ' + b"9" * 500_000 + b"}"),
    "duplicate keys": lambda data: with_header(data, repeat_first(json.dumps(listed(data)))),
    "many tensors": lambda data: with_header(data, {str(i): {} for i in range(20_000)}),
    "negative offsets": entry(data_offsets=[-24, 0]),
    "overlapping offsets": entry(data_offsets=[0, 24]),
    "reversed offsets": entry(data_offsets=[24, 0]),
    "offsets outside": entry(data_offsets=[1 << 40, (1 << 40) + 24]),
    "offsets of 2^63": entry(data_offsets=[1 << 63, 1 << 64]),
    "offsets missing": entry(data_offsets=None),
    "offsets are text": entry(data_offsets="0, 24"),
    "shape other": entry(shape=[2, 3]),
    "shape huge": entry(shape=[1 << 62, 1 << 62]),
    "shape negative": entry(shape=[-3, -2]),
    "shape text": entry(shape="(3, 2)"),
    "shape NaN": entry(shape=[float("nan")]),
    "shape true": entry(shape=[True, True]),
    "dtype unknown": entry(dtype="O8"),
    "dtype number": entry(dtype=12),
    "dtype integer": entry(dtype="I32"),
    "dtype float64": entry(dtype="F64"),
    "entry is a list": lambda data: with_header(data, listed(data) | {"network.0.weight": [1]}),
    "metadata is a number": lambda data: with_header(data, listed(data) | {"__metadata__": {"a": 1}}),
    "NaN": tensors_with(network__0__weight=torch.full((3, 2), float("nan"))),
    "infinity": tensors_with(critic__2__bias=torch.full((1,), float("inf"))),
    "NaN in half": tensors_with(network__0__weight=torch.full((3, 2), float("nan"), dtype=torch.half)),
    "negative count": tensors_with(**{COUNT: torch.tensor(-5.0, dtype=torch.float64)}),
    "negative squares": tensors_with(normalizer__moments__squares=torch.tensor([1.0, -1.0], dtype=torch.float64)),
    "half normaliser": tensors_with(**{COUNT: torch.tensor(5.0, dtype=torch.half)}),
    "one tensor more": tensors_with(extra=torch.ones(3)),
    "one tensor less": lambda data: safetensors.torch.save({"network.0.weight": torch.ones(3, 2)}),
    "pickle": lambda data: pickle.dumps({"network.0.weight": 1}),
    "pickle that acts": lambda data: call(name("os.system"), text("touch canary")) + b".",
    "torch archive": lambda data: model(),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE_WEIGHTS)
def test_hostile_weights(case: str, folder: Path) -> None:
    change_weights(folder, HOSTILE_WEIGHTS[case]((folder / WEIGHTS).read_bytes()))
    check(folder, folder.parent / "canary")
    with pytest.raises(BadInput):
        load_agent(folder)


CODE = "__import__('os').system('touch canary')"
HOSTILE_CARDS: dict[str, object] = {
    "format 2": {"format": 2},
    "format true": {"format": True},
    "format text": {"format": "1"},
    "kind unknown": {"kind": "gausian"},
    "kind code": {"kind": CODE},
    "kind path": {"kind": "../../evil"},
    "kind class": {"kind": "radial.agents.policies.GaussianAgent"},
    "kind list": {"kind": ["gaussian"]},
    "kind other": {"kind": "gaussian"},
    "observation_shape text": {"observation_shape": "2"},
    "observation_shape huge": {"observation_shape": [10**30]},
    "observation_shape negative": {"observation_shape": [-2]},
    "observation_shape zero": {"observation_shape": [0]},
    "observation_shape image": {"observation_shape": [3, 64, 64]},
    "observation_shape none": {"observation_shape": []},
    "observation_shape true": {"observation_shape": [True]},
    "observation_shape other": {"observation_shape": [5]},
    "hidden wide": {"hidden": [1 << 20, 1 << 20]},
    "hidden long": {"hidden": [1] * 100_000},
    "hidden float": {"hidden": [3.0]},
    "hidden code": {"hidden": CODE},
    "actions other": {"actions": {"continuous": 2}},
    "actions huge": {"actions": {"discrete": 10**18}},
    "actions number": {"actions": 2},
    "actions code": {"actions": {"discrete": CODE}},
    "clip zero": {"clip": 0},
    "clip text": {"clip": "10"},
    "clip huge": {"clip": 1e300},
    "env code": {"env": CODE},
    "env id list": {"env": {"suite": "gymnasium", "id": [], "options": {}}},
    "env options deep": {"env": {"suite": "gymnasium", "id": "x", "options": {"a": {"b": 1}}}},
    "env escape sequence": {"env": {"suite": "gymnasium", "id": "\x1b[2J", "options": {}}},
    "env more": {"env": {"suite": "gymnasium", "id": "x", "options": {}, "module": "os"}},
    "recipe list": {"recipe": []},
    "results text": {"results": CODE},
    "recipe name": {"recipe": {"name": {"a": 1}}},
    "recipe name escape": {"recipe": {"name": "\x1b[2J"}},
    "recipe notes text": {"recipe": {"notes": "abc"}},
    "recipe notes number": {"recipe": {"notes": 7}},
    "recipe notes numbers": {"recipe": {"notes": [1, 2]}},
    "recipe notes escape": {"recipe": {"notes": ["\x1b]0;pwned\x07"]}},
    "recipe notes many": {"recipe": {"notes": ["a"] * 100_000}},
    "recipe notes long": {"recipe": {"notes": ["a" * 500_000]}},
    "recipe config list": {"recipe": {"config": [1]}},
    "env options escape": {"env": {"suite": "gymnasium", "id": "x", "options": {"a": "\x1b[2J"}}},
    "env options huge": {"env": {"suite": "gymnasium", "id": "x", "options": {"a": 10**100}}},
    "surrogate in results": {"results": {"a": "\ud800"}},
    "surrogate in a key": {"results": {"\udfff": 1}},
    "surrogate in recipe": {"recipe": {"config": {"x": ["\ud800"]}}},
    "seed text": {"seed": "0"},
    "seed huge": {"seed": 10**100},
    "steps negative": {"steps": -1},
    "steps float": {"steps": 1.5},
    "commit lines": {"commit": "a\nb"},
    "source long": {"source": "x" * 10_000},
    "source object": {"source": {"path": "../../evil"}},
    "sha256 other": {"sha256": "0" * 64},
    "sha256 null": {"sha256": None},
    "sha256 empty": {"sha256": ""},
    "unknown field": {"weights": "../../../etc/passwd"},
    "__class__": {"__class__": CODE},
}
HOSTILE_CARD_TEXTS: dict[str, Callable[[str], str | bytes]] = {
    "empty": lambda card: "",
    "null": lambda card: "null",
    "list": lambda card: "[]",
    "cut": lambda card: card[:-10],
    "two": lambda card: card + card,
    "NaN": lambda card: card.replace('"clip": 10.0', '"clip": NaN'),
    "infinity": lambda card: card.replace('"clip": 10.0', '"clip": 1e999'),
    "duplicate": lambda card: card.replace('"clip": 10.0', '"clip": 10.0, "clip": 10.0'),
    "digits": lambda card: card.replace('"steps": 0', '"steps": ' + "9" * 500_000),
    "deep": lambda card: card.replace('"recipe": {}', '"recipe": ' + '{"a":' * 150_000 + "1" + "}" * 150_000),
    "deep list": lambda card: "[" * 1_000_000,
    "2 MB": lambda card: card + " " * (2 << 20),
    "python": lambda card: CODE,
    "yaml": lambda card: "!!python/object/apply:os.system ['touch canary']",
    "pickle": lambda card: pickle.dumps(card),
    "not UTF-8": lambda card: b"\xff\xfe" + card.encode(),
    "UTF-16": lambda card: card.encode("utf-16"),
    "missing": lambda card: card.replace('"hidden"', '"hiddenn"'),
}


@pytest.mark.parametrize("case", HOSTILE_CARDS)
def test_hostile_cards(case: str, folder: Path) -> None:
    card = json.loads((folder / CARD).read_text())
    (folder / CARD).write_text(json.dumps(card | HOSTILE_CARDS[case]))  # type: ignore[operator]
    check(folder, folder.parent / "canary")
    with pytest.raises(BadInput):
        load_agent(folder)


@pytest.mark.parametrize("case", HOSTILE_CARD_TEXTS)
def test_hostile_card_texts(case: str, folder: Path) -> None:
    changed = HOSTILE_CARD_TEXTS[case]((folder / CARD).read_text())
    (folder / CARD).write_bytes(changed if isinstance(changed, bytes) else changed.encode())
    check(folder, folder.parent / "canary")
    with pytest.raises(BadInput):
        load_agent(folder)


def test_a_missing_field_is_named(folder: Path) -> None:
    card = json.loads((folder / CARD).read_text())
    for field in card:
        (folder / CARD).write_text(json.dumps({key: value for key, value in card.items() if key != field}))
        with pytest.raises(BadInput, match=field):
            load_agent(folder)


# ----------------------------------------------------------------------------------------------------- random damage


def mutated(data: bytes, rng: random.Random) -> bytes:
    """A few bytes changed, removed or repeated."""
    changed, draw = bytearray(data), rng.random  # randrange takes four times as long
    for _ in range(1 + int(4 * draw())):
        at, length = int(len(changed) * draw()), 1 + int(9 * draw())
        match int(3 * draw()):
            case 0:
                changed[at] = int(256 * draw())
            case 1:
                del changed[at : at + length]
            case 2:
                changed[at:at] = changed[at : at + length]
    return bytes(changed)
