"""`radial export`: an agent's network for other tools, and its certificates for other verifiers.

The files are written in `workflows.export`.
"""

from pathlib import Path
from typing import Any

import tyro
from rich.table import Table

from radial.commands.terminal import print_json, print_table, progress, warnings_said
from radial.core.errors import BadInput
from radial.evaluation.threads import one_thread_for


def export(
    agent: tyro.conf.Positional[str],
    to: str = "onnx",
    out: Path | None = None,
    env: str | None = None,
    kind: str | None = None,
    radius: str | None = None,
    bound: str = "best",
    episodes: int = 1,
    states: int = 20,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Write an agent's network as ONNX, or with it one VNN-LIB property per visited state and our verdict on each.

    Args:
        agent: a run's folder, a name in the zoo, or a third-party checkpoint: papers, Stable-Baselines3, CleanRL, ONNX.
        to: onnx (the network that decides) or vnnlib (network, properties, index.json and instances.csv).
        out: the folder to write to.
        env: vnnlib: an environment's id, such as CartPole-v1; default: the one the agent was trained in.
        kind: of an .onnx file, which does not say what its outputs are: q, categorical or gaussian.
        radius: vnnlib: perturbation radius ε in network units, such as 0.075 or 3/255.
        bound: vnnlib: ibp, crown-ibp, crown, or best: the tightest of the three; always rounded outward.
        episodes: vnnlib: clean episodes whose states are drawn from.
        states: vnnlib: number of states.
        seed: random seed.
        json: print one JSON object instead of a table.
    """
    from radial.core.text import nearest
    from radial.envs.make import example_for
    from radial.recipes.recipe import parse_radius
    from radial.reports.page import check_folder
    from radial.workflows.export import FORMATS, export_network, export_properties
    from radial.workflows.loading import load

    if to not in FORMATS:
        raise BadInput(f"to must be one of {', '.join(FORMATS)}, got {to!r}{nearest(to, FORMATS)}")
    if out is None:
        raise BadInput("an export needs a folder: --out DIR")
    if to == "vnnlib" and radius is None:
        raise BadInput("--to vnnlib needs a --radius, such as 0.075 or 3/255")
    check_folder(out, "--out")
    loaded = load(agent, env, kind=kind)
    one_thread_for(loaded.observation_shape)
    if to == "onnx":
        facts: dict[str, Any] = {"agent": agent, "network": str(export_network(loaded, out))}
    else:
        where = loaded.card.env
        if where is None:
            near = example_for(loaded.observation_shape)
            raise BadInput(f"{agent}: no environment recorded; pass --env, such as --env {near}")
        with progress(episodes, "episodes") as show, warnings_said():
            facts = export_properties(
                loaded, where, parse_radius(radius or "0"), out,
                bound=bound, episodes=episodes, states=states, seed=seed, name=agent, progress=show,
            )  # fmt: skip
    if json:
        print_json(facts)
    else:
        _show(facts, out)


def _show(facts: dict[str, Any], out: Path) -> None:
    table = Table("", "", title=facts["agent"], show_header=False)
    table.add_row("folder", str(out))
    table.add_row("network", Path(facts["network"]).name)
    if "properties" in facts:
        table.add_row("properties", f"{facts['states']}, of these certified by us {facts['certified']}")
        table.add_row("ball", f"ε = {facts['radius']:g}, p = inf, bound {facts['bound']}, {facts['arithmetic']}")
    print_table(table)
