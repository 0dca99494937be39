"""What `evaluate`, `audit` and `play` share: reading an attack's name and radius, and filming episodes for --video."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from radial.commands.terminal import progress, say
from radial.core.agent import Agent, Attack
from radial.core.data import BadInput, EnvSpec
from radial.core.text import nearest, spell_radius
from radial.envs.film import RATE, SIDE, Take, film
from radial.evaluation.play import Fittable

SIZES = {".gif": (240, 12.5)}  # longest side and pictures per second: a GIF hardly compresses


def read_attack(name: str, radius: str | None, stochastic: bool = False) -> tuple[Attack | Fittable, float]:
    """The attack of a command line and its radius; ("none", None) is no attack at radius 0.

    name  in `ATTACKS`, or the folder of a fitted attack        stochastic  the agent samples its actions
    """
    return _attack(name, stochastic), radius_for(name, radius)


def radius_for(name: str, radius: str | None) -> float:
    """The radius of a command line; an attack of any name but "none" needs one."""
    from radial.recipes.recipe import parse_radius

    if radius is None and name != "none":
        raise BadInput(f"--attack {name} needs a --radius, such as 0.075 or 3/255")
    return parse_radius(radius or "0")


def _attack(name: str, stochastic: bool) -> Attack | Fittable:
    from radial.attacks import ATTACKS
    from radial.attacks.gradient import MAD
    from radial.attacks.learned.stored import load_attack

    if name == "mad" and stochastic:
        return MAD(stochastic=True)
    if name in ATTACKS:
        return ATTACKS[name]()
    if Path(name).exists():
        return load_attack(name)
    raise BadInput(
        f"attack must be one of {', '.join(ATTACKS)}, or the folder of a fitted attack, "
        f"got {name!r}{nearest(name, ATTACKS)}"
    )


def first_episode(
    agent: Agent, spec: EnvSpec, attack: Attack | None, name: str, radius: float, seed: int, p: float = math.inf
) -> list[tuple[str, Take]]:
    """The first episode of an evaluation with this seed, each under its title: clean, and under the attack if any."""
    from radial.workflows.audit.trace import first_take

    takes = [("clean", first_take(agent, spec, None, 0.0, seed))]
    if attack is not None:
        takes.append((_title(name, radius), first_take(agent, spec, attack, radius, seed, p)))
    return takes


def recorded_episode(trace: Mapping[str, Any]) -> list[tuple[str, Take]]:
    """Both episodes of an audit's trace."""
    from radial.workflows.audit.pictures import take_of

    return [("clean", take_of(trace, False)), (_title(trace["attack"], trace["radius"]), take_of(trace, True))]


def _title(attack: str, radius: float) -> str:
    return f"{attack}, ε = {spell_radius(radius)}"


def shoot(path: Path, takes: Sequence[tuple[str, Take]]) -> Path:
    """Film episodes, each under its title, and write them side by side."""
    from radial.reports.video import Panel, write_video

    side, rate = SIZES.get(path.suffix.lower(), (SIDE, RATE))
    steps, done, panels = sum(len(take.actions) for _, take in takes), 0, []
    with progress(steps, "steps filmed") as show:
        for title, take in takes:
            seen = film(take, side=side, rate=rate, progress=partial(_counted, show, done))
            if seen.note is not None:
                say(f"note: {title}: {seen.note}")
            panels.append(Panel(title, seen.at, seen.pictures, take.rewards, seen.fps))
            done += len(take.actions)
    return write_video(path, panels)


def _counted(show: Callable[[int], None], before: int, step: int) -> None:
    show(before + step)
