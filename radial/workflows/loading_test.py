"""`load` knows paths, names in the zoo, and environments by their ids."""

from pathlib import Path

import pytest

from radial.agents.policies import CategoricalAgent
from radial.agents.saved import save
from radial.core.agent import Card
from radial.core.data import BadInput, EnvSpec
from radial.workflows.audit.subject import audited
from radial.workflows.loading import load
from radial.workflows.protocol import EvaluatedAgent


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RADIAL_ZOO", str(tmp_path / "zoo"))
    return save(CategoricalAgent((4,), 2, (8,)), tmp_path / "zoo" / "pole")


def test_an_agent_by_its_path_or_its_name(saved: Path) -> None:
    for where in (saved, str(saved), "pole"):
        assert load(where).card.env is None


def test_an_env_by_its_id_is_a_spec_and_can_be_saved(saved: Path, tmp_path: Path) -> None:
    agent = load("pole", "CartPole-v1")
    assert agent.card.env == EnvSpec("classic", "CartPole-v1")
    assert load(save(agent, tmp_path / "again")).card.env == agent.card.env  # type: ignore[arg-type]
    assert load("pole", EnvSpec("classic", "Acrobot-v1")).card.env == EnvSpec("classic", "Acrobot-v1")


@pytest.mark.parametrize(
    ("agent", "env", "says"),
    [
        ("pole", "CartPol-v1", "CartPole-v1"),
        ("pole", 3, "env must be"),
        (3, None, "agent must be"),
        ("pol", None, "pole"),
    ],
)
def test_what_is_unknown_is_named(saved: Path, agent: object, env: object, says: str) -> None:
    with pytest.raises(BadInput, match=says) as caught:
        load(agent, env)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("option", [{"xml_file": "/tmp/any.xml"}, {"render_mode": "human"}])
def test_a_card_cannot_choose_what_an_env_loads_or_shows(tmp_path: Path, option: dict[str, str]) -> None:
    agent = CategoricalAgent((4,), 2, (8,))
    agent.card = Card(EnvSpec("gymnasium", "Hopper-v5", option))
    folder = save(agent, tmp_path / "agent")
    with pytest.raises(BadInput, match=f"{next(iter(option))}.*pass env"):
        load(folder)
    with pytest.raises(BadInput, match=next(iter(option))):
        audited(folder, None)
    with pytest.raises(BadInput, match=next(iter(option))):
        EvaluatedAgent("agent", folder)
    assert load(folder, agent.card.env).card.env == agent.card.env  # a person may
    assert load(folder, "CartPole-v1").card.env == EnvSpec("classic", "CartPole-v1")
