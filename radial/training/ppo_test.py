import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from radial.agents.policies import CategoricalAgent
from radial.bounds.mix import Mix
from radial.core.data import BadInput, EnvSpec
from radial.core.schedules import Constant, Linear
from radial.envs.counting import make_counting
from radial.losses.policy import Categorical
from radial.objectives.surrogate import SA, Plain, RadialLikelihood, RadialReleased, RadialWorstCase
from radial.runs.checkpoint import newest_checkpoint
from radial.runs.config import decode, encode
from radial.runs.run import VOLATILE
from radial.training import ppo
from radial.training.native import can_compile
from radial.training.ppo import PPOConfig, estimate
from radial.training.ppo import train_ppo as train
from radial.training.rollouts import Returns, collect
from radial.training.sight import Actor, sight_of

CARTPOLE = EnvSpec("classic", "CartPole-v1")
TINY = PPOConfig(
    CARTPOLE, RadialWorstCase(Linear(0.1, 100, 900)), total_steps=1_200, num_envs=4, rollout=128, epochs=2,
    minibatch=32, hidden=(8,), compile=False, checkpoint_every=2,
)  # fmt: skip


class Scripted(CategoricalAgent):
    """Always action 7; observations pass through untouched."""

    def __init__(self) -> None:
        super().__init__((3,), 10, (4,))
        self.normalizer.freeze()  # of nothing: the identity

    def sample(self, x, noise):
        return torch.full((x.shape[0],), 7)


def test_a_rollout_holds_exactly_what_happened():
    """Env 0 terminates after 3 steps, then is cut after 2; env 1 the other way round. Resets are marked."""
    env = make_counting(2)
    scores = Returns(2)
    rollout, last = collect(env, env.reset(), Actor(Scripted(), compiled=False), None, scores, 8, torch.Generator())
    rewards = [
        [17, 1017], [27, 1027], [37, 0], [0, 1117], [117, 1127], [127, 1137], [0, 0], [217, 1217],
    ]  # fmt: skip
    assert rollout.reward.tolist() == rewards
    assert rollout.real.tolist() == [[reward != 0 for reward in row] for row in rewards]
    assert rollout.terminated[:, 0].tolist() == [False, False, True, False, False, False, False, False]
    assert rollout.ended[:, 0].tolist() == [False, False, True, False, False, True, False, False]
    assert rollout.ended[:, 1].tolist() == [False, True, False, False, False, True, False, False]
    # x[t] is what was acted on, x[t + 1] where it led: env 0 sees steps 0, 1, 2, its true last state 3, then episode 1.
    assert rollout.x[:, 0].tolist() == [
        [0, 0, 0], [0, 0, 1], [0, 0, 2], [0, 0, 3], [0, 1, 0], [0, 1, 1], [0, 1, 2], [0, 2, 0], [0, 2, 1],
    ]  # fmt: skip
    assert last.tolist() == [[0, 2, 1], [1, 2, 1]]
    assert scores.returns == [1017 + 1027, 17 + 27 + 37, 117 + 127, 1117 + 1127 + 1137]
    env.close()


def test_only_real_rows_are_learned_from_and_time_limits_bootstrap():
    env = make_counting(1)
    agent = Scripted()
    rollout, _ = collect(env, env.reset(), Actor(agent, compiled=False), None, Returns(1), 7, torch.Generator())
    for parameter in agent.critic.parameters():
        torch.nn.init.zeros_(parameter)
    torch.nn.init.constant_(agent.critic[-1].bias, 1000.0)  # V = 1000 everywhere
    data = estimate(rollout, sight_of(agent), discount=0.5, lam=0.0)
    # Real rows: 3 of episode 0 (the last terminates: no bootstrap), 2 of episode 1 (the last is cut: bootstrap).
    assert data.advantage.tolist() == [17 - 500, 27 - 500, 37 - 1000, 117 - 500, 127 - 500]
    assert data.target.tolist() == [517, 527, 37, 617, 627]
    assert data.x.tolist() == [[0, 0, 0], [0, 0, 1], [0, 0, 2], [0, 1, 0], [0, 1, 1]]
    env.close()


