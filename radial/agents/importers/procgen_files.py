"""Reads the `.pt` files that the RADIAL authors released for ProcGen: the state dict of one IMPALA network.

Game and training are not in the file; its name or the caller must say the game.
"""

import re
from pathlib import Path

from torch import Tensor

from radial.agents.impala_agent import FRAME, ImpalaAgent
from radial.agents.importers.archive import fingerprint, read_archive
from radial.agents.weights import blank_agent, fill
from radial.core.agent import Card
from radial.core.data import BadInput

HEAD = "model.16"  # the joint output, logits then value; the files name it a second time, by an alias
ALIAS = "logits_fc"
NAMES = (  # theirs → ours
    (re.compile(rf"{re.escape(HEAD)}\.(weight|bias)"), r"network.head.\1"),
    (re.compile(r"model\.(\d{1,2})\.model\.([13])\.(weight|bias)"), r"network.trunk.\1.branch.\2.\3"),
    (re.compile(r"model\.(\d{1,2})\.(weight|bias)"), r"network.trunk.\1.\2"),
)


def read_procgen(path: Path) -> ImpalaAgent:
    """The policy and value of a `.pt` file."""
    theirs = _state_dict(path, read_archive(path))
    for part in ("weight", "bias"):
        alias = theirs.pop(f"{ALIAS}.{part}", None)
        if alias is not None and not _same(alias, theirs[f"{HEAD}.{part}"]):
            raise BadInput(f"{path}: {ALIAS}.{part} and {HEAD}.{part} must be the same tensor")
    actions = theirs[f"{HEAD}.bias"].numel() - 1
    if actions < 1:
        raise BadInput(f"{path}: {HEAD}.bias must have two numbers or more, of the logits and the value")
    agent = blank_agent("impala", FRAME, actions, (256,))
    assert isinstance(agent, ImpalaAgent)
    fill(agent, {_ours(name): tensor for name, tensor in theirs.items()}, path)
    agent.card = Card(env=None, source=fingerprint(path))
    return agent


def _state_dict(path: Path, data: object) -> dict[str, Tensor]:
    """Tensors by name, those of the output among them."""
    whole = isinstance(data, dict) and all(isinstance(value, Tensor) for value in data.values())
    if not whole or not isinstance(data, dict) or not {f"{HEAD}.weight", f"{HEAD}.bias"} <= data.keys():
        raise BadInput(f"{path} is not a ProcGen agent of the papers: it must be a state dict with {HEAD}.weight")
    return {str(name): tensor for name, tensor in data.items()}


def _same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype and bool((one == other).all())


def _ours(name: str) -> str:
    """Our name of a tensor; one that we do not know is kept, and refused as unknown when the agent is filled."""
    for theirs, ours in NAMES:
        if theirs.fullmatch(name):
            return theirs.sub(ours, name)
    return name
