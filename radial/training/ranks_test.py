"""Two ranks with half of each minibatch equal one with the whole, to 1e-6; processes talk by gloo over loopback."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

import radial as rr
from radial.core.data import BadInput
from radial.training.ranks import Together, follows, ranks_here

TINY = ("--steps", "512", "--set", "compile=false", "--track", "none", "--seed", "0", "--out")
RECIPES = {
    "ppo": ("train", "cartpole-radial-ppo", "--set", "num_envs=4", "rollout=128", "minibatch=32", "epochs=2"),
    "dqn": ("train", "cartpole-radial-dqn", "--set", "learning_starts=128", "batch=32"),
}


def free_port() -> str:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return str(made.getsockname()[1])


def run(out: Path, size: int, *arguments: str) -> None:
    """One process, or `size` ranks as torchrun would start them."""
    shared = {**os.environ, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    ranks = [{"RANK": str(n), "LOCAL_RANK": str(n), "WORLD_SIZE": str(size)} for n in range(size)]
    command = [sys.executable, "-m", "radial", *arguments, *TINY, str(out)]
    started = [subprocess.Popen(command, env=shared | each, stderr=subprocess.PIPE, text=True) for each in ranks]
    said = [process.communicate(timeout=600)[1] for process in started]
    assert [process.returncode for process in started] == [0] * size, said
    assert not said[1:] or "the agent is in" not in said[1]


@pytest.mark.nightly
@pytest.mark.parametrize("algorithm", RECIPES)
def test_two_ranks_equal_one(algorithm: str, tmp_path: Path) -> None:
    run(tmp_path / "one", 1, *RECIPES[algorithm])
    run(tmp_path / "two", 2, *RECIPES[algorithm])
    one, two = (load_file(tmp_path / name / "agent" / "weights.safetensors") for name in ("one", "two"))
    assert one.keys() == two.keys()
    for name, tensor in one.items():
        assert (tensor.double() - two[name].double()).abs().max() < 1e-6, name


def test_who_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR"):
        monkeypatch.delenv(name, raising=False)
    assert ranks_here() is None
    monkeypatch.setenv("WORLD_SIZE", "4")  # as Slurm may
    assert ranks_here() is None
    for name, value in (("RANK", "1"), ("LOCAL_RANK", "1"), ("MASTER_ADDR", "127.0.0.1")):
        monkeypatch.setenv(name, value)
    assert ranks_here() == (1, 4, 1)
    assert follows()


def test_what_ranks_cannot_share_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("RANK", "0"), ("LOCAL_RANK", "0"), ("MASTER_ADDR", "127.0.0.1"), ("WORLD_SIZE", "3")):
        monkeypatch.setenv(name, value)
    with pytest.raises(BadInput, match="multiple of the ranks, 3, got 64"):
        Together(None, tuple, 64)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="a3c"):
        rr.train(rr.recipe("cartpole-a3c").config)
