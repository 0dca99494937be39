"""Deep Q-learning, plain and robust: act, remember, learn from what is remembered, in one loop that reads downwards.

What is minimised is an `Objective` (objectives/q_objectives.py); how this differs from the authors' code is listed in
docs/dqn.md.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from radial.agents.convert import AnyAgent, check_init
from radial.agents.q_agent import QAgent
from radial.core import checks
from radial.core.data import BadInput, Discrete, EnvSpec, VecEnv
from radial.core.schedules import Linear, Schedule, settle
from radial.envs.make import make_env
from radial.objectives.q_objectives import TD, Objective, Plain
from radial.runs.config import recorded
from radial.runs.files import require
from radial.runs.run import Run, Stopped, derived_seed
from radial.training.q_learner import QLearner, Rules, Transitions
from radial.training.ramp import ROWS, Guide, time_at
from radial.training.replay import Prioritised, Replay, check_memory, in_words
from radial.training.replay_disk import check_segments, load_segments, prune_segments, save_segments
from radial.training.scores import Scores

SEGMENTS = "replay"  # the folder of the replay in a run's folder


@dataclass(frozen=True)
class DQNConfig:
    """Everything that defines a training, except the seed. Defaults are those of the authors' Atari runs."""

    env: EnvSpec
    objective: Objective = field(default_factory=Plain)
    total_steps: int = 6_000_000  # env steps
    num_envs: int = 8
    replay_capacity: int = 200_000
    prioritised: Prioritised | None = None  # None: every transition is as likely
    learning_starts: int = 50_000  # env steps before the first update
    update_every: int = 4  # env steps, summed over envs
    batch: int = 128
    target_every: int = 4_000  # env steps
    exploration: Schedule = Linear(end=0.01, first_step=0, last_step=500_000, start=1.0)  # share of the steps
    exploration_length: int = 1  # steps that an exploring action lasts; where single ones lead nowhere (Freeway)
    rate: float = 1.25e-4
    anneal: bool = False  # the rate falls linearly to 0
    adam_eps: float = 1e-8
    max_grad_norm: float | None = None  # None: do not clip
    discount: float = 0.99
    n_step: int = 1  # rewards summed before the target network is asked; more: rewards are learned from sooner
    td: TD = field(default_factory=TD)
    hidden: tuple[int, ...] | None = None  # sizes of layers; None: two of 64 for vectors, the paper's for frames
    compile: bool = True  # the update to native code; False: slower, starts at once
    log_every: int = 2_000  # env steps
    checkpoint_every: int = 100_000  # env steps; environments restart there, so that a resumed run is the same run

    def __post_init__(self) -> None:
        checks.whole(
            self, "total_steps", "num_envs", "replay_capacity", "update_every", "batch", "target_every",
            "exploration_length", "n_step", "log_every", "checkpoint_every",
        )  # fmt: skip
        checks.whole(self, "learning_starts", least=0)
        checks.positive(self, "rate", "adam_eps", "max_grad_norm")
        checks.share(self, "discount")
        settle(self, "exploration")
        for step in (0, self.total_steps):
            if not 0 <= self.exploration(step) <= 1:
                raise BadInput(f"exploration must lie in [0, 1], got {self.exploration(step):g} at step {step:,}")
        checks.sizes(self, "hidden")
        checks.kind(self, "env", EnvSpec)
        checks.kind(self, "td", TD)
        checks.kind(self, "prioritised", Prioritised)


def train(
    config: DQNConfig,
    seed: int,
    *,
    out: Path | None = None,
    resume: bool = False,
    init: QAgent | None = None,
    guide: Guide | None = None,
    device: str | torch.device = "cpu",
    threads: int | None = None,
    quiet: bool = False,
) -> QAgent:
    """Train an agent. With `out`, everything is logged and saved there and a stopped run can be resumed.

    init     an agent to start from; the paper trains a standard agent first, then a robust one from it
    guide    who says where the objective's schedules stand; None: they follow the env steps
    threads  of the simulator; torch's own are left alone. No result depends on it
    """
    segments = None if out is None else out / SEGMENTS
    verify = partial(_verify, segments)
    settings = recorded(config, seed, init, guide)
    with Run.open(
        out, settings, resume=resume, total_steps=config.total_steps, quiet=quiet, verify=verify
    ) as run:  # fmt: skip
        actor, learner, replay, rng = set_up(config, seed, torch.device(device), init, run.note)
        scores, step, saved = Scores(config.num_envs), 0, None
        if run.restored is not None:
            step, saved = _restore(run, learner, replay, scores, rng, segments, guide)
        env: VecEnv | None = None
        began, logged = time.perf_counter(), step
        while step < config.total_steps:
            if env is None:  # at the start and after each checkpoint, in interrupted and uninterrupted runs alike
                env = make_env(config.env, config.num_envs, derived_seed(seed, "envs", step), threads=threads)
                run.check_engine(env.engine)
                obs = env.reset()
                replay.begin(obs)
                scores.forget()
                detour = Detour.none(config.num_envs, config.exploration_length, rng.device)

            # ------------------------------------------------------------------------------------------------- act
            action = explore(actor, obs.to(device), config.exploration(step), rng, detour).cpu()
            seen = env.step(action)
            replay.add(action, seen.reward, seen.terminated, seen.real, seen.obs)
            scores.add(seen.score[None], seen.ended[None], seen.real[None])
            obs, before = seen.obs, step
            step += int(seen.real.sum())

            # ----------------------------------------------------------------------------------------------- learn
            if step > config.learning_starts:
                for _ in range(_passed(config.update_every, before, step)):
                    learn(config, learner, replay, step, rng, time_at(guide, step))
                learner.write_back()
            if _passed(config.target_every, before, step):
                learner.sync_target()

            # ------------------------------------------------------------------------------------------- log, save
            save = step >= config.total_steps or run.signal is not None
            save = save or _passed(config.checkpoint_every, before, step) > 0
            if save or _passed(config.log_every, before, step):
                speed = (step - logged) / (time.perf_counter() - began)
                began, logged = time.perf_counter(), step
                said = config.objective.coefficients(time_at(guide, step))
                seen_now = {} if guide is None else _look(guide, config, actor, replay, scores, step, seed)
                _log(run, config, learner, scores, step, speed, len(replay), said, seen_now)
            if save:
                saved = _save(run, learner, replay, scores, rng, step, env, segments, saved, guide)
                env.close()
                env = None
            if run.signal is not None and step < config.total_steps:
                raise Stopped(run.signal)
    return actor


