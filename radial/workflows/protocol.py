"""The one protocol by which agents are evaluated for tables and figures, and the file that keeps their results.

Equal keys mean equal numbers, so nothing is played twice. The loop that plays is in `evaluation`; which agents are
evaluated, and what else a file says about them, is not known here.
"""

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import torch
from safetensors.torch import save as safetensors_bytes

from radial.agents.convert import own
from radial.agents.foreign import as_agent
from radial.agents.saved import load_agent
from radial.attacks import ATTACKS
from radial.attacks.learned.adversaries import PAAD, SARL, Adversary, LinearDirector
from radial.attacks.learned.records import asked_for
from radial.attacks.learned.rounds import fast
from radial.attacks.learned.stored import ATTACK_FOLDER, fit_folder, is_fitted, load_attack, save_attack
from radial.core.agent import Agent, Attack
from radial.core.data import BadInput, EnvSpec
from radial.envs.make import check_card_env, make_env
from radial.evaluation import statistics
from radial.evaluation.certificates import Search, acr, gwc
from radial.evaluation.play import Aiming, Fittable, evaluate, spec_of
from radial.evaluation.reach import reach
from radial.recipes.tables import Column
from radial.runs.files import Corrupt, DiskFull, read_json, write_atomic
from radial.runs.run import derived_seed
from radial.runs.storage import SharedStorage, StorageFailed

EPISODES = 50  # as in the paper, but for Atari and ProcGen
EPISODES_OF = {"atari": 20, "procgen": 1_000}  # by suite
ENVS = 50  # at most, side by side
SEED = 1234  # of every evaluation; training seeds are small numbers
EVALUATIONS = "evaluations"  # the field of a results file that holds them
RESULTS = "results"  # the folder of storage with copies of results files

# Columns that are certified and not attacked: which function with which settings, all part of a result's key.
CERTIFICATES: dict[str, tuple[Callable[..., Any], Mapping[str, Any]]] = {
    "gwc": (gwc, {"bound": "ibp", "rule": "bounds", "num_envs": ENVS}),
    "acr": (acr, {"bound": "ibp", "search": Search(), "num_envs": ENVS}),
    "reach": (reach, {"bound": "best", "num_envs": ENVS}),
}

# The adversaries that learn against an agent for many minutes, with the budgets of tables and leaderboard.
ADVERSARIES: Mapping[str, Adversary] = {
    "sarl": SARL(steps=400_000, restarts=2),
    "paad": PAAD(steps=900_000, restarts=3),
    "linear": LinearDirector(),
}

# Called with what is played and the number of episodes; the context gives a function of how many are finished.
Watcher = Callable[[str, int], AbstractContextManager[Callable[[int], None] | None]]


def silent(what: str, episodes: int) -> AbstractContextManager[None]:
    """A `Watcher` that shows nothing."""
    return nullcontext()


def settings_of(column: Column) -> str:
    """The exact settings of a column's attack or certificate."""
    if column.attack not in CERTIFICATES:
        return repr(ADVERSARIES.get(column.attack) or ATTACKS[column.attack]())
    given = {"arithmetic": "outward-rounded", **CERTIFICATES[column.attack][1]}
    return f"{column.attack}({', '.join(f'{name}={value!r}' for name, value in given.items())})"


# -------------------------------------------------------------------------------------------------------- one result


@dataclass(frozen=True)
class CellResult:
    """The result of one evaluation.

    key    names what was evaluated and how: equal keys, equal numbers
    facts  the whole evaluation as JSON, the number of every episode included
    """

    key: str
    mean: float
    sem: float
    facts: Mapping[str, Any]

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> "CellResult":
        """A result from its facts; mean and standard error are computed from the episodes and not believed."""
        values = _VALUES.get(str(facts.get("metric")), _returns)(facts)
        return cls(hashed(facts["key"]), statistics.mean(values), statistics.sem(values), facts)


