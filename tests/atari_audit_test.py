"""An Atari agent from its saved folder to the page: pictures, a budget that is kept, and a page that stays small."""

import json
import time
from pathlib import Path

import pytest
import torch

import radial as rr
from radial import cli
from radial.core.agent import Card

pytest.importorskip("ale_py", reason="plays Pong")
STEPS = 12
PONG = rr.EnvSpec("atari", "Pong", {"max_episode_steps": STEPS})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An agent that has learned nothing, on disk with its card."""
    agent = rr.QAgent((1, 84, 84), 4)
    agent.initialize(torch.Generator().manual_seed(0))
    agent.card = Card(env=PONG)
    return rr.save(agent, tmp_path_factory.mktemp("pong") / "agent")


def test_from_a_folder_to_the_page(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, began = folder.parent / "audit", time.monotonic()
    command = ["audit", str(folder), "--radius", "1/255", "--episodes", "1", "--budget", "0.5", "--out", str(out)]
    cli.main([*command, "--attacks", "pgd", "random", "--json"])
    took = time.monotonic() - began
    assert took < 60  # half a minute, and what is begun is ended
    facts = json.loads((out / "audit.json").read_text())
    assert json.loads(capsys.readouterr().out)["page"] == str(out / "audit.html")
    assert (out / "audit.html").stat().st_size < 5_000_000
    level, trace = facts["levels"][0], facts["trace"]
    assert level["env_units"] == [1.0]  # of 255
    assert level["attacks"][0]["attack"] == "pgd"
    assert level["acr"]["states"] + len(facts["cuts"]) > 0
    assert trace["picture"]
    steps = len(trace["frames"])
    assert 1 <= steps <= STEPS
    for name in ("shown", "amplified", "verdicts", "lower", "upper", "action"):
        assert len(trace[name]) == steps
    assert trace["frames"][0].startswith("data:image/png;base64,")
    assert trace["frames"][0] == trace["nominal"]["frames"][0]
    assert "ε = 1/255" in facts["verdict"]
