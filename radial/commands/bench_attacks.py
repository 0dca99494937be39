"""`radial bench attacks`: how fast adversaries train, against a plain PPO training in the same environments.

Everything is measured in one run and reported as a ratio, because steps per second mean little on a shared machine.
"""

import dataclasses
import statistics
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import tyro
from rich.table import Table

from radial.attacks.learned.adversaries import PAAD, SARL, Adversary
from radial.attacks.learned.halving import Trainings
from radial.attacks.learned.rounds import fast
from radial.attacks.learned.world import Threat
from radial.commands.bench_ppo import WARM_UP, Trainee
from radial.commands.measure import keep_freed_memory, machine
from radial.commands.terminal import print_json, print_table, say
from radial.core.agent import Agent
from radial.core.checks import check_whole
from radial.core.errors import BadInput
from radial.envs.make import make_env
from radial.recipes.recipe import parse_radius
from radial.training.ppo import PPOConfig
from radial.workflows.loading import load


@dataclass(frozen=True)
class Speed:
    """One line of the table."""

    name: str  # "ppo", or a kind of adversary
    steps_per_second: float  # median over rounds, real env steps
    ratio: float  # to plain PPO with the same networks, rollouts and updates
    learning_share: float  # of the time, the rest is acting and simulating


def measured(agent: Agent, kinds: list[Adversary], rounds: int, threads: int | None) -> Iterator[Speed]:
    """Plain PPO and each adversary in turn, round after round."""
    assert agent.card.env is not None
    spec, device, first = fast(agent.card.env), torch.device("cpu"), kinds[0]
    config = PPOConfig(
        spec, num_envs=first.num_envs, rollout=first.rollout, epochs=first.epochs, minibatch=first.minibatch,
        hidden=first.hidden, compile=first.compile,
    )  # fmt: skip
    worlds = [make_env(spec, first.num_envs, 0, threads=threads)]
    trainees = [Trainee("ppo", config, device)]
    for settings in kinds:
        assert settings.radius is not None
        threat = Threat(settings.radius, float(settings.p))
        trainings = Trainings(settings, agent, spec, threat, 0, out=None, resume=False, quiet=True)
        candidate = settings.candidates()[0]
        make = trainings.worlds(candidate.kind)
        trainees.append(Trainee(candidate.kind, trainings.config_of(candidate), device, make=make))
        worlds.append(make(spec, settings.num_envs, 0, threads=threads))
    try:
        starts = [world.reset() for world in worlds]
        for _ in range(WARM_UP + rounds):
            for trainee, world, obs in zip(trainees, worlds, starts, strict=True):
                trainee.round(world, obs)
    finally:
        for world in worlds:
            world.close()
    base = statistics.median(trainees[0].speeds[WARM_UP:])
    for trainee in trainees:
        speed = statistics.median(trainee.speeds[WARM_UP:])
        yield Speed(trainee.name, speed, speed / base, statistics.median(trainee.shares[WARM_UP:]))


def bench_attacks(
    agent: tyro.conf.Positional[str] = "hopper-ppo",
    radius: str = "0.075",
    rounds: int = 10,
    threads: int | None = None,
    json: bool = False,
) -> None:
    """Speed at which adversaries train against an agent, relative to plain PPO in the same environment.

    Args:
        agent: whom they train against; it must have an environment.
        radius: perturbation radius ε in network units.
        rounds: updates of each; the median is reported.
        threads: of the simulator; default: one per core.
        json: print one JSON object instead of a table.
    """
    check_whole("rounds", rounds, 1)
    loaded = load(agent)
    if loaded.card.env is None:
        raise BadInput(f"{agent}: no environment recorded, so nothing can be trained in it")
    keep_freed_memory()
    torch.set_num_threads(1)  # a second thread loses more in waiting than it gains on matrices this small
    say(f"compiling, then {rounds} rounds …")
    epsilon = parse_radius(radius)
    rows = list(measured(loaded, [SARL(radius=epsilon), PAAD(radius=epsilon)], rounds, threads))
    if json:
        facts = {"machine": machine(), "agent": agent, "radius": epsilon, "rounds": rounds}
        print_json(facts | {"rows": [dataclasses.asdict(row) for row in rows]})
        return
    table = Table(title=f"Training speed in {loaded.card.env.id}, against {agent}")
    for heading in ("", "steps/s", "of plain PPO", "learning"):
        table.add_column(heading, justify="right" if heading else "left")
    for row in rows:
        table.add_row(row.name, f"{row.steps_per_second:,.0f}", f"{row.ratio:.2f}", f"{row.learning_share:.0%}")
    print_table(table)
