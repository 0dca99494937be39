"""Files of Stable-Baselines3: our outputs are its outputs, for every algorithm, policy and space that is read."""

import functools
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch import nn

from radial.agents.convert import AGENTS, own
from radial.agents.foreign import WrappedCategorical, WrappedGaussian, WrappedQ
from radial.agents.preprocessing import RunningScale
from radial.agents.saved import load_agent, save
from radial.core.data import BadInput, Continuous, Discrete

sb3 = pytest.importorskip("stable_baselines3", reason="compares with Stable-Baselines3, which is not installed")
torch_layers: Any = pytest.importorskip("stable_baselines3.common.torch_layers")
policies: Any = pytest.importorskip("stable_baselines3.common.policies")
SHARED = Path(os.environ.get("RADIAL_MODELS") or Path(__file__).resolve().parents[4] / "shared" / "models")
MODELS = SHARED / "sb3"


class Blank(gymnasium.Env[Any, Any]):
    """An env that never moves: only its spaces matter."""

    def __init__(self, observation: gymnasium.Space[Any], action: gymnasium.Space[Any]) -> None:
        self.observation_space, self.action_space = observation, action

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return np.zeros(self.observation_space.shape, self.observation_space.dtype), {}  # type: ignore[arg-type]

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.reset()[0], 0.0, False, False, {}


VECTOR = gymnasium.spaces.Box(-5, 5, (3,))
MATRIX = gymnasium.spaces.Box(-5, 5, (2, 3))
PICTURE = gymnasium.spaces.Box(0, 255, (4, 36, 36), np.uint8)
ATARI = gymnasium.spaces.Box(0, 255, (4, 84, 84), np.uint8)
SHARES = gymnasium.spaces.Box(-1, 1, (3, 36, 36), np.float32)
DARK = gymnasium.spaces.Box(0, 100, (3, 8, 8), np.uint8)  # bytes, but no picture to Stable-Baselines3
COLOURS_LAST = gymnasium.spaces.Box(0, 255, (36, 36, 3), np.uint8)
CHOICE, TORQUES = gymnasium.spaces.Discrete(3), gymnasium.spaces.Box(-2, 2, (2,))
SMALL = {"n_steps": 8, "device": "cpu"}
REPLAY = {"buffer_size": 10, "device": "cpu"}
WIDTHS = {"activation_fn": nn.ReLU, "net_arch": {"pi": [8, 4], "vf": [6, 5]}}
RELU = {"activation_fn": nn.ReLU, "net_arch": {"pi": [8], "vf": [16, 5]}}

CASES: dict[str, tuple[str, str, Any, Any, dict[str, Any]]] = {
    "ppo": ("PPO", "MlpPolicy", VECTOR, CHOICE, SMALL),
    "ppo, relu": ("PPO", "MlpPolicy", VECTOR, CHOICE, {**SMALL, "policy_kwargs": RELU}),
    "ppo, no hidden layer": ("PPO", "MlpPolicy", VECTOR, CHOICE, {**SMALL, "policy_kwargs": {"net_arch": []}}),
    "ppo, plain extractor": (
        "PPO", "MlpPolicy", VECTOR, CHOICE,
        {**SMALL, "policy_kwargs": {"features_extractor_class": torch_layers.FlattenExtractor}},
    ),
    "ppo, continuous": ("PPO", "MlpPolicy", VECTOR, TORQUES, SMALL),
    "ppo, gSDE": ("PPO", "MlpPolicy", VECTOR, TORQUES, {**SMALL, "use_sde": True}),
    "ppo, matrix": ("PPO", "MlpPolicy", MATRIX, CHOICE, SMALL),
    "ppo, frames": ("PPO", "CnnPolicy", PICTURE, CHOICE, SMALL),
    "ppo, frames, colours last": ("PPO", "CnnPolicy", COLOURS_LAST, TORQUES, SMALL),
    "ppo, two extractors": (
        "PPO", "CnnPolicy", PICTURE, CHOICE, {**SMALL, "policy_kwargs": {"share_features_extractor": False}}
    ),
    "ppo, frames of -1 … 1": (
        "PPO", "CnnPolicy", SHARES, CHOICE,
        {**SMALL, "policy_kwargs": {
            "normalize_images": False, "features_extractor_kwargs": {"normalized_image": True},
        }},
    ),
    "ppo, dark bytes": ("PPO", "MlpPolicy", DARK, CHOICE, SMALL),
    "a2c": ("A2C", "MlpPolicy", VECTOR, CHOICE, SMALL),
    "a2c, continuous": ("A2C", "MlpPolicy", VECTOR, TORQUES, SMALL),
    "dqn": ("DQN", "MlpPolicy", VECTOR, CHOICE, {**REPLAY, "policy_kwargs": {"net_arch": [8, 9, 10]}}),
    "dqn, narrow": ("DQN", "MlpPolicy", VECTOR, CHOICE, {**REPLAY, "policy_kwargs": {"net_arch": [12, 9, 5]}}),
    "dqn, tanh": ("DQN", "MlpPolicy", VECTOR, CHOICE, {**REPLAY, "policy_kwargs": {"activation_fn": nn.Tanh}}),
    "dqn, silu": ("DQN", "MlpPolicy", VECTOR, CHOICE, {**REPLAY, "policy_kwargs": {"activation_fn": nn.SiLU}}),
    "ppo, gelu": ("PPO", "MlpPolicy", VECTOR, CHOICE, {**SMALL, "policy_kwargs": {"activation_fn": nn.GELU}}),
    "dqn, small frames": ("DQN", "CnnPolicy", PICTURE, CHOICE, REPLAY),
    "dqn, frames": ("DQN", "CnnPolicy", ATARI, CHOICE, REPLAY),
    "a2c, relu": ("A2C", "MlpPolicy", VECTOR, TORQUES, {**SMALL, "policy_kwargs": WIDTHS}),
}  # fmt: skip


