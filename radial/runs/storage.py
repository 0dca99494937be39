"""Copies of run folders in storage that outlives a machine: a shared folder, or a URI that fsspec knows (s3://…).

A run always works in a folder of its own machine. Its checkpoints are copied when they are written, and fetched before
a run resumes elsewhere. Checkpoints are verified when they are read, so half a copy is passed over, never used.
"""

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from radial.core.data import BadInput
from radial.runs import checkpoint as store
from radial.runs.files import one_line
from radial.runs.run import CONFIG, LOCK, InUse, mirrored

_T = TypeVar("_T")
_PATIENCE = 60.0  # seconds in which a process that lost its node must let go of a run's folder

NOT_COPIED = {LOCK, "best"}  # the link to the best checkpoint is made anew from their scores
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,199}")


class StorageFailed(OSError):
    """Storage could not be read or written; the message is one line that names it."""


class SharedStorage:
    """A place for copies of runs, each under a name."""

    def __init__(self, where: str) -> None:
        """A folder's path or a URI; nothing is written yet."""
        import fsspec
        from fsspec.core import url_to_fs

        self.where = where
        if not where or "\0" in where:
            raise BadInput(f"storage must be a folder or a URI such as s3://bucket/runs, got {where!r}")
        try:
            self._fs, self._root = url_to_fs(where)
        except (ValueError, ImportError) as error:
            known = ", ".join(sorted(fsspec.available_protocols())[:8])
            raise BadInput(f"storage {where!r} cannot be used: {one_line(error)} (fsspec knows {known} …)") from None

    def check(self) -> None:
        """Refuse, before long work, storage that cannot be reached or written to; a folder is made if need be."""
        try:
            self._fs.makedirs(self._root, exist_ok=True)
            probe = f"{self._root.rstrip('/')}/.radial-{os.getpid()}"
            self._fs.pipe_file(probe, b"")
            self._fs.rm_file(probe)
        except Exception as error:  # noqa: BLE001  every protocol has errors of its own
            raise BadInput(f"storage {self.where} cannot be written to: {one_line(error)}") from None

    def _path(self, name: str, *parts: str) -> str:
        if not _NAME.fullmatch(name):
            raise BadInput(f"a run in storage must be named by letters, digits and . _ + -, got {name!r}")
        return "/".join([self._root.rstrip("/"), name, *parts])

    def has(self, name: str, part: str = CONFIG) -> bool:
        """Whether a run of this name is there, or another part of it."""
        with self._said():
            return bool(self._fs.exists(self._path(name, *PurePosixPath(part).parts)))

    def push(self, name: str, folder: Path) -> None:
        """Copy what is new; a checkpoint's manifest last, and the config before anything, so that `has` is true."""
        with self._said():
            there = self._sizes(name)
            here = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*"), key=_order)}
            wanted = {key: path for key, path in here.items() if path.is_file() and not _skipped(path, folder)}
            for key, path in wanted.items():
                if there.get(key) != path.stat().st_size or not _sealed(key):
                    self._put(path, self._path(name, *PurePosixPath(key).parts))
            for key in there.keys() - wanted.keys():
                if key.startswith(f"{store.ROOM}/"):  # pruned here
                    self._fs.rm_file(self._path(name, *PurePosixPath(key).parts))

    def _put(self, path: Path, target: str) -> None:
        self._fs.makedirs(target.rpartition("/")[0], exist_ok=True)
        temporary = f"{target}.tmp-{os.getpid()}"
        self._fs.put_file(str(path), temporary)
        self._fs.mv(temporary, target)

    def fetch(self, name: str, folder: Path, part: str = CONFIG) -> bool:
        """Copy a run here, unless a part of it is here already or not there; return whether one was copied.

        part  its config: any run will do. The card of its agent: a finished one, also over an unfinished one
        """
        if (folder / part).exists() or not self.has(name, part):
            return False
        with self._said():
            for key in self._sizes(name):
                relative = PurePosixPath(key)
                if ".." in relative.parts or relative.is_absolute() or ".tmp-" in key:
                    continue
                target = folder.joinpath(*relative.parts)
                target.parent.mkdir(parents=True, exist_ok=True)
                self._fs.get_file(self._path(name, *relative.parts), str(target))
        return True

    def push_file(self, name: str, path: Path) -> None:
        """Copy one file to NAME/FILE there."""
        with self._said():
            self._put(path, self._path(name, path.name))

    def fetch_file(self, name: str, path: Path) -> bool:
        """Copy NAME/FILE here; return whether there is one."""
        with self._said():
            there = bool(self._fs.exists(self._path(name, path.name)))
            if there:
                self._fs.get_file(self._path(name, path.name), str(path))
            return there

    def _sizes(self, name: str) -> dict[str, int]:
        """All files of a run, by their path in it, with their sizes."""
        root = self._path(name)
        if not self._fs.exists(root):
            return {}
        found: dict[str, Any] = self._fs.find(root, detail=True)
        prefix = self._fs._strip_protocol(root).rstrip("/") + "/"
        return {path.removeprefix(prefix): int(facts["size"]) for path, facts in found.items()}

    @contextmanager
    def _said(self) -> Iterator[None]:
        """Whatever goes wrong there becomes one error that names the storage."""
        try:
            yield
        except BadInput:
            raise
        except Exception as error:  # noqa: BLE001  every protocol has errors of its own
            raise StorageFailed(f"storage {self.where} failed: {one_line(error)}") from None

    @contextmanager
    def kept(self, name: str, folder: Path) -> Iterator[None]:
        """Fetch a run, copy each checkpoint while it trains, and everything when it ends well."""
        self.fetch(name, folder)
        with mirrored(lambda where: self.push(name, where)):
            yield
        self.push(name, folder)


def patiently(work: Callable[[], _T]) -> _T:
    """Do something in a run's folder; wait for the process before, whose node died but not yet itself."""
    give_up = time.monotonic() + _PATIENCE
    while True:
        try:
            return work()
        except InUse:
            if time.monotonic() > give_up:
                raise
            time.sleep(1.0)


def _order(path: Path) -> tuple[int, str]:
    """Config first, manifests last."""
    return (0 if path.name == CONFIG else 2 if path.name == "manifest.json" else 1, str(path))


def _skipped(path: Path, folder: Path) -> bool:
    parts = path.relative_to(folder).parts
    return path.is_symlink() or any(part in NOT_COPIED or ".tmp-" in part for part in parts)


def _sealed(key: str) -> bool:
    """Whether a file never changes once it has its name: equal sizes are then equal files."""
    return key.startswith(f"{store.ROOM}/") or key == CONFIG
