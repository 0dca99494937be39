"""Linear adversaries: their action is W·(what they see, 1), found by the cross-entropy method (Rubinstein 1999).

All candidates of a generation play side by side, one episode each, and the agent's whole return is the score: neither
a discount nor a critic stands between an early end and the adversary. Against robust agents this finds falls that
trainings by policy gradient miss, in fewer env steps.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from radial.agents.policies import CategoricalAgent, GaussianAgent, agent_for
from radial.attacks.gradient import Memoryless
from radial.attacks.learned.forms import Form, view, view_size
from radial.attacks.learned.screening import Limited, TooLong
from radial.attacks.learned.world import Threat
from radial.core.agent import Agent
from radial.core.ball import Ball
from radial.core.data import Continuous, Discrete, EnvSpec
from radial.envs.make import make_env
from radial.envs.wrapper import as_trained
from radial.evaluation.play import play, under_attack
from radial.runs.run import derived_seed

LEAST_LIMIT = 2_048  # env steps; most tasks need more
FEWEST, MOST, EACH = 16, 64, 5_000  # candidates of a generation: one for so many env steps of the limit
ELITE = 1 / 6  # share of a generation that the next one is drawn around
FINALISTS = 8  # of all generations, played again before one is chosen
_NEW, _LEAST = 0.7, 0.05  # weight of a generation's moments against those before it, and the least deviation
_SPREAD = -1.6  # log of the deviation with which it is sampled: 0.2


class _LinearRows(Memoryless):
    """Row i is moved by the i-th linear adversary; weights (N, A, features + 1), the last column its bias."""

    def __init__(self, form: Form, weights: Tensor, discrete: bool) -> None:
        self.form, self.weights, self.discrete = form, weights, discrete

    def perturb(self, agent: Agent, ball: Ball, rng: torch.Generator) -> Tensor:
        with torch.no_grad():
            action = directed(self.weights, view(agent, ball.center), self.discrete)
        return self.form.realise(agent.choice, ball, action)


def directed(weights: Tensor, seen: Tensor, discrete: bool) -> Tensor:
    """What the i-th linear adversary does about the i-th view: (N, A, features + 1), (N, features) → (N,) or (N, A)."""
    weights = weights.to(seen)
    scores = (weights[..., :-1] @ seen[..., None]).squeeze(-1) + weights[..., -1]
    return scores.argmax(-1) if discrete else scores


@dataclass
class CrossEntropy:
    """A normal distribution over the weights, independent in each, that follows the best of its own draws.

    mean, deviation  (A, features + 1). At first the bias and all features together move the action by about 1
    """

    mean: Tensor
    deviation: Tensor
    rng: torch.Generator
    best: list[tuple[float, Tensor]] = field(default_factory=list)  # (return, weights), the lowest first

    @classmethod
    def start(cls, actions: int, features: int, rng: torch.Generator) -> "CrossEntropy":
        """Around the adversary that does nothing."""
        deviation = torch.full((actions, features + 1), features**-0.5)
        deviation[:, -1] = 1.0
        return cls(torch.zeros_like(deviation), deviation, rng)

    def draw(self, count: int) -> Tensor:
        """Candidates (count, A, features + 1); the first is the mean, the second the best so far."""
        noise = torch.randn(count, *self.mean.shape, generator=self.rng)
        drawn = self.mean + self.deviation * noise
        drawn[0] = self.mean
        if self.best:
            drawn[1] = self.best[0][1]
        return drawn

    def learn(self, drawn: Tensor, returns: Tensor) -> None:
        """Move to the candidates that left the agent least."""
        order = returns.argsort(stable=True)[: max(2, int(ELITE * len(drawn)))]
        elite = drawn[order]
        self.mean = (1 - _NEW) * self.mean + _NEW * elite.mean(0)
        self.deviation = ((1 - _NEW) * self.deviation + _NEW * elite.std(0)).clamp(min=_LEAST)
        seen = [(float(returns[at]), drawn[at].clone()) for at in order]
        self.best = sorted(self.best + seen, key=lambda pair: pair[0])[: FINALISTS - 1]


def enough_for(length: int) -> int:
    """The env steps of one generation and the last comparison, where episodes have this length."""
    population = FEWEST if length <= EACH // 2 else MOST  # longer ones need a limit that asks for more candidates
    return 2 * population * length


def searched(agent: Agent, form: Form, threat: Threat, spec: EnvSpec, limit: int, seed: int) -> tuple[Tensor, int]:
    """The weights (A, features + 1) of the linear adversary that hurt most when played again, and the steps spent.

    limit  of env steps; `TooLong` if not even one generation and the last comparison end within it
    """
    games = _Games(agent, form, threat, spec, limit, seed)
    search = CrossEntropy.start(games.actions, games.features, torch.Generator().manual_seed(seed))
    population = min(MOST, max(FEWEST, limit // EACH))
    for _ in games.affordable():
        drawn = search.draw(population)
        search.learn(drawn, games.play(drawn))
    finalists = torch.stack([search.mean, *(weights for _, weights in search.best)])
    each = population // len(finalists)
    scores = games.play(finalists.repeat(each, 1, 1)).view(each, -1).mean(0)
    return finalists[int(scores.argmin())], games.spent


class _Games:
    """Episodes of many adversaries at once, within a budget of env steps."""

    def __init__(self, agent: Agent, form: Form, threat: Threat, spec: EnvSpec, limit: int, seed: int) -> None:
        self.agent, self.form, self.threat, self.spec, self.limit, self.seed = agent, form, threat, spec, limit, seed
        probe = make_env(spec, 1, seed)
        space = form.actions(agent, probe.observation_shape)
        self.features = view_size(agent, probe.observation_shape)
        probe.close()
        self.discrete = isinstance(space, Discrete)
        self.actions = space.n if isinstance(space, Discrete) else space.size
        self.spent = self.count = self.longest = 0  # env steps in all, generations, env steps of the longest one
        self.length = 0  # of the longest episode, nearly

    def affordable(self) -> Iterator[int]:
        """Generations, as long as one more and the comparison at the end fit into the budget."""
        while self.count == 0 or self.spent + 2 * self.longest <= self.limit:
            yield self.count

    def play(self, weights: Tensor) -> Tensor:
        """The agent's return in one episode under each adversary, (N,)."""
        at = derived_seed(self.seed, "generation", self.count)
        env = make_env(self.spec, len(weights), at)
        try:
            limited = Limited(as_trained(self.agent, env), self.limit - self.spent)
            attack = _LinearRows(self.form, weights, self.discrete)
            rng = torch.Generator().manual_seed(at)
            choose = under_attack(self.agent, attack, self.threat.budget(), self.threat.p, rng)
            returns = play(limited, choose, len(weights)).returns
        except TooLong as cut:
            raise TooLong(self.spent + cut.steps, max(self.length, cut.steps // len(weights))) from None
        finally:
            steps = env.steps
            env.close()
        self.length = max(self.length, steps // len(weights))
        self.spent, self.count, self.longest = self.spent + steps, self.count + 1, max(self.longest, steps)
        return torch.tensor(returns)


def linear_policy(
    agent: Agent, shape: tuple[int, ...], actions: Discrete | Continuous, weights: Tensor
) -> GaussianAgent | CategoricalAgent:
    """The adversary as a policy without hidden layers."""
    policy = agent_for((view_size(agent, shape),), actions, ())
    policy.initialize(torch.Generator().manual_seed(0))
    last = policy.network[-1]  # type: ignore[index]
    with torch.no_grad():
        last.weight.copy_(weights[:, :-1])
        last.bias.copy_(weights[:, -1])
        if isinstance(policy, GaussianAgent):
            policy.log_std.fill_(_SPREAD)
    return policy
