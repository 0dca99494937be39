"""Files that are written whole or not at all, JSON that is read strictly, and the errors of both.

The contents of the files are not known here.
"""

import errno
import json
import logging
import math
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from radial.core.errors import BadInput
from radial.core.text import clean, has_surrogate

MAX_JSON = 1 << 26  # bytes
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NO_LINKS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)  # Windows has neither
_log = logging.getLogger("radial")


class Corrupt(BadInput):
    """A file of ours is not what was written; the message is one line that names the file and what is wrong."""


class DiskFull(OSError):
    """No room to write; the previous content is untouched."""


# ---------------------------------------------------------------------------------------------------------- writing


@contextmanager
def writing(where: Path) -> Iterator[None]:
    """A full disk, a quota or a limit on file size becomes `DiskFull`; any other failure to write an OSError."""
    try:
        yield
    except DiskFull:
        raise
    except (OSError, SafetensorError) as error:
        numbers = (getattr(error, "errno", None), *(n for n in _NO_ROOM if f"(os error {n})" in str(error)))
        if any(number in _NO_ROOM for number in numbers):
            raise DiskFull(f"disk full: {where} cannot be written ({one_line(error)})") from None
        if isinstance(error, SafetensorError):
            raise OSError(f"{where} cannot be written ({one_line(error)})") from None
        raise


def sync(path: Path) -> None:
    """Wait until a file, or the names in a directory, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def check_kind(path: Path, folder: bool) -> None:
    """Refuse a name that is there as a link, a pipe, or anything else but a regular file, or with `folder` a folder.

    A link would lead our writing elsewhere, and a pipe keep us waiting.
    """
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not (stat.S_ISDIR(mode) if folder else stat.S_ISREG(mode)):
        raise BadInput(f"{path} must be a {'folder' if folder else 'regular file'} and no link, or not be there")


def open_plain(path: str | Path, flags: int) -> int:
    """A handle of a regular file, opened without following a link or waiting for a pipe; an `opener` for `open`.

    To write, it must have one name: what is written through a hard link is written into another file.
    """
    try:
        handle = os.open(path, flags | _NO_LINKS, 0o644)
    except OSError:
        check_kind(Path(path), folder=False)
        raise
    found = os.fstat(handle)
    shared = found.st_nlink > 1 and flags & (os.O_WRONLY | os.O_RDWR)  # another name of someone else's file
    if not stat.S_ISREG(found.st_mode) or shared:
        os.close(handle)
        raise BadInput(f"{path} must be a regular file and no link, or not be there")
    return handle


def write_atomic(path: Path, text: str) -> None:
    """The file holds either what it held or `text`, whatever happens in between."""
    temporary = path.with_name(f"{path.name}.tmp-{os.getpid()}")
    with writing(path):
        try:
            temporary.unlink(missing_ok=True)  # left by a process that died and had our number
            with temporary.open("x", encoding="utf-8") as file:  # never through a link
                file.write(text)
            sync(temporary)
            os.replace(temporary, path)
            sync(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


def check_plain(value: object, where: str) -> None:
    """Refuse values that JSON would not give back (but a tuple becomes a list); the error names the place."""
    if isinstance(value, float) and not math.isfinite(value):
        raise FloatingPointError(f"{where} is {value}, which is not finite")
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise BadInput(f"{where} must have strings as keys, got {key!r}")
            check_plain(item, f"{where}.{key}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            check_plain(item, f"{where}[{index}]")
    elif value is not None and not isinstance(value, str | int | float):
        raise BadInput(f"{where} must be plain JSON, got {type(value).__name__}")


# ---------------------------------------------------------------------------------------------------------- reading


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file of at most `MAX_JSON` bytes, or `Corrupt`."""
    require(path.is_file(), path, "is missing")  # nor a pipe, which would keep us waiting
    try:
        require(path.stat().st_size <= MAX_JSON, path, f"is larger than {MAX_JSON} bytes")
        content = path.read_bytes()
    except OSError as error:
        raise Corrupt(f"{path} cannot be read: {one_line(error)}") from None
    return parse_json(content, path)


def parse_json(content: bytes, file: Path) -> dict[str, Any]:
    """A JSON object as the standard has it: every key once, every number finite; or `Corrupt`."""
    try:
        value = json.loads(
            content.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_finite, parse_float=_finite
        )
    except (ValueError, RecursionError) as error:
        raise Corrupt(f"{file} is not valid JSON: {one_line(error)}") from None
    require(isinstance(value, dict), file, "is not a JSON object")
    require(b"\\u" not in content or not has_surrogate(value), file, "has a text with half a character")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key occurs twice")
    return found


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:80]} is not finite")
    return value


def require(good: bool, file: Path, wrong: str) -> None:
    """`Corrupt`, unless `good`."""
    if not good:
        raise Corrupt(f"{file} {wrong}")


def one_line(error: BaseException) -> str:
    """The message of an error, however long, as one line."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def warn(message: str) -> None:
    """Say it to the log, and on stderr even where the log goes elsewhere."""
    message = clean(message)  # names in it may come from files
    _log.warning("%s", message)
    if _log.hasHandlers():  # without one, logging itself writes to stderr
        sys.stderr.write(f"radial: warning: {message}\n")
