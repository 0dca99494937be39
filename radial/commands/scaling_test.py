"""The options that say where jobs run: what is refused, and that results elsewhere are those of this process."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from radial import cluster
from radial.agents.policies import GaussianAgent
from radial.agents.weights import weights_id
from radial.attacks.learned.adversaries import PAAD
from radial.attacks.learned.halving_test import CARTPOLE, TINY, balancing
from radial.cli import main
from radial.cluster import Place
from radial.core.data import EnvSpec
from radial.jobs_test import through_pickle
from radial.workflows.audit.audit import audit

COMMANDS = {
    "train": ("train", "cartpole-ppo", "--seeds", "0-1"),
    "reproduce": ("reproduce", "cartpole-dqn"),
    "leaderboard": ("leaderboard", "--only", "cartpole"),
    "audit": ("audit", "cartpole-dqn"),
    "attack": ("attack", "fit", "cartpole-dqn", "--radius", "0.1", "--out", "fit"),
}


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as end:
        main(list(arguments))
    assert end.value.code == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    return line


@pytest.mark.parametrize("command", COMMANDS)
def test_bad_places_are_one_line(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("no folder")
    for options, field in (
        (("--on", "slurm"), "on must be one of local, ray"),
        (("--address", "auto"), "address is for --on ray"),
        (("--on", "ray", "--address", "no address"), "address must be"),
        (("--gpus-per-job", "1"), "gpus_per_job is for --on ray"),
        (("--cpus-per-job", "0"), "cpus per job"),
        (("--storage", "nonsense://x"), "storage"),
        (("--storage", "file"), "storage"),
        (("--jobs", "0"), "jobs must be"),
    ):
        assert field in refused(capsys, *COMMANDS[command], *options)
    monkeypatch.setattr(cluster, "find_spec", lambda name: None)
    assert "radial-rl[ray]" in refused(capsys, *COMMANDS[command], "--on", "ray")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_an_address_where_nobody_listens_is_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    monkeypatch.chdir(tmp_path)
    line = refused(capsys, *COMMANDS["train"], "--on", "ray", "--address", "127.0.0.1:1")
    assert "address 127.0.0.1:1 cannot be reached" in line


def test_an_adversary_is_the_same_wherever_its_candidates_train(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, agent = PAAD(**TINY, steps=2_048, restarts=2), balancing()
    here = settings.fit(agent, CARTPOLE, 0, out=tmp_path / "a")
    called, place = through_pickle(monkeypatch), Place(workers=2)
    storage = str(tmp_path / "shared")
    there = settings.fit(agent, CARTPOLE, 0, out=tmp_path / "b", storage=storage, each=place.each)
    assert called == ["train_trial"] * 3  # two candidates, one of which goes on
    assert here.record == there.record
    assert weights_id(here.policy) == weights_id(there.policy)
    trials = sorted(path.name for path in (tmp_path / "b" / "trials").iterdir())
    assert sorted(path.name for path in (tmp_path / "shared" / "b").iterdir()) == trials


def test_an_audit_is_the_same_wherever_its_attacks_are_run(monkeypatch: pytest.MonkeyPatch) -> None:
    env = EnvSpec("classic", "Pendulum-v1", {"max_episode_steps": 5})
    agent = GaussianAgent((3,), 1, hidden=(4,))
    agent.initialize(torch.Generator().manual_seed(0))
    agent.normalizer.freeze()
    wanted: Any = {"episodes": 2, "budget": None, "attacks": ["pgd", "random", "pgd-strong"]}
    here = audit(agent, env, [0.1, 0.5], **wanted).to_json(trace=True)
    called = through_pickle(monkeypatch)
    there = audit(agent, env, [0.1, 0.5], place=Place(workers=2), **wanted).to_json(trace=True)
    assert called == ["run_attack"] * 6
    for facts in (here, there):
        facts.pop("wall_seconds")
    assert json.dumps(here) == json.dumps(there)
