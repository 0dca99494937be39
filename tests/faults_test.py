"""Faults and absurd arguments: one line and an exit code, never a traceback, an endless loop or all of the memory."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from radial import cli
from radial.agents.policies import CategoricalAgent
from radial.agents.saved import save
from radial.core.data import EnvSpec

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
