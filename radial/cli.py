"""The command line: parse, call, print. Every command that prints a result also prints it as JSON."""

import dataclasses
import json
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from tyro.extras import SubcommandApp

from radial.commands.audit import audit
from radial.commands.bench_a3c import bench_a3c
from radial.commands.bench_dqn import bench_dqn
from radial.commands.bench_ppo import bench_ppo
from radial.commands.bench_procgen import bench_procgen
from radial.commands.certify import certify
from radial.commands.evaluate import evaluate
from radial.commands.parsing import later, parse
from radial.commands.recipes import recipes
from radial.commands.report import report
from radial.commands.reproduce import reproduce
from radial.commands.robustify import robustify
from radial.commands.train import train
from radial.commands.zoo import list_zoo
from radial.commands.zoo_add import add_zoo
from radial.core.data import BadInput
from radial.version import __version__

app = SubcommandApp()
bench = SubcommandApp()
zoo = SubcommandApp()
for command in (audit, train, robustify, evaluate, certify, report, reproduce, recipes):
    app.command(later(command))
app.command(zoo, name="zoo", help="the trained agents that come with the repository")
zoo.command(name="list")(later(list_zoo))
zoo.command(name="add")(later(add_zoo))
app.command(bench, name="bench", help="measure speed and memory on this machine, as ratios in one run")
bench.command(name="ppo")(later(bench_ppo))
bench.command(name="dqn")(later(bench_dqn))
bench.command(name="a3c")(later(bench_a3c))
bench.command(name="procgen")(later(bench_procgen))


@app.command
@later
def version(json: bool = False) -> None:
    """Print the version.

    Args:
        json: print a JSON object instead.
    """
    print(dumps({"radial": __version__}) if json else __version__)


@bench.command(name="bounds")
@later
def bench_bounds(
    json: bool = False, threads: int | None = None, device: str = "cpu", networks: tuple[str, ...] = ()
) -> None:
    """What each bound method costs against the plain network: time and peak memory, for the papers' four networks.

    Takes a few minutes. Ratios are per sample and within this run; a machine that does other work at the same time
    makes them larger.

    Args:
        json: print JSON instead of a table.
        threads: torch threads; default: torch's own choice.
        device: cpu, or cuda where there is one.
        networks: measure only these; default: all.
    """
    import torch

    from radial.bench.bounds import RADIUS, SUBJECTS, measure
    from radial.bench.measure import keep_freed_memory, machine

    if threads is not None:
        if threads < 1:
            raise BadInput(f"threads must be ≥ 1, got {threads}")
        torch.set_num_threads(threads)
    known = [subject.name for subject in SUBJECTS]
    for name in networks:
        if name not in known:
            raise BadInput(f"networks must be among {', '.join(known)}, got {name!r}")
    chosen = tuple(subject for subject in SUBJECTS if not networks or subject.name in networks)
    keep_freed_memory()
    rows = []
    progress = Console(stderr=True, log_path=False)
    for row in measure(torch_device(device), chosen):
        rows.append(row)
        progress.log(f"{row.network} {row.method}: {row.forward_ms:.1f} ms")
    if json:
        print(dumps({"machine": machine(), "radius": RADIUS, "rows": [dataclasses.asdict(row) for row in rows]}))
        return
    table = Table(title=f"Cost of a bound, ε = 1/255, {machine()['threads']} threads; × is per sample against plain")
    for heading in ("network", "method", "batch", "forward ms", "×", "forward+backward ms", "×", "peak MB"):
        table.add_column(heading, justify="left" if heading in ("network", "method") else "right")
    for row in rows:
        table.add_row(
            row.network, row.method, str(row.batch), f"{row.forward_ms:.2f}", f"{row.forward_ratio:.2f}",
            _number(row.train_ms), _number(row.train_ratio), _number(row.peak_mb, 0),
        )  # fmt: skip
    Console(width=None if sys.stdout.isatty() else 110).print(table)


def _number(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def torch_device(name: str) -> "torch.device":  # type: ignore[name-defined]  # noqa: F821
    """A torch device that exists here."""
    import torch

    try:
        device = torch.device(name)
    except RuntimeError:
        raise BadInput(f"device must be cpu or cuda, got {name!r}") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise BadInput("device must be cpu: this machine has no CUDA device")
    return device


def dumps(value: object) -> str:
    """JSON for other programs: strict, so NaN is an error here and not in the reader."""
    return json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False)


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the `radial` command.

    Bad input ends with one line and exit code 2; a fault on the way with one line and 1; a signal, once everything is
    saved, with 130 or 143.
    """
    from radial.envs.contract import EnvFault
    from radial.evaluation.prover import SoundnessError
    from radial.runs.run import DiskFull, Stopped

    try:
        run = parse(app, arguments, "Train, attack and certify deep-RL agents that withstand perturbed observations.")
        run()
    except BadInput as error:
        _end(error, 2)
    except Stopped as stopped:
        _end(stopped, stopped.code)
    except (EnvFault, FloatingPointError, DiskFull, SoundnessError) as error:
        _end(error, 1)
    except KeyboardInterrupt:
        sys.exit(130)


def _end(error: Exception, code: int) -> None:
    print("radial: " + " ".join(str(error).split()), file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
