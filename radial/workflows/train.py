"""`train`: a config of any algorithm in, an agent with a card that records how it was trained out.

The loops themselves are in `training`; which config carries which name is in `recipes`.
"""

import math
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from radial.agents.convert import AnyAgent, Loaded, own
from radial.agents.saved import CARD, check_target, read_folder, save
from radial.agents.weights import weights_id
from radial.agents.zoo import resolve
from radial.attacks import ATTACKS
from radial.attacks.corners import check_corners
from radial.attacks.learned.alternating import LEARNERS, Alternating
from radial.attacks.learned.directors import attacked_envs
from radial.core.agent import Attack, Card
from radial.core.checks import check_whole
from radial.core.data import BadInput
from radial.core.text import nearest
from radial.envs.make import make_env
from radial.evaluation.play import Fittable
from radial.objectives import deterministic as of_ddpg
from radial.objectives import policy_gradient as of_a3c
from radial.objectives import q_objectives as of_dqn
from radial.objectives import surrogate as of_ppo
from radial.recipes.recipe import Config
from radial.runs.config import encode
from radial.runs.run import is_run
from radial.runs.storage import SharedStorage
from radial.runs.tracking import Tracking, run_name
from radial.training import a3c, ddpg, dqn, ppo
from radial.training.ramp import Guide
from radial.training.ranks import follows, ranks_here
from radial.workflows.loading import open_agent

AGENT = "agent"  # the folder of the finished agent in a run's folder
LOOPS: dict[type, Callable[..., AnyAgent]] = {
    ppo.PPOConfig: ppo.train_ppo,
    dqn.DQNConfig: dqn.train_dqn,
    a3c.A3CConfig: a3c.train_a3c,
    ddpg.DDPGConfig: ddpg.train_ddpg,
}

# By the name under which `radial` exports them.
OBJECTIVES_OF: dict[str, Mapping[str, type]] = {
    "ppo": of_ppo.OBJECTIVES,
    "dqn": of_dqn.OBJECTIVES,
    "a3c": of_a3c.OBJECTIVES,
    "ddpg": of_ddpg.OBJECTIVES,
}


ROOMS: dict[type, str] = {ppo.PPOConfig: "ppo", dqn.DQNConfig: "dqn", a3c.A3CConfig: "a3c", ddpg.DDPGConfig: "ddpg"}


def train(
    config: Config,
    seed: int = 0,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    init: str | Path | Loaded | None = None,
    guide: Guide | None = None,
    device: str = "cpu",
    threads: int | None = None,
    quiet: bool = False,
    recipe: str | None = None,
    storage: str | None = None,
    address: str | None = None,
    track: Tracking | None = None,
    origin: str | None = None,
) -> AnyAgent:
    """Train an agent. With `out` the run is logged and saved there, and the agent itself in out/agent.

    resume   resume the run in `out`; a finished one gives its agent
    init     an agent to start from, or where one is saved: its weights, and its normaliser if it has one
    guide    sets the clock of the schedules, as `robustify` does; None: they follow the env steps
    threads  of the simulator; no result depends on it
    recipe   the name the config goes by, for the card
    storage  a shared folder or a URI such as s3://bucket/runs: checkpoints are copied to NAME there, NAME that of
             `out`, and a run found there is resumed here
    address  of the Ray cluster whose actors collect rollouts where config.num_runners > 0; None: one is started here
    track    where metrics go besides metrics.jsonl; None: TensorBoard events in out/tb
    origin   where the settings come from, for the card, if from no recipe for this env
    """
    if follows():  # rank 0 alone has a folder
        out, resume, storage, quiet, track = None, False, None, True, None
    device = _device_of_rank(config, device)
    if storage is not None:
        with _stored(storage, out) as kept:
            return train(
                config, seed, out=kept, resume=resume or is_run(kept), init=init, guide=guide, device=device,
                threads=threads, quiet=quiet, recipe=recipe, address=address, track=track, origin=origin,
            )  # fmt: skip
    seed = check_whole("seed", seed, 0)
    if resume and out is None:
        raise BadInput("resume needs out: the folder of the run to resume")
    given = open_agent(resolve(str(init))) if isinstance(init, str | Path) else init
    start = None if given is None else own(given, "init")
    _check_pixels(config, check_trainable(config, seed, device, start))
    more = _further(config, start, guide, address)
    if track is not None:
        track.check()
        more["track"] = track if track.name else replace(track, name=run_name(config.env.id, recipe or "train", seed))
    folder = None if out is None else Path(out)
    if folder is not None:
        check_target(folder / AGENT)
    agent = LOOPS[type(config)](
        config, seed, out=folder, resume=resume, device=device, threads=threads, quiet=quiet, **more
    )
    if folder is not None and resume and (folder / AGENT / CARD).is_file():
        return read_folder(folder / AGENT)  # the run was finished, and what has been found out since is on the card
    agent.card = _card(config, seed, recipe, origin, start)
    if folder is not None:
        save(agent, folder / AGENT)
    return agent


