"""Reads the zip files of Stable-Baselines3: PPO, A2C and DQN, with MLP or CNN policies. Nothing in them is unpickled.

Weights come from the torch archive inside, the architecture from their shapes and the plain fields of `data`; the
pickled ones (spaces, schedules, buffers) are never looked at.
"""

import io
import math
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from radial.agents.foreign import WrappedAgent, WrappedGaussian, wrap
from radial.agents.importers.archive import TENSOR_BYTES, file_source, open_zip, read_archive, untrusted
from radial.agents.importers.parts import ACTIVATIONS, Parts, network, outputs_of
from radial.agents.importers.restricted import refuse
from radial.agents.importers.sb3_settings import plain_settings
from radial.agents.importers.vecnormalize import beside, read_vecnormalize
from radial.agents.preprocessing import AsFloat, Frames, RunningScale
from radial.agents.weights import strict_json
from radial.core.agent import Card
from radial.core.data import BadInput
from radial.core.text import clean

DATA = 64 << 20  # bytes of the JSON
WEIGHTS_SIZE = 2 * TENSOR_BYTES  # bytes of the weights
RECURRENT = "recurrent policies are not supported: an observation alone does not decide their action"
EXTRACTORS = ("FlattenExtractor", "NatureCNN")  # of stable_baselines3.common.torch_layers
POLICIES = ("stable_baselines3.", "sb3_contrib.")  # modules whose policies are known; others may do anything in forward
OTHERS = {
    "actor.": "SAC, TD3 and DDPG",
    "quantile_net.": "QR-DQN",
    "critic.": "SAC, TD3 and DDPG",
}


@dataclass(frozen=True)
class Facts:
    """The plain fields of `data`.

    fields, kwargs  all of them; `policy_kwargs` among them
    shape, picture  of one observation, colours first; whether it has rows, columns and colours of 0 … 255
    shares          whether the library divides it by 255
    limits          the least and the largest value of an observation, where they are the same for all of it
    """

    fields: Mapping[str, Any]
    kwargs: Mapping[str, Any]
    shape: tuple[int, ...] | None
    picture: bool
    shares: bool
    limits: tuple[float, float] | None

    def activation(self, path: Path, default: type[nn.Module]) -> type[nn.Module]:
        """The one named in `policy_kwargs`, or the library's own for this algorithm."""
        told = self.kwargs.get("activation_fn")
        if told is None:
            return default
        known = {f"<class 'torch.nn.modules.activation.{name}'>": layer for name, layer in ACTIVATIONS.items()}
        if not isinstance(told, str) or told not in known:
            names = ", ".join(ACTIVATIONS)
            raise BadInput(f"{path}: activation_fn must be one of torch.nn's {names}, got {str(told)[:60]!r}")
        return known[told]

    def check_policy(self, path: Path) -> None:
        """Refuse settings that change the policy but leave no trace in the shapes of its tensors."""
        if self.kwargs.get("squash_output") not in (None, False):
            raise BadInput(f"{path}: squashed actions (squash_output) are not supported")
        policy = self.fields.get("policy_class")
        module = policy.get("__module__") if isinstance(policy, dict) else None
        if isinstance(module, str) and not module.startswith(POLICIES):
            raise BadInput(f"{path}: policy_class must be one of Stable-Baselines3's own, got one of {module[:60]!r}")
        if isinstance(module, str) and module.startswith("sb3_contrib.ppo_mask"):
            raise BadInput(
                f"{path}: maskable policies are not supported: an observation alone does not decide their action"
            )
        told = self.kwargs.get("features_extractor_class")
        known = [f"<class 'stable_baselines3.common.torch_layers.{name}'>" for name in EXTRACTORS]
        if told is not None and told not in known:
            allowed = " or ".join(EXTRACTORS)
            raise BadInput(f"{path}: features_extractor_class must be {allowed}, got {str(told)[:60]!r}")


