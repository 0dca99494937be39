"""`radial audit`: is my policy robust? Attacks and certificates on one agent, a table, a page, an exit code.

The audit itself is in `workflows.audit`, the page in `reports`.
"""

import hashlib
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tyro
from rich.table import Table

from radial.commands.parsing import flat
from radial.commands.scaling import HERE, Scaled
from radial.commands.terminal import print_json, print_table, say, warnings_said
from radial.core.errors import BadInput

WIDE = 130  # columns of a terminal that shows the whole table
MORE = ("IQM, 95 %", "gap", "GWC")  # columns of a wider one


def audit(
    agent: tyro.conf.Positional[str],
    env: str | None = None,
    kind: str | None = None,
    radius: tyro.conf.UseAppendAction[tuple[tuple[str, ...], ...]] = (),
    episodes: int = 20,
    budget: float = 10.0,
    seed: int = 0,
    bound: str | None = None,
    attacks: tyro.conf.UseAppendAction[tuple[tuple[str, ...], ...]] = (),
    out: Path | None = None,
    video: Path | None = None,
    require: tyro.conf.UseAppendAction[tuple[str, ...]] = (),
    threads: int | None = None,
    vecnormalize: str | None = None,
    scaling: Scaled = HERE,
    json: bool = False,
) -> None:
    """Report clean return, return under each applicable attack, and a certified lower bound; write a page.

    Args:
        agent: a Stable-Baselines3 .zip, a .cleanrl_model, a .model, an .onnx, a run's folder, or a name in the zoo.
        env: an environment's id; default: that of the agent's card or its file name.
        kind: of an .onnx file, which does not say what its outputs are: q, categorical or gaussian.
        radius: perturbation radii ε in network units, such as 0.05 or 3/255, repeatable; default: by what is observed.
        episodes: per attack and radius, from the same initial states.
        budget: minutes; first episodes are reduced, then work is cut, and listed.
        seed: random seed.
        bound: ibp, crown-ibp, crown or best; default: crown, and crown-ibp for convolutional networks.
        attacks: only these, repeatable; none: no attack; default: all that apply.
        out: folder for audit.html and audit.json; default: out/audit-NAME-HASH, one for each agent.
        video: FILE.mp4 or FILE.gif of the recorded episode, clean beside attacked.
        require: such as "return@0.05>=400" or "acr@0.01>=0.9", repeatable; exit code 1 and a line for each violation.
        threads: of torch; default: one for vectors, all for frames.
        vecnormalize: statistics of a Stable-Baselines3 agent, if they do not lie near its file; none: it has none.
        scaling: where attacks are run, each at each radius.
        json: print one JSON object instead of a table.
    """
    from radial.agents.zoo import resolve
    from radial.commands.measure import keep_freed_memory
    from radial.recipes.recipe import parse_radius
    from radial.reports.page import check_folder
    from radial.reports.video import check_video
    from radial.runs.storage import SharedStorage
    from radial.workflows.audit.audit import AuditInterrupted
    from radial.workflows.audit.audit import audit as run
    from radial.workflows.audit.result import requirement
    from radial.workflows.loading import load

    wanted, place = [requirement(text) for text in require], scaling.place()
    path = resolve(agent)
    keep_freed_memory()
    folder = out or Path("out") / f"audit-{_called(path)}-{_digest(path)}"
    check_folder(folder, "--out")
    radii = [parse_radius(text) for text in flat(radius)] or None
    if video is not None:
        check_video(video)
    with warnings_said():
        try:
            result = run(
                str(path) if kind is None else load(agent, env, vecnormalize, kind=kind), env, radii,
                episodes=episodes, budget=budget, seed=seed, bound=bound, attacks=flat(attacks) or None,
                require=require, name=agent, progress=say,
                threads=threads, vecnormalize=vecnormalize, place=place,
            )  # fmt: skip
        except AuditInterrupted as stop:
            result = stop.result
    page, lost = write_what_there_is([result.to_json(trace=True)], folder)
    if scaling.storage is not None:
        SharedStorage(scaling.storage).push(folder.absolute().name, folder)
    if json:
        print_json(result.to_json() | {"page": None if page is None else str(page)})
    else:
        _show(result.to_json(), result.trace)
    broken = [line for line in (each.broken(result) for each in wanted) if line is not None]
    for line in broken:
        say(f"radial: broken: {line}")
    if video is not None:
        say("note: no video: no episode was recorded" if result.trace is None else _filmed(video, result.trace))
    end(page, lost, result.interrupted, bool(broken), quiet=json)


