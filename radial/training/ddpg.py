"""DDPG and SA-DDPG (Lillicrap et al. 2016, Zhang et al. 2020): act, store, learn from the replay, read downwards.

The loss is an objective of `rr.ddpg`; docs/ddpg.md lists the differences from the papers.
"""

import copy
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from radial.agents.convert import check_init
from radial.agents.policies import DeterministicAgent
from radial.core import checks
from radial.core.agent import Agent, Attack
from radial.core.data import BadInput, Continuous, EnvSpec, VecEnv
from radial.core.schedules import Constant, Schedule, settle
from radial.envs.make import make_env
from radial.objectives.base import Coefficients, Objective
from radial.objectives.deterministic import OBJECTIVES, Nets, Plain
from radial.objectives.q_learning import Batch, QLoss
from radial.runs.config import recorded
from radial.runs.run import Run, Stopped, Tracking, derived_seed
from radial.training.adam import AdamState, adam, start
from radial.training.adversary import RolloutAttack, check_attack
from radial.training.dqn_config import ATTACKED
from radial.training.off_policy import look, passed, restore
from radial.training.ramp import Guide, guide_state, time_at
from radial.training.replay import Prioritised, Replay, Sample, check_memory, in_words
from radial.training.replay_disk import ReplayFolder
from radial.training.rollouts import Returns, shown
from radial.training.update import Update


@dataclass(frozen=True)
class DDPGConfig:
    """Everything that defines a training, except the seed. Noise and actions are in halves of the box: u in [−1, 1]."""

    env: EnvSpec
    objective: Objective = field(default_factory=Plain, metadata={"kinds": OBJECTIVES})
    total_steps: int = 1_000_000  # env steps
    num_envs: int = 1
    replay_capacity: int = 1_000_000
    prioritised: Prioritised | None = None  # None: uniform sampling
    learning_starts: int = 10_000  # env steps before the first update; actions are uniform there, unless `init` acts
    value_first: int = 0  # env steps in which only the critic learns; for an `init` whose critic is not its own
    update_every: int = 1  # env steps, summed over envs
    batch: int = 128
    exploration: Schedule = Constant(0.1)  # standard deviation of the Gaussian noise on u
    policy_rate: float = 1e-4
    value_rate: float = 1e-3
    anneal: bool = False  # both rates fall linearly to 0
    adam_eps: float = 1e-8
    max_grad_norm: float | None = None  # of both networks together; None: do not clip
    tau: float = 5e-3  # share of the online networks that enters the targets at each update
    discount: float = 0.99
    n_step: int = 1
    reward_scale: float = 1.0  # of the rewards that are learned from
    normalize_observations: bool = True  # by running statistics, which end with the training
    hidden: tuple[int, ...] = (64, 64)  # of both networks
    activation: str = "relu"
    compile: bool = True  # the update to native code; False: slower, starts at once
    log_every: int = 1_000  # env steps
    checkpoint_every: int = 50_000  # env steps; environments restart there, so that a resumed run is the same run
    attack: str | None = None  # adversarial training: the attack
    attack_radius: Schedule = Constant(0.0)
    attack_probability: float = 0.0  # of each state being attacked
    attack_on: str = "acting"  # one of ATTACKED

    def __post_init__(self) -> None:
        checks.whole(
            self, "total_steps", "num_envs", "replay_capacity", "update_every", "batch", "n_step", "log_every",
            "checkpoint_every",
        )  # fmt: skip
        checks.whole(self, "learning_starts", "value_first", least=0)
        checks.positive(self, "policy_rate", "value_rate", "adam_eps", "max_grad_norm", "reward_scale")
        checks.share(self, "discount", "tau", "attack_probability")
        settle(self, "exploration", "attack_radius")
        if self.attack_on not in ATTACKED:
            raise BadInput(f"attack_on must be one of {', '.join(ATTACKED)}, got {self.attack_on!r}")
        for step in (0, self.total_steps):
            if self.exploration(step) < 0:
                raise BadInput(f"exploration must be ≥ 0, got {self.exploration(step):g} at step {step:,}")
        checks.sizes(self, "hidden")
        checks.kind(self, "env", EnvSpec)
        checks.kind(self, "prioritised", Prioritised)


