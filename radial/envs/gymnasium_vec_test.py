"""The adapter: what it records is what happened, and what it cannot adapt it refuses."""

import subprocess
import sys
from functools import partial

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from radial.core.data import BadInput, EnvSpec
from radial.envs.contract import EnvFault
from radial.envs.counting import Counting, make_counting
from radial.envs.gymnasium_vec import GymnasiumVec

SPEC = EnvSpec("gymnasium", "Test-v0")
ENGINE = {"backend": "gymnasium", "version": "0", "simulator": "none"}


def adapt(native: VectorEnv, **keywords: object) -> GymnasiumVec:
    return GymnasiumVec(native, SPEC, engine=ENGINE, timeout=None, **keywords)


def test_transitions_of_the_counting_env_equal_the_list_written_by_hand() -> None:
    env = make_counting(2)
    obs = env.reset()
    happened: list[list[tuple[int, ...]]] = [[], []]
    for time in range(9):
        step = env.step(torch.tensor([time, 9 - time]))
        for i in range(2):
            if step.real[i]:
                _, episode, before = obs[i].int().tolist()
                _, same_episode, after = step.obs[i].int().tolist()
                assert episode == same_episode, "a transition never crosses an end"
                ends = "terminated" if step.terminated[i] else "truncated" if step.truncated[i] else ""
                happened[i].append((episode, before, after, int(step.score[i]), ends))
        obs = step.obs
    assert happened[0] == [
        # episode, steps before, steps after, reward = env·1000 + episode·100 + step·10 + action, end
        (0, 0, 1, 10, ""),
        (0, 1, 2, 21, ""),
        (0, 2, 3, 32, "terminated"),  # action 3 is ignored: a reset row
        (1, 0, 1, 114, ""),
        (1, 1, 2, 125, "truncated"),  # action 6 is ignored
        (2, 0, 1, 217, ""),
        (2, 1, 2, 228, ""),
    ]
    assert happened[1] == [
        (0, 0, 1, 1019, ""),
        (0, 1, 2, 1028, "truncated"),  # action 7 is ignored
        (1, 0, 1, 1116, ""),
        (1, 1, 2, 1125, ""),
        (1, 2, 3, 1134, "terminated"),  # action 3 is ignored
        (2, 0, 1, 1212, ""),
        (2, 1, 2, 1221, "truncated"),
    ]
    assert env.steps == 14


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED])
def test_other_ways_to_reset_are_refused(mode: AutoresetMode) -> None:
    with pytest.raises(BadInput, match=f"autoreset_mode .* must be NEXT_STEP, got {mode.name}"):
        adapt(SyncVectorEnv([partial(Counting, 0)], autoreset_mode=mode))


def test_an_env_that_only_claims_to_reset_on_the_next_step_is_found_out() -> None:
    native = SyncVectorEnv([partial(Counting, 1)], autoreset_mode=AutoresetMode.SAME_STEP)
    native.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
    env = adapt(native)
    env.reset()
    action = torch.tensor([0])
    env.step(action)
    assert env.step(action).truncated.item()
    with pytest.raises(EnvFault, match="env 0 did not reset itself at step 3"):
        env.step(action)


class Broken(gymnasium.Env):
    """An env whose spaces, observation and reward are set from outside."""

    def __init__(self, observation: float = 0.0, reward: float = 0.0) -> None:
        self.observation_space = gymnasium.spaces.Box(-1, 1, (2,))
        self.action_space = gymnasium.spaces.Discrete(2)
        self.observation, self.reward = observation, reward

    def reset(self, **_: object) -> tuple[np.ndarray, dict]:
        return np.zeros(2, dtype=np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        bad = action == 1
        obs = np.array([0, self.observation if bad else 0], dtype=np.float32)
        return obs, self.reward if bad else 1.0, False, False, {}


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["observation", "reward"])
def test_nan_and_inf_name_the_env_and_the_step(name: str, value: float) -> None:
    env = adapt(SyncVectorEnv([Broken, Broken, partial(Broken, **{name: value})]))
    env.reset()
    env.step(torch.tensor([0, 0, 0]))
    with pytest.raises(EnvFault, match=rf"env 2 gave .*{name}.* at step 2 of gymnasium/Test-v0"):
        env.step(torch.tensor([0, 0, 1]))


def test_a_wrong_shape_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    native = SyncVectorEnv([Broken, Broken])
    env = adapt(native)
    env.reset()
    done = np.zeros(2, dtype=bool)
    answer = (np.zeros((2, 3), dtype=np.float32), np.zeros(2), done, done, {})
    monkeypatch.setattr(native, "step", lambda _: answer)
    with pytest.raises(EnvFault, match=r"observations of shape \(2, 3\) instead of \(2, 2\) at step 1"):
        env.step(torch.tensor([0, 0]))


spaces = gymnasium.spaces


@pytest.mark.parametrize(
    ("name", "space"),
    [
        ("observation", spaces.Discrete(3)),
        ("observation", spaces.Box(0, 1, ())),
        ("observation", spaces.Box(0, 1, (1, 2, 3, 4))),
        ("observation", spaces.Box(0, 1, (2,), np.float16)),
        ("observation", spaces.Dict({"a": spaces.Discrete(2)})),
        ("action", spaces.MultiDiscrete([2, 3])),
        ("action", spaces.Discrete(3, start=1)),
        ("action", spaces.Box(-1, 1, (2, 2))),
        ("action", spaces.Box(0, 9, (2,), np.int64)),
    ],
)
def test_a_space_we_do_not_understand_is_named(name: str, space: gymnasium.Space) -> None:
    def make() -> Broken:
        env = Broken()
        setattr(env, f"{name}_space", space)
        return env

    with pytest.raises(BadInput, match=f"{name} space must be .*, got {type(space).__name__}"):
        adapt(SyncVectorEnv([make]))


def test_images_keep_their_type() -> None:
    def make() -> Broken:
        env = Broken()
        env.observation_space = spaces.Box(0, 255, (4, 84, 84), np.uint8)
        env.reset = lambda **_: (np.full((4, 84, 84), 200, dtype=np.uint8), {})
        return env

    env = adapt(SyncVectorEnv([make]))
    assert env.observation_shape == (4, 84, 84)
    assert env.reset().dtype == torch.uint8


def test_life_has_an_order() -> None:
    env = make_counting(1)
    with pytest.raises(RuntimeError, match="before the first step"):
        env.step(torch.tensor([0]))
    env.reset()
    with pytest.raises(RuntimeError, match="reset already"):
        env.reset()
    env.close()
    with pytest.raises(RuntimeError, match="closed"):
        env.reset()


FORK = """
import os, torch
from radial.envs.make import make_env, spec_for
env = make_env(spec_for({id!r}), 2, 0)
env.reset()
action = torch.zeros(2, {size})
env.step(action)
if os.fork() == 0:
    try:
        env.step(action)
    except RuntimeError as error:
        print(error, flush=True)
    env.close()  # not the child's to close: nothing happens
    os._exit(0)
os.wait()
env.step(action)
"""


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="this system cannot fork")
@pytest.mark.parametrize(("id", "size"), [("Pendulum-v1", 1), ("Hopper-v4", 3)])
def test_a_forked_child_is_told_instead_of_hanging(id: str, size: int) -> None:
    if id == "Hopper-v4":
        pytest.importorskip("envpool", reason="EnvPool is not installed")
    script = FORK.format(id=id, size=size)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert "do not survive a fork; start processes with spawn" in done.stdout