def read_sb3(path: Path) -> WrappedAgent:
    """The agent of a `.zip`, with the statistics of a `vecnormalize.pkl` that lies beside it."""
    with untrusted(path), path.open("rb") as file:
        archive = open_zip(file)
        members = {member.filename: member for member in archive.infolist()}
        for name, limit in (("data", DATA), ("policy.pth", WEIGHTS_SIZE)):
            if name not in members:
                refuse(f"it is not one of Stable-Baselines3: it has no member '{name}'")
            if members[name].file_size > limit:
                refuse(f"its member '{name}' has more than {limit} bytes")
        text, weights = archive.read("data"), archive.read("policy.pth")
    facts = _facts(path, strict_json(path, text))
    parts = Parts(path, read_archive(path, file=io.BytesIO(weights)))
    agent = _agent(path, parts, facts)
    parts.finish()
    notes = _normalize(path, agent, facts)
    name = f"{_algorithm(agent, facts)} of Stable-Baselines3"
    agent.card = Card(
        env=None, recipe={"name": name, "notes": notes, "settings": plain_settings(facts.fields)},
        seed=_whole(facts, "seed"), steps=_whole(facts, "num_timesteps") or 0, source=file_source(path),
    )  # fmt: skip
    return agent


def _facts(path: Path, data: Any) -> Facts:
    if not isinstance(data, dict):
        raise BadInput(f"{path}: data must be a JSON object")
    space, actions, kwargs = (_object(path, data, f) for f in ("observation_space", "action_space", "policy_kwargs"))
    kind = str(space.get(":type:", "Box'>"))
    if not kind.endswith("Box'>"):
        raise BadInput(f"{path}: observations must come from a Box, got {kind[:60]!r}")
    kind = str(actions.get(":type:", ""))
    if kind and not kind.endswith((".Discrete'>", ".Box'>")):
        raise BadInput(f"{path}: actions must be Discrete or a Box, got {kind[:60]!r}")
    shape = space.get("_shape", space.get("shape"))
    plain = isinstance(shape, list) and 1 <= len(shape) <= 3 and all(type(n) is int and 0 < n < 1 << 20 for n in shape)
    sizes = tuple(shape) if plain and shape else None
    limits = _limits(space)
    told = limits is not None or bool(_ends(space, "low"))
    coloured = space.get("dtype", "uint8") == "uint8" and (limits == (0.0, 255.0) or not told)
    picture = sizes is not None and len(sizes) == 3 and coloured
    facts = Facts(data, kwargs, sizes, picture, coloured and kwargs.get("normalize_images") is not False, limits)
    facts.check_policy(path)
    return facts


def _ends(space: Mapping[str, Any], side: str) -> set[str]:
    """The numbers in the printed array of a Box's ends, each once; empty: there is none. Long arrays are cut short."""
    shown = space.get(side)
    return set(re.split(r"[\s\[\],]+", shown)) - {"", "..."} if isinstance(shown, str) else set()


def _limits(space: Mapping[str, Any]) -> tuple[float, float] | None:
    """The least and the largest value, if they are finite and the same for the whole observation."""
    try:
        (low,), (high,) = ({float(number) for number in _ends(space, side)} for side in ("low", "high"))
    except ValueError:  # none, several, or no number
        return None
    return (low, high) if math.isfinite(low) and math.isfinite(high) and low < high else None