NOT_OURS = {
    "ppo, relu": "its policy has 1 hidden layers and its critic 2, not as many",
    "ppo, no hidden layer": "not an MLP of at least 1 hidden layers",
    "ppo, gSDE": "the spread of its actions is not known, or depends on the state",
    "ppo, matrix": "not an MLP",
    "ppo, frames": "a policy of radial sees vectors",
    "ppo, frames, colours last": "a policy of radial sees vectors",
    "ppo, two extractors": "a policy of radial sees vectors",
    "ppo, frames of -1 … 1": "a policy of radial sees vectors",
    "ppo, dark bytes": "not an MLP",
    "dqn, tanh": "not an MLP of at least 2 hidden layers with relu",
    "dqn, silu": "not an MLP of at least 2 hidden layers with relu",
    "ppo, gelu": "not an MLP",
    "dqn, small frames": "the network of Mnih et al",
}


def observations(space: Any) -> Any:
    space.seed(0)
    return np.stack([space.sample() for _ in range(16)])


@pytest.mark.parametrize("case", CASES)
def test_outputs_are_those_of_stable_baselines3(case: str, tmp_path: Path) -> None:
    algorithm, policy, observation, action, settings = CASES[case]
    settings = {"batch_size": 8, **settings} if algorithm == "PPO" else settings
    model = getattr(sb3, algorithm)(policy, Blank(observation, action), seed=0, **settings)
    model.save(tmp_path / "agent.zip")
    agent, obs = load_agent(tmp_path / "agent.zip"), observations(observation)
    x = agent.prepare(torch.from_numpy(obs))
    with torch.no_grad():
        ours, act = agent.scores(x), agent.act(x)
        first = obs if observation is not COLOURS_LAST else obs.transpose(0, 3, 1, 2)
        if algorithm == "DQN":
            theirs = model.q_net(torch.from_numpy(first))
        elif isinstance(action, gymnasium.spaces.Discrete):
            theirs = model.policy.get_distribution(torch.from_numpy(first)).distribution.logits
            ours = ours.log_softmax(-1)
        else:
            theirs = model.policy.get_distribution(torch.from_numpy(first)).distribution.mean
            act = act.clamp(-2, 2)  # what `as_trained` does
        if algorithm != "DQN":
            assert agent.value is not None
            torch.testing.assert_close(
                agent.value(x), model.policy.predict_values(torch.from_numpy(first)).flatten(), atol=1e-6, rtol=1e-6
            )
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(act, torch.from_numpy(model.predict(obs, deterministic=True)[0]), atol=1e-6, rtol=1e-6)
    assert agent.card.recipe["name"] == f"{algorithm} of Stable-Baselines3"
    assert agent.actions == (Discrete(3) if action is CHOICE else Continuous(2))
    if observation in (SHARES, DARK):
        assert agent.valid_range == ((-1.0, 1.0) if observation is SHARES else None)
    if case in NOT_OURS:
        with pytest.raises(BadInput, match=f"init can be audited, but neither trained nor saved: .*{NOT_OURS[case]}"):
            own(agent, "init")
    else:
        check_adopted(agent, obs, tmp_path / "saved")


