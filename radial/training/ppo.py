"""PPO, plain and robust: act, estimate advantages, and optimise the objective, in one loop that reads downwards.

The loss is an `Objective` (objectives/surrogate.py); docs/ppo.md lists the differences from the SA-PPO code.
"""

import copy
import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from radial.agents.actor_critic import FRAME_AGENTS
from radial.agents.convert import check_init
from radial.agents.networks import ACTIVATIONS
from radial.agents.normalizer import RewardScale
from radial.agents.policies import GaussianAgent
from radial.agents.starts import DEFAULT, check_start, start_agent
from radial.core import checks
from radial.core.agent import Agent, Attack
from radial.core.data import LATER, BadInput, Continuous, EnvSpec, VecEnv
from radial.core.schedules import Constant, Schedule, settle
from radial.envs.make import make_env
from radial.losses.policy import gae
from radial.objectives.base import Objective
from radial.objectives.surrogate import OBJECTIVES, SA, Plain, RadialOverlap, RadialReleased, WocaR
from radial.runs.config import recorded
from radial.runs.run import Run, Stopped, derived_seed
from radial.runs.tracking import Tracking
from radial.training.adversary import Joining, Opponent, RolloutAttack, check_attack
from radial.training.partners import Partners
from radial.training.ppo_update import STANDARDIZE, Learner, Limits, Minibatch
from radial.training.ramp import Guide, guide_state, restore_guide, some, time_at
from radial.training.ranks import only_follows
from radial.training.rollouts import Acting, Returns, Rollout, check_rollout, shown
from radial.training.runners import InLoop, Runners, Stage
from radial.training.sight import FrameAgent, PPOAgent, Sight, agent_to_train, sight_of
from radial.training.worst_critic import WorstCritic


@dataclass(frozen=True)
class Turns:
    """How an adversary that learns takes turns with the agent (ATLA): updates of each, or generations of directors.

    Rates and entropy bonus are of adversaries that PPO trains.
    """

    agent: int = 1
    adversary: int = 1
    rate: float = 1e-3
    value_rate: float = 1e-3
    entropy: float = 0.0

    def __post_init__(self) -> None:
        checks.whole(self, "agent", "adversary")
        checks.positive(self, "rate", "value_rate")
        checks.not_negative(self, "entropy")


