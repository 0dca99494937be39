"""Files of Stable-Baselines3 and CleanRL made to do harm: refused with one line, or read with the honest numbers.

The assembler and the payloads are those of `hostile_test`. A canary file tells whether a command was run.
"""

import base64
import builtins
import importlib
import json
import math
import os
import pickle
import random
import struct
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from radial.agents.importers.archive import TENSOR_BYTES
from radial.agents.importers.hostile_test import (
    FALSE,
    HARMLESS,
    NONE,
    ORDERED,
    PAYLOADS,
    REBUILD_TENSOR,
    TRUE,
    array,
    call,
    check,
    dic,
    dtype,
    name,
    new,
    num,
    real,
    storage,
    tensor,
    text,
    tup,
    write,
    zipped,
)
from radial.agents.saved import load_agent

# ------------------------------------------------------------------------------------ honest files, 2 → 4 → 4 → actions

FLOATS = {"w0": 8, "b": 4, "w1": 16, "w2": 8, "out": 2, "w3": 4, "one": 1}
STORAGES = {f"archive/data/{key}": struct.pack(f"<{n}f", *[0.25] * n) for key, n in FLOATS.items()}
# What Stable-Baselines3 2.9 pickles into `data` of a PPO agent.
PICKLED = (
    "policy_class", "policy_kwargs", "observation_space", "action_space", "learning_rate", "lr_schedule", "_last_obs",
    "_last_episode_starts", "ep_info_buffer", "ep_success_buffer", "clip_range",
)  # fmt: skip


def layers(prefix: str, *weights: bytes) -> dict[str, bytes]:
    named = {}
    for i, weight in enumerate(weights):
        named[f"{prefix}.{2 * i}.weight"], named[f"{prefix}.{2 * i}.bias"] = weight, tensor("b", 4)
    return named


def state() -> dict[str, bytes]:
    """The tensors of a PPO policy."""
    hidden = (tensor("w0", 4, 2), tensor("w1", 4, 4))
    return {
        **layers("mlp_extractor.policy_net", *hidden),
        **layers("mlp_extractor.value_net", *hidden),
        "action_net.weight": tensor("w2", 2, 4), "action_net.bias": tensor("out", 2),
        "value_net.weight": tensor("w3", 1, 4), "value_net.bias": tensor("one", 1),
    }  # fmt: skip


def archive(pickled: bytes) -> bytes:
    return zipped({"archive/data.pkl": pickled, **STORAGES, "archive/version": b"3\n"})


def weights(**changes: bytes) -> bytes:
    return archive(b"\x80\x02" + dic(**(state() | changes)) + b".")


def data(payload: bytes = b"N.", **changes: Any) -> bytes:
    """The JSON beside them; every pickled field holds the payload."""
    blob = {":serialized:": base64.b64encode(payload).decode(), ":type:": "<class 'dict'>"}
    fields: dict[str, Any] = {field: dict(blob) for field in PICKLED}
    fields["observation_space"] |= {":type:": "<class 'gymnasium.spaces.box.Box'>", "_shape": [2], "dtype": "float32"}
    fields["action_space"] |= {":type:": "<class 'gymnasium.spaces.discrete.Discrete'>"}
    return json.dumps(fields | {"n_epochs": 10, "num_timesteps": 9} | changes).encode()


def sb3(**members: bytes) -> bytes:
    return zipped({"data": data(), "policy.pth": weights(), "pytorch_variables.pth": b"", **members})


STATS = "stable_baselines3.common.running_mean_std.RunningMeanStd"
WRAPPER = "stable_baselines3.common.vec_env.vec_normalize.VecNormalize"


def statistics(**changes: bytes) -> bytes:
    ones = struct.pack("<2d", 1.0, 1.0)
    rms = new(STATS, mean=array(ones, 2), var=array(ones, 2), count=real(10.0))
    fields = {"norm_obs": TRUE, "clip_obs": real(10.0), "epsilon": real(1e-8), "obs_rms": rms, "venv": NONE}
    return b"\x80\x02" + new(WRAPPER, **(fields | changes)) + b"."


