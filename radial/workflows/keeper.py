"""Keeps the best agent of a fine-tuning, judged as it will be reported: by short evaluations of its greedy policy.

The loop that trains asks it now and then through a `Guide`; which agents are fine-tuned how is in `robustify`.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from radial.agents.convert import AnyAgent
from radial.agents.saved import read_folder, save
from radial.core.agent import Agent, Attack
from radial.core.data import EnvSpec
from radial.envs.make import make_env
from radial.evaluation.play import evaluate
from radial.evaluation.statistics import mean, sem
from radial.runs.files import read_json, write_atomic
from radial.runs.run import derived_seed
from radial.training.ramp import some

JUDGED = "judged.json"  # in a run's folder: every judgement so far
KEPT = "kept"  # and the best agent
PRICE = 4.0  # of a share of the clean return: what is lost of it must be worth four times as much robustness
STATES_AT_MOST = 1_000  # of the episode whose actions are certified


@dataclass(frozen=True)
class Judgement:
    """One agent on the keeper's own episodes, none of which is reported.

    clean, adversarial  mean greedy returns        spread  standard error of the clean one
                        adversarial None: not attacked, since the agent could not have become the best
    certified           share of certified actions, or None for continuous actions
    """

    step: int
    clean: float
    spread: float
    adversarial: float | None
    certified: float | None


class Keeper:
    """The best of the agents that a fine-tuning passes through.

    An agent qualifies if it loses at most `tolerance` of the clean return, beyond chance; of those the one counts
    whose adversarial return, as a share of the clean return, and certified share gained most, at the price of what it
    lost.

    certify  (agent, observations in network units) → metrics, as a `Guide` has it
    every    env steps between two judgements        since  env steps before the first: so far nothing robust is learned
    folder   where they are kept to be resumed; None: in memory only
    """

    def __init__(
        self, start: AnyAgent, env: EnvSpec, attack: Attack, radius: float, *, tolerance: float, every: int, seed: int,
        episodes: int, certify: Callable[[Agent, Tensor], dict[str, float]], folder: Path | None = None,
        since: int = 0,
    ) -> None:  # fmt: skip
        self.env, self.attack, self.radius, self.tolerance = env, attack, radius, tolerance
        self.every, self.since, self.episodes, self.certify, self.folder = every, since, episodes, certify, folder
        self.seed = derived_seed(seed, "keeper") % (1 << 31)  # other episodes than those that are reported
        self.returns: tuple[float, ...] = ()
        self.before = self._attacked(self._judge(0, start), start)
        self.reference = self.returns  # clean returns of the start
        self.scale = max(abs(self.before.clean), self.before.spread * episodes**0.5, 1e-8)
        self.judged: list[Judgement] = []
        self.best: Judgement | None = None
        self._weights: Mapping[str, Tensor] = {}

    def __call__(self, step: int, agent: Agent) -> Sequence[float] | None:
        """Judge the agent if it is time; the clean greedy returns, or None between two judgements."""
        if step <= self.since or step // self.every == (self.judged[-1].step // self.every if self.judged else 0):
            return None
        assert isinstance(agent, AnyAgent)  # what is trained is one of ours
        found = self._judge(step, agent)
        candidate = self._qualifies(found) and self._beats(found)  # if no attack were to harm it
        found = self._attacked(found, agent) if candidate else found
        self.judged.append(found)
        if candidate and self._beats(found):
            self.best = found
            self._weights = {name: tensor.detach().cpu().clone() for name, tensor in agent.state_dict().items()}
            if self.folder is not None:
                save(agent, self.folder / KEPT, results=asdict(found))
        if self.folder is not None:
            facts = {"best": self.best and self.best.step, "judged": [asdict(one) for one in self.judged]}
            write_atomic(self.folder / JUDGED, json.dumps(facts, indent=1, allow_nan=False) + "\n")
        return self.returns

    def _judge(self, step: int, agent: Agent) -> Judgement:
        clean = evaluate(agent, self.env, None, 0.0, self.episodes, self.seed)
        self.returns = clean.returns
        share = self.certify(agent, self._visited(agent)).get("robust/certified")
        return Judgement(step, clean.mean, sem(clean.returns), None, share)

    def _attacked(self, found: Judgement, agent: Agent) -> Judgement:
        hit = evaluate(agent, self.env, self.attack, self.radius, self.episodes, self.seed)
        return replace(found, adversarial=mean(hit.returns))

    def _beats(self, found: Judgement) -> bool:
        return self.best is None or self.gain(found) >= self.gain(self.best)

    @torch.no_grad()
    def _visited(self, agent: Agent) -> Tensor:
        """The states of one greedy episode, or some of its frames, (B, *obs) in network units."""
        world, seen = make_env(self.env, 1, self.seed), list[Tensor]()
        try:
            obs = world.reset()
            for _ in range(STATES_AT_MOST):
                x = agent.prepare(obs)
                seen.append(x)
                step = world.step(agent.act(x))
                obs = step.obs
                if bool(step.ended[0]):
                    break
        finally:
            world.close()
        states = torch.cat(seen)
        return states if states.dim() == 2 else some(states)

    def _qualifies(self, found: Judgement) -> bool:
        chance = (self.before.spread**2 + found.spread**2) ** 0.5
        return found.clean >= self.before.clean - self.tolerance * self.scale - chance

    def gain(self, found: Judgement) -> float:
        """How much robustness was gained: adversarial return as a share of the clean one, certified share, − the price.

        An agent that was not attacked is taken for one that no attack harms, so this is the most it can have gained.
        """
        certified = 0.0 if found.certified is None else found.certified - (self.before.certified or 0.0)
        least = self.before.adversarial
        assert least is not None  # the start is attacked
        reached = found.clean if found.adversarial is None else found.adversarial
        lost = max(self.before.clean - found.clean, 0.0) / self.scale
        return (reached - least) / self.scale + certified - PRICE * lost

    def restore(self, agent: AnyAgent) -> bool:
        """Give the agent the weights of the best one; False: none qualified."""
        if self.best is None:
            return False
        agent.load_state_dict(self._weights)
        return True

    def resume(self, step: int | None = None) -> None:
        """Go back to the judgements up to an env step, as an interrupted run left them; None: all of them."""
        if self.folder is None or not (self.folder / JUDGED).is_file():
            return
        facts = read_json(self.folder / JUDGED)
        self.judged = [
            one for one in (Judgement(**each) for each in facts["judged"]) if step is None or one.step <= step
        ]
        self.best = next((one for one in self.judged if one.step == facts["best"]), None)
        if self.best is not None:
            self._weights = read_folder(self.folder / KEPT).state_dict()
