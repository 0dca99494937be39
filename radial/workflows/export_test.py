"""Exports: other tools must see the same network and the same question."""

import csv
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from radial import cli
from radial.agents.actor_critic import ActorCritic
from radial.agents.foreign import WrappedCategorical, WrappedQ
from radial.agents.policies import CategoricalAgent
from radial.agents.q_agent import QAgent
from radial.bounds.certify import certify_action
from radial.core.agent import Agent
from radial.core.data import BadInput, Verdict
from radial.workflows.export import Property, decimal, export_network, export_properties, to_onnx
from radial.workflows.loading import load

CARTPOLE = "CartPole-v1"


@pytest.fixture
def runtime() -> Any:
    pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    return pytest.importorskip("onnxruntime")


def agents() -> dict[str, Agent]:
    made = {
        "q": QAgent((4,), 3, (16, 16)),
        "dueling on frames": QAgent((1, 84, 84), 3, None),
        "actor-critic": ActorCritic((4,), 2, (8,)),
    }
    for agent in made.values():
        agent.initialize(torch.Generator().manual_seed(0))
        agent.eval()
    return {**made, "tanh policy": CategoricalAgent((4,), 2, (8,)).eval()}


@pytest.mark.parametrize("name", agents())
def test_onnxruntime_computes_the_same_outputs(name: str, runtime: Any, tmp_path: Path) -> None:
    agent = agents()[name]
    path = export_network(agent, tmp_path / "new")
    session = runtime.InferenceSession(path)
    assert agent.observation_shape is not None
    for x in torch.rand(5, 1, *agent.observation_shape, generator=torch.Generator().manual_seed(1)):
        (y,) = session.run(None, {"X": x.numpy()})
        with torch.no_grad():
            assert torch.allclose(torch.from_numpy(y), agent.choice(x), rtol=1e-5, atol=1e-5)
    assert [each.name for each in path.parent.iterdir()] == [path.name]  # the weights are inside


def read(path: Path) -> tuple[Tensor, Tensor, list[tuple[int, int]]]:
    """A small reader of VNN-LIB: lower, upper, and the pairs (other, action) of Y_other ≥ Y_action."""
    text = re.sub(r";.*", "", path.read_text())
    assert text.count("(") == text.count(")")
    number = r"(-?\d+(?:\.\d+)?)"
    ends = []
    for sign in (">=", "<="):
        found = re.findall(rf"\(assert \({sign} X_(\d+) {number}\)\)", text)
        assert [int(index) for index, _ in found] == list(range(len(found)))
        ends.append(torch.tensor([float(value) for _, value in found], dtype=torch.float64))
    pairs = [(int(a), int(b)) for a, b in re.findall(r"\(and \(>= Y_(\d+) Y_(\d+)\)\)", text)]
    assert text.count("declare-const X_") == len(ends[0])
    return ends[0], ends[1], pairs


def test_the_properties_are_the_questions_we_answer(runtime: Any, tmp_path: Path) -> None:
    """Every box, read back: it is the ball; no point of a certified one satisfies the property in another runtime."""
    agent = load("cartpole-radial-dqn")
    facts = export_properties(agent, CARTPOLE, 0.05, tmp_path, states=12, seed=3)
    assert json.loads((tmp_path / "index.json").read_text()) == json.loads(json.dumps(facts))
    assert facts["bound"] == "best"
    assert 0 < facts["certified"] < facts["states"] == 12  # both verdicts are there
    rows = list(csv.reader((tmp_path / "instances.csv").open()))
    assert [row[1] for row in rows] == [each["file"] for each in facts["properties"]]
    session, rng = runtime.InferenceSession(tmp_path / facts["network"]), torch.Generator().manual_seed(0)
    refuted = 0
    for each in facts["properties"]:
        low, high, pairs = read(tmp_path / each["file"])
        assert (high - low).sub(0.1).abs().max() < 1e-6
        assert pairs == [(1 - each["action"], each["action"])]
        points = low + (high - low) * torch.rand(200, 4, generator=rng, dtype=torch.float64)
        points[:16] = torch.where(torch.cartesian_prod(*[torch.tensor([False, True])] * 4), high, low)
        y = torch.cat([torch.from_numpy(session.run(None, {"X": x[None].float().numpy()})[0]) for x in points])
        satisfied = bool((y[:, pairs[0][0]] >= y[:, pairs[0][1]]).any())
        assert not (satisfied and each["verdict"] == "certified"), each
        refuted += satisfied
    assert refuted  # some of the unknown ones are false, so the test could have failed


def test_the_box_is_cut_to_the_valid_range(runtime: Any, tmp_path: Path) -> None:
    class Cut(QAgent):
        def prepare(self, obs: Tensor) -> Tensor:
            return super().prepare(obs).clamp(0.0, 0.01)

    agent = Cut((4,), 2, (8,))
    agent.initialize(torch.Generator().manual_seed(0))
    agent.valid_range = (0.0, 0.01)
    facts = export_properties(agent.eval(), CARTPOLE, 0.005, tmp_path, states=3)
    for each in facts["properties"]:
        low, high, _ = read(tmp_path / each["file"])
        assert bool((low >= 0).all() & (high <= 0.01 + 1e-9).all())
    assert facts["valid_range"] == (0.0, 0.01)