def _device_of_rank(config: Config, device: str) -> str:
    """Each rank of `torchrun` has a GPU of its own; A3C, whose workers share memory, has no ranks."""
    ranks = ranks_here()
    if ranks is None:
        return device
    if isinstance(config, a3c.A3CConfig):
        raise BadInput("torchrun is for ppo and dqn: a3c has workers of its own, num_workers")
    return f"cuda:{ranks.local}" if device == "cuda" else device


def _further(config: Config, start: AnyAgent | None, guide: Guide | None, address: str | None) -> dict[str, Any]:
    """Arguments of a loop that not every training has."""
    more: dict[str, Any] = {}
    if config.attack is not None:
        more["attack"] = attack_of(config)
    if start is not None:
        more["init"] = start
    if guide is not None:
        more["guide"] = guide
    if isinstance(config, ppo.PPOConfig) and config.num_runners:
        more["address"] = address
    return more


@contextmanager
def _stored(storage: str, out: str | Path | None) -> Iterator[Path]:
    """The folder of a run whose copy is in storage, under the folder's name."""
    if out is None:
        raise BadInput("storage needs out: the folder whose name the run has there")
    with SharedStorage(storage).kept(Path(out).name, Path(out)):
        yield Path(out)


def _card(config: Config, seed: int, recipe: str | None, origin: str | None, start: AnyAgent | None) -> Card:
    """How an agent was trained."""
    facts: dict[str, Any] = {} if origin is None else {"notes": [origin]}
    facts |= {} if start is None else {"init": weights_id(start)}
    facts |= {"resume": config.resumes} if isinstance(config, a3c.A3CConfig) else {}
    made_by = {"name": recipe, "config": encode(config), **facts}
    return Card(env=config.env, recipe=made_by, seed=seed, steps=config.total_steps, commit=commit())


def check_trainable(config: Config, seed: int, device: str = "cpu", init: AnyAgent | None = None) -> tuple[int, ...]:
    """Refuse, before anything is written, a training that could not run here, or not from `init`.

    Returns the shape of one observation.
    """
    if type(config) not in LOOPS:
        raise BadInput(f"config must be one of {', '.join(kind.__name__ for kind in LOOPS)}, got {type(config)}")
    _check_objective(config)
    try:
        found = torch.device(device)
    except RuntimeError:
        raise BadInput(f"device must be cpu or cuda, got {device!r}") from None
    if found.type not in ("cpu", "cuda") or (found.type == "cuda" and not torch.cuda.is_available()):
        raise BadInput(f"device must be one this machine has, got {device!r}")
    for step in (0, config.total_steps):
        _check_coefficients(config.objective.coefficients(step), step, free=isinstance(config.objective, REGULARISED))
    where = config.training_env if isinstance(config, a3c.A3CConfig) else config.env
    env = make_env(where, 1, seed)  # an unknown env, a missing package, a seed that is none
    try:
        if isinstance(config, a3c.A3CConfig):
            a3c.check_device(config, found)
            a3c.check_env(config, env, init)
        elif isinstance(config, dqn.DQNConfig):
            dqn.check_env(config, env, init)
        elif isinstance(config, ddpg.DDPGConfig):
            ddpg.check_env(config, env, init)
        else:
            ppo.check_env(config, env, init)
        _check_attack(config, env.observation_shape)
        return env.observation_shape
    finally:
        env.close()


