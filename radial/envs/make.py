"""The front door: `SUITES`, `make_env`, `spec_for`, and how one seed becomes a seed for each env.

The backends step them.
"""

import difflib
import math
import re
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import gymnasium
import numpy as np

from radial.core.checks import MOST_ENVS, MOST_THREADS, check_whole, is_whole
from radial.core.data import BadInput, EnvSpec, VecEnv
from radial.envs import envpool_vec, procgen
from radial.envs.atari import make_atari
from radial.envs.atari_frames import DEFAULT_PRESET, GAMES, PRESETS
from radial.envs.envpool_vec import make_envpool
from radial.envs.gymnasium_vec import Accept, make_gymnasium
from radial.envs.watchdog import watched

Option = bool | int | float | str
Options = Mapping[str, Option]
BACKENDS = ("envpool", "gymnasium")
MAKING = 5  # multiple of a step's timeout for making 50 envs: packages are imported, ROMs read
MUJOCO = tuple(f"{task}-{v}" for task in ("Hopper", "Walker2d", "HalfCheetah", "Ant", "Humanoid") for v in ("v4", "v5"))
NO_FRAMESKIP = "NoFrameskip-v4"
ATARI_BACKENDS = ("ale", "envpool")
_OWN = " (your own: --import the module that registers it)"
CLASSIC = ("CartPole-v1", "Pendulum-v1", "Acrobot-v1")

# Ids that old agents were trained on and Gymnasium no longer steps → the task with the same observations, actions and
# rewards that took their place. Physics engines differ, and the warning says so.
_OLD_MUJOCO = (
    "Hopper",
    "Walker2d",
    "HalfCheetah",
    "Swimmer",
    "InvertedPendulum",
    "InvertedDoublePendulum",
    "Reacher",
)
_RENAMED = {
    **{f"{task}-v{old}": f"{task}-v4" for task in _OLD_MUJOCO for old in (1, 2, 3)},
    "Humanoid-v2": "Humanoid-v4",
    "Humanoid-v3": "Humanoid-v4",
    "Pendulum-v0": "Pendulum-v1",
    "LunarLander-v2": "LunarLander-v3",
    "LunarLanderContinuous-v2": "LunarLanderContinuous-v3",
    "BipedalWalker-v2": "BipedalWalker-v3",
    "BipedalWalkerHardcore-v2": "BipedalWalkerHardcore-v3",
    "CarRacing-v0": "CarRacing-v3",
    "CarRacing-v1": "CarRacing-v3",
    "CarRacing-v2": "CarRacing-v3",
}


@dataclass(frozen=True)
class Request:
    """An order to a suite, checked as far as possible without making the env."""

    spec: EnvSpec
    seeds: Sequence[int]  # one for each env
    threads: int | None
    timeout: float | None
    accept: Accept | None = None


@dataclass(frozen=True)
class Suite:
    """A family of environments.

    ids      the ids it knows
    options  name → the allowed values in words, and a test of one; None: the env's constructor decides
    build    makes the vector env
    check    refuses options that do not go together, or not with the id
    """

    ids: Callable[[], Collection[str]]
    options: Mapping[str, tuple[str, Callable[[Option], bool]]] | None
    build: Callable[[Request], VecEnv]
    check: Callable[[EnvSpec], object] | None = None


def make_env(
    spec: EnvSpec,
    num_envs: int,
    seed: int,
    *,
    threads: int | None = None,
    timeout: float | None = 60.0,
    accept: Accept | None = None,
    numbers: Sequence[int] | None = None,
) -> VecEnv:
    """N environments that step together; the same call gives the same stream for the same actions.

    seed     ≥ 0; env i is seeded with `env_seeds(seed, num_envs)[i]`, whatever the backend and `num_envs`
    threads  of EnvPool and ale-py; None: one per core. Other backends step in a plain loop
    timeout  seconds one step or reset may take before the process is ended with all stacks on stderr (code 70), because
             native pools cannot be interrupted; None: any time. Making up to 50 envs may take five times as long
    accept   refuses the spaces of one env before the others are made, where they are made one by one
    numbers  of the N envs, if others than 0 … N − 1 are wanted: env i is seeded as number `numbers[i]`
    """
    check_whole("num_envs", num_envs, 1, MOST_ENVS)
    check_whole("seed", seed, 0)
    if threads is not None:
        check_whole("threads", threads, 1, MOST_THREADS)
    if timeout is not None and not (isinstance(timeout, int | float) and 0 < timeout < math.inf):
        raise BadInput(f"timeout must be a positive number of seconds or None, got {timeout!r}")
    suite = suite_of(spec)
    making = None if timeout is None else MAKING * timeout * math.ceil(num_envs / 50)
    with watched(making, f"making {spec}"):
        return suite.build(Request(spec, _seeds(seed, num_envs, numbers), threads, timeout, accept))


