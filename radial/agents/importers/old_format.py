"""Reads the files of torch before version 1.6: five pickles one after the other, then the numbers of every storage.

| part | is |
|---|---|
| 1, 2 | a magic number, the version of the protocol |
| 3 | how the writer stores numbers |
| 4 | the object; its tensors name storages that come later |
| 5 | the names of the storages, in the order in which they come |
| the rest | of each storage, how many numbers it has and their bytes |
"""

from collections.abc import Collection
from typing import Any, NoReturn

import torch

from radial.agents.importers.inert import Storage, refuse, short
from radial.agents.importers.restricted import Machine
from radial.agents.importers.storages import TENSOR_BYTES, numbers_of, storage_id

MAGIC, PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
LENGTH = 8  # bytes of a storage's length


def no_storage(identity: object) -> NoReturn:
    """For pickles that have no tensors."""
    refuse("it has no storages")


def read_old(data: bytes, objects: Collection[str]) -> object:
    """The object in the bytes of such a file, as plain data; see `archive.read_archive`."""
    magic, position = Machine(no_storage).read(data)
    if magic != MAGIC:
        refuse("it is neither a zip archive nor of torch's older format")
    version, position = Machine(no_storage).read(data, position)
    system, position = Machine(no_storage).read(data, position)
    if version != PROTOCOL or not isinstance(system, dict) or system.get("little_endian") is not True:
        refuse("its protocol is not that of torch's older format, or its numbers are not little-endian")
    storages = _Storages(len(data))
    value, position = Machine(storages, objects).read(data, position)
    keys, position = Machine(no_storage).read(data, position)
    if (
        not isinstance(keys, list)
        or not all(type(key) is str for key in keys)
        or sorted(keys) != sorted(storages.known)
    ):
        refuse("its list of storages is not that of its tensors")
    for key in keys:
        position = _fill(key, *storages.known[key], data, position)
    if position != len(data):
        refuse("it does not end where it should")
    return value


class _Storages:
    """Storages by their names: zeros until their bytes are reached, never more than the file has."""

    def __init__(self, size: int) -> None:
        self.known: dict[str, tuple[Storage, torch.dtype]] = {}
        self.left = min(size, TENSOR_BYTES)

    def __call__(self, identity: Any) -> Storage:
        if type(identity) is not tuple or len(identity) != 6 or identity[5] is not None:
            refuse("a storage in it is not named as torch does, or is a view of another")
        dtype, key, count = storage_id(identity[:5])
        if key not in self.known:
            self.left -= count * dtype.itemsize
            if self.left < 0:
                refuse("its storages have more bytes than it has, or than are read")
            self.known[key] = Storage(torch.zeros(count, dtype=dtype)), dtype
        storage, known = self.known[key]
        if known != dtype or len(storage.numbers) != count:
            refuse(f"its storage {short(key)} has two types or lengths")
        return storage


def _fill(key: str, storage: Storage, dtype: torch.dtype, data: bytes, position: int) -> int:
    """Read the numbers of one storage; returns where they end."""
    count = len(storage.numbers)
    start = position + LENGTH
    end = start + count * dtype.itemsize
    if int.from_bytes(data[position:start], "little") != count or end > len(data):
        refuse(f"its storage {short(key)} is missing or of another size")
    storage.numbers.copy_(numbers_of(data[start:end], dtype).numbers)
    return end
