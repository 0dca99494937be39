"""The command line: the table of commands, and how they end.

Parsing is in `commands.parsing`, each command in a file of its own; every one that prints a result also prints JSON.
"""

import os
import sys
from collections.abc import Callable, Sequence

import torch
from tyro.extras import SubcommandApp

from radial.commands import interrupt
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
from radial.commands.play import play
from radial.commands.recipes import recipes
from radial.commands.report import report
from radial.commands.reproduce import reproduce
from radial.commands.robustify import robustify
from radial.commands.terminal import give_up_stdout, say, silent_event_writer, write_anything
from radial.commands.train import train
from radial.commands.version import version
from radial.commands.zoo import add_zoo, list_zoo
from radial.core.data import BadInput
from radial.envs.contract import EnvFault
from radial.evaluation.prover import SoundnessError
from radial.runs.files import Corrupt
from radial.runs.run import Stopped
from radial.training.a3c_workers import WorkerFailed

# Corrupt is bad input to the library, but nobody asked for it on the command line.
FAULTS = (
    Corrupt, EnvFault, FloatingPointError, MemoryError, OSError, RecursionError, SoundnessError, WorkerFailed,
    torch.OutOfMemoryError,
)  # fmt: skip
# Torch has no types of its own for these: no memory, and a checkpoint without the tensors of its agent.
FAULTS_OF_TORCH = ("DefaultCPUAllocator", "Error(s) in loading state_dict")
MAX_LINE = 2_000  # characters of a message

DESCRIPTION = "Train, attack and certify deep-RL agents that withstand perturbed observations."
COMMANDS = (audit, train, robustify, evaluate, play, certify, export, report, reproduce, recipes, version)
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
        interrupt.end()
        write_anything()
        run = parse(build(), arguments, DESCRIPTION)
        with silent_event_writer():
            run()
        sys.stdout.flush()
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        code = exit_code(error)
        if code is None:
            raise
        if isinstance(error, OSError):
            give_up_stdout()
        say("radial: " + _in_one_line(error))
        sys.exit(code)


def exit_code(error: Exception) -> int | None:
    """The exit code of an error that one line can tell; None for all others, which are bugs and keep a traceback."""
    if isinstance(error, Stopped):
        return error.code
    if isinstance(error, FAULTS):
        return 1
    if isinstance(error, RuntimeError) and any(text in str(error) for text in FAULTS_OF_TORCH):
        return 1
    return 2 if isinstance(error, BadInput) else None


def _in_one_line(error: Exception) -> str:
    text = str(error)
    if isinstance(error, WorkerFailed):
        text = error.summary
    elif isinstance(error, OSError) and error.filename is not None:
        text = f"{os.fsdecode(error.filename)}: {error.strerror}"
    elif isinstance(error, MemoryError):
        text = f"out of memory; {text}" if text else "out of memory"
    elif isinstance(error, RecursionError):
        text = f"something is nested too deeply: {text}"
    text = " ".join(text.split()) or type(error).__name__
    return text if len(text) <= MAX_LINE else f"{text[:MAX_LINE]}…"


if __name__ == "__main__":
    main()