def spec_for(id: str) -> EnvSpec:
    """The spec of a bare env id: of the first suite that knows it.

    Gym's PongNoFrameskip-v4 is Pong; a split of ProcGen's levels may follow the game, as in fruitbot-test. An id that
    Gymnasium has retired becomes the one that took its place, with a warning.
    """
    now = successor(id)
    if now is not None:
        note = f"{id} is gone: {now} takes its place, the same task on a newer engine; scores may differ"
        warnings.warn(note, UserWarning, stacklevel=2)
        id = now
    if id.endswith(NO_FRAMESKIP) and id.removesuffix(NO_FRAMESKIP) in GAMES:
        return EnvSpec("atari", id.removesuffix(NO_FRAMESKIP))
    game, _, split = id.partition("-")
    if game in procgen.GAMES and split in procgen.SPLITS:
        return EnvSpec("procgen", game, {"split": split})
    for name, suite in SUITES.items():
        if id in suite.ids():
            return EnvSpec(name, id)
    known = [known for suite in SUITES.values() for known in suite.ids()]
    raise BadInput(f"unknown environment {id!r}{_nearest(id, known)}{_OWN}")


def successor(env_id: str) -> str | None:
    """The id that took the place of one that is gone; None for every other id."""
    return _RENAMED.get(env_id)


def spec_named(path: Path) -> EnvSpec | None:
    """The spec of an env id in the name of a file or its folder, as the zoo of Stable-Baselines3 names them.

    The papers' files are named by their game in ProcGen or Atari, such as FruitBot_ppo.pt.
    """
    for text in (path.stem, path.parent.name):
        for found in re.findall(r"[A-Za-z][A-Za-z0-9]*-v\d+", text):
            try:
                return spec_for(found)
            except BadInput:
                continue
    words = re.findall(r"[a-z]+", path.stem.lower()) if path.suffix in (".pt", ".pth", ".model") else []
    games = {game.lower(): EnvSpec("atari", game) for game in GAMES} | {
        game: EnvSpec("procgen", game) for game in procgen.GAMES
    }
    return next((games[word] for word in words if word in games), None)


def spec_told(recipe: Mapping[str, object]) -> EnvSpec | None:
    """The spec of the env's id that the files beside an imported agent tell; None: they do not, or it is unknown."""
    told = recipe.get("env_id")
    try:
        return spec_for(told) if isinstance(told, str) else None
    except BadInput:
        return None


def example_for(observation_shape: tuple[int, ...] | None) -> str:
    """An id that fits such an agent, for messages."""
    if observation_shape is None or len(observation_shape) < 3:
        return "CartPole-v1"
    return "fruitbot" if tuple(observation_shape) == procgen.FRAME else "Pong"


def stacked(spec: EnvSpec, observation_shape: tuple[int, ...]) -> EnvSpec:
    """The spec with the preset whose frames the agent takes, if it is of Atari and names none.

    observation_shape  of the agent, or as much of it as is known: the number of frames
    """
    if spec.suite != "atari" or "preset" in spec.options:
        return spec
    for name, preset in PRESETS.items():
        shape = (preset.stack, preset.size, preset.size)
        if observation_shape and shape[: len(observation_shape)] == observation_shape:
            return spec if name == DEFAULT_PRESET else replace(spec, options={**spec.options, "preset": name})
    return spec


