"""`radial robustify`: take an agent, trained here or elsewhere, and make it robust; a table says what that changed.

How it is done is in `recipes.robustify`.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import tyro
from rich.table import Table

from radial.commands.terminal import print_json, print_table, say, warnings_said
from radial.core.data import BadInput

if TYPE_CHECKING:
    from radial.workflows.robustify import Robustified, Standing

STEPS = 300_000


def robustify(
    agent: tyro.conf.Positional[str],
    radius: str | None = None,
    env: str | None = None,
    steps: int = STEPS,
    kappa: float | None = None,
    objective: str | None = None,
    tolerance: float = 0.25,
    seed: int = 0,
    episodes: int = 20,
    out: Path | None = None,
    resume: bool = False,
    threads: int | None = None,
    device: str = "cpu",
    json: bool = False,
) -> None:
    """Make an agent robust: go on training it with RADIAL's loss while ε grows, and compare before and after.

    The folder is a run like those of `radial train`: metrics.jsonl is the curve, agent/ the agent; comparison.json is
    what is printed. The ramp of ε slows down, stands still or goes back while the undisturbed return suffers.

    Args:
        agent: a run's folder, the name of an agent in the zoo, or a file of the papers, Stable-Baselines3 or CleanRL.
        radius: ε that it shall withstand, in network units, such as 0.075 or 1/255.
        env: an environment's id, such as Hopper-v4 or fruitbot; default: what the agent or the file's name says.
        steps: env steps to train.
        kappa: weight of the nominal loss, 0 … 1; default: what suits the kind of agent.
        objective: radial-overlap, radial-worst-case, radial-likelihood, or on frames sa; default: what suits the agent.
        tolerance: share of the undisturbed return that may be lost before the ramp of ε is held.
        seed: of everything random.
        episodes: of each score, before and after.
        out: the run's folder; default: runs/robust-NAME-seedN.
        resume: go on with the run in that folder.
        threads: of torch and of the simulator; default: one of torch and one of the simulator per core.
        device: cpu, or cuda where there is one.
        json: print one JSON object instead of a table.
    """
    import torch

    from radial.agents.convert import own
    from radial.bench.measure import keep_freed_memory
    from radial.commands.reproduce import watch
    from radial.commands.train import check_number
    from radial.envs.make import example_for
    from radial.recipes.recipe import parse_radius
    from radial.workflows.loading import load
    from radial.workflows.robustify import robustify as make_robust

    if radius is None:
        raise BadInput("robustify needs a --radius, such as 0.075 or 1/255")
    check_number("threads", threads, 1)
    with warnings_said():
        loaded = own(load(agent, env), "agent")
    if loaded.card.env is None:
        near = example_for(loaded.observation_shape)
        raise BadInput(f"{agent} does not say where it acts: give --env, such as --env {near}")
    folder = Path("runs") / f"robust-{Path(agent).stem}-seed{seed}" if out is None else out
    torch.set_num_threads(threads or 1)
    keep_freed_memory()
    with warnings_said():
        found = make_robust(
            loaded, parse_radius(radius), steps, kappa=kappa, objective=objective, tolerance=tolerance, seed=seed,
            episodes=episodes, out=folder, resume=resume, device=device, threads=threads, watch=watch,
        )  # fmt: skip
    if json:
        print_json(found.to_json() | {"out": str(folder)})
        return
    _show(found, agent)
    if found.reached < found.radius:
        say(f"ε ended at {found.reached:.3g} of {found.radius:.3g}, held back by the return: more --steps may help")
    say(f"the agent is in {folder}: radial evaluate {folder}")


def _show(found: "Robustified", agent: str) -> None:
    from radial.core.text import spell_radius

    facts = found.to_json()
    table = Table("", "before", "after", title=f"{agent} in {found.config.env.id}, ε = {spell_radius(found.radius)}")
    sides = (found.before, found.after)
    table.add_row("undisturbed return", *(_score(side.nominal) for side in sides))
    table.add_row(f"under {found.attack}", *(_score(side.attacked) for side in sides))
    name = "certified actions" if facts["before"]["certified"]["metric"] == "acr" else "a mean action moves at most"
    table.add_row(f"{name} (IBP)", *(_proven(side) for side in sides))
    table.add_row("", "", f"{facts['objective']}, κ {facts['kappa']:.3g}, {facts['steps']:,} steps")
    print_table(table)


def _score(result: object) -> str:
    return f"{result.mean:.1f} ± {result.sem:.1f}"  # type: ignore[attr-defined]


def _proven(side: "Standing") -> str:
    return f"{side.certified.mean:.3f}"
