"""The command line as its users meet it: what it writes, what it prints, and how it refuses."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from radial import cli
from radial.agents.policies import CategoricalAgent, GaussianAgent
from radial.agents.saved import load_agent, save
from radial.commands.train import parse_seeds
from radial.core.data import BadInput, EnvSpec
from radial.recipes.recipe import recipe, with_settings
from radial.workflows.train import train

TINY = ["--steps", "256", "--set", "rollout=128", "minibatch=32", "epochs=1", "hidden=[8]", "compile=false"]
KEYS = {
    "agent", "env", "engine", "attack", "radius", "p", "seed", "episodes", "returns", "mean", "sem", "iqm", "iqm_ci95",
    "wall_seconds",
}  # fmt: skip


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Every test in an empty folder, with an empty zoo."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RADIAL_ZOO", str(tmp_path / "zoo"))
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


@pytest.fixture
def agents(elsewhere: Path) -> Path:
    """A folder with one agent for CartPole and one for Hopper, both untrained."""
    cartpole = CategoricalAgent((4,), 2, (8,))
    cartpole.card = type(cartpole.card)(env=EnvSpec("classic", "CartPole-v1"), seed=3, steps=256)
    save(cartpole, elsewhere / "zoo" / "cartpole-agent", results={"nominal": 20.5})
    save(GaussianAgent((11,), 3, (8,)), elsewhere / "nowhere")
    return elsewhere


# ------------------------------------------------------------------------------------------------- the way it should be


def test_train_evaluate_resume(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train", "cartpole-radial-ppo", *TINY, "--out", "here") == 0
    assert capsys.readouterr().err.splitlines()[0].startswith("256 steps instead of")
    assert {"config.json", "metrics.jsonl", "checkpoints", "agent"} <= {path.name for path in Path("here").iterdir()}
    card = load_agent("here").card
    assert (card.env, card.seed, card.steps) == (EnvSpec("classic", "CartPole-v1"), 0, 256)
    assert card.recipe["name"] == "cartpole-radial-ppo"
    assert card.recipe["config"]["hidden"] == [8]
    assert card.recipe["config"]["objective"]["radius"]["last_step"] == pytest.approx(
        256 * recipe("cartpole-radial-ppo").config.objective.radius.last_step  # type: ignore[attr-defined]
        / recipe("cartpole-radial-ppo").config.total_steps
    )  # fmt: skip

    # The contract of --json: exactly one object, and nothing else on stdout.
    for attack, radius in (("none", None), ("mad", "3/255"), ("pgd", "0.1"), ("random", "0.1"), ("critic", "0.1")):
        chosen = [] if radius is None else ["--radius", radius]
        assert run("evaluate", "here", "--attack", attack, *chosen, "--episodes", "2", "--json") == 0
        facts = json.loads(capsys.readouterr().out)
        assert facts.keys() >= KEYS
        assert (facts["agent"], facts["attack"], facts["episodes"], facts["p"]) == ("here", attack, 2, "inf")
        assert len(facts["returns"]) == 2
        assert facts["mean"] == pytest.approx(sum(facts["returns"]) / 2)
        assert "CartPole-v1" in facts["env"]
    assert run("evaluate", "here", "--episodes", "1", "--stochastic") == 0
    assert "mean ± SEM" in capsys.readouterr().out

    # A run that is there is not trained over, and one that is finished gives its agent.
    assert run("train", "cartpole-radial-ppo", *TINY, "--out", "here") == 2
    before = (Path("here") / "agent" / "card.json").read_bytes()
    assert run("train", "cartpole-radial-ppo", *TINY, "--out", "here", "--resume") == 0
    assert (Path("here") / "agent" / "card.json").read_bytes() == before
    assert run("train", "cartpole-radial-ppo", *TINY, "--out", "here", "--resume", "--seed", "1") == 2
    assert "these differ: seed" in capsys.readouterr().err


def test_train_without_a_folder_writes_nothing(elsewhere: Path) -> None:
    settings = ["total_steps=256", "rollout=128", "minibatch=32", "epochs=1", "hidden=[8]", "compile=false"]
    agent = train(with_settings(recipe("cartpole-ppo").config, settings), 5, quiet=True)
    assert agent.card.seed == 5
    assert agent.normalizer.frozen
    assert list(elsewhere.iterdir()) == []


def test_same_seed_same_agent(elsewhere: Path) -> None:
    for out in ("a", "b"):
        assert run("train", "cartpole-ppo", *TINY, "--seed", "4", "--out", out) == 0
    assert run("train", "cartpole-ppo", *TINY, "--seed", "5") == 0
    one, two, other = (load_agent(out).state_dict() for out in ("a", "b", "runs/cartpole-ppo-seed5"))
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not all(torch.equal(one[name], other[name]) for name in one)


def test_adversarial_training_under_an_attack_by_name() -> None:
    settings = ["attack=mad", "attack_radius=0.1", "attack_probability=0.5"]
    assert run("train", "cartpole-ppo", *TINY, *settings, "--out", "here") == 0


def test_recipes_and_zoo(agents: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("recipes") == 0
    assert "hopper-radial-ppo" in capsys.readouterr().out
    assert run("recipes", "--json") == 0
    assert json.loads(capsys.readouterr().out)["hopper-radial-ppo"]["paper"][2]["mean"] == 3252.1
    assert run("zoo", "list") == 0
    assert "cartpole-agent" in capsys.readouterr().out
    assert run("zoo", "list", "--json") == 0
    assert json.loads(capsys.readouterr().out)["agents"] == [
        {"name": "cartpole-agent", "env": "CartPole-v1", "method": "unknown", "steps": 256, "seed": 3,
         "results": {"nominal": 20.5}}
    ]  # fmt: skip
    assert run("evaluate", "cartpole-agent", "--episodes", "1", "--json") == 0
    assert json.loads(capsys.readouterr().out)["agent"] == "cartpole-agent"


def test_an_empty_zoo_is_not_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("zoo", "list", "--json") == 0
    assert json.loads(capsys.readouterr().out)["agents"] == []


@pytest.mark.parametrize(
    ("text", "seeds"), [("0-4", [0, 1, 2, 3, 4]), ("7", [7]), ("1,3,5-6", [1, 3, 5, 6]), ("2-2", [2])]
)
def test_seeds(text: str, seeds: list[int]) -> None:
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "4-0", "a", "-1", "0-", "1,1", "0-99999", "1.5", "0--4"])
def test_what_are_no_seeds(text: str) -> None:
    with pytest.raises(BadInput, match="seeds must be"):
        parse_seeds(text)


# -------------------------------------------------------------------------------------------------- bad input, one line

BAD = {
    "unknown recipe": (["train", "hoper-ppo"], "did you mean 'hopper-ppo'"),
    "steps 0": (["train", "cartpole-ppo", "--steps", "0"], "steps must be a whole number ≥ 1, got 0"),
    "steps < 0": (["train", "cartpole-ppo", "--steps", "-5"], "got -5"),
    "no envs": (["train", "cartpole-ppo", "--num-envs", "0"], "num_envs must be"),
    "too many envs": (["train", "cartpole-ppo", "--num-envs", "1000"], "rollout must be a multiple of num_envs"),
    "no threads": (["train", "cartpole-ppo", "--threads", "0"], "threads must be"),
    "no jobs": (["train", "cartpole-ppo", "--seeds", "0-1", "--jobs", "0"], "jobs must be"),
    "seed < 0": (["train", "cartpole-ppo", "--seed", "-1"], "seed must be"),
    "both seeds": (["train", "cartpole-ppo", "--seed", "0", "--seeds", "0-1"], "not both"),
    "seeds and bad steps": (["train", "cartpole-ppo", "--seeds", "0-1", "--steps", "0"], "steps must be"),
    "rate nan": (["train", "cartpole-ppo", "--set", "policy_rate=nan"], "policy_rate must be finite"),
    "rate < 0": (["train", "cartpole-ppo", "--set", "policy_rate=-1"], "policy_rate must be finite and > 0"),
    "unknown setting": (["train", "cartpole-ppo", "--set", "rate=1"], "rate is not a setting"),
    "no setting": (["train", "cartpole-ppo", "--set", "rate"], "key=value"),
    "radius < 0": (
        ["train", "cartpole-radial-ppo", "--set", 'objective.radius={type="Constant", value=-1}'],
        "radius must lie in",
    ),
    "kappa > 1": (["train", "cartpole-radial-ppo", "--set", "objective.kappa.value=2"], "kappa must lie in [0, 1]"),
    "unknown bound": (["train", "cartpole-radial-ppo", "--set", "objective.bound=crwn"], "crown"),
    "unknown env": (["train", "cartpole-ppo", "--set", "env.id=CartPole-v0"], "did you mean 'CartPole-v1'"),
    "unknown suite": (["train", "cartpole-ppo", "--set", "env.suite=clasic"], "suite must be one of"),
    "unknown attack": (["train", "cartpole-ppo", "--set", "attack=mda"], "attack must be one of"),
    "attack that must learn": (["train", "cartpole-ppo", "--set", "attack=rs"], "attack must be one of"),
    "no device": (["train", "cartpole-ppo", "--device", "quantum"], "device must be"),
    "device elsewhere": (["train", "cartpole-ppo", "--device", "cuda:7"], "device must be"),
    "images": (["train", "cartpole-ppo", "--set", "env.suite=gymnasium", "env.id=CarRacing-v3"], ""),
    "no agent": (["evaluate", "hoper"], "no agent 'hoper'"),
    "nearly an agent": (["evaluate", "cartpol-agent"], "did you mean 'cartpole-agent'"),
    "evaluate radius < 0": (["evaluate", "cartpole-agent", "--attack", "mad", "--radius", "-1"], "radius must be"),
    "evaluate radius nan": (["evaluate", "cartpole-agent", "--attack", "mad", "--radius", "nan"], "radius must be"),
    "evaluate no radius": (["evaluate", "cartpole-agent", "--attack", "mad"], "--radius"),
    "evaluate attack": (["evaluate", "cartpole-agent", "--attack", "mda", "--radius", "0.1"], "did you mean 'mad'"),
    "evaluate episodes": (["evaluate", "cartpole-agent", "--episodes", "0"], "episodes must be"),
    "evaluate seed": (["evaluate", "cartpole-agent", "--seed", "-1"], "seed must be"),
    "evaluate envs": (["evaluate", "cartpole-agent", "--num-envs", "0"], "num_envs must be"),
    "evaluate env": (["evaluate", "cartpole-agent", "--env", "CartPol-v1"], "did you mean 'CartPole-v1'"),
    "does not fit": (["evaluate", "cartpole-agent", "--env", "Pendulum-v1"], "agent must fit the env"),
    "env not known": (["evaluate", "nowhere"], "pass --env"),
    "no agent in folder": (["evaluate", "empty"], "is not an agent"),
    "truncated weights": (["evaluate", "truncated"], "weights.safetensors"),
    "hostile file": (["evaluate", "hostile.model", "--env", "Hopper-v4"], "hostile.model"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_and_writes_nothing(case: str, agents: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (agents / "empty").mkdir()
    save(CategoricalAgent((4,), 2, (8,)), agents / "truncated")
    weights = agents / "truncated" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-7])
    (agents / "hostile.model").write_bytes(b"cos\nsystem\n(S'touch owned'\ntR.")
    before = sorted(agents.rglob("*"))
    arguments, says = BAD[case]
    assert run(*arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert err.startswith("radial: ")
    assert says in err
    assert sorted(agents.rglob("*")) == before


def test_a_missing_extra_names_the_pip_line(
    agents: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "envpool", None)
    monkeypatch.setitem(sys.modules, "mujoco", None)
    for name in [name for name in sys.modules if name.startswith("gymnasium.envs.mujoco")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr("radial.envs.envpool_vec.installed", lambda: False)
    for arguments in (["train", "hopper-ppo"], ["evaluate", "nowhere", "--env", "Hopper-v4"]):
        assert run(*arguments) == 2
        assert "pip install 'radial-rl[mujoco]'" in capsys.readouterr().err
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["trian"],
        ["train"],
        ["train", "cartpole-ppo", "--stps", "3"],
        ["train", "cartpole-ppo", "--steps", "many"],
        ["zoo"],
    ],
)
def test_what_the_parser_refuses_is_exit_2_too(arguments: list[str]) -> None:
    assert run(*arguments) == 2


def test_faults_on_the_way_are_exit_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from radial.envs.contract import EnvFault
    from radial.runs.run import DiskFull

    for error in (EnvFault("the env\nis broken"), FloatingPointError("nan"), DiskFull("disk full")):

        def fail(*_: object, error: Exception = error, **__: object) -> None:
            raise error

        monkeypatch.setattr("radial.workflows.train.train", fail)
        assert run("train", "cartpole-ppo") == 1
        assert len(capsys.readouterr().err.splitlines()) == 1


# ------------------------------------------------------------------------------------------------------- many processes


def command(*arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "radial", *arguments], env={**os.environ, "OMP_NUM_THREADS": "1"}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def test_several_seeds_are_several_processes() -> None:
    """One that fails makes the whole fail, and the others still run."""
    Path("many").mkdir()
    Path("many/seed1").write_text("somebody's file")
    process = command("train", "cartpole-ppo", *TINY, "--seeds", "0-2", "--jobs", "3", "--out", "many")
    _, err = process.communicate(timeout=300)
    assert process.returncode == 1, err
    assert {"seed 0: done", "seed 2: done", "seed 1: ended with code 2"} <= set(err.splitlines())
    assert err.splitlines()[-1] == "radial: 1 of 3 failed: seed 1"
    assert [load_agent(f"many/seed{seed}").card.seed for seed in (0, 2)] == [0, 2]


def test_a_run_that_is_there_is_refused_once_for_all_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    Path("many/seed1").mkdir(parents=True)
    Path("many/seed1/config.json").write_text("{}")  # somebody's run
    assert run("train", "cartpole-ppo", *TINY, "--seeds", "0-2", "--out", "many") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("radial: many/seed1 already holds a run; use --resume")
    assert [path.name for path in Path("many").iterdir()] == ["seed1"]


def test_a_signal_reaches_the_children_and_everything_is_saved() -> None:
    process = command(
        "train",
        "cartpole-ppo",
        "--steps",
        "1000000",
        "--set",
        "compile=false",
        "--seeds",
        "0-2",
        "--jobs",
        "1",
        "--out",
        "many",
    )
    metrics = Path("many/seed0/metrics.jsonl")
    until = time.monotonic() + 300  # a busy machine
    while not (metrics.exists() and metrics.read_text()) and time.monotonic() < until:
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 143, err
    assert "seed 0: ended with code 143" in err
    assert list(Path("many/seed0/checkpoints").iterdir())
    assert not Path("many/seed1").exists()
