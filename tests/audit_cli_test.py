"""`radial audit`, `radial report` and `radial evaluate --trace`, as continuous integration calls them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from radial import cli
from radial.agents.policies import CategoricalAgent
from radial.agents.saved import save
from radial.core.data import EnvSpec

SHORT = EnvSpec("classic", "CartPole-v1", {"max_episode_steps": 6})
SMALL = ["--episodes", "1", "--attacks", "random", "--radius", "0.01", "1/10"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with one agent in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RADIAL_ZOO", str(tmp_path / "zoo"))
    agent = CategoricalAgent((4,), 2, (8,))
    agent.initialize(torch.Generator().manual_seed(0))
    agent.card = replace(agent.card, env=SHORT)
    save(agent, tmp_path / "agent")
    return tmp_path


def run(*arguments: str) -> int:
    try:
        cli.main(arguments)
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def test_an_audit(capsys: pytest.CaptureFixture[str], elsewhere: Path) -> None:
    kept = ["--require", "nominal>=6", "--require", "return@0.01>=1"]
    assert run("audit", "agent", *SMALL, *kept, "--out", "here", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert [level["radius"] for level in facts["levels"]] == [0.01, 0.1]
    assert facts["nominal"]["mean"] == 6
    assert facts["levels"][0]["bracket"]["kind"] == "certified"
    assert facts["page"] == str(Path("here/audit.html"))
    assert "<h1>Audit of agent</h1>" in (elsewhere / "here/audit.html").read_text()
    assert run("report", "here", "here", "--out", "both", "--json") == 0
    assert len(json.loads(capsys.readouterr().out)["agents"]) == 2
    damaged(elsewhere / "here/audit.json", capsys)


def test_agents_of_one_name_have_folders_of_their_own(capsys: pytest.CaptureFixture[str], elsewhere: Path) -> None:
    other = CategoricalAgent((4,), 2, (8,))
    other.initialize(torch.Generator().manual_seed(1))
    other.card = replace(other.card, env=SHORT)
    save(other, elsewhere / "more" / "agent")
    pages = set()
    for name in ("agent", "more/agent"):
        assert run("audit", name, *SMALL, "--attacks", "none", "--threads", "1", "--json") == 0
        pages.add(json.loads(capsys.readouterr().out)["page"])
    assert len(pages) == 2
    assert all(page.startswith("out/audit-agent-") for page in pages)


def test_ctrl_c_and_a_full_disk_still_show_the_table(
    capsys: pytest.CaptureFixture[str], elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("radial.workflows.audit.work.evaluate", stop)
        assert run("audit", "agent", *SMALL, "--out", "stopped") == 130
        assert run("report", "agent", "--episodes", "1", "--radius", "0.1", "--out", "report") == 130
    said = capsys.readouterr()
    assert "certified actions" in said.out
    assert "no time at any ε for random" in said.err
    assert json.loads((elsewhere / "stopped/audit.json").read_text())["interrupted"]
    assert (elsewhere / "report/audit.html").is_file()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("radial.reports.page._write", full)
    assert run("audit", "agent", *SMALL, "--out", "full") == 1
    said = capsys.readouterr()
    assert "certified actions" in said.out
    assert "No space left on device" in said.err


def damaged(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A field that is gone, or of another type, is one line."""
    whole = json.loads(path.read_text())
    for field in ("agent", "verdict", "nominal", "levels", "engine", "warnings", "left_out", "certified_radius"):
        for change in ({name: value for name, value in whole.items() if name != field}, whole | {field: 3.5}):
            if change.get(field) == 3.5 and field == "agent":
                continue  # a name may be anything
            path.write_text(json.dumps(change))
            assert run("report", str(path.parent), "--out", "one") == 2, field
            (line,) = capsys.readouterr().err.splitlines()
            assert f"{path} is not an audit of this version: " in line