@dataclass(frozen=True)
class PPOConfig:
    """Everything that defines a training, except the seed. Defaults are those of the papers' MuJoCo runs."""

    env: EnvSpec
    objective: Objective = field(default_factory=Plain, metadata={"kinds": OBJECTIVES})
    total_steps: int = 4_096_000  # env steps
    num_envs: int = 16
    rollout: int = 2_048  # env steps per update, summed over envs
    epochs: int = 10
    minibatch: int = 64
    policy_rate: float = 3e-4  # of all parameters, where policy and value share one network
    value_rate: float = 2.5e-4
    anneal: bool = True  # both rates fall linearly to 0
    discount: float = 0.99
    lam: float = 0.95
    clip: float = 0.2
    value_clip: float | None = None  # None: plain squared error
    entropy: float = 0.0  # weight of the entropy bonus
    max_grad_norm: float | None = None  # None: do not clip
    initial_std: float = 1.0
    min_std: float | None = None  # None: the standard deviation may shrink without limit
    max_std: float | Schedule | None = None  # None: it may grow without limit
    hidden: tuple[int, ...] = (64, 64)  # of networks for vectors, or for Atari's frames; ProcGen's is fixed
    normalize_observations: bool = True  # vectors; frames are shares of 255
    scale_rewards: bool = True
    attack: str | None = None  # adversarial training: the attack under which rollouts are collected
    attack_radius: Schedule = Constant(0.0)
    attack_probability: float = 0.0  # of each step being attacked
    compile: bool = True  # the training step to native code; False: slower, starts at once
    checkpoint_every: int = 50  # updates; environments restart there, so that a resumed run is the same run
    standardize: str = field(
        default="minibatch", metadata=LATER
    )  # advantages over each minibatch, or the whole "batch"
    value_weight: float = field(default=1.0, metadata=LATER)  # matters where policy and value share one network
    reward_discount: float | None = field(default=None, metadata=LATER)  # of the return that scales rewards; None: γ
    chunk: int | None = field(default=None, metadata=LATER)  # rows whose gradient is taken at a time; None: all
    value_first: int = field(default=0, metadata=LATER)  # env steps at the start that train the value alone
    activation: str = field(default="tanh", metadata=LATER)  # of networks for vectors, a key of ACTIVATIONS
    anchor: float = field(default=0.0, metadata=LATER)  # weight of KL(π_init ‖ π), which keeps π near `init`
    turns: Turns | None = field(default=None, metadata=LATER)  # the attack is an adversary that learns in turns
    network: str = field(default="impala", metadata=LATER)  # for frames, a key of FRAME_AGENTS
    start: str = field(default=DEFAULT, metadata=LATER)  # of the network that decides, a key of STARTS
    num_runners: int = field(default=0, metadata=LATER)  # Ray actors that share the environments; 0: act in the loop

    def __post_init__(self) -> None:
        checks.whole(self, "total_steps", "num_envs", "rollout", "epochs", "minibatch", "checkpoint_every", "chunk")
        checks.whole(self, "value_first", "num_runners", least=0)
        checks.kind(self, "env", EnvSpec)
        checks.kind(self, "turns", Turns)
        if self.turns is not None and self.attack is None:
            raise BadInput("attack must name an adversary that learns where turns are set, got none")
        checks.positive(
            self, "policy_rate", "value_rate", "initial_std", "clip", "value_clip", "max_grad_norm", "min_std",
            "value_weight",
        )  # fmt: skip
        checks.share(self, "discount", "lam", "attack_probability", "reward_discount")
        checks.not_negative(self, "entropy", "anchor")
        settle(self, "attack_radius")
        if callable(self.max_std):
            least = min(self.max_std(0), self.max_std(self.total_steps))  # schedules are monotone
        else:
            checks.positive(self, "max_std")
            least = self.max_std or math.inf
        if not least > 0:
            raise BadInput(f"max_std must stay > 0, got {self.max_std!r}")
        if self.min_std is not None and self.min_std > least:
            raise BadInput(f"min_std must be ≤ max_std, got {self.min_std} and {least}")
        if self.rollout % self.num_envs:
            raise BadInput(f"rollout must be a multiple of num_envs, got {self.rollout} and {self.num_envs}")
        self._check_runners()
        if not 2 <= self.minibatch <= self.rollout // 2:
            raise BadInput(f"minibatch must lie in 2 … rollout/2 = {self.rollout // 2}, got {self.minibatch}")
        checks.sizes(self, "hidden")
        check_start(self.start)
        if self.network not in FRAME_AGENTS:
            raise BadInput(f"network must be one of {', '.join(FRAME_AGENTS)}, got {self.network!r}")
        if self.activation not in ACTIVATIONS:
            raise BadInput(f"activation must be one of {', '.join(ACTIVATIONS)}, got {self.activation!r}")
        if isinstance(self.objective, SA) and self.objective.anchored and not self.anchor:
            raise BadInput("anchor must be > 0 for an objective that is anchored, got 0")
        self._check_standardize()

    def _check_runners(self) -> None:
        if self.num_runners and self.num_envs % self.num_runners:
            raise BadInput(f"num_runners must divide num_envs, got {self.num_runners} and {self.num_envs}")
        if self.num_runners and self.turns is not None:
            raise BadInput("num_runners must be 0 where turns are set: the adversary acts in environments of its own")

    def _check_standardize(self) -> None:
        if self.standardize not in STANDARDIZE:
            raise BadInput(f"standardize must be one of {', '.join(STANDARDIZE)}, got {self.standardize!r}")
        if self.standardize == "batch" and isinstance(self.objective, RadialReleased):
            raise BadInput("standardize must be minibatch for RadialReleased, which weighs raw against standardised")
        if self.chunk is None:
            return
        if self.minibatch % self.chunk:
            raise BadInput(f"chunk must divide minibatch, got {self.chunk} and {self.minibatch}")
        if self.standardize == "minibatch":
            raise BadInput("chunk must be none unless standardize is batch: a chunk is not its minibatch")

    @property
    def limits(self) -> Limits:
        """The limits of an update, and the weights of its terms."""
        max_std = self.max_std if self.max_std is None or callable(self.max_std) else Constant(self.max_std)
        return Limits(
            self.clip, self.value_clip, self.entropy, self.max_grad_norm, self.min_std, max_std, self.value_weight,
            self.standardize, self.anchor,
        )  # fmt: skip


