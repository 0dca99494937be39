"""`StrongPGD`: projected ascent on every loss, and the one that hurts most in play.

A point that changes the action more surely need not cost more return: only episodes tell. So each loss plays a few of
its own, with equal seeds, and the lowest mean return decides.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from radial.agents.foreign import as_agent
from radial.attacks.fitting import check_spaces_of
from radial.attacks.gradient import PGD, Critic, Memoryless, attackable
from radial.attacks.learned.forms import Steer
from radial.core import checks
from radial.core.agent import Agent, Attack
from radial.core.ball import Ball
from radial.core.data import BadInput, Discrete, EnvSpec, VecEnv
from radial.envs.make import make_env
from radial.envs.wrapper import as_trained
from radial.evaluation.play import play, under_attack
from radial.evaluation.statistics import mean

STEPS, STEP_SIZE, RESTARTS = 20, 0.25, 5
MOST_TARGETS = {1: 18, 3: 6}  # actions, at most, that get a loss of their own; by the axes of an observation


@dataclass(frozen=True)
class Targeted(Memoryless):
    """Ascent towards one action: its lead over all others, or one end of one entry of the mean action."""

    target: int  # an action; against real-valued ones entry target // 2, up if even, down if odd
    steps: int = STEPS
    step_size: float = STEP_SIZE

    def draws_nothing(self, agent: Agent) -> bool:
        """It starts at the centre."""
        return True

    def perturb(self, agent: Agent, ball: Ball, rng: torch.Generator) -> Tensor:
        """The best iterate, (B, *obs)."""
        agent, rows = attackable(agent), len(ball.center)
        if isinstance(agent.actions, Discrete):
            wanted = torch.full((rows,), self.target, device=ball.center.device)
        else:
            wanted = ball.center.new_zeros(rows, agent.actions.size)
            wanted[:, self.target // 2] = 1.0 if self.target % 2 == 0 else -1.0
        return Steer(self.steps, self.step_size).realise(agent.choice, ball, wanted)


@dataclass(frozen=True, eq=False)
class StrongestPGD(Memoryless):
    """The loss that was chosen, and the attack that climbs it."""

    loss: str
    attack: Attack = field(repr=False)
    returns: Mapping[str, float] = field(repr=False)  # of every loss, on the episodes that decided

    def draws_nothing(self, agent: Agent) -> bool:
        """As the attack itself."""
        return bool(getattr(self.attack, "draws_nothing", lambda _: False)(agent))

    def perturb(self, agent: Agent, ball: Ball, rng: torch.Generator) -> Tensor:
        """The attack's answer, (B, *obs)."""
        return self.attack.perturb(agent, ball, rng)


@dataclass(frozen=True)
class StrongPGD:
    """PGD as in the papers, and with restarts on cross-entropy and margin, towards each action, and on the value.

    radius    None: set by `aimed`, which `evaluate` calls
    episodes  of each loss, whose seeds nothing else uses; on frames a fifth of them
    num_envs  of a VecEnv for `fit`, whose rows the losses share: it is played through once
    """

    radius: float | None = None
    p: float = math.inf
    episodes: int = 10
    num_envs: int = 40

    def __post_init__(self) -> None:
        checks.whole(self, "episodes", "num_envs")

    def aimed(self, radius: float, p: float) -> "StrongPGD":
        """The same for a radius and a norm, unless a radius is set."""
        return self if self.radius is not None else replace(self, radius=radius, p=p)

    def members(self, agent: Agent, shape: tuple[int, ...]) -> dict[str, Attack]:
        """The attacks that compete, by their loss."""
        strong = {"steps": STEPS, "step_size": STEP_SIZE, "restarts": RESTARTS}
        if isinstance(agent.actions, Discrete):
            members: dict[str, Attack] = {"cross-entropy, one run": PGD(), "margin": PGD(**strong, loss="margin")}  # type: ignore[arg-type]
            members["cross-entropy"] = PGD(**strong)  # type: ignore[arg-type]
            targets = agent.actions.n
        else:
            members = {"distance, one run": PGD(), "distance": PGD(**strong)}  # type: ignore[arg-type]
            targets = 2 * agent.actions.size
        if agent.has_value:
            members["value"] = Critic()
        if targets <= MOST_TARGETS.get(len(shape), 0):
            members |= {f"target {target}": Targeted(target) for target in range(targets)}
        return members

    def fit(self, agent: Agent, env: EnvSpec | VecEnv, seed: int) -> StrongestPGD:
        """Play each loss, and return the one under which the agent fared worst."""
        agent = as_agent(agent)
        if self.radius is None:
            raise BadInput("radius must be set: which loss hurts most depends on it")
        if isinstance(env, EnvSpec):
            returns, members = self._in_turn(agent, env, seed)
        else:
            check_spaces_of(agent, env)
            members = self.members(agent, env.observation_shape)
            returns = self._side_by_side(agent, env, members, seed)
        loss = min(returns, key=lambda name: returns[name])
        return StrongestPGD(loss, members[loss], returns)

    def _in_turn(self, agent: Agent, spec: EnvSpec, seed: int) -> tuple[dict[str, float], dict[str, Attack]]:
        """Equal seeds for all: the same episodes as far as the attacks leave them."""
        returns: dict[str, float] = {}
        members: dict[str, Attack] = {}
        number = 0
        while not members or number < len(members):
            env = make_env(spec, self.episodes, seed)
            try:
                check_spaces_of(agent, env)
                members = members or self.members(agent, env.observation_shape)
                name = list(members)[number]
                episodes = self.episodes if len(env.observation_shape) == 1 else max(1, self.episodes // 5)
                returns[name] = mean(self._played(agent, env, members[name], episodes, seed))
            finally:
                env.close()
            number += 1
        return returns, members

    def _side_by_side(self, agent: Agent, env: VecEnv, members: Mapping[str, Attack], seed: int) -> dict[str, float]:
        """Env i plays under loss i mod their number; losses beyond the number of envs are left out."""
        names = list(members)[: env.num_envs]
        shared = _Shared([members[name] for name in names])
        returns = self._played(agent, env, shared, env.num_envs, seed)
        return {name: mean(returns[at :: len(names)]) for at, name in enumerate(names)}

    def _played(self, agent: Agent, env: VecEnv, attack: Attack, episodes: int, seed: int) -> tuple[float, ...]:
        assert self.radius is not None
        rng = torch.Generator().manual_seed(seed)
        choose = under_attack(agent, attack, self.radius, self.p, rng)
        return play(as_trained(agent, env), choose, episodes).returns


class _Shared(Memoryless):
    """Several attacks on the rows of one batch, row i under attack i mod their number."""

    def __init__(self, attacks: list[Attack]) -> None:
        self.attacks = attacks

    def perturb(self, agent: Agent, ball: Ball, rng: torch.Generator) -> Tensor:
        shown = ball.center.clone()
        for at, attack in enumerate(self.attacks):
            rows = slice(at, None, len(self.attacks))
            shown[rows] = attack.perturb(agent, replace(ball, center=ball.center[rows]), rng).detach()
        return shown
