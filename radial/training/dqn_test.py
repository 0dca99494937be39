"""Deep Q-learning: it learns, it is the same twice, it survives being killed, and it refuses what it cannot learn."""

import json
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import pytest
import torch

from radial.agents.policies import CategoricalAgent
from radial.agents.q_agent import QAgent
from radial.core.data import BadInput, EnvSpec
from radial.core.schedules import Constant, Linear
from radial.objectives.q_learning import TD
from radial.objectives.q_objectives import RS, SA, Objective, Plain, RadialOverlap, RadialWorstCase
from radial.runs.config import decode, encode
from radial.runs.run import VOLATILE
from radial.training import dqn
from radial.training.dqn import DQNConfig, QLearner
from radial.training.dqn import train_dqn as train
from radial.training.exploration import Detour, explore
from radial.training.native import can_compile
from radial.training.replay import Prioritised, Sample

CARTPOLE = EnvSpec("classic", "CartPole-v1")
TINY = DQNConfig(
    CARTPOLE, RadialOverlap(Linear(0.1, 100, 900)), total_steps=1_200, num_envs=4, replay_capacity=500,
    learning_starts=100, update_every=8, batch=16, target_every=100, exploration=Linear(0.1, 0, 600, start=1.0),
    hidden=(8,), compile=False, log_every=50, checkpoint_every=200,
)  # fmt: skip


def weights(agent: torch.nn.Module) -> dict[str, list[float]]:
    return {name: tensor.flatten().tolist() for name, tensor in agent.state_dict().items()}


def test_the_same_seed_gives_the_same_agent() -> None:
    first, again, other = (weights(train(TINY, seed, quiet=True)) for seed in (3, 3, 4))
    assert first == again
    assert first != other


@pytest.mark.skipif(not can_compile(), reason="needs a C++ compiler")
def test_compiled_training_is_the_same_training() -> None:
    config = replace(TINY, objective=RadialOverlap(Constant(0.1)), total_steps=200)
    eager, native = weights(train(config, 0, quiet=True)), weights(train(replace(config, compile=True), 0, quiet=True))
    for name, values in eager.items():
        assert values == pytest.approx(native[name], abs=2e-4), name


OBJECTIVES: list[Objective] = [
    Plain(),
    RadialWorstCase(Constant(0.05)),
    RadialOverlap(Constant(0.05), symmetric=True, bound="crown-ibp"),
    SA(Constant(0.05), 0.1),
    SA(Constant(0.05), 0.1, inner="pgd"),
    RS(Constant(0.05)),
]


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda objective: type(objective).__name__)
def test_every_objective_trains_and_is_written_and_read(objective: Objective) -> None:
    config = replace(TINY, objective=objective, total_steps=300)
    assert decode(DQNConfig, encode(config)) == config
    start = QAgent((4,), 2, (8,))
    start.initialize(torch.Generator().manual_seed(5))
    agent = train(config, 0, init=start, quiet=True)
    assert weights(agent) != weights(start)
    assert all(bool(tensor.isfinite().all()) for tensor in agent.state_dict().values())


def test_priorities_single_q_and_clipping_are_options() -> None:
    config = replace(TINY, prioritised=Prioritised(), td=TD(double=False, loss="smooth-l1"), max_grad_norm=0.5)
    assert decode(DQNConfig, encode(config)) == config
    assert weights(train(config, 0, quiet=True)) != weights(train(replace(config, prioritised=None), 0, quiet=True))


def test_it_learns_a_task_whose_optimum_is_known() -> None:
    """CartPole's longest episode here has 50 steps; a random policy keeps the pole up for about 22."""
    config = DQNConfig(
        replace(CARTPOLE, options={"max_episode_steps": 50}), total_steps=6_000, num_envs=8, replay_capacity=6_000,
        learning_starts=300, update_every=4, batch=64, target_every=100, rate=2e-3, hidden=(32, 32), compile=False,
        exploration=Linear(0.05, 0, 2_000, start=1.0), discount=0.9,
    )  # fmt: skip
    from radial.evaluation.play import evaluate

    agent = train(config, 0, quiet=True)
    assert evaluate(agent, config.env, episodes=20).mean > 45