def write_what_there_is(several: Sequence[dict[str, Any]], folder: Path) -> tuple[Path | None, str | None]:
    """Write the page and its data, without the recorded episodes where there is no space for them.

    returns  the page, or None; and one line about what was lost, or None
    """
    from radial.reports.page import write_page

    try:
        return write_page(several, folder), None
    except BadInput as error:
        lost = str(error)
    try:
        page = write_page([{**facts, "trace": None} for facts in several], folder)
    except BadInput:
        return None, lost
    return page, f"{lost}; saved without the recorded episode"


def end(page: Path | None, lost: str | None, interrupted: bool, broken: bool, quiet: bool = False) -> None:
    """The last lines and the exit code: 130 after Ctrl-C, 1 if something was lost or a requirement is broken."""
    if page is not None and not quiet:
        say(f"page: {page}")
    if lost is not None:
        say(f"radial: {lost}")
    if interrupted:
        say("radial: interrupted; this is what there was until then")
    if interrupted or lost is not None or broken:
        sys.exit(130 if interrupted else 1)


def _called(path: Path) -> str:
    """A name for an agent: its file, or the folder where that says more, as ppo-CartPole-v1/CartPole-v1.zip does."""
    stem, parent = path.absolute().stem, path.absolute().parent.name
    return parent if stem and parent.endswith(f"-{stem}") else stem


def _digest(path: Path) -> str:
    """What tells agents of one name apart: the beginning of a hash of the file, or of a folder's weights and card."""
    from radial.agents.saved import CARD, WEIGHTS

    inside = [path / part / name for part in (".", "agent") for name in (CARD, WEIGHTS)]
    digest = hashlib.sha256()
    for file in [path] if path.is_file() else [each for each in inside if each.is_file()]:
        with file.open("rb") as opened:
            digest.update(hashlib.file_digest(opened, "sha256").digest())
    return digest.hexdigest()[:8]


def _filmed(video: Path, trace: dict[str, Any]) -> str:
    from radial.commands.screening import recorded_episode, shoot

    return f"video: {shoot(video, recorded_episode(trace))}"


def _show(facts: dict[str, Any], trace: dict[str, Any] | None) -> None:
    from radial.reports.cells import rows_of

    headings, rows = rows_of(facts)
    narrow = sys.stdout.isatty() and shutil.get_terminal_size().columns < WIDE
    shown = [i for i, heading in enumerate(headings) if not (narrow and heading in MORE)]
    table = Table(
        *(headings[i] for i in shown), title=f"{facts['agent']} in {facts['env']}", caption=facts["verdict"],
        caption_justify="left", caption_style="none",
    )  # fmt: skip
    for row in rows:
        table.add_row(*(row[i].partition(" (")[0] if narrow else row[i] for i in shown))
    print_table(table)
    for text in facts["warnings"]:
        say(f"warning: {text}")
    unseen = [trace["pictures"]["note"]] if trace is not None and trace["pictures"]["note"] else []
    for text in (*facts["notes"], *unseen):
        say(f"note: {text}")
    every = [text.partition(":")[0] for text in facts["cuts"] if text.endswith(": every ε")]
    some = [text for text in facts["cuts"] if not text.endswith(": every ε")]
    if every:
        say(f"no time at any ε for {', '.join(every)}")
    if some:
        say(f"no time for {'; '.join(some)}")
