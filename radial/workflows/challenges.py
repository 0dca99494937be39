"""The leaderboard's tasks: which environment, radii, attacks and certificates, fixed, versioned and hashed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from radial.attacks import ATTACKS
from radial.attacks.learned.adversaries import PAAD, SARL, Adversary, LinearDirector
from radial.core.data import EnvSpec
from radial.envs.make import spec_for
from radial.evaluation.play import spec_of
from radial.runs.run import derived_seed
from radial.workflows.protocol import ADVERSARIES

# Raised with every change of the protocol. 2: the strongest attack is chosen by cross-fitting. 3: pgd-strong has more
# losses and more episodes to choose by.
VERSION = 3
SEED = 1234  # of the reported episodes

# Raised where an attack plays in another way though its settings are the same, so that no result known is taken for one
# of these; all others are at 1.
PLAYED: Mapping[str, int] = {"pgd-strong": 2}

# The settings that an attack's results depend on. Not its repr: a field that comes or goes would make every result
# unknown, though nothing is played in another way.
_TRAINED = (
    "radius={radius}, p={p}, steps={steps}, restarts={restarts}, learning_rate={learning_rate}, num_envs={num_envs}, "
    "rollout={rollout}, epochs={epochs}, minibatch={minibatch}, hidden={hidden}, discount={discount}, "
    "episodes={episodes}, compile={compile}"
)
_DESCRIPTIONS: Mapping[str, str] = {
    "none": "NoAttack()",
    "random": "RandomNoise()",
    "critic": "Critic(steps={steps})",
    "mad": "MAD(steps={steps}, stochastic={stochastic})",
    "pgd": "PGD(steps={steps}, step_size={step_size}, restarts={restarts}, random_start={random_start}, loss={loss!r})",
    "pgd-strong": "StrongPGD(episodes={episodes})",
    "rs": "RobustSarsa(sarsa_radius={sarsa_radius}, sarsa_weight={sarsa_weight}, mad_ratio={mad_ratio}, steps={steps}, "
    "iterations={iterations}, samples={samples}, epochs={epochs}, parts={parts}, learning_rate={learning_rate}, "
    "discount={discount}, stochastic={stochastic}, num_envs={num_envs})",
    "sarl": f"SARL({_TRAINED})",
    "paad": f"PAAD({_TRAINED}, inner_steps={{inner_steps}})",
    "linear": f"LinearDirector({_TRAINED}, inner_steps={{inner_steps}})",
}


@dataclass(frozen=True)
class Challenge:
    """One task of the leaderboard.

    radii        ε in network units, smallest first; agents are ranked at the first
    attacks      names in `ATTACKS`, weakest first; worst of all is the strongest of them, chosen on other episodes than
                 those it is reported on (`evaluation.crossfit`)
    certificate  "reach" of the mean action, or "acr"; `bound` is its method
    learned      the adversaries among them, with their budgets of env steps
    selection    episodes that serve the choice of the strongest attack alone
    """

    title: str
    env: str
    radii: tuple[float, ...]
    attacks: tuple[str, ...]
    certificate: str
    bound: str
    learned: Mapping[str, Adversary]
    episodes: int = 50
    selection: int = 20

    @property
    def spec(self) -> EnvSpec:
        """Where it is played."""
        return spec_of(spec_for(self.env))

    def attack(self, name: str) -> Any:
        """The attack of this name, not yet fitted."""
        return self.learned[name] if name in self.learned else ATTACKS[name]()

    def described(self, attack: str) -> str:
        """The settings of an attack, which are part of the protocol and of each result's key."""
        return _DESCRIPTIONS[attack].format(**vars(self.attack(attack)))

    def to_json(self) -> dict[str, Any]:
        """Everything that its numbers depend on."""
        attacks = {name: self.described(name) for name in self.attacks}
        return {**{name: value for name, value in vars(self).items() if name != "learned"}, "attacks": attacks}


_CONTINUOUS = ("random", "critic", "mad", "rs", "sarl", "paad", "linear")
_DISCRETE = ("random", "mad", "pgd", "pgd-strong", "rs", "sarl", "paad", "linear")
_FRAMES = ("random", "mad", "pgd", "paad")
_SHORT = {
    "sarl": SARL(steps=200_000, restarts=2), "paad": PAAD(steps=200_000, restarts=2), "linear": LinearDirector(),
}  # fmt: skip
_PICTURES = {"paad": PAAD(steps=60_000, restarts=1, episodes=4)}
CHALLENGES: Mapping[str, Challenge] = {
    "hopper": Challenge("Hopper", "Hopper-v4", (0.075, 0.15), _CONTINUOUS, "reach", "crown", ADVERSARIES),
    "walker2d": Challenge("Walker2d", "Walker2d-v4", (0.075, 0.15), _CONTINUOUS, "reach", "crown", ADVERSARIES),
    "halfcheetah": Challenge(
        "HalfCheetah", "HalfCheetah-v4", (0.075, 0.15), _CONTINUOUS, "reach", "crown", ADVERSARIES
    ),
    "cartpole": Challenge("CartPole", "CartPole-v1", (0.04, 0.1), _DISCRETE, "acr", "crown", _SHORT),
    "pong": Challenge("Pong", "Pong", (1 / 255, 3 / 255), _FRAMES, "acr", "ibp", _PICTURES, 20, 10),
    "freeway": Challenge("Freeway", "Freeway", (1 / 255, 3 / 255), _FRAMES, "acr", "ibp", _PICTURES, 20, 10),
}


def protocol(challenges: Mapping[str, Challenge] = CHALLENGES) -> dict[str, Any]:
    """Everything that defines the numbers, as JSON."""
    return {
        "version": VERSION,
        "seed": SEED,
        "selection_seed": derived_seed(SEED, "selection"),
        "played": dict(PLAYED),
        "challenges": {name: each.to_json() for name, each in challenges.items()},
    }
