"""Reads a pickle without trusting it: an interpreter of our own, in which no operation can import or call anything.

The archive around a pickle is opened in `archive`; the importers know the meaning of its numbers.
"""

import io
import math
import pickletools
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from radial.agents.importers.inert import NDARRAY, STORAGES, Inert, InertArray, Name, Storage, refuse, short

PICKLE = 64 << 20  # bytes of one pickle
OPERATIONS = 200_000  # steps of one pickle; the papers' files take 4,000
ARRAYS = 64 << 20  # bytes of all arrays of one pickle: one string may be used many times
LONGEST = 1 << 256  # no random generator has a longer state
LARGEST_KEY = 1 << 63  # integers that are keys: longer ones can be made to collide
DIMENSIONS = 8


@dataclass(frozen=True, eq=False)
class _Dtype:
    """A numpy dtype: a key of `ARRAY_DTYPES`."""

    code: str


ARRAY_DTYPES: dict[str, type[np.generic]] = {
    "f2": np.float16, "f4": np.float32, "f8": np.float64, "b1": np.bool_,
    "i1": np.int8, "i2": np.int16, "i4": np.int32, "i8": np.int64,
    "u1": np.uint8, "u2": np.uint16, "u4": np.uint32, "u8": np.uint64,
}  # fmt: skip


def _sizes(value: object) -> tuple[int, ...]:
    """A shape: a few integers ≥ 0."""
    if not isinstance(value, tuple) or len(value) > DIMENSIONS:
        refuse("a shape is not a short tuple")
    return tuple(_count(size) for size in value)


def _count(value: object) -> int:
    if type(value) is not int or not 0 <= value < LARGEST_KEY:
        refuse("a size is not a number ≥ 0")
    return value


# ------------------------------------------------------------------------------------------------ the pickle machine


