"""A3C in one process: it learns, is the same twice, survives being killed, and refuses what it cannot learn."""

import json
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from radial.agents.actor_critic import ActorCritic
from radial.agents.policies import CategoricalAgent
from radial.core.data import BadInput, EnvSpec
from radial.core.schedules import Constant, Linear
from radial.objectives.policy_gradient import OBJECTIVES, Plain, RadialOverlap
from radial.runs.config import decode, encode
from radial.runs.run import VOLATILE
from radial.training import a3c
from radial.training.a3c import A3CConfig
from radial.training.a3c import train_a3c as train

CARTPOLE = EnvSpec("classic", "CartPole-v1")
TINY = A3CConfig(
    CARTPOLE, RadialOverlap(Linear(0.1, 100, 900)), total_steps=1_200, workers=1, num_envs=4, rollout=5, rate=1e-3,
    hidden=(8,), compile=False, log_every=50, checkpoint_every=200,
)  # fmt: skip


def weights(agent: torch.nn.Module) -> dict[str, list[float]]:
    return {name: tensor.flatten().tolist() for name, tensor in agent.state_dict().items()}


def test_the_same_seed_gives_the_same_agent() -> None:
    first, again, other = (weights(train(TINY, seed, quiet=True)) for seed in (3, 3, 4))
    assert first == again
    assert first != other


@pytest.mark.parametrize("kind", OBJECTIVES)
def test_every_objective_trains_from_a_start_and_is_written_and_read(kind: str) -> None:
    objective = Plain() if kind == "plain" else OBJECTIVES[kind](Constant(0.05))  # type: ignore[call-arg]
    config = replace(TINY, objective=objective, total_steps=300, max_grad_norm=1.0, anneal=True)
    assert decode(A3CConfig, encode(config)) == config
    start = ActorCritic((4,), 2, (8,))
    start.initialize(torch.Generator().manual_seed(5))
    agent = train(config, 0, init=start, quiet=True)
    assert weights(agent) != weights(start)
    assert all(bool(tensor.isfinite().all()) for tensor in agent.state_dict().values())


def test_it_learns_a_task_whose_optimum_is_known() -> None:
    """CartPole's longest episode here has 50 steps; a random policy keeps the pole up for about 22."""
    config = A3CConfig(
        replace(CARTPOLE, options={"max_episode_steps": 50}), total_steps=16_000, workers=1, num_envs=8, rollout=10,
        rate=5e-3, hidden=(32,), compile=False, discount=0.9, entropy=0.001,
    )  # fmt: skip
    from radial.evaluation.play import evaluate

    agent = train(config, 0, quiet=True)
    assert evaluate(agent, config.env, episodes=20).mean > 45


def test_a_line_of_metrics(tmp_path: Path) -> None:
    """The schedules run on env steps, and a robust training logs what it adds."""
    train(TINY, 0, out=tmp_path, quiet=True)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["step"] >= 1_200
    assert lines[-1].keys() >= {
        "charts/SPS", "charts/episodic_return", "charts/episodic_length", "charts/updates", "losses/policy_loss",
        "losses/value_loss", "losses/entropy", "robust/radius", "robust/kappa", "robust/adversarial_loss",
        "robust/bound_width",
    }  # fmt: skip
    for line in lines:
        assert line["robust/radius"] == pytest.approx(TINY.objective.coefficients(line["step"])["radius"])
    assert lines[-1]["charts/updates"] * 4 * 5 >= 1_200  # some rows are resets
    newest = max((tmp_path / "checkpoints").glob("step_*"))
    assert json.loads((newest / "manifest.json").read_text())["state"]["resume"] == "exact"


# ---------------------------------------------------------------------------------------------------------- refusals


def test_a_start_that_does_not_fit_is_refused() -> None:
    with pytest.raises(BadInput, match=r"init must fit the training: its hidden is \(64, 64\), needed is \(8,\)"):
        train(TINY, 0, init=ActorCritic((4,), 2), quiet=True)
    with pytest.raises(BadInput, match="init must be a ActorCritic, got a CategoricalAgent"):
        train(TINY, 0, init=CategoricalAgent((4,), 2), quiet=True)  # type: ignore[arg-type]


def test_continuous_actions_are_refused_with_the_reason() -> None:
    with pytest.raises(BadInput, match=r"discrete actions; those of Pendulum-v1 are continuous: use PPO"):
        train(replace(TINY, env=EnvSpec("classic", "Pendulum-v1")), 0, quiet=True)


