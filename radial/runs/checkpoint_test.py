import errno
import json
import multiprocessing
import os
import random
import resource
import shutil
import struct
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from radial.core.data import BadInput
from radial.runs import checkpoint as store
from radial.runs.checkpoint import Corrupt, DiskFull, newest_checkpoint, read_checkpoint, write_checkpoint

TENSORS = {"weight": torch.arange(6.0).reshape(2, 3), "count": torch.tensor(7), "mask": torch.tensor([True, False])}
STATE = {"update": 3, "schedule": {"eps": 0.1}, "name": "κ"}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path, 1, TENSORS, STATE)


def equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(
        torch.equal(one[name], other[name]) and one[name].dtype == other[name].dtype for name in one
    )


def steps(folder: Path) -> list[str]:
    return sorted(os.listdir(folder / "checkpoints"))


def resign(path: Path, change: Callable[[dict[str, Any]], None] = lambda manifest: None) -> None:
    """What an attacker does: alter the files, then make every hash and size fit again."""
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["file"]["sha256"] = store._sha256(path / "tensors.safetensors")
    manifest["file"]["size"] = (path / "tensors.safetensors").stat().st_size
    change(manifest)
    manifest["seal"] = store._seal(manifest)
    (path / "manifest.json").unlink()
    (path / "manifest.json").write_text(json.dumps(manifest))


# ------------------------------------------------------------------------------------------------------- round trips


def test_what_is_written_is_read(saved: Path) -> None:
    assert saved.name == "step_000000001"
    tensors, state = read_checkpoint(saved)
    assert equal(tensors, TENSORS)
    assert state == STATE


def test_a_checkpoint_can_be_read_without_us(saved: Path) -> None:
    from safetensors.torch import load_file

    assert equal(load_file(saved / "tensors.safetensors"), TENSORS)
    manifest = json.loads((saved / "manifest.json").read_text())
    assert manifest["step"] == 1
    assert manifest["threads"] == torch.get_num_threads()
    assert manifest["device"] == "cpu"
    assert set(manifest["versions"]) == {"radial", "torch", "numpy", "python"}
    assert manifest["file"]["tensors"]["weight"] == {"dtype": "F32", "shape": [2, 3]}


@pytest.mark.parametrize("dtype", store.TENSOR_TYPES.values(), ids=store.TENSOR_TYPES)
def test_every_type_and_the_empty_and_the_scalar(tmp_path: Path, dtype: torch.dtype) -> None:
    tensors = {
        "scalar": torch.ones((), dtype=dtype),
        "empty": torch.ones(0, 3, dtype=dtype),
        "": torch.ones(2, dtype=dtype),
    }
    assert equal(read_checkpoint(write_checkpoint(tmp_path, 0, tensors, {}))[0], tensors)


def test_views_shared_memory_and_parameters_are_saved_as_values(tmp_path: Path) -> None:
    base = torch.arange(12.0).reshape(3, 4)
    tensors = {"a": base, "b": base, "view": base.T, "row": base[1], "parameter": torch.nn.Parameter(base)}
    assert equal(
        read_checkpoint(write_checkpoint(tmp_path, 0, tensors, {}))[0], {k: v.detach() for k, v in tensors.items()}
    )


def test_a_generator_goes_on_where_it_was(tmp_path: Path) -> None:
    rng = torch.Generator().manual_seed(0)
    path = write_checkpoint(tmp_path, 0, {"rng": rng.get_state()}, {})
    expected = torch.randn(5, generator=rng)
    again = torch.Generator()
    again.set_state(read_checkpoint(path)[0]["rng"])
    assert torch.equal(torch.randn(5, generator=again), expected)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_nothing_that_is_not_finite_is_written(saved: Path, bad: float) -> None:
    folder = saved.parent.parent
    with pytest.raises(FloatingPointError, match="'moment'"):
        write_checkpoint(folder, 2, {"fine": torch.ones(2), "moment": torch.tensor([0.0, bad])}, {})
    with pytest.raises(FloatingPointError, match=r"state\.loss\[1\]"):
        write_checkpoint(folder, 2, {}, {"loss": [0.0, bad]})
    with pytest.raises(FloatingPointError, match="score"):
        write_checkpoint(folder, 2, {}, {}, score=bad)
    assert steps(folder) == ["step_000000001"]


