"""Checkpoints: a directory of safetensors and JSON, written whole or not at all, and verified before it is used.

The meaning of the tensors, and when to save, is not known here. Nothing in a file is ever executed.
"""

import hashlib
import json
import math
import os
import platform
import re
import shutil
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from radial.core.data import BadInput
from radial.runs.files import (
    Corrupt,
    DiskFull,
    check_plain,
    one_line,
    parse_json,
    read_json,
    require,
    sync,
    warn,
    writing,
)

__all__ = ["Corrupt", "DiskFull", "newest_checkpoint", "read_checkpoint", "write_checkpoint"]

CHECKPOINT_FORMAT = 1
Verify = Callable[[Mapping[str, Any]], None]  # of a state: raises Corrupt
ROOM, _TENSORS, MANIFEST, _BEST = "checkpoints", "tensors.safetensors", "manifest.json", "best"
MAX_HEADER, MAX_TENSORS = 1_000_000, 10_000
HEADROOM = 1.2  # free space asked for, in sizes of the checkpoint
TENSOR_TYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "BOOL": torch.bool,
    "U8": torch.uint8, "I8": torch.int8, "I16": torch.int16, "I32": torch.int32, "I64": torch.int64,
}  # fmt: skip
_NAMES = {dtype: name for name, dtype in TENSOR_TYPES.items()}
_FIELDS = {"step": int, "versions": dict, "threads": int, "device": str, "exact": bool, "state": dict, "file": dict}
_FILE_FIELDS = {"sha256": str, "size": int, "tensors": dict}
_STEP = re.compile(r"step_([0-9]{9,18})(\.old)?")


# ---------------------------------------------------------------------------------------------------------- writing


def write_checkpoint(
    folder: Path,
    step: int,
    tensors: Mapping[str, Tensor],
    state: Mapping[str, Any],
    keep: int = 2,
    score: float | None = None,
    exact: bool = True,
) -> Path:
    """Write `folder/checkpoints/step_…/`, then drop all but the last `keep` and the best.

    tensors  by name, any shape, of a type in `TENSOR_TYPES`; NaN or inf is a FloatingPointError
    state    plain JSON: strings as keys, finite numbers
    score    higher is better; `checkpoints/best` is a link to the first checkpoint with the highest
    exact    False: the run was resumed under other conditions, so the same seed need not lead here again
    """
    if keep < 1 or step < 0:
        raise BadInput(f"keep must be ≥ 1 and step ≥ 0, got {keep} and {step}")
    check_tensors(tensors)
    check_plain(state, "state")
    check_plain(score, "score")
    room = folder / ROOM
    target = room / f"step_{step:09d}"
    temporary = room / f"{target.name}.tmp-{os.getpid()}"
    flat = _own_memory(tensors)
    with writing(target):
        room.mkdir(parents=True, exist_ok=True)
        _check_space(room, sum(tensor.nbytes for tensor in flat.values()))
        try:
            _fill(temporary, step, flat, {"device": _device(tensors), "score": score, "exact": exact, "state": state})
            _move(temporary, target)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        link_best(folder)
        _prune(folder, step, keep)
    return target


def _fill(temporary: Path, step: int, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
    shutil.rmtree(temporary, ignore_errors=True)  # left by a process that died and had our number
    temporary.mkdir()
    file = temporary / _TENSORS
    save_file(dict(tensors), file)
    content = {name: {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape)} for name, tensor in tensors.items()}
    manifest = {
        "format": CHECKPOINT_FORMAT,
        "step": step,
        **conditions(),
        **about,
        "file": {"name": _TENSORS, "sha256": _sha256(file), "size": file.stat().st_size, "tensors": content},
    }
    sealed = json.dumps(manifest | {"seal": _seal(manifest)}, indent=1, allow_nan=False)
    (temporary / MANIFEST).write_text(sealed, encoding="utf-8")
    for path in (file, temporary / MANIFEST, temporary):
        sync(path)


