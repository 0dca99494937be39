"""Modules that register environments: found by name or by file, told in one line if they fail, known to children."""

import os
import subprocess
import sys
from pathlib import Path

import gymnasium
import pytest

from radial.core.data import BadInput
from radial.envs.custom import IMPORT_VARIABLE, import_module, imported

SOURCE = """
import gymnasium
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

class Mine(CartPoleEnv):
    pass

gymnasium.register("{id}", entry_point="{module}:Mine", max_episode_steps=20)
"""


def write(folder: Path, module: str, id: str) -> Path:
    path = folder / f"{module}.py"
    path.write_text(SOURCE.format(id=id, module=module))
    return path


def test_a_file_and_a_module_of_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = write(tmp_path, "by_file_of_mine", "ByFile-v0")
    write(tmp_path, "by_name_of_mine", "ByName-v0")
    path = list(sys.path)
    with imported([str(file), "by_name_of_mine"]):
        assert gymnasium.make("ByFile-v0").spec is not None
        assert gymnasium.make("ByName-v0").spec is not None
        assert os.environ[IMPORT_VARIABLE] == f"{file}{os.pathsep}by_name_of_mine"
    assert IMPORT_VARIABLE not in os.environ
    assert sys.path == path


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("import no_such_package", "line 1.*no_such_package"),
        ("x = 1\nraise RuntimeError('broken')", "line 2.*RuntimeError: broken"),
        ("def", "SyntaxError"),
    ],
)
def test_a_module_that_fails_is_told_in_one_line(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "failing_envs.py").write_text(text)
    with pytest.raises(BadInput, match=says):
        import_module(str(tmp_path / "failing_envs.py"))
    assert "failing_envs" not in sys.modules


def test_what_cannot_be_meant_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_envs.py").touch()
    with pytest.raises(BadInput, match="did you mean 'my_envs'"):
        import_module("my_env")
    with pytest.raises(BadInput, match=r"my_envs\.py'"):
        import_module("my_env.py")
    (tmp_path / "json.py").touch()
    with pytest.raises(BadInput, match="another module 'json'"):
        import_module("json.py")


def radial(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "radial", *arguments]
    here = {"PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=folder, env={**os.environ, **here}, capture_output=True, text=True)


def test_the_command_line_trains_in_an_env_of_ones_own(tmp_path: Path) -> None:
    write(tmp_path, "envs_of_mine", "OfMine-v0")
    small = ("--set", "rollout=64", "minibatch=16", "epochs=1", "num_envs=4", "compile=false", "--track", "none")
    trained = radial(
        tmp_path, "train", "--env", "OfMine-v0", "--algorithm", "ppo", "--steps", "1e2", *small,
        "--seeds", "3", "--out", "runs", "--import", "envs_of_mine",
    )  # fmt: skip
    assert trained.returncode == 0, trained.stderr
    assert all(len(line) <= 80 for line in trained.stderr.splitlines() if "steps/s" in line)
    card = (tmp_path / "runs" / "seed3" / "agent" / "card.json").read_text()
    assert "the defaults of ppo for vectors, discrete actions" in card
    played = radial(tmp_path, "evaluate", "runs/seed3", "--episodes", "1", "--json", "--import", "./envs_of_mine.py")
    assert played.returncode == 0, played.stderr


@pytest.mark.nightly
def test_workers_of_a3c_import_it_too(tmp_path: Path) -> None:
    write(tmp_path, "envs_of_mine", "OfMine-v0")
    trained = radial(
        tmp_path, "train", "cartpole-a3c", "--env", "OfMine-v0", "--steps", "2_000", "--set", "workers=2",
        "compile=false", "--out", "run", "--import", "envs_of_mine.py",
    )  # fmt: skip
    assert trained.returncode == 0, trained.stderr
