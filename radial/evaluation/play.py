"""The one loop, `play`, and `evaluate`: episodes with an attack between the environment and the agent, or without.

Every perturbation is projected onto the ball here, so an attack with a bug is weak and never illegal; how an attack
finds it is not known here.
"""

import itertools
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from radial.agents.convert import agent_kind
from radial.agents.foreign import Guarding, WrappedCategorical, WrappedGaussian, WrappedQ, as_agent, known_shape
from radial.agents.policies import DeterministicAgent
from radial.bounds.methods import BoundMethod
from radial.core.agent import Agent, Attack
from radial.core.checks import check_whole
from radial.core.data import BadInput, Continuous, Discrete, EnvSpec, VecEnv
from radial.core.radius import Radius, as_budget, as_radius, check_features
from radial.core.text import spell_radius
from radial.envs.make import make_env, spec_for, stacked
from radial.envs.wrapper import as_trained
from radial.evaluation import statistics
from radial.evaluation.prover import ProofCheck, check_discrete, check_in_range, check_norm
from radial.evaluation.repeatable import finite_action, prepared

Progress = Callable[[int], None]  # called with the number of finished episodes
SIDE_BY_SIDE = 50  # envs, at most
SIDE_BY_SIDE_IN = {"procgen": 64}  # by suite, where the paper has another number


@runtime_checkable
class Fittable(Protocol):
    """An attack that must learn before it can perturb."""

    def fit(self, agent: Agent, env: EnvSpec, seed: int) -> Attack:
        """Play in envs of its own, learn, and return the fitted attack."""


@runtime_checkable
class Aiming(Protocol):
    """A `Fittable` that learns for one ball."""

    def aimed(self, radius: Radius, p: float) -> Fittable:
        """The same for this radius and norm, unless its own are set."""


@runtime_checkable
class Fussy(Protocol):
    """A fitted attack that knows what it was fitted for."""

    def check(self, agent: Agent, spec: EnvSpec, radius: Radius, p: float, stochastic: bool = False) -> None:
        """Refuse what it cannot attack, warn of what it was not fitted for."""


@dataclass(frozen=True, eq=False)
class View:
    """The observations of N environments, for which actions are wanted.

    obs     (N, *obs)  as the env gave them
    first   (N,) bool  the first observation of an episode
    counts  (N,) bool  False: the env will ignore the action, or has played all its episodes
    """

    obs: Tensor
    first: Tensor
    counts: Tensor


@dataclass(frozen=True)
class Episodes:
    """Finished episodes: all first ones of the envs in order, then all second ones; or, if asked for, as they ended."""

    returns: tuple[float, ...]  # of `Step.score`
    lengths: tuple[int, ...]