def _seal(manifest: Mapping[str, Any]) -> str:
    """SHA-256 of the manifest but for its seal, as compact JSON with sorted keys."""
    content = {key: value for key, value in manifest.items() if key != "seal"}
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _move(temporary: Path, target: Path) -> None:
    """Give the new checkpoint its name. One of the same step stays readable, as .old, until then."""
    if target.exists():
        shutil.rmtree(target.with_suffix(".old"), ignore_errors=True)
        os.rename(target, target.with_suffix(".old"))
    os.rename(temporary, target)
    sync(target.parent)


def conditions() -> dict[str, Any]:
    """The conditions of bit-exactness, besides the device: versions and the number of threads."""
    versions = {
        "radial": version("radial-rl"),
        "torch": str(torch.__version__),
        "numpy": numpy.__version__,
        "python": platform.python_version(),
    }
    return {"versions": versions, "threads": torch.get_num_threads()}


def check_tensors(tensors: Mapping[str, Tensor]) -> None:
    """Refuse a tensor whose type cannot be stored; NaN or inf is a FloatingPointError that names the tensor."""
    for name, tensor in tensors.items():
        if tensor.dtype not in _NAMES:
            raise BadInput(f"tensor {name!r} must have one of the types {', '.join(TENSOR_TYPES)}, got {tensor.dtype}")
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise FloatingPointError(f"tensor {name!r} is not finite")


