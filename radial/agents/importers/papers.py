"""Reads the files that the papers' authors released: `.model` for MuJoCo, `.pt` for ProcGen; Atari's: `papers_atari`.

A `.model` of RADIAL-PPO, SA-PPO, ATLA, WocaR or CAR is a torch file, of which three entries are used: policy_model,
val_model, and envs for the running statistics of its observations. The envs are pickled whole, with the wrappers of the
gym of their day: those become inert placeholders. A `.pt` is the state dict of one IMPALA network.
The environment is in neither; the caller, or for ProcGen the name of the file, must say it.
"""

import math
import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from radial.agents.actor_critic import ImpalaAgent
from radial.agents.convert import Loaded
from radial.agents.importers.archive import check_tensor_bytes, file_source, read_archive
from radial.agents.importers.inert import Foreign, Inert, InertArray
from radial.agents.importers.papers_atari import atari_agent
from radial.agents.importers.sb3_policies import RECURRENT
from radial.agents.networks import ImpalaResNet
from radial.agents.policies import GaussianAgent
from radial.agents.weights import blank_agent, fill
from radial.core.agent import Card
from radial.core.data import BadInput

LAYERS = 16
HEAD = "model.16"  # the joint output, logits then value; the files name it a second time, by an alias
ALIAS = "logits_fc"
NAMES = (  # theirs → ours
    (re.compile(rf"{re.escape(HEAD)}\.(weight|bias)"), r"network.head.\1"),
    (re.compile(r"model\.(\d{1,2})\.model\.([13])\.(weight|bias)"), r"network.trunk.\1.branch.\2.\3"),
    (re.compile(r"model\.(\d{1,2})\.(weight|bias)"), r"network.trunk.\1.\2"),
)


def read_model(path: Path) -> Loaded:
    """The agent of a `.model` file: of MuJoCo, or SA-DQN's of Atari."""
    data = read_archive(path, Foreign())
    return atari_agent(path, data) or _mujoco(path, data)


def _mujoco(path: Path, data: object) -> GaussianAgent:
    """The policy, the critic and the observation normaliser."""
    policy, critic = _tensors(path, data, "policy_model"), _tensors(path, data, "val_model")
    check_tensor_bytes(path, policy, critic)
    if any("lstm" in str(name) for name in policy):
        raise BadInput(f"{path}: {RECURRENT}")
    wrapper = data.get("envs") if isinstance(data, dict) else None
    env = wrapper[0] if isinstance(wrapper, list) and len(wrapper) == 1 else None
    stats = _field(path, env, "state_filter")
    clip, moments = _moments(path, stats)
    hidden = _hidden(path, policy)
    weights = {
        "log_std": _take(path, policy, "log_stdev"),
        **_mlp(path, policy, "network", len(hidden), "final_mean"),
        **_mlp(path, critic, "critic", len(hidden), "final"),
        **{f"normalizer.moments.{name}": value for name, value in moments.items()},
    }
    if left := sorted(str(name) for name in (*policy, *critic)):
        raise BadInput(f"{path}: {left[0][:60]!r} belongs to no part of a Gaussian agent")
    features, actions = weights["network.0.weight"].shape[1], weights["log_std"].numel()
    agent = blank_agent("gaussian", (features,), actions, hidden)
    assert isinstance(agent, GaussianAgent)
    fill(agent, weights, path)
    agent.normalizer.clip = clip
    agent.card = Card(env=None, steps=_steps(path, env), source=file_source(path))
    return agent


def _tensors(path: Path, data: object, name: str) -> dict[str, Tensor]:
    """A state dict of non-empty tensors."""
    found = data.get(name) if isinstance(data, dict) else None
    if not isinstance(found, dict) or not all(isinstance(value, Tensor) and value.numel() for value in found.values()):
        raise BadInput(f"{path} is not a .model file of the papers: it has no state dict '{name}'")
    return dict(found)


def _field(path: Path, thing: object, name: str) -> Any:
    """One attribute of an object that was pickled."""
    if not isinstance(thing, Inert) or not isinstance(thing.state, dict) or name not in thing.state:
        raise BadInput(f"{path} is not a .model file of the papers: nothing in 'envs' has the field '{name}'")
    return thing.state[name]


def _hidden(path: Path, policy: dict[str, Tensor]) -> tuple[int, ...]:
    """The widths of the hidden layers, from the weights (out, in)."""
    hidden: list[int] = []
    while (weight := policy.get(f"affine_layers.{len(hidden)}.weight")) is not None:
        if weight.ndim != 2 or len(hidden) == LAYERS:
            raise BadInput(f"{path}: the policy must have at most {LAYERS} layers with weights (out, in)")
        hidden.append(weight.shape[0])
    if not hidden:
        raise BadInput(f"{path}: affine_layers.0.weight is missing")
    return tuple(hidden)


