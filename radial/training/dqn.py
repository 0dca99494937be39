"""Deep Q-learning, plain and robust: act, store, learn from the replay, in one loop that reads downwards.

The loss is an objective of `rr.dqn`; docs/dqn.md lists the differences from the authors' code.
"""

import copy
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from radial.agents.actor_critic import ActorCritic
from radial.agents.convert import check_init, check_teacher
from radial.agents.q_agent import QAgent
from radial.agents.starts import start_agent
from radial.core.agent import Agent, Attack
from radial.core.data import BadInput, Discrete, VecEnv
from radial.envs.make import make_env
from radial.objectives.base import Coefficients, Objective
from radial.objectives.q_dagger import taught
from radial.objectives.q_objectives import TD, Batch, Nets, QDagger, QLoss
from radial.runs.config import recorded
from radial.runs.run import Run, Stopped, Tracking, derived_seed
from radial.training.adam import AdamState, adam_, start
from radial.training.adversary import RolloutAttack, check_attack
from radial.training.alongside import Rounds
from radial.training.dqn_config import DQNConfig
from radial.training.exploration import Detour, explore
from radial.training.off_policy import look, passed, restore
from radial.training.precision import bfloat16_is_fast, products_in
from radial.training.ramp import Guide, guide_state, time_at
from radial.training.ranks import Together, only_follows
from radial.training.replay import Replay, Sample, check_memory, in_words
from radial.training.replay_disk import ReplayFolder
from radial.training.rollouts import Returns, shown
from radial.training.update import Flat, Update

__all__ = ["DQNConfig", "QLearner", "check_env", "learn", "set_up", "train_dqn"]


