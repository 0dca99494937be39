"""What a file's objects become: inert data, which has names, arguments and states and does nothing.

The machine in `restricted` makes it from a pickle.
"""

import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from numpy.typing import NDArray
from torch import Tensor


class Refused(ValueError):
    """Why a file is not read."""


def refuse(reason: str) -> NoReturn:
    """Stop reading."""
    raise Refused(reason)


def short(value: object) -> str:
    """Something from a file, as it may stand in a message: a string in quotes and cut, or only its type."""
    if not isinstance(value, str):
        return f"of type {type(value).__name__}"
    return repr(value) if len(value) <= 60 else repr(value[:60]) + "…"


# ------------------------------------------------------------------------------------------------------- inert data


@dataclass(frozen=True)
class Name:
    """A class or function the file speaks of. It is never looked up."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(eq=False)
class Inert:
    """An object of a foreign class that was never made: its name, its arguments and its state, as plain data."""

    name: Name
    args: tuple[object, ...]
    state: object = None


@dataclass(eq=False)
class InertArray:
    """A numpy array that was never unpickled; `value` is None where the file does not give its numbers."""

    value: NDArray[Any] | None = None


@dataclass(frozen=True, eq=False)
class Storage:
    """The numbers behind tensors, (n,)."""

    numbers: Tensor


NDARRAY = Name("numpy", "ndarray")
STORAGES: dict[Name, torch.dtype] = {
    Name("torch", f"{kind}Storage"): dtype
    for kind, dtype in {
        "Float": torch.float32, "Double": torch.float64, "Half": torch.float16, "BFloat16": torch.bfloat16,
        "Long": torch.int64, "Int": torch.int32, "Short": torch.int16, "Char": torch.int8, "Byte": torch.uint8,
        "Bool": torch.bool,
    }.items()
}  # fmt: skip


# --------------------------------------------------------------------------------------- names that may become inert

RANDOM = frozenset(
    {
        *(f"numpy.random._pickle.__{maker}_ctor" for maker in ("randomstate", "generator", "bit_generator")),
        *(f"numpy.random.{kind}" for kind in ("_mt19937.MT19937", "_pcg64.PCG64", "bit_generator.SeedSequence")),
        "numpy.random.bit_generator.__pyx_unpickle_SeedSequence",
    }
)  # numpy's generators, in every pickled env and space
# Packages of which no class but those in PLAIN belongs in a file of data. That a file does no harm does not rest on
# this list, since nothing is ever looked up: one that asks for the operating system is not worth reading further.
CLOSED = sys.stdlib_module_names | {
    "__builtin__", "__main__", "cPickle", "cloudpickle", "commands", "copy_reg", "dill", "exceptions", "joblib",
    "numpy", "pip", "pkg_resources", "popen2", "radial", "setuptools", "torch", "urllib2",
}  # fmt: skip
CONTAINERS = ("set", "frozenset", "slice", "object", "dict", "list", "tuple", "float", "int", "bool", "str")
PLAIN = RANDOM | {
    "collections.deque", "collections.defaultdict", "datetime.datetime", "datetime.timedelta", "pathlib.PosixPath",
    "torch.device", "torch.Size", "numpy.float32", "numpy.float64", "numpy.int64", "numpy.uint8", "numpy.bool_",
    *(f"{module}.{kind}" for module in ("builtins", "__builtin__") for kind in CONTAINERS),
}  # fmt: skip


class Foreign(Collection[str]):
    """Every class of a package that is neither Python's own nor ours: inert data, wherever it stands."""

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (name in PLAIN or name.partition(".")[0] not in CLOSED)

    def __iter__(self) -> Iterator[str]:
        return iter(PLAIN)

    def __len__(self) -> int:
        return len(PLAIN)
