"""How agents are scored for a table: the one protocol, and what makes two results the same result.

The loop that plays is in `evaluation`; which agents are scored, and where results are kept, is not known here.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as encode

from radial.agents.convert import own
from radial.agents.saved import load_agent
from radial.attacks import ATTACKS
from radial.core.agent import Attack
from radial.core.data import BadInput, EnvSpec
from radial.core.text import spell_radius
from radial.envs.make import make_env
from radial.evaluation import statistics
from radial.evaluation.certificates import Search, acr, gwc
from radial.evaluation.play import Fittable, evaluate, spec_of

EPISODES = 50  # as in the paper, but for Atari
EPISODES_OF = {"atari": 20, "procgen": 1_000}  # by suite
ENVS = 50  # at most, side by side
SEED = 1234  # of every evaluation; training seeds are small numbers
LABELS = {
    "none": "nominal", "mad": "MAD", "pgd": "PGD", "pgd-procgen": "PGD", "pgd-strong": "PGD strong", "fgsm": "FGSM",
    "gwc": "GWC", "acr": "ACR",
}  # fmt: skip

# Columns that are proven and not attacked: what is called with what, all of which is part of a result's key.
CERTIFICATES: dict[str, tuple[Callable[..., Any], Mapping[str, Any]]] = {
    "gwc": (gwc, {"bound": "ibp", "rule": "bounds", "num_envs": ENVS}),
    "acr": (acr, {"bound": "ibp", "search": Search(), "num_envs": ENVS}),
}

# Called with what is played and the number of episodes; gives what is to be called with how many are finished.
Watch = Callable[[str, int], AbstractContextManager[Callable[[int], None] | None]]


def silent(what: str, episodes: int) -> AbstractContextManager[None]:
    """A `Watch` that nobody watches."""
    return nullcontext()


@dataclass(frozen=True)
class Column:
    """An attack, by its key in ATTACKS, or a certificate, by its key in CERTIFICATES; at a radius in network units.

    stochastic  the agent samples its actions
    """

    attack: str
    radius: float
    stochastic: bool = False

    @property
    def label(self) -> str:
        """Such as "nominal", "MAD 0.075" or "PGD 1/255"."""
        name = LABELS.get(self.attack, self.attack)
        return name if self.attack == "none" else f"{name} {spell_radius(self.radius)}"

    @property
    def share(self) -> bool:
        """Whether its numbers are shares of steps, in [0, 1], and not returns."""
        return self.attack == "acr"

    @property
    def settings(self) -> str:
        """What the attack or the certificate is, exactly."""
        if self.attack not in CERTIFICATES:
            return repr(ATTACKS[self.attack]())
        given = {"arithmetic": "outward-rounded", **CERTIFICATES[self.attack][1]}
        return f"{self.attack}({', '.join(f'{name}={value!r}' for name, value in given.items())})"


NOMINAL = Column("none", 0.0)


@dataclass(frozen=True)
class Score:
    """What an evaluation found.

    key    names what was evaluated and how: equal keys, equal numbers
    facts  the whole evaluation as JSON, the number of every episode included
    """

    key: str
    mean: float
    sem: float
    facts: Mapping[str, Any]

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> "Score":
        """A score from its facts; mean and standard error are computed from the episodes and not believed."""
        values = _VALUES.get(str(facts.get("metric")), _returns)(facts)
        return cls(hashed(facts["key"]), statistics.mean(values), statistics.sem(values), facts)


def _returns(facts: Mapping[str, Any]) -> list[float]:
    found: list[float] = facts["returns"]
    return found


# The number of each episode, where it is not its return.
_VALUES: dict[str, Callable[[Mapping[str, Any]], list[float]]] = {
    "acr": lambda facts: facts["rates"],
    "awc": lambda facts: [start["upper"] for start in facts["starts"]],
    "q-bias": lambda facts: facts["errors"],
}


Measure = Callable[["Subject", Column], Score]


class Subject:
    """An agent to be scored, under the name it is reported by; an attack that learns against it learns once."""

    def __init__(self, name: str, folder: Path, options: Mapping[str, Any] | None = None) -> None:
        """An agent in the env of its card, or in that env with other options."""
        self.name, self.folder, self.agent = name, folder, own(load_agent(folder), "agent")
        if self.agent.card.env is None:
            raise BadInput(f"{name} does not say where it acts")
        self.card, self.env = self.agent.card, spec_of(self.agent.card.env)
        if options is not None:
            self.env = replace(self.env, options=dict(options))
        self._attacks: dict[str, Attack | Fittable] = {}

    @cached_property
    def sha256(self) -> str:
        """Of the weights in float32, as `save` writes them."""
        weights = {name: tensor.detach().cpu().contiguous() for name, tensor in self.agent.state_dict().items()}
        return hashlib.sha256(encode(weights)).hexdigest()

    def round_to(self, dtype: torch.dtype) -> None:
        """Make the weights what they are once saved in `dtype`, so that what is scored is what is saved."""
        with torch.no_grad():
            for parameter in self.agent.parameters():
                parameter.copy_(parameter.to(dtype))
        vars(self).pop("sha256", None)

    @cached_property
    def engine(self) -> Mapping[str, str]:
        """Backend, version and simulator that its environment runs on."""
        return engine_of(self.env)

    def elsewhere(self, options: Mapping[str, Any] | None) -> "Subject":
        """The same agent in its env with other options, on other levels say; None: where it is."""
        return self if options is None else Subject(self.name, self.folder, options)

    def key(self, column: Column, episodes: int) -> dict[str, Any]:
        """Everything that the numbers depend on."""
        how = {"stochastic": True} if column.stochastic else {}  # older keys do not say that the best action is taken
        return {
            "weights": self.sha256,
            "env": str(self.env),
            "engine": dict(self.engine),
            "attack": column.attack,
            "attack_settings": column.settings,
            "radius": column.radius,
            "episodes": episodes,
            "seed": SEED,
            **how,
        }

    def score(self, column: Column, episodes: int = EPISODES, watch: Watch = silent) -> Score:
        """Play: Gymnasium's own engine, the most likely action or a sampled one, a frozen normaliser."""
        with watch(f"{self.name}, {column.label}", episodes) as progress:
            facts = self._play(column, episodes, progress)
        return Score.of({"key": self.key(column, episodes), **facts})

    def _play(self, column: Column, episodes: int, progress: Callable[[int], None] | None) -> dict[str, Any]:
        more: dict[str, Any] = {"episodes": episodes, "seed": SEED, "name": self.name, "progress": progress}
        if column.attack in CERTIFICATES:
            certify, settings = CERTIFICATES[column.attack]
            proven: dict[str, Any] = certify(self.agent, self.env, column.radius, **settings, **more).to_json()
            return proven | {"attack": column.attack, "attack_settings": column.settings}
        attack = None if column.attack == "none" else self._attack(column.attack)
        found = evaluate(self.agent, self.env, attack, column.radius, stochastic=column.stochastic, **more)
        return found.to_json() | {"attack": column.attack, "attack_settings": found.attack}

    def _attack(self, name: str) -> Attack | Fittable:
        if name not in self._attacks:
            made = ATTACKS[name]()
            self._attacks[name] = Once(made) if isinstance(made, Fittable) else made
        return self._attacks[name]


class Once:
    """An attack that learns when it is first asked to, and then is what it has become."""

    def __init__(self, attack: Fittable) -> None:
        self._attack, self._fitted = attack, None  # type: Fittable, Attack | None

    def fit(self, agent: Any, env: EnvSpec, seed: int) -> Attack:
        """What attacks; agent, env and seed are the same each time."""
        if self._fitted is None:
            self._fitted = self._attack.fit(agent, env, seed)
        return self._fitted


def episodes_for(env: EnvSpec) -> int:
    """How many the paper plays in such an env."""
    return EPISODES_OF.get(env.suite, EPISODES)


def engine_of(env: EnvSpec) -> Mapping[str, str]:
    """Backend, version and simulator of an environment; a missing package is an error here, before any play."""
    made = make_env(env, 1, SEED)
    made.close()
    return made.engine


def hashed(key: Mapping[str, Any]) -> str:
    """A short name for a key: 16 digits of SHA-256."""
    text = json.dumps(key, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