@dataclass
class Detour:
    """Who explores at the moment: each env's exploring action (N,) and for how many steps it still lasts (N,)."""

    action: Tensor
    left: Tensor
    length: int

    @classmethod
    def none(cls, envs: int, length: int, device: torch.device) -> "Detour":
        """Nobody does."""
        return cls(torch.zeros(envs, dtype=torch.int64, device=device), torch.zeros(envs, device=device), length)


@torch.no_grad()
def explore(agent: QAgent, obs: Tensor, epsilon: float, rng: torch.Generator, detour: Detour | None = None) -> Tensor:
    """The greedy action of each row (N,), or in a share `epsilon` of the steps any action.

    detour  moved on. An exploring action lasts `length` steps, so it begins more rarely: with a probability p for which
            p·length / (p·length + 1 − p) = ε. (After Dabney et al. 2021, whose lengths are random.)
    """
    rows = obs.shape[0]
    detour = detour or Detour.none(rows, 1, rng.device)
    rare = epsilon / (detour.length - epsilon * (detour.length - 1))
    begin = (torch.rand(rows, generator=rng, device=rng.device) < rare) & (detour.left == 0)
    anywhere = torch.randint(agent.actions.n, (rows,), generator=rng, device=rng.device)
    detour.action = torch.where(begin, anywhere, detour.action)
    detour.left = torch.where(begin, detour.length, detour.left)
    wander = detour.left > 0
    detour.left = (detour.left - 1).clamp(min=0)
    return detour.action if bool(wander.all()) else torch.where(wander, detour.action, agent.act(agent.prepare(obs)))


def set_up(
    config: DQNConfig,
    seed: int,
    device: torch.device,
    init: QAgent | None = None,
    note: Callable[[str], None] = lambda text: None,
) -> tuple[QAgent, QLearner, Replay, torch.Generator]:
    """Who acts, what learns, what is remembered, and the generator of everything random.

    With RS-DQN the one who acts is the student, otherwise the Q-network that learns. note: is told what it will take.
    """
    probe = make_env(config.env, 1, seed)
    try:
        shape, actions, dtype = check_env(config, probe, init)
    finally:
        probe.close()
    agents = []
    for name in ("weights", "student")[: 2 if config.objective.student else 1]:
        agent = QAgent(shape, actions.n, config.hidden)
        agent.initialize(torch.Generator().manual_seed(derived_seed(seed, name)))
        if init is not None:
            agent.load_state_dict(init.state_dict())
        agents.append(agent.to(device))
    rules = Rules(config.td, config.discount, config.adam_eps, config.max_grad_norm)
    learner = QLearner(
        agents[0], agents[1] if len(agents) > 1 else None, config.objective, rules,
        rate=config.rate, compile=config.compile,
    )  # fmt: skip
    needed = Replay.bytes_needed(config.replay_capacity, shape, dtype, config.num_envs, config.prioritised)
    note(f"replay: {config.replay_capacity:,} transitions will take {in_words(needed)} of memory")
    replay = Replay(config.replay_capacity, shape, dtype, config.num_envs, prioritised=config.prioritised)
    return agents[-1], learner, replay, torch.Generator(device).manual_seed(derived_seed(seed, "actions"))


