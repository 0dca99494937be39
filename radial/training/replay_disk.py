"""A replay on disk, in segments: each checkpoint adds one file with the slots written since the one before.

A segment is a safetensors file, so it can be read, or mapped, without radial; replay.py defines its rows. It is
complete and on the disk before a checkpoint names it, it is never changed, and it is deleted only when no checkpoint
that may be resumed needs it. So a process may die at any moment, and a run may go back to the checkpoint before.

    kept = save_segments(replay, folder, before)                   # 1. the segments
    run.save(step, tensors | replay.tensors(), {"replay": kept})   # 2. the checkpoint that names them
    prune_segments(folder, [before, kept])                         # 3. delete those neither of the last two needs

A checkpoint that stays only because it is the best keeps its weights, not its replay: to load that one is `Corrupt`.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from radial.runs.files import Corrupt, DiskFull, one_line, require, sync, writing
from radial.training.replay import Replay

IO_BYTES = 1 << 22  # bytes read or written at once
_NAMES = {
    torch.uint8: "U8", torch.int32: "I32", torch.bool: "BOOL", torch.float32: "F32", torch.float64: "F64",
}  # fmt: skip
_FIELDS = {"first": int, "last": int, "size": int, "sha256": str}
_COUNTS = {"slots": int, "written": int, "added": int, "transitions": int, "max_priority": float}
_HASH = re.compile(r"[0-9a-f]{64}")
State = dict[str, Any]  # plain JSON


class ReplayFolder:
    """The replay's part of a run's folder: its state in the last checkpoint, and the segments that it names."""

    def __init__(self, run: Path | None) -> None:
        """The folder of a run; None: nothing is written."""
        self.path = None if run is None else run / "replay"
        self._saved: State | None = None
        self._before: State | None = None  # of the checkpoint before, which may still be resumed

    def verify(self, state: Mapping[str, Any]) -> None:
        """Raise `Corrupt` unless the replay that a checkpoint names is there."""
        if self.path is not None:
            named = isinstance(state.get("replay"), dict)
            require(named, self.path, "belongs to a checkpoint that says nothing of it")
            check_segments(self.path, state["replay"])

    def save(self, replay: Replay) -> State:
        """Write the transitions added since the last call; return the state for a checkpoint."""
        self._before, self._saved = self._saved, save_segments(replay, self.path, self._saved)
        return self._saved

    def prune(self) -> None:
        """Delete segments that neither of the last two checkpoints names; only once the newest is in place."""
        prune_segments(self.path, [self._before, self._saved])

    def load(self, replay: Replay, state: State, tensors: Mapping[str, Tensor]) -> None:
        """Fill a new replay as a checkpoint left it."""
        assert self.path is not None
        load_segments(replay, self.path, state, tensors)
        self._saved = state


# ---------------------------------------------------------------------------------------------------------- writing


def save_segments(replay: Replay, folder: Path | None, before: Mapping[str, Any] | None) -> State:
    """Write the slots added since `before`, and return the state a checkpoint must hold besides `replay.tensors()`.

    folder  of the segments, RUN/replay; None: nothing is written, and the state cannot be loaded
    before  the state returned by the last call, or held by the resumed checkpoint; None: all slots are written
    """
    state: State = {
        "slots": replay.slots,
        "written": replay.written,
        "added": replay.added,
        "transitions": len(replay),
        "max_priority": replay.max_priority,
        "segments": [],
    }
    if folder is None or not replay.written:
        return state
    oldest, newest = max(0, replay.written - replay.slots), replay.written - 1
    segments = _still_there(folder, before, oldest, replay.written)
    # The slot that was newest then has got its actions since, so it is written once more.
    first = max(segments[-1]["last"], oldest) if segments else oldest
    if not segments or newest > first:
        segments.append(_write(replay, folder, first, newest))
    return state | {"segments": [one for one in segments[:-1] if one["last"] > oldest] + segments[-1:]}


def _still_there(folder: Path, before: Mapping[str, Any] | None, oldest: int, written: int) -> list[dict[str, Any]]:
    """The segments of `before`, or none if one was lost or all end before the ring: then all is written again."""
    segments = [] if before is None else [dict(segment) for segment in before["segments"]]
    paths = [folder / _name(segment) for segment in segments]
    whole = all(path.is_file() and path.stat().st_size == s["size"] for path, s in zip(paths, segments, strict=True))
    return segments if whole and segments and oldest <= segments[-1]["last"] < written else []


def _write(replay: Replay, folder: Path, first: int, last: int) -> dict[str, Any]:
    header = _header(replay, first, last)
    size = len(header) + sum(part.nbytes for part in _parts(replay, first, last))
    temporary = folder / f"seg_{first:012d}_{last:012d}.tmp-{os.getpid()}"
    digest = hashlib.sha256()
    with writing(folder):
        if not folder.is_dir():
            folder.mkdir(parents=True)
            sync(folder.parent)
        free = shutil.disk_usage(folder).free
        if free < size:
            raise DiskFull(
                f"disk full: the replay in {folder} needs {size / 1e6:.1f} MB more and {free / 1e6:.1f} MB are free"
            )
        try:
            temporary.unlink(missing_ok=True)
            with temporary.open("xb", buffering=0) as file:
                for part in (memoryview(header), *_parts(replay, first, last)):
                    _put(file, part, digest)
                os.fsync(file.fileno())
            segment = {"first": first, "last": last, "size": size, "sha256": digest.hexdigest()}
            os.replace(temporary, folder / _name(segment))
            sync(folder)
        finally:
            temporary.unlink(missing_ok=True)
    return segment


def _put(file: Any, part: memoryview, digest: Any) -> None:
    while part:  # a write may be short
        done = file.write(part[:IO_BYTES])
        digest.update(part[:done])
        part = part[done:]


def _header(replay: Replay, first: int, last: int) -> bytes:
    """The length and header of a safetensors file: where each column lies, and which slots these are."""
    header: dict[str, Any] = {"__metadata__": {"first": str(first), "last": str(last)}}
    offset = 0
    for name in _columns(replay):
        column = replay.columns[name]
        end = offset + (last - first + 1) * column[0].nbytes
        shape = [last - first + 1, *column.shape[1:]]
        header[name] = {"dtype": _NAMES[column.dtype], "shape": shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # so that mapped columns are aligned
    return len(text).to_bytes(8, "little") + text


def _parts(replay: Replay, first: int, last: int) -> Iterator[memoryview]:
    """The memory of slots first … last, column after column; each is one piece, or two where the ring ends."""
    start, stop = first % replay.slots, last % replay.slots + 1
    pieces = [(start, stop)] if start < stop else [(start, replay.slots), (0, stop)]
    for name in _columns(replay):
        for low, high in pieces:
            yield replay.columns[name][low:high].view(-1).view(torch.uint8).numpy().data


def _columns(replay: Replay) -> list[str]:
    """Names of the columns, wide types first, so that every column is aligned."""
    return sorted(replay.columns, key=lambda name: (-replay.columns[name].dtype.itemsize, name))


def _name(segment: Mapping[str, Any]) -> str:
    """A file name with the content's hash: two continuations of one checkpoint share it only if they are equal."""
    return f"seg_{segment['first']:012d}_{segment['last']:012d}_{segment['sha256'][:16]}.safetensors"


