"""The search for the strongest adversary: all candidates train for half of the budget, the better half goes on.

Some of them start from the constant adversaries that hurt most (`screening`), the others from nothing. A linear one
(`linear`) may take part, or be all there is.

Candidates are judged by validation episodes whose seeds nothing else uses, never by their training returns, which
favour short episodes. With a folder every training is a run of its own there, and a stopped search resumes.
"""

import copy
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch

from radial.agents import saved
from radial.agents.convert import agent_kind
from radial.agents.policies import CategoricalAgent, GaussianAgent
from radial.agents.weights import weights_id
from radial.attacks.fitting import check_spaces_of
from radial.attacks.learned import records
from radial.attacks.learned.linear import FEWEST, LEAST_LIMIT, enough_for, linear_policy, searched
from radial.attacks.learned.rounds import Candidate, Policy, Searched, Trial, fast, kept_in, rounds, survivors
from radial.attacks.learned.screening import TooFewSteps, TooLong, constant_policy, screened
from radial.attacks.learned.world import AdversaryWorld, Realiser, Threat, check_deterministic
from radial.core.agent import Agent, Attack, Card
from radial.core.data import BadInput, Continuous, EnvSpec, VecEnv
from radial.core.radius import check_features
from radial.core.schedules import Linear
from radial.envs.custom import import_inherited
from radial.envs.make import make_env
from radial.envs.wrapper import EnvWrapper, as_trained
from radial.evaluation.play import Episodes, play, under_attack
from radial.evaluation.statistics import mean
from radial.runs.run import check_free, derived_seed
from radial.runs.storage import patiently
from radial.training.ppo import Making, PPOConfig, train_ppo

if TYPE_CHECKING:
    from radial.attacks.learned.adversaries import Adversary

STD = (1.0, 0.6, 0.2)  # the ceiling on the standard deviation: at first, between the rounds, at the end
SCREENING = 1 / 6  # of the budget, at most, to try constants
VALUE_FIRST = 4  # rollouts in which only the value of a policy learns that starts from a constant
ENTROPY = 0.01  # weight of the bonus, where an adversary chooses among targets
TRIALS = "trials"


class _Open(EnvWrapper):
    """The caller's env, which others must not close."""

    def close(self) -> None:
        """Leave it open."""


