"""One PPO update: epochs of minibatch steps, each a pure function of tensors that is compiled whole.

Forward, bounds, losses, backward and Adam are one function; no number leaves it as a Python float. How an agent looks
at what a rollout kept is in `seeing`.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from radial.agents.policies import GaussianAgent
from radial.core.data import Loss
from radial.core.schedules import Schedule
from radial.losses.policy import standardize, value_loss
from radial.objectives.surrogate import Batch, Objective, family
from radial.training.adam import Flat, Moments, adam, start
from radial.training.compiled import Lazy
from radial.training.seeing import PPOAgent, log_prob, look, mark_value

STANDARDIZE = ("minibatch", "batch")  # over what advantages have mean 0 and deviation 1
WATCHED = 2_048  # rows at most by which the change of the policy is measured


class Minibatch(NamedTuple):
    """Transitions to learn from, all with leading (R,)."""

    x: Tensor  # what the rollout kept
    action: Tensor
    old_log_prob: Tensor
    advantage: Tensor  # as GAE gave it
    target: Tensor  # of the value
    old_value: Tensor
    anchor: Tensor  # (R, A) scores of the policy that is held on to; (R, 0): there is none


class Limits(NamedTuple):
    """What keeps an update small, and how its terms are weighed. None: no limit."""

    clip: float
    value_clip: float | None
    entropy: float  # weight of the bonus
    max_grad_norm: float | None
    min_std: float | None
    max_std: Schedule | None
    value_weight: float
    standardize: str  # one of STANDARDIZE
    anchor: float = 0.0  # weight of the divergence from the policy that is held on to


class _Losses(nn.Module):
    """Policy and value loss of an agent as one module, for `functional_call`."""

    def __init__(self, agent: PPOAgent, objective: Objective, limits: Limits) -> None:
        super().__init__()
        self.agent, self.objective, self.limits = agent, objective, limits

    def forward(self, data: Minibatch, noise: Tensor, at: Mapping[str, Tensor]) -> Loss:
        limits = self.limits
        x, agent = look(self.agent, data.x)
        advantage = standardize(data.advantage) if limits.standardize == "minibatch" else data.advantage
        held = data.anchor if limits.anchor else None
        batch = Batch(x, data.action, data.old_log_prob, advantage, data.advantage, noise, held)
        policy = self.objective(agent, batch, at, limits.clip)
        value = value_loss(agent.value(x), data.old_value, data.target, limits.value_clip).mean()
        entropy = family(agent).entropy(agent.scores(x)).mean()
        parts = {**policy.parts, "losses/value_loss": value.detach(), "losses/entropy": entropy.detach()}
        total = policy.total - limits.entropy * entropy + limits.value_weight * value
        if limits.anchor:
            apart = family(agent).divergence(data.anchor, agent.scores(x)).mean()
            total, parts["losses/divergence"] = total + limits.anchor * apart, apart.detach()
        return Loss(total, parts)


class _Step:
    """The step of one minibatch under one objective, compiled when it is first taken."""

    def __init__(
        self, agent: PPOAgent, objective: Objective, limits: Limits, flat: Flat, chunk: int | None, compile: bool
    ) -> None:
        self.losses = _Losses(agent, objective, limits)
        self.limits, self.flat, self.chunk = limits, flat, chunk
        self.coefficients = list(objective.coefficients(0))
        self.draws = objective.draws
        self.parts: list[str] = []  # names of what the step reports
        self.run = Lazy(self.pure, compile)

    def pure(
        self, parameters: Tensor, first: Tensor, second: Tensor, steps: Tensor, rates: Tensor, *rest: Tensor
    ) -> tuple[Tensor, ...]:
        """New parameters (P,), new moments, and the parts of the loss (K,).

        rest  a minibatch, the noise, log max_std, the coefficients
        """
        columns = len(Minibatch._fields)
        data, (noise, max_log_std, *at_values) = Minibatch(*rest[:columns]), rest[columns:]
        at = dict(zip(self.coefficients, at_values, strict=True))
        # Chunks have one size and every loss is a mean, so the mean of their gradients is that of the minibatch.
        found = [self._gradient(parameters, *piece, at) for piece in self._pieces(data, noise)]
        gradient, parts = (
            found[0] if len(found) == 1 else (torch.stack(each).mean(0) for each in zip(*found, strict=True))
        )
        if self.limits.max_grad_norm is not None:
            norm = torch.linalg.vector_norm(gradient)
            gradient = gradient * (self.limits.max_grad_norm / (norm + 1e-6)).clamp(max=1.0)
        parameters, moments = adam(parameters, gradient, Moments(first, second, steps), rates)
        if self.limits.min_std is not None or self.limits.max_std is not None:
            parameters = self._within(parameters, max_log_std)
        return parameters, *moments, parts

    def _pieces(self, data: Minibatch, noise: Tensor) -> list[tuple[Minibatch, Tensor]]:
        """A minibatch in chunks, each with its noise."""
        if self.chunk is None:
            return [(data, noise)]
        places = [slice(first, first + self.chunk) for first in range(0, data.x.shape[0], self.chunk)]
        return [(Minibatch(*[column[place] for column in data]), noise[place]) for place in places]

    def _gradient(
        self, parameters: Tensor, data: Minibatch, noise: Tensor, at: Mapping[str, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """The gradient of some rows (P,), and the parts of their loss (K,)."""
        with torch.enable_grad():
            leaf = parameters.detach().requires_grad_(True)
            named = {f"agent.{name}": tensor for name, tensor in self.flat.split(leaf).items()}
            loss = functional_call(self.losses, named, (data, noise, at))
            (gradient,) = torch.autograd.grad(loss.total, leaf)
        self.parts = list(loss.parts)
        return gradient, torch.stack(list(loss.parts.values()))

    def _within(self, parameters: Tensor, max_log_std: Tensor) -> Tensor:
        """The same parameters with the standard deviation inside its limits."""
        min_log_std = -math.inf if self.limits.min_std is None else math.log(self.limits.min_std)
        inside = {
            name: piece.clamp(min=min_log_std).minimum(max_log_std) if name == "log_std" else piece
            for name, piece in self.flat.split(parameters).items()
        }
        return self.flat.join(inside)


class Learner:
    """Owns the flat parameters and Adam's memory, and writes the parameters back into the agent after each update."""

    def __init__(
        self,
        agent: PPOAgent,
        objective: Objective,
        limits: Limits,
        *,
        minibatch: int,
        chunk: int | None,
        epochs: int,
        policy_rate: float,
        value_rate: float,
        compile: bool,
    ) -> None:
        self.agent, self.objective, self.limits = agent, objective, limits
        self.minibatch, self.chunk, self.epochs, self.compile = minibatch, chunk, epochs, compile
        self.flat = Flat(agent.named_parameters())
        self.parameters = self.flat.join(dict(agent.named_parameters()))
        self.moments = start(self.parameters)
        of_critic = self.flat.mark("critic.").to(self.parameters)
        # One vector, two learning rates: Adam is elementwise, so this is two optimisers.
        self.rates = policy_rate * (1 - of_critic) + value_rate * of_critic
        self.of_value = mark_value(agent, self.flat).to(self.parameters)
        self._steps: dict[Objective, _Step] = {}

    @property
    def compile_seconds(self) -> float:
        """Time spent compiling so far."""
        return sum(step.run.seconds for step in self._steps.values())

    def restore(self, moments: Mapping[str, Tensor]) -> None:
        """Go on from saved moments, and from the parameters that the agent has now."""
        self.moments = Moments(**{name: tensor.to(self.parameters) for name, tensor in moments.items()})
        self.parameters = self.flat.join(dict(self.agent.named_parameters()))

    def learn(
        self, data: Minibatch, env_step: int, left: float, rng: torch.Generator, value_only: bool = False
    ) -> dict[str, float]:
        """All epochs over the data (R, …), in shuffled minibatches of one size; fewer than one are left out per epoch.

        env_step  where the objective's schedules stand        left  what is left of the learning rates, 0 … 1
        value_only  the policy stays as it is
        """
        objective = self.objective.at(env_step)
        if objective not in self._steps:
            self._steps[objective] = _Step(self.agent, objective, self.limits, self.flat, self.chunk, self.compile)
        step = self._steps[objective]
        at = objective.coefficients(env_step)
        coefficients = [self.parameters.new_tensor(at[name]) for name in step.coefficients]
        max_std = self.limits.max_std
        max_log_std = self.parameters.new_tensor(math.inf if max_std is None else math.log(max_std(env_step)))
        rows, size = data.x.shape[0], self.minibatch
        if self.limits.standardize == "batch":
            data = data._replace(advantage=standardize(data.advantage))
        noise_shape = (size if step.draws else 0, step.draws, *data.x.shape[1:])
        none = self.parameters.new_empty(noise_shape)
        rates = self.rates * left * (self.of_value if value_only else 1.0)
        total, count = None, 0
        with torch.no_grad():
            for _ in range(self.epochs):
                order = torch.randperm(rows, generator=rng, device=data.x.device)
                whole = order[: rows - rows % size]
                # Frames are gathered a minibatch at a time: a shuffled copy of all would take as much as they do.
                for chosen, *part in zip(*[c.split(size) for c in (whole, *(c[whole] for c in data[1:]))], strict=True):
                    noise = torch.randn(noise_shape, generator=rng, device=data.x.device) if step.draws else none
                    self.parameters, *moments, parts = step.run(
                        self.parameters, *self.moments, rates, data.x[chosen], *part, noise, max_log_std, *coefficients
                    )
                    self.moments = Moments(*moments)
                    total, count = parts if total is None else total + parts, count + 1
            for name, piece in self.flat.split(self.parameters).items():
                self.agent.get_parameter(name).copy_(piece)
            if total is None:
                raise ValueError("a rollout must hold at least one minibatch of real steps")
            return self._metrics(data, dict(zip(step.parts, (total / count).tolist(), strict=True)))

    def _metrics(self, data: Minibatch, metrics: dict[str, float]) -> dict[str, float]:
        _stop_if_not_finite(metrics | {"the largest weight": float(self.parameters.abs().max())})
        some = slice(None, None, math.ceil(data.x.shape[0] / WATCHED))
        change = log_prob(self.agent, data.x[some], data.action[some]) - data.old_log_prob[some]
        metrics["losses/approx_kl"] = float((change.exp() - 1 - change).mean())
        unexplained = (data.target - data.old_value).var() / data.target.var().clamp(min=1e-12)
        metrics["losses/explained_variance"] = 1 - float(unexplained)
        if isinstance(self.agent, GaussianAgent):
            metrics["charts/std"] = float(self.agent.log_std.exp().mean())
        _stop_if_not_finite(metrics)
        return metrics


def _stop_if_not_finite(metrics: Mapping[str, float]) -> None:
    for name, value in metrics.items():
        if not math.isfinite(value):
            raise FloatingPointError(f"{name} is {value} after an update: the training has diverged")
