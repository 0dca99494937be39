"""Where a PPO training acts: in its own process, or in runners, actors of a Ray cluster that share its environments.

Runners act with the weights of the iteration, sent once to all; the driver waits for all of them and learns. The result
depends on their number, and not on where they are, nor on whether one dies: noise follows from seed, runner and
iteration, and a new runner repeats the actions of the dead one since the environments were made.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch
from torch import Tensor

from radial.agents.normalizer import Moments, RewardScale, combined, merge
from radial.cluster import ActorGroup
from radial.core.agent import Attack
from radial.core.data import Step, VecEnv
from radial.envs.custom import import_inherited
from radial.envs.make import make_env
from radial.envs.wrapper import EnvWrapper, as_trained
from radial.runs.run import derived_seed
from radial.training.adversary import Opponent, RolloutAttack
from radial.training.rollouts import Acting, Columns, Returns, Rollout, act_out, collect, to_learn_from
from radial.training.sight import FrameAgent, PPOAgent, sight_of

if TYPE_CHECKING:
    from radial.training.ppo import Making, PPOConfig


class Stage(Protocol):
    """The environments of a training, and who acts in them."""

    @property
    def engine(self) -> Mapping[str, str]:
        """Backend, version and simulator, once they are made."""

    def begin(self, at: int) -> Tensor:
        """Make the environments from this seed; their first observations as the actor keeps them, (N, *obs)."""

    def act(
        self, x: Tensor, scale: RewardScale | None, returns: Returns, rng: torch.Generator, between: Opponent | None,
        update: int,
    ) -> tuple[Rollout, Tensor]:  # fmt: skip
        """A rollout from the kept observations x, and the next x."""

    def metrics(self) -> dict[str, float]:
        """What is to be known of it."""

    def leave(self) -> None:
        """Close the environments, at a checkpoint."""

    def close(self) -> None:
        """End for good."""


@torch.no_grad()
def _observed(actor: Acting, obs: Tensor) -> Tensor:
    """First observations as the actor keeps them; its normaliser has then seen them."""
    actor.begin()
    x = actor.observe(obs)
    actor.finish()
    return x


class InLoop:
    """The training's own process acts."""

    def __init__(
        self, config: "PPOConfig", actor: Acting, make: "Making", device: torch.device, threads: int | None
    ) -> None:
        self.config, self.actor, self.make, self.device, self.threads = config, actor, make, device, threads
        self.env: VecEnv | None = None

    @property
    def engine(self) -> Mapping[str, str]:  # noqa: D102
        assert self.env is not None
        return self.env.engine

    def begin(self, at: int) -> Tensor:  # noqa: D102
        made = self.make(self.config.env, self.config.num_envs, at, threads=self.threads)
        self.env = as_trained(self.actor.agent, made)
        return _observed(self.actor, self.env.reset().to(self.device))

    def act(
        self, x: Tensor, scale: RewardScale | None, returns: Returns, rng: torch.Generator, between: Opponent | None,
        update: int,
    ) -> tuple[Rollout, Tensor]:  # fmt: skip
        """A rollout by `collect`."""
        assert self.env is not None
        steps = self.config.rollout // self.config.num_envs
        return collect(self.env, x, self.actor, scale, returns, steps, rng, between)

    def metrics(self) -> dict[str, float]:  # noqa: D102
        return {}

    def leave(self) -> None:  # noqa: D102
        if self.env is not None:
            self.env.close()
        self.env = None

    close = leave


# ------------------------------------------------------------------------------------------------------------- runners


@dataclass(frozen=True, eq=False)
class RunnerJob:
    """What a runner is made of; its environments are those of this number."""

    config: "PPOConfig"
    agent: PPOAgent
    attack: Attack | None
    number: int
    seed: int

    @property
    def envs(self) -> range:
        """The numbers of its environments."""
        share = self.config.num_envs // self.config.num_runners
        return range(self.number * share, (self.number + 1) * share)


class Sent(NamedTuple):
    """What all runners are sent for an iteration."""

    weights: dict[str, Tensor]  # of the agent, and its normaliser's moments
    radius: float | None  # of the attack; None: there is none
    update: int


class Part(NamedTuple):
    """What a runner sends back."""

    columns: Columns
    seen: Moments | None  # of the observations of its steps; None: the agent has no normaliser that learns


class _Seen(EnvWrapper):
    """Keeps the observations of all steps."""

    def __init__(self, env: VecEnv) -> None:
        super().__init__(env)
        self.observations: list[Tensor] = []

    def step(self, action: Tensor) -> Step:
        """Act in every env."""
        found = self.env.step(action)
        self.observations.append(found.obs)
        return found


