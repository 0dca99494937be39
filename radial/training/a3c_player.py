"""A3C's player: collects a rollout in its own environments, then applies the rollout's gradient to the shared model.

The synchronous loop has one player, asynchronous training one per process. The model is held in flat vectors that may
lie in memory shared by processes.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from radial.agents.actor_critic import ActorCritic
from radial.core.data import Loss, VecEnv
from radial.core.schedules import Constant, Schedule
from radial.losses.policy import gae, k_step_returns
from radial.objectives.base import Coefficients, Objective
from radial.objectives.policy_gradient import Batch
from radial.training.adam import AMSGradState, amsgrad_, start_amsgrad
from radial.training.adversary import RolloutAttack
from radial.training.rollouts import Returns, Rollout, check_rollout, collect
from radial.training.update import Flat, Update


class Model(NamedTuple):
    """The model all workers share: the parameters (P,), and AMSGrad's state. Changed in place, without a lock."""

    parameters: Tensor
    moments: AMSGradState

    @classmethod
    def of(cls, agent: ActorCritic) -> "Model":
        """The parameters of an agent, before the first update."""
        parameters = Flat(agent.named_parameters()).join(dict(agent.named_parameters()))
        return cls(parameters, start_amsgrad(parameters))

    def apply(self, gradient: Tensor, rate: float, eps: float) -> None:
        """One step along a gradient (P,) that may have been taken at an older copy of the parameters."""
        amsgrad_(self.parameters, gradient, self.moments, rate, eps)

    def share(self) -> None:
        """Move everything into memory that other processes can be given."""
        for tensor in (self.parameters, *self.moments):
            tensor.share_memory_()

    def state(self) -> dict[str, Tensor]:
        """Everything to resume from, as copies; with concurrent writers, not a snapshot of a single moment."""
        named = {"parameters": self.parameters}
        named |= {f"adam.{name}": tensor for name, tensor in self.moments._asdict().items()}
        return {name: tensor.clone() for name, tensor in named.items()}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Resume from a saved state."""
        self.parameters.copy_(state["parameters"])
        for name, tensor in self.moments._asdict().items():
            tensor.copy_(state[f"adam.{name}"])


def estimate(rollout: Rollout, value: Tensor, discount: float, lam: float) -> Batch:
    """A rollout (T, N) as rows (T·N,): advantages, k-step returns, and 0 as the weight of rows that are not real.

    value  (T + 1, N)  of rollout.x

    The loss is then the authors' sum over the steps of a rollout, averaged over envs.
    """
    times = (rollout.reward, value[:-1], value[1:], rollout.terminated, rollout.ended, discount)
    advantage, target = gae(*times, lam), k_step_returns(*times)
    weight = rollout.real.to(value.dtype) / rollout.real.shape[1]
    columns = (rollout.x[:-1], rollout.action, advantage, target, weight)
    return Batch(*(column.flatten(0, 1) for column in columns))


class _Losses(nn.Module):
    """Holds the agent and computes the loss of a rollout."""

    def __init__(self, agent: ActorCritic, entropy: float) -> None:
        super().__init__()
        self.agent, self.entropy = agent, entropy

    def forward(self, objective: Objective, data: Batch, noise: Tensor, at: Coefficients) -> Loss:
        return objective(self.agent, data, at, self.entropy)


class A3CLearner(Update):
    """Copies the shared model into its agent, and computes gradients of rollouts at that copy."""

    def __init__(
        self, agent: ActorCritic, objective: Objective, *, entropy: float, max_grad_norm: float | None, compile: bool
    ) -> None:
        named = {f"agent.{name}": parameter for name, parameter in agent.named_parameters()}
        super().__init__(_Losses(agent, entropy), named, objective, compile=compile, max_grad_norm=max_grad_norm)
        self.agent = agent

    @torch.no_grad()
    def take(self, model: Model) -> None:
        """Copy the current model into the agent."""
        self.parameters.copy_(model.parameters)
        self.flat.write(self.parameters, self.losses)

    @torch.no_grad()
    def gradient(self, batch: Batch, clock: int) -> Tensor:
        """The gradient (P,) of the loss of a batch; stops if it is not finite.

        clock  step of the objective's schedules
        """
        self.move_to(clock)
        (gradient,) = self.step(batch, self.parameters.new_empty(0))
        if not bool(torch.isfinite(gradient).all()):
            raise FloatingPointError(f"the gradient is not finite at step {clock}: the training has diverged")
        return gradient


class Rhythm(NamedTuple):
    """The settings that turn steps into updates, besides the objective."""

    rollout: int  # steps of each env
    discount: float
    lam: float
    rate: Schedule
    adam_eps: float
    attack_radius: Schedule = Constant(0.0)


class Report(NamedTuple):
    """A player's report in plain numbers: episodes that ended since the last one, and losses."""

    returns: list[float]
    lengths: list[float]
    metrics: dict[str, float]