class Making(Protocol):
    """Makes the environments of a training, as `make_env` does."""

    def __call__(self, spec: EnvSpec, num_envs: int, seed: int, *, threads: int | None = None) -> VecEnv:
        """N environments that step together."""


def train_ppo(
    config: PPOConfig,
    seed: int,
    *,
    out: Path | None = None,
    resume: bool = False,
    attack: Attack | Joining | None = None,
    init: PPOAgent | None = None,
    guide: Guide | None = None,
    make: Making | None = None,
    device: str | torch.device = "cpu",
    threads: int | None = None,
    quiet: bool = False,
    track: Tracking | None = None,
    address: str | None = None,
) -> PPOAgent:
    """Train an agent. With `out`, everything is logged and saved there and a stopped run can be resumed.

    threads  of the simulator; torch's own are left alone. No result depends on it
    attack   the object behind config.attack; where config.turns are set, one that joins the training and learns
    init     an agent to start from; its normaliser resumes from its statistics, or with normalize_observations False is
             frozen
    guide    sets the clock of the schedules; None: they follow the env steps
    make     makes the environments of config.env, or others around them; None: `make_env`
    address  of the Ray cluster of the runners; None: one is started here
    """
    check_attack(attack, config.attack)
    if config.anchor and init is None:
        raise BadInput(f"anchor must be 0 without an init to hold on to, got {config.anchor}")
    settings = recorded(config, seed, init, guide)
    with Run.open(out, settings, resume=resume, total_steps=config.total_steps, quiet=quiet, track=track) as run:
        agent, learner, scale, rng = set_up(config, seed, torch.device(device), init, make)
        if only_follows(run, learner.join):
            return agent
        attacked = attack is not None
        anchor = sight_of(copy.deepcopy(agent), attacked) if config.anchor else None
        step, update = 0, 0
        sight, returns = sight_of(agent, attacked), Returns(config.num_envs)
        actor = sight.actor(config.compile)
        partners = partners_of(config, agent, seed, attack, make)
        if run.restored is not None:
            with run.restoring():
                step, update = _restore(run, agent, learner, scale, returns, rng, guide, partners)
        stage = stage_of(config, actor, attack, seed, torch.device(device), make, threads, address)
        run.at_end(stage.close)
        x: Tensor | None = None
        while step < config.total_steps:
            if x is None:  # at the start and after each checkpoint, in interrupted and uninterrupted runs alike
                x = stage.begin(derived_seed(seed, "envs", step))
                run.check_engine(stage.engine)
                scale.returns.zero_()
                returns.forget()

            # ------------------------------------------------------------------------------------------------- act
            began, before = time.perf_counter(), step
            between, scaled = partners.between(config.attack_radius(step)), scale if config.scale_rewards else None
            rollout, x = stage.act(x, scaled, returns, rng, between, update)
            left = 1 - step / config.total_steps if config.anneal else 1.0  # of the learning rates
            step += int(rollout.real.sum())
            update += 1

            # ----------------------------------------------------------------------------------------------- learn
            check_rollout(rollout, step)
            data = estimate(rollout, sight, config.discount, config.lam, anchor)
            data, metrics = partners.judge(rollout, data, rng)
            del rollout  # `data` holds a copy of its frames
            time_now = time_at(guide, step)
            metrics |= learner.learn(data, time_now, left, rng, value_only=step <= config.value_first)
            metrics |= partners.turn(step, update, left)

            # ------------------------------------------------------------------------------------------ log, save
            scheduled = config.objective.coefficients(time_now)
            if guide is not None:
                metrics |= guide.look(step, agent, sight.prepared(some(data.x)), returns.shared())
            metrics["charts/SPS"] = (step - before) / (time.perf_counter() - began)
            metrics |= stage.metrics() | returns.metrics()
            metrics |= {f"robust/{name}": value for name, value in scheduled.items()}
            run.log(step, metrics)
            run.progress(step, **shown(metrics))
            if update % config.checkpoint_every == 0 or step >= config.total_steps or run.signal is not None:
                tensors, state = _state(agent, learner, scale, returns, rng, step, update)
                averaged, paced = guide_state(guide)
                state |= {"engine": dict(stage.engine)} | paced
                run.save(step, tensors | partners.state() | averaged, state, score=returns.mean())
                stage.leave()
                x = None
                partners.leave()
            if run.signal is not None and step < config.total_steps:
                raise Stopped(run.signal)
    if not isinstance(agent, FrameAgent):
        agent.normalizer.freeze()
    return agent


