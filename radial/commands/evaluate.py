"""`radial evaluate`: the return of an agent, clean or under an attack.

The loop that plays is in `evaluation`, the attacks in `attacks`.
"""

import math
from pathlib import Path
from typing import TYPE_CHECKING

import tyro
from rich.table import Table

from radial.commands.terminal import print_json, print_table, progress, say, warnings_said
from radial.core.errors import BadInput
from radial.evaluation.threads import one_thread_for

if TYPE_CHECKING:
    from radial.core.agent import Attack
    from radial.evaluation.play import Fittable


def evaluate(
    agent: tyro.conf.Positional[str],
    env: str | None = None,
    kind: str | None = None,
    attack: str = "none",
    radius: str | None = None,
    episodes: int = 50,
    seed: int = 0,
    stochastic: bool = False,
    num_envs: int | None = None,
    first_finished: bool = False,
    trace: Path | None = None,
    timing: float | None = None,
    vecnormalize: str | None = None,
    json: bool = False,
) -> None:
    """Play episodes with an agent, clean or under an attack, and print its return.

    Args:
        agent: a run's folder, a name in the zoo, or a third-party checkpoint: papers, Stable-Baselines3, CleanRL, ONNX.
        env: an environment's id, such as Hopper-v4 or fruitbot-test; default: the one the agent was trained in.
        kind: of an .onnx file, which does not say what its outputs are: q, categorical or gaussian.
        attack: none, random, critic, mad, rs, rs+mad, compounding, transfer, pgd, pgd-procgen, pgd-strong, fgsm,
            corners, sarl, paad, learned, or the folder of a fitted attack (`radial attack fit`).
        radius: perturbation radius ε in network units, such as 0.075 or 3/255; needed with an attack.
        episodes: number of episodes.
        seed: random seed.
        stochastic: sample the agent's actions instead of taking the best one.
        num_envs: parallel environments, at most one per episode; default: 50, in ProcGen 64.
        first_finished: count the episodes that end first, as RADIAL does on ProcGen; default: equal shares per env.
        trace: a folder for a page that shows the first episode step by step; needs an attack.
        timing: attack only in this share of the steps, such as 0.25: those that matter most to the agent.
        vecnormalize: statistics of a Stable-Baselines3 agent, if they do not lie near its file; none: it has none.
        json: print one JSON object instead of a table.
    """
    from radial.attacks.timing import Timed
    from radial.envs.make import example_for
    from radial.evaluation.play import Fittable, fitted, spec_of, streams
    from radial.evaluation.play import evaluate as play
    from radial.recipes.recipe import parse_radius
    from radial.reports.page import check_folder, write_page
    from radial.workflows.audit.trace import traced
    from radial.workflows.loading import load

    chosen = chosen_attack(attack, stochastic)
    if timing is not None:
        chosen = Timed(chosen, timing)
    if radius is None and attack != "none":
        raise BadInput(f"--attack {attack} needs a --radius, such as 0.075 or 3/255")
    if trace is not None and (attack == "none" or stochastic or first_finished):
        named = [name for name, on in (("--stochastic", stochastic), ("--first-finished", first_finished)) if on]
        wrong = f", and not {' or '.join(named)}" if named else ""
        raise BadInput(f"--trace shows an attack beside the same clean episode: give --attack{wrong}")
    if trace is not None:
        check_folder(trace, "--trace")
    epsilon = parse_radius(radius or "0")
    loaded = load(agent, env, vecnormalize, kind=kind)
    one_thread_for(loaded.observation_shape)
    where = loaded.card.env
    if where is None:
        near = example_for(loaded.observation_shape)
        raise BadInput(f"{agent}: no environment recorded; pass --env, such as --env {near}")
    with progress(episodes, "episodes") as show, warnings_said():
        if trace is not None and isinstance(chosen, Fittable):
            chosen = fitted(chosen, loaded, spec_of(where), epsilon, math.inf, streams(seed)[1])
        result = play(
            loaded, where, chosen, epsilon, episodes, seed,
            num_envs=num_envs, stochastic=stochastic, first_finished=first_finished, name=agent, progress=show,
        )  # fmt: skip
        if trace is not None and not isinstance(chosen, Fittable):
            clean = play(loaded, where, None, 0.0, episodes, seed, num_envs=num_envs, name=agent)
            shown = traced(loaded, spec_of(where), clean, result, attack, chosen)
            say(f"page: {write_page([shown.to_json(trace=True)], trace)}")
    facts = result.to_json() | {"attack": attack, "attack_settings": result.attack}
    if json:
        print_json(facts)
        return
    table = Table("", "", title=f"{agent} in {result.env}", show_header=False)
    low, high = result.iqm_ci95
    for name, value in (
        ("attack", attack if attack == "none" else f"{attack} at ε = {epsilon:g}"),
        ("return, mean ± SEM", f"{result.mean:.1f} ± {result.sem:.1f}"),
        ("interquartile mean, 95 %", f"{result.iqm:.1f}  ({low:.1f} … {high:.1f})"),
        ("least … most", f"{min(result.returns):.1f} … {max(result.returns):.1f}"),
        ("episodes, seed", f"{result.episodes}, {result.seed}"),
        ("seconds", f"{result.wall_seconds:.1f}"),
    ):
        table.add_row(name, value)
    print_table(table)


def chosen_attack(name: str, stochastic: bool = False) -> "Attack | Fittable":
    """The attack of this name, or the fitted one in the folder of this name."""
    from radial.attacks import ATTACKS
    from radial.attacks.gradient import MAD
    from radial.attacks.learned.stored import load_attack
    from radial.core.text import nearest

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
