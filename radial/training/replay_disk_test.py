import copy
import json
import multiprocessing
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from radial.runs.checkpoint import checkpoints, newest_checkpoint, read_checkpoint, write_checkpoint
from radial.runs.files import Corrupt, DiskFull
from radial.training import replay_disk
from radial.training.replay import Prioritised, Replay
from radial.training.replay_disk import check_segments, load_segments, prune_segments, save_segments

SHAPE, ENVS, CAPACITY = (2, 3), 2, 40  # 21 slots
KINDS = [(torch.uint8, None), (torch.float32, None), (torch.uint8, Prioritised())]
Saved = tuple[dict[str, Any], dict[str, Tensor]]  # what a checkpoint holds: state, tensors


class Toy:
    """A stream of steps that depends on nothing but a seed, and a learner that only moves priorities."""

    def __init__(self, dtype: torch.dtype = torch.uint8, prioritised: Prioritised | None = None) -> None:
        self.replay = Replay(CAPACITY, SHAPE, dtype, ENVS, prioritised=prioritised)
        self.rng = torch.Generator().manual_seed(0)

    def begin(self) -> None:
        self.replay.begin(self.obs())

    def obs(self) -> Tensor:
        return torch.randint(256, (ENVS, *SHAPE), generator=self.rng).to(self.replay.dtype)

    def play(self, steps: int) -> None:
        for _ in range(steps):
            action, reward = torch.randint(6, (ENVS,), generator=self.rng), torch.randn(ENVS, generator=self.rng)
            terminated, real = (torch.rand(ENVS, generator=self.rng) < share for share in (0.2, 0.8))
            self.replay.add(action, reward, terminated, real, self.obs())
            if self.replay.prioritised is not None and len(self.replay):
                sample = self.replay.sample(4, self.rng, beta=0.5)
                self.replay.update(sample.position, torch.rand(4, generator=self.rng))

    def save(self, folder: Path, before: dict[str, Any] | None) -> Saved:
        state = json.loads(json.dumps(save_segments(self.replay, folder, before)))  # as a checkpoint gives it back
        return state, copy.deepcopy(self.replay.tensors())


def load(toy: Toy, folder: Path, saved: Saved) -> Replay:
    replay = Replay(CAPACITY, SHAPE, toy.replay.dtype, ENVS, prioritised=toy.replay.prioritised)
    load_segments(replay, folder, *saved)
    return replay


def assert_same(one: Replay, other: Replay) -> None:
    """To the bit, and in what they will do."""
    assert all(torch.equal(one.columns[name], other.columns[name]) for name in one.columns)
    assert (one.written, one.added, len(one), one.max_priority) == (
        other.written,
        other.added,
        len(other),
        other.max_priority,
    )
    if one._tree is not None and other._tree is not None:
        assert one._tree.node.tolist() == other._tree.node.tolist()
    if len(one):
        beta = None if one.prioritised is None else 0.7
        samples = [replay.sample(64, torch.Generator().manual_seed(9), beta=beta) for replay in (one, other)]
        assert all(torch.equal(getattr(samples[0], name), getattr(samples[1], name)) for name in vars(samples[0]))


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


@pytest.fixture
def three(tmp_path: Path) -> tuple[Toy, list[Saved]]:
    """Three checkpoints, ten steps apart."""
    toy, saved = Toy(), []
    for _ in range(3):
        toy.begin()
        toy.play(9)
        saved.append(toy.save(tmp_path, saved[-1][0] if saved else None))
    return toy, saved


# ------------------------------------------------------------------------------------------------------ exact resume


@pytest.mark.parametrize(("dtype", "prioritised"), KINDS)
@pytest.mark.parametrize("rebuilt", [True, False])  # envs at a checkpoint, or going on from the newest observation
def test_what_is_loaded_is_what_was_saved(
    tmp_path: Path, dtype: torch.dtype, prioritised: Prioritised | None, rebuilt: bool
) -> None:
    toy = Toy(dtype, prioritised)
    toy.begin()
    before = None
    for steps in (0, 3, 7, 1, 0, 13, 20, 21, 22, 50, 2, 2):  # before and after the ring is full, by little and by laps
        if rebuilt:
            toy.begin()
        toy.play(steps)
        saved = toy.save(tmp_path, before)
        before = saved[0]
        assert_same(load(toy, tmp_path, saved), toy.replay)