class Machine:
    """The stack machine of a pickle, with no way to call anything: a name stays a name, an object becomes `Inert`.

    Names that data does not need are refused on sight, wherever they stand.
    """

    def __init__(self, storage: Callable[[object], Storage], objects: Collection[str] = ()) -> None:
        self.storage = storage  # looks up a persistent id
        self.objects = objects  # dotted names of the classes that may appear, as inert data
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, object] = {}
        self.spent = 0

    def run(self, data: bytes) -> object:
        """The data that the pickle describes, which is all of `data`."""
        if len(data) > PICKLE:
            refuse(f"its pickle has {len(data)} bytes, at most {PICKLE} are read")
        value, end = self.read(data)
        if end != len(data):
            refuse("its pickle does not end where it should")
        return value

    def read(self, data: bytes, start: int = 0) -> tuple[object, int]:
        """The data of a pickle that begins at `start`, and where it ends."""
        stream, end = io.BytesIO(data), start
        stream.seek(start)
        for count, (operation, argument, position) in enumerate(pickletools.genops(stream)):
            if count >= OPERATIONS or end - start > PICKLE:
                refuse(f"its pickle has more than {OPERATIONS} operations or {PICKLE} bytes")
            step = STEPS.get(operation.name)
            if step is None:
                refuse(f"its pickle uses {operation.name}, which data does not need")
            step(self, argument)
            end = position or 0
        if len(self.stack) != 1 or self.marks:
            refuse("its pickle does not end where it should")
        return self.stack[0], end + 1

    def pop(self) -> Any:
        """The top of the stack; never reaches below the last mark."""
        if len(self.stack) <= (self.marks[-1] if self.marks else 0):
            refuse("its pickle takes more than it has")
        return self.stack.pop()

    def top(self) -> Any:
        """The top of the stack, left there."""
        self.stack.append(self.pop())
        return self.stack[-1]

    def pop_marked(self) -> list[Any]:
        """Everything above the last mark."""
        if not self.marks:
            refuse("its pickle takes more than it has")
        start = self.marks.pop()
        items, self.stack[start:] = self.stack[start:], []
        return items

    def pop_tuple(self, size: int) -> None:
        """The last `size` values as one tuple."""
        self.stack.append(tuple([self.pop() for _ in range(size)][::-1]))

    def get(self, index: int) -> None:
        """A value remembered before."""
        if index not in self.memo:
            refuse("its pickle recalls what it never stored")
        self.stack.append(self.memo[index])

    def put(self, index: int | None) -> None:
        """Remember the top of the stack."""
        self.memo[len(self.memo) if index is None else index] = self.top()

    def integer(self, value: int) -> None:
        """A long integer."""
        if not -LONGEST < value < LONGEST:
            refuse("a number in it is too long")
        self.stack.append(value)

    def append(self, items: list[Any]) -> None:
        """Items into the list on the stack."""
        target = self.top()
        if type(target) is Inert:
            return  # a deque, or a list of a foreign class
        if type(target) is not list:
            refuse(f"it appends to something {short(target)}")
        target.extend(items)

    def set_items(self, items: list[Any]) -> None:
        """Keys and values into the dict on the stack."""
        target = self.top()
        if type(target) is Inert and not len(items) % 2:
            return  # a mapping of a foreign class
        if type(target) is not dict or len(items) % 2:
            refuse(f"it sets items of something {short(target)}")
        for key, value in zip(items[::2], items[1::2], strict=True):
            # A nested tuple as a key is hashed by recursion in C; longer integers can be made to collide.
            if not (type(key) is str or (type(key) is int and -LARGEST_KEY <= key < LARGEST_KEY)):
                refuse(f"it has a key {short(key)}")
            target[key] = value

    def name(self, module: object, name: object) -> None:
        """A global name: only its spelling."""
        if type(module) is not str or type(name) is not str or len(module) + len(name) > 300:
            refuse("a name in it is not text")
        found = Name(module, name)
        if not (found in REBUILD or found in STORAGES or found == NDARRAY or str(found) in self.objects):
            refuse(f"it speaks of {short(str(found))}, which is not data")
        self.stack.append(found)

    def reduce(self) -> None:
        """Where a pickle would call a function: one of ours if the name is in `REBUILD`, otherwise inert data."""
        args, name = self.pop(), self.pop()
        rebuild = REBUILD.get(name) if type(name) is Name else None
        self.stack.append(rebuild(self, args) if rebuild and type(args) is tuple else self.inert(name, args))

    def new_object(self) -> None:
        """Where a pickle would make an object: inert data."""
        args, name = self.pop(), self.pop()
        self.stack.append(self.inert(name, args))

    def new_object_of(self) -> None:
        """The same with keywords, which are left out."""
        keywords = self.pop()
        if type(keywords) is not dict:
            refuse("an object in it is made with keywords that are no dict")
        self.new_object()

    def inert(self, name: object, args: object) -> Inert:
        """An object of one of the classes that may appear."""
        if type(name) is not Name or str(name) not in self.objects or type(args) is not tuple:
            refuse(f"it calls something {short(name)}")
        return Inert(name, args)

    def build(self) -> None:
        """Where a pickle would set an object's state."""
        state, target = self.pop(), self.top()
        if type(target) is Inert:
            target.state = state
        elif type(target) is InertArray:
            target.value = _array(self, state)
        elif type(target) is _Dtype:
            _check_byte_order(state)
        elif type(target) is not dict:  # an OrderedDict may carry attributes: torch's `_metadata`, of no use here
            refuse(f"it sets the state of something {short(target)}")

    def spend(self, size: int) -> None:
        """Account for bytes in arrays."""
        self.spent += size
        if self.spent > ARRAYS:
            refuse(f"its arrays have more than {ARRAYS} bytes")


