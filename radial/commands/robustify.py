"""`radial robustify`: fine-tune an agent, trained here or elsewhere, and print its returns before and after.

How it is done is in `workflows.robustify`.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import tyro
from rich.table import Table

from radial.commands.terminal import print_json, print_table, say, warnings_said, watch
from radial.core.errors import BadInput
from radial.core.text import round_down, round_up

if TYPE_CHECKING:
    from radial.evaluation.play import Evaluation
    from radial.workflows.robustify import Robustified, Standing

STEPS = 300_000


def robustify(
    agent: tyro.conf.Positional[str],
    radius: str | None = None,
    env: str | None = None,
    kind: str | None = None,
    steps: int = STEPS,
    kappa: float | None = None,
    objective: str | None = None,
    tolerance: float = 0.25,
    set: tyro.conf.UseAppendAction[tuple[tuple[str, ...], ...]] = (),
    seed: int = 0,
    episodes: int = 20,
    out: Path | None = None,
    resume: bool = False,
    threads: int | None = None,
    device: str = "cpu",
    track: str = "tensorboard",
    track_project: str = "radial",
    vecnormalize: str | None = None,
    json: bool = False,
) -> None:
    """Fine-tune an agent with the RADIAL loss, pausing the ε ramp if the clean return drops; compare before and after.

    The folder is a run like those of `radial train`: metrics.jsonl is the curve, agent/ the agent; comparison.json
    holds what is printed. The ε ramp slows down, pauses or goes back while the clean return of the greedy policy is too
    low. The most robust agent within the tolerance is kept; if there is none, the original is, and the exit code is 1.

    Args:
        agent: a run's folder, a name in the zoo, or a third-party checkpoint: papers, Stable-Baselines3, CleanRL, ONNX.
        radius: perturbation radius ε to train for, in network units, such as 0.075 or 1/255.
        env: an environment's id, such as Hopper-v4 or fruitbot; default: that of the agent's card or its file name.
        kind: of an .onnx file, which does not say what its outputs are: q, categorical or gaussian.
        steps: env steps to train.
        kappa: weight of the standard loss, 0 … 1; default: that of the kind of agent.
        objective: radial-overlap, radial-worst-case, radial-likelihood, on frames sa, or distil; default: by agent.
        tolerance: share of the clean return that may be lost before the ε ramp pauses.
        set: KEY=VALUE …, any other setting by its dotted path, such as policy_rate=3e-4; default: those of the agent's
            card or of its Stable-Baselines3 file, else of a recipe.
        seed: random seed.
        episodes: of each evaluation, before and after.
        out: the run's folder; default: runs/robust-NAME-seedN.
        resume: resume the run in that folder.
        threads: of torch and of the simulator; default: one torch thread, one simulator thread per core.
        device: cpu, or cuda where there is one.
        track: tensorboard, wandb (Weights & Biases, beside it) or none: where metrics go besides metrics.jsonl.
        track_project: project of Weights & Biases.
        vecnormalize: statistics of a Stable-Baselines3 agent, if they do not lie near its file; none: it has none.
        json: print one JSON object instead of a table.
    """
    import torch

    from radial.agents.convert import own
    from radial.commands.measure import keep_freed_memory
    from radial.commands.train import check_number, traceback_kept
    from radial.envs.make import example_for
    from radial.recipes.recipe import parse_radius
    from radial.runs.tracking import Tracking
    from radial.workflows.loading import load
    from radial.workflows.robustify import robustify as make_robust

    if radius is None:
        raise BadInput("robustify needs a --radius, such as 0.075 or 1/255")
    check_number("threads", threads, 1)
    tracking = Tracking(track, track_project)
    tracking.check()
    with warnings_said():
        loaded = own(load(agent, env, vecnormalize, kind=kind), "agent")
    if loaded.card.env is None:
        near = example_for(loaded.observation_shape)
        raise BadInput(f"{agent}: no environment recorded; pass --env, such as --env {near}")
    folder = Path("runs") / f"robust-{Path(agent).stem}-seed{seed}" if out is None else out
    torch.set_num_threads(threads or 1)
    keep_freed_memory()
    with warnings_said(), traceback_kept(folder):
        found = make_robust(
            loaded, parse_radius(radius), steps, kappa=kappa, objective=objective, tolerance=tolerance,
            settings=[setting for group in set for setting in group], seed=seed, episodes=episodes,
            out=folder, resume=resume, device=device, threads=threads, watch=watch, track=tracking,
        )  # fmt: skip
    if json:
        print_json(found.to_json() | {"out": str(folder)})
    else:
        _show(found, agent)
    if found.failed:
        say(
            f"failed: the original is better; no agent kept its clean return within {tolerance:g} and gained robustness"
        )
        sys.exit(1)
    if json:
        return
    _say_settings(found)
    say(f"kept: the agent of step {found.kept:,}, the most robust within the tolerance")
    if found.reached < found.radius:
        say(f"ε ended at {found.reached:.3g} of {found.radius:.3g}: the ramp paused for the return; try more --steps")
    say(f"the agent is in {folder}: radial evaluate {folder}")


def _say_settings(found: "Robustified") -> None:
    if found.used:
        used = ", ".join(f"{name} {value:g}" for name, value in found.used.items())
        ours = f"; ours for {', '.join(found.ours)}" if found.ours else ""
        say(f"settings of its file: {used}{ours}")


def _show(found: "Robustified", agent: str) -> None:
    from radial.core.text import spell_radius

    facts = found.to_json()
    table = Table("", "before", "after", title=f"{agent} in {found.config.env.id}, ε = {spell_radius(found.radius)}")
    sides = (found.before, found.after)
    table.add_row("clean return", *(_spread(side.nominal) for side in sides))
    table.add_row(f"return under {found.attack}", *(_spread(side.attacked) for side in sides))
    name = (
        "certified actions"
        if facts["before"]["certified"]["metric"] == "acr"
        else "bound on the shift of the mean action"
    )
    table.add_row(f"{name} (IBP)", *(_certified(side) for side in sides))
    table.add_row("", "", f"{facts['objective']}, κ {facts['kappa']:.3g}, {facts['steps']:,} steps")
    print_table(table)


def _spread(result: "Evaluation") -> str:
    return f"{result.mean:.1f} ± {result.sem:.1f}"


def _certified(side: "Standing") -> str:
    count = side.certified.to_json().get("distinct_actions")
    mean = side.certified.mean
    return round_up(mean, 3) if count is None else f"{round_down(mean, 3)} ({count} distinct)"
