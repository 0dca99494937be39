"""Certificates over whole episodes: the greedy worst case (GWC) and the action certification rate (ACR).

The actions that can be forced in one state are in `prover`, the search over all sequences of them in `worst_case`.
Everything is about agents that choose among discrete actions, and uses the sound form of the bound methods.
"""

import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from radial.agents.foreign import as_agent
from radial.bounds.methods import BoundMethod
from radial.core.agent import Agent
from radial.core.ball import Ball
from radial.core.checks import check_whole
from radial.core.data import BadInput, EnvSpec, Step, VecEnv, Verdict
from radial.core.search import AttackObjective, pgd
from radial.core.text import round_down
from radial.envs.make import make_env
from radial.envs.wrapper import EnvWrapper
from radial.evaluation import statistics
from radial.evaluation.play import Progress, View, check_spaces, play, spec_of, streams
from radial.evaluation.prover import Elimination, ProofCheck, ThreatModel, check_in_range, threat_model
from radial.evaluation.repeatable import prepared, repeated_action

if TYPE_CHECKING:
    from radial.envs.cloning import Cloneable

# ---------------------------------------------------------------------------------------------------------- results


@dataclass(frozen=True)
class Terms:
    """The question a certificate answers, and the bounds it rests on."""

    agent: str
    env: str  # its id
    env_options: Mapping[str, Any]
    engine: Mapping[str, str]
    radius: float  # in network units
    p: float
    bound: str
    arithmetic: str  # "outward-rounded", or "as given" for a method of the caller's
    valid_range: tuple[float, float] | None  # the balls were cut to it
    rule: str
    horizon: int | None  # steps of an episode that count; None: all
    seed: int
    episodes: int

    def to_json(self) -> dict[str, Any]:
        """Plain values; an infinite p is the string "inf"."""
        facts = asdict(replace(self, engine=dict(self.engine), env_options=dict(self.env_options)))
        limits = None if self.valid_range is None else list(self.valid_range)
        return facts | {"p": "inf" if math.isinf(self.p) else self.p, "valid_range": limits}


@dataclass(frozen=True)
class GreedyWorstCase(statistics.Averaged):
    """GWC: the returns when at each step the adversary forces the possible action that the agent likes least.

    An estimate of the worst case and no bound of it: a worse return may lie behind an action that looks better.
    """

    terms: Terms
    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    open_steps: int  # where more than one action was possible
    wall_seconds: float

    def to_json(self) -> dict[str, Any]:
        """Plain values that `json` can write."""
        return {
            "metric": "gwc", **self.terms.to_json(), "returns": list(self.returns), "lengths": list(self.lengths),
            "open_steps": self.open_steps, "steps": sum(self.lengths), "mean": self.mean, "sem": self.sem,
            "iqm": statistics.iqm(self.returns), "iqm_ci95": list(statistics.iqm_ci95([self.returns])),
            "wall_seconds": self.wall_seconds,
        }  # fmt: skip

    def __str__(self) -> str:
        return f"GWC {self.mean:.1f} ± {self.sem:.1f} at {self.terms.radius:g} ({self.terms.bound})"


@dataclass(frozen=True)
class CertificationRate(statistics.Averaged):
    """ACR: the share of the steps of clean episodes whose action no perturbation can change, and the other shares.

    certified, attacked, unknown  steps of each episode: certified, falsified by a search, neither
    returns, lengths              of the clean episodes
    distinct_actions              that the agent took in them: one that always does the same certifies everything
    """

    terms: Terms
    certified: tuple[int, ...]
    attacked: tuple[int, ...]
    unknown: tuple[int, ...]
    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    wall_seconds: float
    distinct_actions: int = 0

    @property
    def rates(self) -> tuple[float, ...]:
        """The certified share of each episode."""
        return tuple(proven / length for proven, length in zip(self.certified, self.lengths, strict=True))

    @property
    def values(self) -> tuple[float, ...]:
        """One rate per episode; the paper reports their mean."""
        return self.rates

    def to_json(self) -> dict[str, Any]:
        """Plain values that `json` can write."""
        totals = {
            "certified": sum(self.certified), "attacked": sum(self.attacked), "unknown": sum(self.unknown),
        }  # fmt: skip
        return {
            "metric": "acr", **self.terms.to_json(), "rates": list(self.rates), "mean": self.mean, "sem": self.sem,
            "steps": sum(self.lengths), **totals, "returns": list(self.returns), "lengths": list(self.lengths),
            "return_mean": statistics.mean(self.returns), "return_sem": statistics.sem(self.returns),
            "distinct_actions": self.distinct_actions,
            "wall_seconds": self.wall_seconds,
        }  # fmt: skip

    def __str__(self) -> str:
        counts = f"{sum(self.certified)} certified, {sum(self.attacked)} attacked, {sum(self.unknown)} unknown"
        counts += f"; {self.distinct_actions} distinct action{'' if self.distinct_actions == 1 else 's'}"
        return (
            f"ACR {round_down(self.mean, 3)} ± {self.sem:.3f} at {self.terms.radius:g} ({self.terms.bound}; {counts})"
        )