@torch.no_grad()
def estimate(rollout: Rollout, sight: Sight, discount: float, lam: float, anchor: Sight | None = None) -> Minibatch:
    """Advantages and value targets of the real rows, and the logits or means of `anchor`, flattened to (R, …)."""
    value, old_log_prob = sight.judge(rollout)
    advantage = gae(rollout.reward, value[:-1], value[1:], rollout.terminated, rollout.ended, discount, lam)
    real = rollout.real
    x = rollout.x[:-1][real]
    return Minibatch(
        x=x, action=rollout.action[real], old_log_prob=old_log_prob, advantage=advantage[real],
        target=(advantage + value[:-1])[real], old_value=value[:-1][real],
        anchor=value.new_empty(len(x), 0) if anchor is None else anchor.scores(x),
        worst=value.new_empty(len(x), 0),
    )  # fmt: skip


def set_up(
    config: PPOConfig, seed: int, device: torch.device, init: PPOAgent | None = None, make: Making | None = None
) -> tuple[PPOAgent, Learner, RewardScale, torch.Generator]:
    """A fresh agent for the env, its learner, the reward scale, and the generator of all randomness."""
    probe = (make or make_env)(config.env, 1, seed)
    try:
        agent = check_env(config, probe, init)
    finally:
        probe.close()
    start_agent(agent, config.start, torch.Generator().manual_seed(derived_seed(seed, "weights")))
    if isinstance(agent, GaussianAgent):
        torch.nn.init.constant_(agent.log_std, math.log(config.initial_std))
    if init is not None:
        agent.load_state_dict(init.state_dict())
        if not isinstance(agent, FrameAgent) and not isinstance(init, FrameAgent):
            agent.normalizer.clip, agent.clips_actions = init.normalizer.clip, init.clips_actions
    if not (config.normalize_observations or isinstance(agent, FrameAgent)):
        agent.normalizer.freeze()  # the statistics of `init`; without one, the identity clipped to ±10
    agent.to(device)
    scale = RewardScale(config.num_envs, config.discount if config.reward_discount is None else config.reward_discount)
    learner = Learner(
        agent, config.objective, config.limits, minibatch=config.minibatch, chunk=config.chunk, epochs=config.epochs,
        policy_rate=config.policy_rate, value_rate=config.value_rate, compile=config.compile,
        prepared=config.attack is not None,
    )  # fmt: skip
    rng = torch.Generator(device).manual_seed(derived_seed(seed, "actions"))
    return agent, learner, scale, rng


