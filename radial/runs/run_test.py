import io
import json
import math
import multiprocessing
import os
import random
import shutil
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from radial.core.data import BadInput
from radial.runs import progress
from radial.runs.checkpoint import newest_checkpoint, read_checkpoint
from radial.runs.files import open_plain, write_atomic
from radial.runs.run import VOLATILE, Corrupt, DiskFull, Run, Stopped, check_place, derived_seed

CONFIG = {"seed": 3, "env": {"id": "Toy-v0", "options": {}}, "hidden": (64, 64)}

# a clean process that has imported everything and is forked for each worker: one costs milliseconds, not seconds
WORKERS = multiprocessing.get_context("forkserver")
WORKERS.set_forkserver_preload(["radial.runs.run_test", "torch.utils.tensorboard"])
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="needs the forkserver")


def new(folder: Path | None, resume: bool = False, **changes: Any) -> Run:
    return Run.open(folder, CONFIG | changes, resume=resume, total_steps=100, quiet=True)


def lines(folder: Path) -> list[dict[str, Any]]:
    """The metrics of a run, without what may differ."""
    read = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key not in VOLATILE} for line in read]


# ------------------------------------------------------------------------------------------------------------ a folder


def test_a_run_can_be_read_without_us(tmp_path: Path) -> None:
    with new(tmp_path) as run:
        run.log(10, {"charts/episodic_return": 1.5, "losses/policy_loss": torch.tensor(-0.25)})
        run.log(20, {"charts/episodic_return": math.nan})  # no episode ended: not known, and no error
        run.save(20, {"w": torch.ones(2)}, {"update": 2}, score=1.5)
    assert json.loads((tmp_path / "config.json").read_text())["hidden"] == [64, 64]
    assert lines(tmp_path) == [
        {"step": 10, "charts/episodic_return": 1.5, "losses/policy_loss": -0.25},
        {"step": 20, "charts/episodic_return": None},
    ]
    assert set(os.listdir(tmp_path)) == {"config.json", "metrics.jsonl", "tb", "checkpoints", "lock"}
    assert read_checkpoint(tmp_path / "checkpoints" / "best")[1] == {"update": 2}


def test_without_a_folder_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with new(None) as run:
        run.log(1, {"losses/x": 1.0})
        run.progress(1, x=1.0)
        run.save(1, {"w": torch.ones(2)}, {})
        with pytest.raises(FloatingPointError, match="losses/x is nan at step 2"):
            run.log(2, {"losses/x": math.nan})
        with pytest.raises(FloatingPointError, match="'w'"):
            run.save(2, {"w": torch.tensor(math.inf)}, {})
    assert os.listdir(tmp_path) == []


def test_resuming_gives_back_what_was_saved_and_forgets_what_came_after(tmp_path: Path) -> None:
    with new(tmp_path) as run:
        for step in range(1, 8):
            run.log(step, {"x": step / 3})
            if step == 5:
                run.save(step, {"w": torch.full((2,), float(step))}, {"at": step})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 8, "ti')  # the process died while writing
    with new(tmp_path, resume=True) as run:
        assert run.restored is not None
        tensors, state = run.restored
        assert torch.equal(tensors["w"], torch.full((2,), 5.0))
        assert state == {"at": 5}
        assert run.exact
        assert [line["step"] for line in lines(tmp_path)] == [1, 2, 3, 4, 5]
        run.log(6, {"x": 2.0})
    assert lines(tmp_path) == [{"step": step, "x": step / 3} for step in range(1, 7)]


