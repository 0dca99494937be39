"""SAC, TD3, DDPG, TQC, QR-DQN, ARS and TRPO: our actions are their `predict`, and bounds hold through the last tanh."""

import copy
import functools
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch import nn

from radial.agents.convert import own
from radial.agents.foreign import WrappedGaussian, WrappedQ
from radial.agents.importers.sb3_test import ATARI, CHOICE, COLOURS_LAST, PICTURE, VECTOR, Blank, observations
from radial.agents.saved import load_agent
from radial.attacks.gradient import MAD, PGD
from radial.bounds.methods import METHODS, sound
from radial.core.data import BadInput, Continuous, Discrete
from radial.workflows.audit.audit import audit

sb3 = pytest.importorskip("stable_baselines3", reason="compares with Stable-Baselines3, which is not installed")
contrib = pytest.importorskip("sb3_contrib", reason="compares with sb3-contrib, which is not installed")
LOPSIDED = gymnasium.spaces.Box(np.array([-2.0, 0.1], np.float32), np.array([0.5, 30.0], np.float32))
OFF = {"buffer_size": 10, "device": "cpu"}
TINY = {**OFF, "policy_kwargs": {"net_arch": [8, 9]}}
TANH = {"net_arch": [6], "activation_fn": nn.Tanh}
CPU = {"device": "cpu"}

CASES: dict[str, tuple[str, str, Any, Any, dict[str, Any]]] = {
    "sac": ("SAC", "MlpPolicy", VECTOR, LOPSIDED, TINY),
    "sac, library's sizes": ("SAC", "MlpPolicy", VECTOR, LOPSIDED, OFF),
    "sac, tanh": ("SAC", "MlpPolicy", VECTOR, LOPSIDED, {**OFF, "policy_kwargs": TANH}),
    "sac, no hidden layer": ("SAC", "MlpPolicy", VECTOR, LOPSIDED, {**OFF, "policy_kwargs": {"net_arch": []}}),
    "sac, gSDE": ("SAC", "MlpPolicy", VECTOR, LOPSIDED, {**TINY, "use_sde": True}),
    "sac, gSDE, clip": (
        "SAC", "MlpPolicy", VECTOR, LOPSIDED,
        {**OFF, "use_sde": True, "policy_kwargs": {"net_arch": [8], "clip_mean": 0.05}},
    ),
    "sac, gSDE, no clip": (
        "SAC", "MlpPolicy", VECTOR, LOPSIDED,
        {**OFF, "use_sde": True, "policy_kwargs": {"net_arch": [8], "clip_mean": 0.0}},
    ),
    "sac, frames": ("SAC", "CnnPolicy", COLOURS_LAST, LOPSIDED, TINY),
    "td3": ("TD3", "MlpPolicy", VECTOR, LOPSIDED, TINY),
    "td3, frames": ("TD3", "CnnPolicy", PICTURE, LOPSIDED, TINY),
    "ddpg": ("DDPG", "MlpPolicy", VECTOR, LOPSIDED, TINY),
    "tqc": ("TQC", "MlpPolicy", VECTOR, LOPSIDED, TINY),
    "qr-dqn": ("QRDQN", "MlpPolicy", VECTOR, CHOICE, {**OFF, "policy_kwargs": {"net_arch": [8, 9], "n_quantiles": 7}}),
    "qr-dqn, library's sizes": ("QRDQN", "MlpPolicy", VECTOR, CHOICE, OFF),
    "qr-dqn, frames": ("QRDQN", "CnnPolicy", ATARI, CHOICE, {**OFF, "policy_kwargs": {"n_quantiles": 5}}),
    "ars": ("ARS", "MlpPolicy", VECTOR, LOPSIDED, CPU),
    "ars, linear": ("ARS", "LinearPolicy", VECTOR, LOPSIDED, CPU),
    "ars, linear, squashed": (
        "ARS", "LinearPolicy", VECTOR, LOPSIDED, {**CPU, "policy_kwargs": {"squash_output": True, "with_bias": True}}
    ),
    "ars, mlp of one layer": ("ARS", "MlpPolicy", VECTOR, LOPSIDED, {**CPU, "policy_kwargs": {"net_arch": []}}),
    "ars, discrete": ("ARS", "MlpPolicy", VECTOR, CHOICE, CPU),
    "ars, linear, discrete": ("ARS", "LinearPolicy", VECTOR, CHOICE, CPU),
    "trpo": ("TRPO", "MlpPolicy", VECTOR, CHOICE, {**CPU, "n_steps": 8, "batch_size": 8}),
    "trpo, continuous": ("TRPO", "MlpPolicy", VECTOR, LOPSIDED, {**CPU, "n_steps": 8, "batch_size": 8}),
    "ppo, squashed": (
        "PPO", "MlpPolicy", VECTOR, LOPSIDED,
        {**CPU, "n_steps": 8, "batch_size": 8, "use_sde": True, "policy_kwargs": {"squash_output": True}},
    ),
}  # fmt: skip
NAMES = {"QRDQN": "QR-DQN"}


