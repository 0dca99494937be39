"""The release figures of the reliability plan by one command: `make proof`.

Runs the proofs of `tests/` in stages, each up to its goal, and writes `proof.json` and `proof.md`. A stage can be
stopped at any time: how far it came is kept, and the next call continues with the seeds that follow.

    python benchmarks/proof.py                                   everything, hours
    python benchmarks/proof.py --only exact --only planted       some stages, beside other processes at others
    python benchmarks/proof.py --share 0.001 --out out/trial    a trial
"""

import argparse
import importlib.metadata
import json
import math
import platform
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from proof_stages import MESSAGE, ROOT, STAGES, NotInstalled, Stage

from radial.core.data import BadInput
from radial.runs.files import write_atomic

JSON, PAGE = "proof.json", "proof.md"
KEPT = 20  # messages of violations kept per stage
EVERY = 5.0  # seconds between two savings


@dataclass
class Tally:
    """How far a stage has come, over all calls so far."""

    done: int = 0
    units: int = 0  # the next unit's number
    violations: int = 0
    messages: list[str] = field(default_factory=list)
    seconds: float = 0.0
    goal: int = 0
    note: str = ""
    commits: list[str] = field(default_factory=list)  # of radial, that the counts were taken with
    mended: list[str] = field(default_factory=list)  # violations whose units hold since a change, said in the report


# ------------------------------------------------------------------------------------------------------- the runner


def run_stage(stage: Stage, tally: Tally, share: float, save: Callable[[], None]) -> None:
    """Continue a stage up to a share of its goal, or to its end if that comes first."""
    tally.goal = stage.goal()
    target = min(tally.goal, math.ceil(share * tally.goal))
    saved = time.monotonic()
    while tally.done < target and tally.units * stage.unit < _last(stage, tally):
        begun = time.monotonic()
        try:
            tally.done += stage.run(tally.units)
            tally.note = ""
        except NotInstalled as missing:
            tally.note = f"skipped: {missing}"
            return
        except Exception as error:  # noqa: BLE001  whatever it is, the claim did not hold here
            tally.done = tally.done + stage.unit if stage.independent else min(tally.goal, tally.done + stage.unit)
            tally.violations += 1
            text = " ".join(f"unit {tally.units}: {type(error).__name__}: {error}".split())
            tally.messages = [*tally.messages, text[:MESSAGE]][:KEPT]
        tally.units += 1
        tally.seconds += time.monotonic() - begun
        if time.monotonic() - saved > EVERY:
            save()
            saved = time.monotonic()


def retry(stage: Stage, tally: Tally) -> None:
    """Run the units of the violations on record again, after a change; those that hold now are `mended`."""
    if len(tally.messages) < tally.violations:
        raise BadInput(f"{tally.violations} violations are too many to retry: only {KEPT} are known by their unit")
    for text in list(tally.messages):
        try:
            stage.run(int(text.removeprefix("unit ").partition(":")[0]))
        except Exception as error:  # noqa: BLE001  as in run_stage
            print(f"still: {text} ({error})", flush=True)
            continue
        tally.messages.remove(text)
        tally.mended.append(text)
        tally.violations -= 1


def _last(stage: Stage, tally: Tally) -> float:
    """Lists of cases end; random draws do not."""
    return math.inf if stage.independent else tally.goal


def commit() -> str:
    """The commit of the code, with a + if it was changed since; results do not count."""

    def git(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)

    changed = git("diff", "--quiet", "HEAD", "--", ".", ":!results").returncode
    return (git("rev-parse", "--short", "HEAD").stdout.strip() or "unknown") + ("+" if changed else "")


