"""Adversaries that learn, within a budget of time: how many steps it allows, measured by a few rollouts."""

import time
from dataclasses import replace

from radial.attacks.learned.adversaries import Adversary, LearnedAttack
from radial.attacks.learned.screening import TooFewSteps
from radial.core.agent import Agent
from radial.core.data import EnvSpec
from radial.workflows.audit.budget import Clock, OutOfTime

RATED = 4  # rollouts by which the speed of learning is measured
LEARNING = 0.4  # of the time left, for an adversary to learn: another may follow, and both must play
LEAST_STEPS = 20_000  # fewer teach nothing


def fit_in_time(attack: Adversary, agent: Agent, spec: EnvSpec, seed: int, clock: Clock) -> LearnedAttack:
    """Fit an adversary with as many of its steps as the time left allows; raises `OutOfTime` if these are too few."""
    if clock.seconds is not None:
        attack = replace(attack, steps=_affordable(attack, agent, spec, seed, clock))
    try:
        return attack.fit(agent, spec, seed)
    except TooFewSteps:
        raise OutOfTime from None


def _affordable(attack: Adversary, agent: Agent, spec: EnvSpec, seed: int, clock: Clock) -> int:
    clock.tick()
    trial = attack.briefly(RATED)
    begun = time.perf_counter()
    trial.fit(agent, spec, seed)
    rate = trial.steps / (time.perf_counter() - begun)
    steps = min(attack.steps, int(rate * LEARNING * clock.left()))
    if steps < max(attack.least_steps, LEAST_STEPS):
        raise OutOfTime
    return steps
