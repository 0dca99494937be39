"""`radial evaluate`: the return of an agent, clean or under an attack.

The loop that plays is in `evaluation`, the attacks in `attacks`.
"""

import math
from pathlib import Path
from typing import TYPE_CHECKING

import tyro
from rich.table import Table

from radial.commands.parsing import parse_norm
from radial.commands.terminal import print_json, print_table, progress, say, warnings_said
from radial.core.errors import BadInput
from radial.evaluation.threads import one_thread_for

if TYPE_CHECKING:
    from radial.agents.convert import Loaded
    from radial.core.data import EnvSpec
    from radial.evaluation.play import Evaluation

WORST = "worst"  # of all attacks that apply


def evaluate(
    agent: tyro.conf.Positional[str],
    env: str | None = None,
    kind: str | None = None,
    attack: str = "none",
    radius: str | None = None,
    p: str = "inf",
    episodes: int = 50,
    seed: int = 0,
    stochastic: bool = False,
    num_envs: int | None = None,
    first_finished: bool = False,
    trace: Path | None = None,
    timing: float | None = None,
    vecnormalize: str | None = None,
    video: Path | None = None,
    budget: float | None = None,
    json: bool = False,
) -> None:
    """Play episodes with an agent, clean or under an attack, and print its return.

    Args:
        agent: a run's folder, a name in the zoo, or a third-party checkpoint: papers, Stable-Baselines3, CleanRL, ONNX.
        env: an environment's id, such as Hopper-v4 or fruitbot-test; default: the one the agent was trained in.
        kind: of an .onnx file, which does not say what its outputs are: q, categorical or gaussian.
        attack: none, random, critic, mad, rs, rs+mad, compounding, transfer, pgd, pgd-procgen, pgd-strong, fgsm,
            corners, sarl, paad, linear, learned, the folder of a fitted attack (`radial attack fit`), or worst: the
            strongest of all that apply, chosen on other episodes.
        radius: perturbation radius ε in network units, such as 0.075 or 3/255; needed with an attack.
        p: norm of the perturbation: 1, 2 or inf.
        episodes: number of episodes.
        seed: random seed.
        stochastic: sample the agent's actions instead of taking the best one; not for agents without a distribution.
        num_envs: parallel environments, at most one per episode; default: 50, in ProcGen 64.
        first_finished: count the episodes that end first, as RADIAL does on ProcGen; default: equal shares per env.
        trace: a folder for a page that shows the first episode step by step; needs an attack.
        timing: attack only in this share of the steps, such as 0.25: those that matter most to the agent.
        vecnormalize: statistics of a Stable-Baselines3 agent, if they do not lie near its file; none: it has none.
        video: FILE.mp4 or FILE.gif of the first episode, with an attack beside the same episode without it.
        budget: minutes for --attack worst; default: as long as it takes.
        json: print one JSON object instead of a table.
    """
    from radial.attacks.gradient import NoAttack
    from radial.attacks.timing import Timed
    from radial.commands.screening import first_episode, radius_for, read_attack, shoot
    from radial.envs.make import example_for
    from radial.evaluation.play import Fittable, fitted, spec_of, streams
    from radial.evaluation.play import evaluate as play
    from radial.reports.page import write_page
    from radial.workflows.audit.trace import traced
    from radial.workflows.loading import load

    if budget is not None and attack != WORST:
        raise BadInput(f"--budget is for --attack {WORST}")
    _check_timing(timing, attack)
    worst = (NoAttack(), radius_for(attack, radius))  # it finds its attacks itself
    chosen, epsilon = worst if attack == WORST else read_attack(attack, radius, stochastic)
    norm = parse_norm(p)
    if trace is not None and not math.isinf(norm):
        raise BadInput(f"--trace shows perturbations in the norm inf: not with --p {p}")
    chosen = chosen if timing is None else Timed(chosen, timing)
    _check_shown(trace, video, attack, [
        name for name, on in (("--stochastic", stochastic), ("--first-finished", first_finished)) if on
    ])  # fmt: skip
    loaded = load(agent, env, vecnormalize, kind=kind)
    one_thread_for(loaded.observation_shape)
    where = loaded.card.env
    if where is None:
        near = example_for(loaded.observation_shape)
        raise BadInput(f"{agent}: no environment recorded; pass --env, such as --env {near}")
    if attack == WORST:
        others = {
            "--stochastic": stochastic, "--first-finished": first_finished, "--trace": trace, "--video": video,
        }  # fmt: skip
        refused = [name for name, given in others.items() if given not in (False, None)]
        _worst(loaded, where, epsilon, norm, timing, episodes, seed, num_envs, budget, agent, json, refused)
        return
    with progress(episodes, "episodes") as show, warnings_said():
        if (trace or video) is not None and isinstance(chosen, Fittable):
            chosen = fitted(chosen, loaded, spec_of(where), epsilon, norm, streams(seed)[1])
        if video is not None and not isinstance(chosen, Fittable):  # first: it may not be possible
            hit = None if attack == "none" else chosen
            say(f"video: {shoot(video, first_episode(loaded, spec_of(where), hit, attack, epsilon, seed, norm))}")
        result = play(
            loaded, where, chosen, epsilon, episodes, seed,
            num_envs=num_envs, stochastic=stochastic, first_finished=first_finished, p=norm, name=agent,
            progress=show,
        )  # fmt: skip
        if trace is not None and not isinstance(chosen, Fittable):
            clean = play(loaded, where, None, 0.0, episodes, seed, num_envs=num_envs, name=agent)
            shown = traced(loaded, spec_of(where), clean, result, attack, chosen)
            say(f"page: {write_page([shown.to_json(trace=True)], trace)}")
    facts = result.to_json() | {"attack": attack, "attack_settings": result.attack}
    if json:
        print_json(facts)
        return
    how = f"{attack} at {_ball(epsilon, norm)}" + ("" if timing is None else f", in {timing:g} of the steps")
    _print(agent, result, [("attack", attack if attack == "none" else how)])