@pytest.mark.parametrize(("dtype", "prioritised"), KINDS)
def test_a_resumed_run_goes_on_as_if_never_stopped(
    tmp_path: Path, dtype: torch.dtype, prioritised: Prioritised | None
) -> None:
    straight, stopped = Toy(dtype, prioritised), Toy(dtype, prioritised)
    before = None
    for steps in (5, 14, 17):
        for toy in (straight, stopped):
            toy.begin()
            toy.play(steps)
        saved = stopped.save(tmp_path, before)
        prune_segments(tmp_path, [before, saved[0]])
        before = saved[0]
        stopped.replay = load(stopped, tmp_path, saved)
    assert_same(stopped.replay, straight.replay)


def test_an_empty_replay_and_no_folder(tmp_path: Path) -> None:
    toy = Toy()
    assert_same(load(toy, tmp_path, toy.save(tmp_path / "replay", None)), toy.replay)
    toy.begin()
    toy.play(3)
    state = save_segments(toy.replay, None, None)
    prune_segments(None, [state])
    assert names(tmp_path) == []
    with pytest.raises(Corrupt, match="segments"):
        load(toy, tmp_path, (state, {}))


def test_a_segment_can_be_read_without_us(three: tuple[Toy, list[Saved]], tmp_path: Path) -> None:
    toy, saved = three
    tensors = load_file(tmp_path / replay_disk._name(saved[0][0]["segments"][0]))
    assert tensors["obs"].shape == (10, ENVS, *SHAPE)
    assert torch.equal(tensors["reward"], load(toy, tmp_path, saved[0]).columns["reward"][:10])


# ------------------------------------------------------------------------------------------------------- little work


def test_each_slot_is_written_once_and_the_newest_again(three: tuple[Toy, list[Saved]], tmp_path: Path) -> None:
    toy, saved = three
    spans = [[(segment["first"], segment["last"]) for segment in state["segments"]] for state, _ in saved]
    assert spans == [[(0, 9)], [(0, 9), (9, 19)], [(9, 19), (19, 29)]]  # the ring of 21 begins at 9
    files = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    again, _ = toy.save(tmp_path, saved[-1][0])  # nothing new, nothing written
    assert again == saved[-1][0]
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == files


def test_pruning_keeps_what_the_last_two_checkpoints_need(tmp_path: Path) -> None:
    toy, saved = Toy(), []
    for count in range(1, 12):
        toy.begin()
        toy.play(9)
        saved.append(toy.save(tmp_path, saved[-1][0] if saved else None))
        (tmp_path / "seg_000000000000_000000000009.tmp-1").write_bytes(b"of a process that died")
        prune_segments(tmp_path, [state for state, _ in saved[-2:]])
        assert len(names(tmp_path)) == min(count, 3)  # 21 slots in steps of 10: two, and one for the older
        for older in saved[-2:]:
            check_segments(tmp_path, older[0])
        assert_same(load(toy, tmp_path, saved[-1]), toy.replay)
    with pytest.raises(Corrupt, match="missing: only the last two checkpoints of a run keep their replay"):
        load(toy, tmp_path, saved[0])