def _returns(facts: Mapping[str, Any]) -> list[float]:
    found: list[float] = facts["returns"]
    return found


# The number of each episode, where it is not its return.
_VALUES: dict[str, Callable[[Mapping[str, Any]], list[float]]] = {
    "acr": lambda facts: facts["rates"],
    "reach": lambda facts: [facts["mean"]],
    "awc": lambda facts: [start["upper"] for start in facts["starts"]],
    "q-bias": lambda facts: facts["errors"],
}


def hashed(key: Mapping[str, Any]) -> str:
    """A short name for a key: 16 digits of SHA-256."""
    text = json.dumps(key, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def result_key(
    sha256: str, env: EnvSpec, engine: Mapping[str, str], column: Column, episodes: int
) -> dict[str, Any]:  # fmt: skip
    """Everything that the numbers of an agent with these weights depend on."""
    how = {"stochastic": True} if column.stochastic else {}  # older keys do not say that the best action is taken
    return {
        "weights": sha256, "env": str(env), "engine": dict(engine), "attack": column.attack,
        "attack_settings": settings_of(column), "radius": column.radius, "episodes": episodes, "seed": SEED, **how,
    }  # fmt: skip


# ------------------------------------------------------------------------------------------------ who is evaluated


class EvaluatedAgent:
    """An agent under the name it is reported by; an attack that learns against it learns once."""

    def __init__(
        self, name: str, folder: Path, options: Mapping[str, Any] | None = None, env: EnvSpec | None = None
    ) -> None:
        """An agent in the env of its card, or in that env with other options; env: of a file that does not say."""
        self.name, self.folder, self.agent = name, folder, own(load_agent(folder, env), "agent")
        self.fits: Path | None = None  # where adversaries that learned against it are kept
        if self.agent.card.env is None:
            raise BadInput(f"{name}: no environment recorded on its card")
        if options is None:
            check_card_env(self.agent.card.env, name)
        self.card, self.env = self.agent.card, spec_of(self.agent.card.env)
        if options is not None:
            self.env = replace(self.env, options=dict(options))
        self._attacks: dict[str, Attack | Fittable] = {}

    @cached_property
    def sha256(self) -> str:
        """Of the weights in float32, as `save` writes them."""
        weights = {name: tensor.detach().cpu().contiguous() for name, tensor in self.agent.state_dict().items()}
        source = (self.card.source or "").encode() if self.folder.is_file() else b""  # as the leaderboard has it
        return hashlib.sha256(source + safetensors_bytes(weights)).hexdigest()

    def round_to(self, dtype: torch.dtype) -> None:
        """Round the weights as saving them in `dtype` will, so that what is evaluated is what is saved."""
        with torch.no_grad():
            for parameter in self.agent.parameters():
                parameter.copy_(parameter.to(dtype))
        vars(self).pop("sha256", None)

    @cached_property
    def engine(self) -> Mapping[str, str]:
        """Backend, version and simulator that its environment runs on."""
        return engine_of(self.env)

    def elsewhere(self, options: Mapping[str, Any] | None) -> "EvaluatedAgent":
        """The same agent in its env with other options, on other levels say; None: where it is."""
        return self if options is None else EvaluatedAgent(self.name, self.folder, options)

    def key(self, column: Column, episodes: int) -> dict[str, Any]:
        """Everything that the numbers depend on."""
        return result_key(self.sha256, self.env, self.engine, column, episodes)

    def evaluate(self, column: Column, episodes: int = EPISODES, watch: Watcher = silent) -> CellResult:
        """Play: Gymnasium's own engine, the most likely action or a sampled one, a frozen normaliser."""
        with watch(f"{self.name}, {column.label}", episodes) as progress:
            facts = self._play(column, episodes, progress)
        return CellResult.of({"key": self.key(column, episodes), **facts})

    def _play(self, column: Column, episodes: int, progress: Callable[[int], None] | None) -> dict[str, Any]:
        more: dict[str, Any] = {"episodes": episodes, "seed": SEED, "name": self.name, "progress": progress}
        if column.attack in CERTIFICATES:
            certify, settings = CERTIFICATES[column.attack]
            proven: dict[str, Any] = certify(self.agent, self.env, column.radius, **settings, **more).to_json()
            return proven | {"attack": column.attack, "attack_settings": settings_of(column)}
        attack = None if column.attack == "none" else self._attack(column.attack, column.radius)
        found = evaluate(self.agent, self.env, attack, column.radius, stochastic=column.stochastic, **more)
        return found.to_json() | {"attack": column.attack, "attack_settings": found.attack}

    def _attack(self, name: str, radius: float) -> Attack | Fittable:
        if name in ADVERSARIES:
            return adversary_for(self, self.env, name, ADVERSARIES[name], radius, self.fits)
        if name not in self._attacks:
            made = ATTACKS[name]()
            once = isinstance(made, Fittable) and not isinstance(made, Aiming)  # one that aims learns for each radius
            self._attacks[name] = FittedOnce(made) if once else made  # type: ignore[arg-type]
        return self._attacks[name]


class Attacked(Protocol):
    """An agent that adversaries learn against."""

    @property
    def name(self) -> str:
        """The name it is reported by."""

    @property
    def agent(self) -> Any:
        """The agent itself."""

    @property
    def sha256(self) -> str:
        """Of its weights."""


def adversary_for(
    subject: Attacked, env: EnvSpec, name: str, attack: Adversary, radius: float, fits: Path | None,
    storage: str | None = None,
) -> Attack:  # fmt: skip
    """An adversary fitted to an agent at a radius, from the folder `fits` if it is there, else kept there.

    A fit with other settings is not taken: the one asked for is kept beside it.

    storage  a shared folder or a URI for copies of the unfinished fit
    """
    aimed, seed = attack.aimed(radius, math.inf), derived_seed(SEED, "fit", name)
    if fits is None:
        return aimed.fit(subject.agent, env, seed)
    asked = asked_for(aimed, as_agent(subject.agent), fast(env), seed)
    folder = fit_folder(fits / f"{Path(subject.name).name}-{subject.sha256[:8]}-{name}-{radius:.4g}", asked)
    if is_fitted(folder):
        return load_attack(folder)
    found = aimed.fit(subject.agent, env, seed, out=folder, resume=True, quiet=False, storage=storage)
    save_attack(found, folder / ATTACK_FOLDER)
    return found


class FittedOnce:
    """An attack that learns when it is first asked to, and is then reused as it was fitted."""

    def __init__(self, attack: Fittable) -> None:
        self._attack, self._fitted = attack, None  # type: Fittable, Attack | None

    def fit(self, agent: Agent, env: EnvSpec, seed: int) -> Attack:
        """The fitted attack; agent, env and seed are the same each time."""
        if self._fitted is None:
            self._fitted = self._attack.fit(agent, env, seed)
        return self._fitted


def episodes_for(env: EnvSpec) -> int:
    """How many episodes the paper plays in such an env."""
    return EPISODES_OF.get(env.suite, EPISODES)


def engine_of(env: EnvSpec) -> Mapping[str, str]:
    """Backend, version and simulator of an environment; a missing package is an error here, before any play."""
    made = make_env(env, 1, SEED)
    made.close()
    return made.engine


Measure = Callable[[EvaluatedAgent, Column], CellResult]

# ------------------------------------------------------------------------------------------------ the file of results


class Book:
    """A JSON file whose field `evaluations` holds every finished evaluation under the hash of its key."""

    def __init__(
        self, path: Path, *, episodes: int = EPISODES, fresh: bool = False, watch: Watcher = silent,
        storage: str | None = None,
    ) -> None:  # fmt: skip
        """Open the file if it is there; `fresh` plays again what it holds.

        storage  for a copy of the file, whose results are known as well
        """
        _check_writable(path)
        self.path, self.episodes, self._watch = path, episodes, watch
        self._storage = None if storage is None else SharedStorage(storage)
        self._results = self._stored() | _read(path)
        self._stale = set(self._results) if fresh else set()

    def find(self, agent: EvaluatedAgent, column: Column) -> CellResult | None:
        """The known result, or None."""
        return self._results.get(hashed(agent.key(column, self.episodes)))

    def measure(self, agent: EvaluatedAgent, column: Column) -> CellResult:
        """The known result, or else a new one, played and saved."""
        key = agent.key(column, self.episodes)
        return self.get(key, lambda: agent.evaluate(column, self.episodes, self._watch))

    def known(self, key: Mapping[str, Any]) -> CellResult | None:
        """The result known under a key, though it were to be played again."""
        return self._results.get(hashed(key))

    def all(self) -> Iterator[CellResult]:
        """Every result."""
        yield from self._results.values()

    def get(self, key: Mapping[str, Any], play: Callable[[], CellResult]) -> CellResult:
        """The result known under a key, or else that of `play`, saved at once."""
        known = self._results.get(hashed(key))
        if known is not None and known.key not in self._stale:
            return known
        found = play()
        self.add(found)
        return found

    def rows(self) -> list[dict[str, Any]]:
        """The rows of the table that the file held last; none where it holds no table."""
        found: list[dict[str, Any]] = read_json(self.path).get("rows", []) if self.path.exists() else []
        return found

    def lacks(self, key: Mapping[str, Any]) -> bool:
        """Whether the result under a key must be played."""
        return hashed(key) not in self._results or hashed(key) in self._stale

    def add(self, *found: CellResult) -> None:
        """Keep results, and save them at once."""
        for one in found:
            self._results[one.key] = one
            self._stale.discard(one.key)
        self.save()

    def _stored(self) -> dict[str, CellResult]:
        """The results of the copy in storage."""
        if self._storage is None:
            return {}
        with TemporaryDirectory() as folder:
            copy = Path(folder) / self.path.name
            return _read(copy) if self._storage.fetch_file(RESULTS, copy) else {}

    def save(self, document: Mapping[str, Any] | None = None) -> None:
        """Write all results and the fields of `document`; results another process added meanwhile stay."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with _locked(self.path.parent):
                before = read_json(self.path) if self.path.exists() else {}
                self._results = _read(self.path) | self._results
                whole = {**before, **(document or {})}
                whole.pop(EVALUATIONS, None)  # the long part comes last
                whole[EVALUATIONS] = {key: dict(found.facts) for key, found in sorted(self._results.items())}
                write_atomic(self.path, json.dumps(whole, indent=1, allow_nan=False, ensure_ascii=False) + "\n")
            if self._storage is not None:
                self._storage.push_file(RESULTS, self.path)
        except (DiskFull, StorageFailed):
            raise
        except OSError as error:
            raise BadInput(f"{self.path} cannot be written: {error.strerror}") from None


def _read(path: Path) -> dict[str, CellResult]:
    """The results in a file, each under the key that its own facts give."""
    if not path.exists():
        return {}
    found = read_json(path).get(EVALUATIONS, {})
    try:
        results = {name: CellResult.of(facts) for name, facts in found.items()}
        wrong = [name for name, result in results.items() if result.key != name]
    except (AttributeError, KeyError, TypeError, ValueError, BadInput):
        raise Corrupt(f"{path} does not hold results as they were written; move it away") from None
    if wrong:
        raise Corrupt(f"{path}: result {wrong[0]} is not of what it says; move the file away")
    return results


def _check_writable(path: Path) -> None:
    """Refuse before an hour of work what could not be saved after it."""
    parent = path.parent
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise BadInput(f"out must be a folder that can be written to, {parent} cannot")


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One process at a time; the kernel lets go of the lock however it ends."""
    import fcntl  # not on every system, and the rest of the library does not need it

    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