def _check_timing(timing: float | None, attack: str) -> None:
    if timing is None:
        return
    if not 0 < timing <= 1:
        raise BadInput(f"--timing must be a share in (0, 1], got {timing:g}")
    if attack == "none":
        raise BadInput("--timing needs an attack to limit: give --attack")


def _ball(radius: float, p: float) -> str:
    """The threat model in a few letters; the usual norm is not named."""
    return f"ε = {radius:g}" + ("" if math.isinf(p) else f", p = {p:g}")


def _print(agent: str, result: "Evaluation", first: list[tuple[str, str]]) -> None:
    table = Table("", "", title=f"{agent} in {result.env}", show_header=False)
    low, high = result.iqm_ci95
    for name, value in (
        *first,
        ("return, mean ± SEM", f"{result.mean:.1f} ± {result.sem:.1f}"),
        ("interquartile mean, 95 %", f"{result.iqm:.1f}  ({low:.1f} … {high:.1f})"),
        ("least … most", f"{min(result.returns):.1f} … {max(result.returns):.1f}"),
        ("episodes, seed", f"{result.episodes}, {result.seed}"),
        ("seconds", f"{result.wall_seconds:.1f}"),
    ):
        table.add_row(name, value)
    print_table(table)


def _worst(
    loaded: "Loaded", where: "EnvSpec", radius: float, p: float, timing: float | None, episodes: int, seed: int,
    num_envs: int | None, budget: float | None, agent: str, as_json: bool, refused: list[str],
) -> None:  # fmt: skip
    """The strongest of all attacks, and how each of them did."""
    from radial.workflows.ensemble import worst_of

    if refused:
        raise BadInput(f"--attack {WORST} takes no {' or '.join(refused)}")
    with warnings_said():
        found = worst_of(
            loaded, where, radius, episodes, seed, budget=budget, p=p, timing=timing, num_envs=num_envs, name=agent,
            progress=say,
        )  # fmt: skip
    if as_json:
        print_json(found.to_json())
        return
    table = Table("attack", "return on selection episodes", "seconds", title=f"{agent}: attacks at {_ball(radius, p)}")
    for member in sorted(found.members, key=lambda each: each.mean):
        table.add_row(member.attack, f"{member.mean:.1f} ± {member.sem:.1f}", f"{member.seconds:.1f}")
    print_table(table)
    _print(agent, found.evaluation, [("worst of all", f"{found.attack} at {_ball(radius, p)}")])
    for text in (*([] if found.warning is None else [found.warning]), *(f"no time for {cut}" for cut in found.cuts)):
        say(f"warning: {text}")


def _check_shown(trace: Path | None, video: Path | None, attack: str, sampled: list[str]) -> None:
    """Refuse a page or a video that cannot be made, before the episodes are played.

    sampled  options that make an episode one of many, which cannot be shown
    """
    from radial.reports.page import check_folder
    from radial.reports.video import check_video

    wrong = f"not {' or '.join(sampled)}"
    if trace is not None:
        if attack == "none" or sampled:
            also = f", and {wrong}" if sampled else ""
            raise BadInput(f"--trace shows an attack beside the same clean episode: give --attack{also}")
        check_folder(trace, "--trace")
    if video is not None:
        if sampled:
            raise BadInput(f"--video shows the first episode with the agent's best actions: {wrong}")
        check_video(video)