def train_dqn(
    config: DQNConfig, seed: int, *, out: Path | None = None, resume: bool = False,
    init: QAgent | ActorCritic | None = None, attack: Attack | None = None, guide: Guide | None = None,
    device: str | torch.device = "cpu", threads: int | None = None, quiet: bool = False, track: Tracking | None = None,
) -> QAgent:  # fmt: skip
    """Train an agent. With `out`, everything is logged and saved there and a stopped run can be resumed.

    attack   the object behind config.attack
    init     an agent to start from; the paper trains a standard agent first, then a robust one from it. With the
             objective QDagger it is the teacher, an actor-critic on the same observations
    guide    sets the clock of the objective's schedules; None: they follow the env steps
    threads  of the simulator; torch's own are left alone. No result depends on it
    """
    check_attack(attack, config.attack)
    folder = ReplayFolder(out)
    settings = recorded(config, seed, init, guide)
    with ExitStack() as stack, Run.open(
        out, settings, resume=resume, total_steps=config.total_steps, quiet=quiet, verify=folder.verify, track=track,
    ) as run:  # fmt: skip
        actor, learner, replay, rng = set_up(config, seed, torch.device(device), init, run.note)
        follows = only_follows(run, partial(Together, learner, Sample, config.batch, shared=("target",)))
        returns, step = Returns(config.num_envs), config.total_steps if follows else 0
        if config.precision != "float32" and not bfloat16_is_fast():
            run.note(f"precision: this processor has no {config.precision} products; float32 is faster here")
        adversary = None if attack is None else RolloutAttack.of(attack, actor, config)
        on_replay = adversary if config.attack_on != "acting" else None
        # An update borrows the modules of its agent, so an actor beside it needs its own, and its own randomness.
        drawn = rng if not config.concurrent else rng.clone_state().manual_seed(derived_seed(seed, "updates"))
        acting = copy.deepcopy(actor) if config.concurrent else actor
        generators = {"rng": rng, "updates": drawn} if config.concurrent else {"rng": rng}
        if run.restored is not None:
            with run.restoring():
                step = restore(run, learner, replay, returns, generators, folder, guide, actor)
        rounds = stack.enter_context(Rounds(partial(_hand_over, learner, actor, acting), config.concurrent))
        rounds.hand_over()
        env: VecEnv | None = None
        began, logged = time.perf_counter(), step
        while step < config.total_steps:
            if env is None:  # at the start and after each checkpoint, in interrupted and uninterrupted runs alike
                env = make_env(config.env, config.num_envs, derived_seed(seed, "envs", step), threads=threads)
                run.check_engine(env.engine)
                obs = env.reset()
                replay.begin(obs)
                returns.forget()
                detour = Detour.none(config.num_envs, config.exploration_length, rng.device)

            # ------------------------------------------------------------------------------------------------- act
            between = _between(config, adversary, step)
            player = learner.teacher if learner.teacher is not None and taught(config.objective, step) else acting
            action = explore(player, obs.to(device), config.exploration(step), rng, detour, between).cpu()
            seen = env.step(action)
            rounds.wait()
            replay.add(action, seen.reward, seen.terminated, seen.real, seen.obs)
            returns.add(seen.score[None], seen.ended[None], seen.real[None])
            obs, before = seen.obs, step
            step += int(seen.real.sum())

            # ----------------------------------------------------------------------------------------------- learn
            due = passed(config.update_every, before, step) if step > config.learning_starts else 0
            if due:
                rounds.start(partial(_learn_often, due, config, learner, replay, step, drawn, guide, on_replay))
            if passed(config.target_every, before, step):
                rounds.wait()
                learner.sync_target()

            # ------------------------------------------------------------------------------------------- log, save
            save = step >= config.total_steps or run.signal is not None
            save = save or passed(config.checkpoint_every, before, step) > 0
            if save or passed(config.log_every, before, step):
                rounds.wait()
                speed = (step - logged) / (time.perf_counter() - began)
                began, logged = time.perf_counter(), step
                metrics = learner.report() | returns.metrics() | {"charts/SPS": speed}
                metrics |= {f"robust/{n}": v for n, v in config.objective.coefficients(time_at(guide, step)).items()}
                metrics |= {"charts/epsilon": config.exploration(step), "charts/replay": float(len(replay))}
                metrics |= look(guide, config.prioritised, actor, replay, returns, step, seed)
                learner.check_weights()
                run.log(step, metrics)
                run.progress(step, **shown(metrics, explore="charts/epsilon", loss="losses/td_loss"))
            if save:
                state = {"step": step, **returns.state()}
                state |= {"replay": folder.save(replay), "engine": dict(env.engine)}
                averaged, paced = guide_state(guide)
                state |= paced
                tensors = learner.state() | {f"replay.{name}": tensor for name, tensor in replay.tensors().items()}
                tensors |= {name: generator.get_state() for name, generator in generators.items()}
                run.save(step, tensors | averaged, state, score=returns.mean())
                folder.prune()
                env.close()
                env = None
            if run.signal is not None and step < config.total_steps:
                raise Stopped(run.signal)
    return actor


def learn(
    config: DQNConfig, learner: "QLearner", replay: Replay, step: int, rng: torch.Generator, clock: int | None = None,
    adversary: RolloutAttack | None = None,
) -> None:  # fmt: skip
    """Make one update from the replay, its states perturbed by the adversary. clock: of the objective; None: `step`."""
    beta = None if config.prioritised is None else config.prioritised.beta(step)
    sample = replay.sample(
        config.batch, rng, n_step=config.n_step, discount=config.discount, beta=beta, device=learner.parameters.device
    )
    if adversary is not None:
        learner.write_back()  # the attack is on the weights of now
        x = learner.agent.prepare(sample.obs)
        sample = sample._replace(obs=adversary(x, rng) if adversary.begin(config.attack_radius(step)) else x)
    left = max(0.0, 1 - step / config.total_steps) if config.anneal else 1.0
    priority = learner.learn(sample, step if clock is None else clock, rng, left)
    if config.prioritised is not None:
        replay.update(sample.position, priority)


def _learn_often(
    times: int, config: DQNConfig, learner: "QLearner", replay: Replay, step: int, rng: torch.Generator,
    guide: Guide | None, adversary: RolloutAttack | None,
) -> None:  # fmt: skip
    """One round: several updates at one env step."""
    for _ in range(times):
        learn(config, learner, replay, step, rng, time_at(guide, step), adversary)


