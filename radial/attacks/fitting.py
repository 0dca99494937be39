"""Tools of attacks that fit a model first: transitions of the agent's own play, actions as vectors, a fresh network.

The models, and how they are turned against the agent, are in `sarsa`, `compounding` and `transfer`.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from radial.agents.foreign import as_agent, known_shape
from radial.agents.networks import mlp
from radial.agents.normalizer import RewardScale
from radial.core.agent import Agent
from radial.core.checks import brief, check_whole
from radial.core.data import BadInput, Continuous, Discrete, EnvSpec, VecEnv
from radial.envs.make import make_env, spec_for, stacked
from radial.envs.wrapper import as_trained

VEC_ENV_PARTS = ("spec", "num_envs", "observation_shape", "actions", "reset", "step")


@dataclass(frozen=True, eq=False)
class Experience:
    """n steps of the agent, each with its true successor; observations prepared, actions as vectors.

    x, next_x            (n, *obs)
    action, next_action  (n, A)  taken in x, and chosen in next_x
    reward               (n,)  scaled by the standard deviation of the running return
    terminated           (n,) bool  next_x has no future. A time limit is not an end: its successor counts
    """

    x: Tensor
    action: Tensor
    reward: Tensor
    next_x: Tensor
    next_action: Tensor
    terminated: Tensor

    def __len__(self) -> int:
        return self.x.shape[0]

    def __getitem__(self, index: Tensor) -> "Experience":
        """Some of the rows; a row carries its successor with it, so any order will do."""
        return Experience(**{name: value[index] for name, value in vars(self).items()})


class Rollouts:
    """An agent at play in a vector env, collected in pieces; the episodes go on from one piece to the next."""

    def __init__(self, agent: Agent, env: VecEnv, rng: torch.Generator, *, stochastic: bool, discount: float) -> None:
        check_spaces_of(agent, env)
        self.agent, self.env, self.rng = agent, as_trained(agent, env), rng
        self.stochastic = stochastic
        self.scale = RewardScale(env.num_envs, discount)
        self.x = agent.prepare(env.reset())
        self.action = self._act(self.x)

    @torch.no_grad()
    def _act(self, x: Tensor) -> Tensor:
        return self.agent.act(x, self.rng if self.stochastic else None)

    @torch.no_grad()
    def collect(self, samples: int) -> Experience:
        """The next `samples` transitions; resets are none."""
        pieces: list[dict[str, Tensor]] = []
        count = 0
        while count < samples:
            step = self.env.step(self.action)
            next_x = self.agent.prepare(step.obs)
            # Also where an episode ended: the env ignores that action, but after a time limit it is the successor's.
            next_action = self._act(next_x)
            rows = {
                "x": self.x,
                "action": as_vector(self.agent.actions, self.action),
                "reward": self.scale(step.reward, step.ended, step.real),
                "next_x": next_x,
                "next_action": as_vector(self.agent.actions, next_action),
                "terminated": step.terminated,
            }
            pieces.append({name: value[step.real] for name, value in rows.items()})
            count += int(step.real.sum())
            self.x, self.action = next_x, next_action
        return Experience(**{name: torch.cat([piece[name] for piece in pieces])[:samples] for name in pieces[0]})


@contextmanager
def fresh_env(env: EnvSpec | VecEnv, num_envs: int, seed: int) -> Iterator[VecEnv]:
    """An env of our own made from its spec and closed again, or a fresh one of the caller's, left open."""
    if not isinstance(env, EnvSpec):
        yield env
        return
    made = make_env(env, num_envs, seed)
    try:
        yield made
    finally:
        made.close()


def fit_inputs(agent: Agent, env: EnvSpec | VecEnv | str, seed: int) -> tuple[Agent, EnvSpec | VecEnv, int]:
    """What every `fit` takes, checked: any agent, an id or a spec or a fresh VecEnv, a seed."""
    agent, seed = as_agent(agent), check_whole("seed", seed, 0)
    if isinstance(env, str):
        return agent, stacked(spec_for(env), known_shape(agent)), seed
    if not (isinstance(env, EnvSpec) or all(hasattr(env, part) for part in VEC_ENV_PARTS)):
        raise BadInput(f"env must be an id such as Hopper-v4, an EnvSpec or a VecEnv, got {brief(env)}")
    return agent, env, seed


def check_spaces_of(agent: Agent, env: VecEnv) -> None:
    """Refuse an agent whose spaces are not the env's."""
    shape = env.observation_shape if agent.observation_shape is None else agent.observation_shape
    if (shape, agent.actions) != (env.observation_shape, env.actions):
        raise BadInput(
            f"agent must fit the env: it has {agent.observation_shape} → {agent.actions}, "
            f"{env.spec} has {env.observation_shape} → {env.actions}"
        )


def spread_known(agent: Agent) -> bool:
    """Whether the agent's actions can be drawn: the spread of a third-party policy may not be known."""
    return isinstance(agent.actions, Discrete) or agent.log_std is not None


def as_vector(actions: Discrete | Continuous, action: Tensor) -> Tensor:
    """Actions as a network takes them: vectors as they are, choices as one-hot rows, (B, A) float32."""
    return F.one_hot(action, actions.n).float() if isinstance(actions, Discrete) else action.float()


def policy(agent: Agent, x: Tensor) -> Tensor:
    """The agent's action in x as a differentiable vector: its mean action, or its action probabilities, (B, A)."""
    scores = agent.scores(x)
    return scores.softmax(-1) if isinstance(agent.actions, Discrete) else scores


def size_of(actions: Discrete | Continuous) -> int:
    """The length of an action as a vector."""
    return actions.n if isinstance(actions, Discrete) else actions.size


def fresh_mlp(sizes: Sequence[int], rng: torch.Generator) -> nn.Sequential:
    """A tanh MLP with orthogonal weights drawn from `rng`, gain √2 inside and 1 at the output, zero biases."""
    with torch.random.fork_rng(devices=[]):  # nn.Linear draws its first weights from the global generator
        network = mlp(sizes)
    layers = [layer for layer in network if isinstance(layer, nn.Linear)]
    for layer in layers:
        nn.init.orthogonal_(layer.weight, 1.0 if layer is layers[-1] else math.sqrt(2), generator=rng)
        nn.init.zeros_(layer.bias)
    return network


# A fit may learn for long after its last env step, and has no other place where a clock could stop it.
_between: ContextVar[Callable[[], None] | None] = ContextVar("between minibatches", default=None)


@contextmanager
def between_minibatches(tick: Callable[[], None]) -> Iterator[None]:
    """Call `tick` before every minibatch; it may raise to end the learning."""
    token = _between.set(tick)
    try:
        yield
    finally:
        _between.reset(token)


def minibatches(count: int, parts: int, rng: torch.Generator) -> Iterator[Tensor]:
    """The numbers 0 … count − 1 in random order, cut into `parts` pieces."""
    tick = _between.get()
    for rows in torch.randperm(count, generator=rng).tensor_split(parts):
        if tick is not None:
            tick()
        yield rows
