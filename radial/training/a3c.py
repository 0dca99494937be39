"""A3C, plain and robust: collect a rollout, apply its gradient to the shared model, in one process or in many.

The loss is an `Objective` (objectives/policy_gradient.py); docs/a3c.md lists the differences from the authors' code.
"""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from radial.agents.actor_critic import ActorCritic
from radial.agents.convert import check_init
from radial.agents.starts import DEFAULT, check_start, start_agent
from radial.core import checks
from radial.core.agent import Agent, Attack
from radial.core.data import LATER, BadInput, Discrete, EnvSpec, VecEnv
from radial.core.schedules import Constant, Linear, Schedule, settle
from radial.envs.make import make_env
from radial.objectives.base import Objective
from radial.objectives.policy_gradient import OBJECTIVES, Plain
from radial.runs.config import recorded
from radial.runs.files import warn
from radial.runs.run import Run, Stopped, derived_seed
from radial.runs.tracking import Tracking
from radial.training.a3c_player import A3CLearner, Model, Player, Report, Rhythm
from radial.training.a3c_workers import Board, Crew
from radial.training.adversary import RolloutAttack, check_attack
from radial.training.ramp import Guide, guide_state, restore_guide, time_at
from radial.training.replay import free_memory
from radial.training.rollouts import Returns, shown
from radial.training.update import Flat

WORKER_BYTES = 350_000_000  # private memory of a worker: measured with Atari's network, 360 MB
MakeEnv = Callable[..., VecEnv]


@dataclass(frozen=True)
class A3CConfig:
    """Everything that defines a training, except the seed. Defaults are those of the authors' Atari runs."""

    env: EnvSpec
    objective: Objective = field(default_factory=Plain, metadata={"kinds": OBJECTIVES})
    total_steps: int = 20_000_000  # env steps, of all workers
    workers: int = 16  # processes; 1: in this one, and then a run is reproducible bit for bit
    num_envs: int = 1  # of each worker
    rollout: int = 20  # steps of each env per update
    episodic_life: bool = False  # Atari: a lost life ends a training episode; evaluation plays whole games
    rate: float = 1e-4
    anneal: bool = False  # the rate falls linearly to 0
    adam_eps: float = 1e-3
    max_grad_norm: float | None = None  # None: do not clip
    discount: float = 0.99
    lam: float = 1.0  # of the advantages; values learn from k-step returns
    entropy: float = 0.01  # weight of the entropy bonus
    hidden: tuple[int, ...] | None = None  # sizes of layers; None: two of 64 for vectors, the paper's for frames
    compile: bool = True  # the gradient to native code; False: slower, starts at once
    log_every: int = 10_000  # env steps
    checkpoint_every: int = 200_000  # env steps; with one worker environments restart there, as in the other loops
    patience: float = 120.0  # seconds without an update before a worker process counts as hung
    attack: str | None = field(default=None, metadata=LATER)  # adversarial training: the attack on rollouts
    attack_radius: Schedule = field(default=Constant(0.0), metadata=LATER)
    attack_probability: float = field(default=0.0, metadata=LATER)  # of each step being attacked
    start: str = field(default=DEFAULT, metadata=LATER)  # of the network that decides, a key of STARTS

    def __post_init__(self) -> None:
        checks.whole(self, "total_steps", "workers", "num_envs", "rollout", "log_every", "checkpoint_every")
        checks.positive(self, "rate", "adam_eps", "max_grad_norm", "patience")
        checks.share(self, "discount", "lam", "attack_probability")
        settle(self, "attack_radius")
        checks.not_negative(self, "entropy")
        checks.sizes(self, "hidden")
        check_start(self.start)
        checks.kind(self, "env", EnvSpec)

    @property
    def training_env(self) -> EnvSpec:
        """The env that rollouts are collected in; `env` is the one the agent is evaluated in."""
        options = {**self.env.options, "episodic_life": True} if self.episodic_life else self.env.options
        return replace(self.env, options=options)

    @property
    def resumes(self) -> str:
        """How a resumed run relates to an uninterrupted one: "exact" or "statistical"."""
        return "exact" if self.workers == 1 else "statistical"

    @property
    def rhythm(self) -> Rhythm:
        """The settings that turn rollouts into updates."""
        rate = Linear(0.0, 0, self.total_steps, start=self.rate) if self.anneal else Constant(self.rate)
        return Rhythm(self.rollout, self.discount, self.lam, rate, self.adam_eps, self.attack_radius)


