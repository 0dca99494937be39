"""Tensors between files and agents: read with every limit checked first, and written into an agent all or none.

The folder around them is in `saved`.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as decode
from torch import Tensor, nn

from radial.agents.convert import AGENTS, AnyAgent
from radial.agents.policies import RawAgent
from radial.core.data import BadInput
from radial.core.text import has_surrogate

HEADER = 1 << 20  # bytes
TENSORS = 10_000
SIZE = 2 << 30  # bytes of one file
TENSOR_DTYPES = {"F16": torch.float16, "F32": torch.float32, "F64": torch.float64}


def weights_id(module: nn.Module) -> str:
    """A name for a network by its weights: 16 digits of SHA-256."""
    digest = hashlib.sha256()
    for name, tensor in module.state_dict().items():
        digest.update(name.encode() + tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def strict_json(path: Path, text: bytes) -> Any:
    """JSON without duplicate keys, NaN or infinities."""

    def once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                raise ValueError(f"the key {key[:60]!r} appears twice")
            found[key] = value
        return found

    def finite(number: str) -> float:
        if not math.isfinite(value := float(number)):
            raise ValueError("a number is not finite")
        return value

    try:
        found = json.loads(text.decode(), object_pairs_hook=once, parse_float=finite, parse_constant=finite)
        if b"\\u" in text and has_surrogate(found):
            raise ValueError("a text has half a character (a lone surrogate)")
        return found
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path} is not readable JSON: {str(error).splitlines()[0][:200]}") from None


def blank_agent(
    kind: str, observation_shape: tuple[int, ...], actions: int, hidden: tuple[int, ...], **more: str
) -> AnyAgent:
    """An agent that has shapes but no memory yet; making it draws no random numbers."""
    make: Any = AGENTS[kind]
    with torch.device("meta"):
        made: AnyAgent = make(observation_shape, actions, hidden, **more)
    return made


@lru_cache(maxsize=32)
def blank_tensors(
    kind: str, observation_shape: tuple[int, ...], actions: int, hidden: tuple[int, ...], **more: str
) -> Mapping[str, Tensor]:
    """The tensors of a blank agent by name, without their memory: what a file must hold."""
    return blank_agent(kind, observation_shape, actions, hidden, **more).state_dict()


def fill(agent: AnyAgent, tensors: Mapping[str, Tensor], source: Path) -> None:
    """Give a blank agent its weights, after all of them were checked, and freeze its normaliser.

    float16 weights become float32; nothing else is converted.
    """
    expected = agent.state_dict()
    check_shapes_of(source, expected, {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items()})
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            raise BadInput(f"{source}: {name} holds NaN or infinity")
        if name.startswith("normalizer.moments.") and not name.endswith(".mean") and (tensor < 0).any():
            raise BadInput(f"{source}: {name} must not be negative")
    agent.to_empty(device="cpu")
    agent.load_state_dict({name: tensor.to(expected[name].dtype) for name, tensor in tensors.items()})
    if not isinstance(agent, RawAgent):
        agent.normalizer.freeze()


def check_shapes_of(
    source: Path, expected: Mapping[str, Tensor], found: Mapping[str, tuple[torch.dtype, tuple[int, ...]]]
) -> None:
    """Every tensor the agent has, none it has not, in its shape and its dtype (or float16 for float32)."""
    if missing := sorted(expected.keys() - found.keys()):
        raise BadInput(f"{source}: {missing[0]} is missing")
    if unknown := sorted(found.keys() - expected.keys()):
        raise BadInput(f"{source}: {unknown[0][:60]!r} belongs to no part of this agent")
    for name, (dtype, shape) in found.items():
        if shape != tuple(expected[name].shape):
            raise BadInput(f"{source}: {name} must have shape {tuple(expected[name].shape)}, got {shape[:8]}")
        if dtype != expected[name].dtype and (dtype, expected[name].dtype) != (torch.float16, torch.float32):
            raise BadInput(f"{source}: {name} must be {expected[name].dtype}, got {dtype}")


def read_tensors(path: Path, expected: Mapping[str, Tensor], sha256: str, limit: int = SIZE) -> dict[str, Tensor]:
    """The tensors of a safetensors file, if they are the expected ones and the file has this hash.

    expected  names, shapes and dtypes; may be on the meta device
    limit     bytes; the file's list of tensors is compared before its numbers are read
    """
    size = path.stat().st_size
    if size > limit:
        raise BadInput(f"{path} has {size} bytes, at most {limit} are read")
    with path.open("rb") as file:
        start = file.read(8)
        length = int.from_bytes(start, "little")
        if len(start) < 8 or not 2 <= length <= min(HEADER, size - 8):
            raise BadInput(f"{path} is not a safetensors file: its header must have 2 to {HEADER} bytes")
        header = file.read(length)
        check_shapes_of(path, expected, _listed(path, strict_json(path, header)))
        data = start + header + file.read(limit)
    if hashlib.sha256(data).hexdigest() != sha256:
        raise BadInput(f"{path} is damaged: its SHA-256 is not the one in the card")
    try:
        return decode(data)
    except SafetensorError as error:
        raise BadInput(f"{path} is not a safetensors file: {str(error).splitlines()[0][:200]}") from None


def _listed(path: Path, header: Any) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
    """The dtype and shape of each tensor in a header."""
    if not isinstance(header, dict) or len(header) > TENSORS:
        raise BadInput(f"{path} must list at most {TENSORS} tensors")
    found = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        shape = entry.get("shape") if isinstance(entry, dict) else None
        dtype = entry.get("dtype") if isinstance(entry, dict) else None
        if not isinstance(shape, list) or not all(type(size) is int and 0 <= size < 1 << 40 for size in shape):
            raise BadInput(f"{path}: the shape of {name[:60]!r} must be a list of sizes")
        if not isinstance(dtype, str) or dtype not in TENSOR_DTYPES:
            raise BadInput(f"{path}: the dtype of {name[:60]!r} must be one of {', '.join(TENSOR_DTYPES)}")
        found[name] = (TENSOR_DTYPES[dtype], tuple(shape))
    return found
