"""The command line: the table of commands, and how they end.

Parsing is in `commands.parsing`, each command in a file of its own; every one that prints a result also prints JSON.
"""

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from tyro.extras import SubcommandApp

from radial.commands import interrupt
from radial.commands.attack import fit_attack
from radial.commands.audit import audit
from radial.commands.certify import certify
from radial.commands.doctor import doctor
from radial.commands.evaluate import evaluate
from radial.commands.export import export
from radial.commands.leaderboard import leaderboard
from radial.commands.parsing import check_names, later, parse
from radial.commands.play import play
from radial.commands.push import push
from radial.commands.recipes import recipes
from radial.commands.report import report
from radial.commands.reproduce import reproduce
from radial.commands.robustify import robustify
from radial.commands.terminal import give_up_stdout, say, silent_event_writer, write_anything
from radial.commands.train import train
from radial.commands.version import version
from radial.commands.zoo import add_zoo, list_zoo
from radial.core.errors import BadInput
from radial.jobs import JobsFailed

# Torch has no types of its own for these: no memory, and a checkpoint without the tensors of its agent.
FAULTS_OF_TORCH = ("DefaultCPUAllocator", "Error(s) in loading state_dict")
MAX_LINE = 2_000  # characters of a message

DESCRIPTION = "Train, attack and certify deep-RL agents that withstand perturbed observations."
COMMANDS = (
    audit, train, robustify, evaluate, play, certify, doctor, export, push, report, reproduce, leaderboard, recipes,
    version,
)  # fmt: skip
# Commands that stand below another, with its line of help.
GROUPS: dict[str, tuple[str, dict[str, Callable[..., None]]]] = {
    "attack": ("adversaries that learn: train one against an agent", {"fit": fit_attack}),
    "zoo": ("the trained agents that come with radial", {"list": list_zoo, "add": add_zoo}),
}
# By what they measure; imported when one is asked for, since they bring torch with them.
BENCH = {
    "bounds": "each bound method against the plain network: time and memory",
    "ppo": "training against stepping with random actions",
    "dqn": "robust updates against plain ones, and a training end to end",
    "a3c": "steps per second by number of workers",
    "procgen": "training against the games alone and the network alone; memory",
    "guard": "the run-time guard against the plain agent, per step",
    "attacks": "training an adversary against training an agent",
    "cluster": "a job on Ray, two workers against one, runners against acting in the loop",
}
NAMES: dict[str, Sequence[str]] = {
    **{command.__name__: () for command in COMMANDS},
    **{name: tuple(commands) for name, (_, commands) in GROUPS.items()},
    "bench": tuple(BENCH),
}


def build(arguments: Sequence[str]) -> SubcommandApp:
    """The parser of all commands, in full of the one that the arguments ask for.

    The options of a bench that is not asked for are left out, unless a shell wants to complete them.
    """
    app = SubcommandApp()
    for command in COMMANDS:
        app.command(later(command))
    for name, (text, commands) in GROUPS.items():
        app.command(_group(commands), name=name, help=text)
    everything = any(argument.startswith("--tyro-") for argument in arguments)
    benches = {name: _bench(name, everything or list(arguments[:2]) == ["bench", name]) for name in BENCH}
    app.command(_group(benches), name="bench", help="measure speed and memory on this machine, as ratios in one run")
    return app


def _bench(name: str, wanted: bool) -> Callable[..., None]:
    """A bench, or one line in its place."""
    if wanted:
        found: Callable[..., None] = getattr(import_module(f"radial.commands.bench_{name}"), f"bench_{name}")
        return found

    def line() -> None: ...

    line.__doc__ = BENCH[name]
    return line


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
        given = sys.argv[1:] if arguments is None else list(arguments)
        check_names(given, NAMES)
        run = parse(build(given), given, DESCRIPTION)
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
    if "torch" in sys.modules:  # without it no run can have begun
        from radial.runs.run import Stopped

        if isinstance(error, Stopped):
            return error.code
    if isinstance(error, faults()):
        return 1
    if isinstance(error, RuntimeError) and any(text in str(error) for text in FAULTS_OF_TORCH):
        return 1
    return 2 if isinstance(error, BadInput) else None


def faults() -> tuple[type[Exception], ...]:
    """Errors on the way that are nobody's bad input; where torch was not imported, only Python's own can happen."""
    plain = (FloatingPointError, JobsFailed, MemoryError, OSError, RecursionError)
    if "torch" not in sys.modules:
        return plain
    import torch

    from radial.envs.contract import EnvFault
    from radial.evaluation.prover import SoundnessError
    from radial.runs.files import Corrupt
    from radial.training.a3c_workers import WorkerFailed

    # Corrupt is bad input to the library, but nobody asked for it on the command line.
    return (*plain, Corrupt, EnvFault, SoundnessError, WorkerFailed, torch.OutOfMemoryError)


def _in_one_line(error: Exception) -> str:
    text = str(getattr(error, "summary", error))  # of a failed worker, whose message is a whole traceback
    if isinstance(error, OSError) and error.filename is not None:
        text = f"{os.fsdecode(error.filename)}: {error.strerror}"
    elif isinstance(error, MemoryError):
        text = f"out of memory; {text}" if text else "out of memory"
    elif isinstance(error, RecursionError):
        text = f"something is nested too deeply: {text}"
    text = " ".join(text.split()) or type(error).__name__
    return text if len(text) <= MAX_LINE else f"{text[:MAX_LINE]}…"


if __name__ == "__main__":
    main()