@pytest.mark.parametrize("state", [{1: 2}, {"a": {"b": torch.ones(1)}}, {"a": {1, 2}}, {"path": Path("x")}])
def test_only_plain_json_is_state(tmp_path: Path, state: Any) -> None:
    with pytest.raises(BadInput, match="state"):
        write_checkpoint(tmp_path, 1, {}, state)


def test_a_type_that_could_not_be_read_back_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="complex64"):
        write_checkpoint(tmp_path, 1, {"z": torch.ones(1, dtype=torch.complex64)}, {})


# ------------------------------------------------------------------------------------------------- which ones remain


def test_the_last_two_and_the_best_remain(tmp_path: Path) -> None:
    for step, score in enumerate([1.0, 9.0, 3.0, None, 9.0, 4.0, 5.0]):
        write_checkpoint(tmp_path, step, TENSORS, {"at": step}, score=score)
    assert steps(tmp_path) == ["best", "step_000000001", "step_000000005", "step_000000006"]
    assert read_checkpoint(tmp_path / "checkpoints" / "best")[1] == {"at": 1}  # the first of equals
    found = newest_checkpoint(tmp_path)
    assert found is not None
    assert found[0].name == "step_000000006"
    assert found[2] == {"at": 6}


def test_the_best_moves_on_and_the_one_before_goes(tmp_path: Path) -> None:
    for step in range(5):
        write_checkpoint(tmp_path, step, {}, {}, keep=1, score=float(step % 3))
    assert steps(tmp_path) == ["best", "step_000000002", "step_000000004"]


def test_a_best_that_was_not_linked_is_linked_later(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 1, {}, {"at": 1}, score=1.0)
    write_checkpoint(tmp_path, 2, {}, {"at": 2}, score=2.0)
    link = tmp_path / "checkpoints" / "best"
    link.unlink()  # as if the process had died before this step
    link.symlink_to("step_000000001")
    store.link_best(tmp_path)
    assert read_checkpoint(link)[1] == {"at": 2}


def test_the_same_step_again_replaces_the_first(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 5, TENSORS, {"try": 1})
    write_checkpoint(tmp_path, 5, TENSORS, {"try": 2})
    assert steps(tmp_path) == ["step_000000005"]
    assert read_checkpoint(tmp_path / "checkpoints" / "step_000000005")[1] == {"try": 2}


def test_what_was_being_replaced_is_still_found(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, 5, TENSORS, {"try": 1})
    path.rename(path.with_suffix(".old"))  # dead between the two renames
    found = newest_checkpoint(tmp_path)
    assert found is not None
    assert found[2] == {"try": 1}


def test_an_abandoned_future_goes(tmp_path: Path) -> None:
    for step in (10, 20):
        write_checkpoint(tmp_path, step, {}, {})
    write_checkpoint(tmp_path, 15, {}, {})
    assert steps(tmp_path) == ["step_000000010", "step_000000015"]


def test_what_the_dead_left_is_removed(saved: Path) -> None:
    folder = saved.parent.parent
    (saved.parent / "step_000000002.tmp-999").mkdir()
    (saved.parent / "step_000000002.tmp-999" / "tensors.safetensors").write_bytes(b"half")
    (saved.parent / "best.tmp-999").symlink_to("nowhere")
    (folder / "metrics.jsonl.tmp-999").write_text("half")
    assert newest_checkpoint(folder) is not None  # they are never mistaken for a checkpoint
    store.remove_unfinished(folder)
    assert steps(folder) == ["step_000000001"]
    assert os.listdir(folder) == ["checkpoints"]


# ---------------------------------------------------------------------------------------------- what is not believed


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-3] ^= 16
    path.write_bytes(content)


def rewrite(path: Path, tensors: dict[str, Tensor]) -> None:
    from safetensors.torch import save_file

    save_file(tensors, path / "tensors.safetensors")
    resign(path)