def test_the_honest_files_load(tmp_path: Path) -> None:
    (tmp_path / "vecnormalize.pkl").write_bytes(statistics())
    agent = load_agent(write(tmp_path / "a.zip", sb3()))
    assert agent.observation_shape == (2,)
    assert agent.card.steps == 9
    assert agent.door.mean.tolist() == [1.0, 1.0]  # type: ignore[union-attr]
    hidden = layers("actor", tensor("w0", 4, 2), tensor("w1", 4, 4)) | layers("critic", tensor("w0", 4, 2))
    assert load_agent(write(tmp_path / "a.cleanrl_model", archive(b"\x80\x02" + dic(**hidden) + b"."))).actions.n == 4  # type: ignore[union-attr]


# ------------------------------------------------------------------------------------------------------- the payloads


@pytest.mark.parametrize("payload", PAYLOADS)
def test_payloads_everywhere(payload: str, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    code = PAYLOADS[payload](f"touch {canary}")
    # In the pickled fields of `data` nothing is read at all: the agent loads with its honest numbers.
    assert not isinstance(check(write(tmp_path / "field.zip", sb3(data=data(code + b"."))), canary), str)
    for inner in (code + b".", b"\x80\x02" + dic(**(state() | {"extra": code})) + b"."):
        answer = check(write(tmp_path / "evil.zip", sb3(**{"policy.pth": archive(inner)})), canary)
        assert isinstance(answer, str)
        assert isinstance(check(write(tmp_path / "evil.cleanrl_model", archive(inner)), canary), str)
    check(write(tmp_path / "other.zip", sb3(**{"policy.optimizer.pth": archive(code + b".")})), canary)  # never opened
    beside = tmp_path / "vecnormalize.pkl"
    for evil in (code + b".", statistics(obs_rms=code), statistics(venv=code), statistics(norm_obs=code)):
        beside.write_bytes(evil)
        answer = check(write(tmp_path / "honest.zip", sb3()), canary)
        assert isinstance(answer, str) or payload in HARMLESS or evil == statistics(norm_obs=code)


def test_the_canary_would_notice(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    blob = json.loads(data(call(name("os.system"), text(f"touch {canary}")) + b"."))["learning_rate"][":serialized:"]
    pickle.loads(base64.b64decode(blob))
    assert canary.exists()


# ---------------------------------------------------------------------------------------------------- other hostility

NOT_FINITE = struct.pack("<2d", float("nan"), 1.0)
FILES: dict[str, Callable[[], bytes]] = {
    "no data": lambda: zipped({"policy.pth": weights()}),
    "no policy": lambda: zipped({"data": data()}),
    "data is a list": lambda: sb3(data=b"[1]"),
    "data is not JSON": lambda: sb3(data=b"__import__('os').system('true')"),
    "data is a pickle": lambda: sb3(data=pickle.dumps({"a": 1})),
    "data deep": lambda: sb3(data=b"[" * 1_000_000),
    "data with a key twice": lambda: sb3(data=b'{"a": 1, "a": 2}'),
    "data with NaN": lambda: sb3(data=b'{"seed": NaN}'),
    "data a bomb": lambda: zipped({"data": b" " * 70_000_000, "policy.pth": weights()}, zipfile.ZIP_DEFLATED),
    "policy is not an archive": lambda: sb3(**{"policy.pth": b"hello"}),
    "policy is a pickle": lambda: sb3(**{"policy.pth": pickle.dumps({"a": 1})}),
    "policy is a list": lambda: sb3(**{"policy.pth": archive(b"].")}),
    "policy is empty": lambda: sb3(**{"policy.pth": archive(b"}.")}),
    "path upward": lambda: sb3(**{"../evil": b"x"}),
    "absolute path": lambda: sb3(**{"/etc/evil": b"x"}),
    "activation is code": lambda: sb3(data=data(policy_kwargs={"activation_fn": "os.system('true')"})),
    "activation unknown": lambda: sb3(data=data(policy_kwargs={"activation_fn": "<class 'evil.Tanhh'>"})),
    "activation a list": lambda: sb3(data=data(policy_kwargs={"activation_fn": ["ReLU"]})),
    "actions a list": lambda: sb3(data=data(action_space=["<class 'x.Discrete'>"])),
    "actions a text": lambda: sb3(data=data(action_space="<class 'x.Discrete'>")),
    "observations a list": lambda: sb3(data=data(observation_space=[2])),
    "settings a list": lambda: sb3(data=data(policy_kwargs=[{"squash_output": True}])),
    "squashed": lambda: sb3(data=data(policy_kwargs={"squash_output": True})),
    "extractor a list": lambda: sb3(data=data(policy_kwargs={"features_extractor_class": ["FlattenExtractor"]})),
    "another shape": lambda: sb3(data=data(observation_space={":type:": "<class 'x.Box'>", "_shape": [3]})),
    "several observations": lambda: sb3(data=data(observation_space={":type:": "<class 'x.Dict'>"})),
    "several actions": lambda: sb3(data=data(action_space={":type:": "<class 'x.MultiDiscrete'>"})),
    "missing tensor": lambda: sb3(**{"policy.pth": archive(b"\x80\x02" + dic(**layers("q_net.q_net")) + b".")}),
    "one tensor more": lambda: sb3(**{"policy.pth": weights(extra=tensor("b", 4))}),
    "tensor of another shape": lambda: sb3(**{"policy.pth": weights(**{"action_net.weight": tensor("w1", 4, 4)})}),
    "tensor is a number": lambda: sb3(**{"policy.pth": weights(**{"action_net.weight": num(1)})}),
    "recurrent": lambda: sb3(**{"policy.pth": weights(**{"lstm_actor.weight_ih_l0": tensor("w1", 4, 4)})}),
    "many observations": lambda: sb3(**{"policy.pth": weights(**{"f.extractors.a": tensor("b", 4)})}),
    "cut": lambda: sb3()[:900],
}  # fmt: skip
FRAME = b"\x80\x05"


def buffer(*args: bytes, where: str = "numpy._core.numeric._frombuffer") -> bytes:
    """What protocol 5 makes of an array."""
    return call(name(where), *args)


def of_buffer(mean: bytes) -> bytes:
    good = buffer(grown(16), dtype("f8"), tup(num(2)), text("C"))
    return FRAME + statistics(obs_rms=new(STATS, mean=mean, var=good, count=real(10.0)))[2:]


def grown(count: int) -> bytes:
    """A bytearray of zeros."""
    return b"\x96" + struct.pack("<Q", count) + bytes(count)


BUFFERS: dict[str, Callable[[], bytes]] = {
    "too few bytes": lambda: buffer(grown(8), dtype("f8"), tup(num(2)), text("C")),
    "too many bytes": lambda: buffer(grown(800), dtype("f8"), tup(num(2)), text("C")),
    "a huge shape": lambda: buffer(grown(8), dtype("f8"), tup(num(1 << 30), num(1 << 30)), text("C")),
    "a negative shape": lambda: buffer(grown(8), dtype("f8"), tup(num(-1)), text("C")),
    "no bytes": lambda: buffer(text("x"), dtype("f8"), tup(num(2)), text("C")),
    "a tensor's place": lambda: buffer(num(1), dtype("f8"), tup(num(2)), text("C")),
    "another order": lambda: buffer(grown(16), dtype("f8"), tup(num(2)), text("K")),
    "an order that is called": lambda: buffer(grown(16), dtype("f8"), tup(num(2)), name("os.system")),
    "one argument more": lambda: buffer(grown(16), dtype("f8"), tup(num(2)), text("C"), NONE),
    "one argument less": lambda: buffer(grown(16), dtype("f8"), tup(num(2))),
    "objects": lambda: buffer(grown(16), dtype("O8", "|"), tup(num(2)), text("C")),
    "a type by name": lambda: buffer(grown(16), text("f8"), tup(num(2)), text("C")),
    "another name of numpy": lambda: buffer(
        grown(16), dtype("f8"), tup(num(2)), text("C"), where="numpy._core.numeric.fromfunction"
    ),
    "a buffer from outside": lambda: b"\x97\x98",
    "longer than the file": lambda: b"\x96" + struct.pack("<Q", 1 << 40),
}


def test_an_honest_buffer_loads(tmp_path: Path) -> None:
    (tmp_path / "vecnormalize.pkl").write_bytes(of_buffer(buffer(grown(16), dtype("f8"), tup(num(2)), text("C"))))
    assert load_agent(write(tmp_path / "a.zip", sb3())).door.mean.tolist() == [0.0, 0.0]  # type: ignore[union-attr]


@pytest.mark.parametrize("case", BUFFERS)
def test_hostile_buffers(case: str, tmp_path: Path) -> None:
    (tmp_path / "vecnormalize.pkl").write_bytes(of_buffer(BUFFERS[case]()))
    assert isinstance(check(write(tmp_path / "a.zip", sb3()), tmp_path / "canary"), str)


STATISTICS: dict[str, Callable[[], bytes]] = {
    "not a wrapper": lambda: b"\x80\x02" + dic(norm_obs=TRUE) + b".",
    "NaN": lambda: statistics(obs_rms=new(STATS, mean=array(NOT_FINITE, 2), var=array(NOT_FINITE, 2))),
    "negative variance": lambda: statistics(
        obs_rms=new(STATS, mean=array(bytes(16), 2), var=array(struct.pack("<2d", -1, 1), 2))
    ),
    "no array": lambda: statistics(obs_rms=new(STATS, mean=num(1), var=num(1))),
    "another shape": lambda: statistics(obs_rms=new(STATS, mean=array(bytes(24), 3), var=array(bytes(24), 3))),
    "clip is text": lambda: statistics(clip_obs=text("10")),
    "clip is negative": lambda: statistics(clip_obs=real(-1.0)),
    "clip is true": lambda: statistics(clip_obs=TRUE),
    "epsilon is NaN": lambda: statistics(epsilon=real(float("nan"))),
    "goes on": lambda: statistics() + call(name("os.system"), text("true")) + b".",
    "empty": lambda: b"",
    "text": lambda: b"hello",
}


@pytest.mark.parametrize("case", FILES)
def test_hostile_files(case: str, tmp_path: Path) -> None:
    assert isinstance(check(write(tmp_path / "evil.zip", FILES[case]()), tmp_path / "canary"), str)


@pytest.mark.parametrize("case", STATISTICS)
def test_hostile_statistics(case: str, tmp_path: Path) -> None:
    (tmp_path / "vecnormalize.pkl").write_bytes(STATISTICS[case]())
    assert isinstance(check(write(tmp_path / "a.zip", sb3()), tmp_path / "canary"), str)


def test_statistics_that_say_no_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "vecnormalize.pkl").write_bytes(statistics(norm_obs=FALSE))
    assert not isinstance(check(write(tmp_path / "a.zip", sb3()), tmp_path / "canary"), str)


def test_nothing_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Honest files load while all that could run code is broken."""
    (tmp_path / "vecnormalize.pkl").write_bytes(statistics())
    hidden = layers("actor", tensor("w0", 4, 2), tensor("w1", 4, 4)) | layers("critic", tensor("w0", 4, 2))
    paths = [write(tmp_path / "a.zip", sb3())]
    paths.append(write(tmp_path / "a.cleanrl_model", archive(b"\x80\x02" + dic(**hidden) + b".")))
    for path in paths:
        load_agent(path)  # whatever torch imports on first use is imported

    def alarm(*args: object, **kwargs: object) -> object:
        raise AssertionError("code was run")

    for owner, names in {
        os: ["system", "popen", "execv"], subprocess: ["Popen", "run"], builtins: ["eval", "exec", "compile"],
        pickle: ["load", "loads", "Unpickler", "_Unpickler"], importlib: ["import_module"], torch: ["load"],
    }.items():  # fmt: skip
        for each in names:
            monkeypatch.setattr(owner, each, alarm)
    loaded = [load_agent(path) for path in paths]
    monkeypatch.undo()
    assert len(loaded) == 2


# ------------------------------------------------------------------------------------------------------- memory bombs

WIDE = 2048  # one layer of such width takes 16 MiB
_RNG = random.Random(0)
# packed to a fiftieth: more would be refused for the ratio
SHARED = b"".join(struct.pack("<f", _RNG.random()) + bytes(252) for _ in range(4 * WIDE * WIDE // 256))


def _bomb(**named: bytes) -> bytes:
    """An archive whose tensors are all views of one storage of zeros."""
    return zipped({"archive/data.pkl": b"\x80\x02" + dic(**named) + b".", "archive/data/z": SHARED})


def _view(*shape: int) -> bytes:
    stride = tup(*(num(math.prod(shape[i + 1 :])) for i in range(len(shape))))
    return call(REBUILD_TENSOR, storage("z", WIDE * WIDE), num(0), tup(*map(num, shape)), stride, FALSE, call(ORDERED))


def _deep(*prefixes: str) -> dict[str, bytes]:
    named = {}
    for prefix in prefixes:
        for i in range(16):
            named |= {f"{prefix}.{2 * i}.weight": _view(WIDE, WIDE), f"{prefix}.{2 * i}.bias": _view(WIDE)}
    return named


def _wide_sb3() -> bytes:
    named = _deep("mlp_extractor.policy_net", "mlp_extractor.value_net")
    for last, count in (("action_net", 2), ("value_net", 1)):
        named |= {f"{last}.weight": _view(count, WIDE), f"{last}.bias": _view(count)}
    space = {":type:": "<class 'gymnasium.spaces.box.Box'>", "_shape": [WIDE], "dtype": "float32"}
    return zipped({"data": data(observation_space=space), "policy.pth": _bomb(**named)}, zipfile.ZIP_DEFLATED)


def _recalled() -> bytes:
    """One tensor, remembered by the pickle and used again under other names."""
    again = dict.fromkeys(list(_deep("actor", "critic"))[2::2], b"h\1")
    return _bomb(**{"actor.0.weight": _view(WIDE, WIDE) + b"q\1", "actor.0.bias": _view(WIDE)}, **again)


BOMBS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "sb3": (".zip", _wide_sb3),
    "cleanrl": (".cleanrl_model", lambda: _bomb(**_deep("actor", "critic"))),
    "recalled": (".cleanrl_model", _recalled),
    "papers": (".pt", lambda: _bomb(**_deep("model", "more"))),
    "mujoco": (".model", lambda: _bomb(policy_model=dic(**_deep("a")), val_model=dic(**_deep("b")))),
}  # fmt: skip


@pytest.mark.parametrize("case", BOMBS)
def test_tensors_that_share_a_storage_count_each_time(case: str, tmp_path: Path) -> None:
    suffix, build = BOMBS[case]
    path = write(tmp_path / f"bomb{suffix}", build())
    answer = check(path, tmp_path / "canary")
    assert isinstance(answer, str)
    assert str(path) in answer
    assert str(TENSOR_BYTES) in answer


def test_a_stretch_that_becomes_a_matrix_is_counted(tmp_path: Path) -> None:
    """DDPG's n scales become an (n, n) matrix: 16,000 of them a gigabyte."""
    n = 16_000
    named = {f"fc{i}.{part}": _view(*shape) for i in (1, 2) for part, shape in (("weight", (1, 1)), ("bias", (1,)))}
    named |= {"fc_mu.weight": _view(n, 1)} | {name: _view(n) for name in ("fc_mu.bias", "action_scale", "action_bias")}
    pickled = b"\x80\x02" + tup(dic(**named), dic()) + b"."
    bomb = zipped({"archive/data.pkl": pickled, "archive/data/z": SHARED})
    answer = check(write(tmp_path / "ddpg.cleanrl_model", bomb), tmp_path / "canary")
    assert isinstance(answer, str)
    assert str(TENSOR_BYTES) in answer


def test_a_storage_read_as_many_types_counts_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("radial.agents.importers.archive.TENSOR_BYTES", 100)
    kinds = {kind: call(REBUILD_TENSOR, storage("z", 64 // size, f"torch.{kind}Storage"), num(0), tup(num(1)),
                        tup(num(1)), FALSE, call(ORDERED)) for kind, size in (("Float", 4), ("Int", 4))}  # fmt: skip
    bomb = zipped({"archive/data.pkl": b"\x80\x02" + dic(**kinds) + b".", "archive/data/z": bytes(64)})
    answer = check(write(tmp_path / "a.cleanrl_model", bomb), tmp_path / "canary")
    assert isinstance(answer, str)
    assert "storages" in answer