def train_ddpg(
    config: DDPGConfig, seed: int, *, out: Path | None = None, resume: bool = False,
    init: DeterministicAgent | None = None, attack: Attack | None = None, guide: Guide | None = None,
    device: str | torch.device = "cpu", threads: int | None = None, quiet: bool = False, track: Tracking | None = None,
) -> DeterministicAgent:  # fmt: skip
    """Train an agent. With `out`, everything is logged and saved there and a stopped run can be resumed.

    attack   the object behind config.attack
    init     an agent to start from: both networks and the normaliser
    guide    sets the clock of the objective's schedules; None: they follow the env steps
    threads  of the simulator; torch's own are left alone. No result depends on it
    """
    check_attack(attack, config.attack)
    folder = ReplayFolder(out)
    settings = recorded(config, seed, init, guide)
    with Run.open(
        out, settings, resume=resume, total_steps=config.total_steps, quiet=quiet, verify=folder.verify, track=track,
    ) as run:  # fmt: skip
        agent, learner, replay, rng = set_up(config, seed, torch.device(device), init, run.note)
        returns, step = Returns(config.num_envs), 0
        adversary = None if attack is None else RolloutAttack.of(attack, agent, config)
        on_replay = adversary if config.attack_on != "acting" else None
        if run.restored is not None:
            with run.restoring():
                step = restore(run, learner, replay, returns, {"rng": rng}, folder, guide, agent)
        env: VecEnv | None = None
        began, logged = time.perf_counter(), step
        while step < config.total_steps:
            if env is None:  # at the start and after each checkpoint, in interrupted and uninterrupted runs alike
                env = make_env(config.env, config.num_envs, derived_seed(seed, "envs", step), threads=threads)
                run.check_engine(env.engine)
                obs = env.reset()
                replay.begin(obs)
                returns.forget()

            # ------------------------------------------------------------------------------------------------- act
            between = adversary if config.attack_on != "replay" else None
            between = between if between is not None and between.begin(config.attack_radius(step)) else None
            agent.normalizer.update(obs.to(device))
            random = init is None and step < config.learning_starts
            u = explore_box(agent, obs.to(device), None if random else config.exploration(step), rng, between)
            with torch.no_grad():
                seen = env.step(agent.stretch(u).cpu())
            replay.add(u.cpu(), seen.reward, seen.terminated, seen.real, seen.obs)
            returns.add(seen.score[None], seen.ended[None], seen.real[None])
            obs, before = seen.obs, step
            step += int(seen.real.sum())

            # ----------------------------------------------------------------------------------------------- learn
            if step > config.learning_starts:
                for _ in range(passed(config.update_every, before, step)):
                    learn(config, learner, replay, step, rng, time_at(guide, step), on_replay)
                learner.write_back()

            # ------------------------------------------------------------------------------------------- log, save
            save = step >= config.total_steps or run.signal is not None
            save = save or passed(config.checkpoint_every, before, step) > 0
            if save or passed(config.log_every, before, step):
                speed = (step - logged) / (time.perf_counter() - began)
                began, logged = time.perf_counter(), step
                metrics = learner.report() | returns.metrics() | {"charts/SPS": speed}
                metrics |= {f"robust/{n}": v for n, v in config.objective.coefficients(time_at(guide, step)).items()}
                metrics |= {"charts/noise": config.exploration(step), "charts/replay": float(len(replay))}
                metrics |= look(guide, config.prioritised, agent, replay, returns, step, seed)
                learner.check_weights()
                run.log(step, metrics)
                run.progress(step, **shown(metrics, loss="losses/td_loss", shift="robust/shift"))
            if save:
                state = {"step": step, **returns.state()}
                state |= {"clip": agent.normalizer.clip, "clips_actions": agent.clips_actions}
                state |= {"replay": folder.save(replay), "engine": dict(env.engine)}
                averaged, paced = guide_state(guide)
                state |= paced
                tensors = learner.state() | {f"replay.{name}": tensor for name, tensor in replay.tensors().items()}
                run.save(step, tensors | averaged | {"rng": rng.get_state()}, state, score=returns.mean())
                folder.prune()
                env.close()
                env = None
            if run.signal is not None and step < config.total_steps:
                raise Stopped(run.signal)
    agent.normalizer.freeze()
    return agent


