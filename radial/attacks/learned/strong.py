"""`StrongPGD`: projected ascent on every loss, and the one that hurts most in play.

A point that changes the action more surely need not cost more return: only episodes tell. So each loss plays a few of
its own, with equal seeds, and the lowest mean return decides.
"""

import math
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from radial.agents.foreign import as_agent
from radial.attacks.fitting import check_spaces_of
from radial.attacks.gradient import MAD, PGD, Critic, Memoryless, attackable
from radial.attacks.learned.forms import Steer
from radial.core import checks
from radial.core.agent import Agent, Attack
from radial.core.ball import Ball
from radial.core.data import BadInput, Discrete, EnvSpec, VecEnv
from radial.envs.make import make_env
from radial.envs.wrapper import as_trained
from radial.evaluation.play import play, under_attack
from radial.evaluation.statistics import lowest, mean

STEPS, STEP_SIZE, RESTARTS = 20, 0.25, 5
# plays an attack in fresh envs, so many losses being still to come: the return from each start, empty if none ended
Rehearse = Callable[[Attack, VecEnv, int], Mapping[int, float]]
ON_FRAMES = 20  # the part of the episodes that are played there
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
    """PGD and MAD as in the papers, with restarts on cross-entropy and margin, towards each action, and on the value.

    radius    None: set by `aimed`, which `evaluate` calls
    episodes  of each loss, whose seeds nothing else uses; on frames a twentieth of them. Ten would not tell losses
              apart where some starts survive and others do not
    """

    radius: float | None = None
    p: float = math.inf
    episodes: int = 40

    def __post_init__(self) -> None:
        checks.whole(self, "episodes")

    def aimed(self, radius: float, p: float) -> "StrongPGD":
        """The same for a radius and a norm, unless a radius is set."""
        return self if self.radius is not None else replace(self, radius=radius, p=p)

    def members(self, agent: Agent, shape: tuple[int, ...]) -> dict[str, Attack]:
        """The attacks that compete, by their loss; those with restarts, which cost most, come last."""
        strong = PGD(steps=STEPS, step_size=STEP_SIZE, restarts=RESTARTS)
        if isinstance(agent.actions, Discrete):
            members: dict[str, Attack] = {"cross-entropy, one run": PGD(), "divergence": MAD()}
            last: dict[str, Attack] = {"margin": replace(strong, loss="margin"), "cross-entropy": strong}
            targets = agent.actions.n
        else:
            members, last = {"distance, one run": PGD(), "distance, with noise": MAD()}, {"distance": strong}
            targets = 2 * agent.actions.size
        if agent.has_value:
            members["value"] = Critic()
        if targets <= MOST_TARGETS.get(len(shape), 0):
            members |= {f"target {target}": Targeted(target) for target in range(targets)}
        return members | last

    def fit(self, agent: Agent, env: EnvSpec | VecEnv, seed: int) -> StrongestPGD:
        """Play each loss, and return the one under which the agent fared worst.

        env  a VecEnv can be played through once: the losses share its rows, so their starts differ
        """
        agent = as_agent(agent)
        if not isinstance(env, EnvSpec):
            check_spaces_of(agent, env)
            return self._side_by_side(agent, env, seed)

        def rehearse(attack: Attack, world: VecEnv, _: int) -> dict[int, float]:
            return dict(enumerate(self.played(agent, world, attack, seed)))

        return self.in_turn(agent, env, seed, rehearse)

    def in_turn(self, agent: Agent, spec: EnvSpec, seed: int, rehearse: Rehearse) -> StrongestPGD:
        """The worst loss of all, each played from the same starts; one without a finished episode is left out."""
        with closing(make_env(spec, 1, seed)) as probe:
            check_spaces_of(agent, probe)
            shape = probe.observation_shape
        members = self.members(agent, shape)
        count = self.episodes if len(shape) == 1 else max(1, self.episodes // ON_FRAMES)
        returns = {}
        for at, (name, attack) in enumerate(members.items()):
            with closing(make_env(spec, count, seed)) as world:
                returns[name] = rehearse(attack, world, len(members) - at)
        return _worst(members, {name: found for name, found in returns.items() if found})

    def played(self, agent: Agent, env: VecEnv, attack: Attack, seed: int) -> tuple[float, ...]:
        """Returns of one episode in each env under one of the losses."""
        if self.radius is None:
            raise BadInput("radius must be set: which loss hurts most depends on it")
        rng = torch.Generator().manual_seed(seed)
        choose = under_attack(agent, attack, self.radius, self.p, rng)
        return play(as_trained(agent, env), choose, env.num_envs).returns

    def _side_by_side(self, agent: Agent, env: VecEnv, seed: int) -> StrongestPGD:
        """Env i plays under loss i mod their number; losses beyond the number of envs are left out."""
        members = self.members(agent, env.observation_shape)
        names = list(members)[: env.num_envs]
        returns = self.played(agent, env, _Shared([members[name] for name in names]), seed)
        # numbered as if they started alike: the means of what each has decide
        return _worst(members, {name: dict(enumerate(returns[at :: len(names)])) for at, name in enumerate(names)})


def _worst(members: Mapping[str, Attack], returns: Mapping[str, Mapping[int, float]]) -> StrongestPGD:
    loss = lowest(returns)
    return StrongestPGD(loss, members[loss], {name: mean(list(found.values())) for name, found in returns.items()})


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
