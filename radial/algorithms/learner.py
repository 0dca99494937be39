"""One PPO update: epochs of minibatch steps, each a pure function of tensors that is compiled whole.

Forward, bounds, losses, backward and Adam are one function; no number leaves it as a Python float.
"""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from radial.agents.agents import CategoricalAgent, GaussianAgent
from radial.algorithms.adam import Flat, Moments, adam, start
from radial.algorithms.compiled import compiled
from radial.core.data import Loss
from radial.losses.policy import value_loss
from radial.objectives.ppo import Batch, Objective, family


class Minibatch(NamedTuple):
    """Transitions to learn from, all with leading (R,)."""

    x: Tensor
    action: Tensor
    old_log_prob: Tensor
    advantage: Tensor  # as GAE gave it
    target: Tensor  # of the value
    old_value: Tensor


class _Losses(nn.Module):
    """Policy and value loss of an agent as one module, for `functional_call`."""

    def __init__(
        self, agent: GaussianAgent | CategoricalAgent, objective: Objective, clip: float,
        value_clip: float | None, entropy: float,
    ) -> None:  # fmt: skip
        super().__init__()
        self.agent, self.objective = agent, objective
        self.clip, self.value_clip, self.entropy = clip, value_clip, entropy

    def forward(self, data: Minibatch, noise: Tensor, at: Mapping[str, Tensor]) -> Loss:
        batch = Batch(data.x, data.action, data.old_log_prob, data.advantage, noise)
        policy = self.objective(self.agent, batch, at, self.clip)
        value = value_loss(self.agent.value(data.x), data.old_value, data.target, self.value_clip).mean()
        entropy = family(self.agent).entropy(self.agent.scores(data.x)).mean()
        parts = {**policy.parts, "losses/value_loss": value.detach(), "losses/entropy": entropy.detach()}
        return Loss(policy.total - self.entropy * entropy + value, parts)


class Learner:
    """Owns the flat parameters and Adam's memory, and writes the parameters back into the agent after each update."""

    def __init__(
        self,
        agent: GaussianAgent | CategoricalAgent,
        objective: Objective,
        *,
        minibatch: int,
        epochs: int,
        policy_rate: float,
        value_rate: float,
        clip: float,
        value_clip: float | None,
        entropy: float,
        max_grad_norm: float | None,
        max_std: float | None,
        compile: bool,
    ) -> None:
        self.agent, self.objective = agent, objective
        self.minibatch, self.epochs = minibatch, epochs
        self.max_grad_norm, self.max_std = max_grad_norm, max_std
        self.losses = _Losses(agent, objective, clip, value_clip, entropy)
        self.flat = Flat(agent.named_parameters())
        self.parameters = self.flat.join(dict(agent.named_parameters()))
        self.moments = start(self.parameters)
        of_critic = self.flat.mark("critic.").to(self.parameters)
        # One vector, two learning rates: Adam is elementwise, so this is two optimisers.
        self.rates = policy_rate * (1 - of_critic) + value_rate * of_critic
        self.of_std = self.flat.mark("log_std").to(self.parameters)
        self.names: list[str] = []
        self.coefficient_names = list(objective.coefficients(0))
        self.compile_seconds = 0.0
        self._step: Callable[..., tuple[Tensor, ...]] | None = None if compile else self.step

    def restore(self, moments: Mapping[str, Tensor]) -> None:
        """Go on from saved moments, and from the parameters that the agent has now."""
        self.moments = Moments(**{name: tensor.to(self.parameters) for name, tensor in moments.items()})
        self.parameters = self.flat.join(dict(self.agent.named_parameters()))

    def step(
        self, parameters: Tensor, first: Tensor, second: Tensor, count: Tensor, rates: Tensor, *rest: Tensor
    ) -> tuple[Tensor, ...]:
        """One minibatch: new parameters, new moments, and the parts of the loss (K,). A pure function of tensors."""
        data, noise = Minibatch(*rest[:6]), rest[6]
        at = dict(zip(self.coefficient_names, rest[7:], strict=True))
        with torch.enable_grad():
            leaf = parameters.detach().requires_grad_(True)
            named = {f"agent.{name}": tensor for name, tensor in self.flat.split(leaf).items()}
            loss = functional_call(self.losses, named, (data, noise, at))
            (gradient,) = torch.autograd.grad(loss.total, leaf)
        self.names = list(loss.parts)
        if self.max_grad_norm is not None:
            gradient = gradient * (self.max_grad_norm / (torch.linalg.vector_norm(gradient) + 1e-6)).clamp(max=1.0)
        parameters, moments = adam(parameters, gradient, Moments(first, second, count), rates)
        if self.max_std is not None:
            limit = torch.where(self.of_std > 0, math.log(self.max_std), math.inf)
            parameters = torch.minimum(parameters, limit)
        return parameters, *moments, torch.stack(list(loss.parts.values()))

    def learn(self, data: Minibatch, at: Mapping[str, float], left: float, rng: torch.Generator) -> dict[str, float]:
        """All epochs over the data (R, …), in shuffled minibatches of one size; fewer than one are left out per epoch.

        at    the objective's coefficients        left  what is left of the learning rates, 0 … 1
        """
        rows, size = data.x.shape[0], self.minibatch
        rates = self.rates * left
        coefficients = [self.parameters.new_tensor(at[name]) for name in self.coefficient_names]
        draws = self.objective.draws
        total, steps = None, 0
        with torch.no_grad():
            for _ in range(self.epochs):
                order = torch.randperm(rows, generator=rng, device=data.x.device)
                shuffled = [column[order] for column in data]
                for low in range(0, rows - size + 1, size):
                    x = shuffled[0]
                    noise = torch.randn((size if draws else 0, draws, *x.shape[1:]), generator=rng, device=x.device)
                    arguments = [
                        self.parameters, *self.moments, rates,
                        *[column[low : low + size] for column in shuffled], noise, *coefficients,
                    ]  # fmt: skip
                    if self._step is None:
                        self._step, self.compile_seconds = compiled(self.step, arguments)
                    self.parameters, *moments, parts = self._step(*arguments)
                    self.moments = Moments(*moments)
                    total, steps = parts if total is None else total + parts, steps + 1
            for name, piece in self.flat.split(self.parameters).items():
                self.agent.get_parameter(name).copy_(piece)
            return self._metrics(data, total, steps)

    def _metrics(self, data: Minibatch, total: Tensor | None, steps: int) -> dict[str, float]:
        if total is None:
            raise ValueError("a rollout must hold at least one minibatch of real steps")
        metrics = dict(zip(self.names, (total / steps).tolist(), strict=True))
        _stop_if_not_finite(metrics | {"the largest weight": float(self.parameters.abs().max())})
        change = self.agent.log_prob(data.x, data.action) - data.old_log_prob
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
