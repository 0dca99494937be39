"""Reads the `.cleanrl_model` files of CleanRL's scripts: state dicts, told apart by the names of their tensors.

Known are dqn, dqn_atari, ppo, ppo_atari, ppo_continuous_action (and its kin), ddpg and td3.
"""

import warnings
from pathlib import Path

from torch import nn

from radial.agents.foreign import WrappedAgent, wrap
from radial.agents.importers.archive import file_source, read_archive
from radial.agents.importers.parts import Parts, network
from radial.agents.importers.sb3_policies import RECURRENT
from radial.agents.preprocessing import Frames
from radial.core.agent import Card
from radial.core.data import BadInput

KNOWN = "dqn, dqn_atari, ppo, ppo_atari, ppo_continuous_action, ddpg and td3"
UNNORMALIZED = (
    "CleanRL does not save the running normaliser of observations: if the training had one, "
    "load the weights in Python and give rr.wrap your own prepare"
)


def read_cleanrl(path: Path) -> WrappedAgent:
    """The agent of a `.cleanrl_model`."""
    data = read_archive(path)
    if isinstance(data, tuple) and data:
        agent, name = _deterministic(path, Parts(path, data[0])), "DDPG or TD3"
    elif isinstance(data, dict) and "model_weights" in data:
        raise BadInput(f"{path}: C51 is not read: its action is the best mean of a distribution; known are {KNOWN}")
    else:
        agent, name = _from_dict(path, Parts(path, data))
    agent.card = Card(
        env=None, recipe={"name": f"{name} of CleanRL"}, source=file_source(path)
    )  # fmt: skip
    return agent


def _from_dict(path: Path, parts: Parts) -> tuple[WrappedAgent, str]:
    if parts.starts("lstm"):
        raise BadInput(f"{path}: {RECURRENT}")
    if parts.has("atoms") or parts.has("supports"):
        raise BadInput(f"{path}: C51 is not read: its action is the best mean of a distribution; known are {KNOWN}")
    weight = parts.tensors.get("network.0.weight")
    if weight is not None and weight.ndim == 4:
        return _frames(parts)
    if weight is not None:
        layers = parts.mlp("network", nn.ReLU)[:-1]
        parts.finish()
        return wrap(network(layers), "q", observation_shape=_inputs(layers)), "DQN"
    if parts.starts("actor.0."):
        return _ppo(parts, "actor"), "PPO"
    if parts.starts("actor_mean.0."):
        warnings.warn(UNNORMALIZED, UserWarning, stacklevel=5)
        return _ppo(parts, "actor_mean"), "PPO"
    raise BadInput(f"{path}: no script of CleanRL that is known here names its tensors so; known are {KNOWN}")


def _frames(parts: Parts) -> tuple[WrappedAgent, str]:
    """One trunk for pictures; behind it action values, or an actor and a critic."""
    trunk, channels = parts.nature("network")
    trunk += [parts.linear("network.7"), nn.ReLU()]
    q = not parts.has("actor.weight")
    actor = [*trunk, parts.linear("network.9" if q else "actor")]
    critic = None if q else network([*trunk, parts.linear("critic")])
    parts.finish()
    door, limits = Frames(channels), (0.0, 1.0)
    agent = wrap(network(actor), "q" if q else "categorical", door, critic=critic, valid_range=limits)
    return agent, "DQN" if q else "PPO"


def _ppo(parts: Parts, name: str) -> WrappedAgent:
    """Two tanh networks, for logits or means and for the value."""
    actor, critic = parts.mlp(name, nn.Tanh)[:-1], parts.mlp("critic", nn.Tanh)[:-1]
    spread = parts.take("actor_logstd").flatten() if name == "actor_mean" else None
    parts.finish()
    return wrap(
        network(actor), "categorical" if spread is None else "gaussian", observation_shape=_inputs(actor),
        critic=network(critic), log_std=spread, clips_actions=spread is not None,
    )  # fmt: skip


def _deterministic(path: Path, parts: Parts) -> WrappedAgent:
    """A ReLU network whose tanh is stretched to the box of actions; its critics judge pairs and are left out."""
    layers: list[nn.Module] = []
    for name in ("fc1", "fc2"):
        layers += [parts.linear(name), nn.ReLU()]
    layers += [parts.linear("fc_mu"), nn.Tanh()]
    scale, bias = parts.take("action_scale").flatten(), parts.take("action_bias").flatten()
    parts.finish()
    last = layers[-2]
    assert isinstance(last, nn.Linear)
    if not scale.shape == bias.shape == (last.out_features,):
        raise BadInput(f"{path}: action_scale and action_bias must have {last.out_features} numbers")
    return wrap(
        network([*layers, parts.stretch(scale, bias)]),
        "gaussian",
        observation_shape=_inputs(layers),
        clips_actions=True,
    )


def _inputs(layers: list[nn.Module]) -> tuple[int, ...]:
    first = layers[0]
    assert isinstance(first, nn.Linear)
    return (first.in_features,)