def check_adopted(agent: Any, obs: Any, folder: Path) -> None:
    """As an agent of ours, trained no further, and read again from our own files: the same outputs."""
    adopted = own(agent, "init")
    again: Any = load_agent(save(agent, folder))
    raw = torch.from_numpy(obs)
    x = agent.prepare(raw)
    agent.double()  # values of 200 are not known to 1e-6 in single precision, neither theirs nor ours
    with torch.no_grad():
        for ours in (adopted, again):
            assert type(ours) in AGENTS.values()
            torch.testing.assert_close(ours.prepare(raw), x.float(), atol=1e-6, rtol=1e-6)
            ours.double()
            x = x.double()
            torch.testing.assert_close(ours.scores(x), agent.scores(x), atol=1e-6, rtol=1e-6)
            torch.testing.assert_close(ours.value(x), agent.value(x), atol=1e-6, rtol=1e-6)
    assert again.card == adopted.card == agent.card
    assert getattr(again, "clips_actions", False) == isinstance(agent, WrappedGaussian)
    assert all(parameter.requires_grad for parameter in adopted.parameters())


def saved(tmp_path: Path, **changes: Any) -> Any:
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    env = VecNormalize(DummyVecEnv([functools.partial(gymnasium.make, "Pendulum-v1")]), **changes)
    model = sb3.PPO("MlpPolicy", env, n_steps=16, batch_size=16, seed=0, device="cpu")
    model.learn(32)
    model.save(tmp_path / "agent.zip")
    return model, env


@pytest.mark.parametrize("name", ["vecnormalize.pkl", "agent_vecnormalize.pkl"])
def test_statistics_that_lie_beside(name: str, tmp_path: Path) -> None:
    model, env = saved(tmp_path, clip_obs=2.0)
    env.save(tmp_path / name)
    agent, obs = (
        load_agent(tmp_path / "agent.zip"),
        3 * np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32),
    )
    assert isinstance(agent.door, RunningScale)
    x = agent.prepare(torch.from_numpy(obs))
    np.testing.assert_allclose(x.numpy(), env.normalize_obs(obs), atol=1e-6)
    theirs = model.policy.get_distribution(torch.from_numpy(env.normalize_obs(obs)).float()).distribution.mean
    torch.testing.assert_close(agent.scores(x), theirs, atol=1e-6, rtol=1e-6)
    assert agent.card.recipe["notes"] == [f"observations are normalised by {name}"]
    check_adopted(agent, obs, tmp_path / "saved")


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_statistics_of_every_protocol(protocol: int, tmp_path: Path) -> None:
    """Python 3.14 writes protocol 5 by default, in which arrays are byte arrays; older ones write 4."""
    _, env = saved(tmp_path)
    env.action_space.seed(0)  # a generator is pickled, too
    (tmp_path / "vecnormalize.pkl").write_bytes(pickle.dumps(env, protocol))
    door: Any = load_agent(tmp_path / "agent.zip").door  # type: ignore[union-attr]
    np.testing.assert_allclose(door.mean, env.obs_rms.mean)
    np.testing.assert_allclose(door.std, np.sqrt(env.obs_rms.var + env.epsilon))


def test_statistics_of_rewards_alone_change_nothing(tmp_path: Path) -> None:
    _, env = saved(tmp_path, norm_obs=False)
    env.save(tmp_path / "vecnormalize.pkl")
    assert not isinstance(load_agent(tmp_path / "agent.zip").door, RunningScale)  # type: ignore[union-attr]


def test_missing_statistics_are_not_guessed(tmp_path: Path) -> None:
    _, env = saved(tmp_path)
    path = tmp_path / "agent.zip"
    with pytest.raises(BadInput, match=r"trained with VecNormalize, whose statistics are missing: pass --vecnormalize"):
        load_agent(path)
    assert not isinstance(load_agent(path, vecnormalize="none").door, RunningScale)  # type: ignore[union-attr]
    with pytest.raises(BadInput, match=r"there is no .*other\.pkl"):
        load_agent(path, vecnormalize=tmp_path / "other.pkl")
    env.save(tmp_path / "other.pkl")
    given: Any = load_agent(path, vecnormalize=tmp_path / "other.pkl").door  # type: ignore[union-attr]
    np.testing.assert_allclose(given.mean, env.obs_rms.mean)
    (tmp_path / "agent").mkdir()  # as the zoo of RL Baselines3 has it
    env.save(tmp_path / "agent/vecnormalize.pkl")
    found: Any = load_agent(path).door  # type: ignore[union-attr]
    np.testing.assert_allclose(found.mean, env.obs_rms.mean)


