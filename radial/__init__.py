"""Train, attack and certify deep-RL agents that withstand perturbed observations.

import radial as rr

ball = rr.Ball(observations, radius=1 / 255, low=0.0, high=1.0)
bounds = rr.crown_ibp(network, ball)
verdicts = rr.certify_action(network, ball)
"""

from radial.bounds.certify import certify_action
from radial.bounds.layers import UnsupportedLayer
from radial.bounds.methods import METHODS, best_of, crown, crown_ibp, ibp, mixed, sound
from radial.core.ball import Ball
from radial.core.data import BadInput, Bounds, Verdict
from radial.core.schedules import Constant, Exponential, Linear, Smoothed
from radial.version import __version__

__all__ = [
    "METHODS",
    "BadInput",
    "Ball",
    "Bounds",
    "Constant",
    "Exponential",
    "Linear",
    "Smoothed",
    "UnsupportedLayer",
    "Verdict",
    "__version__",
    "best_of",
    "certify_action",
    "crown",
    "crown_ibp",
    "ibp",
    "mixed",
    "sound",
]
