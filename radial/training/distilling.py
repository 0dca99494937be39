"""Distillation on the student's own states: act, ask the teacher, learn; in one loop that reads downwards.

The loss is `objectives.distil.Distil`; which agents are distilled is for `workflows.robustify` to say.
"""

import copy
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from radial.agents.actor_critic import ActorCritic, ImpalaAgent, ShallowAgent
from radial.agents.policies import CategoricalAgent, GaussianAgent
from radial.agents.q_agent import QAgent
from radial.agents.starts import check_start, start_agent
from radial.bounds.ratio import width_ratio
from radial.core import checks
from radial.core.ball import Ball
from radial.core.data import BadInput, Discrete, EnvSpec, VecEnv
from radial.envs.make import make_env
from radial.envs.wrapper import as_trained
from radial.losses.distillation import mattering
from radial.objectives.distil import Distil, Lessons
from radial.runs.config import recorded
from radial.runs.run import Run, Stopped, derived_seed
from radial.runs.tracking import Tracking
from radial.training.ramp import Guide, guide_state, restore_guide, some
from radial.training.ratio_ramp import RatioRamp, share_kept
from radial.training.rollouts import Returns, shown
from radial.training.update import stop_if_not_finite

Teachable = GaussianAgent | CategoricalAgent | QAgent | ActorCritic | ImpalaAgent
EXPLORING = 4  # every fourth environment explores: elsewhere the states are those of greedy play
RANDOM_SHARE = 0.1  # share of random actions there
TAUGHT_AT_ONCE = 512  # rows of a pass of the teacher


@dataclass(frozen=True)
class DistilConfig:
    """Everything that defines a distillation, except the seed and the teacher."""

    env: EnvSpec
    objective: Distil
    total_steps: int = 100_000  # env steps
    num_envs: int = 16
    rollout: int = 1_024  # env steps between two rounds of updates, summed over envs
    updates: int = 32  # of each round
    minibatch: int = 256
    memory: int = 16_384  # states kept, the latest
    rate: float = 1e-3  # falls linearly to 0 from `anneal_from` on
    anneal_from: float = 0.7  # share of the steps
    first: float = 0.15  # share of the steps before ε grows; in the first third of these the teacher acts
    last: float = 0.6  # share of the steps after which ε is whole, if it is never held
    max_grad_norm: float = 10.0
    hidden: tuple[int, ...] = (32, 32)
    start: str = "zero-branches"  # a key of STARTS
    checkpoint_every: int = 25  # rounds; environments and the memory of states restart there

    def __post_init__(self) -> None:
        checks.whole(self, "total_steps", "num_envs", "rollout", "updates", "minibatch", "memory", "checkpoint_every")
        checks.kind(self, "env", EnvSpec)
        checks.kind(self, "objective", Distil)
        checks.positive(self, "rate", "max_grad_norm")
        checks.share(self, "first", "last", "anneal_from")
        checks.sizes(self, "hidden")
        check_start(self.start)
        if self.rollout % self.num_envs:
            raise BadInput(f"rollout must be a multiple of num_envs, got {self.rollout} and {self.num_envs}")
        if not self.first < self.last:
            raise BadInput(f"first must be < last, got {self.first} and {self.last}")
        if self.memory < self.rollout:
            raise BadInput(f"memory must be ≥ rollout, got {self.memory} and {self.rollout}")


def make_student(teacher: Teachable, config: DistilConfig, seed: int) -> Teachable:
    """An untrained student of the teacher's kind, in its units, with ReLUs and a start of narrow bounds."""
    made: Teachable
    shape, hidden = teacher.observation_shape, config.hidden
    if isinstance(teacher, GaussianAgent):
        made = GaussianAgent(shape, teacher.actions.size, hidden, "relu")
    elif isinstance(teacher, CategoricalAgent):
        made = CategoricalAgent(shape, teacher.actions.n, hidden, "relu")
    else:
        kind = ShallowAgent if isinstance(teacher, ImpalaAgent) else type(teacher)
        made = kind(shape, teacher.actions.n, hidden)
    start_agent(made, config.start, torch.Generator().manual_seed(derived_seed(seed, "weights")))
    if isinstance(made, GaussianAgent | CategoricalAgent):
        assert isinstance(teacher, GaussianAgent | CategoricalAgent)
        made.normalizer.load_state_dict(teacher.normalizer.state_dict())  # ε is in its units
        made.normalizer.clip, made.clips_actions = teacher.normalizer.clip, teacher.clips_actions
        made.normalizer.freeze()
    if isinstance(made, GaussianAgent) and isinstance(teacher, GaussianAgent):
        made.log_std.data.copy_(teacher.log_std)
    return made


