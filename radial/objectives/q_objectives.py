"""All objectives of deep Q-learning by name: the public namespace `rr.dqn`."""

from radial.bounds.mix import Mix
from radial.objectives.base import Objective
from radial.objectives.q_baselines import RS, SA, Distilled
from radial.objectives.q_car import CAR
from radial.objectives.q_dagger import QDagger
from radial.objectives.q_learning import TD, Batch, Nets, Plain, QLoss, RadialOverlap, RadialWorstCase

__all__ = [
    "CAR", "OBJECTIVES", "RS", "SA", "TD", "Batch", "Distilled", "Mix", "Nets", "Objective", "Plain", "QDagger",
    "QLoss", "RadialOverlap", "RadialWorstCase",
]  # fmt: skip

OBJECTIVES: dict[str, type] = {
    "plain": Plain,
    "radial-worst-case": RadialWorstCase,
    "radial-overlap": RadialOverlap,
    "sa": SA,
    "rs": RS,
    "car": CAR,
    "qdagger": QDagger,
}