def test_time_goes_on_after_a_resume(tmp_path: Path) -> None:
    with new(tmp_path) as run:
        run._began -= 1000
        run.log(1, {})
        run.save(1, {}, {})
    with new(tmp_path, resume=True) as run:
        run.log(2, {})
    times = [json.loads(line)["time"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert 1000 <= times[0] <= times[1] < 1100


def test_a_run_that_died_before_its_first_checkpoint_begins_again(tmp_path: Path) -> None:
    with new(tmp_path) as run:
        run.log(0, {"x": 1.0})
    with new(tmp_path, resume=True) as run:
        assert run.restored is None
        assert lines(tmp_path) == []


def test_resume_where_there_is_nothing_begins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with new(tmp_path / "new", resume=True) as run:
        assert run.restored is None
    assert "holds no run to resume" in capsys.readouterr().err


def test_tensorboard_shows_every_step_once(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with new(tmp_path) as run:
        for step in range(1, 6):
            run.log(step, {"charts/episodic_return": step})
            if step == 3:
                run.save(step, {}, {})
    time.sleep(1.1)  # the names of event files hold seconds
    with new(tmp_path, resume=True) as run:
        for step in range(4, 8):
            run.log(step, {"charts/episodic_return": 10 * step})
    events = EventAccumulator(str(tmp_path / "tb")).Reload().Scalars("charts/episodic_return")
    assert [(event.step, event.value) for event in events] == [
        (1, 1),
        (2, 2),
        (3, 3),
        (4, 40),
        (5, 50),
        (6, 60),
        (7, 70),
    ]


def test_steps_are_logged_in_order_and_before_they_are_saved(tmp_path: Path) -> None:
    with new(tmp_path) as run:
        run.log(2, {"a": 1.0})
        run.log(2, {"b": 1.0})
        with pytest.raises(ValueError, match="step 1 is logged after"):
            run.log(1, {})
        run.save(3, {}, {})
        with pytest.raises(ValueError, match="3 saved"):  # killed here, a resumed run would never log it
            run.log(3, {})


def test_a_loss_that_is_not_finite_leaves_no_trace(tmp_path: Path) -> None:
    with new(tmp_path) as run, pytest.raises(FloatingPointError, match="losses/value_loss is inf at step 4"):
        run.log(4, {"charts/SPS": 1.0, "losses/value_loss": math.inf})
    assert lines(tmp_path) == []


# --------------------------------------------------------------------------------------------------------- refusals


def test_a_folder_that_holds_a_run_is_not_overwritten(tmp_path: Path) -> None:
    new(tmp_path).close()
    before = (tmp_path / "config.json").read_bytes()
    with pytest.raises(BadInput, match=r"already holds a run; use --resume .* or another --out"):
        new(tmp_path, seed=4)
    assert (tmp_path / "config.json").read_bytes() == before


def test_another_config_is_refused_and_the_difference_named(tmp_path: Path) -> None:
    with new(tmp_path) as run:
        run.log(1, {})
    with pytest.raises(BadInput, match=r"these differ: env\.id, extra, hidden, seed$"):
        new(tmp_path, resume=True, seed=4, env={"id": "Other-v0", "options": {}}, hidden=(64,), extra=None)
    assert lines(tmp_path) == [{"step": 1}]
    new(tmp_path, resume=True).close()


@pytest.mark.parametrize("value", [math.nan, math.inf, Path("x"), {1: 2}])
def test_a_config_is_plain(tmp_path: Path, value: Any) -> None:
    with pytest.raises(BadInput, match=r"^config\.value"):
        new(tmp_path / "run", value=value)
    assert os.listdir(tmp_path) == []


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(BadInput, match="cannot be a run's folder"):
            new(folder)


def _link(path: Path, victim: Path) -> None:
    path.symlink_to(victim)


def _dangling(path: Path, victim: Path) -> None:
    path.symlink_to(victim.with_name("nowhere"))


def _pipe(path: Path, victim: Path) -> None:
    os.mkfifo(path)


def _other_kind(path: Path, victim: Path) -> None:
    if path.name in ("tb", "checkpoints", "replay"):
        path.write_text("a file")
    else:
        path.mkdir()


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("make", [_link, _dangling, _pipe, _other_kind])
@pytest.mark.parametrize("name", ["lock", "metrics.jsonl", "config.json", "tb", "checkpoints", "replay"])
def test_entries_of_another_kind_are_refused(tmp_path: Path, name: str, make: Any, resume: bool) -> None:
    run, victim = tmp_path / "run", tmp_path / "victim"
    if resume:
        new(run).close()
        entry = run / name
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink(missing_ok=True)
    run.mkdir(exist_ok=True)
    if name in ("tb", "checkpoints", "replay"):
        victim.mkdir()
    else:
        victim.write_text("precious")
    make(run / name, victim)
    with pytest.raises(BadInput, match=f"{name} must be a (regular file|folder)"):
        new(run, resume)
    with pytest.raises(BadInput, match=f"{name} must be a (regular file|folder)"):
        check_place(run, resume)
    assert list(victim.iterdir()) == [] if victim.is_dir() else victim.read_text() == "precious"
    assert not (tmp_path / "nowhere").exists()


def test_a_link_put_there_later_is_not_followed_either(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "link").symlink_to(victim)
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe"):
        for flags in (os.O_RDONLY, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, os.O_RDWR | os.O_CREAT):
            with pytest.raises(BadInput, match="regular file"):
                open_plain(tmp_path / name, flags)
    (tmp_path / f"a.json.tmp-{os.getpid()}").symlink_to(victim)
    write_atomic(tmp_path / "a.json", "{}")
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("name", ["lock", "metrics.jsonl"])
def test_another_name_of_a_file_is_not_written_to(tmp_path: Path, name: str) -> None:
    """A hard link looks like any file, but what is written through it is written into another one."""
    run, victim = tmp_path / "run", tmp_path / "victim"
    run.mkdir()
    victim.write_text("precious")
    (run / name).hardlink_to(victim)
    with pytest.raises(BadInput, match=f"{name} must be a regular file and no link"):
        new(run)
    assert victim.read_text() == "precious"
    victim.unlink()  # now it has one name
    new(run, resume=name == "metrics.jsonl").close()


def test_two_processes_do_not_share_a_folder(tmp_path: Path) -> None:
    with new(tmp_path), pytest.raises(BadInput, match=rf"in use by another process \(pid {os.getpid()} on "):
        new(tmp_path, resume=True)
    new(tmp_path, resume=True).close()


def test_a_corrupt_run_is_never_begun_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with new(tmp_path) as run:
        for step in (1, 2):
            run.log(step, {"x": 1.0})
            run.save(step, {"w": torch.ones(3)}, {"at": step})
    first, second = sorted((tmp_path / "checkpoints").glob("step_*"))
    (second / "tensors.safetensors").write_bytes(b"")
    with new(tmp_path, resume=True) as run:
        assert run.restored is not None
        assert run.restored[1] == {"at": 1}
        assert lines(tmp_path) == [{"step": 1, "x": 1.0}]
    assert str(second) in capsys.readouterr().err
    (first / "manifest.json").unlink()
    with pytest.raises(Corrupt, match="all 2 are corrupt"):
        new(tmp_path, resume=True)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(Corrupt, match=r"config\.json"):
        new(tmp_path, resume=True)


def test_other_conditions_are_said_and_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with new(tmp_path) as run:
        run.save(1, {}, {})
    with monkeypatch.context() as patched:
        patched.setattr(torch, "get_num_threads", lambda: 17)
        with new(tmp_path, resume=True) as run:
            assert not run.exact
            run.save(2, {}, {})
        assert "→ 17" in capsys.readouterr().err
        with new(tmp_path, resume=True) as run:  # the same conditions as the last time, and still not the first run
            assert not run.exact


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_disk_that_fills_up_under_the_metrics(tmp_path: Path) -> None:
    with open("/dev/full", "wb") as full, new(tmp_path) as run:
        os.dup2(full.fileno(), run._metrics.fileno())
        with pytest.raises(DiskFull, match=r"^disk full: .*metrics\.jsonl"):
            run.log(1, {"x": 1.0})


# ------------------------------------------------------------------------------------------------------------ progress


def test_plain_lines_are_rare_and_the_last_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    run = Run.open(None, CONFIG, resume=False, total_steps=10_000, quiet=False)
    for step in range(0, 2_600, 100):  # 100 steps/s, 25 seconds
        run.progress(step, ret=step / 7, phase="warm")
        clock[0] += 1
    run.close()
    shown = [line.split("  ", 1)[1] for line in capsys.readouterr().err.splitlines()]
    assert shown == [
        "step 0/10,000  ret 0  phase warm",
        "step 1,000/10,000  ret 142.9  phase warm  100 steps/s  0:01:30 left",
        "step 2,000/10,000  ret 285.7  phase warm  100 steps/s  0:01:20 left",
        "step 2,500/10,000  ret 357.1  phase warm  100 steps/s  0:01:15 left",
    ]


def test_on_a_terminal_one_line_lives() -> None:
    screen = io.StringIO()
    terminal = progress.Terminal(1_000, Console(file=screen, force_terminal=True, width=100))
    for step in (0, 500, 1_000):
        terminal.show(step, f"return {step} [not markup]")
    terminal.close()
    assert " 50.0 %" in screen.getvalue() or "100.0 %" in screen.getvalue()
    assert "return 1000 [not markup]" in screen.getvalue()
    assert screen.getvalue().count("\x1b[?25h") == 1  # the cursor is back


def test_quiet_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    with new(None) as run:
        run.progress(1, x=1.0)
    assert capsys.readouterr() == ("", "")


# ------------------------------------------------------------------------------------------------------------- seeds


def test_derived_seeds() -> None:
    assert derived_seed(1, "barrier", 5) == 1382532845  # the first 4 bytes of sha256 of [1,"barrier",5], halved
    assert derived_seed(1, "barrier", 5) != derived_seed(1, "barrier", "5")
    found = {derived_seed(seed, "envs", step) for seed in range(50) for step in range(100)}
    assert len(found) == 5_000
    assert all(0 <= seed < 2**31 for seed in found)


# ------------------------------------------------------------------------------- a toy that is trained, and killed

STEPS = 120


def train(folder: Path, pause: float) -> None:
    """A loop as PPO's, DQN's and A3C's are: restore, update, log, save now and then, stop when asked."""
    torch.set_num_threads(1)
    config = {"steps": STEPS}
    try:
        with Run.open(folder, config, resume=True, total_steps=STEPS, quiet=True) as run:
            (folder / "ready").touch()
            rng, w, step, total = torch.Generator().manual_seed(1), torch.zeros(20_000), 0, 0.0
            if run.restored is not None:
                tensors, state = run.restored
                rng.set_state(tensors["rng"])
                w, step, total = tensors["w"], state["step"], state["total"]
            while step < STEPS:
                w = 0.9 * w + torch.randn(w.shape, generator=rng)
                total += w.mean().item()
                step += 1
                time.sleep(pause)
                run.log(step, {"losses/mean": w.mean().item(), "charts/total": total, "charts/SPS": time.time()})
                if step % 7 == 0 or step == STEPS or run.signal is not None:
                    tensors = {"w": w, "rng": rng.get_state()}
                    run.save(step, tensors, {"step": step, "total": total}, score=math.sin(step))
                if run.signal is not None:
                    raise Stopped(run.signal)
    except Stopped as stopped:
        sys.exit(stopped.code)


def start(folder: Path, pause: float) -> Any:
    process = WORKERS.Process(target=train, args=(folder, pause))
    process.start()
    return process


def wait_for_lines(folder: Path, count: int) -> None:
    deadline = time.monotonic() + 30
    path = folder / "metrics.jsonl"
    while not path.exists() or path.read_bytes().count(b"\n") < count:
        assert time.monotonic() < deadline
        time.sleep(0.002)


def result(folder: Path) -> tuple[Any, ...]:
    found = newest_checkpoint(folder)
    assert found is not None
    path, tensors, state = found
    best = os.readlink(folder / "checkpoints" / "best")
    return path.name, {name: tensor.tolist() for name, tensor in tensors.items()}, state, best, lines(folder)


def uninterrupted(folder: Path) -> tuple[Any, ...]:
    process = start(folder, 0.0)
    process.join(60)
    assert process.exitcode == 0
    return result(folder)


def kill_while_training(folder: Path, kills: int, capsys: pytest.CaptureFixture[str]) -> None:
    expected = uninterrupted(folder / "whole")
    rng, done, trial = random.Random(1), 0, 0
    while done < kills:
        trial += 1
        while True:  # until one run is through
            process = start(folder / str(trial), 0.001)
            process.join(rng.uniform(0.03, 0.25))
            if not process.is_alive():
                break
            process.kill()
            process.join()
            done += 1
        assert process.exitcode == 0
        assert result(folder / str(trial)) == expected
    assert "corrupt" not in capsys.readouterr().err


@LINUX
def test_kill_9_and_resume_end_where_an_uninterrupted_run_ends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kill_while_training(tmp_path, 12, capsys)


@pytest.mark.nightly
def test_a_hundred_kills(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kill_while_training(tmp_path, 100, capsys)


@LINUX
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_stops(tmp_path: Path, number: signal.Signals, code: int) -> None:
    expected = uninterrupted(tmp_path / "whole")
    folder = tmp_path / "stopped"
    process = start(folder, 0.01)
    wait_for_lines(folder, 10)
    os.kill(process.pid, number)
    process.join(30)
    assert process.exitcode == code
    found = newest_checkpoint(folder)
    assert found is not None
    assert found[2]["step"] == lines(folder)[-1]["step"] >= 10  # nothing that was done is lost
    process = start(folder, 0.0)
    process.join(30)
    assert process.exitcode == 0
    assert result(folder)[1:3] == expected[1:3]
    assert lines(folder) == expected[4]


@LINUX
def test_the_second_signal_does_not_wait(tmp_path: Path) -> None:
    process = start(tmp_path, 20.0)  # one update takes long
    deadline = time.monotonic() + 30
    while not (tmp_path / "ready").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGINT)
    process.join(0.3)
    assert process.is_alive()
    os.kill(process.pid, signal.SIGTERM)
    process.join(5)
    assert process.exitcode == 143


def test_signals_are_given_back_and_left_alone_elsewhere() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with new(None) as run:
        assert run.signal is None
        os.kill(os.getpid(), signal.SIGTERM)
        assert run.signal == signal.SIGTERM
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    problems: list[BaseException] = []

    def work() -> None:
        try:
            with new(None):
                assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
        except BaseException as error:  # noqa: BLE001
            problems.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert problems == []
