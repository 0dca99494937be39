"""What a bound costs, as a multiple of running the network itself, for the four networks of the papers."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from radial.agents.networks import AtariActorCritic, ImpalaResNet, NatureDueling, mlp
from radial.bench.measure import Job, median_seconds, peak_bytes
from radial.bounds.methods import METHODS, sound
from radial.core.ball import Ball
from radial.core.data import Bounds

RADIUS = 1 / 255


@dataclass(frozen=True)
class Subject:
    """A network to measure. A method missing from `batches` would take minutes for one sample and is left out."""

    name: str
    build: Callable[[], nn.Module]
    obs: tuple[int, ...]
    batches: dict[str, int]  # samples at once, by method
    repeats: int


SUBJECTS = (
    Subject(
        "nature-dueling",
        partial(NatureDueling, 6),
        (1, 84, 84),
        {"plain": 128, "ibp": 128, "crown-ibp": 32, "crown": 1},
        11,
    ),
    Subject("a3c", partial(AtariActorCritic, 6), (1, 80, 80), {"plain": 64, "ibp": 64, "crown-ibp": 8}, 5),
    Subject("impala", ImpalaResNet, (3, 64, 64), {"plain": 64, "ibp": 64, "crown-ibp": 4}, 5),
    Subject(
        "mlp-64x64",
        partial(mlp, (17, 64, 64, 6)),
        (17,),
        {"plain": 64, "ibp": 64, "crown-ibp": 64, "crown": 64},
        200,
    ),
)


@dataclass(frozen=True)
class Row:
    """One method on one network. Ratios are per sample, against the plain network in the same run."""

    network: str
    method: str
    batch: int
    forward_ms: float
    forward_ratio: float
    train_ms: float | None  # forward and backward
    train_ratio: float | None
    peak_mb: float | None  # of the training step; of the forward pass where there is none


def measure(device: torch.device, subjects: tuple[Subject, ...] = SUBJECTS) -> Iterator[Row]:
    """Rows as they come: the plain network, each method, and the sound form of IBP."""
    for subject in subjects:
        torch.manual_seed(0)
        network = subject.build().to(device).eval()
        x = torch.rand((max(subject.batches.values()), *subject.obs), device=device)
        base: Row | None = None
        # What training may use takes turns, so that a slow moment of the machine hits all of it.
        for row in _rows(subject, network, x, ["plain", "ibp", "crown-ibp"], subject.repeats, base):
            base = base or row
            yield row
        if "crown" in subject.batches:
            yield from _rows(subject, network, x, ["crown"], 1, base)
        yield from _rows(subject, network, x, ["sound ibp"], 3, base)


def _rows(
    subject: Subject, network: nn.Module, x: Tensor, names: list[str], repeats: int, base: Row | None
) -> Iterator[Row]:
    batches = [subject.batches[name.removeprefix("sound ")] for name in names]
    forwards = [_forward(network, x[:batch], name) for name, batch in zip(names, batches, strict=True)]
    with torch.no_grad():
        forward_s = median_seconds([job for job, _ in forwards], repeats, warmup=min(2, repeats - 1))
    trainable = not names[0].startswith("sound") and (names[0] != "crown" or len(subject.obs) == 1)
    train_s: list[float | None] = [None] * len(names)
    trains = [partial(_train, network, job, total) for job, total in forwards]
    if trainable:
        train_s = list(median_seconds(trains, repeats, warmup=min(2, repeats - 1)))
    for name, batch, (job, _), train, forward, both in zip(
        names, batches, forwards, trains, forward_s, train_s, strict=True
    ):
        peak = _peak(train if trainable else job, x.device, trainable)
        row = Row(
            subject.name,
            name,
            batch,
            forward * 1e3,
            1.0,
            both and both * 1e3,
            both and 1.0,
            peak and peak / 2**20,
        )
        base = base or row
        yield _relative(row, base)


def _relative(row: Row, base: Row) -> Row:
    def ratio(mine: float, theirs: float) -> float:
        return (mine / row.batch) / (theirs / base.batch)

    train = None if row.train_ms is None or base.train_ms is None else ratio(row.train_ms, base.train_ms)
    return Row(
        row.network, row.method, row.batch, row.forward_ms, ratio(row.forward_ms, base.forward_ms), row.train_ms, train,
        row.peak_mb,
    )  # fmt: skip


def _forward(network: nn.Module, x: Tensor, name: str) -> tuple[Job, Callable[[Any], Tensor]]:
    if name == "plain":
        return lambda: network(x), lambda y: y.sum()
    method = sound(METHODS["ibp"]) if name == "sound ibp" else METHODS[name]

    def bound() -> Bounds:
        return method(network, Ball(x, RADIUS))

    return bound, lambda bounds: bounds.width.sum()


def _train(network: nn.Module, job: Job, total: Callable[[Any], Tensor]) -> None:
    network.zero_grad(set_to_none=True)
    total(job()).backward()


def _peak(job: Job, device: torch.device, with_gradients: bool) -> int | None:
    with torch.set_grad_enabled(with_gradients):
        return peak_bytes(job, device)
