"""`radial robustify` as its users meet it: what it prints, what it leaves behind, and how it refuses."""

import json
from pathlib import Path

import pytest

from radial import cli
from radial.agents.policies import CategoricalAgent
from radial.agents.saved import load_agent, save
from radial.core.data import EnvSpec
from radial.training.ppo import PPOConfig
from radial.workflows.train import train

TINY = PPOConfig(
    EnvSpec("classic", "CartPole-v1"), total_steps=128, num_envs=4, rollout=64, epochs=1, minibatch=32, hidden=(8,),
    compile=False, normalize_observations=False,
)  # fmt: skip


def run(*arguments: str) -> int:
    try:
        cli.main(["robustify", *arguments])
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def test_a_table_then_the_same_as_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("radial.workflows.robustify.improved", lambda *_: True)  # so short a training improves nothing
    train(TINY, 0, out=tmp_path / "plain", quiet=True)
    given = (str(tmp_path / "plain"), "--radius", "1/20", "--steps", "1280", "--episodes", "1", "--threads", "1")
    given += ("--out", str(tmp_path / "robust"), "--objective", "radial-overlap", "--kappa", "0.7")
    given += ("--tolerance", "9")
    assert run(*given) == 0
    printed = capsys.readouterr()
    for words in ("before", "after", "clean return", "under pgd", "certified actions", "RadialOverlap, κ 0.7"):
        assert words in printed.out
    assert f"the agent is in {tmp_path / 'robust'}" in printed.err
    assert load_agent(tmp_path / "robust").card.steps == 1280
    assert run(*given) == 2
    assert "already holds a run; use --resume" in capsys.readouterr().err
    assert run(*given, "--resume", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts | {"out": None} == json.loads((tmp_path / "robust" / "comparison.json").read_text()) | {"out": None}
    assert (facts["radius"], facts["kappa"], facts["out"]) == (0.05, 0.7, str(tmp_path / "robust"))


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ([], "robustify needs a --radius, such as 0.075 or 1/255"),
        (["--radius", "0", "--env", "CartPole-v1"], "radius must be finite and > 0"),
        (["--radius", "x", "--env", "CartPole-v1"], "radius must be a finite number ≥ 0"),
        (["--radius", "0.1"], "no environment recorded; pass --env"),
        (["--radius", "0.1", "--env", "CartPol-v1"], "did you mean 'CartPole-v1'"),
        (["--radius", "0.1", "--env", "Pendulum-v1"], "agent must fit the env"),
        (["--radius", "0.1", "--env", "CartPole-v1", "--steps", "9"], "steps must be ≥ 20,480 for this agent, got 9"),
        (["--radius", "0.1", "--env", "CartPole-v1", "--objective", "overlap"], "did you mean 'radial-overlap'"),
        (["--radius", "0.1", "--env", "CartPole-v1", "--threads", "0"], "threads must be a whole number ≥ 1"),
    ],
)
def test_bad_input_is_one_line(
    more: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    save(CategoricalAgent((4,), 2, (8,)), "agent")
    assert run("agent", *more) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("radial: ")
    assert says in line
    assert not (tmp_path / "runs").exists()


def test_the_original_is_kept_where_it_is_better(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("radial.workflows.robustify.improved", lambda *_: False)
    train(TINY, 0, out=tmp_path / "plain", quiet=True)
    given = (str(tmp_path / "plain"), "--radius", "1/20", "--steps", "1280", "--episodes", "1", "--threads", "1")
    assert run(*given, "--out", str(tmp_path / "robust")) == 1
    assert "failed: the original is better" in capsys.readouterr().err
    before, after = load_agent(tmp_path / "plain").state_dict(), load_agent(tmp_path / "robust").state_dict()
    assert all(bool((before[name] == after[name]).all()) for name in before)
