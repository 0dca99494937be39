"""`radial bench guard`: what a verdict on each action costs, in one run, on one thread."""

import dataclasses
import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from rich.table import Table

from radial.agents.policies import CategoricalAgent, GaussianAgent
from radial.agents.q_agent import QAgent
from radial.commands.measure import machine
from radial.commands.terminal import print_json, print_table, say
from radial.core.agent import Agent
from radial.core.checks import check_whole
from radial.workflows.guard import guard

RADIUS, BUDGET = 0.01, 0.002
# 64×64 networks of the three kinds, untrained: CartPole's and Hopper's sizes.
AGENTS = {
    "q, ReLU, 4 → 2": lambda: QAgent((4,), 2, (64, 64)),
    "categorical, tanh, 4 → 2": lambda: CategoricalAgent((4,), 2, (64, 64)),
    "gaussian, tanh, 11 → 3": lambda: GaussianAgent((11,), 3, (64, 64)),
}


@dataclass(frozen=True)
class GuardRow:
    """One agent with one bound, in milliseconds.

    act      the plain agent: prepare and act
    verdict  a step of the guard that stops at the verdict: median, 90 %
    step     a step within the budget, which the search for the radius fills: median
    late     share of these steps beyond the budget
    compile  seconds, once
    """

    agent: str
    bound: str
    act_ms: float
    verdict_ms: float
    verdict_p90_ms: float
    step_ms: float
    late: float
    compile_seconds: float


def bench_guard(json: bool = False, bounds: tuple[str, ...] = ("crown",), steps: int = 500) -> None:
    """Cost of the run-time guard per step, against the plain agent, for 64×64 networks on one thread.

    Takes a minute or two: the bounds are compiled first.

    Args:
        json: print JSON instead of a table.
        bounds: ibp, crown-ibp or crown; several are measured one after another.
        steps: per measurement.
    """
    check_whole("steps", steps, 1)
    torch.set_num_threads(1)
    rows = []
    for row in measure_guards(bounds, steps):
        rows.append(row)
        say(f"{row.agent}, {row.bound}: {row.verdict_ms:.2f} ms")
    if json:
        facts = {"machine": machine(), "radius": RADIUS, "budget_ms": 1e3 * BUDGET, "steps": steps}
        print_json(facts | {"rows": [dataclasses.asdict(row) for row in rows]})
        return
    table = Table(title=f"Cost of a guarded step, ε = {RADIUS}, one thread, milliseconds")
    for heading in ("agent", "bound", "plain", "verdict", "90 %", f"within {1e3 * BUDGET:g} ms", "late", "compile s"):
        table.add_column(heading, justify="left" if heading in ("agent", "bound") else "right")
    for row in rows:
        table.add_row(
            row.agent, row.bound, f"{row.act_ms:.3f}", f"{row.verdict_ms:.3f}", f"{row.verdict_p90_ms:.3f}",
            f"{row.step_ms:.3f}", f"{100 * row.late:.1f} %", f"{row.compile_seconds:.1f}",
        )  # fmt: skip
    print_table(table)


def measure_guards(bounds: tuple[str, ...], steps: int) -> Iterator[GuardRow]:
    """Each agent with each bound; observations are standard normal."""
    for bound in bounds:
        for name, make in AGENTS.items():
            torch.manual_seed(0)
            yield _row(name, make(), bound, steps)


def _row(name: str, agent: Agent, bound: str, steps: int) -> GuardRow:
    assert agent.observation_shape is not None
    obs = torch.randn(steps, *agent.observation_shape, generator=torch.Generator().manual_seed(0))
    begun = time.perf_counter()
    guarded = guard(agent, RADIUS, bound=bound, budget=BUDGET)
    compile_seconds = time.perf_counter() - begun
    with torch.no_grad():
        plain = _times(lambda x: agent.act(agent.prepare(x.unsqueeze(0))), obs)
    within = _times(guarded, obs)
    late = guarded.counts.late / guarded.counts.steps
    guarded.rounds = 0
    verdict = _times(guarded, obs)
    return GuardRow(
        name, bound, _at(plain, 0.5), _at(verdict, 0.5), _at(verdict, 0.9), _at(within, 0.5), late,
        compile_seconds,
    )  # fmt: skip


def _times(ask: object, obs: torch.Tensor) -> list[float]:
    """Sorted milliseconds of one call for each observation."""
    found = []
    for x in obs:
        begun = time.perf_counter()
        ask(x)  # type: ignore[operator]
        found.append(1e3 * (time.perf_counter() - begun))
    return sorted(found)


def _at(times: list[float], share: float) -> float:
    return round(times[min(len(times) - 1, int(share * len(times)))], 4)