def model_of(case: str) -> Any:
    algorithm, policy, observation, action, settings = CASES[case]
    make = getattr(sb3, algorithm, None) or getattr(contrib, algorithm)
    model = make(policy, Blank(observation, action), seed=0, **copy.deepcopy(settings))  # which it changes
    with torch.no_grad():
        for parameter in model.policy.parameters():  # ARS starts at zero, and small outputs would hide the tanh
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    return model


@pytest.mark.parametrize("case", CASES)
def test_actions_are_those_of_predict(case: str, tmp_path: Path) -> None:
    algorithm, _, observation, action, _ = CASES[case]
    model = model_of(case)
    model.save(tmp_path / "agent.zip")
    agent, obs = load_agent(tmp_path / "agent.zip"), observations(observation)
    with torch.no_grad():
        x = agent.prepare(torch.from_numpy(obs))
        act = agent.act(x)
    theirs = torch.from_numpy(model.predict(obs, deterministic=True)[0])
    if action is LOPSIDED:
        act = act.clamp(torch.from_numpy(action.low), torch.from_numpy(action.high))  # the env's box
        assert len(theirs.unique(dim=0)) > 1
        assert agent.clips_actions
    torch.testing.assert_close(act, theirs, atol=1e-5, rtol=1e-5)
    assert agent.card.recipe["name"] == f"{NAMES.get(algorithm, algorithm)} of Stable-Baselines3"
    assert agent.actions == (Discrete(3) if action is CHOICE else Continuous(2))
    if algorithm == "QRDQN":
        with torch.no_grad():
            values = model.policy.quantile_net(torch.from_numpy(obs)).mean(1)
        torch.testing.assert_close(agent.scores(x), values, atol=1e-5, rtol=1e-5)
        assert own(agent, "init").actions == Discrete(3)  # it can be fine-tuned as a DQN agent


@pytest.mark.parametrize("case", ["sac", "sac, gSDE, clip", "td3", "ars", "ppo, squashed", "qr-dqn"])
def test_bounds_hold_through_the_tanh(case: str, tmp_path: Path) -> None:
    """The box of every method holds all sampled actions, and lies inside the env's."""
    model = model_of(case)
    model.save(tmp_path / "agent.zip")
    agent = load_agent(tmp_path / "agent.zip")
    assert isinstance(agent, WrappedGaussian | WrappedQ)
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(4, 3, generator=rng)
    ball = agent.ball(x, 0.1)
    noise = 0.1 * (2 * torch.rand(200, 4, 3, generator=rng) - 1)
    with torch.no_grad():
        sampled = torch.stack([agent.choice(ball.project(x + each)) for each in noise])
    for method in METHODS.values():
        for bounds in (method(agent.choice, ball), sound(method)(agent.choice, ball)):
            assert (bounds.lower <= sampled.amin(0) + 1e-5).all()
            assert (bounds.upper >= sampled.amax(0) - 1e-5).all()
    if isinstance(agent, WrappedGaussian):
        box = sound("ibp")(agent.choice, ball)
        assert (box.lower >= torch.from_numpy(LOPSIDED.low) - 1e-3).all()
        assert (box.upper <= torch.from_numpy(LOPSIDED.high) + 1e-3).all()
    for attack in (MAD(), PGD()):
        if isinstance(agent, WrappedQ) or isinstance(attack, MAD):
            assert (attack.perturb(agent, ball, rng) - x).abs().max() <= 0.1 + 1e-6


