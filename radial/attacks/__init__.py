"""Attacks: each one small object that moves prepared observations inside a ball.

`ATTACKS` is the table, and joining it is joining the contract suite. The projection onto the ball is not here: the
caller does it, so that no attack can cheat.
"""

from collections.abc import Callable

from radial.attacks.compounding import Compounding
from radial.attacks.corners import Corners
from radial.attacks.gradient import FGSM, MAD, PGD, Critic, NoAttack, RandomNoise
from radial.attacks.learned.adversaries import PAAD, SARL, Adversary, Learned, LinearDirector
from radial.attacks.learned.strong import StrongPGD
from radial.attacks.sarsa import RobustSarsa
from radial.attacks.transfer import Transfer
from radial.core.agent import Attack

# An attack that must learn first has `fit(agent, env, seed) → Attack` in place of `perturb`; `evaluate` calls it.
ATTACKS: dict[str, Callable[[], Attack | RobustSarsa | Compounding | Transfer | Adversary | StrongPGD]] = {
    "none": NoAttack,
    "random": RandomNoise,
    "critic": Critic,
    "mad": MAD,
    "rs": RobustSarsa,
    "rs+mad": lambda: RobustSarsa(mad_ratio=0.5),
    "compounding": Compounding,
    "transfer": Transfer,
    "pgd": PGD,
    "pgd-procgen": PGD.procgen,
    "pgd-strong": StrongPGD,
    "fgsm": FGSM,
    "corners": Corners,
    "sarl": SARL,
    "paad": PAAD,
    "linear": LinearDirector,
    "learned": Learned,
}
