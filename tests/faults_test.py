"""Faults and absurd arguments: one line and an exit code, never a traceback, an endless loop or all of the memory."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from radial import cli
from radial.agents.policies import CategoricalAgent
from radial.agents.saved import save
from radial.core.data import BadInput, EnvSpec
from radial.envs.contract import EnvFault, as_flags, as_rewards, check_one_step
from radial.envs.make import make_env
from radial.runs.checkpoint import read_checkpoint, write_checkpoint
from radial.runs.files import Corrupt
from radial.runs.run import Run
from radial.training import a3c_test, dqn_test, ppo_test
from radial.training.a3c_workers import Failure, _error

TRAIN = ["train", "cartpole-ppo"]
TINY = ["--steps", "256", "--set", "rollout=128", "minibatch=32", "epochs=1", "hidden=[8]", "compile=false"]
DIGITS = "9" * 5_000


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Every test in an empty folder, with a zoo of one untrained agent."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RADIAL_ZOO", str(tmp_path / "zoo"))
    agent = CategoricalAgent((4,), 2, (8,))
    agent.card = type(agent.card)(env=EnvSpec("classic", "CartPole-v1"), seed=3, steps=256)
    save(agent, tmp_path / "zoo" / "poles")
    threads = torch.get_num_threads()
    yield tmp_path
    torch.set_num_threads(threads)


def run(*arguments: str) -> int:
    """The exit code of `radial …`, in this process."""
    try:
        cli.main(list(arguments))
    except SystemExit as end:
        return int(end.code or 0)
    return 0


# ------------------------------------------------------------------------------------------------- bounds of arguments

HUGE = {
    "seeds": ([*TRAIN, "--seeds", "0-9999999999"], "seeds must be at most 10,000"),
    "digits of seeds": ([*TRAIN, "--seeds", DIGITS], "--seeds: at most 4,096 characters"),
    "fewer digits of seeds": ([*TRAIN, "--seeds", DIGITS[:4_000]], "19 digits"),
    "late seeds": ([*TRAIN, "--seeds", "9" * 19], "seeds must be at most 9,223"),
    "digits of a seed": ([*TRAIN, "--seed", DIGITS], "--seed: at most 4,096 characters"),
    "fewer digits of a seed": ([*TRAIN, "--seed", DIGITS[:4_000]], "seed must be at most"),
    "steps": ([*TRAIN, "--steps", "9" * 30], "steps must be at most 1,000,000,000,000"),
    "digits of steps": ([*TRAIN, "--steps", DIGITS[:4_000]], "steps must be at most"),
    "digits of a setting": ([*TRAIN, "--set", f"rollout={DIGITS[:4_000]}"], "64 bits"),
    "digits of a float": ([*TRAIN, "--set", f"policy_rate={DIGITS[:4_000]}"], "64 bits"),
    "hexadecimal digits": ([*TRAIN, "--set", f"rollout=0x{'f' * 4_000}"], "64 bits"),
    "levels of a path": ([*TRAIN, "--set", ".".join(["env"] * 3_000) + "=1"], "--set: at most 4,096"),
    "fewer levels of a path": ([*TRAIN, "--set", ".".join(["env"] * 1_000) + "=1"], "32 levels, got 1,000"),
    "levels of an array": ([*TRAIN, "--set", "hidden=" + "[" * 2_000 + "]" * 2_000], "32 levels"),
    "levels of a table": ([*TRAIN, "--set", "env.options=" + "{a=" * 900 + "1" + "}" * 900], "32 levels"),
    "levels of a key": ([*TRAIN, "--set", "env.options={" + ".".join(["a"] * 1_500) + "=1}"], "32 levels"),
    "a recipe's name": (["train", "x" * 256], "recipe: a name has at most 255 bytes"),
    "an agent's name": (["evaluate", "x" * 256], "agent: a name has at most 255 bytes"),
    "bytes of a name": (["evaluate", "ε" * 128], "agent: a name has at most 255 bytes"),
    "a folder's name": ([*TRAIN, "--out", "x" * 256], "out: a name has at most 255 bytes"),
    "a file's name": ([*TRAIN, "--init", f"runs/{'x' * 256}/agent"], "init: a name has at most 255 bytes"),
    "an env's name": (["evaluate", "poles", "--env", "x" * 256], "env: a name has at most 255 bytes"),
    "a page's name": (["audit", "poles", "--out", "x" * 256], "out: a name has at most 255 bytes"),
    "threads": ([*TRAIN, "--threads", "1000000"], "threads must be at most 1,024"),
    "jobs": ([*TRAIN, "--seeds", "0-1", "--jobs", "1000000"], "jobs must be at most 1,024"),
    "envs": ([*TRAIN, "--num-envs", "1000000000"], "num_envs must be at most 10,000"),
    "envs by --set": ([*TRAIN, "--set", "num_envs=1000000", "rollout=1000000"], "num_envs must be at most 10,000"),
    "steps by --set": ([*TRAIN, "--set", "total_steps=9000000000000000"], "steps must be at most"),
    "evaluate episodes": (["evaluate", "poles", "--episodes", "1000000000000"], "episodes must be at most 1,000,000"),
    "evaluate envs": (["evaluate", "poles", "--num-envs", "20000"], "num_envs must be at most 10,000"),
    "certify episodes": (
        ["certify", "poles", "--metric", "acr", "--radius", "0.1", "--episodes", "1000000000000"],
        "episodes must be at most",
    ),
    "audit episodes": (["audit", "poles", "--episodes", "1000000000000"], "episodes must be at most"),
    "robustify steps": (["robustify", "poles", "--radius", "0.1", "--steps", "9" * 20], "steps must be at most"),
    "reproduce episodes": (["reproduce", "mujoco", "--episodes", "9" * 20], "episodes must be at most"),
    "device": ([*TRAIN, "--device", "meta"], "device must be"),
    "device of a measurement": (["bench", "bounds", "--device", "meta"], "device must be cpu or cuda"),
}


@pytest.mark.parametrize("case", HUGE)
def test_arguments_are_bounded_before_use(case: str, elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(elsewhere.rglob("*"))
    arguments, says = HUGE[case]
    assert run(*arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert says in err
    assert err.splitlines()[-1].startswith("radial: ")
    assert len(err.splitlines()) == 1
    assert len(err) < 300
    assert sorted(elsewhere.rglob("*")) == before


def test_the_number_of_envs_may_need_what_is_set() -> None:
    """100 envs do not divide the recipe's rollout, but the one that is set."""
    settings = ["--set", "rollout=200", "minibatch=100", "epochs=1", "hidden=[8]", "compile=false"]
    assert run(*TRAIN, "--steps", "200", "--num-envs", "100", *settings, "--out", "here") == 0