def _check_objective(config: Config) -> None:
    """Refuse anything that is no objective, and an objective of another algorithm: they share names."""
    room = ROOMS[type(config)]
    own = OBJECTIVES_OF[room].values()
    kinds = ", ".join(kind.__name__ for kind in own)
    if isinstance(config.objective, type) or not hasattr(config.objective, "coefficients"):
        raise BadInput(f"objective must be an object of rr.{room}, one of {kinds}, got {config.objective!r}")
    kind = type(config.objective)
    homes = [name for name, others in OBJECTIVES_OF.items() if kind in others.values()]
    if homes and room not in homes:
        raise BadInput(f"objective must be one of {kinds} in rr.{room}, got {kind.__name__} of rr.{homes[0]}")


def _check_attack(config: Config, observation_shape: tuple[int, ...]) -> None:
    """Adversarial training: an attack that is ready, a radius that is one, and not 0 all along."""
    for step in (0, config.total_steps):
        _check_coefficients({"attack_radius": config.attack_radius(step)}, step)
    if config.attack is None:
        return
    attack_of(config)
    most = max(config.attack_radius(step) for step in (0, config.total_steps))  # schedules are monotone
    for name, value in (("attack_radius", most), ("attack_probability", config.attack_probability)):
        if value == 0:
            raise BadInput(f"{name} must be > 0 where an attack is trained against, got 0 for attack {config.attack!r}")
    if config.attack == "linear" and isinstance(config, ppo.PPOConfig):
        attacked_envs(config, observation_shape)
    if config.attack == "corners":
        check_corners(observation_shape)


def _check_pixels(config: Config, observation_shape: tuple[int, ...]) -> None:
    """Frames become numbers in [0, 1], so a radius beyond 1 was meant in grey levels."""
    radius = config.objective.coefficients(config.total_steps).get("radius", 0.0)
    if len(observation_shape) > 1 and radius > 1:
        raise BadInput(f"radius must be in network units: inputs lie in [0, 1], got {radius:g}; use {radius:g}/255")


# Objectives whose weight is that of a regulariser and not a share, so it may exceed 1.
REGULARISED = (of_dqn.SA, of_ppo.SA, of_ddpg.SA)


def _check_coefficients(at: Mapping[str, float], step: int, *, free: bool = False) -> None:
    """Where a ramp begins and ends must make sense: a radius is not negative, a share is a share."""
    for name, value in at.items():
        most = math.inf if "radius" in name or (free and name == "weight") else 1.0
        if not (0 <= value <= most and math.isfinite(value)):
            raise BadInput(f"{name} must lie in {'[0, ∞)' if most > 1 else '[0, 1]'}, got {value:g} at step {step:,}")


def attack_of(config: Config) -> Attack | Alternating:
    """The attack that a config names: an adversary that learns where turns are set."""
    assert config.attack is not None
    if isinstance(config, ppo.PPOConfig):
        if config.turns is not None:
            return Alternating(config.attack)
        if config.attack in LEARNERS:
            raise BadInput(f"turns must be set for the attack {config.attack!r}, which learns with the agent; got none")
    return attack_named(config.attack)


def attack_named(name: str) -> Attack:
    """An attack for adversarial training: one that needs no training of its own."""
    attacks = {known: make() for known, make in ATTACKS.items()}
    ready = {known: attack for known, attack in attacks.items() if not isinstance(attack, Fittable)}
    if name not in ready:
        raise BadInput(f"attack must be one of {', '.join(ready)}, got {name!r}{nearest(name, ready)}")
    return ready[name]


def commit() -> str | None:
    """The commit of radial, where it runs from a checkout; "+" says that files were changed since."""
    root = Path(__file__).parent.parent.parent
    if not (root / ".git").exists():
        return None
    try:
        said = [
            subprocess.run(["git", "-C", str(root), *command], capture_output=True, text=True, check=True, timeout=10)
            for command in (("rev-parse", "HEAD"), ("status", "--porcelain", "--untracked-files=no"))
        ]
    except (OSError, subprocess.SubprocessError):
        return None
    return said[0].stdout.strip() + ("+" if said[1].stdout.strip() else "")