def stage_of(
    config: PPOConfig, actor: Acting, attack: Any, seed: int, device: torch.device, make: Making | None,
    threads: int | None, address: str | None,
) -> Stage:  # fmt: skip
    """Who acts: the loop itself, or runners."""
    if config.num_runners and make is not None:
        raise BadInput("num_runners must be 0 for environments that only this process can make")
    if config.num_runners:
        return Runners(config, actor, attack, seed, device, address)
    return InLoop(config, actor, make or make_env, device, threads)


def partners_of(
    config: PPOConfig, agent: PPOAgent, seed: int, attack: Any = None, make: Making | None = None
) -> Partners:
    """The second critic that WocaR needs, untrained, and the attack, as it is or as an adversary that learns."""
    if isinstance(attack, Joining) != (config.turns is not None):
        raise BadInput("turns must be set exactly where the attack is an adversary that learns")
    adversary: Opponent | None = None
    if isinstance(attack, Joining):
        adversary = attack.join(agent, config, seed, make)
    elif attack is not None:
        adversary = RolloutAttack.of(attack, agent, config)
    if not isinstance(config.objective, WocaR):
        return Partners(None, adversary)
    assert isinstance(agent, GaussianAgent), "check_env comes first"
    critic = WorstCritic(
        agent, config.objective, torch.Generator().manual_seed(derived_seed(seed, "worst")), hidden=config.hidden,
        minibatch=config.minibatch, epochs=config.epochs, discount=config.discount, compile=config.compile,
    )  # fmt: skip
    return Partners(critic, adversary)


def check_env(config: PPOConfig, env: VecEnv, init: Agent | None = None) -> PPOAgent:
    """Refuse an env that PPO cannot learn with this config, or not from `init`; return an untrained agent for it."""
    agent = agent_to_train(env.observation_shape, env.actions, config.hidden, config.activation, config.network)
    objective, discrete = config.objective, not isinstance(env.actions, Continuous)
    if isinstance(objective, RadialOverlap) and not discrete:
        raise BadInput(f"objective RadialOverlap needs discrete actions; those of {config.env.id} are continuous")
    if isinstance(objective, WocaR) and discrete:
        raise BadInput(f"objective WocaR needs continuous actions; those of {config.env.id} are discrete")
    if isinstance(objective, SA) and objective.spread is not None and discrete:
        raise BadInput(f"objective.spread must be none: the actions of {config.env.id} are discrete")
    if init is not None:
        check_init(init, agent)
    return agent


def _state(
    agent: PPOAgent, learner: Learner, scale: RewardScale, returns: Returns, rng: torch.Generator, step: int,
    update: int,
) -> tuple[dict[str, Tensor], dict[str, object]]:  # fmt: skip
    """Everything a resumed run needs; the environments are rebuilt (see the loop)."""
    tensors = {f"agent.{name}": tensor for name, tensor in agent.state_dict().items()}
    tensors |= {f"adam.{name}": tensor for name, tensor in learner.adam._asdict().items()}
    tensors |= {f"scale.{name}": tensor for name, tensor in scale.state_dict().items()}
    tensors["rng"] = rng.get_state()
    state: dict[str, object] = {"step": step, "update": update, **returns.state()}
    if not isinstance(agent, FrameAgent):  # from the agent it started with, so no config says so
        state |= {"clip": agent.normalizer.clip, "clips_actions": agent.clips_actions}
    return tensors, state


def _restore(
    run: Run, agent: PPOAgent, learner: Learner, scale: RewardScale, returns: Returns, rng: torch.Generator,
    guide: Guide | None, partners: Partners,
) -> tuple[int, int]:  # fmt: skip
    assert run.restored is not None
    tensors, state = run.restored

    def part(prefix: str) -> dict[str, Tensor]:
        return {name[len(prefix) :]: tensor for name, tensor in tensors.items() if name.startswith(prefix)}

    agent.load_state_dict(part("agent."))
    scale.load_state_dict(part("scale."))
    learner.restore(part("adam."))
    partners.restore(tensors)
    rng.set_state(tensors["rng"])
    restore_guide(guide, agent, tensors, state)
    returns.restore(state)
    return int(state["step"]), int(state["update"])