@torch.no_grad()
def explore_box(
    agent: DeterministicAgent, obs: Tensor, noise: float | None, rng: torch.Generator,
    adversary: RolloutAttack | None = None,
) -> Tensor:  # fmt: skip
    """The agent's u plus Gaussian noise, cut to [−1, 1], (N, D); uniform where noise is None.

    adversary  attacks what the agent sees when it acts
    """
    shape = (obs.shape[0], agent.actions.size)
    if noise is None:
        return torch.rand(shape, generator=rng, device=rng.device) * 2 - 1
    x = agent.prepare(obs)
    u: Tensor = agent.squashed(x if adversary is None else adversary(x, rng))
    if not bool(u.isfinite().all()):
        raise FloatingPointError("an action is not finite after an update: the training has diverged")
    return (u + noise * torch.randn(shape, generator=rng, device=rng.device)).clamp(-1.0, 1.0)


def learn(
    config: DDPGConfig, learner: "DDPGLearner", replay: Replay, step: int, rng: torch.Generator, clock: int,
    adversary: RolloutAttack | None = None,
) -> None:  # fmt: skip
    """Make one update from the replay, its states perturbed by the adversary. clock: of the objective."""
    beta = None if config.prioritised is None else config.prioritised.beta(step)
    sample = replay.sample(
        config.batch, rng, n_step=config.n_step, discount=config.discount, beta=beta, device=learner.parameters.device
    )
    x = learner.agent.prepare(sample.obs)  # the replay holds raw observations: their statistics still move
    if adversary is not None:
        learner.write_back()  # the attack is on the weights of now
        x = adversary(x, rng) if adversary.begin(config.attack_radius(step)) else x
    sample = sample._replace(
        obs=x, next_obs=learner.agent.prepare(sample.next_obs), reward=config.reward_scale * sample.reward
    )
    left = max(0.0, 1 - step / config.total_steps) if config.anneal else 1.0
    priority = learner.learn(sample, clock, rng, left, value_only=step <= config.value_first)
    if config.prioritised is not None:
        replay.update(sample.position, priority)


class _Losses(nn.Module):
    """Holds all networks of an update and computes the loss of a sample, whose observations come prepared."""

    def __init__(self, agent: DeterministicAgent, discount: float) -> None:
        super().__init__()
        self.actor, self.critic = agent.squashed, agent.critic
        self.target_actor, self.target_critic, self.judge = (
            copy.deepcopy(net).requires_grad_(False) for net in (agent.squashed, agent.critic, agent.critic)
        )
        self.valid_range, self.discount = agent.valid_range, discount

    def forward(self, objective: Objective, data: Sample, noise: Tensor, at: Coefficients) -> QLoss:
        # γᵏ for the k ≤ n rewards already summed; 0 where the episode terminated, so nothing is bootstrapped there.
        discount = self.discount**data.steps * (1 - data.terminated.float())
        batch = Batch(data.obs, data.action, data.reward, data.next_obs, discount, data.weight, noise)
        nets = Nets(self.actor, self.critic, self.judge, self.target_actor, self.target_critic, self.valid_range)
        return objective(nets, batch, at)  # type: ignore[return-value]


