"""The update of PPO: epochs of shuffled minibatches, policy, value and Adam in one compiled step.

The conversion of a rollout's stored observations to network inputs is in `sight`.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from radial.agents.policies import GaussianAgent
from radial.core.data import BadInput, Loss
from radial.core.schedules import Schedule
from radial.losses.policy import standardize, value_loss
from radial.objectives.base import Coefficients, Objective
from radial.objectives.surrogate import Batch, RadialReleased, family
from radial.training.adam import AdamState, adam, start
from radial.training.ranks import Together
from radial.training.sight import PPOAgent, Sight, sight_of
from radial.training.update import Update, stop_if_not_finite

STANDARDIZE = ("minibatch", "batch")  # the rows over which advantages have mean 0 and deviation 1
WATCHED = 2_048  # rows at most on which the KL divergence of an update is measured


class Minibatch(NamedTuple):
    """Transitions to learn from, all with leading (R,)."""

    x: Tensor  # as the rollout kept them
    action: Tensor
    old_log_prob: Tensor
    advantage: Tensor  # as GAE gave it
    target: Tensor  # of the value
    old_value: Tensor
    anchor: Tensor  # (R, A) logits or means of the anchor policy; (R, 0): there is none
    worst: Tensor  # (R,) worst-case values of the actions; (R, 0): there are none


class Limits(NamedTuple):
    """The limits of an update, and the weights of its terms. None: no limit."""

    clip: float
    value_clip: float | None
    entropy: float  # weight of the bonus
    max_grad_norm: float | None
    min_std: float | None
    max_std: Schedule | None
    value_weight: float
    standardize: str  # one of STANDARDIZE
    anchor: float = 0.0  # weight of the divergence from the anchor policy


class _Losses(nn.Module):
    """Holds the agent and computes policy and value loss."""

    def __init__(self, agent: PPOAgent, sight: Sight, limits: Limits) -> None:
        super().__init__()
        self.agent, self.sight, self.limits = agent, sight, limits

    def forward(self, objective: Objective, data: Minibatch, noise: Tensor, at: Coefficients) -> Loss:
        limits = self.limits
        x, agent = self.sight.look(data.x)
        advantage = standardize(data.advantage) if limits.standardize == "minibatch" else data.advantage
        held = data.anchor if limits.anchor else None
        batch = Batch(x, data.action, data.old_log_prob, advantage, data.advantage, noise, held, self._worst(data))
        policy = objective(agent, batch, at, limits.clip)
        value = value_loss(agent.value(x), data.old_value, data.target, limits.value_clip).mean()
        entropy = family(agent).entropy(agent.scores(x)).mean()
        parts = {**policy.parts, "losses/value_loss": value.detach(), "losses/entropy": entropy.detach()}
        total = policy.total - limits.entropy * entropy + limits.value_weight * value
        if limits.anchor:
            apart = family(agent).divergence(data.anchor, agent.scores(x)).mean()
            total, parts["losses/divergence"] = total + limits.anchor * apart, apart.detach()
        return Loss(total, parts)

    def _worst(self, data: Minibatch) -> Tensor | None:
        """Worst-case values standardised as the advantages are, (B,)."""
        if data.worst.ndim > 1:
            return None
        return standardize(data.worst) if self.limits.standardize == "minibatch" else data.worst


class Learner(Update):
    """The update of PPO; also holds Adam's state, and writes the parameters back into the agent after each batch.

    chunk     rows whose gradient is taken at a time; None: a whole minibatch
    prepared  frames come in network units, not as bytes
    """

    def __init__(
        self, agent: PPOAgent, objective: Objective, limits: Limits, *, minibatch: int, chunk: int | None, epochs: int,
        policy_rate: float, value_rate: float, compile: bool, prepared: bool = False,
    ) -> None:  # fmt: skip
        self.agent, self.sight, self.limits = agent, sight_of(agent, prepared), limits
        self.minibatch, self.chunk, self.epochs = minibatch, chunk, epochs
        named = {f"agent.{name}": parameter for name, parameter in agent.named_parameters()}
        losses = _Losses(agent, self.sight, limits)
        super().__init__(losses, named, objective, compile=compile, max_grad_norm=limits.max_grad_norm)
        self.adam = start(self.parameters)
        zeros = {name: torch.zeros_like(parameter) for name, parameter in named.items()}
        of_value = {f"agent.{name}": share for name, share in self.sight.value_share.items()}
        self.of_value = self.flat.join(zeros | of_value)
        of_critic = {name: share for name, share in of_value.items() if name.startswith("agent.critic.")}
        of_critic_flat = self.flat.join(zeros | of_critic)
        # One vector, two learning rates: Adam is elementwise, so this is two optimisers.
        self.rates = policy_rate * (1 - of_critic_flat) + value_rate * of_critic_flat

    def join(self) -> Together:
        """Take the steps with other ranks from now on."""
        if self.limits.standardize == "minibatch" and isinstance(self.objective, RadialReleased):
            raise BadInput("RadialReleased weighs raw against standardised advantages and cannot be shared by ranks")
        limits = self.limits
        assert isinstance(self.losses, _Losses)
        self.losses.limits = limits._replace(standardize="batch")  # `whole` standardises

        def whole(data: Minibatch) -> Minibatch:
            if limits.standardize == "batch":
                return data
            worst = data.worst if data.worst.ndim > 1 else standardize(data.worst)
            return data._replace(advantage=standardize(data.advantage), worst=worst)

        return Together(self, Minibatch, self.minibatch, chunk=self.chunk or 1, whole=whole)

    def restore(self, moments: Mapping[str, Tensor]) -> None:
        """Resume from a saved state of Adam and the agent's current parameters."""
        self.adam = AdamState(**{name: tensor.to(self.parameters) for name, tensor in moments.items()})
        self.parameters = self.flat.join({f"agent.{name}": p for name, p in self.agent.named_parameters()})

    def learn(
        self, data: Minibatch, clock: int, left: float, rng: torch.Generator, value_only: bool = False
    ) -> dict[str, float]:
        """Run all epochs over the data (R, …), in shuffled minibatches; an epoch drops the rows that do not fill one.

        clock       step of the objective's schedules        left  remaining share of the learning rates, 0 … 1
        value_only  leave the policy unchanged
        """
        draws = self.move_to(clock).objective.draws
        none = self.parameters.new_empty(0, 0, *data.x.shape[1:])
        max_std = self.limits.max_std
        max_log_std = self.parameters.new_tensor(math.inf if max_std is None else math.log(max_std(clock)))
        rows, size = data.x.shape[0], self.minibatch
        if rows < size:
            raise ValueError("a rollout must hold at least one minibatch of real steps")
        if self.limits.standardize == "batch":
            data = data._replace(advantage=standardize(data.advantage))
            data = data if data.worst.ndim > 1 else data._replace(worst=standardize(data.worst))
        rates = self.rates * left * (self.of_value if value_only else 1.0)
        with torch.no_grad():
            for _ in range(self.epochs):
                order = torch.randperm(rows, generator=rng, device=data.x.device)
                whole = order[: rows - rows % size]
                # Frames are gathered a minibatch at a time: a shuffled copy of all would double their memory.
                for chosen, *part in zip(*[c.split(size) for c in (whole, *(c[whole] for c in data[1:]))], strict=True):
                    some = Minibatch(data.x[chosen], *part)
                    noise = self.noise(some.x, rng) if draws else none
                    self.parameters, *moments = self.step(
                        some, noise, adam=self.adam, rates=rates, max_log_std=max_log_std
                    )
                    self.adam = AdamState(*moments)
            for name, piece in self.flat.split(self.parameters).items():
                self.losses.get_parameter(name).copy_(piece)
            return self._metrics(data)

    def pieces(self, data: Minibatch, noise: Tensor) -> list[tuple[Minibatch, Tensor]]:
        """A minibatch in chunks, each with its noise."""
        if self.chunk is None:
            return [(data, noise)]
        places = [slice(first, first + self.chunk) for first in range(0, data.x.shape[0], self.chunk)]
        return [(Minibatch(*[column[place] for column in data]), noise[place]) for place in places]

    def finish(self, parameters: Tensor, gradient: Tensor, own: Mapping[str, Any]) -> tuple[Tensor, ...]:
        """New parameters (P,) with the standard deviation inside its limits, and Adam's new state."""
        parameters, state = adam(parameters, gradient, own["adam"], own["rates"])
        if self.limits.min_std is not None or self.limits.max_std is not None:
            least = -math.inf if self.limits.min_std is None else math.log(self.limits.min_std)
            pieces = self.flat.split(parameters)
            pieces["agent.log_std"] = pieces["agent.log_std"].clamp(min=least).minimum(own["max_log_std"])
            parameters = self.flat.join(pieces)
        return parameters, *state

    def _metrics(self, data: Minibatch) -> dict[str, float]:
        metrics = self.report()
        self.check_weights()
        some = slice(None, None, math.ceil(data.x.shape[0] / WATCHED))
        change = self.sight.log_prob(data.x[some], data.action[some]) - data.old_log_prob[some]
        # The estimator (ρ − 1) − log ρ of the KL: unbiased and never negative (Schulman 2020).
        metrics["losses/approx_kl"] = float((change.exp() - 1 - change).mean())
        unexplained = (data.target - data.old_value).var() / data.target.var().clamp(min=1e-12)
        metrics["losses/explained_variance"] = 1 - float(unexplained)
        if isinstance(self.agent, GaussianAgent):
            metrics["charts/std"] = float(self.agent.log_std.exp().mean())
        stop_if_not_finite(metrics)
        return metrics