def prune_segments(folder: Path | None, states: Sequence[Mapping[str, Any] | None]) -> None:
    """Delete segments that none of these states names, and files that dead processes left half-written.

    states  of every checkpoint that may be resumed, once the newest of them is in place; only for the lock's holder
    """
    if folder is None or not folder.is_dir():
        return
    kept = {_name(segment) for state in states if state is not None for segment in state["segments"]}
    for path in folder.glob("seg_*"):
        if path.name not in kept:
            path.unlink(missing_ok=True)


# ---------------------------------------------------------------------------------------------------------- reading


def check_segments(folder: Path, state: Mapping[str, Any]) -> None:
    """Raise `Corrupt` unless every segment that the state names is there, with the content that was written."""
    for segment in _checked(folder, state):
        path, digest = folder / _name(segment), hashlib.sha256()
        with _reading(path, segment) as file:
            while chunk := file.read(IO_BYTES):
                digest.update(chunk)
        _check_hash(path, segment, digest)


def load_segments(
    replay: Replay, folder: Path, state: Mapping[str, Any], tensors: Mapping[str, Tensor] | None = None
) -> None:
    """Fill a new replay with the saved transitions, to the bit; on any fault raise `Corrupt` and leave it empty.

    tensors  those of `replay.tensors()`, for a replay with priorities
    """
    if replay.written:
        raise ValueError("only a new replay can be loaded")
    segments = _checked(folder, state)
    slots = state["slots"]
    require(slots == replay.slots, folder, f"is of a replay with {slots} slots, not {replay.slots}")
    try:
        for segment in segments:
            _read(replay, folder / _name(segment), segment)
        _restore(replay, folder, state, tensors or {})
    except BaseException:
        replay.clear()
        raise