def test_exploration_is_a_share_of_the_actions() -> None:
    agent, rng = QAgent((4,), 2, (8,)), torch.Generator().manual_seed(0)
    obs = torch.randn(1, 4, generator=rng).repeat(10_000, 1)
    greedy = int(agent.act(agent.prepare(obs[:1])))
    assert (explore(agent, obs, 0.0, rng) == greedy).all()
    # a random action is the greedy one half of the time
    assert (explore(agent, obs, 0.3, rng) == greedy).float().mean().item() == pytest.approx(0.85, abs=0.015)
    assert (explore(agent, obs, 1.0, rng) == greedy).float().mean().item() == pytest.approx(0.5, abs=0.02)


def test_an_exploring_action_lasts_and_exploration_stays_the_same_share() -> None:
    agent, rng = QAgent((4,), 50, (8,)), torch.Generator().manual_seed(0)
    obs = torch.randn(1, 4, generator=rng).repeat(500, 1)
    greedy = int(agent.act(agent.prepare(obs[:1])))
    detour = Detour.none(500, 4, torch.device("cpu"))
    taken = torch.stack([explore(agent, obs, 0.3, rng, detour) for _ in range(400)])
    explored = taken != greedy
    assert explored.float().mean().item() == pytest.approx(0.3 * 49 / 50, abs=0.01)
    runs = [(action, len(list(same))) for row in taken.T.tolist() for action, same in groupby(row)]
    whole = [length for action, length in runs[1:-1] if action != greedy]
    assert sum(length % 4 == 0 for length in whole) / len(whole) > 0.98  # but for those that the last step cut
    always = Detour.none(500, 4, torch.device("cpu"))
    assert len({tuple(explore(agent, obs, 1.0, rng, always).tolist()) for _ in range(8)}) == 2


def test_a_start_that_does_not_fit_is_refused() -> None:
    with pytest.raises(BadInput, match=r"init must fit the training: its hidden is \(64, 64\), needed is \(8,\)"):
        train(TINY, 0, init=QAgent((4,), 2), quiet=True)
    with pytest.raises(BadInput, match="init must be a QAgent, got a CategoricalAgent"):
        train(TINY, 0, init=CategoricalAgent((4,), 2), quiet=True)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"env": EnvSpec("classic", "Pendulum-v1")}, "DQN needs an env with discrete actions"),
        ({"replay_capacity": 10**12}, "replay_capacity"),
    ],
)
def test_what_cannot_be_trained_is_refused(change: dict[str, object], says: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=says):
        dqn.set_up(replace(TINY, **change), 0, torch.device("cpu"))  # type: ignore[arg-type]


