"""The storages of a torch file: how a pickle names one, and how its bytes become numbers."""

import re
from typing import Any

import torch

from radial.agents.importers.inert import STORAGES, Name, Storage, refuse, short

TENSOR_BYTES = 512 << 20  # bytes of all tensors of one file, shared ones each time: a hundred times the largest known


def numbers_of(data: bytes, dtype: torch.dtype) -> Storage:
    """A storage from its bytes, little-endian."""
    if not data:
        return Storage(torch.empty(0, dtype=dtype))
    if dtype is torch.bool:  # a byte other than 0 and 1 is no bool
        return Storage(torch.frombuffer(bytearray(data), dtype=torch.uint8) != 0)
    return Storage(torch.frombuffer(bytearray(data), dtype=dtype))


def storage_id(identity: Any) -> tuple[torch.dtype, str, int]:
    """The dtype, key and length in ("storage", type, key, device, length)."""
    if type(identity) is not tuple or len(identity) != 5 or type(identity[1]) is not Name:
        refuse("a storage in it is not named as torch does")
    _, kind, key, _, count = identity
    if kind not in STORAGES:
        refuse(f"a storage in it is of the unknown type {short(str(kind))}")
    if type(key) is not str or not re.fullmatch(r"[0-9A-Za-z_]{1,64}", key):
        refuse("a storage in it has a name that is not plain")
    if type(count) is not int or count < 0:
        refuse("a storage in it has no length")
    return STORAGES[kind], key, count