def test_each_observation_is_counted_once_and_seen_with_what_was_known_at_its_time():
    env = make_counting(2)
    agent = CategoricalAgent((3,), 10, (4,))
    actor = Actor(agent, compiled=False)
    x = actor.observe(env.reset())
    actor.finish()
    rollout, x = collect(env, x, actor, None, Returns(2), 3, torch.Generator())
    rollout, x = collect(env, x, actor, None, Returns(2), 4, torch.Generator())
    seen = agent.normalizer.moments
    assert float(seen.count) == 2 * (1 + 3 + 4)
    witness = make_counting(2)
    observations = [witness.reset()] + [witness.step(torch.zeros(2, dtype=torch.int64)).obs for _ in range(7)]
    torch.testing.assert_close(seen.mean, torch.cat(observations).double().mean(0))
    torch.testing.assert_close(seen.std, torch.cat(observations).double().std(0))
    torch.testing.assert_close(rollout.x[-1], agent.prepare(observations[-1]))


def weights(agent: torch.nn.Module) -> dict[str, list[float]]:
    return {name: tensor.flatten().tolist() for name, tensor in agent.state_dict().items()}


def test_the_same_seed_gives_the_same_agent():
    first, again, other = (weights(train(TINY, seed, quiet=True)) for seed in (3, 3, 4))
    assert first == again
    assert first != other


@pytest.mark.skipif(not can_compile(), reason="needs a C++ compiler")
@pytest.mark.parametrize(
    "objective",
    [
        RadialWorstCase(Constant(0.1)),
        pytest.param(SA(Constant(0.1), 0.1, inner="sgld", steps=3), marks=pytest.mark.nightly),
    ],
    ids=lambda objective: type(objective).__name__,
)
def test_compiled_training_is_the_same_training(objective):
    config = replace(TINY, objective=objective, total_steps=256)
    eager, native = weights(train(config, 0, quiet=True)), weights(train(replace(config, compile=True), 0, quiet=True))
    for name, values in eager.items():
        assert values == pytest.approx(native[name], abs=2e-4), name


OBJECTIVES = [
    Plain(),
    RadialWorstCase(Constant(0.05), detach_std=True),
    RadialLikelihood(Constant(0.05), bound="crown-ibp"),
    RadialReleased(Constant(0.05)),
    SA(Constant(0.05), 0.1, bound=Mix(Constant(0.5))),
    SA(Constant(0.05), 0.1, inner="sgld"),
]


@pytest.mark.parametrize("env", [CARTPOLE, EnvSpec("classic", "Pendulum-v1")], ids=str)
@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda objective: type(objective).__name__)
def test_every_objective_trains_both_kinds_of_policy(env: EnvSpec, objective):
    config = replace(TINY, env=env, objective=objective, total_steps=128)
    before = weights(ppo.set_up(config, 0, torch.device("cpu"))[0])
    after = weights(train(config, 0, quiet=True))
    assert before["network.0.weight"] != after["network.0.weight"]


def test_a_ceiling_of_the_standard_deviation_comes_down_with_its_schedule():
    ceiling = Linear(end=0.1, first_step=0, last_step=256, start=2.0)
    config = replace(TINY, env=EnvSpec("classic", "Pendulum-v1"), total_steps=256, initial_std=1.0)
    stds = {
        name: train(replace(config, max_std=max_std), 0, quiet=True).log_std.exp().max().item()
        for name, max_std in (("free", None), ("fixed", 0.3), ("falling", ceiling))
    }
    assert stds["free"] > 0.5
    assert stds["fixed"] == pytest.approx(0.3)
    assert stds["falling"] == pytest.approx(
        0.1, rel=1e-3
    )  # its value at the last update, which has all 256 steps behind it


def test_a_config_survives_json():
    for objective in OBJECTIVES:
        config = replace(TINY, objective=objective)
        assert decode(PPOConfig, json.loads(json.dumps(encode(config)))) == config