@pytest.mark.parametrize("field", ["rate", "batch", "discount", "target_every", "update_every"])
def test_bad_settings_are_named(field: str) -> None:
    with pytest.raises(BadInput, match=field):
        replace(TINY, **{field: float("nan") if field in ("rate", "discount") else 0})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"exploration": 3}, r"exploration must lie in \[0, 1\], got 3 at step 0"),
        ({"exploration": Linear(-1.0, 0, 10, start=1.0)}, r"got -1 at step 1,200"),
        ({"hidden": 64}, "hidden must be sizes ≥ 1"),
        ({"hidden": (1.5,)}, "hidden must be sizes ≥ 1"),
        ({"total_steps": None}, "total_steps must be a whole number"),
        ({"rate": None}, "rate must be finite"),
        ({"prioritised": True}, "prioritised must be of type Prioritised, got True"),
        ({"td": None}, "td must be of type TD, got None"),
    ],
)
def test_settings_of_the_wrong_kind_are_named(change: dict[str, object], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        replace(TINY, **change)  # type: ignore[arg-type]


def test_what_the_replay_will_take_is_said_before_it_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    train(replace(TINY, total_steps=100), 0)
    assert capsys.readouterr().err.startswith("replay: 500 transitions will take 17,136 bytes of memory\n")
    train(replace(TINY, total_steps=100), 0, quiet=True)
    assert capsys.readouterr().err == ""


# ------------------------------------------------------------------------------------------------------------ survival

CHILD = """
import sys
from pathlib import Path
from radial.runs.config import decode
from radial.training.dqn import DQNConfig, train_dqn as train
import json
train(decode(DQNConfig, json.loads(sys.argv[2])), 1, out=Path(sys.argv[1]), resume=True, quiet=True)
"""


def outcome(folder: Path) -> tuple[bytes, list[dict[str, float]]]:
    newest = max((folder / "checkpoints").glob("step_*"))
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    tensors = (newest / "tensors.safetensors").read_bytes()
    return tensors, [{k: v for k, v in line.items() if k not in VOLATILE} for line in lines]


def kill_and_resume(tmp_path: Path, kills: int, config: DQNConfig, seed: int = 0) -> int:
    """A run that is killed again and again ends as one that was left alone: weights, replay, metrics.

    seed  of the moments        returns  kills, fewer if it was finished before
    """
    plain, killed = tmp_path / "plain", tmp_path / "killed"

    def command(folder: Path) -> list[str]:
        return [sys.executable, "-c", CHILD, str(folder), json.dumps(encode(config))]

    subprocess.run(command(plain), check=True, capture_output=True, timeout=300)
    rng, metrics, done = random.Random(seed), killed / "metrics.jsonl", 0
    while done < kills:
        begun = metrics.stat().st_size if metrics.exists() else 0
        child = subprocess.Popen(command(killed), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        # Imports take longer than the training: wait until it is under way, then strike at a random moment.
        while child.poll() is None and not (metrics.exists() and metrics.stat().st_size > begun):
            time.sleep(0.002)
        time.sleep(rng.uniform(0, 0.1))
        if child.poll() is not None:
            break  # it was finished before we struck
        child.kill()
        child.wait()
        done += 1
    assert done, "the run was never killed"
    subprocess.run(command(killed), check=True, capture_output=True, timeout=300)
    assert outcome(plain) == outcome(killed)
    return done


@pytest.mark.parametrize("prioritised", [None, Prioritised()], ids=["even", "prioritised"])
def test_kill_9_and_resume_end_where_an_uninterrupted_run_ends(tmp_path: Path, prioritised: Prioritised | None) -> None:
    kill_and_resume(tmp_path, 3, replace(TINY, prioritised=prioritised, checkpoint_every=100))


@pytest.mark.nightly
def test_a_hundred_kills(tmp_path: Path) -> None:
    for part in range(10):
        kill_and_resume(
            tmp_path / str(part), 10, replace(TINY, total_steps=4_000, prioritised=Prioritised()), seed=part
        )


def test_a_lost_replay_falls_back_to_the_checkpoint_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The newest checkpoint is whole but its replay is not: the run goes on from the one before, and ends the same."""
    plain, broken = tmp_path / "plain", tmp_path / "broken"
    train(TINY, 0, out=plain, quiet=True)
    saves = []

    def stop_at_third(run, step, *args, **kwargs):  # type: ignore[no-untyped-def]
        save(run, step, *args, **kwargs)
        saves.append(step)
        if len(saves) == 3:
            raise dqn.Stopped(signal.SIGTERM)

    save = dqn.Run.save
    with monkeypatch.context() as patch:
        patch.setattr(dqn.Run, "save", stop_at_third)
        with pytest.raises(dqn.Stopped):
            train(TINY, 0, out=broken, quiet=True)
    newest = max((broken / "replay").glob("seg_*"))
    newest.write_bytes(newest.read_bytes()[:-1])
    train(TINY, 0, out=broken, resume=True, quiet=True)
    assert "corrupt checkpoint passed over" in capsys.readouterr().err
    assert outcome(plain) == outcome(broken)


def test_everything_that_changes_is_saved() -> None:
    """Whatever the learner keeps from one update to the next is in its state."""
    _, learner, replay, _ = dqn.set_up(replace(TINY, prioritised=Prioritised()), 0, torch.device("cpu"))
    assert set(learner.state()) == {"parameters", "target", "adam.first", "adam.second", "adam.steps"}
    assert set(replay.tensors()) == {"priority"}


def test_the_future_is_discounted_once_for_each_step_that_was_summed() -> None:
    agent = QAgent((2,), 3, (4,))
    agent.initialize(torch.Generator().manual_seed(0))
    learner = QLearner(
        agent, None, Plain(), TD(double=False), 0.5, rate=1e-3, adam_eps=1e-8, max_grad_norm=None, compile=False
    )
    x, next_x = torch.rand(3, 2), torch.rand(3, 2)
    q, following = agent.network(x)[:, 1], agent.network(next_x).amax(1)
    ended, steps = torch.tensor([False, False, True]), torch.tensor([1.0, 3.0, 2.0])
    data = Sample(
        x, torch.ones(3, dtype=torch.int64), torch.ones(3), next_x, ended, steps, torch.arange(3), torch.ones(3)
    )
    surprise = learner.learn(data, 0, torch.Generator())
    expected = (q - (1 + torch.tensor([0.5, 0.125, 0.0]) * following)).abs()
    assert surprise.tolist() == pytest.approx(expected.tolist())