def test_pruning_leaves_the_files_of_others(three: tuple[Toy, list[Saved]], tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    prune_segments(tmp_path, [])
    assert names(tmp_path) == ["notes.txt"]


# ------------------------------------------------------------------------------------------------- deaths and damage


def test_the_checkpoint_before_still_finds_its_ring(tmp_path: Path) -> None:
    toy = Toy()
    toy.begin()
    toy.play(30)
    first = toy.save(tmp_path, None)
    then = load(toy, tmp_path, first)
    toy.play(15)
    second = toy.save(tmp_path, first[0])
    prune_segments(tmp_path, [first[0], second[0]])
    (tmp_path / replay_disk._name(second[0]["segments"][-1])).write_bytes(b"")
    with pytest.raises(Corrupt, match="has 0 bytes"):
        load(toy, tmp_path, second)
    back = load(toy, tmp_path, first)
    assert_same(back, then)
    other = Toy()  # from there another future, of the same length
    other.replay = back
    other.play(15)
    third = other.save(tmp_path, first[0])
    assert third[0]["segments"][-1]["sha256"] != second[0]["segments"][-1]["sha256"]
    prune_segments(tmp_path, [first[0], third[0]])
    assert_same(load(toy, tmp_path, third), other.replay)
    assert len(names(tmp_path)) == 2


def test_a_lost_segment_is_written_again_from_memory(three: tuple[Toy, list[Saved]], tmp_path: Path) -> None:
    toy, saved = three
    for name in names(tmp_path)[:2]:
        (tmp_path / name).unlink()
    toy.play(1)
    state, tensors = toy.save(tmp_path, saved[-1][0])
    assert len(state["segments"]) == 1
    assert_same(load(toy, tmp_path, (state, tensors)), toy.replay)


@pytest.mark.parametrize("at", [0, 20, 300, -1])  # length, header, data
def test_one_wrong_bit_is_noticed(three: tuple[Toy, list[Saved]], tmp_path: Path, at: int) -> None:
    _, saved = three
    path = tmp_path / replay_disk._name(saved[-1][0]["segments"][1])
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)
    with pytest.raises(Corrupt, match=path.name):
        check_segments(tmp_path, saved[-1][0])
    empty = Replay(CAPACITY, SHAPE, torch.uint8, ENVS)
    with pytest.raises(Corrupt, match=path.name):
        load_segments(empty, tmp_path, *saved[-1])
    assert_same(empty, Toy().replay)  # nothing is left of what was read before
    load_segments(empty, tmp_path, *saved[0])  # and the same object can take an older one


@pytest.mark.parametrize("length", [0, 5, 100, -1])
def test_half_a_segment_is_noticed(three: tuple[Toy, list[Saved]], tmp_path: Path, length: int) -> None:
    toy, saved = three
    path = tmp_path / replay_disk._name(saved[-1][0]["segments"][-1])
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(Corrupt, match="bytes, its checkpoint says"):
        load(toy, tmp_path, saved[-1])


WRONG: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no segments": lambda state: state.pop("segments"),
    "segments that are no list": lambda state: state.update(segments={"a": 1}),
    "a gap": lambda state: state["segments"][1].update(first=20),
    "an early end": lambda state: state["segments"].pop(),
    "a late beginning": lambda state: state["segments"].pop(0),
    "another order": lambda state: state["segments"].reverse(),
    "a path for a hash": lambda state: state["segments"][0].update(sha256="../../../../etc/passwd"),
    "a number as text": lambda state: state["segments"][0].update(first="0"),
    "more than the ring": lambda state: state["segments"][0].update(last=10**15),
    "a huge ring": lambda state: state.update(slots=10**15),
    "a negative count": lambda state: state.update(written=-1),
    "other transitions": lambda state: state.update(transitions=3),
    "no priority": lambda state: state.update(max_priority=None),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_state_that_was_never_saved_is_refused(three: tuple[Toy, list[Saved]], tmp_path: Path, wrong: str) -> None:
    toy, saved = three
    state = copy.deepcopy(saved[-1][0])
    WRONG[wrong](state)
    with pytest.raises(Corrupt):
        load(toy, tmp_path, (state, {}))


def test_content_that_was_never_saved_is_refused(tmp_path: Path) -> None:
    for name, value in {"reward": float("nan"), "obs": float("inf")}.items():
        toy = Toy(torch.float32)
        toy.begin()
        toy.play(3)
        toy.replay.columns[name][0] = value
        with pytest.raises(Corrupt, match="not finite"):
            load(toy, tmp_path, toy.save(tmp_path, None))
    toy = Toy()
    toy.begin()
    toy.play(3)
    toy.replay.columns["valid"].view(torch.uint8)[1] = 2
    with pytest.raises(Corrupt, match="neither true nor false"):
        load(toy, tmp_path, toy.save(tmp_path, None))


