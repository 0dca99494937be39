"""Results in a file: each is saved as soon as it is there, and never computed twice.

What is evaluated, and what else the file says about it, is not known here.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from radial.core.data import BadInput
from radial.runs.files import Corrupt, DiskFull, read_json, write_atomic
from radial.workflows.protocol import EPISODES, Column, Score, Subject, Watch, hashed, silent

SCORES = "evaluations"


class Book:
    """A JSON file whose field `evaluations` holds every finished evaluation under the hash of its key."""

    def __init__(self, path: Path, *, episodes: int = EPISODES, fresh: bool = False, watch: Watch = silent) -> None:
        """Open the file if it is there; `fresh` plays again what it holds."""
        _check_writable(path)
        self.path, self.episodes, self._watch = path, episodes, watch
        self._scores = _read(path)
        self._stale = set(self._scores) if fresh else set()

    def find(self, subject: Subject, column: Column) -> Score | None:
        """What is known."""
        return self._scores.get(hashed(subject.key(column, self.episodes)))

    def measure(self, subject: Subject, column: Column) -> Score:
        """What is known, or else played and saved."""
        key = subject.key(column, self.episodes)
        return self.get(key, lambda: subject.score(column, self.episodes, self._watch))

    def get(self, key: Mapping[str, Any], play: Callable[[], Score]) -> Score:
        """What is known under a key, or else what `play` finds, saved."""
        known = self._scores.get(hashed(key))
        if known is not None and known.key not in self._stale:
            return known
        score = play()
        self._scores[score.key] = score
        self._stale.discard(score.key)
        self.save()
        return score

    def save(self, document: Mapping[str, Any] | None = None) -> None:
        """Write what is known and what `document` says; what another process has added meanwhile stays."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with _locked(self.path.parent):
                before = read_json(self.path) if self.path.exists() else {}
                self._scores = _read(self.path) | self._scores
                scores = {key: dict(score.facts) for key, score in sorted(self._scores.items())}
                whole = {**before, **(document or {})}
                whole.pop(SCORES, None)  # the long part comes last
                whole[SCORES] = scores
                write_atomic(self.path, json.dumps(whole, indent=1, allow_nan=False, ensure_ascii=False) + "\n")
        except DiskFull:
            raise
        except OSError as error:
            raise BadInput(f"{self.path} cannot be written: {error.strerror}") from None


def _read(path: Path) -> dict[str, Score]:
    """The scores in a file, each under the key that its own facts give."""
    if not path.exists():
        return {}
    found = read_json(path).get(SCORES, {})
    try:
        scores = {name: Score.of(facts) for name, facts in found.items()}
        wrong = [name for name, score in scores.items() if score.key != name]
    except (AttributeError, KeyError, TypeError, ValueError, BadInput):
        raise Corrupt(f"{path} does not hold results as they were written; move it away") from None
    if wrong:
        raise Corrupt(f"{path}: result {wrong[0]} is not of what it says; move the file away")
    return scores


def _check_writable(path: Path) -> None:
    """Refuse before an hour of work what could not be saved after it."""
    parent = path.parent
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise BadInput(f"out must be a folder that can be written to, {parent} cannot")


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One process at a time; the kernel lets go of the lock however it ends."""
    import fcntl  # not on every system, and the rest of the library does not need it

    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