# ---------------------------------------------------------------------------------------------------------- metrics


def gwc(
    agent: Agent,
    env: EnvSpec | VecEnv | str,
    radius: float,
    bound: BoundMethod | str = "ibp",
    episodes: int = 20,
    seed: int = 0,
    *,
    p: float = math.inf,
    rule: Elimination = "bounds",
    horizon: int | None = None,
    num_envs: int = 20,
    name: str | None = None,
    progress: Progress | None = None,
) -> GreedyWorstCase:
    """Greedy worst-case reward, Algorithm 1 of the RADIAL paper: at each step argmin over i ∈ Γ of the clean score.

    env       an id, a spec, or a fresh VecEnv (used up, left open), as for `evaluate`; the same seed, the same starts
    bound     ibp, crown-ibp, crown, best (the tightest of them), or a method; ours in their sound form
    rule      how actions are ruled out: "bounds" as in the paper, "margins" by pairwise differences, which is tighter
    horizon   count only the first steps of an episode; then there are as many envs as episodes
    """
    agent = as_agent(agent)
    threat = threat_model(agent, radius, p, bound, rule)
    check_in_range(agent, radius)
    begun, forced = time.perf_counter(), Counter[str]()

    def choose(view: View) -> Tensor:
        action = torch.zeros(view.obs.shape[0], dtype=torch.int64)
        if not bool(view.counts.any()):
            return action
        order, possible = threat.options(view.obs[view.counts])
        worst = possible.int().argmax(1, keepdim=True)  # the first that is possible
        action[view.counts] = order.gather(1, worst).flatten().cpu()
        forced["open"] += int((possible.sum(1) > 1).sum())
        return action

    with evaluation_env(agent, env, episodes, seed, num_envs, horizon) as world:
        played = play(world, choose, episodes, progress=progress)
        terms = terms_of(threat, world, name, horizon, seed, episodes)
    return GreedyWorstCase(terms, played.returns, played.lengths, forced["open"], time.perf_counter() - begun)


@dataclass(frozen=True)
class Search:
    """How hard to look for a perturbation that changes an action: ascent on max_{y≠a} s_y − s_a, best iterate kept.

    The first run starts at the centre, then corners and uniform points take turns; where one has succeeded, there is
    no other.
    """

    restarts: int = 3  # runs in all
    steps: int = 10
    step_size: float = 0.25  # a share of the radius

    def find(self, agent: Agent, ball: Ball, action: Tensor, rng: torch.Generator) -> Tensor:
        """The agent's actions at the worst points that were found, (B,); other than `action` where one is bad."""
        check_whole("restarts", self.restarts, 1)
        found = action.clone()
        for restart in range(self.restarts):
            left = (found == action).nonzero().flatten()
            if not len(left):
                break
            near, loss = replace(ball, center=ball.center[left]), margin(agent, action[left])
            start = near.center if restart == 0 else near.sample(rng, "corner" if restart % 2 else "uniform")
            shown = near.project(pgd(loss, near, steps=self.steps, step_size=self.step_size, start=start)[0])
            with torch.no_grad():
                found[left] = agent.act(shown)
        return found


def margin(agent: Agent, action: Tensor) -> AttackObjective:
    """max_{y≠a} s_y(x) − s_a(x), (B, *obs) → (B,): positive where another action than a is chosen."""
    network = agent.choice

    def loss(x: Tensor) -> Tensor:
        scores = network(x)
        own = torch.zeros_like(scores, dtype=torch.bool).scatter(1, action.view(-1, 1), True)
        return scores.masked_fill(own, -math.inf).amax(1) - scores.gather(1, action.view(-1, 1)).squeeze(1)

    return loss