def _seeds(seed: int, num_envs: int, numbers: Sequence[int] | None) -> list[int]:
    if numbers is None:
        return env_seeds(seed, num_envs)
    if len(numbers) != num_envs:
        raise BadInput(f"numbers must name {num_envs} envs, got {len(numbers)}")
    seeds = env_seeds(seed, max(numbers) + 1)
    return [seeds[number] for number in numbers]


def env_seeds(seed: int, num_envs: int) -> list[int]:
    """A seed of 31 bits for each env: the first word of numpy's SeedSequence(seed, spawn_key=(i,)), halved."""
    sequences = (np.random.SeedSequence(seed, spawn_key=(i,)) for i in range(num_envs))
    return [int(sequence.generate_state(1)[0]) >> 1 for sequence in sequences]


# ------------------------------------------------------------------------------------------------------- the suites


def _build_mujoco(request: Request) -> VecEnv:
    options = dict(request.spec.options)
    backend = options.pop("backend", "envpool" if envpool_vec.installed() else "gymnasium")
    if backend == "envpool":
        return make_envpool(request.spec, options, request.seeds, request.threads, request.timeout)
    return make_gymnasium(request.spec, options, request.seeds, request.timeout, request.accept)


def _build_atari(request: Request) -> VecEnv:
    return make_atari(request.spec, request.seeds, request.threads, request.timeout)


def _build_procgen(request: Request) -> VecEnv:
    return procgen.make_procgen(request.spec, request.seeds, request.threads, request.timeout)


def _build_gymnasium(request: Request) -> VecEnv:
    return make_gymnasium(request.spec, request.spec.options, request.seeds, request.timeout, request.accept)


_LENGTH = ("an integer ≥ 1", lambda value: is_whole(value, 1))
_BACKEND = (" or ".join(BACKENDS), lambda value: value in BACKENDS)

_SWITCH = ("true or false", lambda value: isinstance(value, bool))
_ATARI: dict[str, tuple[str, Callable[[Option], bool]]] = {
    "preset": (" or ".join(PRESETS), lambda value: value in PRESETS),
    "backend": (" or ".join(ATARI_BACKENDS), lambda value: value in ATARI_BACKENDS),
    "max_episode_steps": _LENGTH,
    "episodic_life": _SWITCH,
    "random_start": ("an integer in 0 … 1,000", lambda value: is_whole(value, 0) and int(value) <= 1_000),
    "transpose": _SWITCH,
}
_PROCGEN: dict[str, tuple[str, Callable[[Option], bool]]] = {
    "distribution_mode": (" or ".join(procgen.MODES), lambda value: value in procgen.MODES),
    "split": (" or ".join(procgen.SPLITS), lambda value: value in procgen.SPLITS),
    "num_levels": ("an integer ≥ 1 (all levels there are: split test)", lambda value: is_whole(value, 1)),
    "start_level": ("an integer ≥ 0", lambda value: is_whole(value, 0)),
}


_NUMBER = ("a number from −1e6 to 1e6", lambda value: isinstance(value, int | float) and abs(value) <= 1e6)
# The options of Gymnasium's own envs that a card may set: the physics and the task. An option that names a file
# (xml_file), opens a window (render_mode) or sets a picture's size must come from the person who runs it.
_FROM_CARD: dict[str, tuple[str, Callable[[Option], bool]]] = {
    "max_episode_steps": _LENGTH,
    "map_name": ("4x4 or 8x8", lambda value: value in ("4x4", "8x8")),
    **dict.fromkeys(
        (
            "continuous", "hardcore", "is_slippery", "natural", "sab", "enable_wind", "domain_randomize",
            "sutton_barto_reward", "is_rainy", "fickle_passenger", "terminate_when_unhealthy",
            "exclude_current_positions_from_observation", "use_contact_forces",
        ),
        _SWITCH,
    ),
    **dict.fromkeys(
        (
            "g", "gravity", "wind_power", "turbulence_power", "goal_velocity", "lap_complete_percent",
            "reset_noise_scale", "forward_reward_weight", "ctrl_cost_weight", "contact_cost_weight", "healthy_reward",
        ),
        _NUMBER,
    ),
}  # fmt: skip