STEPS: dict[str, Callable[[Machine, Any], None]] = {
    "PROTO": lambda m, version: None if version <= 5 else refuse(f"its pickle is of version {version}"),
    "FRAME": lambda m, _: None,
    "STOP": lambda m, _: None,
    "NONE": lambda m, _: m.stack.append(None),
    "NEWTRUE": lambda m, _: m.stack.append(True),
    "NEWFALSE": lambda m, _: m.stack.append(False),
    "BININT": lambda m, value: m.stack.append(value),
    "BININT1": lambda m, value: m.stack.append(value),
    "BININT2": lambda m, value: m.stack.append(value),
    "LONG1": lambda m, value: m.integer(value),
    "BINFLOAT": lambda m, value: m.stack.append(value),
    "BINUNICODE": lambda m, value: m.stack.append(value),
    "SHORT_BINUNICODE": lambda m, value: m.stack.append(value),
    "BINBYTES": lambda m, value: m.stack.append(value),
    "SHORT_BINBYTES": lambda m, value: m.stack.append(value),
    "BYTEARRAY8": lambda m, value: m.stack.append(bytes(value)),
    "EMPTY_TUPLE": lambda m, _: m.stack.append(()),
    "EMPTY_LIST": lambda m, _: m.stack.append([]),
    "EMPTY_DICT": lambda m, _: m.stack.append({}),
    "MARK": lambda m, _: m.marks.append(len(m.stack)),
    "TUPLE": lambda m, _: m.stack.append(tuple(m.pop_marked())),
    "TUPLE1": lambda m, _: m.pop_tuple(1),
    "TUPLE2": lambda m, _: m.pop_tuple(2),
    "TUPLE3": lambda m, _: m.pop_tuple(3),
    "APPEND": lambda m, _: m.append([m.pop()]),
    "APPENDS": lambda m, _: m.append(m.pop_marked()),
    "SETITEM": lambda m, _: m.set_items([m.pop(), m.pop()][::-1]),
    "SETITEMS": lambda m, _: m.set_items(m.pop_marked()),
    "BINGET": lambda m, index: m.get(index),
    "LONG_BINGET": lambda m, index: m.get(index),
    "BINPUT": lambda m, index: m.put(index),
    "LONG_BINPUT": lambda m, index: m.put(index),
    "MEMOIZE": lambda m, _: m.put(None),
    "GLOBAL": lambda m, text: m.name(*text.split(" ", 1)),
    "STACK_GLOBAL": lambda m, _: m.name(*[m.pop(), m.pop()][::-1]),
    "REDUCE": lambda m, _: m.reduce(),
    "NEWOBJ": lambda m, _: m.new_object(),
    "NEWOBJ_EX": lambda m, _: m.new_object_of(),
    "BUILD": lambda m, _: m.build(),
    "BINPERSID": lambda m, _: m.stack.append(m.storage(m.pop())),
}


# ---------------------------------------------------------------------------- rebuilding the allowed names


def _ordered_dict(machine: Machine, args: tuple[Any, ...]) -> dict[object, object]:
    if args:
        refuse("an OrderedDict is made from something")
    return {}


def _no_bytes(machine: Machine, args: tuple[Any, ...]) -> bytes:
    """Empty bytes, the way protocol 2 writes them."""
    if args:
        refuse("bytes in it are made from something")
    return b""


def _encode(machine: Machine, args: tuple[Any, ...]) -> bytes:
    """Bytes, the way protocol 2 writes them."""
    if len(args) != 2 or type(args[0]) is not str or type(args[1]) is not str or args[1] != "latin1":
        refuse("bytes in it are not latin1 text")
    machine.spend(len(args[0]))
    return args[0].encode("latin1")


def _dtype(machine: Machine, args: tuple[Any, ...]) -> _Dtype:
    if not args or type(args[0]) is not str or args[0] not in ARRAY_DTYPES:
        refuse("an array in it has a type that is not a plain number's")
    return _Dtype(args[0])


def _check_byte_order(state: Any) -> None:
    """Little-endian or single bytes, without fields: (version, order, subdtype, names, fields, −1, −1, flags)."""
    plain = type(state) is tuple and len(state) >= 5 and all(part is None for part in state[2:5])
    if not plain or type(state[1]) is not str or state[1] not in ("<", "|"):
        refuse("an array in it has a type that is not a plain number's")