def acr(
    agent: Agent,
    env: EnvSpec | VecEnv | str,
    radius: float,
    bound: BoundMethod | str = "ibp",
    episodes: int = 20,
    seed: int = 0,
    *,
    p: float = math.inf,
    horizon: int | None = None,
    search: Search | None = None,
    num_envs: int = 20,
    name: str | None = None,
    progress: Progress | None = None,
) -> CertificationRate:
    """Action certification rate: the agent plays clean episodes, and each of its steps gets a verdict.

    certified  score(action) − score(other) is proven > 0 over the whole ball, for every other action
    attacked   falsified: `search` found a point of the ball where the agent acts otherwise
    unknown    neither

    Certified steps are searched too: an action that changes there raises `SoundnessError`. Arguments as for `gwc`.
    """
    agent = as_agent(agent)
    threat = threat_model(agent, radius, p, bound, "margins")
    check_in_range(agent, radius)
    begun, proofs, look = time.perf_counter(), ProofCheck(threat.prover), search or Search()
    rng = torch.Generator().manual_seed(streams(seed)[2])
    tally, used = Tally(), set[int]()

    @torch.no_grad()
    def choose(view: View) -> Tensor:
        x = prepared(agent, view.obs)
        action = repeated_action(agent, x)
        rows = view.counts
        if not bool(rows.any()):
            return action
        ball = agent.ball(x[rows], radius, p)
        certified = proofs.verdicts(agent, ball)
        found = look.find(agent, ball, action[rows], rng)
        proofs.refute(action[rows], found, certified, ball)
        tally.add(view, certified, (found != action[rows]).cpu())
        used.update(action[rows].tolist())
        return action

    with evaluation_env(agent, env, episodes, seed, num_envs, horizon) as world:
        played = play(world, choose, episodes, progress=progress)
        terms = terms_of(threat, world, name, horizon, seed, episodes)
    counts = {str(verdict): tally.of(verdict) for verdict in Verdict}
    return CertificationRate(
        terms, **counts, **asdict(played), wall_seconds=time.perf_counter() - begun, distinct_actions=len(used)
    )


class Tally:
    """Verdicts per episode, in the order of `Episodes`."""

    def __init__(self) -> None:
        self.episode: Counter[int] = Counter()  # of each env: how many it has begun
        self.counts: dict[tuple[int, int], Counter[Verdict]] = {}

    def add(self, view: View, certified: Tensor, changed: Tensor) -> None:
        """The verdicts of the rows of a view that count."""
        rows = view.counts.nonzero().flatten().tolist()
        for env, proven, wrong in zip(rows, certified.tolist(), changed.tolist(), strict=True):
            self.episode[env] += int(view.first[env])
            verdict = Verdict.CERTIFIED if proven else Verdict.ATTACKED if wrong else Verdict.UNKNOWN
            self.counts.setdefault((self.episode[env], env), Counter())[verdict] += 1

    def of(self, verdict: Verdict) -> tuple[int, ...]:
        """How often a verdict was given in each episode."""
        return tuple(self.counts[key][verdict] for key in sorted(self.counts))


# ------------------------------------------------------------------------------------------------------ shared parts


def terms_of(
    threat: ThreatModel, world: "VecEnv | Cloneable", name: str | None, horizon: int | None, seed: int, episodes: int
) -> Terms:
    """The terms of a result in this world."""
    return Terms(
        agent=name or threat.agent.name,
        env=world.spec.id,
        env_options=dict(world.spec.options),
        engine=dict(world.engine),
        radius=threat.radius,
        p=threat.p,
        bound=threat.prover.name,
        arithmetic=threat.prover.arithmetic,
        valid_range=threat.agent.valid_range,
        rule=threat.rule,
        horizon=None if horizon is None else int(horizon),
        seed=int(seed),
        episodes=int(episodes),
    )


@contextmanager
def evaluation_env(
    agent: Agent, env: EnvSpec | VecEnv | str, episodes: int, seed: int, num_envs: int, horizon: int | None
) -> Iterator[VecEnv]:
    """The vector env of an evaluation with this seed; closed in the end if it is ours."""
    for field, value, least in (("episodes", episodes, 1), ("seed", seed, 0), ("num_envs", num_envs, 1)):
        check_whole(field, value, least)
    if horizon is not None:
        check_whole("horizon", horizon, 1)
        num_envs = episodes
    ours = isinstance(env, EnvSpec | str)
    if not ours and not hasattr(env, "num_envs"):
        raise BadInput(f"env must be an id, a spec or a vector env, got {env!r}")
    count, env_seed = min(num_envs, episodes), streams(seed)[0]
    world = make_env(spec_of(env, agent), count, env_seed) if isinstance(env, EnvSpec | str) else env
    try:
        check_spaces(agent, world)
        yield world if horizon is None else FirstSteps(world, horizon, episodes)
    finally:
        if ours:
            world.close()


class FirstSteps(EnvWrapper):
    """A vector env whose first episodes are cut after `horizon` steps; later episodes are not counted."""

    def __init__(self, env: VecEnv, horizon: int, episodes: int) -> None:
        if env.num_envs < episodes:
            raise BadInput(f"horizon needs one env for each episode: {episodes} episodes, {env.num_envs} envs")
        super().__init__(env)
        self.horizon, self.clock = horizon, 0

    def step(self, action: Tensor) -> Step:
        """Act in every env; the step number `horizon` ends all that still run."""
        self.clock += 1
        step = self.env.step(action)
        if self.clock < self.horizon:
            return step
        return replace(step, truncated=step.truncated | (step.real & ~step.terminated))
