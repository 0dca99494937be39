"""Reads the Atari agents that the papers' authors released: state dicts, told apart by the names of their tensors.

| names | file | agent |
|---|---|---|
| cnn.0/2/4, advantage.0/2, value.0/2 | RADIAL-DQN `.pt`, SA-DQN `.pth` or `.model` | `QAgent` |
| 0, 2, 4, 7, 9 | SA-DQN with PGD, not dueling | an imported Q-network |
| model.0/3/6/9/13/15 | RADIAL-A3C `.pt` | `ActorCritic` |

RADIAL-DQN also writes {model_state_dict, optimizer_state_dict, step}. The environment is in none of them.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from torch import Tensor, nn

from radial.agents.actor_critic import ActorCritic
from radial.agents.convert import Loaded
from radial.agents.foreign import WrappedAgent, wrap
from radial.agents.importers.archive import check_tensor_bytes, file_source
from radial.agents.importers.parts import Parts, network
from radial.agents.networks import AtariActorCritic, NatureDueling
from radial.agents.preprocessing import Frames
from radial.agents.q_agent import QAgent
from radial.agents.weights import blank_agent, fill
from radial.core.agent import Card
from radial.core.data import BadInput

INSIDE = "model_state_dict"
CENTRED = re.compile(r"advantage\.2\.(weight|bias)")  # of the layer that we centre


def state_dict_of(data: object) -> dict[str, Tensor] | None:
    """The tensors by name, of a bare state dict or of the one in a checkpoint; None: there is none."""
    inner = data.get(INSIDE, data) if isinstance(data, dict) else None
    if not isinstance(inner, dict) or not inner:
        return None
    whole = all(isinstance(name, str) and isinstance(value, Tensor) for name, value in inner.items())
    return dict(inner) if whole else None


def atari_agent(path: Path, data: object) -> Loaded | None:
    """The agent of a state dict with the names of one of these networks; None: it is none of them."""
    tensors = state_dict_of(data)
    if tensors is None:
        return None
    check_tensor_bytes(path, tensors)
    for name, read in READERS.items():
        if name in tensors:
            agent = read(path, tensors)
            steps = data.get("step") if isinstance(data, dict) else None
            known = steps if type(steps) is int and 0 <= steps < 1 << 53 else 0
            agent.card = Card(env=None, steps=known, source=file_source(path))
            return agent
    return None


def _dueling(path: Path, theirs: Mapping[str, Tensor]) -> QAgent:
    """Q = V + A − mean A: the centring is a layer of ours, with the same numbers."""
    sizes = [_shape(path, theirs, f"cnn.{i}.weight", 4) for i in (0, 2, 4)]
    units, actions = _shape(path, theirs, "advantage.0.weight", 2)[0], _shape(path, theirs, "advantage.2.weight", 2)[0]
    shape = (sizes[0][1], NatureDueling.SIDE, NatureDueling.SIDE)
    agent = blank_agent("q", shape, actions, (*(size[0] for size in sizes), units))
    assert isinstance(agent, QAgent)
    fill(agent, {_ours(name): tensor for name, tensor in theirs.items()}, path)
    return agent


def _ours(name: str) -> str:
    """Our name of a tensor; one that we do not know is kept, and refused as unknown when the agent is filled."""
    return "network." + CENTRED.sub(r"advantage.2.linear.\1", name).replace("cnn.", "features.", 1)


def _plain(path: Path, theirs: Mapping[str, Tensor]) -> WrappedAgent:
    parts = Parts(path, {f"network.{name}": tensor for name, tensor in theirs.items()})
    layers, channels = parts.nature("network")
    body = [*layers, parts.linear("network.7"), nn.ReLU(), parts.linear("network.9")]
    parts.finish()
    return wrap(network(body), "q", Frames(channels), valid_range=(0.0, 1.0))


def _joint(path: Path, theirs: Mapping[str, Tensor]) -> ActorCritic:
    """The value, then the logits, in one network whose layers have the same numbers as ours."""
    filters = [_shape(path, theirs, f"model.{i}.weight", 4) for i in (0, 3, 6, 9)]
    units, outputs = _shape(path, theirs, "model.13.weight", 2)[0], _shape(path, theirs, "model.15.weight", 2)[0]
    if outputs < 2:
        raise BadInput(f"{path}: model.15.weight must have two rows or more, of the value and the logits")
    shape = (filters[0][1], AtariActorCritic.SIDE, AtariActorCritic.SIDE)
    agent = blank_agent("actor-critic", shape, outputs - 1, (*(size[0] for size in filters), units))
    assert isinstance(agent, ActorCritic)
    fill(agent, {f"network.{name}": tensor for name, tensor in theirs.items()}, path)
    return agent


READERS: dict[str, Callable[[Path, Mapping[str, Tensor]], QAgent | ActorCritic | WrappedAgent]] = {
    "cnn.0.weight": _dueling,
    "9.weight": _plain,
    "model.15.weight": _joint,
}


def _shape(path: Path, theirs: Mapping[str, Tensor], name: str, axes: int) -> tuple[int, ...]:
    if name not in theirs:
        raise BadInput(f"{path}: {name} is missing")
    shape = tuple(theirs[name].shape)
    if len(shape) != axes or 0 in shape:
        raise BadInput(f"{path}: {name} must have {axes} axes and no empty one, got {shape[:8]}")
    return shape