@pytest.mark.parametrize(
    "change",
    [
        {"total_steps": 0}, {"policy_rate": float("nan")}, {"rollout": 130}, {"minibatch": 128}, {"discount": 1.5},
        {"clip": 0.0}, {"hidden": ()}, {"num_envs": -1}, {"entropy": -0.1}, {"max_std": 0.0},
        {"max_std": Linear(0.0, 0, 100, start=1.0)}, {"min_std": 0.5, "max_std": Linear(0.4, 0, 100, start=1.0)},
    ],
    ids=str,
)  # fmt: skip
def test_bad_settings_name_the_field(change: dict[str, object]):
    with pytest.raises(BadInput, match=next(iter(change))):
        replace(TINY, **change)


# ------------------------------------------------------------------------------------------------------- resuming

SCRIPT = """
import json, sys, torch
from pathlib import Path
torch.set_num_threads(1)
from radial.runs.config import decode
from radial.training.ppo import PPOConfig, train_ppo as train
train(decode(PPOConfig, json.loads(sys.argv[2])), 7, out=Path(sys.argv[1]), resume=True, quiet=True)
"""


def start(folder: Path, config: PPOConfig) -> subprocess.Popen:
    command = [sys.executable, "-c", SCRIPT, str(folder), json.dumps(encode(config))]
    return subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"})


def outcome(folder: Path) -> tuple[dict[str, list[float]], list[dict[str, float]]]:
    found = newest_checkpoint(folder)
    assert found is not None
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    metrics = [{key: value for key, value in line.items() if key not in VOLATILE} for line in lines]
    return {name: tensor.flatten().tolist() for name, tensor in found[1].items()}, metrics