class Taught:
    """The latest states (R, *obs) as they were observed, and the teacher's scores (R, A) and values (R,) there."""

    def __init__(self, teacher: Teachable, most: int) -> None:
        self.teacher, self.most = teacher, most
        self.forget()

    def forget(self) -> None:
        """Begin anew."""
        self.obs = self.scores = self.value = torch.empty(0)

    @torch.no_grad()
    def add(self, obs: Tensor) -> None:
        """Ask the teacher about observations (R, *obs), and keep the latest."""
        prepared = [self.teacher.prepare(part) for part in obs.split(TAUGHT_AT_ONCE)]
        scores = torch.cat([self.teacher.choice(x) for x in prepared])
        value = torch.cat([_mean_value(self.teacher, x) for x in prepared])
        for name, new in (("obs", obs), ("scores", scores), ("value", value)):
            old = getattr(self, name)
            setattr(self, name, (torch.cat([old, new]) if len(old) else new)[-self.most :])

    def lessons(self, rows: Tensor, student: Teachable) -> tuple[Lessons, Tensor]:
        """Some rows of it, and the teacher's values there."""
        spread = self.scores.std(0).clamp(min=1e-6)
        matters = mattering(self.scores)
        x = student.prepare(self.obs[rows])
        return Lessons(x, self.scores[rows], matters, spread), self.value[rows]


def _mean_value(agent: Teachable, x: Tensor) -> Tensor:
    """The value that a critic of the same kind learns, (B,): of Q-values their mean, the V of a dueling network."""
    return agent.scores(x).mean(1) if isinstance(agent, QAgent) else agent.value(x)


def _own_value(student: Teachable, x: Tensor) -> Tensor:
    """The student's value, (B,), from which no gradient reaches the layers that decide."""
    if isinstance(student, GaussianAgent | CategoricalAgent):
        return student.value(x)
    network = student.network
    if isinstance(student, QAgent):
        return student.network.value(student.network.features(x).detach()).squeeze(1)
    if isinstance(student, ActorCritic):
        *trunk, head = student.network.model
        return head(nn.Sequential(*trunk)(x).detach())[:, 0]
    return network.head(network.trunk(x).detach())[:, -1]  # type: ignore[operator]


