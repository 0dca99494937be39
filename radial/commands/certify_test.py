"""`radial certify` as its users meet it: one JSON object or a table, and one line where it refuses."""

import importlib.util
import json
from pathlib import Path

import pytest
import torch

from radial import cli
from radial.agents import saved as checkpoints
from radial.agents.actor_critic import ImpalaAgent
from radial.agents.policies import CategoricalAgent, GaussianAgent
from radial.agents.saved import save
from radial.core.data import EnvSpec
from radial.evaluation.prover import SoundnessError


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with an agent for CartPole, one for Pendulum, and one without a recorded environment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RADIAL_ZOO", str(tmp_path / "zoo"))
    cartpole, pendulum = CategoricalAgent((4,), 2, (8,)), GaussianAgent((3,), 1, (8,))
    cartpole.initialize(torch.Generator().manual_seed(0))
    cartpole.card = type(cartpole.card)(env=EnvSpec("classic", "CartPole-v1"))
    pendulum.card = type(pendulum.card)(env=EnvSpec("classic", "Pendulum-v1"))
    save(cartpole, tmp_path / "zoo" / "cartpole-agent")
    save(pendulum, tmp_path / "pendulum-agent")
    save(CategoricalAgent((4,), 2, (8,)), tmp_path / "nowhere")
    return tmp_path


def run(*arguments: str) -> int:
    try:
        cli.main(["certify", *arguments])
    except SystemExit as end:
        return int(end.code or 0)
    return 0


