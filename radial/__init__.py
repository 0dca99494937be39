"""Train, attack and certify deep-RL agents that withstand perturbed observations.

import radial as rr

agent = rr.train(rr.recipe("cartpole-radial-ppo").config, seed=0)
print(rr.evaluate(agent, "CartPole-v1", "mad", radius=0.1, episodes=20))

ball = rr.Ball(observations, radius=1 / 255, low=0.0, high=1.0)
bounds = rr.crown_ibp(network, ball)
verdicts = rr.certify_action(network, ball)
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from radial.commands import interrupt as _interrupt  # noqa: F401  before anything that takes a while
from radial.version import __version__

if TYPE_CHECKING:  # for editors and type checkers; a name is imported when it is first asked for, and torch with it
    from radial.agents.actor_critic import ActorCritic, ImpalaAgent
    from radial.agents.foreign import wrap
    from radial.agents.networks import AtariActorCritic, ImpalaResNet
    from radial.agents.policies import CategoricalAgent, DeterministicAgent, GaussianAgent
    from radial.agents.q_agent import QAgent
    from radial.agents.saved import save
    from radial.attacks import ATTACKS
    from radial.attacks.compounding import Compounding
    from radial.attacks.corners import Corners
    from radial.attacks.gradient import FGSM, MAD, PGD, Critic, NoAttack, RandomNoise
    from radial.attacks.learned.adversaries import PAAD, SARL, Learned, LearnedAttack, LinearDirector
    from radial.attacks.learned.stored import load_attack, save_attack
    from radial.attacks.sarsa import RobustSarsa
    from radial.attacks.timing import Timed
    from radial.attacks.transfer import Transfer
    from radial.bounds.certify import certify_action
    from radial.bounds.layers import UnsupportedLayer
    from radial.bounds.methods import METHODS, best_of, crown, crown_ibp, ibp, mixed, sound
    from radial.core.ball import Ball
    from radial.core.data import BadInput, Bounds, EnvSpec, Step, Verdict
    from radial.core.schedules import Constant, Exponential, Linear, Smoothed
    from radial.envs.make import SUITES, make_env
    from radial.evaluation.certificates import acr, gwc
    from radial.evaluation.drift import drift
    from radial.evaluation.play import Evaluation
    from radial.evaluation.prover import SoundnessError, possible_actions
    from radial.evaluation.reach import reach
    from radial.evaluation.worst_case import awc
    from radial.objectives import deterministic as ddpg
    from radial.objectives import policy_gradient as a3c
    from radial.objectives import q_objectives as dqn
    from radial.objectives import surrogate as ppo
    from radial.recipes.recipe import RECIPES, recipe
    from radial.training.a3c import A3CConfig
    from radial.training.ddpg import DDPGConfig
    from radial.training.dqn import DQNConfig
    from radial.training.ppo import PPOConfig
    from radial.workflows.attack_names import evaluate_by_name as evaluate
    from radial.workflows.audit.audit import AuditInterrupted, assert_robust, audit
    from radial.workflows.audit.result import AuditResult
    from radial.workflows.ensemble import WorstOf, worst_of
    from radial.workflows.guard import Guard, GuardedStep, guard
    from radial.workflows.loading import load
    from radial.workflows.many import TrainedSeed, train_many
    from radial.workflows.robustify import Robustified, robustify
    from radial.workflows.train import train

# The same again, module by module. tests/package_test.py compares the two.
_HOMES = {
    "radial.agents.actor_critic": "ActorCritic ImpalaAgent",
    "radial.agents.foreign": "wrap",
    "radial.agents.networks": "AtariActorCritic ImpalaResNet",
    "radial.agents.policies": "CategoricalAgent DeterministicAgent GaussianAgent",
    "radial.agents.q_agent": "QAgent",
    "radial.agents.saved": "save",
    "radial.attacks": "ATTACKS",
    "radial.attacks.compounding": "Compounding",
    "radial.attacks.corners": "Corners",
    "radial.attacks.gradient": "FGSM MAD PGD Critic NoAttack RandomNoise",
    "radial.attacks.learned.adversaries": "PAAD SARL Learned LearnedAttack LinearDirector",
    "radial.attacks.learned.stored": "load_attack save_attack",
    "radial.attacks.sarsa": "RobustSarsa",
    "radial.attacks.timing": "Timed",
    "radial.attacks.transfer": "Transfer",
    "radial.bounds.certify": "certify_action",
    "radial.bounds.layers": "UnsupportedLayer",
    "radial.bounds.methods": "METHODS best_of crown crown_ibp ibp mixed sound",
    "radial.core.ball": "Ball",
    "radial.core.data": "BadInput Bounds EnvSpec Step Verdict",
    "radial.core.schedules": "Constant Exponential Linear Smoothed",
    "radial.envs.make": "SUITES make_env",
    "radial.evaluation.certificates": "acr gwc",
    "radial.evaluation.play": "Evaluation",
    "radial.evaluation.prover": "SoundnessError possible_actions",
    "radial.evaluation.drift": "drift",
    "radial.evaluation.reach": "reach",
    "radial.evaluation.worst_case": "awc",
    "radial.recipes.recipe": "RECIPES recipe",
    "radial.training.a3c": "A3CConfig",
    "radial.training.ddpg": "DDPGConfig",
    "radial.training.dqn": "DQNConfig",
    "radial.training.ppo": "PPOConfig",
    "radial.workflows.audit.audit": "AuditInterrupted assert_robust audit",
    "radial.workflows.audit.result": "AuditResult",
    "radial.workflows.ensemble": "WorstOf worst_of",
    "radial.workflows.guard": "Guard GuardedStep guard",
    "radial.workflows.loading": "load",
    "radial.workflows.many": "TrainedSeed train_many",
    "radial.workflows.robustify": "Robustified robustify",
    "radial.workflows.train": "train",
}
_RENAMED = {
    "evaluate": "radial.workflows.attack_names.evaluate_by_name",
    "a3c": "radial.objectives.policy_gradient",
    "ddpg": "radial.objectives.deterministic",
    "dqn": "radial.objectives.q_objectives",
    "ppo": "radial.objectives.surrogate",
}

__all__ = [
    "ATTACKS", "FGSM", "MAD", "METHODS", "PAAD", "PGD", "RECIPES", "SARL", "SUITES", "A3CConfig", "ActorCritic",
    "AtariActorCritic", "AuditInterrupted", "AuditResult", "BadInput", "Ball", "Bounds", "CategoricalAgent",
    "Compounding", "Constant", "Corners", "Critic", "DDPGConfig", "DQNConfig", "DeterministicAgent", "EnvSpec",
    "Evaluation", "Exponential", "GaussianAgent", "Guard", "GuardedStep", "ImpalaAgent", "ImpalaResNet", "Learned",
    "LearnedAttack", "Linear", "LinearDirector", "NoAttack", "PPOConfig", "QAgent", "RandomNoise", "RobustSarsa",
    "Robustified", "Smoothed", "SoundnessError", "Step", "Timed", "TrainedSeed", "Transfer", "UnsupportedLayer",
    "Verdict", "WorstOf", "__version__", "a3c", "acr", "assert_robust", "audit", "awc", "best_of", "certify_action",
    "crown", "crown_ibp", "ddpg", "dqn", "drift", "evaluate", "guard", "gwc", "ibp", "load", "load_attack",
    "make_env", "mixed", "possible_actions", "ppo", "reach", "recipe", "robustify", "save", "save_attack", "sound",
    "train", "train_many", "worst_of", "wrap",
]  # fmt: skip


_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}

if not TYPE_CHECKING:  # a type checker would take every name that is mistyped

    def __getattr__(name: str) -> object:
        """A public name, or a module of the package, imported now."""
        path = _RENAMED.get(name, f"{_HOME_OF.get(name, 'radial')}.{name}")
        home, _, inner = path.rpartition(".")
        if home != "radial" and hasattr(import_module(home), inner):
            found = getattr(import_module(home), inner)
        elif find_spec(path) is not None:
            found = import_module(path)
        else:
            raise AttributeError(f"module 'radial' has no attribute {name!r}")
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
