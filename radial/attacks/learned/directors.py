"""Many linear directors at once, against an agent in training: a search that never ends, and a pool of what it found.

A policy-gradient adversary (`alternating.LearningOpponent`) rarely finds the falls of a robust agent; a cross-entropy
search over whole returns does (`linear`). Each env of a rollout keeps one director until the next turn, because a
perturbation hurts by its persistence. The pool holds those that hurt the present agent most, whenever they were found:
of a robust agent's falls each needs a director of its own, most directors cause none, and an agent forgets.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from radial.attacks.learned.forms import Steer, view, view_size
from radial.attacks.learned.linear import CrossEntropy, directed
from radial.attacks.learned.world import AdversaryWorld, Realiser, Threat
from radial.core.data import BadInput, Discrete
from radial.runs.run import derived_seed
from radial.training.adversary import norm_of
from radial.training.ppo import Making, PPOConfig
from radial.training.sight import PPOAgent

POPULATION = 32  # directors of a generation, an episode each
GENERATIONS = 8  # of a search; then the next one starts from nothing
POOL = 8  # directors that are kept


def attacked_envs(config: PPOConfig, observation_shape: tuple[int, ...]) -> int:
    """How many environments of a rollout are each under a director: the share `attack_probability`, rounded."""
    if len(observation_shape) != 1:
        raise BadInput(f"attack must be sarl or paad for frames: linear is for vectors, got {observation_shape}")
    count = round(config.attack_probability * config.num_envs)
    if not count:
        raise BadInput(
            f"attack_probability must be > {0.5 / config.num_envs:g}, so that directors attack at least one of the "
            f"{config.num_envs} envs, got {config.attack_probability:g}"
        )
    return count


class Directors:
    """An opponent (`training.adversary.Opponent`): a share of the envs each play under one linear director.

    The share is `attack_probability`. Half of the attacked envs, on average, get one of the best of the last
    generation, the others one of the pool. After every `turns.agent` updates of the agent come `turns.adversary`
    generations, played against the agent's mean or likeliest actions together with the pool, which keeps the worst of
    both.
    """

    def __init__(self, agent: PPOAgent, config: PPOConfig, seed: int, make: Making) -> None:
        assert config.turns is not None, "a config with an adversary that learns has turns"
        shape = agent.observation_shape
        assert shape is not None
        self.agent, self.config, self.seed, self._make_env = agent, config, seed, make
        self.turns, self.form, self.steps = config.turns, Steer(), 0
        self.p = norm_of(config)
        self.attacked = attacked_envs(config, shape)
        # A compiled function has one shape, so the rollouts' and the search's are two.
        self.realise, self.realise_search = (
            Realiser(agent, self.form, Threat(0.0, self.p), config.compile) for _ in range(2)
        )
        space = self.form.actions(agent, shape)
        self.discrete = isinstance(space, Discrete)
        self._sizes = (space.n if isinstance(space, Discrete) else space.size), view_size(agent, shape)
        self.rng = torch.Generator().manual_seed(derived_seed(seed, "directors"))
        self.search, self.generation = CrossEntropy.start(*self._sizes, self.rng), 0
        self.pool = self.search.draw(POOL)  # random ones, until others are found
        self.weights = self.pool[torch.arange(self.attacked) % POOL]  # of the first envs; the others are not attacked

    # --------------------------------------------------------------------------------------------------- the attack

    def begin(self, radius: float) -> bool:
        """Set the radius; return whether there is anything to attack."""
        self.realise.threat = self.realise_search.threat = Threat(radius, self.p)
        return radius > 0

    @torch.no_grad()
    def __call__(self, x: Tensor, rng: torch.Generator) -> Tensor:
        """The observations the agent is shown instead of x (N, features)."""
        one, count = x[: self.attacked], self.attacked
        shown = self.realise(one, directed(self.weights, view(self.agent, one), self.discrete))
        return torch.cat([shown, x[count:]])

    # --------------------------------------------------------------------------------------------------- its turns

    def turn(self, step: int, update: int, left: float) -> dict[str, float]:
        """Play generations against the agent as it is now, if it is time, and deal directors to the envs anew."""
        if not self.realise.threat.largest > 0 or update % self.turns.agent:
            return {}
        returns = every = torch.empty(0)
        for number in range(self.turns.adversary):
            self.search.best = []  # of an agent that has changed since
            drawn = self.search.draw(POPULATION)
            playing = torch.cat([drawn, self.pool])
            every = self._play(playing, derived_seed(self.seed, "directors", step + number))
            returns = every[:POPULATION]
            self.search.learn(drawn, returns)
            self.generation += 1
            self.pool = playing[every.argsort(stable=True)[:POOL]]
        self._deal()
        if self.generation % GENERATIONS == 0:
            self.search = CrossEntropy.start(*self._sizes, self.rng)
        low, mean = float(every.min()), float(returns.mean())
        return {"adversary/return": mean, "adversary/lowest": low, "adversary/steps": float(self.steps)}

    def _deal(self) -> None:
        """Which director each attacked env has until the next turn."""
        latest = torch.stack([weights for _, weights in self.search.best])
        fresh = torch.rand(self.attacked, generator=self.rng) < 0.5
        of_pool = torch.randint(POOL, (self.attacked,), generator=self.rng)
        of_latest = torch.randint(len(latest), (self.attacked,), generator=self.rng)
        self.weights = torch.where(fresh[:, None, None], latest[of_latest], self.pool[of_pool])

    def _play(self, weights: Tensor, seed: int) -> Tensor:
        """The agent's return in one episode under each director, (len(weights),)."""
        count = len(weights)
        env = self._make_env(self.config.env, count, seed, threads=1)
        world = AdversaryWorld(env, self.agent, self.form, self.realise_search)
        try:
            seen = world.reset()
            returns, playing = torch.zeros(count, dtype=torch.float64), torch.ones(count, dtype=torch.bool)
            while playing.any():
                step = world.step(directed(weights, seen, self.discrete))
                returns += step.score * playing
                self.steps += int(playing.sum())
                playing &= ~step.ended
                seen = step.obs
        finally:
            world.close()
        return returns.float()

    def leave(self) -> None:
        """No environments stay open between turns."""

    # -------------------------------------------------------------------------------------------------- checkpoints

    def state(self) -> dict[str, Tensor]:
        """Everything to resume from."""
        return {
            "mean": self.search.mean, "deviation": self.search.deviation, "rng": self.rng.get_state(),
            "pool": self.pool, "weights": self.weights, "count": torch.tensor([self.generation, self.steps]),
        }  # fmt: skip

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Resume from a saved state."""
        self.rng.set_state(state["rng"])
        self.search = CrossEntropy(state["mean"], state["deviation"], self.rng)
        self.pool, self.weights = state["pool"], state["weights"]
        self.generation, self.steps = state["count"].tolist()
