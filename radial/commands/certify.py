"""`radial certify`: certified numbers of an agent's episodes under perturbed observations.

The certificates are in `evaluation`, the bounds they rest on in `bounds`.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import tyro
from rich.table import Table

from radial.commands.terminal import print_json, print_table, progress, warnings_said
from radial.core.errors import BadInput
from radial.core.text import round_down
from radial.evaluation.threads import one_thread_for

METRICS = ("gwc", "acr", "awc")


def certify(
    agent: tyro.conf.Positional[str],
    env: str | None = None,
    kind: str | None = None,
    radius: str | None = None,
    metric: str | None = None,
    bound: str = "ibp",
    episodes: int | None = None,
    seed: int = 0,
    horizon: int | None = None,
    budget: int = 10_000,
    p: str = "inf",
    vecnormalize: str | None = None,
    json: bool = False,
) -> None:
    """Certify an agent with discrete actions: its greedy or absolute worst case, or its action certification rate.

    Args:
        agent: a run's folder, a name in the zoo, or a third-party checkpoint: papers, Stable-Baselines3, CleanRL, ONNX.
        env: an environment's id, such as CartPole-v1 or fruitbot-test; default: the one the agent was trained in.
        kind: of an .onnx file, which does not say what its outputs are: q, categorical or gaussian.
        radius: perturbation radius ε in network units, such as 0.075 or 3/255.
        metric: gwc (greedy worst-case reward), acr (action certification rate) or awc (absolute worst-case reward).
        bound: ibp, crown-ibp, crown, or best: the tightest of the three; always rounded outward.
        episodes: number of episodes; default: 20, for awc 1.
        seed: random seed.
        horizon: count only the first steps of an episode; awc needs it where an environment has no time limit.
        budget: awc: states to bound per episode.
        p: norm of the perturbation: 1, 2 or inf.
        vecnormalize: statistics of a Stable-Baselines3 agent, if they do not lie near its file; none: it has none.
        json: print one JSON object instead of a table.
    """
    from radial.core.text import nearest
    from radial.envs.make import example_for
    from radial.recipes.recipe import parse_radius
    from radial.workflows.loading import load

    if metric is None:
        raise BadInput("a certificate needs a --metric: gwc, acr or awc")
    if metric not in METRICS:
        raise BadInput(f"metric must be one of {', '.join(METRICS)}, got {metric!r}{nearest(metric, METRICS)}")
    if radius is None:
        raise BadInput("a certificate needs a --radius, such as 0.075 or 3/255")
    loaded = load(agent, env, vecnormalize, kind=kind)
    one_thread_for(loaded.observation_shape)
    where = loaded.card.env
    if where is None:
        near = example_for(loaded.observation_shape)
        raise BadInput(f"{agent}: no environment recorded; pass --env, such as --env {near}")
    count = episodes if episodes is not None else 1 if metric == "awc" else 20
    with progress(*((count * budget, "states") if metric == "awc" else (count, "episodes"))) as show, warnings_said():
        found = _measure(metric, budget)(
            loaded, where, parse_radius(radius), bound, count, seed,
            p=_norm(p), horizon=horizon, name=agent, progress=show,
        )  # fmt: skip
    facts = found.to_json()
    if json:
        print_json(facts)
    else:
        _show(facts)


def _measure(metric: str, budget: int) -> Callable[..., Any]:
    from radial.evaluation.certificates import acr, gwc
    from radial.evaluation.worst_case import awc

    if metric == "awc":
        return partial(awc, budget=budget)
    return gwc if metric == "gwc" else acr


def _norm(text: str) -> float:
    if text not in ("1", "2", "inf"):
        raise BadInput(f"p must be 1, 2 or inf, got {text!r}")
    return math.inf if text == "inf" else float(text)


def _show(facts: dict[str, Any]) -> None:
    table = Table("", "", title=f"{facts['agent']} in {facts['env']}", show_header=False)
    limits = facts["valid_range"]
    cut = "" if limits is None else f", cut to [{limits[0]:g}, {limits[1]:g}]"
    rows = [("ball", f"ε = {facts['radius']:g}, p = {facts['p']}{cut}")]
    rows += [("bound", f"{facts['bound']}, {facts['arithmetic']}")]
    rows += {"gwc": _gwc, "acr": _acr, "awc": _awc}[facts["metric"]](facts)
    rows += [("episodes, seed", f"{facts['episodes']}, {facts['seed']}"), ("seconds", f"{facts['wall_seconds']:.1f}")]
    for name, value in rows:
        table.add_row(name, value)
    print_table(table)


def _gwc(facts: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        ("greedy worst-case reward, mean ± SEM", f"{facts['mean']:.1f} ± {facts['sem']:.1f}"),
        ("least … most", f"{min(facts['returns']):.1f} … {max(facts['returns']):.1f}"),
        ("steps with more than one possible action", f"{facts['open_steps']} of {facts['steps']}"),
    ]


def _acr(facts: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        ("action certification rate, mean ± SEM", f"{round_down(facts['mean'], 3)} ± {facts['sem']:.3f}"),
        ("steps certified, falsified, unknown", f"{facts['certified']}, {facts['attacked']}, {facts['unknown']}"),
        ("distinct actions taken", str(facts["distinct_actions"])),
        ("clean return, mean ± SEM", f"{facts['return_mean']:.1f} ± {facts['return_sem']:.1f}"),
    ]


def _awc(facts: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        ("absolute worst-case reward", facts["says"]),
        ("greedy worst-case reward from there", f"{facts['greedy']:.1f}"),
        ("states bounded, budget for each episode", f"{facts['expanded']}, {facts['budget']}"),
    ]
