"""`radial doctor`: a table or one JSON object, and one line for bad input."""

import json
from pathlib import Path

import pytest

from radial.agents.policies import CategoricalAgent
from radial.agents.saved import save
from radial.cli import main
from radial.core.agent import Card
from radial.core.data import EnvSpec


@pytest.fixture
def folder(tmp_path: Path) -> str:
    agent = CategoricalAgent((4,), 2, (8,))
    agent.card = Card(EnvSpec("classic", "CartPole-v1"))
    return str(save(agent, tmp_path / "agent"))


def test_it_prints_the_ratio_of_every_layer(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor", folder, "--radius", "0.05", "--states", "16", "--json"])
    facts = json.loads(capsys.readouterr().out)
    assert [layer["kind"] for layer in facts["layers"]] == ["input", "Dense", "Tanh", "Dense"]
    assert facts["ratio"] == facts["layers"][-1]["ratio"] > 0
    assert facts["layers"][0]["width"] == pytest.approx(0.1)
    main(["doctor", folder, "--radius", "0.05", "--states", "16"])
    said = capsys.readouterr()
    assert "ratio" in said.out
    assert "ratio at the scores" in said.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "doctor needs a --radius"),
        (["--radius", "0"], "radius must be > 0"),
        (["--radius", "0.1", "--states", "1"], "states must be a whole number ≥ 2"),
        (["--radius", "0.1", "--env", "nowhere"], "nowhere"),
    ],
)
def test_bad_input_is_one_line(
    folder: str, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["doctor", folder, *arguments])
    assert ended.value.code == 2
    assert says in capsys.readouterr().err