@pytest.mark.parametrize(
    ("field", "value"),
    [("workers", 0), ("workers", -1), ("workers", 1.5), ("num_envs", 0), ("rollout", 0), ("rate", 0.0), ("lam", 1.1),
     ("rate", float("nan")), ("discount", float("nan")), ("entropy", -1.0), ("adam_eps", 0.0), ("patience", 0.0),
     ("hidden", ()), ("max_grad_norm", 0.0), ("checkpoint_every", 0), ("log_every", 0)],
)  # fmt: skip
def test_bad_settings_are_named(field: str, value: object) -> None:
    with pytest.raises(BadInput, match=field) as caught:
        replace(TINY, **{field: value})  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_more_workers_than_the_machine_holds_are_warned_about(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(a3c, "free_memory", lambda: 4_000_000_000)
    a3c.warn_if_crowded(100_000)
    said = capsys.readouterr().err
    assert "100000 workers take turns on" in said
    assert "need about 35000.0 GB of memory, and 4.0 GB are free: use at most 11" in said
    monkeypatch.setattr(a3c, "free_memory", lambda: None)
    a3c.warn_if_crowded(1)
    assert capsys.readouterr().err == ""


def test_a_loss_that_diverges_stops_the_training(tmp_path: Path) -> None:
    with pytest.raises(FloatingPointError):
        train(replace(TINY, objective=Plain(), rate=1e30, total_steps=4_000), 0, out=tmp_path, quiet=True)


# ---------------------------------------------------------------------------------------------------------- survival

CHILD = """
import json, sys
from pathlib import Path
import torch
torch.set_num_threads(int(sys.argv[3]))
from radial.training.a3c import A3CConfig, train_a3c as train
from radial.runs.config import decode
train(decode(A3CConfig, json.loads(sys.argv[2])), 1, out=Path(sys.argv[1]), resume=True, quiet=True)
"""


def outcome(folder: Path) -> tuple[bytes, list[dict[str, float]]]:
    newest = max((folder / "checkpoints").glob("step_*"))
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    tensors = (newest / "tensors.safetensors").read_bytes()
    return tensors, [{k: v for k, v in line.items() if k not in VOLATILE} for line in lines]


def kill_and_resume(tmp_path: Path, kills: int, config: A3CConfig, seed: int = 0) -> int:
    """A run that is killed again and again ends as one that was left alone: weights, optimiser, metrics.

    seed  of the moments        returns  kills, fewer if it was finished before
    """
    plain, killed = tmp_path / "plain", tmp_path / "killed"
    train(config, 1, out=plain, quiet=True)
    child = [sys.executable, "-c", CHILD, str(killed), json.dumps(encode(config)), str(torch.get_num_threads())]
    rng, metrics, done = random.Random(seed), killed / "metrics.jsonl", 0
    while done < kills:
        begun = metrics.stat().st_size if metrics.exists() else 0
        process = subprocess.Popen(child, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        # Imports take longer than the training: wait until it is under way, then strike at a random moment.
        while process.poll() is None and not (metrics.exists() and metrics.stat().st_size > begun):
            time.sleep(0.002)
        time.sleep(rng.uniform(0, 0.1))
        if process.poll() is not None:
            break  # it was finished before we struck
        process.kill()
        process.wait()
        done += 1
    assert done, "the run was never killed"
    train(config, 1, out=killed, resume=True, quiet=True)
    assert outcome(plain) == outcome(killed)
    return done


def test_kill_9_and_resume_end_where_an_uninterrupted_run_ends(tmp_path: Path) -> None:
    assert kill_and_resume(tmp_path, 3, replace(TINY, total_steps=6_000, checkpoint_every=100)) == 3


@pytest.mark.nightly
def test_a_hundred_kills(tmp_path: Path) -> None:
    for part in range(10):
        config = replace(TINY, total_steps=30_000, checkpoint_every=500)
        assert kill_and_resume(tmp_path / str(part), 10, config, seed=part) == 10


def test_a_signal_saves_and_stops_and_the_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = iter(range(1_000))
    update = a3c.Player.update

    def interrupted(player, step, clock):  # type: ignore[no-untyped-def]
        if next(calls) == 20:
            signal.raise_signal(signal.SIGTERM)
        return update(player, step, clock)

    with monkeypatch.context() as patch:
        patch.setattr(a3c.Player, "update", interrupted)
        with pytest.raises(a3c.Stopped) as stopped:
            train(TINY, 0, out=tmp_path, quiet=True)
    assert stopped.value.code == 143
    assert len(list((tmp_path / "checkpoints").glob("step_*"))) >= 1
    train(TINY, 0, out=tmp_path, resume=True, quiet=True)
    steps = [json.loads(line)["step"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert steps == sorted(steps)
    assert steps[-1] >= TINY.total_steps


def test_everything_that_changes_is_saved() -> None:
    """Whatever is kept from one update to the next is in the checkpoint: the rest is rebuilt there."""
    training = a3c.set_up(TINY, 0, torch.device("cpu"))
    assert set(training.model.state()) == {"parameters", "adam.first", "adam.second", "adam.largest", "adam.steps"}
    player = a3c.make_player(TINY, training.agent, training.model, training.rng)
    # An adversary takes the weights and the radius anew before each rollout.
    kept = set(vars(player)) - {"learner", "model", "rhythm", "rng", "actor", "returns", "env", "_x", "adversary"}
    assert kept == set()
