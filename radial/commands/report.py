"""`radial report`: one page for several agents and runs, from saved audits or new ones."""

import hashlib
from pathlib import Path
from typing import Any

import tyro

from radial.commands.audit import end, write_what_there_is
from radial.commands.parsing import flat
from radial.commands.terminal import print_json, say, warnings_said
from radial.core.errors import BadInput

LARGEST = 64 << 20  # bytes of an audit.json


def report(
    runs: tyro.conf.Positional[tuple[str, ...]],
    radius: tyro.conf.UseAppendAction[tuple[tuple[str, ...], ...]] = (),
    episodes: int = 10,
    budget: float = 5.0,
    seed: int = 0,
    out: Path | None = None,
    threads: int | None = None,
    vecnormalize: str | None = None,
    json: bool = False,
) -> None:
    """One page for one or several agents: saved audits are read, agents are audited.

    Args:
        runs: folders with an audit.json, runs, agents of the zoo, or third-party checkpoints.
        radius: perturbation radii ε in network units for new audits; default: by observation type.
        episodes: per attack and radius of new audits.
        budget: minutes for each new audit.
        seed: random seed of new audits.
        out: folder of the page; default: out/report-HASH, one for each list of runs.
        threads: of torch in new audits; default: one for vectors, all for frames.
        vecnormalize: statistics of the Stable-Baselines3 agents, if they do not lie near their files; none: no such.
        json: print one JSON object instead of a line.
    """
    from radial.agents.zoo import resolve
    from radial.recipes.recipe import parse_radius
    from radial.reports.page import check_folder
    from radial.workflows.audit.audit import AuditInterrupted, audit

    if not runs:
        hint = "; put them before --radius" if radius else ""
        raise BadInput(f"runs must name at least one run, agent or folder with an audit.json{hint}")
    names = "\n".join(str(Path(name).absolute()) for name in runs)
    folder = out or Path("out") / f"report-{hashlib.sha256(names.encode(errors='replace')).hexdigest()[:8]}"
    check_folder(folder, "--out")
    radii, found, interrupted = [parse_radius(text) for text in flat(radius)] or None, [], False
    for name in runs:
        ready = Path(name) / "audit.json"
        if ready.is_file():
            found.append(_read(ready))
            continue
        say(f"{name}: auditing")
        with warnings_said():
            try:
                result = audit(
                    str(resolve(name)), None, radii, episodes=episodes, budget=budget, seed=seed, name=name,
                    progress=say, threads=threads, vecnormalize=vecnormalize,
                )  # fmt: skip
            except AuditInterrupted as stop:
                result, interrupted = stop.result, True
        found.append(result.to_json(trace=True))
        if interrupted:
            break
    page, lost = write_what_there_is(found, folder)
    if json:
        agents = [{"agent": one["agent"], "verdict": one["verdict"]} for one in found]
        print_json({"page": None if page is None else str(page), "agents": agents})
    else:
        for one in found:
            say(f"{one['agent']}: {one['verdict']}")
    end(page, lost, interrupted, False, quiet=json)


def _read(path: Path) -> dict[str, Any]:
    """An audit, of which a page can be made."""
    from radial.agents.weights import strict_json
    from radial.reports.audit_file import check_audit
    from radial.reports.page import render

    if path.stat().st_size > LARGEST:
        raise BadInput(f"{path} has more than {LARGEST} bytes")
    facts = strict_json(path, path.read_bytes())
    try:
        check_audit(facts)
        render([facts, facts])  # what cannot be shown is none
    except BadInput as error:
        raise BadInput(f"{path} is not an audit of this version: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError) as error:
        raise BadInput(f"{path} is not an audit of this version: {type(error).__name__} {error}"[:200]) from None
    checked: dict[str, Any] = facts
    return checked