def train_a3c(
    config: A3CConfig,
    seed: int,
    *,
    out: Path | None = None,
    resume: bool = False,
    attack: Attack | None = None,
    init: ActorCritic | None = None,
    guide: Guide | None = None,
    device: str | torch.device = "cpu",
    threads: int | None = None,
    quiet: bool = False,
    track: Tracking | None = None,
) -> ActorCritic:
    """Train an agent. With `out`, everything is logged and saved there and a stopped run can be resumed.

    With one worker the resumed run is the same run, bit for bit; with more it is a run of the same kind.

    attack   the object behind config.attack
    init     an agent to start from; the paper trains a standard agent first, then a robust one from it
    guide    sets the clock of the objective's schedules, with one worker; None: they follow the env steps
    threads  of the simulator, with one worker; torch's own are left alone. No result depends on it
    """
    if guide is not None and config.workers > 1:
        raise BadInput(f"workers must be 1 where the ramp is watched, got {config.workers}")
    check_attack(attack, config.attack)
    settings = recorded(config, seed, init, guide)
    with Run.open(out, settings, resume=resume, total_steps=config.total_steps, quiet=quiet, track=track) as run:
        training = set_up(config, seed, torch.device(device), init)
        training.guide, training.attack = guide, attack
        if run.restored is not None:
            with run.restoring():
                training.restore(*run.restored)
        if config.workers == 1:
            _synchronous(run, training, threads)
        elif training.step < config.total_steps:
            _asynchronous(run, training)
    return training.finished()


def _synchronous(run: Run, training: "Training", threads: int | None) -> None:
    """Train with one player in this process. Environments restart at checkpoints, whether the run is resumed or not."""
    config, seed = training.config, training.seed
    player = make_player(config, training.agent, training.model, training.rng, training.attack)
    while training.step < config.total_steps:
        if player.env is None:
            at = derived_seed(seed, "envs", training.step)
            env = make_env(config.training_env, config.num_envs, at, threads=threads)
            run.check_engine(env.engine)
            player.enter(env)

        # ---------------------------------------------------------------------------------------- act and learn
        before = training.step
        training.step += player.update(before, partial(time_at, training.guide))

        # -------------------------------------------------------------------------------------------- log, save
        save = training.step >= config.total_steps or run.signal is not None
        save = save or _passed(config.checkpoint_every, before, training.step)
        if save or _passed(config.log_every, before, training.step):
            training.hear(player.report())
            time_now, more = time_at(training.guide, training.step), {}
            if training.guide is not None:
                more = training.guide.look(training.step, training.agent, player.seen, training.returns.returns)
            training.log(run, time_now, **more)
        if save:
            training.save(run)
            player.leave()
        if run.signal is not None and training.step < config.total_steps:
            raise Stopped(run.signal)


def _asynchronous(run: Run, training: "Training") -> None:
    """Train with many players, each in its own process; this one counts, logs, saves, and supervises them."""
    config = training.config
    warn_if_crowded(config.workers)
    run.check_engine(training.engine)
    run.exact = False  # the order of updates is up to the scheduler, so the same seed need not repeat the run
    training.model.share()
    board = Board.fresh(config.workers, training.step, config.total_steps)
    build = partial(
        player_in_worker, config, training.seed, training.step, training.model, make_env, attack=training.attack
    )
    with Crew(build, board, config.patience) as crew:
        over, saved = False, training.step
        while not over:
            training.hear(*crew.look())
            over = board.over or run.signal is not None
            if over:
                training.hear(*crew.stop())
            before, training.step = training.step, board.step
            if training.step == saved:  # nothing new to log or save: the workers are still starting
                continue
            save = over or _passed(config.checkpoint_every, before, training.step)
            if save or _passed(config.log_every, before, training.step):
                training.log(run, training.step, **{"charts/restarts": training.restarts + crew.restarts})
            if save:
                training.save(run, restarts=training.restarts + crew.restarts)
                saved = training.step
        if run.signal is not None and training.step < config.total_steps:
            raise Stopped(run.signal)


# --------------------------------------------------------------------------------------------- training state


