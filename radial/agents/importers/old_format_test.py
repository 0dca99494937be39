"""Files of torch before version 1.6, written by torch; and the papers' later releases, which name things gone."""

import collections
import contextlib
import io
import pickle
import random
import struct
import sys
import types
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from radial.agents.importers.archive import read_archive
from radial.agents.importers.hostile_test import (
    CALLS,
    HARMLESS,
    PAYLOADS,
    check,
    dic,
    entries,
    num,
    text,
    tup,
    write,
)
from radial.agents.importers.inert import STORAGES, Foreign, Inert
from radial.agents.policies import GaussianAgent
from radial.agents.saved import load_agent
from radial.core.data import BadInput


def old(value: object) -> bytes:
    out = io.BytesIO()
    torch.save(value, out, _use_new_zipfile_serialization=False)
    return out.getvalue()


@pytest.mark.parametrize("dtype", sorted(STORAGES.values(), key=str), ids=str)
def test_tensors(dtype: torch.dtype, tmp_path: Path) -> None:
    whole = torch.arange(12).reshape(3, 4).to(dtype)
    value = {"whole": whole, "row": whole[1], "turned": whole.T, "scalar": whole[2, 3],
             "none": torch.empty(0, dtype=dtype), "state": collections.OrderedDict(weight=whole), "n": 3}  # fmt: skip
    found: Any = read_archive(write(tmp_path / "a.pt", old(value)))
    for key in ("whole", "row", "turned", "scalar", "none"):
        assert found[key].dtype == dtype
        assert torch.equal(found[key], value[key])  # type: ignore[arg-type]
    assert torch.equal(found["state"]["weight"], whole)
    assert found["n"] == 3


def test_weights_of_stable_baselines3_in_the_old_format(tmp_path: Path) -> None:
    sb3 = pytest.importorskip("stable_baselines3")
    new, older = tmp_path / "new.zip", tmp_path / "Pendulum-v1.zip"
    sb3.SAC("MlpPolicy", "Pendulum-v1", buffer_size=10, seed=0, device="cpu").save(new)
    with zipfile.ZipFile(new) as source, zipfile.ZipFile(older, "w") as target:
        for member in source.namelist():
            data = source.read(member)
            target.writestr(member, old(torch.load(io.BytesIO(data))) if member == "policy.pth" else data)
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    assert torch.equal(load_agent(new).act(x), load_agent(older).act(x))


