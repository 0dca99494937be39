"""The plain fields in the `data` of a Stable-Baselines3 zip: spaces and settings, read as JSON.

The pickled fields beside them (schedules, buffers, the spaces themselves) are never looked at.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from radial.agents.importers.parts import ACTIVATIONS
from radial.core.data import BadInput

EXTRACTORS = ("FlattenExtractor", "NatureCNN")  # of stable_baselines3.common.torch_layers
POLICIES = ("stable_baselines3.", "sb3_contrib.")  # modules whose policies are known; others may do anything in forward


@dataclass(frozen=True)
class Facts:
    """The plain fields of `data`.

    fields, kwargs  all of them; `policy_kwargs` among them
    actions         those of the action space
    shape, picture  of one observation, colours first; whether it has rows, columns and colours of 0 … 255
    shares          whether the library divides it by 255
    limits          the least and the largest value of an observation, where they are the same for all of it
    """

    fields: Mapping[str, Any]
    kwargs: Mapping[str, Any]
    actions: Mapping[str, Any]
    shape: tuple[int, ...] | None
    picture: bool
    shares: bool
    limits: tuple[float, float] | None

    @property
    def module(self) -> str:
        """Where the policy's class was defined; empty: not told."""
        policy = self.fields.get("policy_class")
        module = policy.get("__module__") if isinstance(policy, dict) else None
        return module if isinstance(module, str) else ""

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

    def squashes(self, path: Path, default: bool) -> bool:
        """Whether the mean action passes a tanh, by `squash_output`."""
        told = self.kwargs.get("squash_output")
        if told not in (None, True, False):
            raise BadInput(f"{path}: squash_output must be true or false, got {str(told)[:60]!r}")
        return default if told is None else bool(told)

    def number(self, path: Path, name: str, default: float) -> float:
        """A number in `policy_kwargs`."""
        told = self.kwargs.get(name, default)
        if isinstance(told, bool) or not isinstance(told, int | float) or not math.isfinite(told):
            raise BadInput(f"{path}: {name} must be a number, got {str(told)[:60]!r}")
        return float(told)

    def whole(self, name: str) -> int | None:
        """A count in `data`; None: not told."""
        value = self.fields.get(name)
        return value if type(value) is int and 0 <= value < 1 << 63 else None

    def box(self, path: Path, size: int) -> tuple[list[float], list[float]]:
        """The least and the largest action, `size` numbers each: a squashed policy is stretched between them."""
        found = []
        for side in ("low", "high"):
            shown = self.actions.get(side)
            words = re.split(r"[\s\[\],]+", shown) if isinstance(shown, str) and len(shown) < 1 << 20 else []
            try:
                ends = [float(word) for word in words if word]
            except ValueError:  # numpy cuts long arrays short with dots
                ends = []
            if len(ends) != size or not all(math.isfinite(end) for end in ends):
                raise BadInput(
                    f"{path}: the {side} of action_space must be {size} finite numbers, got {str(shown)[:60]!r}"
                )
            found.append(ends)
        return found[0], found[1]

    def check_policy(self, path: Path) -> None:
        """Refuse settings that change the policy but leave no trace in the shapes of its tensors."""
        if self.module and not self.module.startswith(POLICIES):
            raise BadInput(
                f"{path}: policy_class must be one of Stable-Baselines3's own, got one of {self.module[:60]!r}"
            )
        if self.module.startswith(("sb3_contrib.ppo_mask", "sb3_contrib.common.maskable")):
            raise BadInput(
                f"{path}: maskable policies are not supported: an observation alone does not decide their action"
            )
        told = self.kwargs.get("features_extractor_class")
        known = [f"<class 'stable_baselines3.common.torch_layers.{name}'>" for name in EXTRACTORS]
        if told is not None and told not in known:
            allowed = " or ".join(EXTRACTORS)
            raise BadInput(f"{path}: features_extractor_class must be {allowed}, got {str(told)[:60]!r}")


def facts_of(path: Path, data: Any) -> Facts:
    """The facts in the JSON of a file, checked."""
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
    shares = coloured and kwargs.get("normalize_images") is not False
    facts = Facts(data, kwargs, actions, sizes, picture, shares, limits)
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
