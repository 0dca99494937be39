"""`SARL` and `PAAD`: settings of adversaries that PPO trains against one agent, and `LearnedAttack`, the result.

Both know the agent's network, the environment, and train in it (docs/attacks.md). Several trainings are compared in
`halving`; what an action means is in `forms`.
"""

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from radial.agents.convert import agent_kind
from radial.agents.policies import CategoricalAgent, GaussianAgent
from radial.agents.weights import weights_id
from radial.attacks.fitting import fit_inputs
from radial.attacks.gradient import Memoryless, attackable
from radial.attacks.learned.forms import Form, Shift, Steer, view, view_size
from radial.attacks.learned.halving import Each, Trainings
from radial.attacks.learned.rounds import Candidate, Searched
from radial.attacks.learned.world import Threat
from radial.core import checks
from radial.core.agent import Agent
from radial.core.ball import NORMS, Ball
from radial.core.data import BadInput, Continuous, Discrete, EnvSpec, VecEnv
from radial.core.radius import Radius, as_radius, exceeds
from radial.core.text import spell_radius

AdversaryPolicy = GaussianAgent | CategoricalAgent
WARM_RATE = 0.3  # of the learning rate, where a training starts from a constant
# By its mean or likeliest action, by a draw, or, where neither hurt more than uniform noise in the ball, by that.
ACTS = ("deterministic", "sampled", "noise")
FORMS: dict[str, type[Shift] | type[Steer]] = {"sarl": Shift, "paad": Steer}


@dataclass(frozen=True, eq=False)
class LearnedAttack(Memoryless):
    """A trained adversary: it looks at the clean observation, acts, and `form` makes an observation of its action."""

    kind: str  # a key of FORMS
    radius: Radius  # that it was trained for
    p: float
    steps: int  # env steps of all trainings that led to it
    acts: str  # one of ACTS: what hurt most on held-out episodes
    policy: AdversaryPolicy = field(repr=False)
    form: Form = field(repr=False)
    record: Mapping[str, Any] = field(repr=False)  # agent, env, seed, the trials, the curve: plain JSON

    @property
    def validation(self) -> float | None:
        """The agent's mean return under it on the validation episodes; None without any."""
        return min(self.record["validation"].values(), default=None)

    @property
    def curve(self) -> list[list[float]]:
        """Env steps spent so far, and the lowest validation return so far."""
        return list(self.record["curve"])

    @property
    def chosen(self) -> Mapping[str, Any]:
        """The settings of the training that won: kind, learning rate, number, round, steps, validation."""
        ended = [trial for trial in self.record["trials"] if trial["validation"] is not None]
        return min(ended, key=lambda trial: trial["validation"], default={})

    def draws_nothing(self, agent: Agent) -> bool:
        """If it takes its mean or likeliest action."""
        return self.acts == "deterministic"

    def perturb(self, agent: Agent, ball: Ball, rng: torch.Generator) -> Tensor:
        """The observation that realises its action, (B, *obs)."""
        if self.acts == "noise":
            return ball.sample(rng)
        agent = attackable(agent)
        with torch.no_grad():
            seen = self.policy.prepare(view(agent, ball.center))
            action = self.policy.act(seen, rng if self.acts == "sampled" else None)
        return self.form.realise(agent.choice, ball, action).detach()

    def spaces(self, agent: Agent, shape: tuple[int, ...]) -> tuple[tuple[int, ...], Discrete | Continuous]:
        """The spaces its policy must have against such an agent."""
        return (view_size(agent, shape),), self.form.actions(agent, shape)

    def check(self, agent: Agent, spec: EnvSpec, radius: Radius, p: float, stochastic: bool = False) -> None:
        """Refuse an agent or an env it cannot act against; warn where it was trained for something else."""
        self._check_agent(agent)
        trained = self.record
        if spec.id != trained["env"]["id"]:
            raise BadInput(f"attack must fit the env: it was fitted in {trained['env']['id']}, not in {spec.id}")
        notes = []
        if exceeds(radius, self.radius):
            some = "a radius of" if isinstance(self.radius, float) else "a smaller radius on some features,"
            own, asked = spell_radius(self.radius), spell_radius(radius)
            notes.append(f"fitted for {some} {own}, asked for {asked}: fit one for it, which is stronger")
        if p != self.p:
            notes.append(f"fitted for p = {self.p:g}, asked for p = {p:g}")
        if weights_id(agent.choice) != trained["weights"]:
            notes.append("fitted against another agent: this is a transfer attack")
        if stochastic:
            notes.append("fitted against the agent's best actions, and it is asked to sample them")
        for note in notes:
            warnings.warn(f"the attack was {note}", UserWarning, stacklevel=3)

    def _check_agent(self, agent: Agent) -> None:
        """Another agent of the same kind, with the same spaces, is a transfer attack; anything else is a mistake."""
        trained, shape = self.record, agent.observation_shape
        if shape is not None and list(shape) != trained["observation_shape"]:
            raise BadInput(
                f"attack must fit the agent: it was fitted to observations {tuple(trained['observation_shape'])}, "
                f"this agent has {tuple(shape)}"
            )
        if repr(agent.actions) != trained["actions"]:
            raise BadInput(f"attack must fit the agent: it was fitted to {trained['actions']}, not {agent.actions!r}")
        kind, known = agent_kind(agent), trained.get("agent_kind")  # older fits do not say
        if None not in (kind, known) and kind != known:
            raise BadInput(f"attack must fit the agent: it was fitted to a {known} agent, this one is {kind}")
        spaces = (self.policy.observation_shape, self.policy.actions)
        if spaces != self.spaces(agent, tuple(trained["observation_shape"])):
            raise BadInput("attack must fit the agent: its policy does not take what this agent's observations give")


