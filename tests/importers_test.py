"""Every importer × every command: a file of each kind goes through evaluate, certify, audit, export and robustify.

Agents are tiny and untrained; that commands agree on the environment, its preset and the refusals is what is tested.
"""

import functools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import radial as rr
from radial import cli
from radial.agents.importers import IMPORTERS
from radial.agents.importers.papers_atari_test import Dueling, Joint
from radial.core.data import BadInput
from radial.envs.atari_frames import DEFAULT_PRESET, PRESETS

CARTPOLE = "CartPole-v1"


def sb3(algorithm: str, env: str, policy: str = "MlpPolicy", **settings: Any) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        library = pytest.importorskip("stable_baselines3")
        made = getattr(library, algorithm)(policy, env, device="cpu", seed=0, **settings)
        made.save(folder / f"{env}.zip")
        return folder / f"{env}.zip"

    return write


def sb3_atari(folder: Path) -> Path:
    """A DQN of Stable-Baselines3 that takes four frames, as its public zoo has them."""
    library = pytest.importorskip("stable_baselines3")
    gymnasium = pytest.importorskip("gymnasium")
    from radial.agents.importers.sb3_test import Blank

    space = gymnasium.spaces.Box(0, 255, (4, 84, 84), "uint8")
    kwargs = {"features_extractor_kwargs": {"features_dim": 8}, "net_arch": [8]}
    env = Blank(space, gymnasium.spaces.Discrete(6))
    library.DQN("CnnPolicy", env, buffer_size=5, device="cpu", policy_kwargs=kwargs).save(
        folder / "PongNoFrameskip-v4.zip"
    )
    return folder / "PongNoFrameskip-v4.zip"


def cleanrl(folder: Path) -> Path:
    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))

    torch.save(Network().state_dict(), folder / f"{CARTPOLE}.cleanrl_model")
    return folder / f"{CARTPOLE}.cleanrl_model"


def onnx(folder: Path) -> Path:
    from radial.agents.q_agent import QAgent
    from radial.workflows.export import export_network

    pytest.importorskip("onnxscript")
    return export_network(QAgent((4,), 2, (8,)), folder / CARTPOLE)