class Training:
    """The state both loops share: the model, the env step, and the reports since the last logged line."""

    def __init__(
        self, config: A3CConfig, seed: int, agent: ActorCritic, rng: torch.Generator, engine: Mapping[str, str]
    ) -> None:
        self.config, self.seed, self.agent, self.rng, self.engine = config, seed, agent, rng, engine
        self.model = Model.of(agent)
        self.returns, self.step, self.restarts = Returns(0), 0, 0
        self.guide: Guide | None = None
        self.attack: Attack | None = None
        self._heard: list[Mapping[str, float]] = []
        self._began, self._logged = time.perf_counter(), 0

    def hear(self, *reports: Report) -> None:
        """Collect reports of players."""
        for report in reports:
            self.returns.extend(report.returns, report.lengths)
            self._heard.append(report.metrics)

    def log(self, run: Run, time_now: int, **more: float) -> None:
        """Log one line of metrics, under CleanRL's names. time_now: the clock of the schedules."""
        names = dict.fromkeys(name for metrics in self._heard for name in metrics)
        told = {name: [metrics[name] for metrics in self._heard if name in metrics] for name in names}
        metrics = {name: sum(values) / len(values) for name, values in told.items()} | self.returns.metrics()
        metrics |= {f"robust/{name}": value for name, value in self.config.objective.coefficients(time_now).items()}
        speed = (self.step - self._logged) / (time.perf_counter() - self._began)
        metrics |= {"charts/SPS": speed, "charts/updates": float(self.model.moments.steps)} | more
        self._heard, self._began, self._logged = [], time.perf_counter(), self.step
        run.log(self.step, metrics)
        run.progress(self.step, **shown(metrics, entropy="losses/entropy"))

    def save(self, run: Run, restarts: int = 0) -> None:
        """Save a checkpoint with everything a resumed run needs."""
        state: dict[str, Any] = {"step": self.step, "returns": self.returns.returns, "lengths": self.returns.lengths}
        state |= {"engine": dict(self.engine), "restarts": restarts}
        state["resume"] = self.config.resumes
        averaged, paced = guide_state(self.guide)
        tensors = self.model.state() | {"rng": self.rng.get_state()} | averaged
        run.save(self.step, tensors, state | paced, score=self.returns.mean())

    def restore(self, tensors: Mapping[str, torch.Tensor], state: Mapping[str, Any]) -> None:
        """Restore everything from a checkpoint."""
        self.model.restore(tensors)
        self.rng.set_state(tensors["rng"])
        self.returns.restore(state)
        self.step, self.restarts = int(state["step"]), int(state["restarts"])
        self._logged = self.step
        restore_guide(self.guide, self.agent, tensors, state)

    def finished(self) -> ActorCritic:
        """The agent, with the trained parameters."""
        Flat(self.agent.named_parameters()).write(self.model.parameters, self.agent)
        return self.agent


def set_up(config: A3CConfig, seed: int, device: torch.device, init: ActorCritic | None = None) -> Training:
    """The training state before the first step."""
    check_device(config, device)
    probe = make_env(config.training_env, 1, seed)
    try:
        shape, actions = check_env(config, probe, init)
    finally:
        probe.close()
    agent = ActorCritic(shape, actions.n, config.hidden)
    start_agent(agent, config.start, torch.Generator().manual_seed(derived_seed(seed, "weights")))
    if init is not None:
        agent.load_state_dict(init.state_dict())
    rng = torch.Generator(device).manual_seed(derived_seed(seed, "actions"))
    return Training(config, seed, agent.to(device), rng, probe.engine)


def check_device(config: A3CConfig, device: torch.device) -> None:
    """Refuse a device whose memory processes cannot share."""
    if config.workers > 1 and device.type != "cpu":
        raise BadInput(
            f"device must be cpu for {config.workers} workers, which share memory; use workers 1 on {device}"
        )


def check_env(config: A3CConfig, env: VecEnv, init: Agent | None = None) -> tuple[tuple[int, ...], Discrete]:
    """Refuse an env that A3C cannot learn, or not from `init`; return its observation shape and actions."""
    shape, actions = env.observation_shape, env.actions
    if not isinstance(actions, Discrete):
        raise BadInput(f"A3C needs an env with discrete actions; those of {config.env.id} are continuous: use PPO")
    with torch.device("meta"):
        agent = ActorCritic(shape, actions.n, config.hidden)
    if init is not None:
        check_init(init, agent)
    return shape, actions


def warn_if_crowded(workers: int) -> None:
    """Warn if there are more workers than cores, or than fit into memory; that may still be intended."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if workers > cores:
        warn(f"{workers} workers take turns on {cores} cores: more than {cores} do not make the training faster")
    free, needed = free_memory(), workers * WORKER_BYTES
    if free is not None and needed > free:
        least = f"{needed / 1e9:.1f} GB of memory, and {free / 1e9:.1f} GB are free"
        warn(f"{workers} workers need about {least}: use at most {max(1, free // WORKER_BYTES)}")


def make_player(
    config: A3CConfig, agent: ActorCritic, model: Model, rng: torch.Generator, attack: Attack | None = None
) -> Player:
    """A player for this model, without environments yet."""
    learner = A3CLearner(
        agent, config.objective, entropy=config.entropy, max_grad_norm=config.max_grad_norm, compile=config.compile
    )
    adversary = None if attack is None else RolloutAttack.of(attack, agent, config)
    return Player(learner, model, config.rhythm, config.num_envs, rng, adversary)


def player_in_worker(
    config: A3CConfig, seed: int, begun: int, model: Model, make: MakeEnv, worker: int, life: int,
    attack: Attack | None = None,
) -> Player:  # fmt: skip
    """The player of a worker process, in its environments, seeded by the worker, its restart and the run's env step."""
    purpose = (worker, life, begun)
    env = make(config.training_env, config.num_envs, derived_seed(seed, "envs", *purpose), threads=1)
    assert isinstance(env.actions, Discrete)
    agent = ActorCritic(env.observation_shape, env.actions.n, config.hidden)
    rng = torch.Generator().manual_seed(derived_seed(seed, "actions", *purpose))
    player = make_player(config, agent, model, rng, attack)
    player.enter(env)
    return player


def _passed(every: int, before: int, now: int) -> bool:
    """Whether a multiple of `every` lies in (before, now]."""
    return now // every > before // every