@pytest.mark.parametrize("algorithm", ["SAC", "TD3", "DDPG"])
def test_statistics_that_a_file_cannot_tell_of_are_a_note(algorithm: str, tmp_path: Path) -> None:
    """Off-policy files keep raw observations with and without VecNormalize; its statistics are taken where they lie."""
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    path = tmp_path / "agent.zip"
    env = VecNormalize(DummyVecEnv([functools.partial(gymnasium.make, "Pendulum-v1")]), clip_obs=2.0)
    model = getattr(sb3, algorithm)("MlpPolicy", env, seed=0, learning_starts=8, **copy.deepcopy(TINY))
    model.learn(16)
    model.save(path)
    (note,) = load_agent(path).card.recipe["notes"]
    assert "without VecNormalize, which its file cannot tell" in note
    assert load_agent(path, vecnormalize="none").card.recipe["notes"] == []
    env.save(tmp_path / "vecnormalize.pkl")
    agent, obs = load_agent(path), np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    assert agent.card.recipe["notes"] == ["observations are normalised by vecnormalize.pkl"]
    theirs = model.predict(env.normalize_obs(obs), deterministic=True)[0]
    with torch.no_grad():
        torch.testing.assert_close(
            agent.act(agent.prepare(torch.from_numpy(obs))), torch.from_numpy(theirs), atol=1e-5, rtol=1e-5
        )


LATER = [pytest.param(algorithm, marks=pytest.mark.nightly) for algorithm in ("TD3", "DDPG")]


@pytest.mark.parametrize("algorithm", ["SAC", *LATER])
def test_an_actor_is_audited_from_end_to_end(algorithm: str, tmp_path: Path) -> None:
    path = tmp_path / "Pendulum-v1.zip"
    getattr(sb3, algorithm)("MlpPolicy", "Pendulum-v1", seed=0, **copy.deepcopy(TINY)).save(path)
    result = audit(path, radius=[0.05], episodes=1, attacks=["mad"], bound="ibp", trace=False)
    (level,) = result.levels
    assert level.attacks["mad"].mean < 0
    assert level.box is not None
    assert 0 < level.box["width"] <= 4  # torques from −2 to 2


def box(**changes: str) -> Any:
    from radial.agents.importers.sb3_facts import facts_of

    space = {":type:": "<class 'gymnasium.spaces.box.Box'>", "low": "[-1. -2.]", "high": "[1. 2.]"}
    return facts_of(Path("a.zip"), {"action_space": space | changes})


@pytest.mark.parametrize("low", ["[-1. ... -1.]", "[-1.]", "[-inf -1.]", "[nan 1]", "[a b]", "", "[0 1 2]", None])
def test_a_box_that_is_not_told_in_full(low: Any) -> None:
    assert box().box(Path("a.zip"), 2) == ([-1.0, -2.0], [1.0, 2.0])
    with pytest.raises(BadInput, match="the low of action_space must be 2 finite numbers"):
        box(low=low).box(Path("a.zip"), 2)


def test_other_algorithms_are_named(tmp_path: Path) -> None:
    contrib.CrossQ("MlpPolicy", Blank(VECTOR, LOPSIDED), **copy.deepcopy(TINY)).save(tmp_path / "agent.zip")
    with pytest.raises(BadInput, match=r"PPO, A2C, DQN, SAC, .* are read, this is a policy of CrossQ; .*rr\.wrap"):
        load_agent(tmp_path / "agent.zip")
    contrib.MaskablePPO("MlpPolicy", Blank(VECTOR, CHOICE), n_steps=8, batch_size=8).save(tmp_path / "agent.zip")
    with pytest.raises(BadInput, match=r"maskable policies are not supported.*rr\.wrap"):
        load_agent(tmp_path / "agent.zip")
    contrib.RecurrentPPO("MlpLstmPolicy", Blank(VECTOR, CHOICE), n_steps=8).save(tmp_path / "agent.zip")
    with pytest.raises(BadInput, match=r"recurrent policies are not supported.*rr\.wrap"):
        load_agent(tmp_path / "agent.zip")
