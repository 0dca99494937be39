"""`radial play` and --video: a file, a return, strict JSON, and one line for what cannot be."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import radial as rr
from radial import cli
from radial.envs.film import Film, Take
from radial.envs.offscreen import NotRendered


@pytest.fixture
def agent(tmp_path: Path) -> str:
    """A policy that falls at once, in episodes of at most 12 steps."""
    network = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    made = rr.wrap(network, kind="categorical", observation_shape=(4,))
    made.card = replace(made.card, env=rr.EnvSpec("classic", "CartPole-v1", {"max_episode_steps": 12}))
    rr.save(made, tmp_path / "agent")
    return str(tmp_path / "agent")


def blind(take: Take, **_: Any) -> Film:
    raise NotRendered(f"{take.spec.id} cannot be rendered: no screen")


def test_clean_beside_attacked(agent: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("imageio")
    pytest.importorskip("pygame")
    video = tmp_path / "a.gif"
    cli.main(["play", agent, "--attack", "pgd", "--radius", "0.1", "--seed", "3", "--video", str(video), "--json"])
    facts = json.loads(capsys.readouterr().out)
    assert video.stat().st_size > 1000
    assert facts["video"] == str(video)
    assert facts["clean"]["return"] == facts["clean"]["steps"] > 0
    assert set(facts["attacked"]) == {"return", "steps"}
    cli.main(["evaluate", agent, "--episodes", "1", "--seed", "3", "--video", str(tmp_path / "b.gif"), "--json"])
    assert json.loads(capsys.readouterr().out)["returns"] == [facts["clean"]["return"]]
    assert (tmp_path / "b.gif").is_file()


def test_an_audits_recorded_episode(agent: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The video is made of the trace alone, whose actions are exact; the page has pictures of the same episode."""
    pytest.importorskip("imageio")
    pytest.importorskip("pygame")
    few = ["--radius", "0.1", "--attacks", "random", "--episodes", "1", "--budget", "0.2", "--out", str(tmp_path / "o")]
    cli.main(["audit", agent, *few, "--video", str(tmp_path / "a.gif"), "--json"])
    assert "trace" not in json.loads(capsys.readouterr().out)
    trace = json.loads((tmp_path / "o" / "audit.json").read_text())["trace"]
    assert trace["pictures"]["note"] is None
    assert trace["pictures"]["clean"]["at"][-1] == len(trace["nominal"]["reward"])
    assert (tmp_path / "a.gif").stat().st_size > 1000
    cli.main(["report", str(tmp_path / "o"), "--out", str(tmp_path / "r")])  # read back, pictures checked
    assert re.search("data:image/(png|webp)", (tmp_path / "r" / "audit.html").read_text())  # the smaller one


def test_without_a_renderer(agent: str, tmp_path: Path, monkeypatch: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Asked for a video it fails; otherwise it says so and prints the return."""
    pytest.importorskip("imageio_ffmpeg")
    monkeypatch.setattr("radial.commands.screening.film", blind)
    monkeypatch.chdir(tmp_path)
    cli.main(["play", agent, "--json"])
    said = capsys.readouterr()
    assert json.loads(said.out)["video"] is None
    assert "note: no video: CartPole-v1 cannot be rendered: no screen" in said.err
    with pytest.raises(SystemExit) as end:
        cli.main(["play", agent, "--video", "a.gif"])
    assert end.value.code == 1
    assert capsys.readouterr().err == "radial: CartPole-v1 cannot be rendered: no screen\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["play", "AGENT", "--video", "a.avi"], "--video must end in .mp4 or .gif, got a.avi"),
        (["play", "AGENT", "--attack", "pgd"], "--attack pgd needs a --radius"),
        (["play", "AGENT", "--attack", "pdg", "--radius", "0.1"], "did you mean 'pgd'?"),
        (["evaluate", "AGENT", "--video", "a.webm"], "--video must end in .mp4 or .gif, got a.webm"),
        (["evaluate", "AGENT", "--video", "a.gif", "--stochastic"], "not --stochastic"),
        (["audit", "AGENT", "--video", "a"], "--video must end in .mp4 or .gif, got a"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], says: str, agent: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main([agent if each == "AGENT" else each for each in arguments])
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1
