"""`radial certify`: certified numbers of an agent's episodes under perturbed observations.

The certificates are in `evaluation`, the bounds they rest on in `bounds`.
"""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import tyro
from rich.table import Table

from radial.commands.parsing import parse_norm
from radial.commands.terminal import print_json, print_table, progress, warnings_said
from radial.core.errors import BadInput
from radial.core.text import round_down, round_up
from radial.evaluation.threads import one_thread_for

METRICS = ("gwc", "acr", "awc", "reach", "drift")
CONTINUOUS = ("reach", "drift")  # metrics of continuous actions


def certify(
    agent: tyro.conf.Positional[str],
    env: str | None = None,
    kind: str | None = None,
    radius: str | None = None,
    metric: str | None = None,
    bound: str | None = None,
    episodes: int | None = None,
    seed: int = 0,
    horizon: int | None = None,
    model: Path | None = None,
    budget: int = 10_000,
    p: str = "inf",
    vecnormalize: str | None = None,
    json: bool = False,
) -> None:
    """Certify an agent: worst-case rewards or certified actions of discrete ones, how far continuous ones can move.

    Args:
        agent: a run's folder, a name in the zoo, or a third-party checkpoint: papers, Stable-Baselines3, CleanRL, ONNX.
        env: an environment's id, such as CartPole-v1 or fruitbot-test; default: the one the agent was trained in.
        kind: of an .onnx file, which does not say what its outputs are: q, categorical or gaussian.
        radius: perturbation radius ε in network units, such as 0.075 or 3/255.
        metric: gwc (greedy worst-case reward), acr (action certification rate), awc (absolute worst-case reward);
            for continuous actions reach (how far one can move) or drift (a sequence of them, for a given model).
        bound: ibp, crown-ibp, crown, or best: the tightest of the three; always rounded outward. Default: ibp, for
            drift best.
        episodes: number of episodes; default: 20, for awc and drift 1.
        seed: random seed.
        horizon: count only the first steps of an episode; awc needs it where an environment has no time limit. Of
            drift the number of steps.
        model: of drift, x' = f(x, a) in network units: .json with A, B and perhaps c and error, or an .onnx network.
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
        raise BadInput("a certificate needs a --metric: gwc, acr or awc; reach or drift for continuous actions")
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
    _check_options(metric, p, horizon, model)
    count = episodes if episodes is not None else 1 if metric in ("awc", "drift") else 20
    bound = bound or ("best" if metric == "drift" else "ibp")
    ball: dict[str, Any] = {} if metric in CONTINUOUS else {"p": parse_norm(p), "horizon": horizon}
    with progress(*((count * budget, "states") if metric == "awc" else (count, "episodes"))) as show, warnings_said():
        found = _measure(metric, budget, model, horizon)(
            loaded, where, parse_radius(radius), bound=bound, episodes=count, seed=seed, name=agent, progress=show,
            **ball,
        )  # fmt: skip
    facts = found.to_json()
    if json:
        print_json(facts)
    else:
        _show(facts)


def _check_options(metric: str, p: str, horizon: int | None, model: Path | None) -> None:
    """Refuse options of another metric: those of continuous actions are for one norm, and drift needs a model."""
    if metric in CONTINUOUS and parse_norm(p) != math.inf:
        raise BadInput(f"p must be inf for --metric {metric}, got {p}")
    if metric == "drift" and (model is None or horizon is None):
        raise BadInput("--metric drift needs --model FILE and --horizon K")
    if metric != "drift" and model is not None:
        raise BadInput(f"--model is for --metric drift, got --metric {metric}")
    if metric == "reach" and horizon is not None:
        raise BadInput("--horizon is not for --metric reach, which covers whole episodes; drift has one")


def _measure(metric: str, budget: int, model: Path | None, horizon: int | None) -> Callable[..., Any]:
    from radial.evaluation.certificates import acr, gwc
    from radial.evaluation.drift import drift
    from radial.evaluation.reach import reach
    from radial.evaluation.worst_case import awc

    if metric == "awc":
        return partial(awc, budget=budget)
    if metric == "drift":
        assert model is not None and horizon is not None, "_check_options comes first"  # noqa: PT018
        return partial(drift, model=model, horizon=horizon)
    plain: dict[str, Callable[..., Any]] = {"gwc": gwc, "acr": acr, "reach": reach}
    return plain[metric]


def _show(facts: dict[str, Any]) -> None:
    table = Table("", "", title=f"{facts['agent']} in {facts['env']}", show_header=False)
    limits = facts["valid_range"]
    cut = "" if limits is None else f", cut to [{limits[0]:g}, {limits[1]:g}]"
    rows = [("ball", f"ε = {facts['radius']:g}, p = {facts['p']}{cut}")]
    rows += [("bound", f"{facts['bound']}, {facts['arithmetic']}")]
    rows += {"gwc": _gwc, "acr": _acr, "awc": _awc, "reach": _reach, "drift": _drift}[facts["metric"]](facts)
    rows += [("episodes, seed", f"{facts['episodes']}, {facts['seed']}")]
    rows += [("seconds", f"{facts['wall_seconds']:.1f}")] if "wall_seconds" in facts else []
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


def _reach(facts: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        ("reach of the action, mean", str(round_up(facts["mean"], 3))),
        ("at most", str(round_up(facts["largest"], 3))),
        ("steps", str(facts["steps"])),
    ]


def _drift(facts: dict[str, Any]) -> list[tuple[str, str]]:
    def told(values: list[float | None]) -> str:
        return ", ".join("no bound" if value is None else str(round_up(value, 3)) for value in values)

    stated = "covered as the model states it; nothing checks that"
    covered = stated if facts["covers_error"] else "not covered: the model states none"
    return [
        (f"largest drift of action 1 … {facts['horizon']}", told(facts["largest"])),
        ("mean over the starts", told(facts["mean"])),
        ("largest drift of a state", told(facts["state"])),
        ("error of the model", covered),
        ("starts", str(facts["starts"])),
    ]


def _awc(facts: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        ("absolute worst-case reward", facts["says"]),
        ("greedy worst-case reward from there", f"{facts['greedy']:.1f}"),
        ("states bounded, budget for each episode", f"{facts['expanded']}, {facts['budget']}"),
    ]
