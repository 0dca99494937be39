"""ATLA: an adversary that learns in turns with the agent it attacks (Zhang et al. 2021).

`train_ppo` calls it through `training.adversary.Opponent`; its world and its forms are those of the fitted adversaries.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from radial.attacks.learned.adversaries import FORMS
from radial.attacks.learned.directors import Directors
from radial.attacks.learned.forms import view
from radial.attacks.learned.world import AdversaryWorld, Realiser, Threat
from radial.core.data import BadInput, Continuous, EnvSpec, VecEnv
from radial.core.text import nearest
from radial.envs.make import make_env
from radial.runs.run import derived_seed
from radial.training.adversary import Opponent, norm_of
from radial.training.ppo import Making, PPOConfig, estimate, set_up
from radial.training.rollouts import Returns, check_rollout, collect
from radial.training.sight import PPOAgent, sight_of

LEARNERS = (*FORMS, "linear")  # the attacks that need turns
TARGET_ENTROPY = 0.01  # weight of the bonus where an adversary chooses among targets, at least


@dataclass(frozen=True)
class Alternating:
    """The attack behind `PPOConfig.turns`: `join` makes an opponent of a training.

    kind  "sarl" perturbs observations (ATLA), "paad" directs the agent's actions (PA-ATLA), "linear" does so by linear
          functions, of which many are searched side by side
    """

    kind: str = "sarl"

    def __post_init__(self) -> None:
        if self.kind not in LEARNERS:
            hint = nearest(self.kind, LEARNERS)
            raise BadInput(f"attack must be one of {', '.join(LEARNERS)} where turns are set, got {self.kind!r}{hint}")

    def join(self, agent: PPOAgent, config: PPOConfig, seed: int, make: Making | None = None) -> Opponent:
        """An untrained adversary against an agent in training; it sees the agent's weights as they change."""
        if self.kind == "linear":
            return Directors(agent, config, seed, make or make_env)
        return LearningOpponent(self.kind, agent, config, seed, make or make_env)


class LearningOpponent:
    """A policy that PPO trains against the agent's mean or likeliest actions, in environments of its own.

    It shows its sampled perturbations to the agent in training, and learns after every `turns.agent` updates of it.
    """

    def __init__(self, kind: str, agent: PPOAgent, config: PPOConfig, seed: int, make: Making) -> None:
        assert config.turns is not None, "a config with an adversary that learns has turns"
        self.agent, self.turns, self.probability, self.seed = agent, config.turns, config.attack_probability, seed
        self.form = FORMS[kind]()
        self.p = norm_of(config)
        self.realise = Realiser(agent, self.form, Threat(0.0, self.p), config.compile)
        self._make_env = make
        assert agent.observation_shape is not None
        real = isinstance(self.form.actions(agent, agent.observation_shape), Continuous)
        self.config = PPOConfig(
            config.env, total_steps=config.total_steps, num_envs=config.num_envs, rollout=config.rollout,
            epochs=config.epochs, minibatch=config.minibatch, policy_rate=self.turns.rate,
            value_rate=self.turns.value_rate, anneal=config.anneal, discount=config.discount, lam=config.lam,
            clip=config.clip, entropy=self.turns.entropy if real else max(self.turns.entropy, TARGET_ENTROPY),
            compile=config.compile, normalize_observations=len(agent.observation_shape) == 3,
        )  # fmt: skip
        device = next(agent.parameters()).device
        made = set_up(self.config, derived_seed(seed, "adversary"), device, make=self._world)
        self.policy, self.learner, self.scale, self.rng = made
        self.sight = sight_of(self.policy)
        self.actor = self.sight.actor(config.compile)
        self.returns, self.steps = Returns(config.num_envs), 0
        self.env: VecEnv | None = None
        self._x: Tensor | None = None

    def _world(self, spec: EnvSpec, num_envs: int, seed: int, *, threads: int | None = None) -> VecEnv:
        env = self._make_env(spec, num_envs, seed, threads=threads)
        return AdversaryWorld(env, self.agent, self.form, self.realise)

    # --------------------------------------------------------------------------------------------------- the attack

    def begin(self, radius: float) -> bool:
        """Set the radius; return whether there is anything to attack."""
        self.realise.threat = Threat(radius, self.p)
        return radius > 0

    @torch.no_grad()
    def __call__(self, x: Tensor, rng: torch.Generator) -> Tensor:
        """The observations the agent is shown instead of x (N, *obs): the adversary samples."""
        shown = self.realise(x, self.policy.act(self.policy.prepare(view(self.agent, x)), rng))
        chosen = torch.rand(x.shape[0], generator=rng, device=x.device) < self.probability
        return torch.where(chosen.view(-1, *[1] * (x.ndim - 1)), shown, x)

    # ---------------------------------------------------------------------------------------------------- its turns

    def turn(self, step: int, update: int, left: float) -> dict[str, float]:
        """Learn, if it is its turn after this update of the agent.

        step, update  of the agent        left  remaining share of the learning rates
        """
        if self.realise.threat.largest <= 0 or update % self.turns.agent:
            return {}
        losses: dict[str, float] = {}
        for _ in range(self.turns.adversary):
            losses = self._update(step, left)
        told = {f"adversary/{name.partition('/')[2]}": value for name, value in losses.items()}
        mean = self.returns.mean()
        return told | {"adversary/steps": float(self.steps)} | ({} if mean is None else {"adversary/return": mean})

    def _update(self, step: int, left: float) -> dict[str, float]:
        """One rollout of its own, and the update from it."""
        if self.env is None:
            at = derived_seed(self.seed, "adversary envs", step)
            self.env = self._world(self.config.env, self.config.num_envs, at)
            self.actor.begin()
            self._x = self.actor.observe(self.env.reset().to(self.rng.device))
            self.actor.finish()
            self.scale.returns.zero_()
            self.returns.forget()
        assert self._x is not None
        length = self.config.rollout // self.config.num_envs
        rollout, self._x = collect(self.env, self._x, self.actor, self.scale, self.returns, length, self.rng)
        check_rollout(rollout, step)
        self.steps += int(rollout.real.sum())
        data = estimate(rollout, self.sight, self.config.discount, self.config.lam)
        return self.learner.learn(data, step, left, self.rng)

    def leave(self) -> None:
        """Close its environments; it enters new ones at its next turn."""
        if self.env is not None:
            self.env.close()
            self.env = None

    # -------------------------------------------------------------------------------------------------- checkpoints

    def state(self) -> dict[str, Tensor]:
        """Everything to resume from; its environments are made anew."""
        tensors = {f"policy.{name}": tensor for name, tensor in self.policy.state_dict().items()}
        tensors |= {f"adam.{name}": tensor for name, tensor in self.learner.adam._asdict().items()}
        tensors |= {f"scale.{name}": tensor for name, tensor in self.scale.state_dict().items()}
        past = torch.tensor([self.returns.returns, self.returns.lengths], dtype=torch.float64)
        return tensors | {"rng": self.rng.get_state(), "past": past, "steps": torch.tensor(self.steps)}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Resume from a saved state."""

        def part(prefix: str) -> dict[str, Tensor]:
            return {name.removeprefix(prefix): each for name, each in state.items() if name.startswith(prefix)}

        self.policy.load_state_dict(part("policy."))
        self.scale.load_state_dict(part("scale."))
        self.learner.restore(part("adam."))
        self.rng.set_state(state["rng"])
        self.returns.returns, self.returns.lengths = state["past"].tolist()
        self.steps = int(state["steps"])
