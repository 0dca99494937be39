"""Constant adversaries: the same action at every step. Cheap to try, often nearly as bad, and where trainings start.

All constants play side by side in one vector env; the best ones become policies.
"""

import itertools
import math

import torch
from torch import Tensor

from radial.agents.policies import CategoricalAgent, GaussianAgent, agent_for
from radial.attacks.gradient import Memoryless
from radial.attacks.learned.forms import Form, view_size
from radial.attacks.learned.world import Threat
from radial.core.agent import Agent
from radial.core.ball import Ball
from radial.core.data import BadInput, Continuous, Discrete, EnvSpec, Step, VecEnv
from radial.envs.make import make_env
from radial.envs.wrapper import EnvWrapper, as_trained
from radial.evaluation.play import play, under_attack
from radial.evaluation.statistics import mean

MOST_CONSTANTS = 26  # 3³ − 1
EPISODES_EACH = 2
CONFIDENCE = 3.0  # of a constant choice: the lead of its logit
_WIDTH = 0.5  # standard deviation with which a training around a constant begins


class TooLong(Exception):
    """The episodes do not end within the budget.

    steps   spent on them until then
    length  that an episode has at least, as far as is known
    """

    def __init__(self, steps: int, length: int = 0) -> None:
        super().__init__(steps, length)
        self.steps, self.length = steps, length


class TooFewSteps(BadInput):
    """A budget in which too few episodes end; how many it takes is known only after they were begun."""


class Limited(EnvWrapper):
    """A vector env for so many env steps, and not one more; then it raises `TooLong`."""

    def __init__(self, env: VecEnv, limit: int) -> None:
        super().__init__(env)
        self.limit = limit

    def step(self, action: Tensor) -> Step:  # noqa: D102
        if self.env.steps + self.env.num_envs > self.limit:
            raise TooLong(self.env.steps)
        return self.env.step(action)


class _PerRow(Memoryless):
    """Row i is moved by the i-th action."""

    def __init__(self, form: Form, actions: Tensor) -> None:
        self.form, self.actions = form, actions

    def perturb(self, agent: Agent, ball: Ball, rng: torch.Generator) -> Tensor:
        return self.form.realise(agent.choice, ball, self.actions)


def constants(actions: Discrete | Continuous, rng: torch.Generator) -> Tensor:
    """The actions to try, (K, D) or (K,): every choice; all of {−1, 0, 1}ᴰ but 0, or axes and random corners.

    At most MOST_CONSTANTS, the first ones of many choices.
    """
    if isinstance(actions, Discrete):
        return torch.arange(min(actions.n, MOST_CONSTANTS))
    size = actions.size
    if 3**size - 1 <= MOST_CONSTANTS:
        return torch.tensor([row for row in itertools.product((-1.0, 0.0, 1.0), repeat=size) if any(row)])
    axes = torch.cat([torch.eye(size), -torch.eye(size)]) if 4 * size <= MOST_CONSTANTS else torch.empty(0, size)
    corners = torch.randint(2, (MOST_CONSTANTS - len(axes), size), generator=rng) * 2.0 - 1
    return torch.cat([axes, corners])


def screened(agent: Agent, form: Form, threat: Threat, spec: EnvSpec, limit: int, seed: int) -> tuple[Tensor, int]:
    """The constants from the worst for the agent to the mildest, and the env steps that this took.

    limit  of env steps; `TooLong` if the episodes need more
    """
    rng = torch.Generator().manual_seed(seed)
    probe = make_env(spec, 1, seed)
    actions = form.actions(agent, probe.observation_shape)
    probe.close()
    tried = constants(actions, rng)
    env = make_env(spec, len(tried) * EPISODES_EACH, seed)
    try:
        rows = tried.repeat(EPISODES_EACH, *[1] * (tried.ndim - 1))
        choose = under_attack(agent, _PerRow(form, rows), threat.budget(), threat.p, rng)
        returns = play(Limited(as_trained(agent, env), limit), choose, env.num_envs).returns
        scores = [mean(returns[at :: len(tried)]) for at in range(len(tried))]
        order = sorted(range(len(tried)), key=lambda at: scores[at])
        return tried[torch.tensor(order)], env.steps
    finally:
        env.close()


def constant_policy(
    agent: Agent, shape: tuple[int, ...], actions: Discrete | Continuous, hidden: tuple[int, ...], action: Tensor,
    seed: int,
) -> GaussianAgent | CategoricalAgent:  # fmt: skip
    """A policy that takes nearly always this action, ready to be trained."""
    policy = agent_for((view_size(agent, shape),), actions, hidden)
    policy.initialize(torch.Generator().manual_seed(seed))
    last = policy.network[-1]  # type: ignore[index]
    with torch.no_grad():
        if isinstance(policy, GaussianAgent):
            last.bias.copy_(action)
            policy.log_std.fill_(math.log(_WIDTH))
        else:
            last.bias[int(action)] = CONFIDENCE
    return policy
