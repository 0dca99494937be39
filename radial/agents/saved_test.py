"""Saved agents: what goes in comes out, whole or not at all. What hostile files can do is in `hostile_test.py`."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from radial.agents.convert import AGENTS, AnyAgent
from radial.agents.policies import RawAgent
from radial.agents.saved import CARD, WEIGHTS, load_agent, save
from radial.core.agent import Card
from radial.core.data import BadInput, EnvSpec

ENV = EnvSpec("gymnasium", "Hopper-v4", {"seed_offset": 3, "render": False})
CARDS = Card(ENV, {"lr": 3e-4, "hidden": [4]}, seed=7, steps=2048, commit="abc123", results={"mean": 12.5})


def shape(kind: str) -> tuple[int, ...]:
    return (3, 64, 64) if kind in ("impala", "shallow") else (3,)


def sizes(kind: str) -> tuple[int, ...]:
    return (4, 5, 6) if kind == "shallow" else (4, 5)


def make(kind: str = "gaussian", seed: int = 0) -> AnyAgent:
    agent = AGENTS[kind](shape(kind), 2, sizes(kind))
    rng = torch.Generator().manual_seed(seed)
    agent.initialize(rng)
    if not isinstance(agent, RawAgent):
        agent.normalizer.update(torch.randn(10, 3, generator=rng) * 7)
    agent.card = CARDS
    return agent


def same(a: torch.nn.Module, b: torch.nn.Module) -> bool:
    ours, theirs = a.state_dict(), b.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[key], theirs[key]) for key in ours)


@pytest.mark.parametrize("kind", AGENTS)
def test_what_goes_in_comes_out(kind: str, tmp_path: Path) -> None:
    agent = make(kind)
    again = load_agent(save(agent, tmp_path / "agent"))
    assert type(again) is type(agent)
    assert same(agent, again)
    assert again.card == agent.card
    assert (again.observation_shape, again.actions, again.hidden) == (shape(kind), agent.actions, sizes(kind))
    obs = torch.randn(6, *shape(kind), generator=torch.Generator().manual_seed(1))
    assert torch.equal(again.scores(again.prepare(obs)), agent.scores(agent.prepare(obs)))
    assert all(parameter.requires_grad for parameter in again.parameters())


def test_the_normalizer_of_a_loaded_agent_is_frozen_and_keeps_its_clip(tmp_path: Path) -> None:
    agent = make()
    agent.normalizer.clip = 5.0
    again = load_agent(save(agent, tmp_path / "agent"))
    assert again.normalizer.frozen
    assert again.normalizer.clip == 5
    assert not agent.normalizer.frozen  # saving changes nothing


def test_the_folder_is_readable_without_us(tmp_path: Path) -> None:
    folder = save(make(), tmp_path / "agent", results={"mean": 3.5})
    assert sorted(path.name for path in folder.iterdir()) == [CARD, WEIGHTS]
    card = json.loads((folder / CARD).read_text())
    assert card["kind"] == "gaussian"
    assert card["actions"] == {"continuous": 2}
    assert card["env"] == {"suite": "gymnasium", "id": "Hopper-v4", "options": {"seed_offset": 3, "render": False}}
    assert card["results"] == {"mean": 3.5}


def test_the_env_may_be_named_by_the_caller(tmp_path: Path) -> None:
    other = EnvSpec("envpool", "Hopper-v4")
    assert load_agent(save(make(), tmp_path / "agent"), env=other).card.env == other


def test_loading_draws_no_random_numbers(tmp_path: Path) -> None:
    folder, before = save(make(), tmp_path / "agent"), torch.get_rng_state()
    load_agent(folder)
    assert torch.equal(before, torch.get_rng_state())


def test_half_precision_weights_become_float32(tmp_path: Path) -> None:
    agent = make()
    again = load_agent(save(agent, tmp_path / "agent", dtype=torch.float16))
    assert {parameter.dtype for parameter in again.parameters()} == {torch.float32}
    assert again.normalizer.moments.mean.dtype == torch.float64
    assert torch.equal(again.normalizer.moments.squares, agent.normalizer.moments.squares)
    for name, parameter in again.named_parameters():
        assert torch.equal(parameter, agent.get_parameter(name).half().float())


def test_weights_too_large_for_half_precision_are_not_saved(tmp_path: Path) -> None:
    agent = make()
    agent.critic[0].bias.data[0] = 1e6
    with pytest.raises(BadInput, match=r"critic\.0\.bias holds NaN or infinity as torch\.float16"):
        save(agent, tmp_path / "agent", dtype=torch.float16)
    assert list(tmp_path.iterdir()) == []


def test_broken_agents_and_cards_are_not_saved(tmp_path: Path) -> None:
    broken = make()
    broken.network[0].weight.data[0, 0] = float("nan")
    with pytest.raises(BadInput, match=r"network\.0\.weight holds NaN"):
        save(broken, tmp_path / "agent")
    with pytest.raises(BadInput, match="card must be JSON"):
        save(make(), tmp_path / "agent", results={"mean": float("nan")})
    with pytest.raises(BadInput, match="card must be JSON"):
        save(make(), tmp_path / "agent", results={"mean": torch.ones(1)})
    unread = make()
    unread.card = replace(unread.card, recipe=None)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="recipe must be an object"):
        save(unread, tmp_path / "agent")
    with pytest.raises(BadInput, match="agent must be one of GaussianAgent, CategoricalAgent"):
        save(torch.nn.Linear(1, 1), tmp_path / "agent")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_an_agent_is_replaced_but_nothing_else_is(tmp_path: Path) -> None:
    save(make(seed=0), tmp_path / "agent")
    save(make(seed=1), tmp_path / "agent")
    assert same(load_agent(tmp_path / "agent"), make(seed=1))
    assert [path.name for path in tmp_path.iterdir()] == ["agent"]
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.tex").write_text("precious")
    with pytest.raises(BadInput, match="exists and is not a saved agent"):
        save(make(), tmp_path / "thesis")
    with pytest.raises(BadInput, match="exists and is not a saved agent"):
        save(make(), tmp_path / "thesis" / "chapter1.tex")
    assert (tmp_path / "thesis" / "chapter1.tex").read_text() == "precious"


@pytest.mark.parametrize("moment", ["fsync", "rename"])
def test_an_interrupted_save_leaves_the_old_agent(moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full, or the process is killed: at each step, what is found is the old agent or the new one."""
    save(make(seed=0), tmp_path / "agent")
    owner = os if moment == "fsync" else Path
    real = getattr(owner, moment)
    for survive in range(6):
        left = [survive]

        def fails(*args: object, left: list[int] = left) -> object:
            left[0] -= 1
            if left[0] < 0:
                raise OSError(28, "No space left on device")
            return real(*args)

        monkeypatch.setattr(owner, moment, fails)
        try:
            save(make(seed=1), tmp_path / "agent")
        except OSError:
            monkeypatch.undo()
            found = load_agent(tmp_path / "agent")
            assert same(found, make(seed=0)) or same(found, make(seed=1))
            assert not list(tmp_path.glob(".*.tmp-*"))
        else:
            monkeypatch.undo()
            assert same(load_agent(tmp_path / "agent"), make(seed=1))
            break
        save(make(seed=0), tmp_path / "agent")
    else:
        pytest.fail("a save that is allowed six such calls should have succeeded")


