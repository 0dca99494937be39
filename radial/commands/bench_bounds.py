"""`radial bench bounds`: the cost of a bound as a multiple of one forward pass, for the papers' four networks.

Everything is measured in one run and reported as a ratio, because milliseconds mean little on a shared machine.
"""

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from rich.table import Table
from torch import Tensor, nn

from radial.agents.networks import AtariActorCritic, ImpalaResNet, NatureDueling, mlp
from radial.bounds.methods import METHODS, sound
from radial.commands.measure import Job, keep_freed_memory, machine, median_seconds, peak_bytes, torch_device
from radial.commands.terminal import print_json, print_table, say
from radial.core.ball import Ball
from radial.core.data import BadInput, Bounds

RADIUS = 1 / 255


@dataclass(frozen=True)
class Network:
    """A network to measure. A method missing from `batches` would take minutes for one sample and is left out."""

    name: str
    build: Callable[[], nn.Module]
    obs: tuple[int, ...]
    batches: dict[str, int]  # samples at once, by method
    repeats: int


NETWORKS = (
    Network(
        "nature-dueling",
        partial(NatureDueling, 6),
        (1, 84, 84),
        {"plain": 128, "ibp": 128, "crown-ibp": 32, "crown": 1},
        11,
    ),
    Network("a3c", partial(AtariActorCritic, 6), (1, 80, 80), {"plain": 64, "ibp": 64, "crown-ibp": 8}, 5),
    Network("impala", ImpalaResNet, (3, 64, 64), {"plain": 64, "ibp": 64, "crown-ibp": 4}, 5),
    Network(
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


def measure(device: torch.device, networks: tuple[Network, ...] = NETWORKS) -> Iterator[Row]:
    """Rows as they come: the plain network, each method, and the sound form of IBP."""
    for measured in networks:
        torch.manual_seed(0)
        network = measured.build().to(device).eval()
        x = torch.rand((max(measured.batches.values()), *measured.obs), device=device)
        base: Row | None = None
        # Methods that training may use take turns, so that a slow moment of the machine hits all of them.
        for row in _rows(measured, network, x, ["plain", "ibp", "crown-ibp"], measured.repeats, base):
            base = base or row
            yield row
        if "crown" in measured.batches:
            yield from _rows(measured, network, x, ["crown"], 1, base)
        yield from _rows(measured, network, x, ["sound ibp"], 3, base)


def _rows(
    measured: Network, network: nn.Module, x: Tensor, names: list[str], repeats: int, base: Row | None
) -> Iterator[Row]:
    batches = [measured.batches[name.removeprefix("sound ")] for name in names]
    forwards = [_forward(network, x[:batch], name) for name, batch in zip(names, batches, strict=True)]
    with torch.no_grad():
        forward_s = median_seconds([job for job, _ in forwards], repeats, warmup=min(2, repeats - 1))
    trainable = not names[0].startswith("sound") and (names[0] != "crown" or len(measured.obs) == 1)
    train_s: list[float | None] = [None] * len(names)
    trains = [partial(_train, network, job, total) for job, total in forwards]
    if trainable:
        train_s = list(median_seconds(trains, repeats, warmup=min(2, repeats - 1)))
    for name, batch, (job, _), train, forward, both in zip(
        names, batches, forwards, trains, forward_s, train_s, strict=True
    ):
        peak = _peak(train if trainable else job, x.device, trainable)
        row = Row(
            measured.name,
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


def bench_bounds(
    json: bool = False, threads: int | None = None, device: str = "cpu", networks: tuple[str, ...] = ()
) -> None:
    """Cost of each bound method against the plain network: time and peak memory, for the papers' four networks.

    Takes a few minutes. Ratios are per sample and within this run; a machine that does other work at the same time
    makes them larger.

    Args:
        json: print JSON instead of a table.
        threads: torch threads; default: torch's own choice.
        device: cpu, or cuda where there is one.
        networks: measure only these; default: all.
    """
    if threads is not None:
        if threads < 1:
            raise BadInput(f"threads must be ≥ 1, got {threads}")
        torch.set_num_threads(threads)
    known = [network.name for network in NETWORKS]
    for name in networks:
        if name not in known:
            raise BadInput(f"networks must be among {', '.join(known)}, got {name!r}")
    chosen = tuple(network for network in NETWORKS if not networks or network.name in networks)
    keep_freed_memory()
    rows = []
    for row in measure(torch_device(device), chosen):
        rows.append(row)
        say(f"{row.network} {row.method}: {row.forward_ms:.1f} ms")
    if json:
        print_json({"machine": machine(), "radius": RADIUS, "rows": [dataclasses.asdict(row) for row in rows]})
    else:
        _show(rows)


def _show(rows: list[Row]) -> None:
    table = Table(title=f"Cost of a bound, ε = 1/255, {machine()['threads']} threads; × is per sample against plain")
    for heading in ("network", "method", "batch", "forward ms", "×", "forward+backward ms", "×", "peak MB"):
        table.add_column(heading, justify="left" if heading in ("network", "method") else "right")
    for row in rows:
        table.add_row(
            row.network, row.method, str(row.batch), f"{row.forward_ms:.2f}", f"{row.forward_ratio:.2f}",
            _number(row.train_ms), _number(row.train_ratio), _number(row.peak_mb, 0),
        )  # fmt: skip
    print_table(table)


def _number(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:.{digits}f}"
