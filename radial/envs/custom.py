"""Environments of one's own: the modules that register them with Gymnasium, named by the person who runs a command.

A name that stands in a file (a card, a config) is never imported. Processes that a command starts import the same
modules, by an environment variable.
"""

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from radial.core.errors import BadInput
from radial.core.text import nearest

IMPORT_VARIABLE = "RADIAL_IMPORT"  # modules and files, separated as in PATH


@contextmanager
def imported(modules: Sequence[str] = ()) -> Iterator[None]:
    """Import the modules of `RADIAL_IMPORT` and these; processes started inside find them in the variable."""
    before = os.environ.get(IMPORT_VARIABLE)
    wanted = list(dict.fromkeys([*import_inherited(), *map(_absolute, modules)]))
    for name in wanted:
        import_module(name)
    if not wanted:
        yield
        return
    os.environ[IMPORT_VARIABLE] = os.pathsep.join(wanted)
    try:
        yield
    finally:
        if before is None:
            del os.environ[IMPORT_VARIABLE]
        else:
            os.environ[IMPORT_VARIABLE] = before


def import_inherited() -> list[str]:
    """Import the modules of `RADIAL_IMPORT`, as a process that another one started does; their names."""
    names = [name for name in os.environ.get(IMPORT_VARIABLE, "").split(os.pathsep) if name]
    for name in names:
        import_module(name)
    return names


def import_module(name: str) -> ModuleType:
    """The module of this name, in the working folder too, or the one in a .py file; BadInput if it cannot be had."""
    try:
        return _from_file(Path(name)) if name.endswith(".py") else _by_name(name)
    except BadInput:
        raise
    except Exception as error:
        where = f" (line {line})" if (line := _line_of(error, name)) is not None else ""
        raise BadInput(f"--import {name}{where}: {type(error).__name__}: {error}") from error


def _absolute(name: str) -> str:
    """A file by its whole path, for processes in other folders."""
    return str(Path(name).expanduser().absolute()) if name.endswith(".py") else name


def _by_name(name: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise BadInput(f"--import takes a module such as my_envs, or a .py file, got {name!r}")
    here = os.getcwd()
    added = here not in sys.path and "" not in sys.path
    sys.path += [here] if added else []  # last: it must not hide anything installed
    try:
        importlib.invalidate_caches()
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name not in (name, name.partition(".")[0]):
            raise  # one that it imports
        files = [path.stem for path in Path().glob("*.py")]
        raise BadInput(f"--import {name}: there is no such module{nearest(name, files)}") from None
    finally:
        if added:
            sys.path.remove(here)


def _from_file(path: Path) -> ModuleType:
    """The module in a file, by the name of the file, so that an entry point such as "my_envs:Env" finds it."""
    path = path.expanduser().absolute()
    if not path.is_file():
        near = [str(each) for each in path.parent.glob("*.py")] if path.parent.is_dir() else []
        raise BadInput(f"--import {path}: there is no such file{nearest(str(path), near)}")
    if not path.stem.isidentifier():
        raise BadInput(f"--import {path}: a module's file is named by letters, digits and _")
    there = sys.modules.get(path.stem)
    if there is not None:
        file = getattr(there, "__file__", None)
        if file is None or Path(file).absolute() != path:
            raise BadInput(f"--import {path}: another module {path.stem!r} is imported already; rename the file")
        return there
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[path.stem]
        raise
    return module


def _line_of(error: BaseException, name: str) -> int | None:
    """The last line of the module itself that the error passed through."""
    file = Path(name).name if name.endswith(".py") else f"{name.split('.')[-1]}.py"
    trace, line = error.__traceback__, None
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename).name == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
