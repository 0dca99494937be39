"""`radial bench cluster`: what a job costs beyond its work, what a second worker brings, and where runners pay.

Everything is measured in a Ray cluster that is started here, on loopback, with one CPU for each worker.
"""

import dataclasses
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from json import loads
from pathlib import Path
from typing import Any

import torch
from rich.table import Table

from radial import cluster
from radial.commands.measure import machine
from radial.commands.terminal import print_json, print_table, say
from radial.core.checks import check_whole
from radial.core.data import BadInput, EnvSpec
from radial.evaluation.play import evaluate
from radial.training.ppo import PPOConfig, train_ppo
from radial.workflows.loading import load

AGENT = "cartpole-dqn"  # whose episodes are the jobs of the throughput
EPISODES = 4  # of such a job
# Steps of the simulator against learning: Humanoid's costs most, CartPole's next to nothing.
TASKS = {
    "env-bound: Humanoid-v4, Gymnasium": EnvSpec("mujoco", "Humanoid-v4", {"backend": "gymnasium"}),
    "learning-bound: CartPole-v1": EnvSpec("classic", "CartPole-v1"),
}


@dataclass(frozen=True)
class RunnersRow:
    """Env steps per second of a PPO training, by number of runners; 0: it acts itself."""

    task: str
    runners: int
    steps_per_second: float
    ratio: float


def bench_cluster(
    json: bool = False, jobs: int = 200, evaluations: int = 24, updates: int = 6, runners: int = 2
) -> None:
    """Overhead of a job on Ray, throughput of two workers against one, and runners against acting in the loop.

    Args:
        json: print JSON instead of a table.
        jobs: empty jobs by which the overhead is measured.
        evaluations: jobs of the throughput, with one worker and with two.
        updates: of each training, of which the first is left out.
        runners: of these trainings.
    """
    check_whole("jobs", jobs, 2)
    check_whole("evaluations", evaluations, 4)
    check_whole("updates", updates, 2)
    check_whole("runners", runners, 1)
    if not cluster.is_installed():
        raise BadInput("bench cluster needs Ray: pip install 'radial-rl[ray]'")
    torch.set_num_threads(1)
    first, each = overhead(jobs)
    say(f"a job costs {1e3 * each:.1f} ms, the first {first:.1f} s")
    rates = [throughput(workers, evaluations) for workers in (1, 2)]
    say(f"two workers against one: {rates[1] / rates[0]:.2f}")
    rows = [row for task in TASKS for row in speeds(task, updates, (0, runners))]
    facts = {
        "machine": machine(), "load": os.getloadavg()[0], "jobs": jobs, "first_seconds": first,
        "overhead_ms": 1e3 * each,
        "evaluations": evaluations, "evaluations_per_second": rates, "two_workers": rates[1] / rates[0],
        "runners": [dataclasses.asdict(row) for row in rows],
    }  # fmt: skip
    if json:
        print_json(facts)
        return
    table = Table("measured", "value", title="Ray on this machine")
    table.add_row("first job, with the start of the cluster", f"{first:.1f} s")
    table.add_row("each job beyond the first", f"{1e3 * each:.1f} ms")
    table.add_row("two workers against one, evaluations", f"{rates[1] / rates[0]:.2f}")
    for row in rows:
        who = f"{row.runners} runners" if row.runners else "in the loop"
        table.add_row(f"{row.task}, {who}", f"{row.steps_per_second:,.0f} steps/s ({row.ratio:.2f})")
    print_table(table)


def nothing(number: int) -> int:
    """A job that does nothing."""
    return number


def evaluation(number: int) -> int:
    """A job that plays some episodes of an agent of the zoo."""
    agent = load(AGENT)
    assert agent.card.env is not None
    evaluate(agent, agent.card.env, None, 0.0, EPISODES, number)
    return number


def overhead(jobs: int) -> tuple[float, float]:
    """Seconds until the first of many empty jobs ends, and of each of the others."""
    ends = _ends(nothing, jobs, 2)
    return ends[0], (ends[-1] - ends[0]) / (jobs - 1)


def throughput(workers: int, evaluations: int) -> float:
    """Evaluations per second, once every worker has ended one: starting them is not measured."""
    ends = _ends(evaluation, evaluations + workers, workers)[workers - 1 :]
    return (len(ends) - 1) / (ends[-1] - ends[0])


def _ends(function: Callable[[int], int], jobs: int, workers: int) -> list[float]:
    """Seconds after which each job ended, sorted."""
    begun, ends = time.perf_counter(), list[float]()

    def tell(number: int, outcome: Any) -> None:
        if outcome.failed:
            raise RuntimeError(outcome.error)
        ends.append(time.perf_counter() - begun)

    cluster.map(function, range(jobs), on="ray", workers=workers, progress=tell)
    return ends


def speeds(task: str, updates: int, runners: Sequence[int]) -> list[RunnersRow]:
    """Trainings of one task that differ in their runners alone; medians over the updates after the first."""
    config = PPOConfig(
        TASKS[task], total_steps=updates * 2_048, num_envs=8, rollout=2_048, epochs=2, minibatch=256,
        checkpoint_every=updates,
    )  # fmt: skip
    found: list[RunnersRow] = []
    for count in runners:
        with tempfile.TemporaryDirectory() as folder:
            train_ppo(replace(config, num_runners=count), 0, out=Path(folder) / "run", quiet=True)
            lines = [loads(line) for line in (Path(folder) / "run" / "metrics.jsonl").read_text().splitlines()]
        rate = statistics.median(line["charts/SPS"] for line in lines[1:])
        found.append(RunnersRow(task, count, rate, rate / (found[0].steps_per_second if found else rate)))
        say(f"{task}, {count} runners: {rate:,.0f} steps/s")
    return found
