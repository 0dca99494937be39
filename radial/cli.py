"""The command line: the table of commands, and how they end.

Parsing is in `commands.parsing`, each command in a file of its own; every one that prints a result also prints JSON.
"""

import sys
from collections.abc import Callable, Sequence

from tyro.extras import SubcommandApp

from radial.commands.audit import audit
from radial.commands.bench_a3c import bench_a3c
from radial.commands.bench_bounds import bench_bounds
from radial.commands.bench_dqn import bench_dqn
from radial.commands.bench_ppo import bench_ppo
from radial.commands.bench_procgen import bench_procgen
from radial.commands.certify import certify
from radial.commands.evaluate import evaluate
from radial.commands.export import export
from radial.commands.parsing import later, parse
from radial.commands.recipes import recipes
from radial.commands.report import report
from radial.commands.reproduce import reproduce
from radial.commands.robustify import robustify
from radial.commands.terminal import say
from radial.commands.train import train
from radial.commands.version import version
from radial.commands.zoo import add_zoo, list_zoo
from radial.core.data import BadInput
from radial.envs.contract import EnvFault
from radial.evaluation.prover import SoundnessError
from radial.runs.run import DiskFull, Stopped

DESCRIPTION = "Train, attack and certify deep-RL agents that withstand perturbed observations."
COMMANDS = (audit, train, robustify, evaluate, certify, export, report, reproduce, recipes, version)
ZOO: dict[str, Callable[..., None]] = {"list": list_zoo, "add": add_zoo}
BENCH: dict[str, Callable[..., None]] = {
    "bounds": bench_bounds,
    "ppo": bench_ppo,
    "dqn": bench_dqn,
    "a3c": bench_a3c,
    "procgen": bench_procgen,
}


def build() -> SubcommandApp:
    """The parser of all commands."""
    app = SubcommandApp()
    for command in COMMANDS:
        app.command(later(command))
    app.command(_group(ZOO), name="zoo", help="the trained agents that come with the repository")
    app.command(_group(BENCH), name="bench", help="measure speed and memory on this machine, as ratios in one run")
    return app


def _group(commands: dict[str, Callable[..., None]]) -> SubcommandApp:
    group = SubcommandApp()
    for name, command in commands.items():
        group.command(name=name)(later(command))
    return group


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the `radial` command.

    Bad input ends with one line and exit code 2; a fault on the way with one line and 1; a signal, once everything is
    saved, with 130 or 143.
    """
    try:
        run = parse(build(), arguments, DESCRIPTION)
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
    say("radial: " + " ".join(str(error).split()))
    sys.exit(code)


if __name__ == "__main__":
    main()
