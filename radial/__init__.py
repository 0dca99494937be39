"""Train, attack and certify deep-RL agents that withstand perturbed observations.

import radial as rr

agent = rr.train(rr.recipe("cartpole-radial-ppo").config, seed=0)
print(rr.evaluate(agent, "CartPole-v1", rr.MAD(), radius=0.1, episodes=20))

ball = rr.Ball(observations, radius=1 / 255, low=0.0, high=1.0)
bounds = rr.crown_ibp(network, ball)
verdicts = rr.certify_action(network, ball)
"""

from radial.commands import interrupt as _interrupt  # noqa: F401  first, since all others take seconds

# isort: split
from radial.agents.actor_critic import ActorCritic, ImpalaAgent
from radial.agents.foreign import wrap
from radial.agents.networks import AtariActorCritic, ImpalaResNet
from radial.agents.policies import CategoricalAgent, GaussianAgent
from radial.agents.q_agent import QAgent
from radial.agents.saved import save
from radial.attacks import ATTACKS
from radial.attacks.compounding import Compounding
from radial.attacks.corners import Corners
from radial.attacks.gradient import FGSM, MAD, PGD, Critic, NoAttack, RandomNoise
from radial.attacks.learned.adversaries import PAAD, SARL, Learned, LearnedAttack
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
from radial.evaluation.play import Evaluation, evaluate
from radial.evaluation.prover import SoundnessError, possible_actions
from radial.evaluation.reach import reach
from radial.evaluation.worst_case import awc
from radial.objectives import policy_gradient as a3c
from radial.objectives import q_objectives as dqn
from radial.objectives import surrogate as ppo
from radial.recipes.recipe import RECIPES, recipe
from radial.training.a3c import A3CConfig
from radial.training.dqn import DQNConfig
from radial.training.ppo import PPOConfig
from radial.version import __version__
from radial.workflows.audit.audit import assert_robust, audit
from radial.workflows.audit.result import AuditResult
from radial.workflows.loading import load
from radial.workflows.robustify import Robustified, robustify
from radial.workflows.train import train

__all__ = [
    "ATTACKS", "FGSM", "MAD", "METHODS", "PAAD", "PGD", "RECIPES", "SARL", "SUITES", "A3CConfig", "ActorCritic",
    "AtariActorCritic", "AuditResult", "BadInput", "Ball", "Bounds", "CategoricalAgent", "Compounding", "Constant",
    "Corners", "Critic", "DQNConfig", "EnvSpec", "Evaluation", "Exponential", "GaussianAgent", "ImpalaAgent",
    "ImpalaResNet", "Learned", "LearnedAttack", "Linear", "NoAttack", "PPOConfig", "QAgent", "RandomNoise",
    "RobustSarsa", "Robustified", "Smoothed", "SoundnessError", "Step", "Timed", "Transfer", "UnsupportedLayer",
    "Verdict", "__version__", "a3c", "acr", "assert_robust", "audit", "awc", "best_of", "certify_action", "crown",
    "crown_ibp", "dqn", "evaluate", "gwc", "ibp", "load", "load_attack", "make_env", "mixed", "possible_actions",
    "ppo", "reach", "recipe", "robustify", "save", "save_attack", "sound", "train", "wrap",
]  # fmt: skip