def test_radii_and_attacks_may_be_given_again(capsys: pytest.CaptureFixture[str]) -> None:
    more = ["--radius", "0.01", "0.02", "--radius", ".05", "--attacks", "random", "--attacks", "none"]
    assert run("audit", "agent", "--episodes", "1", *more, "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert [level["radius"] for level in facts["levels"]] == [0.01, 0.02, 0.05]
    assert [one["attack"] for one in facts["levels"][0]["attacks"]] == ["random"]


def test_broken_requirements_end_with_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    broken = ["--require", "nominal>6", "--require", "return@0.05>=400", "--require", "nominal>=1"]
    assert run("audit", "agent", "--episodes", "1", "--attacks", "random", "--radius", "0.01", *broken) == 1
    said = capsys.readouterr()
    assert "radial: broken: nominal>6: nominal is 6" in said.err
    assert "radial: broken: return@0.05>=400: return is 6" in said.err
    assert said.err.count("broken") == 2
    assert "certified" in said.out


def test_one_attack_step_by_step(capsys: pytest.CaptureFixture[str], elsewhere: Path) -> None:
    assert run("evaluate", "agent", "--attack", "pgd", "--radius", "0.1", "--episodes", "1", "--trace", "trace") == 0
    assert "Inspector: pgd at ε = 0.1" in (elsewhere / "trace/audit.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("audit", "nothing"), "no agent 'nothing'"),
        (("audit", "agent", "--radius", "x"), "radius"),
        (("audit", "agent", "--budget", "0"), "budget must be a number of minutes > 0"),
        (("audit", "agent", "--env", "CartPol-v1"), "unknown environment 'CartPol-v1'; did you mean 'CartPole-v1'?"),
        (("audit", "agent", "--env", "Acrobot-v1"), "agent must fit the env"),
        (("audit", "agent", "--require", "nonsense"), "a requirement must read like return@0.05>=400"),
        (("audit", "agent", "--attacks", "pdg"), "attack 'pdg' cannot be run"),
        (
            ("audit", "odd.text"),
            "odd.text is not an agent: expected a folder, or a file ending in .model, .pt, .pth, .zip,",
        ),
        (("audit", "/"), "/ is not an agent: expected card.json"),
        (("report",), "runs"),
        (("report", "not-a-number"), "not-a-number/audit.json is not readable JSON"),
        (("report", "--radius", "0.1", "agent"), "put them before --radius"),
        (("report", "damaged"), "damaged/audit.json is not an audit of this version"),
        (("report", "agent/../odd"), "odd/audit.json is not an audit of this version"),
        (("audit", "--radius", "0.05", "agent", "--episodes", "1"), "put the agent before --radius"),
        (("audit", "--attacks", "pgd", "agent", "--episodes", "1"), "put the agent before --attacks"),
        (("report", "broken"), "broken/audit.json is not readable JSON"),
        (("evaluate", "agent", "--trace", "x"), "--trace shows an attack"),
        (
            ("evaluate", "agent", "--attack", "pgd", "--radius", "0.1", "--trace", "x", "--first-finished"),
            "give --attack, and not --first-finished",
        ),
        (("audit", "agent", "--out", "odd.onnx"), "--out must be a folder that can be written to, got odd.onnx"),
        (("audit", "agent", "--out", "odd.onnx/new"), "--out must be a folder that can be written to"),
        (("audit", "agent", "--out", "/proc/new"), "--out must be a folder that can be written to"),
        (("audit", "agent", "--out", "taken"), "--out must be a folder for audit.html"),
        (("report", "agent", "--out", "odd.onnx"), "--out must be a folder that can be written to, got odd.onnx"),
        (
            ("evaluate", "agent", "--attack", "pgd", "--radius", "0.1", "--trace", "odd.onnx"),
            "--trace must be a folder that can be written to, got odd.onnx",
        ),
    ],
)
def test_bad_input_is_one_line_and_code_2(
    arguments: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str], elsewhere: Path
) -> None:
    (elsewhere / "odd.onnx").write_bytes(b"x")
    (elsewhere / "odd.text").write_bytes(b"x")
    (elsewhere / "broken").mkdir()
    (elsewhere / "broken/audit.json").write_text("{")
    (elsewhere / "not-a-number").mkdir()
    (elsewhere / "not-a-number/audit.json").write_text('{"format": 1, "wall_seconds": NaN}')
    for name, facts in (("damaged", {"format": 1, "levels": [{"radius": 0.1}]}), ("odd", {"format": 1, "levels": 3})):
        (elsewhere / name).mkdir()
        (elsewhere / name / "audit.json").write_text(json.dumps(facts))
    (elsewhere / "taken/audit.html").mkdir(parents=True)
    there = set(elsewhere.iterdir())
    assert run(*arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()  # so nothing was played before
    assert says in line
    assert set(elsewhere.iterdir()) == there