class Trainings:
    """Trains, compares and continues candidates; everything random follows from the seed."""

    def __init__(
        self, settings: "Adversary", agent: Agent, env: EnvSpec | VecEnv, threat: Threat, seed: int, *,
        out: Path | None, resume: bool, quiet: bool, storage: str | None = None, each: "Each | None" = None,
    ) -> None:  # fmt: skip
        self.storage, self.each = storage, each
        self.settings, self.agent, self.threat, self.seed = settings, agent, threat, seed
        self.given = None if isinstance(env, EnvSpec) else env
        self.spec = fast(env) if isinstance(env, EnvSpec) else env.spec
        self.out, self.resume, self.quiet = out, resume, quiet
        self.trials: list[Trial] = []
        self._later = 0  # steps of the second round
        self._realisers: dict[str, Realiser] = {}

    # ----------------------------------------------------------------------------------------------------- the rounds

    def run(self) -> Searched:
        """Search, and say what was found."""
        self._check()
        candidates = self.settings.candidates()
        if self.given is not None:
            candidates = [candidate for candidate in candidates if not candidate.warm][:1]
        self._begin()
        if not candidates:
            return self._found_by(*self._linear_alone())
        policies, starts = self._screen(dict.fromkeys(candidate.kind for candidate in candidates))
        policies |= self._linear_beside()
        self._keep()
        screening = sum(trial.steps for trial in self.trials if not trial.candidate.trained)
        left = self.settings.steps - screening
        first, later, count = rounds(left, len(candidates), self.settings.rollout)
        self._later = later
        warm = {each: starts.get((each.kind, each.number)) for each in candidates if each.warm}
        policies |= self._round({each: warm.get(each) for each in candidates}, 0, first)
        if later:
            scores = {candidate: self._trial(candidate, 0).validation for candidate in candidates}
            going_on = {candidate: policies[candidate] for candidate in survivors(scores, count)}
            for candidate, went_on in self._round(going_on, 1, later).items():
                if self._trial(candidate, 1).validation < self._trial(candidate, 0).validation:
                    policies[candidate] = went_on
        winner = min(self.trials, key=lambda trial: trial.validation)
        return self._found_by(winner, policies[winner.candidate])

    def _found_by(self, winner: Trial, policy: Policy) -> Searched:
        """The winner, acting in the way that hurts most in validation; noise stands in where nothing was learned."""
        kind, scores = winner.candidate.kind, {"deterministic": winner.validation}
        if self.given is None:
            scores |= {acts: self._validate(kind, policy, acts) for acts in ("sampled", "noise")}
        found = self._record(scores)
        return Searched(kind, policy, found["steps"], min(scores, key=lambda acts: scores[acts]), found)

    def _screen(self, kinds: Iterable[str]) -> tuple[dict[Candidate, Policy], dict[tuple[str, int], Policy]]:
        """The best constant of each kind as a candidate; policies that trainings start from, by kind and number.

        Nothing where the budget is too small for it.
        """
        best: dict[Candidate, Policy] = {}
        steps, trainings = self.settings.steps, len(self.settings.candidates())
        starts: dict[tuple[str, int], Policy] = {}
        for kind in () if self.given is not None else kinds:
            form, seed = self.settings.form(kind), derived_seed(self.seed, "constants", kind)
            limit = int(min(SCREENING * steps, steps - trainings * self.settings.rollout) / len(self.settings.kinds))
            candidate = Candidate(kind, 0.0, 0)
            known = self._known(candidate)
            if known is not None and known.cut:
                continue
            try:
                found, spent = screened(self.agent, form, self.threat, self.spec, limit, seed)
            except TooLong as cut:
                self.trials.append(Trial(candidate, 0, cut.steps, math.inf))
                continue
            actions = form.actions(self.agent, self.shape)
            for number, action in enumerate(found):
                at = derived_seed(seed, number)
                starts[kind, number] = constant_policy(
                    self.agent, self.shape, actions, self.settings.hidden, action, at
                )
            best[candidate] = starts[kind, 0]
            if known is None:
                score = self._validate(kind, starts[kind, 0])
                self.trials.append(Trial(candidate, 0, spent, score))
        return best, starts

    def _linear_alone(self) -> tuple[Trial, Policy]:
        """The best linear adversary, with the whole budget."""
        try:
            return self._linear(self.settings.steps)
        except TooLong as cut:
            steps, length = self.settings.steps, max(cut.length, self._played(None, 1).lengths[0])
            least = max(enough_for(length), steps + 1)
            raise TooFewSteps(
                f"steps must be ≥ {least:,} or so, enough for {2 * FEWEST} episodes of {length:,} steps, got {steps:,}"
            ) from None

    def _linear_beside(self) -> dict[Candidate, Policy]:
        """The best linear adversary as one candidate of several; none on frames, nor where its share is too small."""
        how, trainings = self.settings, len(self.settings.candidates())
        constants = sum(each.steps for each in self.trials if not each.candidate.trained and not each.candidate.linear)
        limit = int(min(how.linear_share * how.steps, how.steps - trainings * how.rollout - constants))
        known = self._known(self._linear_candidate)
        if self.given is not None or len(self.shape) != 1 or limit < LEAST_LIMIT or (known is not None and known.cut):
            return {}
        try:
            trial, policy = self._linear(limit)
        except TooLong as cut:
            self.trials.append(Trial(self._linear_candidate, 0, cut.steps, math.inf))
            return {}
        return {trial.candidate: policy}

    def _linear(self, limit: int) -> tuple[Trial, Policy]:
        """The best linear adversary, searched or found in the folder; `TooLong` if its episodes do not end in time."""
        kind, candidate = self.settings.kinds[0], self._linear_candidate
        known = self._known(candidate)
        if self.out is not None and known is not None:
            return known, self._found(candidate, 0)
        form, seed = self.settings.form(kind), derived_seed(self.seed, "linear")
        weights, spent = searched(self.agent, form, self.threat, self.spec, limit, seed)
        policy = linear_policy(self.agent, self.shape, form.actions(self.agent, self.shape), weights)
        score = self._validate(kind, policy)
        self._keep()
        self._ended(policy, Trial(candidate, 0, spent, score))
        return self.trials[-1], policy

    @property
    def _linear_candidate(self) -> Candidate:
        return Candidate(self.settings.kinds[0], 0.0, 0, linear=True)

    def _known(self, candidate: Candidate, round: int = 0) -> Trial | None:
        return next((trial for trial in self.trials if (trial.candidate, trial.round) == (candidate, round)), None)

    def _trial(self, candidate: Candidate, round: int) -> Trial:
        found = self._known(candidate, round)
        assert found is not None
        return found

    def _check(self) -> None:
        """Refuse what no training could use, before anything is written."""
        if self.given is not None and self.out is not None:
            raise BadInput("env must be an EnvSpec for a fit in a folder: a VecEnv cannot be played again")
        env = self._make(self.spec, 1, 0)
        try:
            check_spaces_of(self.agent, env)
            self.shape = env.observation_shape
            if not self.settings.candidates() and (self.given is not None or len(self.shape) != 1):
                raise BadInput("agent must see vectors, and env be an EnvSpec, for a linear adversary")
            x = self.agent.prepare(torch.zeros(4, *self.shape))
            self.agent.ball(x, 0.0)
            check_deterministic(self.agent, x)
            check_features(self.threat.radius, self.shape)
        finally:
            env.close()

    # ------------------------------------------------------------------------------------------------- one training

    def _round(self, starts: Mapping[Candidate, Policy | None], round: int, steps: int) -> dict[Candidate, Policy]:
        """The policies after a round, trained or found in the folder; trials are recorded in the candidates' order."""
        done = {trial.candidate for trial in self.trials if trial.round == round}
        missing = [each for each in starts if each not in done or self.out is None]
        ended: dict[Candidate, tuple[Policy, Trial]] = {}
        if self.each is not None and self.given is None and missing:
            sent = self._sent()
            jobs = {each.name: TrialJob(sent, each, round, steps, starts[each]) for each in missing}
            ended = dict(zip(missing, self.each(train_trial, jobs), strict=True))
        policies: dict[Candidate, Policy] = {}
        for each, start in starts.items():
            if each in missing:
                policies[each] = self._ended(*(ended.get(each) or self.trained(each, round, steps, start)))
            else:
                policies[each] = self._found(each, round)
        return policies

    def _folder(self, candidate: Candidate, round: int) -> Path | None:
        return None if self.out is None else self.out / TRIALS / f"{candidate.name}-round{round}"

    def _found(self, candidate: Candidate, round: int) -> Policy:
        """The policy of a trial that is on record."""
        folder = self._folder(candidate, round)
        assert folder is not None
        policy = saved.read_folder(folder / "agent")
        assert isinstance(policy, GaussianAgent | CategoricalAgent)
        return policy

    def _ended(self, policy: Policy, trial: Trial) -> Policy:
        """Record a trial, and keep its policy."""
        self.trials.append(trial)
        folder = self._folder(trial.candidate, trial.round)
        if folder is not None:
            saved.save(policy, folder / "agent")
            self._keep()
        return policy

    def trained(self, candidate: Candidate, round: int, steps: int, start: Policy | None) -> tuple[Policy, Trial]:
        """A candidate's policy after a round, and its trial; a run that is in the folder, or in storage, is resumed."""
        folder = self._folder(candidate, round)
        config = self._config(candidate, steps, round)
        seed = derived_seed(self.seed, "adversary", candidate.name, round)
        with kept_in(self.storage, folder, self.out):
            resume = folder is not None and (self.resume or self.storage is not None) and folder.exists()
            policy = train_ppo(
                config, seed, out=folder, resume=resume, init=start, make=self.worlds(candidate.kind), quiet=self.quiet
            )
        assert isinstance(policy, GaussianAgent | CategoricalAgent)
        policy.card = Card(env=self.spec, seed=seed, steps=steps)
        score = math.nan if self.given is not None else self._validate(candidate.kind, policy)
        return policy, Trial(candidate, round, steps, score)

    def _sent(self) -> "Trainings":
        """The search as a job takes it along."""
        made = copy.copy(self)
        made.each, made.trials, made._realisers, made.resume, made.quiet = None, [], {}, True, True
        return made

    def config_of(self, candidate: Candidate) -> PPOConfig:
        """The settings of a training that is the only one."""
        self._check()
        return self._config(candidate, self.settings.steps, 0)

    def _config(self, candidate: Candidate, steps: int, round: int) -> PPOConfig:
        """The settings of one round; a candidate that is alone has one, which is both."""
        how = self.settings
        actions = how.form(candidate.kind).actions(self.agent, self.shape)
        real = isinstance(actions, Continuous)
        alone, rate = not self._later, candidate.learning_rate
        first, last = STD[round], STD[2] if alone else STD[round + 1]
        envs = how.num_envs if self.given is None else self.given.num_envs
        rollout = max(envs, how.rollout // envs * envs)
        return PPOConfig(
            # a rollout's resets are no steps: this many are reached by the last rollout of the budget, not by one more
            self.spec, total_steps=max(1, steps - rollout + 1), num_envs=envs, rollout=rollout, epochs=how.epochs,
            minibatch=min(how.minibatch, rollout // 2), policy_rate=rate, value_rate=rate, discount=how.discount,
            entropy=0.0 if real else ENTROPY, initial_std=first, anneal=alone or round == 1,
            hidden=how.hidden, compile=how.compile,
            max_std=Linear(last, 0, steps, start=first) if real else None,
            normalize_observations=len(self.shape) == 3,  # vectors are normalised by the agent
            checkpoint_every=50 if self.given is None else steps,
            value_first=VALUE_FIRST * rollout if candidate.warm and round == 0 else 0,
        )  # fmt: skip

    def _make(self, spec: EnvSpec, num_envs: int, seed: int, *, threads: int | None = None) -> VecEnv:
        return make_env(spec, num_envs, seed, threads=threads) if self.given is None else _Open(self.given)

    def worlds(self, kind: str) -> Making:
        """What makes the world of an adversary of this kind; its compiled part is shared by all trainings."""
        form = self.settings.form(kind)
        if kind not in self._realisers:
            self._realisers[kind] = Realiser(self.agent, form, self.threat, self.settings.compile)

        def make(spec: EnvSpec, num_envs: int, seed: int, *, threads: int | None = None) -> VecEnv:
            env = self._make(spec, num_envs, seed, threads=threads)
            return AdversaryWorld(env, self.agent, form, self._realisers[kind])

        return make

    def _validate(self, kind: str, policy: Policy, acts: str = "deterministic") -> float:
        """The agent's mean return on the validation episodes under this adversary."""
        from radial.attacks.learned.adversaries import LearnedAttack

        how = self.settings
        attack = LearnedAttack(kind, self.threat.radius, self.threat.p, 0, acts, policy, how.form(kind), {})
        return mean(self._played(attack, self.episodes).returns)

    @property
    def episodes(self) -> int:
        """Of validation; on frames, whose games are long, a fifth of them."""
        return self.settings.episodes if len(self.shape) == 1 else max(1, self.settings.episodes // 5)

    def _played(self, attack: Attack | None, episodes: int) -> Episodes:
        env = make_env(self.spec, episodes, derived_seed(self.seed, "validation"))
        try:
            rng = torch.Generator().manual_seed(derived_seed(self.seed, "validation noise"))
            choose = under_attack(self.agent, attack, self.threat.budget(), self.threat.p, rng)
            return play(as_trained(self.agent, env), choose, episodes)
        finally:
            env.close()

    # ---------------------------------------------------------------------------------------------------- the record

    @property
    def _asked(self) -> dict[str, Any]:
        return records.asked_for(self.settings, self.agent, self.spec, self.seed)

    def _begin(self) -> None:
        """Take up the search that is in the folder, or see that one can begin there; nothing is written yet."""
        if self.out is None:
            return
        there = records.kept_settings(self.out)
        if there is None:
            check_free(self.out)
            records.check_fit_folder(self.out)
            return
        if not self.resume:
            raise BadInput(f"{self.out} already holds a fit; use --resume to resume it or another --out")
        different = records.differing(self._asked, there)
        if different:
            raise BadInput(f"{self.out} holds a fit with other settings; these differ: {', '.join(different)}")
        self.trials = records.kept_trials(self.out)

    def _keep(self) -> None:
        """Write what is known so far: first when something was found, or a training that can be resumed begins."""
        if self.out is not None:
            records.write_search(self.out, self._asked, self.trials)

    def _record(self, scores: Mapping[str, float]) -> dict[str, Any]:
        """What is kept of the search with the attack. scores: of its ways to act, in validation."""
        validated, told = self.given is None, records.tried(self.trials)
        return {
            "weights": weights_id(self.agent.choice), "observation_shape": list(self.shape),
            "actions": repr(self.agent.actions), "agent_kind": agent_kind(self.agent), "env": asdict(self.spec),
            "seed": self.seed, "steps": told["steps"],
            "trials": told["trials"] if validated else [], "curve": told["curve"] if validated else [],
            "validation_episodes": self.episodes if validated else 0,
            "validation": dict(scores) if validated else {},
        }  # fmt: skip


@dataclass(frozen=True, eq=False)
class TrialJob:
    """One training of a round, for another process."""

    search: Trainings
    candidate: Candidate
    round: int
    steps: int
    start: Policy | None


def train_trial(job: TrialJob) -> tuple[Policy, Trial]:
    """Train it in this process."""
    import_inherited()
    return patiently(lambda: job.search.trained(job.candidate, job.round, job.steps, job.start))


class Each(Protocol):
    """Calls a function with each job, side by side; the results in their order."""

    def __call__(
        self, function: Callable[[TrialJob], tuple[Policy, Trial]], jobs: Mapping[str, TrialJob], /
    ) -> list[tuple[Policy, Trial]]:
        """Any job that failed raises, once all have ended."""
