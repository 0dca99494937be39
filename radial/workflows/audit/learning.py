"""Attacks that learn, within a budget of time: adversaries with the steps it allows, measured by a few rollouts."""

import time
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any

from radial.attacks.fitting import between_minibatches
from radial.attacks.learned.adversaries import Adversary, LearnedAttack
from radial.attacks.learned.screening import TooFewSteps
from radial.attacks.learned.strong import StrongPGD
from radial.core.agent import Agent, Attack
from radial.core.data import EnvSpec, VecEnv
from radial.envs.make import make_env
from radial.evaluation.statistics import unharmed
from radial.workflows.audit.budget import Clock, OutOfTime, Until
from radial.workflows.audit.suite import envs_to_fit

RATED = 2  # rollouts by which the speed of learning is measured
LEARNING = 0.6  # of an attack's time, to learn: it must play as well
LEAST_STEPS = 20_000  # fewer teach nothing
LEAST_TIME = 5.0  # seconds: in less not even the fastest env makes so many
WORTH_COMPILING = 150_000  # steps: to compile takes as long as it saves in these


def fit_in_time(attack: Any, agent: Agent, spec: EnvSpec, seed: int, clock: Clock) -> Attack:
    """Fit an attack within its part of the time left; raises `OutOfTime` if that teaches it nothing."""
    if isinstance(attack, Adversary):
        return _adversary(attack, agent, spec, seed, clock)
    with clock.within(LEARNING * clock.left()):
        if isinstance(attack, StrongPGD):
            return _losses(attack, agent, spec, seed, clock)
        count = envs_to_fit(attack, agent)
        world = Until(make_env(spec, count, seed), clock, range(count))
        with closing(world), between_minibatches(clock.tick):
            fitted: Attack = attack.fit(agent, world, seed)
            return fitted


def _losses(attack: StrongPGD, agent: Agent, spec: EnvSpec, seed: int, clock: Clock) -> Attack:
    """Each loss has an equal part of the time; those count that finished an episode."""
    mildest: dict[int, float] = {}  # the highest return from each start under any loss so far

    def rehearse(loss: Attack, world: VecEnv, coming: int) -> dict[int, float]:
        watched = Until(world, clock, range(world.num_envs))
        with suppress(OutOfTime), clock.within(clock.left() / coming):
            attack.played(agent, watched, loss, seed)
        ended = watched.finished().by_start
        for start, score in ended.items():
            mildest[start] = max(score, mildest.get(start, score))
        if coming == 1 and not mildest:
            raise OutOfTime
        return unharmed(ended, watched.so_far().by_start, mildest) if ended else {}

    return attack.in_turn(agent, spec, seed, rehearse)


def _adversary(attack: Adversary, agent: Agent, spec: EnvSpec, seed: int, clock: Clock) -> LearnedAttack:
    if clock.seconds is not None:
        steps = _affordable(attack, agent, spec, seed, clock)
        attack = replace(attack, steps=steps, compile=attack.compile and steps >= WORTH_COMPILING)
    try:
        return attack.fit(agent, spec, seed)
    except TooFewSteps:
        raise OutOfTime from None


def _affordable(attack: Adversary, agent: Agent, spec: EnvSpec, seed: int, clock: Clock) -> int:
    if clock.left() < LEAST_TIME:
        raise OutOfTime
    trial = replace(attack.briefly(RATED), compile=False)
    begun = time.perf_counter()
    trial.fit(agent, spec, seed)
    rate = trial.steps / (time.perf_counter() - begun)
    steps = min(attack.steps, int(rate * LEARNING * clock.left()))
    if steps < max(attack.least_steps, LEAST_STEPS):
        raise OutOfTime
    return steps