def test_runs(tmp_path: Path) -> None:
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    with pytest.raises(BadInput, match="has not finished: continue it with --resume"):
        load_agent(tmp_path / "run")
    save(make(), tmp_path / "run" / "agent")
    assert same(load_agent(tmp_path / "run"), make())
    assert same(load_agent(tmp_path / "run" / "agent" / CARD), make())


def test_what_is_no_agent(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="there is no agent at"):
        load_agent(tmp_path / "nothing")
    with pytest.raises(BadInput, match=r"expected card\.json and weights\.safetensors in it"):
        load_agent(tmp_path)
    os.mkfifo(tmp_path / "pipe.model")
    with pytest.raises(BadInput, match="is not an agent"):
        load_agent(tmp_path / "pipe.model")


def test_damage_is_named(tmp_path: Path) -> None:
    folder = save(make(), tmp_path / "agent")
    data = bytearray((folder / WEIGHTS).read_bytes())
    data[-1] ^= 1
    (folder / WEIGHTS).write_bytes(data)
    with pytest.raises(BadInput, match="is damaged: its SHA-256 is not the one in the card"):
        load_agent(folder)


def test_an_unknown_kind_is_answered_with_the_nearest(tmp_path: Path) -> None:
    folder = save(make(), tmp_path / "agent")
    (folder / CARD).write_text((folder / CARD).read_text().replace('"gaussian"', '"gausian"'))
    with pytest.raises(
        BadInput,
        match=r"one of gaussian, categorical, deterministic, q, .*impala, shallow; did you mean gaussian",
    ):
        load_agent(folder)


def test_large_files_are_refused_before_they_are_read(tmp_path: Path) -> None:
    folder = save(make(), tmp_path / "agent")
    with (folder / WEIGHTS).open("ab") as file:
        file.truncate(3 << 30)  # a hole, not 3 GB
    with pytest.raises(BadInput, match="has 3221225472 bytes, at most 2147483648 are read"):
        load_agent(folder)