def kill_and_resume(tmp_path: Path, kills: int, config: PPOConfig = TINY, seed: int = 0) -> int:
    """Runs that are killed again and again end as one that was left alone: weights, optimiser, metrics.

    seed  of the moments        returns  kills
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        train(config, 7, out=tmp_path / "whole", quiet=True)
    finally:
        torch.set_num_threads(threads)
    expected = outcome(tmp_path / "whole")
    rng = random.Random(seed)
    done, run = 0, 0
    while done < kills:
        folder, run = tmp_path / f"broken-{run}", run + 1
        while True:
            process = start(folder, config)
            # Wait until it has begun to train (imports take longer than the training), then strike at a random moment.
            begun = (folder / "metrics.jsonl").stat().st_size if (folder / "metrics.jsonl").exists() else 0
            while process.poll() is None and not _grown(folder, begun):
                time.sleep(0.002)
            time.sleep(rng.uniform(0, 0.25))
            if process.poll() is not None or done == kills:
                break
            process.send_signal(signal.SIGKILL)
            process.wait()
            done += 1
        assert process.wait() == 0
        assert outcome(folder) == expected
    return done


def _grown(folder: Path, size: int) -> bool:
    path = folder / "metrics.jsonl"
    return path.exists() and path.stat().st_size > size


def test_killed_at_random_moments_and_resumed_it_is_the_same_run(tmp_path: Path):
    assert kill_and_resume(tmp_path, 10) == 10


@pytest.mark.nightly
def test_a_hundred_kills(tmp_path: Path):
    kill_and_resume(tmp_path, 100)


def test_a_finished_run_resumes_to_the_same_agent(tmp_path: Path):
    agent = train(TINY, 1, out=tmp_path / "run", quiet=True)
    again = train(TINY, 1, out=tmp_path / "run", resume=True, quiet=True)
    assert weights(agent) == weights(again)
    with pytest.raises(BadInput, match="already holds a run"):
        train(TINY, 1, out=tmp_path / "run", quiet=True)
    with pytest.raises(BadInput, match="seed"):
        train(TINY, 2, out=tmp_path / "run", resume=True, quiet=True)


def test_everything_that_changes_is_saved():
    """Whatever the loop keeps from one update to the next is in the checkpoint, or made anew from what is."""
    agent, learner, scale, rng = ppo.set_up(TINY, 0, torch.device("cpu"))
    tensors, state = ppo._state(agent, learner, scale, Returns(4), rng, 0, 0)
    assert {name.removeprefix("agent.") for name in tensors if name.startswith("agent.")} == set(agent.state_dict())
    assert {"adam.first", "adam.second", "adam.steps", "rng", "scale.moments.mean"} <= set(tensors)
    assert set(state) == {"step", "update", "returns", "lengths", "by_env", "clip", "clips_actions"}


def test_another_simulator_is_noticed(tmp_path: Path, monkeypatch, caplog):
    class Other:
        engine = {"backend": "another", "version": "1", "simulator": "none"}

        def __init__(self, env) -> None:
            self.env = env

        def __getattr__(self, name: str):
            return getattr(self.env, name)

    folder = tmp_path / "run"
    limit = replace(TINY, total_steps=10_000)
    monkeypatch.setattr(ppo.Returns, "mean", lambda self: None)

    def stop_after_two(run, step, *args, **kwargs):
        save(run, step, *args, **kwargs)
        raise ppo.Stopped(signal.SIGTERM)

    save = ppo.Run.save
    monkeypatch.setattr(ppo.Run, "save", stop_after_two)
    with pytest.raises(ppo.Stopped):
        train(limit, 0, out=folder, quiet=True)
    make = ppo.make_env
    monkeypatch.setattr(ppo, "make_env", lambda *args, **kwargs: Other(make(*args, **kwargs)))
    with pytest.raises(ppo.Stopped):
        train(limit, 0, out=folder, resume=True, quiet=True)
    assert "the simulator was" in caplog.text


# ------------------------------------------------------------------------------------------------- things that break


class Poisoned:
    """An env whose reward turns into NaN at its fifth step, behind the adapter that would have noticed."""

    def __init__(self, env) -> None:
        self.env, self.count = env, 0

    def __getattr__(self, name: str):
        return getattr(self.env, name)

    def step(self, action):
        step = self.env.step(action)
        self.count += 1
        if self.count == 5:
            step.reward[0] = float("nan")
        return step


def test_nan_stops_the_training_within_one_update_and_before_anything_is_saved(tmp_path, monkeypatch):
    make = ppo.make_env
    monkeypatch.setattr(ppo, "make_env", lambda *args, **kwargs: Poisoned(make(*args, **kwargs)))
    with pytest.raises(FloatingPointError, match=r"reward is not finite in the rollout that ends at step 1"):
        train(TINY, 0, out=tmp_path / "run", quiet=True)
    assert newest_checkpoint(tmp_path / "run") is None


def test_a_learning_rate_that_explodes_is_noticed(tmp_path):
    config = replace(TINY, env=EnvSpec("classic", "Pendulum-v1"), policy_rate=1e30, value_rate=1e30)
    with pytest.raises(FloatingPointError):
        train(config, 0, out=tmp_path / "run", quiet=True)


def test_adversarial_training_shows_attacked_observations():
    class Recorder:
        calls = 0

        def perturb(self, agent, ball, rng):
            self.calls += 1
            return ball.box().upper

        def reset(self, done):
            pass

    recorder = Recorder()
    config = replace(TINY, attack="random", attack_radius=Constant(0.1), attack_probability=0.5, total_steps=128)
    attacked = weights(train(config, 0, attack=recorder, quiet=True))
    assert recorder.calls >= 32
    assert attacked != weights(train(replace(TINY, total_steps=128), 0, quiet=True))
    with pytest.raises(BadInput, match="attack"):
        train(config, 0, quiet=True)


def test_an_anchor_holds_the_policy_where_it_started():
    """The heavier the divergence from the first policy weighs, the less the trained one differs from it."""
    start, x = train(TINY, 0, quiet=True), torch.randn(200, 4)
    apart = []
    for weight in (0.0, 1.0, 100.0):
        config = replace(TINY, anchor=weight, normalize_observations=False, anneal=False)
        trained = train(config, 1, init=start, quiet=True)
        with torch.no_grad():
            apart.append(Categorical().divergence(start.scores(x), trained.scores(x)).mean().item())
    assert apart[0] > apart[1] > apart[2] > 0
    with pytest.raises(BadInput, match="anchor must be 0 without an init to hold on to"):
        train(replace(TINY, anchor=1.0), 0, quiet=True)
    with pytest.raises(BadInput, match="anchor must be > 0 for an objective that is anchored"):
        replace(TINY, objective=SA(0.1, 1.0, "pgd", anchored=True))