def _object(path: Path, data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A field that is an object, or absent."""
    told = data.get(name)
    if told is not None and not isinstance(told, dict):
        raise BadInput(f"{path}: {name} must be a JSON object, got a {type(told).__name__}")
    return told or {}


def _agent(path: Path, parts: Parts, facts: Facts) -> WrappedAgent:
    if parts.starts("lstm") or any("lstm" in name or ".rnn" in name for name in parts.tensors):
        raise BadInput(f"{path}: {RECURRENT}")
    if any(".extractors." in name for name in parts.tensors):
        raise BadInput(f"{path}: observations must be one array; policies of several (MultiInputPolicy) are not read")
    if parts.starts("q_net.q_net."):
        return _dqn(path, parts, facts)
    if parts.has("action_net.weight"):
        return _actor_critic(path, parts, facts)
    told = next((name for prefix, name in OTHERS.items() if parts.starts(prefix)), "an unknown algorithm")
    raise BadInput(f"{path}: PPO, A2C and DQN of Stable-Baselines3 are read, this is a policy of {told}")


def _dqn(path: Path, parts: Parts, facts: Facts) -> WrappedAgent:
    parts.drop("q_net_target.")
    features, door = _features(path, parts, facts, "q_net.features_extractor")
    head = parts.mlp("q_net.q_net", facts.activation(path, nn.ReLU), _width(features))[:-1]
    return _wrapped(path, "q", [*features, *head], [], door, facts)


def _actor_critic(path: Path, parts: Parts, facts: Facts) -> WrappedAgent:
    activation = facts.activation(path, nn.Tanh)
    own = parts.starts("pi_features_extractor.")
    features, door = _features(path, parts, facts, "pi_features_extractor" if own else "features_extractor")
    judged = features
    if own and parts.starts("vf_features_extractor."):
        judged, _ = _features(path, parts, facts, "vf_features_extractor")
    parts.drop("features_extractor.", "pi_features_extractor.", "vf_features_extractor.")
    shared = parts.mlp("mlp_extractor.shared_net", activation, _width(features))
    start = _width(shared) or _width(features)
    policy = parts.mlp("mlp_extractor.policy_net", activation, start)
    value = parts.mlp("mlp_extractor.value_net", activation, start)
    actor = [*features, *shared, *policy, parts.linear("action_net", _width(policy) or start)]
    critic = [*judged, *shared, *value, parts.linear("value_net", _width(value) or start)]
    if not parts.has("log_std"):
        return _wrapped(path, "categorical", actor, critic, door, facts)
    agent = _wrapped(path, "gaussian", actor, critic, door, facts)
    log_std = parts.take("log_std")
    assert isinstance(agent, WrappedGaussian)
    agent.log_std = log_std if log_std.shape == (agent.actions.size,) else None  # two axes: the spread depends on s
    agent.clips_actions = True  # its `predict` cuts them to the box
    return agent


def _features(path: Path, parts: Parts, facts: Facts, name: str) -> tuple[list[nn.Module], nn.Module]:
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
    )  # fmt: skip


def _normalize(path: Path, agent: WrappedAgent, facts: Facts) -> list[str]:
    """Put the statistics that lie beside the file in front of the network; returns notes for the card."""
    stats = beside(path)
    if stats is None:
        on_policy = "gae_lambda" in facts.fields  # the others keep these observations in any case
        if on_policy and facts.fields.get("_last_original_obs") is not None:
            name = clean(path.name, keep="")
            note = f"{name} was trained with VecNormalize, whose statistics are missing: save vecnormalize.pkl here"
            warnings.warn(note, UserWarning, stacklevel=4)
            return [note]
        return []
    scale: RunningScale | None = read_vecnormalize(stats)
    if scale is None:
        return []
    if agent.observation_shape is None or scale.mean.shape != agent.observation_shape:
        raise BadInput(f"{stats} must fit the agent: its statistics have shape {tuple(scale.mean.shape)}")
    agent.door = scale
    return [f"observations are normalised by {clean(stats.name, '')}"]


def _width(layers: list[nn.Module]) -> int | None:
    """How many numbers the last linear layer gives; None: there is none."""
    linear = [layer for layer in layers if isinstance(layer, nn.Linear)]
    return linear[-1].out_features if linear else None


def _algorithm(agent: WrappedAgent, facts: Facts) -> str:
    if agent.critic is None:
        return "DQN"
    return "PPO" if "n_epochs" in facts.fields else "A2C"


def _whole(facts: Facts, name: str) -> int | None:
    value = facts.fields.get(name)
    return value if type(value) is int and 0 <= value < 1 << 63 else None