# ------------------------------------------------------------------------------------------ the papers' later releases


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Makes objects of classes that are gone once the file is written."""

    def make(dotted: str, **state: object) -> Any:
        module, _, name = dotted.rpartition(".")
        parts = module.split(".")
        for i in range(len(parts)):
            path = ".".join(parts[: i + 1])
            if path not in sys.modules:
                monkeypatch.setitem(sys.modules, path, types.ModuleType(path))
        home = sys.modules[module]
        if not hasattr(home, name):
            setattr(home, name, type(name, (), {"__module__": module}))
        made = getattr(home, name)()
        vars(made).update(state)
        return made

    return make


def release(make: Any, policy: dict[str, torch.Tensor] | None = None, **more: object) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    ours = GaussianAgent((3,), 2, (8, 8))
    ours.initialize(torch.Generator().manual_seed(0))
    layers = ("affine_layers.0", "affine_layers.1")

    def named(network: Any, last: str) -> dict[str, torch.Tensor]:
        return {
            f"{theirs}.{part}": getattr(network[2 * i], part).detach()
            for i, theirs in enumerate((*layers, last))
            for part in ("weight", "bias")
        }

    rs = make("policy_gradients.torch_utils.RunningStat", _n=50, _M=rng.normal(size=3), _S=rng.uniform(1, 2, size=3))
    states = make("policy_gradients.torch_utils.ZFilter", center=True, scale=True, clip=10.0, rs=rs)
    rewards = make(
        "policy_gradients.torch_utils.RewardFilter", rs=make("policy_gradients.torch_utils.RunningStat", _n=49)
    )
    inner = make("gym_of_another_year.envs.mujoco.hopper_v3.HopperEnv", _ezpickle_args=(), _ezpickle_kwargs={})
    wrapped = make("gym_of_another_year.wrappers.order_enforcing.OrderEnforcing", env=inner, _has_reset=True, **more)
    env = make("policy_gradients.custom_env.Env", state_filter=states, reward_filter=rewards, env=wrapped)
    body = {"log_stdev": torch.zeros(2), **named(ours.network, "final_mean")}
    return {
        "policy_model": body if policy is None else policy, "val_model": named(ours.critic, "final"),
        "adversary_policy_model": {"a": torch.ones(1)}, "policy_opt": {"state": {}}, "envs": [env],
    }  # fmt: skip


@pytest.mark.parametrize("save", [old, None], ids=["old", "zip"])
def test_envs_with_wrappers_that_do_not_exist_here(save: Any, package: Any, tmp_path: Path) -> None:
    """As WocaR, ATLA and CAR write them: a class unknown to us is a placeholder, and the numbers are read beside it."""
    found = release(
        package, history=collections.deque([1.0, 2.0]), seen={1, 2}, table=collections.defaultdict(dict, a={}),
        np_random=np.random.default_rng(0), where=Path("/tmp/run"), kept=package("some.lab.Thing", a=[1, (2, 3)]),
    )  # fmt: skip
    torch.save(found, tmp_path / "hopper.model", _use_new_zipfile_serialization=save is None)
    sys.modules.pop("gym_of_another_year", None)
    agent = load_agent(tmp_path / "hopper.model")
    assert isinstance(agent, GaussianAgent)
    assert (agent.observation_shape, agent.hidden, agent.card.steps) == ((3,), (8, 8), 49)
    obs = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    rs = found["envs"][0].state_filter.rs
    x = torch.from_numpy((obs.numpy() - rs._M) / (np.sqrt(rs._S / 49) + 1e-8)).clamp(-10, 10).float()
    torch.testing.assert_close(agent.prepare(obs), x)
    weights = found["policy_model"]
    h = (x @ weights["affine_layers.0.weight"].T + weights["affine_layers.0.bias"]).tanh()
    h = (h @ weights["affine_layers.1.weight"].T + weights["affine_layers.1.bias"]).tanh()
    torch.testing.assert_close(agent.act(x), h @ weights["final_mean.weight"].T + weights["final_mean.bias"])


def test_an_lstm_is_refused(package: Any, tmp_path: Path) -> None:
    memory = {f"lstm.{name}": value for name, value in torch.nn.LSTM(8, 8).state_dict().items()}
    found = release(package, {"embedding_layer.weight": torch.ones(8, 3), **memory})
    torch.save(found, tmp_path / "a.model", _use_new_zipfile_serialization=False)
    with pytest.raises(BadInput, match=r"recurrent policies are not supported: an observation alone.*; rr\.wrap makes"):
        load_agent(tmp_path / "a.model")


def test_placeholders_are_of_foreign_packages_only() -> None:
    foreign = Foreign()
    for name in ("gym.wrappers.time_limit.TimeLimit", "policy_gradients.custom_env.Env", "collections.deque"):
        assert name in foreign
    for name in (*CALLS, "os.path.join", "builtins.type", "__main__.Env", "torch.nn.Linear", 3):
        assert name not in foreign


def test_a_placeholder_keeps_its_name_and_does_nothing(tmp_path: Path) -> None:
    code = b"\x80\x02csome.lab\nThing\n)\x81}(" + text("a") + num(1) + b"ub."
    (tmp_path / "a.pkl").write_bytes(code)
    from radial.agents.importers.archive import read_pickle

    found = read_pickle(tmp_path / "a.pkl", Foreign())
    assert isinstance(found, Inert)
    assert (str(found.name), found.state) == ("some.lab.Thing", {"a": 1})


# ------------------------------------------------------------------------------------------------------- made to harm

MAGIC = pickle.dumps(0x1950A86A20F9469CFC6C, 2) + pickle.dumps(1001, 2)
SYSTEM = pickle.dumps({"protocol_version": 1001, "little_endian": True, "type_sizes": {"int": 4}}, 2)


def storage(key: str, count: int, kind: str = "torch\nFloatStorage", view: bytes = b"N") -> bytes:
    return tup(text("storage"), b"c" + kind.encode() + b"\n", text(key), text("cpu"), num(count), view) + b"Q"


def tensor(key: str, *shape: int, stored: bytes | None = None) -> bytes:
    strides, count = [], 1
    for size in reversed(shape):
        strides.insert(0, count)
        count *= size
    inner = (
        (storage(key, count) if stored is None else stored) + num(0) + tup(*map(num, shape)) + tup(*map(num, strides))
    )
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + inner + b"\x89ccollections\nOrderedDict\n)RtR"


def file(value: bytes, keys: object = ("k",), rest: bytes = struct.pack("<q2f", 2, 1.0, 2.0), magic: bytes = MAGIC,
         system: bytes = SYSTEM) -> bytes:  # fmt: skip
    listed = keys if isinstance(keys, bytes) else pickle.dumps(list(keys), 2)  # type: ignore[call-overload]
    return magic + system + b"\x80\x02" + value + b"." + listed + rest


FIVE = tup(text("storage"), b"ctorch\nFloatStorage\n", text("k"), text("cpu"), num(2)) + b"Q"  # as in a zip
HONEST = dic(a=tensor("k", 2))
HOSTILE: dict[str, bytes] = {
    "another number": file(HONEST, magic=pickle.dumps(7, 2) + pickle.dumps(1001, 2)),
    "another protocol": file(HONEST, magic=MAGIC[:-4] + pickle.dumps(1002, 2)[-4:]),
    "big endian": file(HONEST, system=pickle.dumps({"little_endian": False}, 2)),
    "no facts": file(HONEST, system=pickle.dumps([], 2)),
    "a storage nobody lists": file(HONEST, keys=()),
    "a storage nobody uses": file(HONEST, keys=("k", "l")),
    "a storage twice": file(HONEST, keys=("k", "k")),
    "no list": file(HONEST, keys=pickle.dumps({"k": 1}, 2)),
    "numbers as keys": file(HONEST, keys=(1,)),
    "another length": file(HONEST, rest=struct.pack("<q2f", 3, 1.0, 2.0)),
    "a negative length": file(HONEST, rest=struct.pack("<q2f", -2, 1.0, 2.0)),
    "too short": file(HONEST, rest=struct.pack("<qf", 2, 1.0)),
    "nothing": file(HONEST, rest=b""),
    "more behind": file(HONEST, rest=struct.pack("<q2f", 2, 1.0, 2.0) + b"more"),
    "a great length": file(dic(a=tensor("k", 1 << 30))),
    "many great ones": file(dic(**{f"a{i}": tensor(f"k{i}", 500) for i in range(9)}), keys=[f"k{i}" for i in range(9)]),
    "a negative count": file(dic(a=tensor("k", 2, stored=storage("k", -2)))),
    "two lengths": file(dic(a=tensor("k", 2), b=tensor("k", 2, stored=storage("k", 1)))),
    "two types": file(dic(a=tensor("k", 2), b=tensor("k", 2, stored=storage("k", 2, "torch\nIntStorage")))),
    "a view": file(dic(a=tensor("k", 2, stored=storage("k", 2, view=tup(text("v"), num(0), num(1)))))),
    "five parts": file(dic(a=tensor("k", 2, stored=FIVE))),
    "a path": file(dic(a=tensor("../../k", 2)), keys=("../../k",)),
    "outside": file(dic(a=tensor("k", 3, stored=storage("k", 2)))),
    "a module": file(tup(text("module"), b"cos\nsystem\n", text("x.py"), text("import os")) + b"Q"),
    "a storage in the list": file(HONEST, keys=b"\x80\x02]" + storage("k", 2) + b"a."),
    "a call in the list": file(HONEST, keys=b"\x80\x02cos\nsystem\n(X\x02\x00\x00\x00lstR."),
    "a call in the facts": file(HONEST, system=b"\x80\x02cos\nsystem\n(X\x02\x00\x00\x00lstR."),
    "no end": MAGIC + SYSTEM + b"\x80\x02" + HONEST,
    "only a number": MAGIC,
    "empty": b"\x80",
    "a tar of torch": b"storages/" + bytes(503),
}  # fmt: skip


def test_the_honest_file_is_read(tmp_path: Path) -> None:
    found: Any = read_archive(write(tmp_path / "a.pt", file(HONEST)))
    assert found["a"].tolist() == [1.0, 2.0]


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_files(case: str, tmp_path: Path) -> None:
    for suffix in (".pt", ".model", ".cleanrl_model"):
        answer = check(write(tmp_path / f"evil{suffix}", HOSTILE[case]), tmp_path / "canary")
        assert isinstance(answer, str)
        assert "rr.wrap" in answer


@pytest.mark.parametrize("payload", PAYLOADS)
def test_payloads_in_the_old_format(payload: str, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    code = PAYLOADS[payload](f"touch {canary}")
    answer = check(write(tmp_path / "evil.model", file(dic(**(entries() | {"envs": code})))), canary)
    assert isinstance(answer, str) or payload in HARMLESS


def test_random_damage(tmp_path: Path) -> None:
    """Bytes changed, cut and doubled: read or refused, never anything else."""
    whole, rng = old({"a": torch.ones(3), "b": [1, {"c": torch.zeros(2, 2)}]}), random.Random(0)
    for _ in range(150):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        if rng.random() < 0.3:
            data = data[: rng.randrange(len(data))]
        with contextlib.suppress(BadInput):
            read_archive(write(tmp_path / "a.pt", bytes(data)))