def atari(network: nn.Module, name: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        torch.save(network.state_dict(), folder / name)
        return folder / name

    return write


# By file: how it is written, and whether its actions are discrete.
FILES: dict[str, tuple[Callable[[Path], Path], bool]] = {
    "ppo.zip": (sb3("PPO", CARTPOLE, n_steps=8, batch_size=8, policy_kwargs={"net_arch": [8]}), True),
    "dqn.zip": (sb3("DQN", CARTPOLE, buffer_size=5, policy_kwargs={"net_arch": [8, 8]}), True),
    "sac.zip": (sb3("SAC", "Pendulum-v1", buffer_size=5, policy_kwargs={"net_arch": [8]}), False),
    "atari.zip": (sb3_atari, True),
    "a.cleanrl_model": (cleanrl, True),
    "a.onnx": (onnx, True),
    "dqn.pt": (atari(Dueling(4, 2, 2, 2, units=4), "Pong_dqn.pt"), True),
    "a3c.pt": (atari(Joint(6), "Pong_a3c.pt"), True),
    "dqn.pth": (atari(Dueling(4, 2, 2, 2, units=4), "Pong_sadqn.pth"), True),
}
GAMES = {"atari.zip": "stack4", "dqn.pt": "radial-dqn", "a3c.pt": "radial-a3c", "dqn.pth": "radial-dqn"}
COMMANDS: dict[str, list[str]] = {
    "evaluate": ["--episodes", "1"],
    "attacked": ["--episodes", "1", "--attack", "fgsm", "--radius", "0.001"],
    "certify": ["--episodes", "1", "--metric", "acr", "--radius", "0.001", "--horizon", "3"],
    "audit": ["--episodes", "1", "--radius", "0.001", "--attacks", "none", "--bound", "ibp", "--budget", "5"],
    "export": ["--to", "onnx"],
}


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    cli.main([*arguments, "--json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.fixture(autouse=True)
def short_games(monkeypatch: pytest.MonkeyPatch) -> None:
    """A game of Atari is long, even one that is lost."""
    for name, preset in PRESETS.items():
        monkeypatch.setitem(PRESETS, name, replace(preset, limit=5))


def cases() -> list[Any]:
    """All pairs; files that differ little from another one, and the slow exporter, are left to the nightly tests."""
    found = []
    for file in FILES:
        for command in COMMANDS:
            later = (command == "export" and file not in ("dqn.zip", "atari.zip")) or (
                file in ("dqn.pt", "dqn.pth", "ppo.zip") and command in ("audit", "attacked")
            )
            found.append(pytest.param(file, command, marks=[pytest.mark.nightly] if later else []))
    return found


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The path of a file, which is written once."""
    return functools.cache(lambda file: FILES[file][0](tmp_path_factory.mktemp("files")))


@pytest.mark.parametrize(("file", "command"), cases())
def test_every_importer_with_every_command(
    file: str, command: str, written: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, discrete = written(file), FILES[file][1]
    settings = list(COMMANDS[command])
    if file == "a.onnx" and command != "export":
        settings += ["--env", CARTPOLE, *(["--kind", "q"] if command == "evaluate" else [])]
    if command in ("export", "audit"):
        settings += ["--out", str(tmp_path / "out")]
    if command == "attacked" and not discrete:
        settings[settings.index("fgsm")] = "mad"
    name = "evaluate" if command == "attacked" else command
    if command == "certify" and not discrete:
        with pytest.raises(SystemExit) as end:
            cli.main([name, str(path), *settings])
        assert end.value.code == 2
        assert "discrete" in capsys.readouterr().err
        return
    facts = run(capsys, name, str(path), *settings)
    if command == "export":
        assert Path(facts["network"]).is_file()
        return
    place = json.dumps([facts["env"], facts.get("env_options"), facts.get("engine")])
    assert ("Pong" if file in GAMES else "Pendulum" if file == "sac.zip" else "CartPole") in place


@pytest.mark.parametrize("file", FILES)
def test_robustify_trains_in_the_env_of_the_others(
    file: str, written: Callable[[str], Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stops where the training would begin."""
    begun: list[Any] = []

    def stop(agent: Any, *args: Any, **settings: Any) -> None:
        begun.append(agent.card.env)
        raise BadInput("enough")

    monkeypatch.setattr("radial.workflows.robustify.robustify", stop)
    path = written(file)
    with pytest.raises(SystemExit) as end:
        cli.main(["robustify", str(path), "--radius", "0.01", *(["--env", CARTPOLE] if file == "a.onnx" else [])])
    assert end.value.code == 2
    said = capsys.readouterr().err
    if file == "atari.zip":  # no agent of ours has its network
        assert "can be audited, but neither trained nor saved" in said
        return
    assert "enough" in said
    assert begun[0].id == ("Pong" if file in GAMES else "Pendulum-v1" if file == "sac.zip" else CARTPOLE)
    assert begun[0].options.get("preset", DEFAULT_PRESET) == GAMES.get(file, DEFAULT_PRESET)


def test_every_importer_is_here() -> None:
    """Of `.model` no env has the features of a file small enough for a test; its own tests have larger ones."""
    assert {"." + name.rpartition(".")[2] for name in FILES} == IMPORTERS.keys() - {".model"}


def test_in_python_the_preset_is_chosen_too(written: Callable[[str], Path]) -> None:
    agent = rr.load(written("atari.zip"))
    assert rr.evaluate(agent, "PongNoFrameskip-v4", episodes=1).lengths == (5,)
    assert 0 <= rr.acr(agent, "PongNoFrameskip-v4", 0.001, episodes=1, horizon=2).mean <= 1
