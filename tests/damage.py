"""Random damage to files: whatever happens to one, the answer is all of it with finite numbers, or one line.

`own_files` damages what radial writes and `imports` what it reads of others, in memory where there is a file system
for that. A file that takes more than a second of processor time raises AssertionError, as any other answer does.
"""

import hashlib
import json
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from radial.agents.importers import hostile_foreign_test as foreign
from radial.agents.importers import hostile_test as papers
from radial.agents.importers.hostile_test import dic, mutated, tensor
from radial.agents.saved import CARD, WEIGHTS, load_agent, read_folder
from radial.core.data import BadInput
from radial.runs import checkpoint

MEMORY = Path("/dev/shm")
LONGEST = 1.0  # seconds of processor time for one file
NUMBERS = {"weight": torch.full((3, 2), 0.25), "rng": torch.arange(16, dtype=torch.uint8), "sum": torch.tensor(0.5)}
STATE = {"step": 5, "returns": [1.0, 2.0], "engine": {"name": "none"}}


class Rewritten:
    """A file whose whole content is replaced again and again."""

    def __init__(self, path: Path) -> None:
        self.honest = path.read_bytes()
        self._handle = os.open(path, os.O_WRONLY)

    def write(self, content: bytes) -> None:
        os.ftruncate(self._handle, os.pwrite(self._handle, content, 0))

    def close(self) -> None:
        os.close(self._handle)


@contextmanager
def rewritten(*paths: Path) -> Iterator[list[Rewritten]]:
    files = [Rewritten(path) for path in paths]
    try:
        yield files
    finally:
        for file in files:
            file.close()


@contextmanager
def bench() -> Iterator[Path]:
    """A folder for damaged files."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        yield Path(folder)


def attempt(read: Callable[[Path], Any], path: Path) -> Any:
    """What is read, or None if the file was refused in one line."""
    begun, said = time.process_time(), ""
    try:
        found = read(path)
    except BadInput as error:
        found, said = None, str(error)
    assert "\n" not in said, f"more than one line: {said}"
    spent = time.process_time() - begun
    assert spent < LONGEST, f"{path.name} took {spent:.1f} s"
    return found


def _whole_agent(path: Path, read: Callable[[Path], Any]) -> None:
    agent = attempt(read, path)
    assert agent is None or all(bool(each.isfinite().all()) for each in agent.state_dict().values()), "not finite"


def _whole_checkpoint(path: Path) -> None:
    found = attempt(checkpoint.read_with_manifest, path)
    if found is not None:
        tensors, manifest = found
        assert tensors.keys() == manifest["file"]["tensors"].keys(), "some tensors are missing"
        assert all(bool(each.isfinite().all()) for each in tensors.values() if each.is_floating_point()), "not finite"


def own_files(rounds: int, seed: int) -> int:
    """Card and weights of an agent, manifest and tensors of a checkpoint; returns how many files were damaged.

    Hashes and seals are made to fit what was damaged, so that they are not what saves us: those of weights and tensors
    always, that of a manifest that is still JSON every other time.
    """
    rng = random.Random(seed)
    with bench() as parent:
        agent = papers.honest_folder(parent)
        saved = checkpoint.write_checkpoint(parent, 5, NUMBERS, STATE)
        names = (agent / CARD, agent / WEIGHTS, saved / "manifest.json", saved / "tensors.safetensors")
        with rewritten(*names) as (card, weights, manifest, tensors):
            facts, told = json.loads(manifest.honest), hashlib.sha256(weights.honest).hexdigest().encode()
            assert told in card.honest
            for turn in range(rounds):
                card.write(mutated(card.honest, rng))
                _whole_agent(agent, read_folder)

                damaged = mutated(weights.honest, rng)
                weights.write(damaged)
                card.write(card.honest.replace(told, hashlib.sha256(damaged).hexdigest().encode()))
                _whole_agent(agent, read_folder)
                weights.write(weights.honest)

                damaged = mutated(manifest.honest, rng)
                manifest.write(_sealed(damaged) if turn % 2 else damaged)
                _whole_checkpoint(saved)

                damaged = mutated(tensors.honest, rng)
                tensors.write(damaged)
                about = facts["file"] | {"sha256": hashlib.sha256(damaged).hexdigest(), "size": len(damaged)}
                manifest.write(_with_seal(facts | {"file": about}))
                _whole_checkpoint(saved)
                tensors.write(tensors.honest)
    return 4 * rounds


def _sealed(text: bytes) -> bytes:
    """A manifest with the seal that fits it; what is no manifest stays as it is."""
    try:
        facts = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return _with_seal(facts) if isinstance(facts, dict) else text


def _with_seal(facts: dict[str, Any]) -> bytes:
    return json.dumps(facts | {"seal": checkpoint._seal(facts)}).encode()


def imports(rounds: int, seed: int) -> int:
    """Files of the papers, of Stable-Baselines3 and of CleanRL, whole and within; returns how many were damaged.

    Within: a member of the archive is damaged and the archive's own checksums fit it.
    """
    rng = random.Random(seed)
    program, scores, settings = papers.program(), papers.state_dict(), foreign.data()
    model, sb3, pickled = papers.model(), foreign.sb3(), b"\x80\x02" + dic(**foreign.state()) + b"."
    hidden = foreign.layers("actor", tensor("w0", 4, 2), tensor("w1", 4, 4)) | foreign.layers(
        "critic", tensor("w0", 4, 2)
    )
    cleanrl = b"\x80\x02" + dic(**hidden) + b"."
    kinds: list[tuple[str, Callable[[], bytes]]] = [
        ("a.model", lambda: mutated(model, rng)),
        ("a.model", lambda: papers.model(mutated(program, rng))),
        ("a.zip", lambda: mutated(sb3, rng)),
        ("a.zip", lambda: foreign.sb3(data=mutated(settings, rng))),
        ("a.zip", lambda: foreign.sb3(**{"policy.pth": foreign.archive(mutated(pickled, rng))})),
        ("a.cleanrl_model", lambda: foreign.archive(mutated(cleanrl, rng))),
    ]
    with bench() as parent:
        for turn in range(rounds):
            for name, make in kinds:
                (parent / name).write_bytes(make())
                _whole_agent(parent / name, load_agent)
            if turn % 10 == 0:  # these have 2.5 MB
                (parent / "a.pt").write_bytes(papers.procgen(mutated(scores, rng)))
                _whole_agent(parent / "a.pt", load_agent)
    return len(kinds) * rounds + (rounds + 9) // 10
