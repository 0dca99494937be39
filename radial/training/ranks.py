"""One training on several processes, as `torchrun` starts them: rank 0 runs it, all take a share of every gradient.

As with DistributedDataParallel each rank takes the gradient of an equal part of the minibatch, and the mean of these is
the gradient of the whole. Acting, replay, logging and the run's folder are rank 0's alone; the other ranks `follow`.
"""

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch import distributed as dist

from radial.core.data import BadInput
from radial.objectives.base import Objective
from radial.runs.run import Run
from radial.training.native import Compiled
from radial.training.update import Update

_STEP, _END = 1, 0
_HEADER = 128  # numbers: what to do, the clock, and of each tensor its type, its axes and their sizes
_TYPES = (torch.float32, torch.float64, torch.int64, torch.uint8, torch.bool, torch.float16, torch.bfloat16)


class Ranks(NamedTuple):
    """A process among those of one training."""

    rank: int
    size: int
    local: int  # among those of this machine: the number of its GPU


def ranks_here() -> Ranks | None:
    """What `torchrun` says about this process; None: it is alone."""
    found = [os.environ.get(name, "") for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")]
    if "MASTER_ADDR" not in os.environ or not all(each.isdecimal() for each in found) or int(found[1]) < 2:
        return None
    return Ranks(*map(int, found))


def follows() -> bool:
    """Whether this process is one of the ranks that write nothing."""
    ranks = ranks_here()
    return ranks is not None and ranks.rank > 0


class Together:
    """The gradient steps of an `Update` on all ranks.

    kind    the NamedTuple of the data, `minibatch` rows, of which `chunk` have a gradient at a time
    shared  keyword arguments of `step` that a gradient needs
    whole   data of all ranks → data of which every row stands for itself: whatever a loss takes over a whole minibatch
    """

    def __init__(
        self, update: Update, kind: type[Any], minibatch: int, *, chunk: int = 1, shared: tuple[str, ...] = (),
        whole: Callable[[Any], Any] = lambda data: data,
    ) -> None:  # fmt: skip
        ranks = ranks_here()
        assert ranks is not None
        if minibatch % (ranks.size * chunk):
            each = "" if chunk == 1 else f" times chunk, {chunk}"
            raise BadInput(f"the minibatch must be a multiple of the ranks, {ranks.size}{each}, got {minibatch}")
        update.together = self
        self.update, self.ranks, self.kind, self.shared, self.whole = update, ranks, kind, shared, whole
        self._shares: dict[Objective, Compiled] = {}
        self._on = update.parameters.device
        if not dist.is_initialized():
            dist.init_process_group("nccl" if self._on.type == "cuda" else "gloo")

    def __call__(
        self, *, parameters: Tensor, data: Any, noise: Tensor, at: Mapping[str, Tensor], **own: Any
    ) -> tuple[Tensor, ...]:
        """Rank 0's step, with the results of `Update._pure`."""
        data = self.whole(data)
        tensors = [parameters, noise, *data, *(own[name] for name in self.shared)]
        self._send(_STEP, self.update.clock, tensors)
        gradient, parts, *rows = self._mine(parameters, data, noise, at, {name: own[name] for name in self.shared})
        return *self.update.finish(parameters, self.update.clipped(gradient), own), *rows, parts

    def leads(self, run: Run) -> bool:
        """True for rank 0, which then tells the others when its run ends; False for them, once it has."""
        if self.ranks.rank > 0:
            self.follow()
            return False
        run.at_end(self.release)
        return True

    def follow(self) -> None:
        """Take a share of each gradient until rank 0 ends."""
        while True:
            what, clock, tensors = self._receive()
            if what == _END:
                return
            parameters, noise, *rest = tensors
            fields = len(self.kind._fields)
            own = dict(zip(self.shared, rest[fields:], strict=True))
            self.update.parameters = parameters
            self.update.move_to(clock)
            self._mine(parameters, self.kind(*rest[:fields]), noise, self.update.at, own)

    def release(self) -> None:
        """Tell the other ranks that rank 0 ends."""
        self._send(_END, 0, [])

    def _mine(
        self, parameters: Tensor, data: Any, noise: Tensor, at: Mapping[str, Tensor], own: dict[str, Tensor]
    ) -> list[Tensor]:
        """Gradient, terms of the loss and outputs per row of all ranks, from this one's share of the rows."""
        objective = self.update.objective.at(self.update.clock)
        if objective not in self._shares:
            self._shares[objective] = Compiled(partial(self.update.share, objective), self.update.compile)
        some = data._replace(**{name: self._rows(column) for name, column in data._asdict().items()})
        noise = self._rows(noise) if noise.shape[0] else noise
        gradient, parts, *rows = self._shares[objective](parameters=parameters, data=some, noise=noise, at=at, own=own)
        means = [gradient.contiguous(), parts.contiguous()]
        for each in means:
            dist.all_reduce(each)
            each /= self.ranks.size
        return [*means, *(self._gathered(each.contiguous()) for each in rows)]

    def _rows(self, column: Tensor) -> Tensor:
        share = column.shape[0] // self.ranks.size
        return column[self.ranks.rank * share : (self.ranks.rank + 1) * share]

    def _gathered(self, rows: Tensor) -> Tensor:
        parts = [torch.empty_like(rows) for _ in range(self.ranks.size)]
        dist.all_gather(parts, rows)
        return torch.cat(parts)

    # ----------------------------------------------------------------------------------------------------- transport

    def _send(self, what: int, clock: int, tensors: list[Tensor]) -> None:
        numbers = [what, clock, len(tensors)]
        for tensor in tensors:
            numbers += [_TYPES.index(tensor.dtype), tensor.ndim, *tensor.shape]
        header = torch.zeros(_HEADER, dtype=torch.int64)
        header[: len(numbers)] = torch.tensor(numbers)
        dist.broadcast(header.to(self._on), 0)
        for tensor in tensors:
            if tensor.numel():
                moved = tensor.to(self._on).contiguous()
                dist.broadcast(moved.view(torch.uint8) if moved.dtype is torch.bool else moved, 0)

    def _receive(self) -> tuple[int, int, list[Tensor]]:
        header = torch.zeros(_HEADER, dtype=torch.int64, device=self._on)
        dist.broadcast(header, 0)
        what, clock, count, *numbers = header.tolist()
        tensors = []
        for _ in range(count):
            kind, axes, *numbers = numbers
            shape, numbers = numbers[:axes], numbers[axes:]
            tensor = torch.empty(shape, dtype=_TYPES[kind], device=self._on)
            if tensor.numel():
                dist.broadcast(tensor.view(torch.uint8) if tensor.dtype is torch.bool else tensor, 0)
            tensors.append(tensor)
        return what, clock, tensors


def only_follows(run: Run, join: Callable[[], Together]) -> bool:
    """Join the other ranks, if there are any; True, once the training is over, for one that only follows."""
    return ranks_here() is not None and not join().leads(run)
