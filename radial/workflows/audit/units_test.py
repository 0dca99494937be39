"""ε against what is observed: default radii, warnings, the env's units in words, and names."""

import pytest
import torch
from torch import nn

from radial.agents.foreign import wrap
from radial.agents.preprocessing import RunningScale
from radial.core.data import EnvSpec
from radial.workflows.audit.names import action_names, feature_names
from radial.workflows.audit.states import Visited
from radial.workflows.audit.units import epsilon_in_words, ladder, spread_of, too_large

MOUNTAIN_CAR = torch.tensor([1.8, 0.14], dtype=torch.float64)  # the whole range of position and velocity
NAMES = ("position", "velocity")


def test_default_radii_scale_with_the_narrowest_feature() -> None:
    agent = wrap(nn.Linear(2, 3), "q", observation_shape=(2,))
    assert ladder(agent, MOUNTAIN_CAR, frames=False) == (0.0014, 0.0035, 0.007, 0.014, 0.035)
    still = torch.tensor([1.8, 0.0, 1e-6], dtype=torch.float64)  # those that hardly move do not count
    assert max(ladder(agent, still, frames=False)) == pytest.approx(0.45)
    assert max(ladder(agent, torch.zeros(2, dtype=torch.float64), frames=False)) == 0.25
    scaled = wrap(nn.Linear(2, 3), "q", RunningScale(torch.zeros(2), torch.ones(2), 10.0, 0.0, 9.0))
    assert max(ladder(scaled, MOUNTAIN_CAR, frames=False)) == 0.15  # standard deviations


def test_the_spread_is_that_of_the_visited_states() -> None:
    x = torch.tensor([[0.0, 1.0], [2.0, 1.5], [-1.0, 1.2]])
    assert spread_of(Visited(x, torch.zeros(3, dtype=torch.int64), 3)).tolist() == [3.0, 0.5]


def test_an_epsilon_large_against_what_is_observed_is_warned_about() -> None:
    said = too_large([0.01, 0.1], MOUNTAIN_CAR, NAMES)
    assert said is not None
    assert "ε = 0.1: large against what is observed" in said
    assert "71 % of the range in which 'velocity' moves" in said
    assert too_large([0.01, 0.05], MOUNTAIN_CAR, NAMES) is None


def test_epsilon_in_the_envs_units_is_one_line() -> None:
    assert epsilon_in_words(0.02, [0.02, 0.02], NAMES) == "ε = 0.02 in the environment's units: ± 0.02 in every feature"
    assert str(epsilon_in_words(0.1, [0.2, 0.05], NAMES)).endswith("from ± 0.05 (velocity) to ± 0.2 (position)")
    assert str(epsilon_in_words(3 / 255, [3.0], ())).endswith("± 3 in every pixel")
    assert epsilon_in_words(0.1, None, NAMES) is None


@pytest.mark.parametrize(
    ("env", "count", "first", "last"),
    [
        ("Hopper-v4", 11, "height", "foot rotation"),
        ("Walker2d-v4", 17, "height", "left foot rotation"),
        ("HalfCheetah-v5", 17, "height", "front foot rotation"),
        ("Ant-v4", 27, "height", "ankle 4 rotation"),
        ("Ant-v5", 105, "height", "contact force 77"),
        ("Humanoid-v4", 376, "height", "contact force 83"),
        ("Humanoid-v5", 348, "height", "contact force 77"),
        ("Swimmer-v4", 8, "front angle", "joint 2 rotation"),
        ("BipedalWalker-v3", 24, "hull angle", "lidar 9"),
        ("LunarLander-v3", 8, "x", "right leg"),
        ("MountainCar-v0", 2, "position", "velocity"),
        ("Unknown-v0", 2, "feature 0", "feature 1"),
    ],
)
def test_names_of_features(env: str, count: int, first: str, last: str) -> None:
    names = feature_names(EnvSpec("gymnasium", env), count)
    assert (len(names), names[0], names[-1]) == (count, first, last)
    assert len(set(names)) == count


def test_names_of_actions() -> None:
    assert action_names(EnvSpec("mujoco", "HalfCheetah-v4"), 6)[0] == "back thigh"
    assert action_names(EnvSpec("gymnasium", "LunarLander-v3"), 4)[2] == "main engine"
    assert action_names(EnvSpec("gymnasium", "BipedalWalker-v3"), 4) == ["hip 1", "knee 1", "hip 2", "knee 2"]
    assert action_names(EnvSpec("gymnasium", "Unknown-v0"), 2) == ["action 0", "action 1"]


def test_names_of_buttons() -> None:
    pytest.importorskip("ale_py")
    assert action_names(EnvSpec("atari", "Pong"), 6) == ["nothing", "fire", "right", "left", "right fire", "left fire"]
    assert action_names(EnvSpec("atari", "Freeway"), 3) == ["nothing", "up", "down"]