def check_env(
    config: DQNConfig, env: VecEnv, init: AnyAgent | None = None
) -> tuple[tuple[int, ...], Discrete, torch.dtype]:
    """Refuse a fresh env that cannot be learned here, remembered, or begun from `init`; what it shows and takes."""
    shape, actions, dtype = env.observation_shape, env.actions, env.reset().dtype
    if not isinstance(actions, Discrete):
        raise BadInput(f"DQN needs an env with discrete actions; those of {config.env.id} are continuous: use PPO")
    with torch.device("meta"):
        agent = QAgent(shape, actions.n, config.hidden)
    if init is not None:
        check_init(init, agent)
    check_memory(config.replay_capacity, shape, dtype, config.num_envs, config.prioritised)
    return shape, actions, dtype


def _passed(every: int, before: int, now: int) -> int:
    """How many multiples of `every` lie in (before, now]."""
    return now // every - before // every


def learn(
    config: DQNConfig, learner: QLearner, replay: Replay, step: int, rng: torch.Generator, time: int | None = None
) -> None:
    """One update from what is remembered. time: where the objective's schedules stand; None: at `step`."""
    beta = None if config.prioritised is None else config.prioritised.beta(step)
    sample = replay.sample(
        config.batch, rng, n_step=config.n_step, discount=config.discount, beta=beta, device=learner.parameters.device
    )
    data = Transitions(
        sample.obs, sample.action, sample.reward, sample.next_obs, sample.terminated, sample.weight, sample.steps
    )
    at = step if time is None else time
    surprise = learner.learn(data, at, rng, max(0.0, 1 - step / config.total_steps) if config.anneal else 1.0)
    if config.prioritised is not None:
        replay.update(sample.index, surprise)


def _look(
    guide: Guide, config: DQNConfig, actor: QAgent, replay: Replay, scores: Scores, step: int, seed: int
) -> dict[str, float]:
    """What the guide sees at some of what is remembered; it draws from a generator of its own."""
    if not len(replay):
        return {}
    beta = None if config.prioritised is None else config.prioritised.beta(step)
    rng = torch.Generator().manual_seed(derived_seed(seed, "watch", step))
    sample = replay.sample(ROWS, rng, beta=beta, device=next(actor.parameters()).device)
    return guide.look(step, actor, actor.prepare(sample.obs), scores.returns)


def _log(
    run: Run, config: DQNConfig, learner: QLearner, scores: Scores, step: int, speed: float, remembered: int,
    scheduled: Mapping[str, float], more: Mapping[str, float],
) -> None:  # fmt: skip
    """One line of metrics, under CleanRL's names."""
    metrics = learner.report() | scores.metrics() | {f"robust/{name}": value for name, value in scheduled.items()}
    metrics |= {"charts/SPS": speed, "charts/epsilon": config.exploration(step), "charts/replay": float(remembered)}
    metrics |= more
    run.log(step, metrics)
    names = {
        "return": "charts/episodic_return", "explore": "charts/epsilon", "loss": "losses/td_loss", "ε": "robust/radius",
        "κ": "robust/kappa", "width": "robust/bound_width", "certified": "robust/certified", "pace": "robust/pace",
    }  # fmt: skip
    run.progress(step, **{short: metrics[name] for short, name in names.items() if name in metrics})


def _save(
    run: Run, learner: QLearner, replay: Replay, scores: Scores, rng: torch.Generator, step: int, env: VecEnv,
    segments: Path | None, before: dict[str, Any] | None, guide: Guide | None,
) -> dict[str, Any]:  # fmt: skip
    """A checkpoint with everything a resumed run needs; what it says of the replay."""
    kept = save_segments(replay, segments, before)
    tensors = learner.state() | {f"replay.{name}": tensor for name, tensor in replay.tensors().items()}
    state = {"step": step, "returns": scores.returns, "lengths": scores.lengths}
    state |= {"replay": kept, "engine": dict(env.engine)}
    state |= {} if guide is None else {"guide": guide.ramp.state()}
    run.save(step, tensors | {"rng": rng.get_state()}, state, score=scores.mean())
    prune_segments(segments, [before, kept])
    return kept


def _verify(segments: Path | None, state: Mapping[str, Any]) -> None:
    """`Corrupt`, unless the replay that a checkpoint names is there."""
    if segments is not None:
        require(isinstance(state.get("replay"), dict), segments, "belongs to a checkpoint that says nothing of it")
        check_segments(segments, state["replay"])


def _restore(
    run: Run, learner: QLearner, replay: Replay, scores: Scores, rng: torch.Generator, segments: Path | None,
    guide: Guide | None,
) -> tuple[int, dict[str, Any]]:  # fmt: skip
    """Everything as it was; the step, and what the checkpoint says of the replay."""
    assert run.restored is not None
    assert segments is not None
    tensors, state = run.restored
    learner.restore(tensors)
    named = {name.removeprefix("replay."): tensor for name, tensor in tensors.items() if name.startswith("replay.")}
    load_segments(replay, segments, state["replay"], named)
    rng.set_state(tensors["rng"])
    if guide is not None:
        guide.ramp.restore(state["guide"])
    scores.returns, scores.lengths = list(state["returns"]), list(state["lengths"])
    return int(state["step"]), state["replay"]
