import json
import math
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from radial.agents.policies import CategoricalAgent, GaussianAgent
from radial.attacks import MAD, PGD
from radial.core.ball import Ball
from radial.core.data import BadInput, Continuous, Discrete, EnvSpec, Step
from radial.evaluation.play import Evaluation, View, evaluate, play, side_by_side, spec_of, under_attack

CARTPOLE = EnvSpec("classic", "CartPole-v1")


class Lengths:
    """One reward per step, and episodes of 1 or 20 steps by the toss of a coin: the return is the length.

    Reset rows carry a reward that nobody may count.
    """

    spec = EnvSpec("test", "Lengths")
    engine = {"backend": "test"}
    observation_shape = (1,)
    actions = Discrete(2)

    def __init__(self, num_envs: int, seed: int = 0) -> None:
        self.num_envs, self.closed = num_envs, False
        self.rng = torch.Generator().manual_seed(seed)

    def _lengths(self) -> Tensor:
        return torch.where(torch.rand(self.num_envs, generator=self.rng) < 0.5, 1, 20)

    def reset(self) -> Tensor:
        self.left, self.ended = self._lengths(), torch.zeros(self.num_envs, dtype=torch.bool)
        return self.left.unsqueeze(1).float()

    def step(self, action: Tensor) -> Step:
        real = ~self.ended
        self.left = torch.where(real, self.left - 1, self._lengths())
        self.ended = real & (self.left == 0)
        reward = torch.where(real, 1.0, 99.0)
        return Step(self.left.unsqueeze(1).float(), reward, reward, self.ended, torch.zeros_like(real), real)

    def close(self) -> None:
        self.closed = True


def still(view: View) -> Tensor:
    return torch.zeros(view.obs.shape[0], dtype=torch.int64)


def random_agent(seed: int = 0) -> CategoricalAgent:
    agent = CategoricalAgent((4,), 2)
    agent.initialize(torch.Generator().manual_seed(seed))
    return agent


# ----------------------------------------------------------------------------------------------------------- the loop


def first_to_finish(env: Lengths, episodes: int) -> float:
    """How not to do it, written out once more."""
    env.reset()
    total, returns = torch.zeros(env.num_envs), []
    while len(returns) < episodes:
        step = env.step(torch.zeros(env.num_envs, dtype=torch.int64))
        total += step.score * step.real
        returns += total[step.ended].tolist()
        total[step.ended] = 0.0
    return sum(returns[:episodes]) / episodes


@pytest.mark.parametrize("num_envs", [1, 5, 16, 64])
def test_short_episodes_are_not_favoured_however_many_envs_play(num_envs: int) -> None:
    returns = [x for seed in range(40) for x in play(Lengths(num_envs, seed), still, 64).returns]
    assert len(returns) == 40 * 64
    assert sum(returns) / len(returns) == pytest.approx(10.5, abs=4 * 9.5 / math.sqrt(len(returns)))


def test_counting_the_first_to_finish_favours_short_ones_and_must_be_asked_for() -> None:
    asked = [play(Lengths(64, seed), still, 64, first_finished=True) for seed in range(40)]
    by_hand = [first_to_finish(Lengths(64, seed), 64) for seed in range(40)]
    assert all(len(played.returns) == 64 for played in asked)
    assert [sum(played.returns) / 64 for played in asked] == pytest.approx(by_hand)
    assert sum(by_hand) / 40 < 7


def test_the_first_to_finish_come_as_they_ended() -> None:
    """With one env the two rules are one; with several, those that end with one step come in the order of the envs."""
    one, other = (play(Lengths(1), still, 9, first_finished=first) for first in (True, False))
    assert one == other
    told: list[int] = []
    played = play(Lengths(10), still, 3, first_finished=True, progress=told.append)
    assert played.lengths == (1, 1, 1)  # more than three of ten last one step, and no more than three count
    assert told == [3]


def test_every_env_plays_its_share() -> None:
    """Seven episodes in three envs are 3 + 2 + 2; ends of the envs that wait are ignored."""
    begun = torch.zeros(3, dtype=torch.int64)
    acted = torch.zeros(3, dtype=torch.int64)

    def choose(view: View) -> Tensor:
        begun.add_(view.first & view.counts)
        acted.add_(view.counts)
        return still(view)

    told: list[int] = []
    played = play(Lengths(3), choose, 7, progress=told.append)
    assert begun.tolist() == [3, 2, 2]
    assert len(played.returns) == told[-1] == 7
    assert played.returns == tuple(float(length) for length in played.lengths)  # nothing of the reset rows
    assert int(acted.sum()) == sum(played.lengths)


def test_fewer_episodes_than_envs_are_played_by_the_first_ones() -> None:
    assert len(play(Lengths(10), still, 3).returns) == 3


# ---------------------------------------------------------------------------------------------------------- the clip


