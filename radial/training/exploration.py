"""Exploration of deep Q-learning: ε-greedy, with exploring actions that may last several steps."""

from dataclasses import dataclass

import torch
from torch import Tensor

from radial.agents.actor_critic import ActorCritic
from radial.agents.q_agent import QAgent
from radial.training.adversary import RolloutAttack


@dataclass
class Detour:
    """The exploration under way: each env's exploring action (N,), and how many steps it still lasts (N,)."""

    action: Tensor
    left: Tensor
    length: int

    @classmethod
    def none(cls, envs: int, length: int, device: torch.device) -> "Detour":
        """A detour in which no env explores."""
        return cls(torch.zeros(envs, dtype=torch.int64, device=device), torch.zeros(envs, device=device), length)


@torch.no_grad()
def explore(
    agent: QAgent | ActorCritic, obs: Tensor, epsilon: float, rng: torch.Generator, detour: Detour | None = None,
    adversary: RolloutAttack | None = None,
) -> Tensor:  # fmt: skip
    """The greedy action of each row (N,), or in a share `epsilon` of the steps any action.

    detour  advanced in place. An exploring action lasts `length` steps, so it begins more rarely: with a probability p
            for which p·length / (p·length + 1 − p) = ε. (After Dabney et al. 2021, whose lengths are random.)
    adversary  attacks what the agent sees when it acts
    """
    rows = obs.shape[0]
    detour = detour or Detour.none(rows, 1, rng.device)
    rare = epsilon / (detour.length - epsilon * (detour.length - 1))
    begin = (torch.rand(rows, generator=rng, device=rng.device) < rare) & (detour.left == 0)
    anywhere = torch.randint(agent.actions.n, (rows,), generator=rng, device=rng.device)
    detour.action = torch.where(begin, anywhere, detour.action)
    detour.left = torch.where(begin, detour.length, detour.left)
    wander = detour.left > 0
    detour.left = (detour.left - 1).clamp(min=0)
    if bool(wander.all()):
        return detour.action
    x = agent.prepare(obs)
    return torch.where(wander, detour.action, agent.act(x if adversary is None else adversary(x, rng)))
