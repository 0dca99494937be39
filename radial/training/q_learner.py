"""One update of deep Q-learning: its gradient is a pure function of tensors that is compiled whole, then Adam moves.

Forward passes, bounds, losses and backward are one function; where the transitions come from is not known here.
"""

import copy
import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from radial.agents.q_agent import QAgent
from radial.objectives.q_learning import TD, Batch, Nets, Objective, QLoss
from radial.training.adam import Flat, Moments, adam_, start
from radial.training.compiled import Lazy


class Transitions(NamedTuple):
    """What is learned from, as the replay gives it, all with leading (B,)."""

    obs: Tensor
    action: Tensor
    reward: Tensor
    next_obs: Tensor
    terminated: Tensor
    weight: Tensor
    steps: Tensor  # from obs to next_obs


class Rules(NamedTuple):
    """What defines an update besides its objective."""

    td: TD
    discount: float
    adam_eps: float
    max_grad_norm: float | None


class _Losses(nn.Module):
    """The loss of an objective as one module that owns all its networks, for `functional_call`."""

    def __init__(self, agent: QAgent, student: QAgent | None, objective: Objective, rules: Rules) -> None:
        super().__init__()
        self.online = agent.network
        self.target = copy.deepcopy(agent.network).requires_grad_(False)
        self.student = None if student is None else student.network
        self.prepare, self.valid_range = agent.prepare, agent.valid_range
        self.objective, self.rules = objective, rules

    def forward(self, data: Transitions, noise: Tensor, at: Mapping[str, Tensor]) -> QLoss:
        discount = self.rules.discount**data.steps * (1 - data.terminated.float())
        x, next_x = self.prepare(data.obs), self.prepare(data.next_obs)
        batch = Batch(x, data.action, data.reward, next_x, discount, data.weight, noise)
        nets = Nets(self.online, self.target, self.student, self.valid_range)
        return self.objective(nets, batch, at, self.rules.td)


class _Step:
    """The update of one batch under one objective, compiled when it is first taken."""

    def __init__(self, losses: _Losses, trained: Flat, target: Flat, compile: bool) -> None:
        self.losses, self.trained, self.target = losses, trained, target
        self.coefficients = list(losses.objective.coefficients(0))
        self.draws = losses.objective.draws
        self.parts: list[str] = []  # names of what the step reports
        self.run = Lazy(self.pure, compile)

    def pure(self, parameters: Tensor, target: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        """The gradient (P,), the parts of the loss (K,), priorities (B,). rest: data, noise, coefficients."""
        data, noise = Transitions(*rest[:7]), rest[7]
        at = dict(zip(self.coefficients, rest[8:], strict=True))
        with torch.enable_grad():
            leaf = parameters.detach().requires_grad_(True)
            named = self.trained.split(leaf) | {f"target.{n}": p for n, p in self.target.split(target).items()}
            loss = functional_call(self.losses, named, (data, noise, at))
            (gradient,) = torch.autograd.grad(loss.total, leaf)
        self.parts = list(loss.parts)
        if self.losses.rules.max_grad_norm is not None:
            norm = torch.linalg.vector_norm(gradient)
            gradient = gradient * (self.losses.rules.max_grad_norm / (norm + 1e-6)).clamp(max=1.0)
        return gradient, torch.stack(list(loss.parts.values())), loss.priority


class QLearner:
    """Owns the flat parameters, the target's, and Adam's memory; `write_back` gives the networks what was learned."""

    def __init__(
        self, agent: QAgent, student: QAgent | None, objective: Objective, rules: Rules, *, rate: float, compile: bool
    ) -> None:
        self.agent, self.student, self.objective, self.rules = agent, student, objective, rules
        self.rate, self.compile = rate, compile
        self._networks = {"online": agent.network} | ({} if student is None else {"student": student.network})
        named = dict(self._named())
        self.trained, self.of_target = Flat(named.items()), Flat(agent.network.named_parameters())
        self.parameters = self.trained.join(named)
        self.target = self.of_target.join(dict(agent.network.named_parameters()))
        self.moments = start(self.parameters)
        self._steps: dict[Objective, _Step] = {}
        self._parts: Tensor | None = None  # summed since the last report
        self._count, self._names = 0, list[str]()

    def _named(self) -> list[tuple[str, Tensor]]:
        return [(f"{at}.{name}", p) for at, net in self._networks.items() for name, p in net.named_parameters()]

    @property
    def compile_seconds(self) -> float:
        """Time spent compiling so far."""
        return sum(step.run.seconds for step in self._steps.values())

    @torch.no_grad()
    def learn(self, data: Transitions, env_step: int, rng: torch.Generator, left: float = 1.0) -> Tensor:
        """One update; the absolute temporal differences of the batch (B,).

        env_step  where the objective's schedules stand        left  what is left of the learning rate, 0 … 1
        """
        objective = self.objective.at(env_step)
        if objective not in self._steps:
            losses = _Losses(self.agent, self.student, objective, self.rules)
            self._steps[objective] = _Step(losses, self.trained, self.of_target, self.compile)
        step = self._steps[objective]
        at = objective.coefficients(env_step)
        coefficients = [self.parameters.new_tensor(at[name]) for name in step.coefficients]
        shape = (data.obs.shape[0] if step.draws else 0, step.draws, *data.obs.shape[1:])
        noise = torch.randn(shape, generator=rng, device=data.obs.device)
        gradient, parts, priority = step.run(self.parameters, self.target, *data, noise, *coefficients)
        adam_(self.parameters, gradient, self.moments, self.rate * left, self.rules.adam_eps)
        if self._names != step.parts:  # the objective has changed: begin to count anew
            self._names, self._parts, self._count = step.parts, None, 0
        self._parts, self._count = parts if self._parts is None else self._parts + parts, self._count + 1
        return priority

    def sync_target(self) -> None:
        """Make the target network what the online network is now."""
        self.target = self.parameters[: self.target.shape[0]].clone()  # the online network comes first

    @torch.no_grad()
    def write_back(self) -> None:
        """Give the networks what was learned."""
        pieces = self.trained.split(self.parameters)
        for name, parameter in self._named():
            parameter.copy_(pieces[name])

    def report(self) -> dict[str, float]:
        """Means of the parts of the loss since the last report, for the log; stops if something is not finite."""
        if self._parts is None:
            return {}
        metrics = dict(zip(self._names, (self._parts / self._count).tolist(), strict=True))
        for name, value in (metrics | {"the largest weight": float(self.parameters.abs().max())}).items():
            if not math.isfinite(value):
                raise FloatingPointError(f"{name} is {value} after an update: the training has diverged")
        self._parts, self._count = None, 0
        return metrics

    def state(self) -> dict[str, Tensor]:
        """Everything to go on from."""
        moments = {f"adam.{name}": tensor for name, tensor in self.moments._asdict().items()}
        return {"parameters": self.parameters, "target": self.target} | moments

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go on from a saved state."""
        own = {
            name: tensor.to(self.parameters, copy=True) for name, tensor in state.items() if tensor.is_floating_point()
        }
        self.parameters, self.target = own["parameters"], own["target"]
        self.moments = Moments(*(own[f"adam.{name}"] for name in Moments._fields))
        self.write_back()
