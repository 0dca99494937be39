"""Cheaper updates: bfloat16 products, joint passes, and learning beside acting; each is still the same training."""

import signal
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from radial.agents.q_agent import QAgent
from radial.core.data import BadInput, EnvSpec
from radial.core.schedules import Constant, Linear
from radial.objectives.q_objectives import TD, Objective, Plain, RadialOverlap, RadialWorstCase
from radial.runs.config import decode, encode
from radial.training import dqn
from radial.training.alongside import Rounds
from radial.training.dqn import DQNConfig, QLearner
from radial.training.dqn import train_dqn as train
from radial.training.precision import products_in
from radial.training.replay import Sample

TINY = DQNConfig(
    EnvSpec("classic", "CartPole-v1"), RadialOverlap(Linear(0.1, 100, 500)), total_steps=800, num_envs=4,
    replay_capacity=500, learning_starts=100, update_every=2, batch=16, target_every=100,
    exploration=Linear(0.1, 0, 600, start=1.0), hidden=(32,), compile=False, log_every=50, checkpoint_every=200,
)  # fmt: skip


def gradient(
    objective: Objective, precision: str = "float32", joint: str = "none", double: bool = True
) -> torch.Tensor:
    """Of one batch of random frames."""
    agent = QAgent((1, 84, 84), 4, (16, 16, 16, 32))
    agent.initialize(torch.Generator().manual_seed(0))
    learner = QLearner(
        agent, None, objective, TD(double=double), 0.99, rate=1e-4, adam_eps=1e-8, max_grad_norm=None, compile=False,
        precision=precision, joint=joint,
    )  # fmt: skip
    rng = torch.Generator().manual_seed(1)
    frames = torch.randint(256, (2, 6, 1, 84, 84), generator=rng, dtype=torch.uint8)
    ones = torch.ones(6)
    learner.target = learner.target + 0.01  # so that the two networks of the target differ
    sample = Sample(frames[0], torch.arange(6) % 4, ones, frames[1], ones > 1, ones, torch.arange(6), ones)
    learner.move_to(0)
    with torch.no_grad():
        return learner.step(sample, learner.noise(sample.obs, rng), target=learner.target)[0]


RADIUS = Constant(1 / 255)


@pytest.mark.parametrize("joint", ["next", "centre", "both"])
@pytest.mark.parametrize(
    "objective", [Plain(), RadialOverlap(RADIUS), RadialWorstCase(RADIUS)], ids=lambda o: type(o).__name__
)
def test_joint_passes_have_the_gradient_of_separate_ones(objective: Objective, joint: str) -> None:
    for double in (True, False):
        apart, together = gradient(objective, double=double), gradient(objective, joint=joint, double=double)
        assert torch.allclose(apart, together, rtol=1e-3, atol=1e-5 * float(apart.abs().max()))


def test_bfloat16_products_have_almost_the_gradient_of_float32() -> None:
    exact, rounded = gradient(RadialOverlap(RADIUS)), gradient(RadialOverlap(RADIUS), "bfloat16")
    assert rounded.dtype == torch.float32
    assert not torch.equal(exact, rounded)
    assert torch.cosine_similarity(exact, rounded, dim=0) > 0.99


def test_narrow_layers_keep_float32() -> None:
    x, narrow, wide = torch.full((1, 8), 1 + 2**-12), torch.ones(4, 8), torch.ones(16, 8)
    with products_in("bfloat16"):
        assert torch.nn.functional.linear(x, narrow).unique().tolist() == [8 + 2**-9]
        assert torch.nn.functional.linear(x, wide).unique().tolist() == [8.0]
    assert torch.nn.functional.linear(x, wide).unique().tolist() == [8 + 2**-9]


def test_the_options_are_read_and_refused() -> None:
    config = replace(TINY, precision="bfloat16", joint="both", concurrent=True)
    assert decode(DQNConfig, encode(config)) == config
    assert not {"precision", "joint", "concurrent"} & set(encode(TINY))  # so that older runs can be resumed
    for wrong in ({"precision": "float16"}, {"joint": "all"}, {"concurrent": True, "attack": "pgd"}):
        with pytest.raises(BadInput, match=next(iter(wrong))):
            replace(TINY, **wrong)


def weights(agent: torch.nn.Module) -> dict[str, list[float]]:
    return {name: tensor.flatten().tolist() for name, tensor in agent.state_dict().items()}


def test_concurrent_training_repeats_itself_and_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = replace(TINY, concurrent=True, total_steps=240, update_every=8, checkpoint_every=80, hidden=(8,))
    whole = weights(train(config, 0, quiet=True))
    assert whole != weights(train(replace(config, concurrent=False), 0, quiet=True))  # its actor lags by one round

    def stop(run: dqn.Run, step: int, *args: Any, **named: Any) -> None:
        save(run, step, *args, **named)
        if step >= 160:
            raise dqn.Stopped(signal.SIGTERM)

    save = dqn.Run.save
    with monkeypatch.context() as patch:
        patch.setattr(dqn.Run, "save", stop)
        with pytest.raises(dqn.Stopped):
            train(config, 0, out=tmp_path / "run", quiet=True)
    assert weights(train(config, 0, out=tmp_path / "run", resume=True, quiet=True)) == whole


def test_a_round_runs_beside_its_caller_and_its_error_is_raised() -> None:
    handed, started, release = [], threading.Event(), threading.Event()
    with Rounds(lambda: handed.append(1), concurrent=True) as rounds:
        rounds.start(lambda: (started.set(), release.wait(5), None)[-1])
        assert started.wait(5)
        assert not handed  # we are here while it runs
        release.set()
        rounds.wait()
        assert handed == [1]
        rounds.start(lambda: [][0])
        with pytest.raises(IndexError):
            rounds.wait()
