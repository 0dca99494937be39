"""Opens the zip files torch and others write, checked before anything is unpacked, and reads the pickle inside.

The pickle itself is read by the machine in `restricted.py`; nothing here knows of agents.
"""

import hashlib
import io
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from radial.agents.importers.inert import Refused, Storage, refuse, short
from radial.agents.importers.old_format import no_storage, read_old
from radial.agents.importers.restricted import PICKLE, Machine
from radial.agents.importers.storages import TENSOR_BYTES, numbers_of, storage_id
from radial.core.data import BadInput
from radial.core.text import clean

MEMBERS = 1_000
DIRECTORY = 1 << 20  # bytes of the list of members
OLD_SIZE = TENSOR_BYTES + (PICKLE << 1)  # bytes of a file in the old format
PROTO = b"\x80"  # begins a pickle
UNPACKED = 4 << 30  # bytes of all members together
RATIO = 100  # unpacked bytes per byte of the file
BROKEN = (ValueError, zipfile.BadZipFile, zlib.error, struct.error, EOFError, IndexError, OverflowError,
          NotImplementedError)  # fmt: skip


@contextmanager
def untrusted(path: Path) -> Iterator[None]:
    """Turn any fault of a file into one line."""
    try:
        yield
    except Refused as refusal:
        raise BadInput(f"{path} is not a file we can read safely: {refusal}") from None
    except BROKEN as error:
        raise BadInput(f"{path} is not a file we can read safely: it is damaged ({type(error).__name__})") from None


def check_tensor_bytes(path: Path, *groups: Mapping[str, Tensor], more: int = 0) -> None:
    """Refuse, before any is copied, tensors that take too much memory together.

    Many small tensors may be views of one storage, so each counts in full, as float32 where it is narrower.

    more  bytes that are made from them besides
    """
    each = (tensor.numel() * max(tensor.element_size(), 4) for group in groups for tensor in group.values())
    if more + sum(each) > TENSOR_BYTES:
        raise BadInput(f"{path}: its tensors must take at most {TENSOR_BYTES} bytes together, shared ones each time")


def read_archive(path: Path, objects: Collection[str] = (), file: IO[bytes] | None = None) -> object:
    """The object in a file of torch, of its zip format or the one before: plain data, tensors, `InertArray`, `Inert`.

    objects  dotted names of the foreign classes that become `Inert`; any other refuses the file. A state dict has none
    file     an open file to read in place of `path`: an archive inside another one
    """
    with untrusted(path), nullcontext(file) if file else path.open("rb") as opened:
        start = opened.read(1)
        opened.seek(0)
        if start == PROTO:  # a pickle: torch's format before version 1.6
            return read_old(opened.read(OLD_SIZE + 1), objects)
        return _unpack(open_zip(opened), objects)


def read_pickle(path: Path, objects: Collection[str] = ()) -> object:
    """The object in a bare pickle file, as plain data."""
    with untrusted(path), path.open("rb") as file:
        return Machine(no_storage, objects).run(file.read(PICKLE + 1))


def file_source(path: Path) -> str:
    """The `source` of a card: the name and the hash of the file an agent came from."""
    with path.open("rb") as file:
        return f"{clean(path.name, '')} sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


class _ShortReads:
    """A file that hands out at most a megabyte at once until `trusted`: a zip's directory is read in one piece."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.trusted = file, False
        self.seek, self.tell, self.seekable, self.close = file.seek, file.tell, file.seekable, file.close

    def read(self, size: int = -1) -> bytes:
        if self.trusted:
            return self.file.read(size)
        data = self.file.read(DIRECTORY + 1 if size < 0 else min(size, DIRECTORY + 1))
        if len(data) > DIRECTORY:
            refuse(f"its directory has more than {DIRECTORY} bytes")
        return data


def open_zip(file: IO[bytes]) -> zipfile.ZipFile:
    """A zip whose members' names, number and sizes were checked; nothing is unpacked yet."""
    size = file.seek(0, io.SEEK_END)
    guarded: Any = _ShortReads(file)
    file.seek(0)
    if file.read(4) != b"PK\3\4" or not zipfile.is_zipfile(guarded):
        refuse("it is not a zip archive")
    archive = zipfile.ZipFile(guarded)
    members = archive.infolist()
    if len(members) > MEMBERS:
        refuse(f"it has {len(members)} members, at most {MEMBERS} are read")
    if len({member.filename for member in members}) != len(members):
        refuse("two of its members have one name")
    unpacked = sum(member.file_size for member in members)
    if unpacked > UNPACKED:
        refuse(f"it unpacks to {unpacked} bytes, at most {UNPACKED} are read")
    if unpacked > RATIO * size or sum(member.compress_size for member in members) > size:
        refuse(f"it unpacks to more than {RATIO} times its size")
    for member in members:
        _check_member(member)
    guarded.trusted = True
    return archive


def _check_member(member: zipfile.ZipInfo) -> None:
    """A plain file with a plain relative name, stored or deflated."""
    name = member.orig_filename
    if name.startswith("/") or re.search(r"[\\:\x00-\x1f]", name) or ".." in name.split("/"):
        refuse(f"a member's name is {short(name)}")
    kind = stat.S_IFMT(member.external_attr >> 16)
    if kind and not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):
        refuse(f"its member {short(name)} is not a plain file")
    if member.flag_bits & 0x1 or member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        refuse(f"its member {short(name)} is encrypted or packed in an unknown way")
    if member.file_size > RATIO * max(member.compress_size, 1):
        refuse(f"its member {short(name)} unpacks to more than {RATIO} times its size")


def _unpack(archive: zipfile.ZipFile, objects: Collection[str]) -> object:
    """Find the one pickle of a torch archive and interpret it."""
    members = {member.filename: member for member in archive.infolist()}
    if any(member.compress_type != zipfile.ZIP_STORED for member in members.values()):
        refuse("its members are packed, which torch never does")
    pickles = [name for name in members if re.fullmatch(r"[^/]+/data\.pkl", name)]
    if len(pickles) != 1:
        refuse("it is not a torch archive: it must have one member named …/data.pkl")
    root = pickles[0].removesuffix("data.pkl")
    if members[pickles[0]].file_size > PICKLE:
        refuse(f"its pickle has more than {PICKLE} bytes")
    if root + "byteorder" in members and archive.read(root + "byteorder") != b"little":
        refuse("its numbers are not little-endian")
    storages: dict[tuple[str, torch.dtype], Storage] = {}
    read = 0

    def storage(identity: object) -> Storage:
        nonlocal read
        dtype, key, count = storage_id(identity)
        member = members.get(f"{root}data/{key}")
        if member is None or member.file_size != count * dtype.itemsize:
            refuse(f"its storage {short(key)} is missing or of another size")
        if (key, dtype) not in storages:
            read += member.file_size  # one member may be asked for as several types
            if read > TENSOR_BYTES:
                refuse(f"its storages have more than {TENSOR_BYTES} bytes")
            storages[key, dtype] = numbers_of(archive.read(member), dtype)
        return storages[key, dtype]

    return Machine(storage, objects).run(archive.read(pickles[0]))
