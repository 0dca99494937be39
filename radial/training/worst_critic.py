"""WocaR's second critic: the value of an action if every later one is the worst within reach of a perturbation.

The objective that uses it is `WocaR` in objectives/surrogate.py (Liang et al. 2022).
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from radial.agents.networks import mlp
from radial.agents.policies import GaussianAgent
from radial.bounds.mix import bounds_of
from radial.core.ball import Ball
from radial.core.data import Bounds
from radial.objectives.surrogate import WocaR
from radial.training.adam import AdamState, start
from radial.training.adam import adam as step_of
from radial.training.native import Compiled
from radial.training.rollouts import Rollout
from radial.training.update import Flat, stop_if_not_finite

SEARCH_STEPS = 50  # of the search for the worst action, as in the authors' code


class _Ends(NamedTuple):
    """Bounds (B, D), as a compiled function takes them."""

    lower: Tensor
    upper: Tensor


class _Rows(NamedTuple):
    """Transitions of a minibatch: x (B, *obs), action (B, D), target (B,)."""

    x: Tensor
    action: Tensor
    target: Tensor


class WorstCritic:
    """Q_w(s, a) ← r + γ·Q_w(s′, a′), a′ the action with the lowest Q_w within bounds on π(s′), |perturbation| ≤ reach.

    A network of its own, on (s, a), with Adam's state and a target network that follows at the objective's `tau`. The
    worst actions are sought by the online network, once per rollout; the target network judges them.
    """

    def __init__(
        self, agent: GaussianAgent, objective: WocaR, rng: torch.Generator, *, hidden: tuple[int, ...], minibatch: int,
        epochs: int, discount: float, compile: bool,
    ) -> None:  # fmt: skip
        self.agent, self.objective = agent, objective
        self.minibatch, self.epochs, self.discount = minibatch, epochs, discount
        self.network = mlp([agent.observation_shape[0] + agent.actions.size, *hidden, 1])
        layers = [layer for layer in self.network if isinstance(layer, nn.Linear)]
        for layer in layers:
            nn.init.orthogonal_(layer.weight, 1.0 if layer is layers[-1] else math.sqrt(2), generator=rng)
            nn.init.zeros_(layer.bias)
        self.network.to(next(agent.parameters()).device)
        self.flat = Flat(self.network.named_parameters())
        self.parameters = self.flat.join(dict(self.network.named_parameters()))
        self.target, self.adam = self.parameters.clone(), start(self.parameters)
        self._descend, self._fit = Compiled(self._lower, compile), Compiled(self._regress, compile)

    @torch.no_grad()
    def learn(self, rollout: Rollout, rng: torch.Generator) -> dict[str, float]:
        """Fit Q_w to the real rows of a rollout, in as many epochs as the policy."""
        x, next_x = (each.flatten(0, 1) for each in (rollout.x[:-1], rollout.x[1:]))
        worst = self.worst_actions(next_x)
        discount = self.discount * (~rollout.terminated).flatten().to(x.dtype)
        action, reward, real = (each.flatten(0, 1) for each in (rollout.action, rollout.reward, rollout.real))
        rows, losses = real.nonzero().squeeze(1), list[Tensor]()
        for _ in range(self.epochs):
            aim = reward + discount * self.value(self.target, next_x, worst)
            order = rows[torch.randperm(len(rows), generator=rng, device=rows.device)]
            for chosen in order[: len(order) - len(order) % self.minibatch].split(self.minibatch):
                data = _Rows(x[chosen], action[chosen], aim[chosen])
                self.parameters, self.target, loss, *moments = self._fit(
                    parameters=self.parameters, target=self.target, data=data, adam=self.adam
                )
                self.adam = AdamState(*moments)
                losses.append(loss)
        metrics = {"losses/worst_q_loss": float(torch.stack(losses).mean()), "robust/worst_q": float(aim[real].mean())}
        stop_if_not_finite(metrics)
        return metrics

    @torch.no_grad()
    def judge(self, x: Tensor, action: Tensor) -> Tensor:
        """The target network's Q_w, (B,)."""
        return self.value(self.target, x, action)

    def worst_actions(self, x: Tensor) -> Tensor:
        """The actions with the lowest Q_w that sign steps from the means at x find within reach, (B, D)."""
        bounds, action = self.in_reach(x), self.agent.scores(x)
        ends = _Ends(bounds.lower, bounds.upper)
        for _ in range(SEARCH_STEPS):
            (action,) = self._descend(parameters=self.parameters, x=x, action=action, ends=ends)
        return action

    def in_reach(self, x: Tensor) -> Bounds:
        """Bounds of the action means over the ball of radius `reach`, (B, D)."""
        return bounds_of(self.agent.choice, Ball.unchecked(x, self.objective.reach, self.objective.p), "ibp", {})

    def value(self, parameters: Tensor, x: Tensor, action: Tensor) -> Tensor:
        """Q_w with these parameters (P,), (B,)."""
        found: Tensor = functional_call(self.network, self.flat.split(parameters), (torch.cat([x, action], -1),))
        return found.squeeze(-1)

    def _lower(self, parameters: Tensor, x: Tensor, action: Tensor, ends: _Ends) -> tuple[Tensor]:
        """One step of (upper − lower)/SEARCH_STEPS down Q_w, within the bounds."""
        with torch.enable_grad():
            action = action.detach().requires_grad_(True)
            (slope,) = torch.autograd.grad(self.value(parameters, x, action).sum(), action)
        moved = action.detach() - (ends.upper - ends.lower) / SEARCH_STEPS * slope.sign()
        return (torch.minimum(torch.maximum(moved, ends.lower), ends.upper),)

    def _regress(self, parameters: Tensor, target: Tensor, data: _Rows, adam: AdamState) -> tuple[Tensor, ...]:
        """One step of Adam on the squared error, and the target network a little way after it."""
        with torch.enable_grad():
            leaf = parameters.detach().requires_grad_(True)
            loss = (self.value(leaf, data.x, data.action) - data.target).square().mean()
            (gradient,) = torch.autograd.grad(loss, leaf)
        moved, state = step_of(parameters, gradient, adam, parameters.new_tensor(self.objective.rate))
        return moved, torch.lerp(target, moved, self.objective.tau), loss.detach(), *state

    def state(self) -> dict[str, Tensor]:
        """Everything to resume from."""
        return {"parameters": self.parameters, "target": self.target, **self.adam._asdict()}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Resume from a saved state."""
        self.parameters, self.target = (state[name].to(self.parameters) for name in ("parameters", "target"))
        self.adam = AdamState(*(state[name].to(self.parameters) for name in AdamState._fields))