class JointActor:
    """An actor-critic in a training: it acts on the logits and keeps the values, which the same pass yields."""

    def __init__(self, agent: ActorCritic) -> None:
        self.agent = agent
        self._values: list[Tensor] = []

    def begin(self) -> None:
        """Forget the values so far."""
        self._values = []

    @torch.no_grad()
    def observe(self, obs: Tensor) -> Tensor:
        """Raw observations (N, *obs) in network units."""
        return self.agent.prepare(obs)

    @torch.no_grad()
    def act(self, x: Tensor, noise: Tensor) -> Tensor:
        """Sampled actions (N,), as `agent.sample` draws them."""
        value, logits = self.agent.joint(x)
        self._values.append(value)
        return (logits + noise).argmax(-1)

    def observe_and_act(self, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Prepared observations, and the actions sampled for them."""
        x = self.observe(obs)
        return x, self.act(x, noise)

    def finish(self) -> None:
        """Do nothing: there are no statistics to return."""

    @torch.no_grad()
    def values(self, last: Tensor) -> Tensor:
        """Values of all observations acted on since `begin`, and of the last one (N, *obs): (T + 1, N)."""
        return torch.stack([*self._values, self.agent.value(last)])


class Player:
    """One agent in its own environments, and the model that all players share.

    adversary  attacks what its agent sees; None: it plays undisturbed
    """

    def __init__(
        self, learner: A3CLearner, model: Model, rhythm: Rhythm, num_envs: int, rng: torch.Generator,
        adversary: RolloutAttack | None = None,
    ) -> None:  # fmt: skip
        self.learner, self.model, self.rhythm, self.rng = learner, model, rhythm, rng
        self.adversary = adversary
        self.actor, self.returns = JointActor(learner.agent), Returns(num_envs)
        self.env: VecEnv | None = None
        self._x: Tensor | None = None

    def enter(self, env: VecEnv) -> None:
        """Start acting in fresh environments."""
        self.env, self._x = env, self.actor.observe(env.reset().to(self.model.parameters.device))
        self.returns.forget()

    @property
    def seen(self) -> Tensor:
        """The current observations, (N, *obs) in network units."""
        assert self._x is not None
        return self._x

    def leave(self) -> None:
        """Close the environments."""
        if self.env is not None:
            self.env.close()
            self.env = None

    def update(self, step: int, clock: Callable[[int], int] | None = None) -> int:
        """Copy the model, collect one rollout, and apply its gradient to the model; return the number of real steps.

        step   env steps of all players so far
        clock  maps an env step to the step of the objective's schedules; None: the same
        """
        assert self.env is not None
        assert self._x is not None
        rhythm = self.rhythm
        self.learner.take(self.model)
        attacked = self.adversary is not None and self.adversary.begin(rhythm.attack_radius(step))
        between = self.adversary if attacked else None
        rollout, self._x = collect(self.env, self._x, self.actor, None, self.returns, rhythm.rollout, self.rng, between)
        real = int(rollout.real.sum())
        check_rollout(rollout, step + real)
        if real:  # a rollout of one step may consist of resets alone
            batch = estimate(rollout, self.actor.values(self._x), rhythm.discount, rhythm.lam)
            gradient = self.learner.gradient(batch, step + real if clock is None else clock(step + real))
            self.model.apply(gradient, rhythm.rate(step), rhythm.adam_eps)
        return real

    def report(self) -> Report:
        """Return episodes and losses since the last report."""
        report = Report(self.returns.returns, self.returns.lengths, self.learner.report())
        self.returns.returns, self.returns.lengths = [], []
        return report