class Runner:
    """Acts in its share of the environments; all it holds is these."""

    def __init__(self, job: RunnerJob) -> None:
        import_inherited()
        self.job, self.agent = job, job.agent
        self.actor = sight_of(self.agent, job.attack is not None).actor(job.config.compile)
        self.env: VecEnv | None = None
        self.adversary = None
        if job.attack is not None:
            self.adversary = RolloutAttack.of(job.attack, self.agent, job.config)

    def begin(self, at: int, own: None) -> tuple[Tensor, dict[str, str]]:
        """Make the environments; their first observations, and the simulator."""
        self.leave(None, None)
        numbers = self.job.envs
        self.env = as_trained(self.agent, make_env(self.job.config.env, len(numbers), at, threads=1, numbers=numbers))
        return self.env.reset(), dict(self.env.engine)

    def replay(self, at: int, actions: list[Tensor]) -> None:
        """Bring new environments to where others were after these actions, (T, n, …) each."""
        self.begin(at, None)
        assert self.env is not None
        for some in actions:
            for action in some:
                self.env.step(action)

    def act(self, sent: Sent, x: Tensor) -> Part:
        """Act from the kept observations x, (n, *obs)."""
        assert self.env is not None
        config = self.job.config
        self.agent.load_state_dict(sent.weights)
        between = self.adversary if self.adversary is not None and self.adversary.begin(sent.radius or 0.0) else None
        rng = torch.Generator().manual_seed(derived_seed(self.job.seed, "runner", self.job.number, sent.update))
        seen = _Seen(self.env)
        columns, _ = act_out(seen, x, self.actor, config.rollout // config.num_envs, rng, between)
        if isinstance(self.agent, FrameAgent) or self.agent.normalizer.frozen:
            return Part(columns, None)
        observed = torch.cat(seen.observations).double()
        zero = torch.zeros_like(observed[0])
        return Part(columns, merge(Moments(zero.new_zeros(()), zero, zero), observed))

    def leave(self, shared: None, own: None) -> None:
        """Close the environments."""
        if self.env is not None:
            self.env.close()
        self.env = None


class Runners:
    """Ray actors act, each in its share of the environments, all at the same time.

    address  of a cluster; None: one is started here
    """

    def __init__(
        self, config: "PPOConfig", actor: Acting, attack: Attack | None, seed: int, device: torch.device,
        address: str | None,
    ) -> None:  # fmt: skip
        self.config, self.actor, self.device, self.engine = config, actor, device, dict[str, str]()
        self.at: int | None = None
        self.actions: list[list[Tensor]] = [[] for _ in range(config.num_runners)]  # since the envs were made
        bare = copy.deepcopy(actor.agent).to("cpu")
        jobs = [RunnerJob(config, bare, attack, number, seed) for number in range(config.num_runners)]
        self.group = ActorGroup(Runner, jobs, self._past, address)

    def _past(self, number: int) -> list[tuple[str, Any, Any]]:
        return [] if self.at is None else [("replay", self.at, self.actions[number])]

    def begin(self, at: int) -> Tensor:  # noqa: D102
        self.at, self.actions = None, [[] for _ in self.actions]
        found = self.group.call("begin", at, [None] * len(self.actions))
        self.at, self.engine = at, found[0][1]
        return _observed(self.actor, torch.cat([obs for obs, _ in found]).to(self.device))

    def act(
        self, x: Tensor, scale: RewardScale | None, returns: Returns, rng: torch.Generator, between: Opponent | None,
        update: int,
    ) -> tuple[Rollout, Tensor]:  # fmt: skip
        """A rollout of all runners, in the order of their environments."""
        weights = {name: tensor.detach().cpu() for name, tensor in self.actor.agent.state_dict().items()}
        radius = between.radius if isinstance(between, RolloutAttack) else None
        owns = list(x.cpu().chunk(len(self.actions)))
        parts: list[Part] = self.group.call("act", Sent(weights, radius, update), owns)
        for past, part in zip(self.actions, parts, strict=True):
            past.append(part.columns.action)
            if part.seen is not None:
                moments = self.actor.agent.normalizer.moments
                moments.set(combined(moments.get(), Moments(*(each.to(self.device) for each in part.seen))))
        whole = Columns(*[torch.cat(each, dim=1) for each in zip(*[part.columns for part in parts], strict=True)])
        rollout = to_learn_from(whole, scale, returns, self.device)
        return rollout, rollout.x[-1]

    def metrics(self) -> dict[str, float]:
        """How many runners have died so far, and were replaced."""
        return {"charts/runner_deaths": float(self.group.deaths)}

    def leave(self) -> None:  # noqa: D102
        self.group.call("leave", None, [None] * len(self.actions))
        self.at = None

    def close(self) -> None:  # noqa: D102
        self.group.close()
