"""The policies of Stable-Baselines3 and sb3-contrib as agents, from the names and shapes of their tensors.

| tensors | algorithm | the network that decides |
|---|---|---|
| action_net, value_net | PPO, A2C, TRPO | logits or means; with squash_output a tanh, stretched to the box |
| q_net | DQN | action values |
| quantile_net | QR-DQN | the mean of the quantiles of each action |
| actor.latent_pi, actor.mu | SAC, TQC | the mean, its tanh, stretched to the box of actions |
| actor.mu.0 … | TD3, DDPG | the same |
| action_net.0 … | ARS | logits or means; continuous ones with a tanh unless the policy is linear |
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from radial.agents.foreign import WrappedAgent, WrappedGaussian, wrap
from radial.agents.importers.parts import Parts, network, outputs_of
from radial.agents.importers.sb3_facts import Facts
from radial.agents.preprocessing import AsFloat, Frames
from radial.core.data import BadInput

RECURRENT = "recurrent policies are not supported: an observation alone does not decide their action"
KNOWN = "PPO, A2C, DQN, SAC, TD3, DDPG, QR-DQN, TQC, ARS and TRPO"
CLIP_MEAN = 2.0  # what gSDE cuts the mean of SAC and TQC to, unless told
QUANTILES = 200  # of QR-DQN, unless told


def policy_of(path: Path, parts: Parts, facts: Facts) -> tuple[WrappedAgent, str]:
    """The agent whose tensors these are, and the name of its algorithm."""
    if any("lstm" in name or ".rnn" in name for name in parts.tensors):
        raise BadInput(f"{path}: {RECURRENT}")
    if any(".extractors." in name for name in parts.tensors):
        raise BadInput(f"{path}: observations must be one array; policies of several (MultiInputPolicy) are not read")
    if any(name.endswith(".ra_mean") for name in parts.tensors):
        raise BadInput(f"{path}: {KNOWN} of Stable-Baselines3 are read, this is a policy of CrossQ")
    for prefix, read in READERS.items():
        if parts.starts(prefix):
            return read(path, parts, facts)
    raise BadInput(f"{path}: {KNOWN} of Stable-Baselines3 are read, this is a policy of an unknown algorithm")


# ------------------------------------------------------------------------------------------------------ action values


def _dqn(path: Path, parts: Parts, facts: Facts) -> tuple[WrappedAgent, str]:
    parts.drop("q_net_target.")
    features, door = _features(parts, facts, "q_net.features_extractor")
    head = parts.mlp("q_net.q_net", facts.activation(path, nn.ReLU), _width(features))[:-1]
    return _wrapped(path, "q", [*features, *head], [], door, facts), "DQN"


def _qrdqn(path: Path, parts: Parts, facts: Facts) -> tuple[WrappedAgent, str]:
    """The mean over quantiles is linear, so it goes into the last layer, whose rows are (quantile, action)."""
    parts.drop("quantile_net_target.")
    features, door = _features(parts, facts, "quantile_net.features_extractor")
    head = parts.mlp("quantile_net.quantile_net", facts.activation(path, nn.ReLU), _width(features))[:-1]
    last = head[-1] if head else None
    if not isinstance(last, nn.Linear):
        raise BadInput(f"{path}: quantile_net.quantile_net.0.weight is missing")
    quantiles, actions = int(facts.number(path, "n_quantiles", QUANTILES)), facts.actions.get("n")
    count = int(actions) if isinstance(actions, str) and actions.isascii() and actions.isdigit() else actions
    if type(count) is not int or count < 1 or quantiles < 1 or count * quantiles != last.out_features:
        raise BadInput(
            f"{path}: the last layer must have a row for each quantile of each action, "
            f"{quantiles} × {str(actions)[:20]}, got {last.out_features}"
        )
    mean = nn.utils.skip_init(nn.Linear, last.in_features, count)
    with torch.no_grad():
        mean.weight.copy_(last.weight.double().view(quantiles, count, -1).mean(0))
        mean.bias.copy_(last.bias.double().view(quantiles, count).mean(0))
    return _wrapped(path, "q", [*features, *head[:-1], mean], [], door, facts), "QR-DQN"


# ----------------------------------------------------------------------------------------------------------- policies


def _actor_critic(path: Path, parts: Parts, facts: Facts) -> tuple[WrappedAgent, str]:
    activation = facts.activation(path, nn.Tanh)
    own = parts.starts("pi_features_extractor.")
    features, door = _features(parts, facts, "pi_features_extractor" if own else "features_extractor")
    judged = features
    if own and parts.starts("vf_features_extractor."):
        judged, _ = _features(parts, facts, "vf_features_extractor")
    parts.drop("features_extractor.", "pi_features_extractor.", "vf_features_extractor.")
    shared = parts.mlp("mlp_extractor.shared_net", activation, _width(features))
    start = _width(shared) or _width(features)
    policy = parts.mlp("mlp_extractor.policy_net", activation, start)
    value = parts.mlp("mlp_extractor.value_net", activation, start)
    actor = [*features, *shared, *policy, parts.linear("action_net", _width(policy) or start)]
    critic = [*judged, *shared, *value, parts.linear("value_net", _width(value) or start)]
    name = "PPO" if "n_epochs" in facts.fields else "TRPO" if "cg_max_steps" in facts.fields else "A2C"
    squashed = facts.squashes(path, default=False)
    if squashed and not parts.has("log_std"):
        raise BadInput(f"{path}: squash_output must be false where actions are discrete")
    if not parts.has("log_std"):
        return _wrapped(path, "categorical", actor, critic, door, facts), name
    if squashed:
        actor = _squashed(path, parts, facts, actor)
    agent = _wrapped(path, "gaussian", actor, critic, door, facts)
    log_std = parts.take("log_std")
    assert isinstance(agent, WrappedGaussian)
    # Two axes: the spread depends on s. Squashed: it is that of a variable before the tanh.
    agent.log_std = log_std if log_std.shape == (agent.actions.size,) and not squashed else None
    return agent, name


def _actor(path: Path, parts: Parts, facts: Facts) -> tuple[WrappedAgent, str]:
    """The actor of SAC, TQC, TD3 or DDPG; its critics judge pairs of state and action and are left out."""
    few = not parts.starts("critic.qf1.")
    parts.drop("critic.", "critic_target.", "actor_target.")
    features, door = _features(parts, facts, "actor.features_extractor")
    activation = facts.activation(path, nn.ReLU)
    stochastic = parts.starts("actor.log_std")
    if stochastic:
        parts.drop("actor.log_std")  # a function of the state, of a variable before the tanh
        body = parts.mlp("actor.latent_pi", activation, _width(features))
        body += _mean(path, parts, facts, _width(body) or _width(features))
    else:
        body = parts.mlp("actor.mu", activation, _width(features))[:-1]
        if not body:
            raise BadInput(f"{path}: actor.mu.0.weight is missing")
    if parts.starts("actor."):
        parts.finish()
    agent = _wrapped(path, "gaussian", _squashed(path, parts, facts, [*features, *body]), [], door, facts)
    if stochastic:
        return agent, "TQC" if "tqc" in facts.module or "top_quantiles_to_drop_per_net" in facts.fields else "SAC"
    return agent, "DDPG" if few else "TD3"


def _mean(path: Path, parts: Parts, facts: Facts, inputs: int | None) -> list[nn.Module]:
    """The last layer of SAC and TQC; with gSDE its output is cut to ±clip_mean."""
    if parts.has("actor.mu.weight"):
        return [parts.linear("actor.mu", inputs)]
    cut = facts.number(path, "clip_mean", CLIP_MEAN)
    if cut <= 0:
        raise BadInput(f"{path}: clip_mean must be > 0 where the mean is cut, got {cut:g}")
    return [parts.linear("actor.mu.0", inputs), nn.Hardtanh(-cut, cut)]


def _ars(path: Path, parts: Parts, facts: Facts) -> tuple[WrappedAgent, str]:
    """One network without a critic; LinearPolicy has no hidden layer, no bias and no tanh unless told otherwise."""
    parts.drop("features_extractor.")  # it has no weights; a picture is flattened
    features, door = _features(parts, facts, "features_extractor")
    layers = parts.mlp("action_net", facts.activation(path, nn.ReLU), _width(features), biased=False)[:-1]
    if str(facts.actions.get(":type:", "")).endswith(".Discrete'>"):
        return _wrapped(path, "categorical", [*features, *layers], [], door, facts), "ARS"
    linear = len(layers) == 1 and "net_arch" not in facts.kwargs
    if facts.squashes(path, default=not linear):
        layers = _squashed(path, parts, facts, layers)
    return _wrapped(path, "gaussian", [*features, *layers], [], door, facts), "ARS"


READERS: dict[str, Callable[[Path, Parts, Facts], tuple[WrappedAgent, str]]] = {
    "q_net.q_net.": _dqn,
    "quantile_net.quantile_net.": _qrdqn,
    "actor.": _actor,
    "action_net.weight": _actor_critic,
    "action_net.0.weight": _ars,
}


# -------------------------------------------------------------------------------------------------------------- parts


def _squashed(path: Path, parts: Parts, facts: Facts, layers: list[nn.Module]) -> list[nn.Module]:
    """The layers, a tanh, and −1 … 1 stretched to the box: low + (a + 1)/2·(high − low)."""
    size = _width(layers) or 0
    low, high = (torch.tensor(ends, dtype=torch.float64) for ends in facts.box(path, size))
    return [*layers, nn.Tanh(), parts.stretch((high - low) / 2, (high + low) / 2)]


def _features(parts: Parts, facts: Facts, name: str) -> tuple[list[nn.Module], nn.Module]:
    """The layers in front of the MLP, and the door in front of them."""
    if parts.starts(f"{name}.cnn."):
        layers, channels = parts.nature(f"{name}.cnn")
        return [*layers, parts.linear(f"{name}.linear.0"), nn.ReLU()], Frames(channels, facts.shares)
    if facts.picture:
        assert facts.shape is not None
        return [nn.Flatten()], Frames(facts.shape[0], facts.shares)
    return ([nn.Flatten()] if facts.shape is not None and len(facts.shape) > 1 else []), AsFloat()


def _wrapped(
    path: Path, kind: Any, actor: list[nn.Module], critic: list[nn.Module], door: nn.Module, facts: Facts
) -> WrappedAgent:
    body, judge = network(actor), network(critic) if critic else None
    pictures = isinstance(door, Frames)
    first = next(layer for layer in body if isinstance(layer, nn.Linear | nn.Conv2d))
    shape = None if pictures else facts.shape
    if isinstance(first, nn.Linear):
        shape = shape or (None if pictures else (first.in_features,))
        if facts.shape is not None and math.prod(facts.shape) != first.in_features:
            raise BadInput(f"{path}: the first layer takes {first.in_features} numbers, observations {facts.shape}")
    return wrap(
        body, kind, door, actions=outputs_of(body), observation_shape=shape, critic=judge,
        valid_range=((0.0, 1.0) if facts.shares else facts.limits) if pictures else None,
        clips_actions=kind == "gaussian",  # `predict` cuts them to the box
    )  # fmt: skip


def _width(layers: list[nn.Module]) -> int | None:
    """How many numbers the last linear layer gives; None: there is none."""
    linear = [layer for layer in layers if isinstance(layer, nn.Linear)]
    return linear[-1].out_features if linear else None
