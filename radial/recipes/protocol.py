"""How agents are scored for a table: the one protocol, and what makes two results the same result.

The loop that plays is in `evaluation`; which agents are scored, and where results are kept, is not known here.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from safetensors.torch import save as encode

from radial.agents.checkpoints import load
from radial.attacks import ATTACKS
from radial.core.data import Attack, BadInput, EnvSpec
from radial.envs.make import make_env
from radial.evaluation import statistics
from radial.evaluation.episodes import Fittable, evaluate, spec_of

EPISODES = 50  # as in the paper
SEED = 1234  # of every evaluation; training seeds are small numbers
LABELS = {"none": "nominal", "mad": "MAD"}

# Called with what is played and the number of episodes; gives what is to be called with how many are finished.
Watch = Callable[[str, int], AbstractContextManager[Callable[[int], None] | None]]


def silent(what: str, episodes: int) -> AbstractContextManager[None]:
    """A `Watch` that nobody watches."""
    return nullcontext()


@dataclass(frozen=True)
class Column:
    """An attack, by its key in ATTACKS, at a radius in network units."""

    attack: str
    radius: float

    @property
    def label(self) -> str:
        """Such as "nominal" or "MAD 0.075"."""
        name = LABELS.get(self.attack, self.attack)
        return name if self.attack == "none" else f"{name} {self.radius:g}"


NOMINAL = Column("none", 0.0)


@dataclass(frozen=True)
class Score:
    """What an evaluation found.

    key    names what was evaluated and how: equal keys, equal returns
    facts  the whole evaluation as JSON, every return included
    """

    key: str
    mean: float
    sem: float
    facts: Mapping[str, Any]

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> "Score":
        """A score from its facts; mean and standard error are computed from the returns and not believed."""
        returns = facts["returns"]
        return cls(hashed(facts["key"]), statistics.mean(returns), statistics.sem(returns), facts)


Measure = Callable[["Subject", Column], Score]


class Subject:
    """An agent to be scored, under the name it is reported by; an attack that learns against it learns once."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.agent = name, load(folder)
        if self.agent.card.env is None:
            raise BadInput(f"{name} does not say where it acts")
        self.card, self.env = self.agent.card, spec_of(self.agent.card.env)
        weights = {name: tensor.detach().cpu().contiguous() for name, tensor in self.agent.state_dict().items()}
        self.sha256 = hashlib.sha256(encode(weights)).hexdigest()  # of weights.safetensors, as `save` writes it
        self._attacks: dict[str, Attack | Fittable] = {}

    @cached_property
    def engine(self) -> Mapping[str, str]:
        """Backend, version and simulator that its environment runs on."""
        return engine_of(self.env)

    def key(self, column: Column, episodes: int) -> dict[str, Any]:
        """Everything that the returns depend on."""
        return {
            "weights": self.sha256,
            "env": str(self.env),
            "engine": dict(self.engine),
            "attack": column.attack,
            "attack_settings": repr(ATTACKS[column.attack]()),
            "radius": column.radius,
            "episodes": episodes,
            "seed": SEED,
        }

    def score(self, column: Column, episodes: int = EPISODES, watch: Watch = silent) -> Score:
        """Play: Gymnasium's own engine, the most likely action, a frozen normaliser."""
        attack = None if column.attack == "none" else self._attack(column.attack)
        with watch(f"{self.name}, {column.label}", episodes) as progress:
            found = evaluate(
                self.agent, self.env, attack, column.radius, episodes, SEED, name=self.name, progress=progress
            )
        facts = found.to_json() | {"attack": column.attack, "attack_settings": found.attack}
        return Score.of({"key": self.key(column, episodes), **facts})

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


def engine_of(env: EnvSpec) -> Mapping[str, str]:
    """Backend, version and simulator of an environment; a missing package is an error here, before any play."""
    made = make_env(env, 1, SEED)
    made.close()
    return made.engine


def hashed(key: Mapping[str, Any]) -> str:
    """A short name for a key: 16 digits of SHA-256."""
    text = json.dumps(key, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