def _take(path: Path, tensors: dict[str, Tensor], name: str) -> Tensor:
    if name not in tensors:
        raise BadInput(f"{path}: {name} is missing")
    return tensors.pop(name)


def _mlp(path: Path, tensors: dict[str, Tensor], ours: str, layers: int, final: str) -> dict[str, Tensor]:
    """Their names of a network's tensors → ours; layer i is step 2i, for there is a tanh between any two."""
    theirs = [f"affine_layers.{i}" for i in range(layers)] + [final]
    return {
        f"{ours}.{2 * i}.{part}": _take(path, tensors, f"{layer}.{part}")
        for i, layer in enumerate(theirs)
        for part in ("weight", "bias")
    }


def _moments(path: Path, stats: object) -> tuple[float, dict[str, Tensor]]:
    """The clip, and count, mean and Σ(x − mean)² of the observations (Welford)."""
    if _field(path, stats, "center") is not True or _field(path, stats, "scale") is not True:
        raise BadInput(f"{path}: observations must be centred and scaled")
    clip = _field(path, stats, "clip")
    if not isinstance(clip, int | float) or not math.isfinite(clip) or clip <= 0:
        raise BadInput(f"{path}: the clip of the observations must be a number > 0")
    running = _field(path, stats, "rs")
    count = _field(path, running, "_n")
    if type(count) is not int or not 2 <= count < 1 << 53:
        raise BadInput(f"{path}: the normaliser must have seen two observations or more")
    moments = {"count": torch.tensor(count, dtype=torch.float64)}
    for ours, theirs in (("mean", "_M"), ("squares", "_S")):
        array = _field(path, running, theirs)
        if not isinstance(array, InertArray) or array.value is None:
            raise BadInput(f"{path}: the normaliser's {theirs} must be an array")
        moments[ours] = torch.from_numpy(array.value.astype("float64"))
    return float(clip), moments


def _steps(path: Path, env: object) -> int:
    """Env steps of the training: how many rewards its filter has seen."""
    steps = _field(path, _field(path, _field(path, env, "reward_filter"), "rs"), "_n")
    return steps if type(steps) is int and 0 <= steps < 1 << 53 else 0


# ------------------------------------------------------------------------------------------------------------- ProcGen


def read_pt(path: Path) -> Loaded:
    """The agent of a `.pt` or `.pth` file: of ProcGen or of Atari, by the names of its tensors."""
    data = read_archive(path)
    return atari_agent(path, data) or _procgen(path, data)


def _procgen(path: Path, data: object) -> ImpalaAgent:
    """The policy and value in one network."""
    theirs = _state_dict(path, data)
    check_tensor_bytes(path, theirs)
    for part in ("weight", "bias"):
        alias = theirs.pop(f"{ALIAS}.{part}", None)
        if alias is not None and not _same(alias, theirs[f"{HEAD}.{part}"]):
            raise BadInput(f"{path}: {ALIAS}.{part} and {HEAD}.{part} must be the same tensor")
    actions = theirs[f"{HEAD}.bias"].numel() - 1
    if actions < 1:
        raise BadInput(f"{path}: {HEAD}.bias must have two numbers or more, of the logits and the value")
    agent = blank_agent("impala", ImpalaResNet.SHAPE, actions, (256,))
    assert isinstance(agent, ImpalaAgent)
    fill(agent, {_ours(name): tensor for name, tensor in theirs.items()}, path)
    agent.card = Card(env=None, source=file_source(path))
    return agent


def _state_dict(path: Path, data: object) -> dict[str, Tensor]:
    """Tensors by name, those of the output among them."""
    whole = isinstance(data, dict) and all(isinstance(value, Tensor) for value in data.values())
    if not whole or not isinstance(data, dict) or not {f"{HEAD}.weight", f"{HEAD}.bias"} <= data.keys():
        raise BadInput(
            f"{path} is not an agent of the papers: it must be a state dict with {HEAD}.weight (ProcGen), "
            "cnn.0.weight or 9.weight (DQN), or model.15.weight (A3C)"
        )
    return {str(name): tensor for name, tensor in data.items()}


def _same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype and bool((one == other).all())


def _ours(name: str) -> str:
    """Our name of a tensor; one that we do not know is kept, and refused as unknown when the agent is filled."""
    for theirs, ours in NAMES:
        if theirs.fullmatch(name):
            return theirs.sub(ours, name)
    return name