def _read(replay: Replay, path: Path, segment: Mapping[str, Any]) -> None:
    """Read a segment into the ring; where segments overlap the later one wins, for it is read later."""
    header, digest = _header(replay, segment["first"], segment["last"]), hashlib.sha256()
    with _reading(path, segment) as file:
        found = file.read(len(header))
        size = len(header) + sum(part.nbytes for part in _parts(replay, segment["first"], segment["last"]))
        require(found == header and size == segment["size"], path, "holds other columns than this replay")
        digest.update(found)
        for part in _parts(replay, segment["first"], segment["last"]):
            for at in range(0, len(part), IO_BYTES):
                chunk = part[at : at + IO_BYTES]
                require(file.readinto(chunk) == len(chunk), path, "ends early")  # type: ignore[attr-defined]
                digest.update(chunk)
    _check_hash(path, segment, digest)


def _restore(replay: Replay, folder: Path, state: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Restore the replay once the data is plausible: flags are flags, numbers finite, counts right."""
    columns = replay.columns
    flags = torch.stack([columns[name].view(torch.uint8).max() for name in ("terminated", "valid")])
    require(bool((flags <= 1).all()), folder, "has a flag that is neither true nor false")
    floats = [column for column in columns.values() if column.is_floating_point()]
    finite = all(bool(torch.isfinite(column).all()) for column in floats)
    require(finite, folder, "has a reward or an observation that is not finite")
    priority = tensors.get("priority")
    require((priority is None) == (replay.prioritised is None), folder, "has priorities and must not, or lacks them")
    if priority is not None:
        fits = priority.dtype == torch.float64 and priority.shape == (replay.slots * replay.num_envs,)
        require(fits, folder, "has priorities of another shape or type than this replay")
        positive = (priority > 0) & torch.isfinite(priority)
        right = torch.equal(positive, columns["valid"].flatten()) and bool((priority[~positive] == 0).all())
        require(right, folder, "has priorities that do not belong to its transitions")
    replay.restore(state["written"], state["added"], state["max_priority"], priority)
    require(len(replay) == state["transitions"], folder, "holds another number of transitions than its checkpoint says")


def _checked(folder: Path, state: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The segments of a state that could have come from `save_segments`: they cover the ring without a gap."""
    for key, kind in _COUNTS.items():
        require(type(state.get(key)) is kind, folder, f"has a checkpoint without a valid field 'replay.{key}'")
    segments, written = state.get("segments"), state["written"]
    good = isinstance(segments, list) and all(isinstance(segment, dict) for segment in segments)
    require(
        good and bool(segments) == (written > 0), folder, "has a checkpoint without a valid field 'replay.segments'"
    )
    assert isinstance(segments, list)
    at = max(0, written - state["slots"])
    for segment in segments:
        good = all(type(segment.get(key)) is kind for key, kind in _FIELDS.items())
        good = good and _HASH.fullmatch(segment["sha256"]) is not None
        good = good and 0 <= segment["first"] <= at <= segment["last"] < segment["first"] + state["slots"]
        require(good, folder, "has a checkpoint whose segments do not fit together")
        at = segment["last"]
    require(not segments or at == written - 1, folder, "has a checkpoint whose segments end too early or too late")
    return segments


@contextmanager
def _reading(path: Path, segment: Mapping[str, Any]) -> Iterator[BinaryIO]:
    require(path.is_file(), path, "is missing: only the last two checkpoints of a run keep their replay")
    try:
        size = path.stat().st_size
        require(size == segment["size"], path, f"has {size} bytes, its checkpoint says {segment['size']}")
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise Corrupt(f"{path} cannot be read: {one_line(error)}") from None


def _check_hash(path: Path, segment: Mapping[str, Any], digest: Any) -> None:
    require(digest.hexdigest() == segment["sha256"], path, "has not the SHA-256 that its checkpoint says")