def _registered() -> list[str]:
    """Gymnasium's ids; its Atari games, there as soon as something imports ale_py, belong to the suite `atari`."""
    return [id for id in gymnasium.registry if not id.startswith("ALE/")]


SUITES: dict[str, Suite] = {
    "mujoco": Suite(lambda: MUJOCO, {"backend": _BACKEND, "max_episode_steps": _LENGTH}, _build_mujoco),
    "classic": Suite(lambda: CLASSIC, {"max_episode_steps": _LENGTH}, _build_gymnasium),
    "atari": Suite(lambda: GAMES, _ATARI, _build_atari),
    "procgen": Suite(lambda: procgen.GAMES, _PROCGEN, _build_procgen, procgen.levels_of),
    "gymnasium": Suite(_registered, None, _build_gymnasium),
}


# ------------------------------------------------------------------------------------------------------- the checks


def suite_of(spec: EnvSpec) -> Suite:
    """The suite of a spec whose id and options it knows."""
    if not isinstance(spec, EnvSpec):
        raise BadInput(f"spec must be an EnvSpec, got {spec!r}; spec_for finds the one of an id")
    if spec.suite not in SUITES:
        raise BadInput(f"suite must be one of {', '.join(SUITES)}, got {spec.suite!r}")
    suite = SUITES[spec.suite]
    # "module:Id" would make Gymnasium import a module that a file may name; only registered ids pass.
    if spec.id not in suite.ids():
        game, _, split = str(spec.id).partition("-")
        if spec.suite == "procgen" and game in procgen.GAMES and split in procgen.SPLITS:
            raise BadInput(f"procgen has no environment {spec.id!r}; use {game!r} with the option split={split!r}")
        own = _OWN if suite.options is None else ""
        raise BadInput(f"{spec.suite} has no environment {spec.id!r}{_nearest(spec.id, suite.ids())}{own}")
    for name, value in spec.options.items():
        _check_option(spec, suite, name, value)
    if suite.check is not None:
        suite.check(spec)
    return suite


def check_card_env(spec: EnvSpec, source: object) -> None:
    """Refuse options that a card must not choose; those a person gives, in Python or on the command line, are free.

    source  where the card is, for the message
    """
    if spec.suite not in SUITES or SUITES[spec.suite].options is not None:
        return  # a suite with options of its own checks them in `make_env`
    for name, value in spec.options.items():
        if name not in _FROM_CARD:
            known = ", ".join(_FROM_CARD)
            raise BadInput(
                f"{source}: env option {name!r} is not taken from a card: pass env to set it (allowed: {known})"
            )
        allowed, fits = _FROM_CARD[name]
        if not fits(value):
            raise BadInput(f"{source}: env option {name} must be {allowed}, got {value!r}")


def _check_option(spec: EnvSpec, suite: Suite, name: str, value: Option) -> None:
    if not isinstance(value, bool | int | float | str):
        raise BadInput(f"option {name} must be a bool, int, float or str, got {type(value).__name__}")
    if suite.options is None:
        if name == "disable_env_checker":  # it is ours
            raise BadInput(f"option {name} of {spec.id} is set by radial")
        return
    if name not in suite.options:
        raise BadInput(f"options of suite {spec.suite} are {', '.join(suite.options)}, got {name!r}")
    allowed, fits = suite.options[name]
    if not fits(value):
        raise BadInput(f"option {name} must be {allowed}, got {value!r}")


def _nearest(name: object, known: Collection[str]) -> str:
    """Did you mean …?, or nothing. Gymnasium's ALE/Pong-v5 (sticky actions) is none of ours, but close to Pong."""
    game = re.sub(r"(NoFrameskip)?-v\d+$", "", str(name).removeprefix("ALE/"))
    name = game if game in GAMES and game in known else name
    lower = {each.lower(): each for each in known}
    close = difflib.get_close_matches(str(name).lower(), lower, n=1, cutoff=0.5)
    return f"; did you mean {lower[close[0]]!r}?" if close else ""
