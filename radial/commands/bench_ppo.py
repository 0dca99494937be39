"""`radial bench ppo`: training speed of PPO against the same pool of environments stepped with random actions.

Everything is measured in one run and reported as a ratio, because steps per second mean little on a shared machine.
"""

import dataclasses
import statistics
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
from rich.table import Table
from torch import Tensor

from radial.commands.measure import keep_freed_memory, machine, torch_device
from radial.commands.terminal import print_json, print_table, say
from radial.core.agent import Attack
from radial.core.data import BadInput, Continuous, VecEnv
from radial.envs.make import make_env
from radial.recipes.recipe import recipe
from radial.training.adversary import RolloutAttack
from radial.training.ppo import Making, PPOConfig, estimate, set_up
from radial.training.rollouts import Returns, collect
from radial.training.sight import sight_of
from radial.workflows.train import attack_named

WARM_UP = 2  # rounds that are not counted: compilation, first touch of memory


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str  # a recipe, or "random actions"
    steps_per_second: float  # median over rounds, real env steps
    ratio: float  # to random actions
    learning_share: float  # of the time, the rest is acting and simulating
    compile_seconds: float


class Trainee:
    """One training in progress on the shared pool."""

    def __init__(
        self,
        name: str,
        config: PPOConfig,
        device: torch.device,
        attack: Attack | None = None,
        make: Making | None = None,
    ) -> None:
        self.name, self.config = name, config
        self.agent, self.learner, self.scale, self.rng = set_up(config, 0, device, make=make)
        self.sight = sight_of(self.agent)
        self.actor = self.sight.actor(config.compile)
        self.adversary = attack and RolloutAttack.of(attack, self.agent, config)
        self.speeds: list[float] = []
        self.shares: list[float] = []

    def round(self, env: VecEnv, obs: Tensor) -> None:
        """One rollout and one update, with the recipe's own hyperparameters, a quarter of the way."""
        config, time_now = self.config, self.config.total_steps // 4
        between = self.adversary if self.adversary and self.adversary.begin(config.attack_radius(time_now)) else None
        self.actor.begin()
        x = self.actor.observe(obs)
        self.actor.finish()
        began = time.perf_counter()
        rollout, _ = collect(
            env,
            x,
            self.actor,
            self.scale,
            Returns(config.num_envs),
            config.rollout // config.num_envs,
            self.rng,
            between,
        )
        acted = time.perf_counter()
        data = estimate(rollout, self.sight, config.discount, config.lam)
        self.learner.learn(data, time_now, 1.0, self.rng)
        ended = time.perf_counter()
        self.speeds.append(int(rollout.real.sum()) / (ended - began))
        self.shares.append((ended - acted) / (ended - began))


def measure(
    configs: dict[str, PPOConfig],
    rounds: int,
    threads: int | None,
    device: torch.device,
    attacks: Mapping[str, Attack] = MappingProxyType({}),
) -> Iterator[Row]:
    """Random stepping and each training in turn, round after round, on one pool of environments.

    attacks  the objects behind the attacks that configs name, by the names of the configs
    """
    first = next(iter(configs.values()))
    env = make_env(first.env, first.num_envs, 0, threads=threads)
    env.reset()
    rng = torch.Generator().manual_seed(0)
    trainees = [Trainee(name, config, device, attacks.get(name)) for name, config in configs.items()]
    random_speeds: list[float] = []
    for _ in range(WARM_UP + rounds):
        began = time.perf_counter()
        real = 0
        for _ in range(first.rollout // first.num_envs):
            step = env.step(random_action(env, rng))
            real += int(step.real.sum())
        random_speeds.append(real / (time.perf_counter() - began))
        for trainee in trainees:
            trainee.round(env, step.obs)
    env.close()
    base = statistics.median(random_speeds[WARM_UP:])
    yield Row("random actions", base, 1.0, 0.0, 0.0)
    for trainee in trainees:
        speed = statistics.median(trainee.speeds[WARM_UP:])
        share = statistics.median(trainee.shares[WARM_UP:])
        yield Row(trainee.name, speed, speed / base, share, trainee.learner.compile_seconds)


def random_action(env: VecEnv, rng: torch.Generator) -> Tensor:
    """Any action for each env."""
    if isinstance(env.actions, Continuous):
        return 2 * torch.rand((env.num_envs, env.actions.size), generator=rng) - 1
    return torch.randint(env.actions.n, (env.num_envs,), generator=rng)


RECIPES = ("hopper-ppo", "hopper-radial-ppo", "hopper-sa-ppo-convex")


def bench_ppo(
    recipes: tuple[str, ...] = RECIPES,
    rounds: int = 10,
    threads: int | None = None,
    device: str = "cpu",
    json: bool = False,
) -> None:
    """Training speed of recipes against the same environments stepped with random actions.

    Takes about two minutes, the first time more: training steps are compiled and cached on disk.

    Args:
        recipes: which to measure; all must share their environment.
        rounds: updates of each; the median is reported.
        threads: of the simulator; default: one per core.
        device: cpu, or cuda where there is one.
        json: print one JSON object instead of a table.
    """
    if rounds < 1:
        raise BadInput(f"rounds must be a whole number ≥ 1, got {rounds}")
    if threads is not None and threads < 1:
        raise BadInput(f"threads must be a whole number ≥ 1, got {threads}")
    configs = {name: config for name in recipes if isinstance(config := recipe(name).config, PPOConfig)}
    if len(configs) < len(recipes):
        raise BadInput("recipes must be PPO recipes; `radial bench dqn` and `radial bench a3c` measure the others")
    if not configs or len({(config.env, config.num_envs) for config in configs.values()}) != 1:
        raise BadInput("recipes must share one environment and num_envs, to be measured on one pool")
    keep_freed_memory()
    torch.set_num_threads(1)  # a second thread loses more in waiting than it gains on matrices this small
    say(f"compiling, then {rounds} rounds of {', '.join(recipes)} …")
    attacks = {name: attack_named(config.attack) for name, config in configs.items() if config.attack is not None}
    rows = list(measure(configs, rounds, threads, torch_device(device), attacks))
    if json:
        print_json({"machine": machine(), "rounds": rounds, "rows": [dataclasses.asdict(row) for row in rows]})
        return
    table = Table(title=f"Training speed, {configs[recipes[0]].env.id}, {configs[recipes[0]].num_envs} environments")
    for heading in ("", "steps/s", "of random", "learning", "compile s"):
        table.add_column(heading, justify="right" if heading else "left")
    for row in rows:
        table.add_row(
            row.name, f"{row.steps_per_second:,.0f}", f"{row.ratio:.2f}", f"{row.learning_share:.0%}",
            f"{row.compile_seconds:.0f}",
        )  # fmt: skip
    print_table(table)