def _own_memory(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """On the CPU, contiguous, and no two in the same memory: safetensors refuses anything else."""
    seen: set[int] = set()
    flat = {}
    for name, tensor in tensors.items():
        tensor = tensor.detach().cpu().contiguous()
        storage = tensor.untyped_storage()
        if storage.data_ptr() in seen or storage.nbytes() != tensor.nbytes:
            tensor = tensor.clone()
        seen.add(tensor.untyped_storage().data_ptr())
        flat[name] = tensor
    return flat


def _device(tensors: Mapping[str, Tensor]) -> str:
    return next((str(tensor.device) for tensor in tensors.values() if tensor.device.type != "cpu"), "cpu")


def _check_space(room: Path, size: int) -> None:
    free, needed = shutil.disk_usage(room).free, HEADROOM * size
    if free < needed:
        raise DiskFull(
            f"disk full: a checkpoint in {room} needs {needed / 1e6:.1f} MB and {free / 1e6:.1f} MB are free"
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# -------------------------------------------------------------------------------------------------- keeping in order


def checkpoints(folder: Path) -> list[Path]:
    """All that are there, valid or not, oldest first."""
    room = folder / ROOM
    names = os.listdir(room) if room.is_dir() else []
    found = [room / name for name in names if _STEP.fullmatch(name)]
    return sorted(found, key=lambda path: (_step(path), not path.suffix))  # what was replaced is older


def remove_unfinished(folder: Path) -> None:
    """Drop the unfinished files of dead processes. Only for the holder of the folder's lock."""
    for path in (*folder.glob("*.tmp-*"), *(folder / ROOM).glob("*.tmp-*")):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def link_best(folder: Path) -> None:
    """Point `checkpoints/best` to the checkpoint with the highest score; of equals to the first."""
    best, highest = None, -math.inf
    for path in checkpoints(folder):
        try:
            score = _manifest(path)["score"]
        except Corrupt:
            continue
        if score is not None and score > highest and not path.suffix:
            best, highest = path.name, score
    link = folder / ROOM / _BEST
    if best is None or (link.is_symlink() and os.readlink(link) == best):
        return
    require(link.is_symlink() or not link.is_dir(), link, "is a folder instead of a link; move it away")
    temporary = link.with_name(f"{_BEST}.tmp-{os.getpid()}")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(best)
    os.replace(temporary, link)
    sync(link.parent)


def _prune(folder: Path, step: int, keep: int) -> None:
    """Drop old checkpoints, and any beyond `step`: a future abandoned when a corrupt checkpoint was passed over."""
    link = folder / ROOM / _BEST
    best = os.readlink(link) if link.is_symlink() else None
    existing = checkpoints(folder)
    kept = [path for path in existing if _step(path) <= step and not path.suffix][-keep:]
    for path in existing:
        if path not in kept and path.name != best:
            gone = path.with_name(f"{path.name}.tmp-{os.getpid()}")  # first the name: half a checkpoint is never seen
            os.rename(path, gone)
            shutil.rmtree(gone, ignore_errors=True)


def _step(path: Path) -> int:
    return int(path.stem.removeprefix("step_"))


# ---------------------------------------------------------------------------------------------------------- reading


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the state of one checkpoint, once every hash, size, shape, type and value is verified."""
    tensors, manifest = read_with_manifest(path)
    return tensors, manifest["state"]


def newest_checkpoint(folder: Path) -> tuple[Path, dict[str, Tensor], dict[str, Any]] | None:
    """The newest valid checkpoint of a run, or None if it has none at all.

    A corrupt one is passed over with a warning; if none is valid the last word is `Corrupt`, never a fresh start.
    """
    found = newest_with_manifest(folder)
    return None if found is None else (found[0], found[1], found[2]["state"])


def newest_with_manifest(
    folder: Path, verify: Verify | None = None
) -> tuple[Path, dict[str, Tensor], dict[str, Any]] | None:
    """As `newest_checkpoint`, with the whole manifest; `verify` may find a state corrupt for reasons of its own."""
    existing = checkpoints(folder)
    for path in reversed(existing):
        try:
            tensors, manifest = read_with_manifest(path)
            if verify is not None:
                verify(manifest["state"])
            return path, tensors, manifest
        except Corrupt as error:
            warn(f"corrupt checkpoint passed over: {error}")
    if existing:
        raise Corrupt(f"{folder / ROOM} holds no valid checkpoint: all {len(existing)} are corrupt")
    return None


def read_with_manifest(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """As `read_checkpoint`, with the whole manifest."""
    manifest = _manifest(path)
    about, file = manifest["file"], path / _TENSORS
    require(file.is_file(), file, "is missing")
    try:
        size = file.stat().st_size
        require(size == about["size"], file, f"has {size} bytes, its manifest says {about['size']}")
        require(_sha256(file) == about["sha256"], file, "has not the SHA-256 that its manifest says")
        _check_header(file, about["tensors"])
        with safe_open(file, framework="pt", device="cpu") as opened:
            # copies: a mapped file has any alignment, and alignment may change how a kernel rounds
            tensors = {name: opened.get_tensor(name).clone() for name in about["tensors"]}
        check_tensors(tensors)
    except Corrupt:
        raise
    except (OSError, SafetensorError, RuntimeError, ValueError, ArithmeticError) as error:
        raise Corrupt(f"{file} cannot be used: {one_line(error)}") from None
    return tensors, manifest


def _manifest(path: Path) -> dict[str, Any]:
    """The manifest, once every field has the type that this file relies on."""
    file = path / MANIFEST
    manifest = read_json(file)
    require(manifest.get("format") == CHECKPOINT_FORMAT, file, f"is not of format {CHECKPOINT_FORMAT}")
    require(manifest.get("seal") == _seal(manifest), file, "has been altered: its seal does not fit")
    for key, kind in _FIELDS.items():
        require(type(manifest.get(key)) is kind, file, f"has no valid field {key!r}")
    for key, kind in _FILE_FIELDS.items():
        require(type(manifest["file"].get(key)) is kind, file, f"has no valid field 'file.{key}'")
    require(type(manifest.get("score")) in (int, float, type(None)), file, "has no valid field 'score'")
    require(len(manifest["file"]["tensors"]) <= MAX_TENSORS, file, f"names more than {MAX_TENSORS} tensors")
    named = _STEP.fullmatch(path.name) is None or _step(path) == manifest["step"]
    require(named, file, "has another step than its folder")
    return manifest


def _check_header(file: Path, expected: Mapping[str, Any]) -> None:
    """Check the header before safetensors reads it: it accepts duplicate keys, and longer headers."""
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        require(length <= MAX_HEADER, file, f"has a header of more than {MAX_HEADER} bytes")
        header = parse_json(opened.read(length), file)
    require(header.keys() == expected.keys(), file, "holds other tensors than its manifest names")
    for name, entry in header.items():
        found = {key: entry.get(key) for key in ("dtype", "shape")} if isinstance(entry, dict) else None
        require(found == expected[name], file, f"has another shape or type of {name[:80]!r} than its manifest says")
        require(found is not None and found["dtype"] in [*TENSOR_TYPES], file, f"has an unknown type of {name[:80]!r}")
