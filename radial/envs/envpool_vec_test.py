"""MuJoCo: the same physics as ever (golden steps), the same on both backends, and raw actions.

New golden steps for a new engine are added by `python -m radial.envs.envpool_vec_test`; the old ones stay.
"""

import importlib.util
import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from radial.core.data import Continuous, EnvSpec
from radial.envs.envpool_vec import cores
from radial.envs.make import BACKENDS, MUJOCO, make_env

GOLDEN = Path(__file__).with_name("golden_mujoco.json")
HAVE = {
    "envpool": importlib.util.find_spec("envpool") is not None,
    "gymnasium": importlib.util.find_spec("mujoco") is not None,
}


def spec_of(id: str, backend: str, **options: int) -> EnvSpec:
    if not HAVE[backend]:
        pytest.skip(f"MuJoCo with backend {backend} is not installed")
    return EnvSpec("mujoco", id, {"backend": backend, **options})


def ten_steps(id: str, backend: str) -> tuple[str, dict[str, list[float]]]:
    """The engine, and what 10 steps with actions sin(t + d) from seed 0 gave."""
    env = make_env(spec_of(id, backend), 1, seed=0, threads=1)
    assert isinstance(env.actions, Continuous)
    obs, rewards = env.reset(), []
    first = obs[0, :8]
    for t in range(10):
        step = env.step(torch.sin(t + torch.arange(env.actions.size, dtype=torch.float64))[None])
        obs = step.obs
        rewards.append(step.score[0])
    env.close()
    numbers = {"first": first, "reward": torch.stack(rewards), "last": obs[0, :8]}
    engine = "{backend} {version}, {simulator}".format(**env.engine)
    return engine, {name: [round(x, 6) for x in value.tolist()] for name, value in numbers.items()}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("id", MUJOCO)
def test_ten_steps_are_what_they_were(id: str, backend: str) -> None:
    engine, numbers = ten_steps(id, backend)
    golden = json.loads(GOLDEN.read_text())
    if engine not in golden:
        pytest.skip(f"no golden steps of {engine}, only of {'; '.join(golden)}")
    for name, expected in golden[engine][id].items():
        # Contact forces amplify the last bits, which differ between processors.
        torch.testing.assert_close(torch.tensor(numbers[name]), torch.tensor(expected), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_control_is_clamped_and_the_raw_action_is_charged(backend: str) -> None:
    def first_step(action: float) -> tuple[Tensor, float]:
        env = make_env(spec_of("HalfCheetah-v4", backend), 1, seed=0)
        env.reset()
        step = env.step(torch.full((1, 6), action))
        return step.obs, step.score.item()

    (moved, reward), (moved_beyond, reward_beyond) = first_step(1.0), first_step(3.0)
    assert torch.equal(moved, moved_beyond)
    assert reward - reward_beyond == pytest.approx(0.1 * 6 * (3**2 - 1**2), abs=1e-5)  # control cost 0.1·‖a‖²


@pytest.mark.parametrize("id", ["Hopper-v4", "Walker2d-v4", "Hopper-v5"])
def test_both_backends_compute_the_same_physics(id: str) -> None:
    """An episode of EnvPool, replayed by Gymnasium from the same state: equal to rounding until the fall."""
    pool, plain = make_env(spec_of(id, "envpool"), 1, seed=3), make_env(spec_of(id, "gymnasium"), 1, seed=0)
    start = pool.reset()[0].numpy()
    plain.reset()
    simulator = plain._native.envs[0].unwrapped
    velocities = simulator.model.nv  # all are observed, and all positions but x, which has no effect
    simulator.set_state(np.array([0.0, *start[: velocities - 1]]), start[velocities - 1 :])
    rng = torch.Generator().manual_seed(0)
    for _ in range(60):
        action = torch.randn(1, pool.actions.size, generator=rng)
        ours, theirs = pool.step(action), plain.step(action)
        torch.testing.assert_close(ours.obs, theirs.obs, atol=1e-8, rtol=1e-8)
        torch.testing.assert_close(ours.score, theirs.score, atol=1e-5, rtol=1e-5)
        assert torch.equal(ours.terminated, theirs.terminated)
        if ours.terminated:
            return
    raise AssertionError("60 random steps without a fall")


def test_both_backends_start_alike() -> None:
    """Hopper starts within ±0.005 of upright, uniformly, in each of 11 numbers."""
    upright = torch.tensor([1.25] + [0.0] * 10, dtype=torch.float64)
    for backend in BACKENDS:
        noise = make_env(spec_of("Hopper-v4", backend), 200, seed=0).reset() - upright
        assert noise.abs().max() <= 0.005
        assert noise.abs().max(dim=0).values.min() > 0.0045
        assert noise.std().item() == pytest.approx(0.005 / 3**0.5, rel=0.05)


def test_the_stream_does_not_depend_on_threads() -> None:
    pools = [make_env(spec_of("Hopper-v4", "envpool"), 5, seed=0, threads=threads) for threads in (1, 2, 9)]
    first = [pool.reset() for pool in pools]
    assert all(torch.equal(obs, first[0]) for obs in first)
    rng = torch.Generator().manual_seed(0)
    for _ in range(100):
        action = torch.randn(5, 3, generator=rng)
        steps = [pool.step(action) for pool in pools]
        assert all(torch.equal(step.obs, steps[0].obs) for step in steps)
    assert pools[0].steps == pools[2].steps < 500
    assert cores() >= 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_time_limit_truncates_and_a_fall_terminates(backend: str) -> None:
    def end(limit: int) -> tuple[int, bool, bool]:
        env = make_env(spec_of("Hopper-v4", backend, max_episode_steps=limit), 1, seed=0)
        env.reset()
        for t in range(1, 100):
            step = env.step(torch.full((1, 3), 0.5))
            if step.ended.any():
                return t, step.terminated.item(), step.truncated.item()
        raise AssertionError("100 steps without an end")

    fall, *how = end(1000)
    assert how == [True, False]
    assert end(fall - 1) == (fall - 1, False, True)
    # Both at once: EnvPool 1.2.5 tells only of the limit.
    assert end(fall) == (fall, backend == "gymnasium", True)


def test_a_task_is_made_without_a_word_about_its_age(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """MuJoCo from 3.17 on calls HalfCheetah's model deprecated, on stderr and in a file where the user stands."""
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_env(spec_of("HalfCheetah-v4", "gymnasium"), 1, seed=0)
    assert capfd.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == []


if __name__ == "__main__":
    golden = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    for backend in BACKENDS:
        for id in MUJOCO:
            engine, numbers = ten_steps(id, backend)
            golden.setdefault(engine, {})[id] = numbers
    text = json.dumps(golden, indent=1)
    GOLDEN.write_text(text + "\n")
