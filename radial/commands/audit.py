"""`radial audit`: is my policy robust? Attacks and certificates on one agent, a table, a page, an exit code.

The audit itself is in `workflows.audit`, the page in `reports`.
"""

import sys
from pathlib import Path
from typing import Any

import tyro
from rich.table import Table

from radial.commands.parsing import flat
from radial.commands.terminal import print_json, print_table, say, warnings_said


def audit(
    agent: tyro.conf.Positional[str],
    env: str | None = None,
    radius: tyro.conf.UseAppendAction[tuple[tuple[str, ...], ...]] = (),
    episodes: int = 20,
    budget: float = 10.0,
    seed: int = 0,
    bound: str | None = None,
    attacks: tyro.conf.UseAppendAction[tuple[tuple[str, ...], ...]] = (),
    out: Path | None = None,
    video: Path | None = None,
    require: tyro.conf.UseAppendAction[tuple[str, ...]] = (),
    json: bool = False,
) -> None:
    """Report clean return, return under each applicable attack, and a certified lower bound; write a page.

    Args:
        agent: a Stable-Baselines3 .zip, a .cleanrl_model, a .model of the papers, a run's folder, or a name in the zoo.
        env: an environment's id; default: that of the agent's card or its file name.
        radius: perturbation radii ε in network units, such as 0.05 or 3/255, repeatable; default: by observation type.
        episodes: per attack and radius, from the same initial states.
        budget: minutes; whatever was cut is listed.
        seed: random seed.
        bound: ibp, crown-ibp, crown or best; default: crown, and crown-ibp for convolutional networks.
        attacks: only these, repeatable; none: no attack; default: all that apply.
        out: folder for audit.html and audit.json; default: out/audit-NAME.
        video: FILE.mp4 or FILE.gif of the recorded episode, clean beside attacked.
        require: such as "return@0.05>=400" or "acr@0.01>=0.9", repeatable; exit code 1 and a line for each violation.
        json: print one JSON object instead of a table.
    """
    from radial.agents.zoo import resolve
    from radial.commands.measure import keep_freed_memory
    from radial.recipes.recipe import parse_radius
    from radial.reports.page import check_folder, write_page
    from radial.reports.video import check_video
    from radial.workflows.audit.audit import audit as run
    from radial.workflows.audit.result import requirement

    wanted = [requirement(text) for text in require]
    path = resolve(agent)
    keep_freed_memory()
    folder = out or Path("out") / f"audit-{_called(path)}"
    check_folder(folder, "--out")
    if video is not None:
        check_video(video)
    with warnings_said():
        result = run(
            str(path), env, [parse_radius(text) for text in flat(radius)] or None, episodes=episodes, budget=budget,
            seed=seed, bound=bound, attacks=flat(attacks) or None, require=require, name=agent, progress=say,
        )  # fmt: skip
    facts = result.to_json(trace=True)
    page = write_page([facts], folder)
    if json:
        print_json(result.to_json() | {"page": str(page)})
    else:
        _show(result.to_json(), page, result.trace)
    broken = [line for line in (each.broken(result) for each in wanted) if line is not None]
    for line in broken:
        say(f"radial: broken: {line}")
    if video is not None:
        say("note: no video: no episode was recorded" if result.trace is None else _filmed(video, result.trace))
    if broken:
        sys.exit(1)


def _called(path: Path) -> str:
    """A name for an agent: its file, or the folder where that says more, as ppo-CartPole-v1/CartPole-v1.zip does."""
    stem, parent = path.absolute().stem, path.absolute().parent.name
    return parent if stem and parent.endswith(f"-{stem}") else stem


def _filmed(video: Path, trace: dict[str, Any]) -> str:
    from radial.commands.screening import recorded_episode, shoot

    return f"video: {shoot(video, recorded_episode(trace))}"


def _show(facts: dict[str, Any], page: Path, trace: dict[str, Any] | None) -> None:
    from radial.reports.cells import rows_of

    headings, rows = rows_of(facts)
    table = Table(*headings, title=f"{facts['agent']} in {facts['env']}", caption=facts["verdict"])
    for row in rows:
        table.add_row(*row)
    print_table(table)
    unseen = [trace["pictures"]["note"]] if trace is not None and trace["pictures"]["note"] else []
    for text in (*facts["warnings"], *facts["notes"], *unseen):
        say(f"note: {text}")
    if facts["cuts"]:
        say(f"no time for: {', '.join(facts['cuts'])}")
    say(f"page: {page}")