def raw(path: Path, header: str, data: bytes, length: int | None = None) -> None:
    text = header.encode()
    (path / "tensors.safetensors").write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)
    resign(path)


def instead(path: Path, make: Callable[[Path], None]) -> None:
    (path / "tensors.safetensors").unlink()
    make(path / "tensors.safetensors")


def rename_field(path: Path, old: str, new: str) -> None:
    manifest = path / "manifest.json"
    manifest.write_text(manifest.read_text().replace(old, new))


def retype(field: str, value: Any) -> Callable[[Path], None]:
    def change(manifest: dict[str, Any]) -> None:
        *path, last = field.split(".")
        for key in path:
            manifest = manifest[key]
        manifest[last] = value

    return lambda path: resign(path, change)


ONE = '"weight":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'
HUGE = {"dtype": "F32", "shape": [1 << 40, 1 << 40]}
DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "tensors cut": (lambda path: cut(path / "tensors.safetensors"), "bytes, its manifest says"),
    "tensors flipped": (lambda path: flip(path / "tensors.safetensors"), "SHA-256"),
    "tensors missing": (lambda path: (path / "tensors.safetensors").unlink(), "is missing"),
    "tensors empty": (lambda path: (path / "tensors.safetensors").write_bytes(b""), "bytes, its manifest says"),
    "tensors a folder": (lambda path: instead(path, Path.mkdir), "is missing"),
    "tensors a pipe": (lambda path: instead(path, os.mkfifo), "is missing"),
    "manifest missing": (lambda path: (path / "manifest.json").unlink(), "is missing"),
    "manifest cut": (lambda path: cut(path / "manifest.json"), "not valid JSON"),
    "manifest not UTF-8": (lambda path: (path / "manifest.json").write_bytes(b'{"a": "\xff"}'), "not valid JSON"),
    "manifest too deep": (lambda path: (path / "manifest.json").write_text("[" * 100_000), "not valid JSON"),
    "manifest a list": (lambda path: (path / "manifest.json").write_text("[]"), "not a JSON object"),
    "manifest NaN": (lambda path: rename_field(path, '"eps": 0.1', '"eps": NaN'), "not valid JSON"),
    "manifest 1e999": (lambda path: rename_field(path, '"eps": 0.1', '"eps": 1e999'), "not valid JSON"),
    "manifest twice": (lambda path: rename_field(path, '"step": 1', '"step": 1, "step": 1'), "twice"),
    "manifest state altered": (lambda path: rename_field(path, '"update": 3', '"update": 4'), "seal"),
    "hash altered": (lambda path: rename_field(path, '"sha256": "', '"sha256": "0'), "seal"),
    "hash wrong": (retype("file.sha256", "0" * 64), "SHA-256"),
    "other format": (retype("format", 2), "format 1"),
    "other step": (retype("step", 2), "another step"),
    "step a word": (retype("step", "1"), "'step'"),
    "step a truth": (retype("step", True), "'step'"),
    "no state": (retype("state", None), "'state'"),
    "score a word": (retype("score", "high"), "'score'"),
    "size a float": (retype("file.size", 1.5), "'file.size'"),
    "tensors a list": (retype("file.tensors", []), "'file.tensors'"),
    "too many tensors": (retype("file.tensors", {str(i): 0 for i in range(10_001)}), "10000"),
    "entry null": (retype("file.tensors.weight", None), "'weight'"),
    "other shape": (retype("file.tensors.weight.shape", [3, 2]), "'weight'"),
    "other type": (retype("file.tensors.weight.dtype", "F64"), "'weight'"),
    "shape too large": (retype("file.tensors.weight", HUGE), "'weight'"),
    "tensor too many": (lambda path: rewrite(path, TENSORS | {"more": torch.ones(1)}), "other tensors"),
    "tensor too few": (lambda path: rewrite(path, {"count": TENSORS["count"]}), "other tensors"),
    "NaN inside": (lambda path: rewrite(path, TENSORS | {"weight": torch.full((2, 3), torch.nan)}), "not finite"),
    "inf inside": (lambda path: rewrite(path, TENSORS | {"weight": torch.full((2, 3), torch.inf)}), "not finite"),
    "twice the same name": (lambda path: raw(path, "{" + ONE + "," + ONE + "}", bytes(4)), "twice"),
    "no header": (lambda path: raw(path, "", b""), "not valid JSON"),
    "long header": (lambda path: raw(path, " " * 1_000_001, b""), "1000000 bytes"),
    "header of 2^62": (lambda path: raw(path, "", b"", 1 << 62), "1000000 bytes"),
    "header a pickle": (lambda path: raw(path, "cos\nsystem\n(S'true'\ntR.", b""), "not valid JSON"),
}  # fmt: skip