@dataclass(frozen=True)
class Adversary:
    """The settings that both kinds share, and `fit`.

    radius  one number, or one per feature of a vector. None: set by `aimed`, which `evaluate` calls
    steps   env steps of all trainings together
    """

    radius: Radius | None = None
    p: float = math.inf
    steps: int = 1_200_000
    restarts: int = 4  # trainings with different seeds; seeds matter more than steps
    learning_rate: float = 1e-3  # to 0
    num_envs: int = 32
    rollout: int = 2_048
    epochs: int = 10
    minibatch: int = 64
    hidden: tuple[int, ...] = (64, 64)
    discount: float = 0.99
    episodes: int = 20  # of validation, whose seeds nothing else uses; on frames a fifth of them
    compile: bool = True

    kinds: ClassVar[tuple[str, ...]] = ()
    linear_share: ClassVar[float] = 0.0  # of the budget, for a linear adversary where the agent sees vectors

    def __post_init__(self) -> None:
        checks.whole(self, "steps", "restarts", "num_envs", "rollout", "epochs", "minibatch", "episodes")
        checks.positive(self, "learning_rate")
        checks.share(self, "discount")
        checks.sizes(self, "hidden")
        if self.p not in NORMS:
            raise BadInput(f"p must be 1, 2 or inf, got {self.p!r}")
        if self.radius is not None:
            object.__setattr__(self, "radius", as_radius(self.radius))
        if self.steps < self.least_steps:
            raise BadInput(f"steps must be ≥ {self.least_steps:,}, enough for one round, got {self.steps:,}")

    @property
    def least_steps(self) -> int:
        """The smallest budget: one rollout, or one for each candidate where several settings compete."""
        return self.rollout

    def candidates(self) -> list[Candidate]:
        """The trainings of the first round."""
        count = max(1, min(self.restarts, self.steps // self.rollout))
        warm, rate = count // 2, self.learning_rate
        some = [Candidate(self.kinds[0], WARM_RATE * rate, number, warm=True) for number in range(warm)]
        return some + [Candidate(self.kinds[0], rate, number) for number in range(count - warm)]

    def briefly(self, rollouts: int) -> "Adversary":
        """One short training of this kind, by which its speed is measured."""
        return replace(self, steps=rollouts * self.rollout, restarts=1, episodes=1)

    def form(self, kind: str) -> Form:
        """What the actions of such an adversary mean."""
        return FORMS[kind]()

    def aimed(self, radius: Radius, p: float) -> "Adversary":
        """The same settings for a radius and a norm, unless a radius is set."""
        return self if self.radius is not None else replace(self, radius=radius, p=p)

    def fit(
        self, agent: Agent, env: EnvSpec | VecEnv | str, seed: int, *, out: Path | None = None, resume: bool = False,
        quiet: bool = True, storage: str | None = None, each: Each | None = None,
    ) -> LearnedAttack:  # fmt: skip
        """Train against the agent, which acts deterministically; return the attack that hurt most in validation.

        env  a VecEnv must be fresh and stays open: it can be played through once, so one training and no validation
        out  a folder for the trials, from which a stopped fit can be resumed
        storage  a shared folder or a URI for copies of these
        each     does the trainings of a round side by side, such as `cluster.Place.each`; None: one after the other
        """
        agent, env, seed = fit_inputs(agent, env, seed)
        if self.radius is None:
            raise BadInput("radius must be set: an adversary learns for one perturbation radius")
        threat = Threat(self.radius, float(self.p))
        search = Trainings(
            self, agent, env, threat, seed, out=out, resume=resume, quiet=quiet, storage=storage, each=each
        )
        return learned_of(search.run(), self)


def learned_of(found: Searched, settings: Adversary) -> LearnedAttack:
    """The attack that a search found."""
    assert settings.radius is not None
    form = settings.form(found.kind)
    return LearnedAttack(
        found.kind, settings.radius, float(settings.p), found.steps, found.acts, found.policy, form, found.record
    )


@dataclass(frozen=True)
class SARL(Adversary):
    """A policy that maps the observation to the perturbation (Zhang et al. 2021)."""

    kinds: ClassVar[tuple[str, ...]] = ("sarl",)


@dataclass(frozen=True)
class PAAD(Adversary):
    """A director that says where the agent's action should go; gradient steps bring it there (Sun et al. 2022).

    inner_steps  of these
    """

    inner_steps: int = 3

    kinds: ClassVar[tuple[str, ...]] = ("paad",)

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.whole(self, "inner_steps")

    def form(self, kind: str) -> Form:  # noqa: D102
        return Steer(self.inner_steps)


@dataclass(frozen=True)
class LinearDirector(PAAD):
    """PA-AD's director as a linear function of the observation, found by the cross-entropy method, not by gradients.

    Only against agents that see vectors. Its score is the whole return of an episode, so it finds early ends that a
    discounted policy gradient misses: often the strongest adversary, and the cheapest.
    """

    steps: int = 400_000

    linear_share: ClassVar[float] = 1.0

    @property
    def least_steps(self) -> int:
        """Any: how many its episodes take is known once they are played."""
        return 1

    def briefly(self, rollouts: int) -> Adversary:
        """A training of PA-AD: a step of it costs no less, and it need not end any episode."""
        return PAAD(self.radius, self.p, steps=rollouts * self.rollout, restarts=1, episodes=1)

    def candidates(self) -> list[Candidate]:
        """None: nothing is trained by gradients."""
        return []


@dataclass(frozen=True)
class Learned(Adversary):
    """Both kinds at several learning rates: successive halving within the budget, no sweep by hand.

    Against agents that see vectors a linear director takes part, with the budget that it has alone by default.

    restarts  of each setting
    rates     the highest starts from nothing, the others from the worst constants
    """

    steps: int = 2_400_000
    restarts: int = 1
    rates: tuple[float, ...] = (1e-3, 3e-4, 1e-4)

    kinds: ClassVar[tuple[str, ...]] = ("paad", "sarl")
    linear_share: ClassVar[float] = 1 / 6

    @property
    def least_steps(self) -> int:  # noqa: D102
        return self.rollout * len(self.candidates())

    def candidates(self) -> list[Candidate]:  # noqa: D102
        pairs = [(kind, rate) for kind in self.kinds for rate in self.rates]
        top = max(self.rates)
        return [Candidate(kind, rate, number, rate < top) for number in range(self.restarts) for kind, rate in pairs]