def _hand_over(learner: "QLearner", actor: QAgent, acting: QAgent) -> None:
    """Give the learner's weights to its agents, and to the copy that acts beside it."""
    learner.write_back()
    if acting is not actor:
        acting.load_state_dict(actor.state_dict())


def _between(config: DQNConfig, adversary: RolloutAttack | None, step: int) -> RolloutAttack | None:
    """The attack on what the agent acts on, if there is one at this step."""
    acts = adversary is not None and config.attack_on != "replay" and adversary.begin(config.attack_radius(step))
    return adversary if acts else None


class _Losses(nn.Module):
    """Holds all networks of an update and computes the loss of a sample, whose states may come prepared."""

    def __init__(
        self, agent: QAgent, student: QAgent | None, td: TD, discount: float, prepared: bool, precision: str,
        joint: str, teacher: ActorCritic | None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.online = agent.network
        self.target = copy.deepcopy(agent.network).requires_grad_(False)
        self.student = None if student is None else student.network
        self.teacher = None if teacher is None else teacher.choice
        self.prepare, self.valid_range, self.td, self.discount = agent.prepare, agent.valid_range, td, discount
        self.prepared, self.precision, self.joint = prepared, precision, joint

    def forward(self, objective: Objective, data: Sample, noise: Tensor, at: Coefficients) -> QLoss:
        # γᵏ for the k ≤ n rewards already summed; 0 where the episode terminated, so nothing is bootstrapped there.
        discount = self.discount**data.steps * (1 - data.terminated.float())
        x, next_x = data.obs if self.prepared else self.prepare(data.obs), self.prepare(data.next_obs)
        batch = Batch(x, data.action, data.reward, next_x, discount, data.weight, noise)
        nets = Nets(self.online, self.target, self.student, self.valid_range, self.joint, self.teacher)
        with products_in(self.precision):
            return objective(nets, batch, at, self.td)  # type: ignore[return-value]


class QLearner(Update):
    """The update of deep Q-learning; also holds the target network's parameters and Adam's state."""

    def __init__(
        self, agent: QAgent, student: QAgent | None, objective: Objective, td: TD, discount: float, *, rate: float,
        adam_eps: float, max_grad_norm: float | None, compile: bool, prepared: bool = False,
        precision: str = "float32", joint: str = "none", teacher: ActorCritic | None = None,
    ) -> None:  # fmt: skip
        self._networks = {"online": agent.network} | ({} if student is None else {"student": student.network})
        losses = _Losses(agent, student, td, discount, prepared, precision, joint, teacher)
        super().__init__(losses, dict(self._named()), objective, compile=compile, max_grad_norm=max_grad_norm)
        self.agent, self.rate, self.adam_eps, self.adam = agent, rate, adam_eps, start(self.parameters)
        self.of_target = Flat(agent.network.named_parameters())
        self.target = self.of_target.join(dict(agent.network.named_parameters()))
        self.teacher, kept = teacher, {} if teacher is None else dict(teacher.choice.named_parameters())
        self.of_teacher = Flat(kept.items())
        self._fixed = {"teacher": self.of_teacher.join(kept)} if kept else {}

    def _named(self) -> list[tuple[str, Tensor]]:
        return [(f"{at}.{name}", p) for at, net in self._networks.items() for name, p in net.named_parameters()]

    def named(self, leaf: Tensor, own: Mapping[str, Any]) -> dict[str, Tensor]:
        """The trained parameters, the target network's and the teacher's."""
        flats = {"target": self.of_target} | ({"teacher": self.of_teacher} if "teacher" in own else {})
        fixed = {f"{at}.{name}": p for at, flat in flats.items() for name, p in flat.split(own[at]).items()}
        return super().named(leaf, own) | fixed

    @torch.no_grad()
    def learn(self, sample: Sample, clock: int, rng: torch.Generator, left: float = 1.0) -> Tensor:
        """Make one update; return the absolute TD errors of the sample (B,).

        clock  step of the objective's schedules        left  remaining share of the learning rate, 0 … 1
        """
        self.move_to(clock)
        gradient, priority = self.step(sample, self.noise(sample.obs, rng), target=self.target, **self._fixed)
        adam_(self.parameters, gradient, self.adam, self.rate * left, self.adam_eps)
        return priority

    def sync_target(self) -> None:
        """Copy the online network into the target network."""
        self.target = self.parameters[: self.target.shape[0]].clone()  # the online network comes first

    @torch.no_grad()
    def write_back(self) -> None:
        """Copy the parameters into the networks."""
        pieces = self.flat.split(self.parameters)
        for name, parameter in self._named():
            parameter.copy_(pieces[name])

    def state(self) -> dict[str, Tensor]:
        """Everything to resume from."""
        moments = {f"adam.{name}": tensor for name, tensor in self.adam._asdict().items()}
        return {"parameters": self.parameters, "target": self.target} | moments

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Resume from a saved state."""
        names = ("parameters", "target", *(f"adam.{name}" for name in AdamState._fields))
        self.parameters, self.target, *moments = (state[name].to(self.parameters, copy=True) for name in names)
        self.adam = AdamState(*moments)
        self.write_back()


def set_up(
    config: DQNConfig, seed: int, device: torch.device, init: QAgent | ActorCritic | None = None,
    note: Callable[[str], None] = lambda text: None,
) -> tuple[QAgent, QLearner, Replay, torch.Generator]:  # fmt: skip
    """The agent that acts (with RS-DQN the student), learner, replay and generator. note: logs the replay's memory."""
    probe = make_env(config.env, 1, seed)
    try:
        shape, actions, dtype = check_env(config, probe, init)
    finally:
        probe.close()
    two: bool = config.objective.student  # type: ignore[attr-defined]
    agents = []
    for name in ("weights", "student")[: 2 if two else 1]:
        agent = QAgent(shape, actions.n, config.hidden)
        start_agent(agent, config.start, torch.Generator().manual_seed(derived_seed(seed, name)))
        if isinstance(init, QAgent):
            agent.load_state_dict(init.state_dict())
        agents.append(agent.to(device))
    learner = QLearner(
        agents[0], agents[1] if two else None, config.objective, config.td, config.discount, rate=config.rate,
        adam_eps=config.adam_eps, max_grad_norm=config.max_grad_norm, compile=config.compile,
        prepared=config.attack is not None and config.attack_on != "acting", precision=config.precision,
        joint=config.joint, teacher=init.to(device) if isinstance(init, ActorCritic) else None,
    )  # fmt: skip
    needed = Replay.bytes_needed(config.replay_capacity, shape, dtype, config.num_envs, config.prioritised)
    note(f"replay: {config.replay_capacity:,} transitions will take {in_words(needed)} of memory")
    replay = Replay(config.replay_capacity, shape, dtype, config.num_envs, prioritised=config.prioritised)
    return agents[-1], learner, replay, torch.Generator(device).manual_seed(derived_seed(seed, "actions"))


def check_env(
    config: DQNConfig, env: VecEnv, init: Agent | None = None
) -> tuple[tuple[int, ...], Discrete, torch.dtype]:
    """Refuse a fresh env that DQN cannot learn, store, or start from `init`; return its shape, actions and dtype."""
    shape, actions, dtype = env.observation_shape, env.actions, env.reset().dtype
    if not isinstance(actions, Discrete):
        raise BadInput(f"DQN needs an env with discrete actions; those of {config.env.id} are continuous: use PPO")
    with torch.device("meta"):
        agent = QAgent(shape, actions.n, config.hidden)
    if isinstance(config.objective, QDagger):
        check_teacher(init, shape, actions)
    elif init is not None:
        check_init(init, agent)
    check_memory(config.replay_capacity, shape, dtype, config.num_envs, config.prioritised)
    return shape, actions, dtype