@pytest.mark.parametrize(("metric", "episodes"), [("gwc", 2), ("acr", 2), ("awc", 1)])
def test_one_json_object(metric: str, episodes: int, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("cartpole-agent", "--radius", "1/255", "--metric", metric, "--horizon", "4", "--seed", "3")
    assert run(*arguments, "--episodes", str(episodes), "--bound", "crown-ibp", "--budget", "9", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["metric"], facts["agent"], facts["env"]) == (metric, "cartpole-agent", "CartPole-v1")
    assert (facts["bound"], facts["arithmetic"], facts["valid_range"]) == ("crown-ibp", "outward-rounded", None)
    assert (facts["radius"], facts["p"], facts["seed"], facts["horizon"]) == (1 / 255, "inf", 3, 4)
    assert facts["episodes"] == episodes
    assert facts["wall_seconds"] > 0
    if metric == "acr":
        assert facts["certified"] + facts["attacked"] + facts["unknown"] == facts["steps"] == 8
        assert 1 <= facts["distinct_actions"] <= 2
    if metric == "awc":
        assert (facts["budget"], facts["lower"], facts["upper"], facts["exact"]) == (9, 4.0, 4.0, True)


@pytest.mark.skipif(importlib.util.find_spec("PyQt5") is None, reason="pip install 'radial-rl[procgen]'")
def test_continuous_actions_have_a_reach_and_for_a_model_a_drift(capsys: pytest.CaptureFixture[str]) -> None:
    given = ("pendulum-agent", "--radius", "0.01", "--episodes", "1", "--bound", "ibp")
    assert run(*given, "--metric", "reach", "--json") == 0
    assert json.loads(capsys.readouterr().out)["metric"] == "reach"
    rows = [[0.9 * (i == j) for j in range(3)] for i in range(3)]
    Path("model.json").write_text(json.dumps({"A": rows, "B": [[0.1]] * 3}))
    drift = (*given, "--metric", "drift", "--horizon", "2", "--model", "model.json")
    assert run(*drift, "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["metric"], facts["horizon"], len(facts["largest"])) == ("drift", 2, 2)
    assert run(*drift) == 0
    assert "not covered" in capsys.readouterr().out
    for wrong, says in (
        (drift[:-2], "needs --model FILE and --horizon K"),
        ((*given, "--metric", "reach", "--p", "2"), "p must be inf"),
        ((*given, "--metric", "reach", "--model", "model.json"), "--model is for --metric drift"),
    ):
        assert run(*wrong) == 2
        assert says in capsys.readouterr().err


@pytest.mark.parametrize("metric", ["gwc", "acr"])
def test_an_agent_of_procgen(metric: str, capsys: pytest.CaptureFixture[str]) -> None:
    agent = ImpalaAgent()
    agent.initialize(torch.Generator().manual_seed(0))
    save(agent, "impala")
    arguments = ("--env", "fruitbot-test", "--radius", "1/255", "--metric", metric, "--episodes", "1", "--horizon", "2")
    assert run("impala", *arguments, "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["env"], facts["env_options"], facts["valid_range"]) == ("fruitbot", {"split": "test"}, [0.0, 1.0])
    assert (facts["steps"], facts["lengths"]) == (2, [2])


def test_what_cannot_be_cloned_has_no_absolute_worst_case(capsys: pytest.CaptureFixture[str]) -> None:
    save(ImpalaAgent(), "impala")
    assert run("impala", "--env", "fruitbot", "--radius", "1/255", "--metric", "awc", "--horizon", "2") == 2
    assert "procgen/fruitbot cannot be cloned; use suite atari or classic control" in capsys.readouterr().err


@pytest.mark.parametrize("metric", ["gwc", "acr", "awc"])
def test_a_table(metric: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("cartpole-agent", "--radius", "0", "--metric", metric, "--episodes", "1", "--horizon", "3") == 0
    out = capsys.readouterr().out
    assert "outward-rounded" in out
    assert {"gwc": "greedy worst-case", "acr": "certification rate", "awc": "exact"}[metric] in out
    assert ("distinct actions" in out) == (metric == "acr")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("cartpole-agent", "--metric", "gwc"), "a certificate needs a --radius, such as 0.075 or 3/255"),
        (("cartpole-agent", "--radius", "0.1"), "a certificate needs a --metric: gwc, acr or awc"),
        (("cartpole-agent", "--radius", "0.1", "--metric", "gwcc"), "got 'gwcc'; did you mean 'gwc'?"),
        (("cartpole-agent", "--radius", "a", "--metric", "gwc"), "radius must be a finite number ≥ 0"),
        (("cartpole-agent", "--radius", "0.1", "--metric", "gwc", "--bound", "crow"), "did you mean 'crown'?"),
        (("cartpole-agent", "--radius", "0.1", "--metric", "gwc", "--p", "3"), "p must be 1, 2 or inf, got '3'"),
        (
            ("cartpole-agent", "--radius", "0.1", "--metric", "awc", "--budget", "0"),
            "budget must be a whole number ≥ 1",
        ),
        (("pendulum-agent", "--radius", "0.1", "--metric", "acr"), "need an agent with discrete actions"),
        (("nowhere", "--radius", "0.1", "--metric", "acr"), "no environment recorded; pass --env"),
        (("cartpole-agnt", "--radius", "0.1", "--metric", "acr"), "did you mean 'cartpole-agent'?"),
    ],
)
def test_bad_input_is_one_line(arguments: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert says in captured.err
    assert len(captured.err.strip().splitlines()) == 1


def test_a_refuted_proof_is_a_fault(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(*arguments: object, **settings: object) -> None:
        raise SoundnessError("step 7: ibp certified action 0 at radius 0.1")

    monkeypatch.setattr("radial.evaluation.certificates.acr", broken)
    assert run("cartpole-agent", "--radius", "0.1", "--metric", "acr") == 1
    assert capsys.readouterr().err.strip() == "radial: step 7: ibp certified action 0 at radius 0.1"


@pytest.mark.parametrize("command", ["certify", "evaluate"])
def test_grey_levels_are_refused_in_one_line(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def with_range(*arguments: object, **more: object) -> CategoricalAgent:
        agent: CategoricalAgent = load(*arguments, **more)  # type: ignore[arg-type, assignment]
        agent.valid_range = (-9.0, 9.0)  # type: ignore[assignment]
        return agent

    load = checkpoints.load_agent
    monkeypatch.setattr(checkpoints, "load_agent", with_range)
    more = ["--metric", "gwc", "--horizon", "2"] if command == "certify" else ["--attack", "random"]
    with pytest.raises(SystemExit) as end:
        cli.main([command, "cartpole-agent", "--env", "CartPole-v1", "--radius", "19", "--episodes", "1", *more])
    assert end.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("inputs lie in [-9, 9], got 19; use 19/255")