def test_settings_that_say_so_are_believed_where_the_file_says_nothing(tmp_path: Path) -> None:
    sb3.PPO("MlpPolicy", "CartPole-v1", n_steps=8, batch_size=8, device="cpu").save(tmp_path / "agent.zip")
    (tmp_path / "config.yml").write_text("normalize: true\n")
    with pytest.raises(BadInput, match="statistics are missing: pass --vecnormalize"):
        load_agent(tmp_path / "agent.zip")
    (tmp_path / "config.yml").write_text("normalize: \"{'norm_obs': False}\"\n")
    (tmp_path / "args.yml").write_text("env: CartPole-v1\n")
    assert load_agent(tmp_path / "agent.zip").card.recipe["env_id"] == "CartPole-v1"


def test_an_agent_that_learned_without_statistics_misses_none(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    model = sb3.DQN("MlpPolicy", "CartPole-v1", buffer_size=50, learning_starts=10, device="cpu")
    model.learn(20)
    model.save(tmp_path / "agent.zip")
    agent = load_agent(tmp_path / "agent.zip")
    assert agent.card.recipe["notes"] == []
    assert not [warning for warning in recwarn if "VecNormalize" in str(warning.message)]


def test_statistics_of_another_env_do_not_fit(tmp_path: Path) -> None:
    _, env = saved(tmp_path)
    env.save(tmp_path / "vecnormalize.pkl")
    sb3.PPO("MlpPolicy", Blank(MATRIX, CHOICE), n_steps=8, batch_size=8).save(tmp_path / "agent.zip")
    with pytest.raises(BadInput, match=r"vecnormalize.pkl must fit the agent"):
        load_agent(tmp_path / "agent.zip")


class Doubled(torch_layers.FlattenExtractor):
    """An extractor without weights, which the shapes of the tensors do not tell."""

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(observations)


class Turned(policies.ActorCriticPolicy):
    """A policy whose network gives the logits upside down, which nothing in its weights tells."""

    def _get_action_dist_from_latent(self, latent_pi: torch.Tensor) -> Any:
        return super()._get_action_dist_from_latent(-latent_pi)


def ppo(action: Any = CHOICE, policy: Any = "MlpPolicy", **settings: Any) -> Any:
    return sb3.PPO(policy, Blank(VECTOR, action), n_steps=8, batch_size=8, device="cpu", **settings)


UNREAD: dict[str, tuple[Callable[[], Any], str]] = {
    "activation": (
        lambda: ppo(policy_kwargs={"activation_fn": nn.Mish}),
        "activation_fn must be one of torch.nn's ReLU, Tanh",
    ),
    "own activation by a known name": (
        lambda: ppo(policy_kwargs={"activation_fn": type("ReLU", (nn.Module,), {"forward": lambda self, x: 2 * x})}),
        "activation_fn must be one of torch.nn's ReLU, Tanh",
    ),
    "several choices": (
        lambda: ppo(gymnasium.spaces.MultiDiscrete([2, 3])),
        "actions must be Discrete or a Box",
    ),
    "own extractor": (
        lambda: ppo(policy_kwargs={"features_extractor_class": Doubled}),
        "features_extractor_class must be FlattenExtractor or NatureCNN, got .*Doubled",
    ),
    "own policy": (
        lambda: ppo(policy=Turned),
        "policy_class must be one of Stable-Baselines3's own, got one of '.*sb3_test'",
    ),
}


@pytest.mark.parametrize("case", UNREAD)
def test_what_is_not_read_is_one_line(case: str, tmp_path: Path) -> None:
    make, says = UNREAD[case]
    make().save(tmp_path / "agent.zip")
    with pytest.raises(BadInput, match=says):
        load_agent(tmp_path / "agent.zip")


RELEASED = {
    "dqn-CartPole-v1/CartPole-v1.zip": WrappedQ,
    "ppo-CartPole-v1/CartPole-v1.zip": WrappedCategorical,
    "ppo-Hopper-v3/Hopper-v3.zip": WrappedGaussian,
}


@pytest.mark.parametrize("name", RELEASED)
def test_released_agents(name: str, tmp_path: Path) -> None:
    if not (MODELS / name).is_file():
        pytest.skip(f"{MODELS / name} is not here")
    agent = load_agent(MODELS / name)
    assert type(agent) is RELEASED[name]
    assert agent.observation_shape == ((11,) if "Hopper" in name else (4,))
    assert isinstance(agent.door, RunningScale) == ("Hopper" in name)  # type: ignore[union-attr]
    obs = np.random.default_rng(0).normal(size=(64, *agent.observation_shape)).astype(np.float32)
    check_adopted(agent, obs, tmp_path / "saved")