class DDPGLearner(Update):
    """The update of DDPG: actor and critic in one vector, Adam and the soft targets in the compiled step."""

    def __init__(self, agent: DeterministicAgent, config: DDPGConfig) -> None:
        self.agent, self.tau, self.adam_eps = agent, config.tau, config.adam_eps
        losses = _Losses(agent, config.discount)
        named = {f"actor.{name}": p for name, p in losses.actor.named_parameters()}
        named |= {f"critic.{name}": p for name, p in losses.critic.named_parameters()}
        super().__init__(losses, named, config.objective, compile=config.compile, max_grad_norm=config.max_grad_norm)
        self.adam, self.target = start(self.parameters), self.parameters.clone()
        ones = {name: torch.full_like(p, float(name.startswith("critic."))) for name, p in named.items()}
        self.of_critic = self.flat.join(ones)
        # One vector, two learning rates: Adam is elementwise, so this is two optimisers.
        self.rates = config.policy_rate * (1 - self.of_critic) + config.value_rate * self.of_critic

    def named(self, leaf: Tensor, own: Mapping[str, Any]) -> dict[str, Tensor]:
        """The trained parameters, the targets', and the critic's held still for the actor."""
        online, target = self.flat.split(leaf), self.flat.split(own["target"])
        judge = {f"judge.{name.removeprefix('critic.')}": p.detach() for name, p in online.items() if "critic." in name}
        return online | {f"target_{name}": p for name, p in target.items()} | judge

    def finish(self, parameters: Tensor, gradient: Tensor, own: Mapping[str, Any]) -> tuple[Tensor, ...]:
        """New parameters (P,), new targets (P,), and Adam's new state."""
        parameters, state = adam(parameters, gradient, own["adam"], own["rates"], self.adam_eps)
        return parameters, torch.lerp(own["target"], parameters, self.tau), *state

    @torch.no_grad()
    def learn(
        self, sample: Sample, clock: int, rng: torch.Generator, left: float = 1.0, value_only: bool = False
    ) -> Tensor:
        """Make one update; return the absolute TD errors of the sample (B,).

        clock       step of the objective's schedules        left  remaining share of the learning rates, 0 … 1
        value_only  leave the actor unchanged
        """
        self.move_to(clock)
        rates = self.rates * left * (self.of_critic if value_only else 1.0)
        noise = self.noise(sample.obs, rng)
        self.parameters, self.target, *moments, priority = self.step(
            sample, noise, target=self.target, adam=self.adam, rates=rates
        )
        self.adam = AdamState(*moments)
        return priority

    @torch.no_grad()
    def write_back(self) -> None:
        """Copy the parameters into the agent."""
        self.flat.write(self.parameters, self.losses)

    def state(self) -> dict[str, Tensor]:
        """Everything to resume from, the agent with its stretch and its statistics included."""
        moments = {f"adam.{name}": tensor for name, tensor in self.adam._asdict().items()}
        named = {f"agent.{name}": tensor for name, tensor in self.agent.state_dict().items()}
        return {"parameters": self.parameters, "target": self.target} | moments | named

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Resume from a saved state."""
        names = ("parameters", "target", *(f"adam.{name}" for name in AdamState._fields))
        self.parameters, self.target, *moments = (state[name].to(self.parameters, copy=True) for name in names)
        self.adam = AdamState(*moments)
        self.agent.load_state_dict(
            {name.removeprefix("agent."): tensor for name, tensor in state.items() if name.startswith("agent.")}
        )


def set_up(
    config: DDPGConfig, seed: int, device: torch.device, init: DeterministicAgent | None = None,
    note: Callable[[str], None] = lambda text: None,
) -> tuple[DeterministicAgent, DDPGLearner, Replay, torch.Generator]:  # fmt: skip
    """The agent, its learner, the replay and the generator of all randomness. note: logs the replay's memory."""
    probe = make_env(config.env, 1, seed)
    try:
        agent, dtype = check_env(config, probe, init)
    finally:
        probe.close()
    agent.initialize(torch.Generator().manual_seed(derived_seed(seed, "weights")))
    if init is not None:
        agent.load_state_dict(init.state_dict())
        agent.normalizer.clip, agent.clips_actions = init.normalizer.clip, init.clips_actions
    if not config.normalize_observations:
        agent.normalizer.freeze()  # the statistics of `init`; without one, the identity clipped to ±10
    agent.to(device)
    about = (config.replay_capacity, agent.observation_shape, dtype, config.num_envs)
    needed = Replay.bytes_needed(*about, config.prioritised, agent.actions.size)
    note(f"replay: {config.replay_capacity:,} transitions will take {in_words(needed)} of memory")
    replay = Replay(*about, prioritised=config.prioritised, action_size=agent.actions.size)
    rng = torch.Generator(device).manual_seed(derived_seed(seed, "actions"))
    return agent, DDPGLearner(agent, config), replay, rng


def check_env(
    config: DDPGConfig, env: VecEnv, init: Agent | None = None
) -> tuple[DeterministicAgent, torch.dtype]:  # fmt: skip
    """Refuse a fresh env that DDPG cannot learn, or not from `init`; return an untrained agent and the obs' dtype."""
    actions, dtype = env.actions, env.reset().dtype
    if not isinstance(actions, Continuous):
        raise BadInput(f"DDPG needs an env with continuous actions; those of {config.env.id} are discrete: use DQN")
    if len(env.observation_shape) != 1:
        raise BadInput(f"DDPG needs vectors as observations; those of {config.env.id} are {env.observation_shape}")
    if actions.low is None or actions.high is None:
        raise BadInput(f"DDPG needs actions with finite limits; those of {config.env.id} have none: use PPO")
    agent = DeterministicAgent(env.observation_shape, actions.size, config.hidden, config.activation)
    agent.stretch_to(actions.low, actions.high)
    if init is not None:
        check_init(init, agent)
    check_memory(
        config.replay_capacity, agent.observation_shape, dtype, config.num_envs, config.prioritised, actions.size
    )
    return agent, dtype