class Cheat:
    """Proposes whatever it is given, far outside."""

    def __init__(self, value: float) -> None:
        self.value = value
        self.told: list[Tensor] = []

    def __repr__(self) -> str:
        return "Cheat()"

    def perturb(self, agent: Any, ball: Ball, rng: torch.Generator) -> Tensor:
        return ball.center + self.value

    def reset(self, done: Tensor) -> None:
        self.told.append(done.clone())


class Recorder(CategoricalAgent):
    """Remembers what it is shown."""

    def act(self, x: Tensor, rng: torch.Generator | None = None) -> Tensor:
        self.seen = x
        return super().act(x, rng)


def test_an_attack_that_cheats_is_cut_to_the_ball() -> None:
    agent = Recorder((4,), 2)
    obs = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    view = View(obs, torch.tensor([True]), torch.tensor([True]))
    for p, reach in ((math.inf, 0.1), (2.0, 0.05), (1.0, 0.025)):
        under_attack(agent, Cheat(100.0), 0.1, p, torch.Generator())(view)
        assert torch.allclose(agent.seen - agent.prepare(obs), torch.full((1, 4), reach), atol=1e-6)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_an_attack_that_breaks_is_named(value: float) -> None:
    with pytest.raises(BadInput, match=r"attack must return finite observations, Cheat\(\) gave NaN or inf"):
        evaluate(random_agent(), CARTPOLE, Cheat(value), 0.1, episodes=2)


@dataclass(frozen=True)
class Counted(PGD):
    """PGD that counts what it is asked about; `alone` says whether observations may be left out."""

    alone: bool = True
    asked: list[int] = field(default_factory=list)

    def draws_nothing(self, agent: Any) -> bool:
        return self.alone and super().draws_nothing(agent)

    def perturb(self, agent: Any, ball: Ball, rng: torch.Generator) -> Tensor:
        self.asked.append(len(ball.center))
        return super().perturb(agent, ball, rng)


def test_an_attack_without_chance_is_asked_only_about_what_counts() -> None:
    few, all_of_them = Counted(), Counted(alone=False)
    found = [evaluate(random_agent(), CARTPOLE, attack, 0.2, episodes=6) for attack in (few, all_of_them)]
    assert found[0].returns == found[1].returns
    assert sum(few.asked) == sum(found[0].lengths)
    assert set(all_of_them.asked) == {6}
    assert not PGD.strong().draws_nothing(random_agent())


def test_an_attack_hears_of_every_new_episode() -> None:
    cheat = Cheat(0.0)
    result = evaluate(random_agent(), CARTPOLE, cheat, 0.1, episodes=3, num_envs=1)
    starts = [step for step, done in enumerate(cheat.told) if bool(done)]
    one, two, _ = result.lengths
    assert starts == [0, one + 1, one + two + 2]  # one reset row between two episodes


# -------------------------------------------------------------------------------------------------------- evaluate


def test_an_evaluation_repeats_itself_and_leaves_the_agent_alone() -> None:
    agent = random_agent()
    before = {name: value.clone() for name, value in agent.state_dict().items()}
    drawn = torch.get_rng_state()
    one, two = (evaluate(agent, CARTPOLE, Cheat(0.3), 0.2, 9, 4, stochastic=True, num_envs=4) for _ in range(2))
    assert replace(one, wall_seconds=0.0) == replace(two, wall_seconds=0.0)
    assert one.returns != evaluate(agent, CARTPOLE, Cheat(0.3), 0.2, 9, 5, stochastic=True, num_envs=4).returns
    assert all(torch.equal(before[name], value) for name, value in agent.state_dict().items())  # its normaliser too
    assert not agent.normalizer.frozen
    assert torch.equal(drawn, torch.get_rng_state())


def test_radius_zero_is_no_attack_at_all() -> None:
    nominal = evaluate(random_agent(), CARTPOLE, episodes=6)
    assert nominal.returns == evaluate(random_agent(), CARTPOLE, Cheat(1.0), 0.0, episodes=6).returns
    assert nominal.attack == "none"


def test_the_rule_of_counting_is_recorded() -> None:
    agent, env = CategoricalAgent((1,), 2), Lengths(16)
    assert not evaluate(agent, env, episodes=16).to_json()["first_finished"]
    found = evaluate(agent, Lengths(16), episodes=16, first_finished=True)
    assert found.to_json()["first_finished"]
    assert found.mean < 10.5


def test_how_many_envs_play_side_by_side() -> None:
    assert side_by_side(CARTPOLE) == 50
    assert side_by_side(EnvSpec("procgen", "fruitbot")) == 64
    assert evaluate(random_agent(), CARTPOLE, episodes=60).num_envs == 50
    assert evaluate(random_agent(), CARTPOLE, episodes=60, num_envs=7).num_envs == 7


def test_the_number_of_envs_only_moves_the_random_numbers() -> None:
    """An agent that is evaluated in 1 and in 50 envs scores the same up to chance."""
    agent = random_agent(3)
    few, many = (evaluate(agent, CARTPOLE, episodes=200, num_envs=n, seed=n, stochastic=True) for n in (2, 50))
    assert abs(few.mean - many.mean) < 4 * math.hypot(few.sem, many.sem)


