"""`train`: a config, whatever its algorithm, becomes an agent with a card that says how it came to be.

The loops themselves are in `algorithms`; which config carries which name is in `recipe`.
"""

import math
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from radial.agents.agents import Card, CategoricalAgent, GaussianAgent, agent_for
from radial.agents.checkpoints import CARD, load, save
from radial.algorithms import ppo
from radial.algorithms.config import encode
from radial.attacks import ATTACKS
from radial.core.data import Attack, BadInput
from radial.envs.make import make_env
from radial.recipes.recipe import nearest

AGENT = "agent"  # the folder of the finished agent in a run's folder
LOOPS: dict[type, Callable[..., GaussianAgent | CategoricalAgent]] = {ppo.PPOConfig: ppo.train}


def train(
    config: ppo.PPOConfig,
    seed: int = 0,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    device: str = "cpu",
    threads: int | None = None,
    quiet: bool = False,
    recipe: str | None = None,
) -> GaussianAgent | CategoricalAgent:
    """Train an agent. With `out` the run is logged and saved there, and the agent itself in out/agent.

    resume   go on with the run in `out`; a finished one gives its agent
    threads  of the simulator; no result depends on it
    recipe   the name the config goes by, for the card
    """
    check(config, seed, device)
    attack = None if config.attack is None else attack_named(config.attack)
    folder = None if out is None else Path(out)
    agent = LOOPS[type(config)](
        config, seed, out=folder, resume=resume, attack=attack, device=device, threads=threads, quiet=quiet
    )
    if folder is not None and resume and (folder / AGENT / CARD).is_file():
        return load(folder / AGENT)  # the run was finished, and what has been found out since is on the card
    agent.card = Card(
        env=config.env,
        recipe={"name": recipe, "config": encode(config)},
        seed=seed,
        steps=config.total_steps,
        commit=_commit(),
    )
    if folder is not None:
        save(agent, folder / AGENT)
    return agent


def check(config: ppo.PPOConfig, seed: int, device: str = "cpu") -> None:
    """Refuse, before anything is written, what could not be trained here."""
    if type(config) not in LOOPS:
        raise BadInput(f"config must be one of {', '.join(kind.__name__ for kind in LOOPS)}, got {type(config)}")
    try:
        found = torch.device(device)
    except RuntimeError:
        raise BadInput(f"device must be cpu or cuda, got {device!r}") from None
    if found.type not in ("cpu", "cuda") or (found.type == "cuda" and not torch.cuda.is_available()):
        raise BadInput(f"device must be one this machine has, got {device!r}")
    if config.attack is not None:
        attack_named(config.attack)
    for step in (0, config.total_steps):
        _check_coefficients(config.objective.coefficients(step), step)
        _check_coefficients({"attack_radius": config.attack_radius(step)}, step)
    env = make_env(config.env, 1, seed)  # an unknown env, a missing package, a seed that is none
    env.close()
    agent_for(env.observation_shape, env.actions, config.hidden)


def _check_coefficients(at: Mapping[str, float], step: int) -> None:
    """Where a ramp begins and ends must make sense: a radius is not negative, a share is a share."""
    for name, value in at.items():
        most = math.inf if "radius" in name else 1.0
        if not (0 <= value <= most and math.isfinite(value)):
            raise BadInput(f"{name} must lie in {'[0, ∞)' if most > 1 else '[0, 1]'}, got {value:g} at step {step:,}")


def attack_named(name: str) -> Attack:
    """An attack for adversarial training: one that needs no training of its own."""
    ready = [known for known, make in ATTACKS.items() if not hasattr(make(), "fit")]
    if name not in ready:
        raise BadInput(f"attack must be one of {', '.join(ready)}, got {name!r}{nearest(name, ready)}")
    found: Any = ATTACKS[name]()
    return found


def _commit() -> str | None:
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
