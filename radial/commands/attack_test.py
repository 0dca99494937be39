"""`radial attack fit` and `radial evaluate --attack DIR`, from the command line."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from radial.agents.q_agent import QAgent
from radial.agents.saved import save
from radial.attacks.learned import adversaries
from radial.attacks.learned.halving_test import CARTPOLE, TINY, balancing
from radial.cli import main
from radial.core.agent import Card


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = balancing()
    made.card = Card(CARTPOLE)
    return save(made, tmp_path_factory.mktemp("agent") / "agent")


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command's own settings, but small networks, rollouts and few episodes."""
    small = {name: value for name, value in TINY.items() if name != "radius"}
    whole = adversaries.PAAD
    monkeypatch.setattr(adversaries, "PAAD", lambda **given: whole(**(small | given)))


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    main([str(argument) for argument in arguments])
    return json.loads(capsys.readouterr().out)


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    with pytest.raises(SystemExit) as end:
        main([str(argument) for argument in arguments])
    assert end.value.code == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    return line


def test_fit_evaluate_resume(agent: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fit = ("attack", "fit", agent, "--kind", "paad", "--radius", 0.5, "--steps", 1_024, "--restarts", 1)
    out = tmp_path / "fit"
    found = run(capsys, *fit, "--out", out, "--json")
    assert found["kind"] == "paad"
    assert found["steps"] <= 1_024
    assert found["curve"][-1][0] == found["steps"]
    assert sorted(path.name for path in (out / "agent").iterdir()) == ["card.json", "weights.safetensors"]
    played = ("evaluate", agent, "--attack", out, "--episodes", 2, "--json")
    assert "LearnedAttack(kind='paad', radius=0.5" in run(capsys, *played, "--radius", 0.5)["attack_settings"]
    main([str(each) for each in (*played, "--radius", 0.6)])
    assert "fitted for a radius of 0.5, asked for 0.6" in capsys.readouterr().err
    assert "already holds a fit; use --resume" in refused(capsys, *fit, "--out", out)
    assert run(capsys, *fit, "--out", out, "--resume", "--json") == found
    assert "is an attack, not an agent" in refused(capsys, "evaluate", out)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("--kind", "padd"), "kind must be one of best, sarl, paad, linear, got 'padd'; did you mean 'paad'?"),
        (("--p", "3"), "p must be 1, 2 or inf, got '3'"),
        (("--kind", "paad", "--steps", "10"), "steps must be ≥ 256, enough for one round, got 10"),
        (("--steps", "10"), "steps must be ≥ 12,288, enough for one round, got 10"),
        (("--kind", "sarl", "--restarts", "0"), "restarts must be a whole number ≥ 1, got 0"),
        (("--kind", "linear", "--steps", "100"), "steps must be ≥ 1,280 or so, enough for 32 episodes of 40 steps"),
        (("--seed", "-1"), "seed must be a whole number ≥ 0, got -1"),
        (("--radius", "0"), "radius must be > 0 for an adversary that learns"),
        (("--out", ""), "--out must be a folder, got ''"),
        (("--out", "/proc/x/bad"), "--out must be a folder that can be written to, got /proc/x/bad"),
    ],
)
def test_bad_input_is_one_line(
    agent: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...], says: str
) -> None:
    assert says in refused(capsys, "attack", "fit", agent, "--radius", "0.1", "--out", tmp_path / "new", *more)
    assert not (tmp_path / "new").exists()


def test_a_fit_in_another_norm_is_played_in_it(agent: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fit = (
        "attack",
        "fit",
        agent,
        "--kind",
        "paad",
        "--radius",
        "0.5",
        "--steps",
        256,
        "--p",
        2,
        "--out",
        tmp_path / "l2",
    )
    main([str(each) for each in fit])
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "the attack is in" in line]
    _, _, command = line.partition(": radial ")
    assert command.endswith("--radius 0.5 --p 2")
    main([*command.split(), "--episodes", "2", "--json"])
    played = capsys.readouterr()
    assert json.loads(played.out)["p"] == 2.0
    assert "fitted for p" not in played.err
    assert "p must be 1, 2 or inf, got '3'" in refused(capsys, "evaluate", agent, "--p", 3)
    trace = ("evaluate", agent, "--attack", "random", "--radius", 0.1, "--p", 1, "--trace", tmp_path / "page")
    assert "--trace shows perturbations in the norm inf" in refused(capsys, *trace)


def test_an_agent_of_another_kind_and_an_unfinished_fit_are_one_line(
    agent: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fit = ("attack", "fit", agent, "--kind", "paad", "--radius", 0.5, "--steps", 256, "--out", tmp_path / "fit")
    run(capsys, *fit, "--json")
    other = QAgent((4,), 2)
    other.initialize(torch.Generator().manual_seed(0))
    other.card = Card(CARTPOLE)
    values = save(other, tmp_path / "values")
    attack = ("--attack", tmp_path / "fit", "--radius", 0.5)
    assert "fitted to a categorical agent, this one is q" in refused(capsys, "evaluate", values, *attack)
    assert "no distribution over actions to sample" in refused(capsys, "evaluate", values, "--stochastic")
    (tmp_path / "fit" / "agent").rename(tmp_path / "elsewhere")
    says = refused(capsys, "evaluate", agent, *attack)
    assert "whose agent/ was removed" in says
    assert f"--out {tmp_path / 'fit'} --resume` finishes it" in says
    run(capsys, *fit, "--resume", "--json")
    assert run(capsys, "evaluate", agent, *attack, "--episodes", 1, "--json")["episodes"] == 1


def test_a_folder_of_something_else_is_refused_and_left_as_it_is(
    agent: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    fit = ("attack", "fit", agent, "--kind", "paad", "--radius", 0.5, "--steps", 256)
    assert "--out must be a new folder, an empty one or that of a fit" in refused(capsys, *fit, "--out", tmp_path)
    says = refused(capsys, *fit, "--out", tmp_path / "notes.txt")
    assert "--out must be a folder that can be written to" in says
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_an_attack_that_is_none_is_refused(agent: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "holds an agent, not an attack" in refused(capsys, "evaluate", agent, "--attack", agent, "--radius", 0.1)
    assert "or the folder of a fitted attack" in refused(capsys, "evaluate", agent, "--attack", "pdg", "--radius", 0.1)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--attack", "worst"), "--attack worst needs a --radius"),
        (("--attack", "mad", "--radius", "0.1", "--timing", "1.5"), "--timing must be a share in (0, 1], got 1.5"),
        (("--attack", "worst", "--radius", "0.1", "--timing", "0"), "--timing must be a share in (0, 1], got 0"),
        (("--timing", "0.5"), "--timing needs an attack"),
    ],
)
def test_messages_name_the_options(
    agent: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], says: str
) -> None:
    assert says in refused(capsys, "evaluate", agent, *arguments)