def test_priorities_must_belong_to_the_transitions(tmp_path: Path) -> None:
    toy = Toy(prioritised=Prioritised())
    toy.begin()
    toy.play(30)
    state, tensors = toy.save(tmp_path, None)
    right = tensors["priority"]
    nan, moved = right.clone(), right.roll(1)
    nan[right.argmax()] = float("nan")
    for wrong in ({}, {"priority": right[:-1]}, {"priority": right.float()}, {"priority": nan}, {"priority": moved}):
        with pytest.raises(Corrupt, match="priorities"):
            load(toy, tmp_path, (state, wrong))


def test_a_full_disk_leaves_what_was_there(
    three: tuple[Toy, list[Saved]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy, saved = three
    then, files = load(toy, tmp_path, saved[-1]), names(tmp_path)
    toy.play(5)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DiskFull):
        toy.save(tmp_path, saved[-1][0])
    monkeypatch.undo()
    usage = type("Usage", (), {"free": 10})
    monkeypatch.setattr(replay_disk.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(DiskFull, match="MB more and"):
        toy.save(tmp_path, saved[-1][0])
    assert names(tmp_path) == files
    assert_same(load(toy, tmp_path, saved[-1]), then)


# ------------------------------------------------------------------------------------------------------------ kill -9

WORKERS = multiprocessing.get_context("forkserver")
WORKERS.set_forkserver_preload(["radial.training.replay_disk_test"])


class Training(Toy):
    """Plays, saves and prunes as a training does: segments, then the checkpoint that names them, then the broom."""

    def __init__(self, folder: Path | None) -> None:
        super().__init__(prioritised=Prioritised())
        self.folder, self.step, self.kept = folder, 0, None
        found = None if folder is None else newest_checkpoint(folder)
        if folder is not None and found is not None:
            _, tensors, state = found
            load_segments(self.replay, folder / "replay", state["replay"], tensors)
            self.step, self.kept = state["step"], state["replay"]
            self.rng.set_state(tensors["rng"])

    def go_on(self) -> None:
        self.begin()
        self.play(self.step % 7)
        self.step += 1
        if self.folder is not None:
            before, self.kept = self.kept, save_segments(self.replay, self.folder / "replay", self.kept)
            tensors = self.replay.tensors() | {"rng": self.rng.get_state()}
            write_checkpoint(self.folder, self.step, tensors, {"step": self.step, "replay": self.kept})
            prune_segments(self.folder / "replay", [before, self.kept])


def train_for_ever(folder: Path, answers: Any) -> None:
    training = Training(folder)
    while True:
        training.go_on()
        answers.send(training.step)


def test_a_training_killed_at_any_moment_goes_on_as_if_never_stopped(tmp_path: Path) -> None:
    rng = random.Random(0)
    for _ in range(8):
        ours, theirs = WORKERS.Pipe()
        process = WORKERS.Process(target=train_for_ever, args=(tmp_path, theirs))
        process.start()
        theirs.close()
        ours.recv()  # it is under way
        time.sleep(rng.uniform(0, 0.03))
        process.kill()
        process.join()
        for path in checkpoints(tmp_path):  # the last two
            tensors, state = read_checkpoint(path)
            load(Toy(prioritised=Prioritised()), tmp_path / "replay", (state["replay"], tensors))
    resumed, straight = Training(tmp_path), Training(None)
    assert resumed.step >= 8
    for _ in range(resumed.step):
        straight.go_on()
    assert_same(resumed.replay, straight.replay)
    resumed.go_on()
    assert len(names(tmp_path / "replay")) <= 21 + 1  # nothing is left of those who died
    assert not list((tmp_path / "replay").rglob("*.tmp-*"))