# ----------------------------------------------------------------------------------------------------------- one line


def one_line(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The last line of stderr, which says all the words and is no part of a traceback."""
    err = capsys.readouterr().err
    assert "Traceback" not in err
    line = err.splitlines()[-1]
    assert line.startswith("radial: ")
    for word in words:
        assert word in line
    return line


ERRORS = {
    "folder": (FileNotFoundError(2, "No such file or directory", "runs/x"), "runs/x: No such file"),
    "read-only": (OSError(30, "Read-only file system", "runs/x/metrics.jsonl"), "Read-only file system"),
    "no name": (OSError("weights cannot be written"), "weights cannot be written"),
    "memory": (MemoryError(), "out of memory"),
    "memory of torch": (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), "can't allocate"),
    "recursion": (RecursionError("maximum recursion depth exceeded"), "nested too deeply"),
    "no tensors": (RuntimeError("Error(s) in loading state_dict for X:\n\tMissing key(s)"), "Missing key(s)"),
    "a long story": (OSError("x" * 100_000), "xxx"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_a_fault_is_one_line_and_exit_1(
    case: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error, says = ERRORS[case]

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("radial.workflows.train.train", fail)
    assert run("train", "cartpole-ppo") == 1
    assert len(one_line(capsys, says)) < 3_000


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyError("nobody expected this")

    monkeypatch.setattr("radial.workflows.train.train", fail)
    with pytest.raises(KeyError):
        run("train", "cartpole-ppo")


def test_a_failed_worker_is_one_line_and_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        Path("here").mkdir()
        raise _error(3, Failure("ZeroDivisionError", "a simulator\ndivided by zero", "Traceback …\n  in _break"))

    monkeypatch.setattr("radial.workflows.train.train", fail)
    assert run("train", "cartpole-a3c", "--out", "here") == 1
    one_line(capsys, "worker 3 failed: ZeroDivisionError: a simulator divided by zero", "here/error.txt")
    assert "in _break" in Path("here/error.txt").read_text()


def test_a_folder_that_is_removed_or_renamed_while_training(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = Run.log

    def log_and_rename(self: Run, step: int, metrics: dict[str, float]) -> None:
        log(self, step, metrics)
        if Path("here").exists():
            Path("here").rename("there")

    monkeypatch.setattr(Run, "log", log_and_rename)
    assert run(*TRAIN, *TINY, "--out", "here") == 1
    one_line(capsys, "here", "removed or renamed")
    assert not Path("here").exists()


def test_events_that_cannot_be_written_are_told_once(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """TensorBoard writes in a thread of its own, which must not print its traceback."""
    log = Run.log

    def log_without_events(self: Run, step: int, metrics: dict[str, float]) -> None:
        shutil.rmtree("here/tb", ignore_errors=True)
        log(self, step, metrics)

    monkeypatch.setattr(Run, "log", log_without_events)
    assert run(*TRAIN, *TINY, "--out", "here") == 1
    one_line(capfd, "here/tb/events", "No such file")


# ------------------------------------------------------------------------------------------------------- environments


class Bad(gymnasium.Env):  # type: ignore[type-arg]
    """An env with one fault, at its third step or before."""

    made = 0

    def __init__(self, fault: str = "none", patience: float = 0.0) -> None:
        type(self).made += 1
        if fault == "making":
            raise RuntimeError("no such\nport")
        time.sleep(patience)
        shape = (1, 2, 3, 4) if fault == "space" else (4,)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, shape)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.fault, self.count = fault, 0

    def reset(self, **_: object) -> Any:  # type: ignore[override]
        if self.fault == "reset":
            raise KeyError("start")
        return np.zeros(4, np.float32) if self.fault == "no info" else (np.zeros(4, np.float32), {})

    def step(self, action: object) -> Any:
        self.count += 1
        good: list[Any] = [np.zeros(4, np.float32), 1.0, False, False, {}]
        if self.count < 3:
            return tuple(good)
        if self.fault == "step":
            raise ZeroDivisionError("the simulator\ndivided by zero")
        if self.fault == "four":
            return tuple(good[:4])
        at, value = WRONG[self.fault]
        good[at] = value
        return tuple(good)


WRONG: dict[str, tuple[int, Any]] = {
    "none": (1, np.float64(1.0)),
    "shape": (0, np.zeros(5, np.float32)),
    "text": (0, "0000"),
    "nothing": (0, None),
    "nan": (0, np.full(4, np.nan, np.float32)),
    "reward 1": (1, "1"),
    "reward none": (1, None),
    "rewards": (1, np.ones(2)),
    "reward nan": (1, float("nan")),
    "terminated": (2, None),
    "truncated": (3, "no"),
    "half": (2, 0.5),
    "two": (3, 2),
}
STEPPING = [fault for fault in (*WRONG, "step", "four") if fault != "none"]


@pytest.fixture
def bad() -> Iterator[str]:
    """The id of `Bad` in Gymnasium's registry."""
    gymnasium.register("RadialBad-v0", Bad)
    Bad.made = 0
    yield "RadialBad-v0"
    del gymnasium.registry["RadialBad-v0"]


@pytest.mark.parametrize("fault", STEPPING)
def test_a_fault_of_an_env_names_env_and_step(bad: str, fault: str) -> None:
    env = make_env(EnvSpec("gymnasium", bad, {"fault": fault}), 2, 0)
    env.reset()
    for _ in range(2):
        env.step(torch.zeros(2, dtype=torch.int64))
    with pytest.raises(EnvFault, match=f"at step 3 of gymnasium/{bad}"):
        env.step(torch.zeros(2, dtype=torch.int64))
    env.close()


@pytest.mark.parametrize("fault", ["reset", "no info"])
def test_a_fault_at_reset_names_the_env(bad: str, fault: str) -> None:
    env = make_env(EnvSpec("gymnasium", bad, {"fault": fault}), 2, 0)
    with pytest.raises(EnvFault, match=f"reset of gymnasium/{bad}"):
        env.reset()
    env.close()


@pytest.mark.parametrize("good", [np.bool_(True), 1, np.int64(0), np.array([True])])
def test_what_is_true_or_false(good: object) -> None:
    check_one_step(np.float32(1), good, False)
    check_one_step(1, False, good)


def test_a_vector_env_that_gives_other_types() -> None:
    assert as_flags("truncated", np.array([0, 1]), 2, "now").tolist() == [False, True]
    for wrong in ([None, None], ["", ""], [0.0, 1.0], [0, 2], [False]):
        with pytest.raises(EnvFault, match=r"truncated of .* at now"):
            as_flags("truncated", wrong, 2, "now")
    for wrong in (["1", "2"], [None, 1.0], [1.0]):
        with pytest.raises(EnvFault, match=r"rewards of .* at now"):
            as_rewards(wrong, 2, "now")


def test_faults_of_an_env_on_the_command_line(bad: str, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = ["--set", "env.suite=gymnasium", f"env.id={bad}"]
    assert run(*TRAIN, *TINY, *chosen, "env.options.fault=step", "--out", "here") == 1
    one_line(capsys, bad, "step 3", "ZeroDivisionError", "the simulator divided by zero")
    assert run(*TRAIN, *TINY, *chosen, "env.options.fault=making", "--out", "there") == 1
    one_line(capsys, bad, "cannot be made", "no such")


def test_spaces_are_compared_on_one_env(bad: str, capsys: pytest.CaptureFixture[str]) -> None:
    save(CategoricalAgent((3,), 2, (8,)), Path("other"))
    assert run("evaluate", "other", "--env", bad) == 2
    one_line(capsys, "agent must fit the env")
    assert Bad.made == 1
    with pytest.raises(BadInput, match="observation space"):
        make_env(EnvSpec("gymnasium", bad, {"fault": "space"}), 50, 0)
    assert Bad.made == 2


def test_making_an_env_is_watched() -> None:
    code = (
        "import gymnasium\n"
        "from faults_test import Bad\n"
        "from radial.core.data import EnvSpec\n"
        "from radial.envs.make import make_env\n"
        "gymnasium.register('Slow-v0', Bad)\n"
        "make_env(EnvSpec('gymnasium', 'Slow-v0', {'patience': 0.3}), 2, 0, timeout=1.0).close()\n"
        "print('made', flush=True)\n"
        "make_env(EnvSpec('gymnasium', 'Slow-v0', {'patience': 60.0}), 2, 0, timeout=0.1)\n"
    )
    done = python("-c", code)
    assert done.stdout == "made\n"
    assert done.returncode == 70
    assert "making gymnasium/Slow-v0 (patience=60.0) took longer than 0.5 s" in done.stderr


# --------------------------------------------------------------------------------------------------- damaged folders


@pytest.fixture
def half(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A run that a fault ended after its first checkpoint."""

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "here/agent")

    with monkeypatch.context() as patch:
        patch.setattr("radial.workflows.train.save", full)
        assert run(*TRAIN, *TINY, "--out", "here") == 1
    one_line(capsys, "here/agent: No space left")
    return Path("here")


def resume() -> int:
    return run(*TRAIN, *TINY, "--out", "here", "--resume")


def newest(folder: Path) -> Path:
    return sorted(each for each in (folder / "checkpoints").iterdir() if each.name.startswith("step_"))[-1]


@pytest.mark.parametrize("lost", ["state", "update", "tensors"])
def test_a_checkpoint_without_its_content(half: Path, lost: str, capsys: pytest.CaptureFixture[str]) -> None:
    tensors, state = read_checkpoint(newest(half))
    shutil.rmtree(half / "checkpoints")
    kept = {"state": {}, "update": {key: value for key, value in state.items() if key != lost}, "tensors": state}
    write_checkpoint(half, state["step"], {} if lost == "tensors" else tensors, kept[lost])
    assert resume() == 1
    one_line(capsys)


WRONG: dict[str, dict[str, Any]] = {
    "text as returns": {"returns": "abc"},
    "texts as returns": {"returns": ["a"], "lengths": ["b"]},
    "no list of lengths": {"lengths": 3},
    "one length too few": {"returns": [1.0, 2.0], "lengths": [1.0]},
    "text as step": {"step": "x"},
    "another step": {"step": 3},
    "a list for each": {"step": [], "update": [], "restarts": [], "replay": [], "guide": []},
}


@pytest.mark.parametrize("loop", [a3c_test, dqn_test, ppo_test], ids=["a3c", "dqn", "ppo"])
def test_a_checkpoint_with_values_of_another_type(loop: Any) -> None:
    folder = Path("here")
    config = replace(loop.TINY, total_steps=256)
    loop.train(config, 1, out=folder, quiet=True)
    tensors, state = read_checkpoint(newest(folder))
    for wrong in WRONG.values():
        shutil.rmtree(folder / "checkpoints")
        write_checkpoint(folder, state["step"], tensors, state | wrong)
        with pytest.raises(Corrupt) as caught:
            loop.train(config, 1, out=folder, resume=True, quiet=True)
        assert "\n" not in str(caught.value)
    shutil.rmtree(folder / "checkpoints")
    write_checkpoint(folder, state["step"], tensors | {"rng": torch.zeros(3, dtype=torch.uint8)}, state)
    with pytest.raises(Corrupt, match="holds values that no run can be resumed from"):
        loop.train(config, 1, out=folder, resume=True, quiet=True)


def test_values_of_another_type_on_the_command_line(half: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tensors, state = read_checkpoint(newest(half))
    shutil.rmtree(half / "checkpoints")
    write_checkpoint(half, state["step"], tensors, state | {"returns": ["a"]})
    assert resume() == 1
    one_line(capsys, "holds values that no run can be resumed from", "lists of numbers")


def test_best_that_is_a_folder(half: Path, capsys: pytest.CaptureFixture[str]) -> None:
    best = half / "checkpoints" / "best"
    best.unlink()
    best.mkdir()
    assert resume() == 1
    one_line(capsys, "checkpoints/best", "folder")


@pytest.mark.parametrize(
    "line", ["[" * 100_000, '{"step": 1, "time": NaN}', '{"step": 1, "time": 1' + "0" * 400 + "}", '{"step": 1}', "5"]
)
def test_a_line_of_metrics_that_is_none(half: Path, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    metrics = half / "metrics.jsonl"
    good = metrics.read_text()
    metrics.write_text(f"{line}\n{good}")
    assert resume() == 0
    assert "metrics.jsonl line 1" in capsys.readouterr().err
    assert metrics.read_text() == good


def test_metrics_that_are_gone_are_mentioned(half: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (half / "metrics.jsonl").unlink()
    assert resume() == 0
    err = capsys.readouterr().err
    assert "metrics.jsonl is gone" in err
    assert (half / "agent").is_dir()


# --------------------------------------------------------------------------------------------------- the process itself


def python(*arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    return subprocess.run(
        [sys.executable, *arguments], env={**os.environ, "PYTHONPATH": path, **variables}, capture_output=True,
        text=True, timeout=120, check=False,
    )  # fmt: skip


def test_a_stdout_that_cannot_encode_loses_nothing() -> None:
    code = (
        "import sys; from rich.table import Table; from radial import cli; from radial.commands import terminal;"
        "from radial.core.data import BadInput\n"
        "def show(**_):\n"
        "    terminal.print_json({'ε': '± 😀'})\n"
        "    table = Table('ε'); table.add_row('±'); terminal.print_table(table)\n"
        "    raise BadInput('ε must be ≥ 0')\n"
        "cli.parse = lambda *_: show; cli.main()"
    )
    done = python("-c", code, PYTHONIOENCODING="ascii")
    assert done.returncode == 2
    assert done.stderr == "radial: \\u03b5 must be \\u2265 0\n"
    text, table = done.stdout.split("}\n", 1)
    assert json.loads(text + "}") == {"ε": "± 😀"}
    assert "\\u03b5" in table
    assert "\\xb1" in table


def test_a_stdout_that_is_full_is_a_fault() -> None:
    done = python(
        "-c", "import sys; sys.stdout = open('/dev/full', 'w'); from radial.cli import main; main(['version'])"
    )
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "No space left" in done.stderr


def test_a_stdout_that_is_closed_is_nobodys_fault() -> None:
    done = python("-c", "import sys; sys.stdout = None; from radial.cli import main; main(['recipes'])")
    assert (done.returncode, done.stderr) == (0, "")


def test_ctrl_c_while_importing_is_quiet() -> None:
    """A hook sends the signal as soon as torch is asked for."""
    hook = Path("hook")
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(
        "import os, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell in the background ignores it
        "class Finder:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'torch':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder())\n"
    )
    path = os.pathsep.join([str(hook.absolute()), *sys.path])
    done = python("-m", "radial", "recipes", PYTHONPATH=path)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
    done = python("-c", "from radial import Ball", PYTHONPATH=path)  # a library leaves signals alone
    assert "KeyboardInterrupt" in done.stderr