def test_an_agent_that_acts_otherwise_is_not_certified(runtime: Any, tmp_path: Path) -> None:
    class Contrary(QAgent):
        def act(self, x: Tensor, rng: torch.Generator | None = None) -> Tensor:
            return 1 - super().act(x, rng)

    agent = Contrary((4,), 2, (8,))
    agent.initialize(torch.Generator().manual_seed(0))
    facts = export_properties(agent.eval(), CARTPOLE, 0.0, tmp_path, states=5)
    assert facts["certified"] == 0


def test_the_text_of_a_property() -> None:
    box = (torch.tensor([0.25, 1e-7]), torch.tensor([0.5, 3e20]))
    text = Property(7, box, 1, 3, Verdict.CERTIFIED).text("about")
    assert "e" not in "".join(re.findall(r"X_\d+ (-?[\d.e+-]+)\)", text))
    assert "(and (>= Y_0 Y_1))" in text
    assert "(and (>= Y_2 Y_1))" in text
    assert "Y_1 Y_1" not in text


@pytest.mark.parametrize("value", [0.0, -0.1, 1e-7, 1.4e-45, 3.4e38, -123456789.0, 1 / 3])
def test_decimals_are_read_back_as_they_were(value: float) -> None:
    exact = torch.tensor(value).double().item()
    assert float(decimal(exact)) == exact
    assert "e" not in decimal(exact)


def test_without_the_package_one_line_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("radial.workflows.export.find_spec", lambda name: None)
    with pytest.raises(BadInput, match=r"onnx.*radial-rl\[onnx\]") as caught:
        to_onnx(nn.Linear(2, 2), (2,), tmp_path / "a.onnx")
    assert "\n" not in str(caught.value)


def test_the_command(runtime: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ["export", "cartpole-radial-dqn", "--out", str(tmp_path / "e")]
    cli.main([*common, "--to", "onnx", "--json"])
    assert Path(json.loads(capsys.readouterr().out)["network"]).exists()
    cli.main([*common, "--to", "vnnlib", "--radius", "0.05", "--states", "2", "--env", CARTPOLE])
    assert "certified" in capsys.readouterr().out
    assert len(list((tmp_path / "e").glob("*.vnnlib"))) == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--to", "tflite", "--out", "x"], "to must be one of onnx, vnnlib"),
        (["--to", "vnnlib", "--out", "x"], "--radius"),
        (["--to", "onnx"], "--out"),
        (["--to", "vnnlib", "--radius", "0.1", "--out", "x", "--states", "0"], "states must be"),
        (["--to", "vnnlib", "--radius", "-1", "--out", "x"], "radius"),
        (["--to", "vnnlib", "--radius", "0.1", "--out", "x", "--bound", "magic"], "bound must be one of"),
    ],
)
def test_bad_questions_end_with_one_line(
    arguments: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    agent = str(Path(sys.modules["radial"].__file__ or "").parent.parent / "zoo" / "cartpole-radial-dqn")
    with pytest.raises(SystemExit) as ended:
        cli.main(["export", agent, *arguments])
    assert ended.value.code == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_continuous_actions_have_a_network_and_no_property(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="discrete actions"):
        export_properties(load("hopper-ppo"), "Hopper-v4", 0.1, tmp_path)


def test_a_file_of_ours_is_read_back_as_the_same_agent(runtime: Any, tmp_path: Path) -> None:
    """Export and load: the same kind, the same outputs of raw observations, the same certificates."""
    agent = CategoricalAgent((4,), 3, (8,))
    agent.initialize(torch.Generator().manual_seed(0))
    torch.nn.init.normal_(agent.network[-1].weight, generator=torch.Generator().manual_seed(1))
    agent.normalizer.update(torch.randn(50, 4, generator=torch.Generator().manual_seed(2)) * 3 + 1)
    agent.normalizer.freeze()
    frames = QAgent((1, 84, 84), 3, (2, 2, 2, 4))
    for each, kind in ((agent, WrappedCategorical), (frames, WrappedQ)):
        again = load(export_network(each, tmp_path / kind.__name__))
        assert type(again) is kind
        obs = 40 * torch.rand(5, *each.observation_shape, generator=torch.Generator().manual_seed(3))
        x = each.prepare(obs)
        torch.testing.assert_close(again.prepare(obs), x)
        torch.testing.assert_close(again.choice(x), each.choice(x), atol=1e-5, rtol=1e-5)
        for radius in (0.0, 0.01, 0.1):
            ours, theirs = (certify_action(one.choice, one.ball(x, radius)) for one in (each, again))
            assert ours == theirs
        assert again.valid_range == each.valid_range