def page(tallies: dict[str, Tally], versions: dict[str, str]) -> str:
    """The report: for each stage the scale that was run beside the goal."""
    complete = sum(tally.done >= tally.goal for tally in tallies.values())
    wrong = sum(tally.violations for tally in tallies.values())
    unfinished = "" if complete == len(STAGES) else "**Unfinished: no figures of a release yet.** "
    lines = [
        "# Proof", "",
        f"{unfinished}{complete} of {len(STAGES)} stages are complete; {wrong} violations. "
        "Written by `make proof`, which goes on where it stopped.", "",
        "A draw is what is independent: one network, one file, one batch of configs, one run killed ten times. "
        "0 violations in n ≥ 10 draws bound the rate of bad ones by 3/n at 95 % confidence: the last column.", "",
        "| stage | instances | run | goal | share | violations | seconds | draws | rate below |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]  # fmt: skip
    for name, stage in STAGES.items():
        tally = tallies.get(name)
        if tally is None:
            lines.append(f"| {name} | {stage.what} | 0 | – | not run | – | – | – | – |")
            continue
        share = f"{tally.done / tally.goal:.3%}" if tally.done < tally.goal else "complete"
        share = tally.note or share
        number = tally.done if stage.every else tally.units
        draws = f"{number:,}" if stage.independent else "–"
        clean = not (tally.violations or tally.mended)
        rate = f"{3 / number:.1g}" if stage.independent and number >= 10 and clean else "–"
        counts = f"{tally.done:,} | {tally.goal:,} | {share} | {tally.violations}"
        lines.append(f"| {name} | {stage.what} | {counts} | {tally.seconds:,.0f} | {draws} | {rate} |")
    found = [f"- {name}, {text}" for name, tally in tallies.items() for text in tally.messages]
    lines += ["", "## Violations", "", *found] if found else []
    mended = [f"- {name}, {text}" for name, tally in tallies.items() for text in tally.mended]
    lines += ["", "## Violations that a change has mended, run again", "", *mended] if mended else []
    commits = dict.fromkeys(each for tally in tallies.values() for each in tally.commits)
    told = ", ".join(f"{name} {version}" for name, version in versions.items())
    return "\n".join([*lines, "", f"With {told}. Commits: {', '.join(commits)}.", ""])


def load(path: Path) -> dict[str, Tally]:
    """The tallies so far, in the order of the stages."""
    stages = json.loads(path.read_text())["stages"] if path.exists() else {}
    return {name: Tally(**stages[name]) for name in STAGES if name in stages}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the stages asked for; the exit code is 1 if any violation is on record."""
    parser = argparse.ArgumentParser(description="The release figures of the reliability plan.")
    parser.add_argument("--only", action="append", choices=list(STAGES), metavar="NAME", help=", ".join(STAGES))
    parser.add_argument("--share", type=float, default=1.0, help="of each goal, such as 0.01")
    parser.add_argument("--out", type=Path, default=ROOT / "results", help="folder of proof.json and proof.md")
    parser.add_argument("--retry", action="store_true", help="run the units again that failed, before going on")
    options = parser.parse_args(arguments)
    if not 0 < options.share <= 1:
        parser.error(f"--share must lie in (0, 1], got {options.share}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: what is done is saved
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    options.out.mkdir(parents=True, exist_ok=True)
    versions = {"python": platform.python_version()}
    versions |= {name: importlib.metadata.version(name) for name in ("torch", "numpy", "gymnasium", "scipy")}
    tallies, now = load(options.out / JSON), commit()

    def save() -> None:
        mine = {name: tallies[name] for name in options.only or STAGES if name in tallies}
        known = load(options.out / JSON) | mine  # another process may be at other stages
        ordered = {name: known[name] for name in STAGES if name in known}
        facts = {"versions": versions, "stages": {name: vars(tally) for name, tally in ordered.items()}}
        write_atomic(options.out / JSON, json.dumps(facts, indent=1, ensure_ascii=False) + "\n")
        write_atomic(options.out / PAGE, page(ordered, versions))

    for name in options.only or STAGES:
        tally = tallies.setdefault(name, Tally())
        before = tally.units
        try:
            if options.retry:
                retry(STAGES[name], tally)
            run_stage(STAGES[name], tally, options.share, save)
        except KeyboardInterrupt:
            return 130
        finally:
            if (tally.units > before or options.retry) and now not in tally.commits:
                tally.commits.append(now)
            save()
        scale = tally.note or f"{tally.done:,} of {tally.goal:,}"
        print(f"{name}: {scale}, {tally.violations} violations, {tally.seconds:,.0f} s", flush=True)
    return int(any(tally.violations for tally in tallies.values()))


if __name__ == "__main__":
    sys.exit(main())