class Student:
    """A student and its optimiser: one gradient step of the loss of `Distil`, and of its critic."""

    def __init__(self, agent: Teachable, config: DistilConfig) -> None:
        self.agent, self.config = agent, config
        self.parameters = [p for name, p in agent.named_parameters() if name != "log_std"]
        self.adam = torch.optim.Adam(self.parameters, config.rate)

    def learn(self, data: Lessons, value: Tensor, radius: float, rate: float) -> dict[str, Tensor]:
        """One step at ε."""
        discrete = isinstance(self.agent.actions, Discrete)
        low, high = self.agent.valid_range or (None, None)
        ball = Ball.unchecked(data.x, radius, low=low, high=high) if radius > 0 else None
        loss = self.config.objective(self.agent.choice, data, ball, discrete)
        # In units of its spread, so that one weight fits every critic; it moves no layer that decides.
        unit = value.std().clamp(min=1e-6)
        error = F.smooth_l1_loss(_own_value(self.agent, data.x) / unit, value / unit)
        self.adam.zero_grad(set_to_none=True)
        loss.total.backward()
        nn.utils.clip_grad_norm_(self.agent.choice.parameters(), self.config.max_grad_norm)
        error.backward()  # behind the clip, which a poor critic would tighten
        self.adam.param_groups[0]["lr"] = rate
        self.adam.step()
        return {**loss.parts, "losses/value_loss": error.detach()}

    def state(self) -> dict[str, Tensor]:
        """The agent and the optimiser."""
        tensors = {f"agent.{name}": tensor for name, tensor in self.agent.state_dict().items()}
        for at, parameter in enumerate(self.parameters):
            tensors |= {f"adam.{at}.{name}": tensor for name, tensor in self.adam.state[parameter].items()}
        return tensors

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Resume from a saved state."""
        agent = {name.removeprefix("agent."): t for name, t in tensors.items() if name.startswith("agent.")}
        self.agent.load_state_dict(agent)
        for at, parameter in enumerate(self.parameters):
            prefix = f"adam.{at}."
            self.adam.state[parameter] = {
                name.removeprefix(prefix): tensor.clone() for name, tensor in tensors.items() if name.startswith(prefix)
            }


def train_distil(
    config: DistilConfig, seed: int, *, teacher: Teachable, guide: Guide, ramp: RatioRamp, out: Path | None = None,
    resume: bool = False, threads: int | None = None, quiet: bool = False, track: Tracking | None = None,
) -> Teachable:  # fmt: skip
    """Distil a teacher into a fresh student. With `out` everything is logged and saved, and can be resumed.

    guide  watches the student; its judge evaluates it now and then        ramp  of ε
    """
    settings = recorded(config, seed, teacher, guide)
    with Run.open(out, settings, resume=resume, total_steps=config.total_steps, quiet=quiet, track=track) as run:
        teacher = copy.deepcopy(teacher).requires_grad_(False)
        student = Student(make_student(teacher, config, seed), config)
        agent, memory, returns = student.agent, Taught(teacher, config.memory), Returns(config.num_envs)
        rng = torch.Generator().manual_seed(derived_seed(seed, "actions"))
        step, rounds = 0, 0
        if run.restored is not None:
            with run.restoring():
                tensors, state = run.restored
                student.restore(tensors)
                rng.set_state(tensors["rng"])
                ramp.restore(state["ramp"])
                restore_guide(guide, agent, tensors, state)
                returns.restore(state)
                step, rounds = int(state["step"]), int(state["rounds"])
        env: VecEnv | None = None
        while step < config.total_steps:
            if env is None:  # at the start and after each checkpoint, in interrupted and uninterrupted runs alike
                made = make_env(config.env, config.num_envs, derived_seed(seed, "envs", step), threads=threads)
                env = as_trained(agent, made)
                run.check_engine(env.engine)
                obs = env.reset()
                returns.forget()
                memory.forget()

            # ------------------------------------------------------------------------------------------------- act
            began, before = time.perf_counter(), step
            acting = teacher if step < config.first * config.total_steps / 3 else agent
            seen: list[Tensor] = []
            for _ in range(config.rollout // config.num_envs):
                action = _explored(acting, agent, obs, rng)
                taken = env.step(action)
                seen.append(obs)
                returns.add(taken.score[None], taken.ended[None], taken.real[None])
                obs, step = taken.obs, step + int(taken.real.sum())
            memory.add(torch.cat(seen))
            rounds += 1

            # ----------------------------------------------------------------------------------------------- learn
            share = step / config.total_steps
            rate = config.rate * min(1.0, max(0.0, (1 - share) / (1 - config.anneal_from + 1e-9)))
            metrics = _learn(student, memory, ramp.epsilon, rate, rng)
            look = torch.linspace(0, len(memory.obs) - 1, min(256, len(memory.obs))).long()
            x, theirs = agent.prepare(memory.obs[look]), memory.scores[look]
            if share >= config.first:
                metrics |= _grow(ramp, agent, x, theirs)

            # ------------------------------------------------------------------------------------------ log, save
            judged = guide.ask(step, agent)
            ramp.hear(judged, step)
            metrics |= {"robust/radius": ramp.epsilon, "robust/pace": ramp.returns.pace, **guide.watch(agent, some(x))}
            metrics |= returns.metrics() | {"charts/SPS": (step - before) / (time.perf_counter() - began)}
            run.log(step, metrics)
            run.progress(step, **shown(metrics, apart="losses/divergence", ratio="robust/ratio"))
            if rounds % config.checkpoint_every == 0 or step >= config.total_steps or run.signal is not None:
                state = {"step": step, "rounds": rounds, "ramp": ramp.state(), "engine": dict(env.engine)}
                averaged, paced = guide_state(guide)
                tensors = student.state() | averaged | {"rng": rng.get_state()}
                run.save(step, tensors, state | returns.state() | paced, returns.mean())
                env.close()
                env = None
            if run.signal is not None and step < config.total_steps:
                raise Stopped(run.signal)
    return agent


def _learn(student: Student, memory: Taught, radius: float, rate: float, rng: torch.Generator) -> dict[str, float]:
    """One round of updates; the means of the terms of the loss."""
    config, found = student.config, list[dict[str, Tensor]]()
    for _ in range(config.updates):
        rows = torch.randint(len(memory.obs), (min(config.minibatch, len(memory.obs)),), generator=rng)
        found.append(student.learn(*memory.lessons(rows, student.agent), radius, rate))
    metrics = {name: float(torch.stack([each[name] for each in found]).mean()) for name in found[0]}
    stop_if_not_finite(metrics)
    return metrics


@torch.no_grad()
def _grow(ramp: RatioRamp, agent: Teachable, x: Tensor, theirs: Tensor) -> dict[str, float]:
    """Move the ramp by what the student's bounds and actions are now."""
    discrete = isinstance(agent.actions, Discrete)
    if not ramp.first:
        ramp.begin(width_ratio(agent.choice, agent.ball(x, ramp.radius), discrete))
    ratio = width_ratio(agent.choice, agent.ball(x, ramp.epsilon), discrete)
    keeps = share_kept(agent.choice(x), theirs, discrete)
    ramp.advance(ratio, keeps)
    return {"robust/ratio": ratio, "robust/kept_actions": keeps, "robust/held": float(ramp.held)}


@torch.no_grad()
def _explored(acting: Teachable, agent: Teachable, obs: Tensor, rng: torch.Generator) -> Tensor:
    """Greedy actions, in every fourth environment with noise: random ones, or σ of the policy."""
    x = agent.prepare(obs)
    action, explores = acting.act(x), torch.arange(len(x)) % EXPLORING == 0
    if isinstance(agent, GaussianAgent):
        noise = agent.log_std.exp() * torch.randn(action.shape, generator=rng)
        return action + noise * explores.unsqueeze(1)
    other = torch.randint(agent.actions.n, action.shape, generator=rng)
    return torch.where(explores & (torch.rand(len(x), generator=rng) < RANDOM_SHARE), other, action)