def _numbers(machine: Machine, dtype: object, data: object, shape: tuple[int, ...], order: str) -> NDArray[Any]:
    """Numbers from exactly their bytes, row by row ("C") or column by column ("F")."""
    if type(dtype) is not _Dtype or type(data) is not bytes:
        refuse("an array in it does not consist of numbers")
    if len(data) != math.prod(shape) * np.dtype(ARRAY_DTYPES[dtype.code]).itemsize:
        refuse("an array in it does not have the bytes its shape needs")
    machine.spend(len(data))
    # a byte other than 0 and 1 is no bool
    flat = np.frombuffer(data, np.uint8) != 0 if dtype.code == "b1" else np.frombuffer(data, ARRAY_DTYPES[dtype.code])
    return flat.reshape(shape, order="F" if order == "F" else "C")


def _array(machine: Machine, state: object) -> NDArray[Any]:
    """The state of an array: (version, shape, dtype, column-major?, bytes)."""
    if type(state) is not tuple or len(state) != 5:
        refuse("an array in it is not stored as numpy does")
    return _numbers(machine, state[2], state[4], _sizes(state[1]), "F" if state[3] is True else "C")


def _from_buffer(machine: Machine, args: tuple[Any, ...]) -> InertArray:
    """An array, the way protocol 5 writes it: (bytes, dtype, shape, "C" or "F")."""
    if len(args) != 4 or type(args[3]) is not str or args[3] not in ("C", "F"):
        refuse("an array in it is not stored as numpy does")
    return InertArray(_numbers(machine, args[1], args[0], _sizes(args[2]), args[3]))


def _scalar(machine: Machine, args: tuple[Any, ...]) -> object:
    if len(args) != 2:
        refuse("a number in it is not stored as numpy does")
    return _numbers(machine, args[0], args[1], (1,), "C")[0].item()


def _tensor(machine: Machine, args: tuple[Any, ...]) -> Tensor:
    """A view of a storage: (storage, offset, size, stride, requires grad, hooks, …), all inside the storage."""
    if len(args) < 4 or type(args[0]) is not Storage:
        refuse("a tensor in it has no storage")
    numbers, offset, size, stride = args[0].numbers, _count(args[1]), _sizes(args[2]), _sizes(args[3])
    if len(size) != len(stride):
        refuse("a tensor in it has a shape and strides that do not fit")
    count, last = 1, offset
    for length, step in zip(size, stride, strict=True):
        count, last = count * length, last + (length - 1) * step
    if max(count, *size, last + 1 if count else 0) > numbers.numel():
        refuse("a tensor in it reaches outside its storage")
    return numbers.as_strided(size, stride, offset if count else 0)


def _parameter(machine: Machine, args: tuple[Any, ...]) -> Tensor:
    if not args or not isinstance(args[0], Tensor):
        refuse("a parameter in it has no tensor")
    return args[0]


REBUILD: dict[Name, Callable[[Machine, tuple[Any, ...]], object]] = {
    Name("collections", "OrderedDict"): _ordered_dict,
    Name("_codecs", "encode"): _encode,
    Name("__builtin__", "bytes"): _no_bytes,
    Name("numpy", "dtype"): _dtype,
    Name("numpy.core.multiarray", "_reconstruct"): lambda machine, args: InertArray(),
    Name("numpy._core.multiarray", "_reconstruct"): lambda machine, args: InertArray(),
    Name("numpy.core.numeric", "_frombuffer"): _from_buffer,
    Name("numpy._core.numeric", "_frombuffer"): _from_buffer,
    Name("numpy.core.multiarray", "scalar"): _scalar,
    Name("numpy._core.multiarray", "scalar"): _scalar,
    Name("torch._utils", "_rebuild_tensor_v2"): _tensor,
    Name("torch._utils", "_rebuild_parameter"): _parameter,
}