def play(
    env: VecEnv,
    choose: Callable[[View], Tensor],
    episodes: int,
    *,
    first_finished: bool = False,
    progress: Progress | None = None,
) -> Episodes:
    """Play a number of episodes in a fresh vector env, none favoured for being short.

    env i of N plays ⌊episodes/N⌋ of them, and one more if i < episodes mod N; whatever an env plays beyond that while
    it waits for the others is ignored.

    choose          View → actions (N,) or (N, D)
    first_finished  count the first to finish instead, wherever: RADIAL's rule for ProcGen, which prefers short episodes
    """
    check_whole("episodes", episodes, 1)
    share = [episodes // env.num_envs + (i < episodes % env.num_envs) for i in range(env.num_envs)]
    quota = torch.tensor([episodes] * env.num_envs if first_finished else share)
    played, length = torch.zeros_like(quota), torch.zeros_like(quota)
    total = torch.zeros(env.num_envs, dtype=torch.float64)
    due = torch.zeros(env.num_envs, dtype=torch.bool)  # a reset comes next
    finished: list[tuple[int, int, float, int]] = []  # its number in its env, the env, return, length
    obs, first = env.reset(), torch.ones(env.num_envs, dtype=torch.bool)
    while len(finished) < episodes:
        step = env.step(choose(View(obs, first, ~due & (played < quota))))
        total += torch.where(step.real, step.score.double(), 0.0)
        length += step.real
        due = step.ended & step.real
        over = due & (played < quota)
        for i in over.nonzero().flatten().tolist():
            finished.append((int(played[i]), i, float(total[i]), int(length[i])))
        played += over
        total[due], length[due] = 0.0, 0
        obs, first = step.obs, ~step.real
        if progress is not None and bool(over.any()):
            progress(min(len(finished), episodes))
    counted = finished[:episodes] if first_finished else sorted(finished)  # several may end with one step
    return Episodes(tuple(episode[2] for episode in counted), tuple(episode[3] for episode in counted))


@dataclass(frozen=True)
class Evaluation(statistics.Averaged):
    """Returns of an agent, clean or under an attack, and everything needed to measure them again."""

    agent: str
    env: str  # its id
    env_options: Mapping[str, Any]
    engine: Mapping[str, str]
    attack: str
    radius: Radius  # in network units
    p: float
    seed: int
    num_envs: int
    stochastic: bool
    episodes: int
    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    wall_seconds: float  # the whole call, learning of the attack included
    certified_by: str | None = None  # the bound method that watched
    certified: int | None = None  # steps whose action it certified at this radius; none of them changed
    first_finished: bool = False  # the episodes are those that ended first; False: each env played its share

    @property
    def iqm(self) -> float:
        """Interquartile mean."""
        return statistics.iqm(self.returns)

    @property
    def iqm_ci95(self) -> tuple[float, float]:
        """95 % bootstrap interval of the interquartile mean; always the same for the same returns."""
        return statistics.iqm_ci95([self.returns])

    def to_json(self) -> dict[str, Any]:
        """Plain values that `json` can write; an infinite p is the string "inf", because JSON has no infinity."""
        facts = asdict(replace(self, engine=dict(self.engine), env_options=dict(self.env_options)))
        facts |= {"returns": list(self.returns), "lengths": list(self.lengths)}
        facts["radius"] = list(self.radius) if isinstance(self.radius, tuple) else self.radius
        facts |= {"mean": self.mean, "sem": self.sem, "iqm": self.iqm, "iqm_ci95": list(self.iqm_ci95)}
        return facts | {"p": "inf" if math.isinf(self.p) else self.p}

    def __str__(self) -> str:
        how = f"{self.attack} at {spell_radius(self.radius)}"
        return f"{self.mean:.1f} ± {self.sem:.1f} ({self.episodes} episodes, {how})"


def evaluate(
    agent: Agent | Guarding,
    env: EnvSpec | VecEnv | str,
    attack: Attack | Fittable | str | None = None,
    radius: Radius = 0.0,
    episodes: int = 50,
    seed: int = 0,
    *,
    num_envs: int | None = None,
    stochastic: bool = False,
    first_finished: bool = False,
    p: float = math.inf,
    certified_by: BoundMethod | str | None = None,
    name: str | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Play episodes in which the agent sees Π(attack(x)) instead of x, Π the projection onto the ball around x.

    Without an attack, the clean return; with one, the adversarial return. The ball is cut to the agent's `valid_range`.

    agent       a guard stands for its `agent`, which acts by its rule
    env         an id, a spec, or a fresh VecEnv (used up, left open). MuJoCo is Gymnasium's own unless the spec names
                a backend: returns are compared with published ones
    attack      None: none. One with `fit` learns first, in envs of its own. `rr.evaluate` takes a name in ATTACKS, too
    radius, p   of the ball, in network units; of vectors also one radius per feature
    seed        everything random follows from it
    num_envs    at most; changes which random numbers fall where and nothing else. None: 50, in ProcGen 64
    stochastic  sample the agent's actions instead of taking the best one; not for an agent without a distribution
    first_finished  count the episodes that end first, which prefers short ones, as RADIAL does in ProcGen. False: each
                env plays its share
    certified_by  certify every step with this bound method as well, and raise `SoundnessError` if the attack changes
                an action that was certified. Costs a bound per step
    name        of the agent, for the record
    """
    agent = as_agent(agent)
    radius = as_radius(radius)
    check_norm(p)
    if stochastic and (agent_kind(agent) == "q" or isinstance(agent, DeterministicAgent)):
        raise BadInput("stochastic must be False: this agent has no distribution over actions to sample from")
    attack = _checked_attack(attack)
    check_in_range(agent, radius)
    episodes, seed = check_whole("episodes", episodes, 1), check_whole("seed", seed, 0)
    num_envs = None if num_envs is None else check_whole("num_envs", num_envs, 1)
    begun = time.perf_counter()
    env_seed, fit_seed, attack_seed, policy_seed = streams(seed)
    proofs = None if certified_by is None else _proof_check(agent, certified_by, stochastic)
    spec = spec_of(env, agent)
    count = min(side_by_side(spec) if num_envs is None else num_envs, episodes)
    fits = partial(check_spaces, agent)
    world = make_env(spec, count, env_seed, accept=fits) if isinstance(env, EnvSpec | str) else env
    try:
        check_spaces(agent, world)
        check_features(radius, world.observation_shape)
        adversary = fitted(attack, agent, spec, radius, p, fit_seed) if isinstance(attack, Fittable) else attack
        if isinstance(adversary, Fussy):
            adversary.check(agent, spec, radius, p, stochastic)
        rng = torch.Generator().manual_seed(policy_seed) if stochastic else None
        noise = torch.Generator().manual_seed(attack_seed)
        choose = under_attack(agent, adversary, radius, p, noise, rng, proofs, name)
        played = play(as_trained(agent, world), choose, episodes, first_finished=first_finished, progress=progress)
        return Evaluation(
            agent=name or agent.name,
            env=spec.id,
            env_options=dict(spec.options),
            engine=world.engine,
            attack="none" if adversary is None else repr(adversary),
            radius=radius,
            p=float(p),
            seed=seed,
            num_envs=world.num_envs,
            stochastic=stochastic,
            episodes=episodes,
            returns=played.returns,
            lengths=played.lengths,
            wall_seconds=time.perf_counter() - begun,
            certified_by=None if proofs is None else proofs.prover.name,
            certified=None if proofs is None else proofs.certified,
            first_finished=first_finished,
        )
    finally:
        if world is not env:
            world.close()


def fitted(attack: Fittable, agent: Agent, spec: EnvSpec, radius: Radius, p: float, seed: int) -> Attack:
    """The attack after it has learned; one that learns for one ball is told which."""
    return (attack.aimed(radius, p) if isinstance(attack, Aiming) else attack).fit(agent, spec, seed)


def _checked_attack(attack: Attack | Fittable | str | None) -> Attack | Fittable | None:
    """The attack; anything else is refused: a name, or a class in place of one of its objects."""
    ready = hasattr(attack, "perturb") or hasattr(attack, "fit")
    if isinstance(attack, str | type) or (attack is not None and not ready):
        raise BadInput(f"attack must be None or an attack such as MAD(), got {attack!r}")
    return attack


def under_attack(
    agent: Agent,
    attack: Attack | None,
    radius: Radius | Tensor,
    p: float,
    attack_rng: torch.Generator,
    policy_rng: torch.Generator | None = None,
    proofs: ProofCheck | None = None,
    name: str | None = None,
) -> Callable[[View], Tensor]:
    """The choice of an agent that sees perturbed observations, its certificates checked or not; for `play`.

    An attack that `draws_nothing` perturbs only the rows that count: on frames its steps are most of the time.
    """
    few = bool(getattr(attack, "draws_nothing", lambda _: False)(agent))
    steps, budget = itertools.count(), as_budget(radius)

    @torch.no_grad()
    def choose(view: View) -> Tensor:
        x, rows = agent.prepare(view.obs), view.counts
        if attack is not None:
            attack.reset(view.first)
            hit = rows if few and not bool(rows.all()) else slice(None)
            ball = agent.ball(x[hit], budget, p)
            proposal = attack.perturb(agent, ball, attack_rng).detach() if len(ball.center) else ball.center
            if not bool(torch.isfinite(proposal).all()):
                raise BadInput(f"attack must return finite observations, {attack!r} gave NaN or inf")
            x = x.clone()
            x[hit] = ball.project(proposal)
        action = finite_action(agent, x, policy_rng, name or agent.name, next(steps))
        if proofs is not None and bool(rows.any()):
            proofs.check(agent, agent.ball(prepared(agent, view.obs)[rows], budget, p), action[rows])
        return action

    return choose


def _proof_check(agent: Agent, bound: BoundMethod | str, stochastic: bool) -> ProofCheck:
    """The alarm for an agent that takes its best action among several."""
    check_discrete(agent)
    if stochastic:
        raise BadInput("certified_by is about the best action: stochastic must be False")
    return ProofCheck(bound)


def streams(seed: int) -> tuple[int, int, int, int]:
    """One seed for each thing that is random: the envs, the learning of an attack, its noise, sampled actions."""
    check_whole("seed", seed, 0)
    first, second, third, fourth = (int(word) for word in np.random.SeedSequence(seed).generate_state(4))
    return first, second, third, fourth


def side_by_side(spec: EnvSpec) -> int:
    """How many envs play at once if nobody says."""
    return SIDE_BY_SIDE_IN.get(spec.suite, SIDE_BY_SIDE)


def spec_of(env: EnvSpec | VecEnv | str, agent: Agent | None = None) -> EnvSpec:
    """The spec to evaluate in: MuJoCo on Gymnasium's own envs unless a backend is named, Atari by whole games.

    agent  whose frames decide Atari's preset, where none is named
    """
    if not isinstance(env, EnvSpec | str):
        if not hasattr(env, "spec"):
            raise BadInput(f"env must be an id such as Hopper-v4, an EnvSpec or a VecEnv, got {env!r}")
        return env.spec  # a VecEnv is taken as it is
    spec = spec_for(env) if isinstance(env, str) else env
    if spec.suite == "mujoco" and "backend" not in spec.options:
        return replace(spec, options={**spec.options, "backend": "gymnasium"})
    # some trainings end an episode with each life; a return is that of a whole game
    whole = replace(spec, options={name: value for name, value in spec.options.items() if name != "episodic_life"})
    return whole if agent is None else stacked(whole, known_shape(agent))


class Spaces(Protocol):
    """Anything with spaces: one env or many."""

    @property
    def spec(self) -> EnvSpec:
        """Which env."""

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """Of one observation."""

    @property
    def actions(self) -> Discrete | Continuous:
        """Of one env."""


def check_spaces(agent: Agent, env: Spaces) -> None:
    """Refuse an agent whose spaces are known and are not the env's."""
    spaces = {
        "observation_shape": (agent.observation_shape, env.observation_shape),
        "actions": (agent.actions, env.actions),
    }
    for field, (own, given) in spaces.items():
        if own is not None and own != given:
            raise BadInput(f"agent must fit the env: its {field} is {own}, that of {env.spec} is {given}")
    if isinstance(agent, WrappedQ | WrappedCategorical | WrappedGaussian):  # one try says more than its card
        _try(agent, env)


def _try(agent: Agent, env: Spaces) -> None:
    """Refuse a network that cannot take the env's observations, or whose outputs are not one per action."""
    shape = env.observation_shape
    try:
        with torch.no_grad():
            given = tuple(agent.scores(agent.prepare(torch.zeros(1, *shape))).shape)
    except RuntimeError as error:
        why = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise BadInput(f"agent must fit the env: its network cannot take {shape} of {env.spec}: {why}") from None
    wanted = (1, agent.actions.n if isinstance(agent.actions, Discrete) else agent.actions.size)
    if given != wanted:
        raise BadInput(f"agent must give scores of shape {wanted} for one observation, got {given}")