@pytest.mark.parametrize(("damage", "says"), DAMAGE.values(), ids=DAMAGE)
def test_damage_is_named_in_one_line(saved: Path, damage: Callable[[Path], object], says: str) -> None:
    damage(saved)
    with pytest.raises(Corrupt) as caught:
        read_checkpoint(saved)
    assert says in str(caught.value)
    assert str(saved) in str(caught.value)
    assert "\n" not in str(caught.value)


LIES = {
    "offsets beyond the end": ("F32", [1], [0, 400]),
    "offsets reversed": ("F32", [1], [4, 0]),
    "offsets negative": ("F32", [1], [-4, 0]),
    "a hole": ("F32", [1], [4, 8]),
    "shape and bytes disagree": ("F32", [3], [0, 4]),
    "overflow": ("F32", [1 << 62, 8], [0, 4]),
    "unknown type": ("F99", [1], [0, 4]),
    "type that we do not use": ("F8_E4M3", [4], [0, 4]),
    "type a list": (["F32"], [1], [0, 4]),
    "shape a word": ("F32", "1", [0, 4]),
    "no offsets": ("F32", [1], None),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_header_that_lies_and_a_manifest_that_agrees(saved: Path, lie: tuple[Any, Any, Any]) -> None:
    dtype, shape, offsets = lie
    entry = {"dtype": dtype, "shape": shape}
    raw(saved, json.dumps({"weight": entry | {"data_offsets": offsets}}), bytes(4))
    retype("file.tensors", {"weight": entry})(saved)
    with pytest.raises(Corrupt):
        read_checkpoint(saved)


def test_nothing_is_executed(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_checkpoint(saved)  # so that nothing is left to be imported

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("reading a checkpoint must not run code")

    for name in (
        "pickle.load", "pickle.loads", "pickle.Unpickler", "marshal.loads", "torch.load", "builtins.eval",
        "builtins.exec", "builtins.compile", "os.system", "os.popen", "subprocess.Popen", "importlib.import_module",
    ):  # fmt: skip
        monkeypatch.setattr(name, never)
    try:
        tensors, _ = read_checkpoint(saved)
    finally:
        monkeypatch.undo()
    assert equal(tensors, TENSORS)


def mutate(content: bytes, rng: random.Random) -> bytes:
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(5)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del data[at : at + rng.randrange(1, 40)]
        elif kind == 2:
            data[at:at] = rng.choice((b"0", b"-", b"9" * 20, b"null", b'"', b"{", b"]", rng.randbytes(3)))
        elif kind == 3:
            data[at : at + 1] = rng.choice((b"1", b"e", b"\xff", b",", b"[", b"\x00"))
        else:
            start = rng.randrange(len(data) + 1)
            data[at:at] = data[start : start + 30]
    return bytes(data)


def fuzz(path: Path, rounds: int) -> None:
    """Half of the rounds an accident, half an attacker who makes the hashes fit again."""
    rng = random.Random(0)
    originals = {name: (path / name).read_bytes() for name in ("manifest.json", "tensors.safetensors")}
    caught = 0
    for number in range(rounds):
        chosen = rng.choice([*originals])
        for name, content in originals.items():
            (path / name).unlink()  # a file that is overwritten is flushed by some file systems, a new one is not
            (path / name).write_bytes(mutate(content, rng) if name == chosen else content)
        hostile = number % 2 == 0
        if hostile:
            try:
                resign(path)
            except (ValueError, TypeError, KeyError, AttributeError):
                hostile = False
        try:
            tensors, state = read_checkpoint(path)
        except Corrupt:
            caught += 1
            continue
        store.check_tensors(tensors)
        if not hostile:  # what is believed is what was written
            assert equal(tensors, TENSORS)
            assert state == STATE
    assert caught > rounds / 2


def test_mutants_are_refused(saved: Path) -> None:
    fuzz(saved, 1_000)


@pytest.mark.nightly
def test_a_hundred_thousand_mutants_are_refused(saved: Path) -> None:
    fuzz(saved, 100_000)


# ---------------------------------------------------------------------------------------------------------- going back


def test_a_corrupt_newest_is_passed_over_loudly(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    for step in (1, 2):
        write_checkpoint(tmp_path, step, TENSORS, {"at": step})
    flip(tmp_path / "checkpoints" / "step_000000002" / "tensors.safetensors")
    found = newest_checkpoint(tmp_path)
    assert found is not None
    assert found[2] == {"at": 1}
    assert "step_000000002" in caplog.text
    assert "warning: corrupt checkpoint passed over" in capsys.readouterr().err
    write_checkpoint(tmp_path, 2, TENSORS, {"at": 2})  # the run comes by again
    assert read_checkpoint(tmp_path / "checkpoints" / "step_000000002")[1] == {"at": 2}


def test_if_none_is_valid_there_is_no_fresh_start(tmp_path: Path) -> None:
    assert newest_checkpoint(tmp_path) is None
    for step in (1, 2):
        cut(write_checkpoint(tmp_path, step, TENSORS, {}) / "manifest.json")
    with pytest.raises(Corrupt, match="all 2 are corrupt"):
        newest_checkpoint(tmp_path)


# ------------------------------------------------------------------------------------------------------------ disk full


def intact(folder: Path, *allowed: int) -> None:
    """Every checkpoint is valid, the newest is one of the allowed steps, nothing unfinished is left."""
    assert not [name for name in os.listdir(folder / "checkpoints") if ".tmp-" in name and name.startswith("step_")]
    for path in store.checkpoints(folder):
        read_checkpoint(path)
    found = newest_checkpoint(folder)
    assert found is not None
    assert found[2]["at"] in allowed


def test_too_little_room_is_noticed_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_checkpoint(tmp_path, 1, TENSORS, {"at": 1})
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(100, 96, 4))
    with pytest.raises(DiskFull, match=r"^disk full: .* needs .* MB and .* MB are free$"):
        write_checkpoint(tmp_path, 2, TENSORS, {"at": 2})
    intact(tmp_path, 1)


def failing_calls(monkeypatch: pytest.MonkeyPatch, number: int, error: OSError) -> Iterator[int]:
    """Let the `number`-th call that touches the disk fail; yields how many there were."""
    calls = [0]

    def wrap(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            calls[0] += 1
            if calls[0] == number:
                raise error
            return real(*args, **kwargs)

        return call

    with monkeypatch.context() as patched:
        for owner, name in (
            (os, "fsync"), (os, "rename"), (os, "replace"), (store, "save_file"),
            (Path, "write_text"), (Path, "mkdir"), (Path, "symlink_to"),
        ):  # fmt: skip
            patched.setattr(owner, name, wrap(getattr(owner, name)))
        yield calls[0]
    yield calls[0]


@pytest.mark.parametrize("again", [False, True], ids=["a new step", "the same step"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO], ids=errno.errorcode.get)
def test_whatever_call_fails_the_checkpoints_stay_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, again: bool
) -> None:
    step, failures = 2 if again else 3, []
    for call in range(1, 50):
        shutil.rmtree(tmp_path / "checkpoints", ignore_errors=True)
        for before in (1, 2):
            write_checkpoint(tmp_path, before, TENSORS, {"at": before}, score=float(before))
        patch = failing_calls(monkeypatch, call, OSError(number, os.strerror(number)))
        next(patch)
        try:
            write_checkpoint(tmp_path, step, TENSORS, {"at": 3}, score=3.0)
        except OSError as error:
            failures.append(type(error))
        count = list(patch)[-1]
        intact(tmp_path, 2, 3)
        if count < call:
            break
    assert len(failures) >= 9
    assert {kind is DiskFull for kind in failures} == {number == errno.ENOSPC}


def test_a_half_written_file_of_tensors_is_disk_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from safetensors import SafetensorError

    write_checkpoint(tmp_path, 1, TENSORS, {"at": 1})

    def half(tensors: dict[str, Tensor], path: Path) -> None:
        path.write_bytes(b"half of it")
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(store, "save_file", half)
    with pytest.raises(DiskFull, match="disk full"):
        write_checkpoint(tmp_path, 2, TENSORS, {"at": 2})
    intact(tmp_path, 1)


def write_below_a_limit(folder: Path, limit: int, answers: Any) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        write_checkpoint(folder, 2, {"big": torch.ones(25_000)}, {"at": 2})
        answers.send("written")
    except DiskFull as error:
        answers.send(str(error))


def test_a_real_limit_on_size(tmp_path: Path) -> None:
    """20 limits around the size of the file, enforced by the kernel in the middle of a write."""
    path = write_checkpoint(tmp_path, 2, {"big": torch.ones(25_000)}, {"at": 2})
    size, answers = (path / "tensors.safetensors").stat().st_size, []
    for limit in range(size - 50, size + 50, 5):
        shutil.rmtree(tmp_path / "checkpoints", ignore_errors=True)
        write_checkpoint(tmp_path, 1, TENSORS, {"at": 1})
        ours, theirs = WORKERS.Pipe()
        process = WORKERS.Process(target=write_below_a_limit, args=(tmp_path, limit, theirs))
        process.start()
        process.join(30)
        answers.append(ours.recv())
        intact(tmp_path, 2 if answers[-1] == "written" else 1)
    assert answers.count("written") == 10
    assert sum(answer.startswith("disk full") for answer in answers) == 10


# ------------------------------------------------------------------------------------------------------------- kill -9

# a clean process that has imported everything and is forked for each worker: one costs milliseconds, not seconds
WORKERS = multiprocessing.get_context("forkserver")
WORKERS.set_forkserver_preload(["radial.runs.checkpoint_test"])


def save_for_ever(folder: Path, first: int, answers: Any) -> None:
    step = first
    while True:
        tensors = {"a": torch.full((200_000,), float(step)), "b": torch.full((3,), step)}
        write_checkpoint(folder, step, tensors, {"at": step}, score=float(step % 7))
        answers.send(step)
        step += (step * 7) % 3 > 0 or random.random() < 0.5  # now and then the same step again


def kill_while_saving(folder: Path, kills: int, capsys: pytest.CaptureFixture[str]) -> None:
    rng, step, unfinished = random.Random(0), 1, 0
    for _ in range(kills):
        ours, theirs = WORKERS.Pipe()
        process = WORKERS.Process(target=save_for_ever, args=(folder, step, theirs))
        process.start()
        theirs.close()
        promised = ours.recv()  # it is under way
        time.sleep(rng.uniform(0, 0.04))
        process.kill()
        process.join()
        while ours.poll():
            try:
                promised = ours.recv()
            except EOFError:
                break
        unfinished += any(".tmp-" in name for name in os.listdir(folder / "checkpoints"))
        found = newest_checkpoint(folder)
        assert found is not None
        _, tensors, state = found
        step = state["at"]
        assert step >= promised
        assert bool((tensors["a"] == step).all() & (tensors["b"] == step).all())
        for path in store.checkpoints(folder):
            read_checkpoint(path)
        store.remove_unfinished(folder)
        store.link_best(folder)
        read_checkpoint(folder / "checkpoints" / "best")
    assert "corrupt" not in capsys.readouterr().err
    assert unfinished >= kills / 4  # the kills did hit the saving


@pytest.mark.skipif(sys.platform != "linux", reason="needs the forkserver")
def test_kill_9_while_saving(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kill_while_saving(tmp_path, 20, capsys)


@pytest.mark.nightly
def test_kill_9_while_saving_a_hundred_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kill_while_saving(tmp_path, 100, capsys)
