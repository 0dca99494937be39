"""One update of A3C: the gradient of a rollout, a pure function of tensors that is compiled whole, and where it goes.

Everything lies in flat vectors that may be in memory shared by processes; who plays the rollouts is not known here.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from radial.agents.actor_critic import ActorCritic
from radial.core.data import Loss
from radial.losses.policy import gae, k_step_returns
from radial.objectives.policy_gradient import Batch, Objective
from radial.training.adam import Flat, MaxMoments, amsgrad_, start_amsgrad
from radial.training.compiled import Lazy
from radial.training.rollouts import Rollout


class Model(NamedTuple):
    """What all workers learn: the parameters (P,), and what AMSGrad remembers. Changed in place, without a lock."""

    parameters: Tensor
    moments: MaxMoments

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
        """Everything to go on from, as copies; while others write, from one moment or the next."""
        named = {"parameters": self.parameters}
        named |= {f"adam.{name}": tensor for name, tensor in self.moments._asdict().items()}
        return {name: tensor.clone() for name, tensor in named.items()}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go on from a saved state."""
        self.parameters.copy_(state["parameters"])
        for name, tensor in self.moments._asdict().items():
            tensor.copy_(state[f"adam.{name}"])


def estimate(rollout: Rollout, value: Tensor, discount: float, lam: float) -> Batch:
    """A rollout (T, N) as rows (T·N,): advantages, k-step returns, and 0 as the weight of rows that are not real.

    value  (T + 1, N)  of rollout.x

    The loss is then the authors' sum over the steps of a rollout, and the mean over envs.
    """
    times = (rollout.reward, value[:-1], value[1:], rollout.terminated, rollout.ended, discount)
    advantage, target = gae(*times, lam), k_step_returns(*times)
    weight = rollout.real.to(value.dtype) / rollout.real.shape[1]
    columns = (rollout.x[:-1], rollout.action, advantage, target, weight)
    return Batch(*(column.flatten(0, 1) for column in columns))


class _Losses(nn.Module):
    """An objective as a module that owns the agent, for `functional_call`."""

    def __init__(self, agent: ActorCritic, objective: Objective, entropy: float) -> None:
        super().__init__()
        self.agent, self.objective, self.entropy = agent, objective, entropy

    def forward(self, batch: Batch, at: Mapping[str, Tensor]) -> Loss:
        return self.objective(self.agent, batch, at, self.entropy)


class _Step:
    """The gradient of one rollout under one objective, compiled when it is first taken."""

    def __init__(self, losses: _Losses, flat: Flat, max_grad_norm: float | None, compile: bool) -> None:
        self.losses, self.flat, self.max_grad_norm = losses, flat, max_grad_norm
        self.coefficients = list(losses.objective.coefficients(0))
        self.parts: list[str] = []  # names of what the step reports
        self.run = Lazy(self.pure, compile)

    def pure(self, parameters: Tensor, *rest: Tensor) -> tuple[Tensor, Tensor]:
        """The gradient (P,) and the parts of the loss (K,). rest: a batch, the coefficients."""
        batch, at = Batch(*rest[:5]), dict(zip(self.coefficients, rest[5:], strict=True))
        with torch.enable_grad():
            leaf = parameters.detach().requires_grad_(True)
            named = {f"agent.{name}": piece for name, piece in self.flat.split(leaf).items()}
            loss = functional_call(self.losses, named, (batch, at))
            (gradient,) = torch.autograd.grad(loss.total, leaf)
        self.parts = list(loss.parts)
        if self.max_grad_norm is not None:
            norm = torch.linalg.vector_norm(gradient)
            gradient = gradient * (self.max_grad_norm / (norm + 1e-6)).clamp(max=1.0)
        return gradient, torch.stack(list(loss.parts.values()))


class A3CLearner:
    """Copies a model for its agent to act with, and turns what the agent did into gradients at that copy."""

    def __init__(
        self, agent: ActorCritic, objective: Objective, *, entropy: float, max_grad_norm: float | None, compile: bool
    ) -> None:
        self.agent, self.objective, self.entropy = agent, objective, entropy
        self.max_grad_norm, self.compile = max_grad_norm, compile
        self.flat = Flat(agent.named_parameters())
        self.parameters = self.flat.join(dict(agent.named_parameters()))
        self._steps: dict[Objective, _Step] = {}
        self._parts: Tensor | None = None  # summed since the last report
        self._count, self._names = 0, list[str]()

    @property
    def compile_seconds(self) -> float:
        """Time spent compiling so far."""
        return sum(step.run.seconds for step in self._steps.values())

    @torch.no_grad()
    def take(self, model: Model) -> None:
        """Let the agent act with what the model is now."""
        self.parameters.copy_(model.parameters)
        self.flat.write(self.parameters, self.agent)

    @torch.no_grad()
    def gradient(self, batch: Batch, env_step: int) -> Tensor:
        """The gradient (P,) of the loss of a batch; stops if it is not finite.

        env_step  where the objective's schedules stand
        """
        objective = self.objective.at(env_step)
        if objective not in self._steps:
            losses = _Losses(self.agent, objective, self.entropy)
            self._steps[objective] = _Step(losses, self.flat, self.max_grad_norm, self.compile)
        step, at = self._steps[objective], objective.coefficients(env_step)
        coefficients = [self.parameters.new_tensor(at[name]) for name in step.coefficients]
        gradient, parts = step.run(self.parameters, *batch, *coefficients)
        if not bool(torch.isfinite(gradient).all()):
            raise FloatingPointError(f"the gradient is not finite at step {env_step}: the training has diverged")
        if self._names != step.parts:  # the objective has changed: begin to count anew
            self._names, self._parts, self._count = step.parts, None, 0
        self._parts, self._count = parts if self._parts is None else self._parts + parts, self._count + 1
        return gradient

    def report(self) -> dict[str, float]:
        """Means of the parts of the loss since the last report, for the log; stops if one is not finite."""
        if self._parts is None:
            return {}
        metrics = dict(zip(self._names, (self._parts / self._count).tolist(), strict=True))
        for name, value in metrics.items():
            if not math.isfinite(value):
                raise FloatingPointError(f"{name} is {value} after an update: the training has diverged")
        self._parts, self._count = None, 0
        return metrics