def test_what_is_written_can_be_read() -> None:
    result = evaluate(random_agent(), "CartPole-v1", Cheat(0.1), 0.05, episodes=4, seed=1, name="mine")
    facts = json.loads(json.dumps(result.to_json(), allow_nan=False))
    wanted = (
        "agent env engine attack radius p seed episodes returns mean sem iqm iqm_ci95 wall_seconds lengths stochastic"
    )
    assert set(wanted.split()) <= set(facts)
    assert (facts["agent"], facts["env"], facts["attack"], facts["p"]) == (
        "mine",
        "CartPole-v1",
        "Cheat()",
        "inf",
    )
    assert facts["engine"]["backend"] == "gymnasium"
    assert facts["returns"] == [float(length) for length in facts["lengths"]]  # CartPole pays 1 per step
    assert facts["mean"] == pytest.approx(sum(facts["returns"]) / 4)
    assert facts["iqm_ci95"][0] <= facts["iqm"] <= facts["iqm_ci95"][1]
    assert "4 episodes, Cheat() at 0.05" in str(result)
    assert isinstance(result, Evaluation)


def test_an_attack_that_learns_does_so_first() -> None:
    asked: list[tuple[Any, ...]] = []

    class Learner:
        def fit(self, agent: Any, env: EnvSpec, seed: int) -> Cheat:
            asked.append((agent, env, seed))
            return Cheat(0.0)

    agent = random_agent()
    result = evaluate(agent, "CartPole-v1", Learner(), 0.1, episodes=2, seed=3)
    assert result.attack == "Cheat()"
    assert asked[0][:2] == (agent, CARTPOLE)
    evaluate(agent, "CartPole-v1", Learner(), 0.1, episodes=2, seed=3)
    assert asked[0][2] == asked[1][2]


def test_an_env_of_the_caller_is_used_and_left_open() -> None:
    env = Lengths(4)
    agent = CategoricalAgent((1,), 2)
    assert evaluate(agent, env, episodes=5).env == "Lengths"
    assert not env.closed


def test_mujoco_is_gymnasiums_own_unless_a_backend_is_named() -> None:
    assert spec_of("Hopper-v4") == EnvSpec("mujoco", "Hopper-v4", {"backend": "gymnasium"})
    assert spec_of(EnvSpec("mujoco", "Ant-v4", {"max_episode_steps": 5})).options["backend"] == "gymnasium"
    pool = EnvSpec("mujoco", "Hopper-v4", {"backend": "envpool"})
    assert spec_of(pool) == pool
    assert spec_of("CartPole-v1") == CARTPOLE
    lives = EnvSpec("atari", "Pong", {"episodic_life": True, "preset": "radial-a3c"})
    assert spec_of(lives) == EnvSpec("atari", "Pong", {"preset": "radial-a3c"})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"radius": -0.1}, "radius must be a finite number ≥ 0, or .*, got -0.1"),
        ({"radius": math.nan}, "radius must be a finite number ≥ 0, or .*, got nan"),
        ({"p": 3}, "p must be 1, 2 or inf, got 3"),
        ({"episodes": 0}, "episodes must be a whole number ≥ 1, got 0"),
        ({"num_envs": 0}, "num_envs must be a whole number ≥ 1, got 0"),
        ({"seed": -1}, "seed must be a whole number ≥ 0, got -1"),
        ({"env": "CartPole-v"}, "unknown environment 'CartPole-v'; did you mean 'CartPole-v"),
        ({"env": "Acrobot-v1"}, r"agent must fit the env: its observation_shape is \(4,\), .*Acrobot-v1 is \(6,\)"),
        ({"agent": CategoricalAgent((4,), 3)}, r"its actions is Discrete\(n=3\), .* is Discrete\(n=2\)"),
        ({"agent": GaussianAgent((4,), 1)}, r"its actions is Continuous\(size=1\), .* is Discrete\(n=2\)"),
    ],
)
def test_bad_input(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        evaluate(**({"agent": random_agent(), "env": CARTPOLE} | arguments))


def test_continuous_actions_are_played_as_they_are() -> None:
    agent = GaussianAgent((3,), 1)
    assert agent.actions == Continuous(1)
    result = evaluate(agent, EnvSpec("classic", "Pendulum-v1"), episodes=2)
    assert result.lengths == (200, 200)


@pytest.mark.parametrize("attack", ["mad", MAD, 3])
def test_what_is_no_attack_is_refused(attack: object) -> None:
    with pytest.raises(BadInput, match="attack must be None or an attack"):
        evaluate(CategoricalAgent((4,), 2, (8,)), "CartPole-v1", attack, 0.1, 1)  # type: ignore[arg-type]


def test_what_is_no_env_is_refused() -> None:
    with pytest.raises(BadInput, match="env must be an id"):
        evaluate(CategoricalAgent((4,), 2, (8,)), None, episodes=1)  # type: ignore[arg-type]
