"""The absolute worst case against enumeration, and what is said when the search does not end."""

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from radial.agents.actor_critic import ActorCritic
from radial.agents.foreign import as_agent, wrap
from radial.agents.q_agent import QAgent
from radial.attacks.gradient import MAD, PGD, RandomNoise
from radial.core.ball import Ball
from radial.core.data import BadInput, EnvSpec
from radial.envs.cloning import make_cloneable
from radial.envs.contract import EnvFault
from radial.envs.make import env_seeds, make_env
from radial.evaluation.certificates import gwc
from radial.evaluation.play import evaluate, streams
from radial.evaluation.prover import threat_model
from radial.evaluation.tables_test import (
    AsVector,
    LinearAgent,
    TableWorld,
    enumerated,
    exact_linear,
    opposed,
    random_table,
)
from radial.evaluation.worst_case import AbsoluteWorstCase, Start, WorstCaseSearch, awc

CARTPOLE = EnvSpec("classic", "CartPole-v1")
LOW = -5.0  # what a step in a random table pays at least


def search(world: TableWorld, radius: float, **settings: Any) -> AbsoluteWorstCase:
    return awc(opposed(), world, radius, exact_linear, **settings)


def bandit(*returns: float) -> TableWorld:
    """Both actions possible in a first state at radius 1; they end the episode."""
    return TableWorld([(0.0, {action: (None, paid) for action, paid in enumerate(returns)})])


# --------------------------------------------------------------------------------------------------- small worlds


def test_by_hand() -> None:
    """The greedy worst case takes the action the agent likes least, 1, into the better half of this world."""
    world = TableWorld([
        (0.1, {0: (1, 0.0), 1: (2, 0.0)}),
        (0.5, {0: (None, -4.0), 1: (None, 9.0)}),
        (0.5, {0: (None, 3.0), 1: (None, -9.0)}),
    ])  # fmt: skip
    found = search(world, 0.2)
    assert (found.lower, found.upper, found.exact, found.greedy) == (-4.0, -4.0, True, 3.0)
    assert found.starts[0].path == (0, 0)  # −9 stands behind an action that cannot be forced
    assert str(found).startswith("AWC -4.0, exact, at 0.2 (exact_linear, 3 states)")
    assert search(world, 0.6).upper == -9.0
    assert search(world, 0.0).upper == -4.0  # undisturbed


@pytest.mark.parametrize("reward_low", [None, LOW])
@pytest.mark.parametrize("seed", range(30))
def test_it_is_the_least_of_all_sequences(seed: int, reward_low: float | None) -> None:
    for radius in (0.0, 0.3, 0.6, 1.0):
        world = random_table(seed)
        found = search(world, radius, reward_low=reward_low)
        assert found.exact
        assert found.lower == found.upper == enumerated(world, radius)


@pytest.mark.parametrize("seed", range(10))
def test_a_horizon_cuts_what_is_counted(seed: int) -> None:
    for horizon in (1, 2, 4):
        found = search(random_table(seed), 0.6, horizon=horizon, reward_low=LOW)
        assert found.upper == enumerated(random_table(seed), 0.6, horizon)
        assert len(found.starts[0].path) <= horizon


@pytest.mark.parametrize("seed", range(5))
def test_it_is_below_gwc_and_below_every_attack(seed: int) -> None:
    world = random_table(seed)
    found = search(world, 0.4)
    greedy = gwc(opposed(), AsVector(world), 0.4, exact_linear, episodes=1)
    assert found.greedy == greedy.mean
    assert found.upper <= greedy.mean
    for attack in (None, PGD(), MAD(), RandomNoise()):
        attacked = evaluate(opposed(), AsVector(world), attack, 0.4, episodes=2)
        assert found.upper <= min(attacked.returns)


def diamonds(count: int) -> TableWorld:
    """Diamonds in a row, each with two ways around it that meet again: 2ⁿ paths through 3n + 1 states."""
    rows: list[Any] = []
    for number in range(count):
        top = 3 * number
        rows.append((0.0, {0: (top + 1, 1.0), 1: (top + 2, 2.0)}))
        rows += [(0.0, {0: (top + 3, 1.0), 1: (top + 3, 0.0)})] * 2
    return TableWorld([*rows, (0.0, {0: (None, 1.0), 1: (None, 1.0)})])


def test_a_state_that_is_reached_twice_is_explored_once() -> None:
    """40 diamonds have 10¹² paths."""
    world = diamonds(40)
    found = search(world, 1.0)
    assert (found.upper, found.exact) == (41.0, True)  # 1 + 0 around each diamond, then 1
    assert found.expanded == 121
    assert world.steps_taken == 2 * 2 * 121 + 81  # every action of every state, twice, and the replay of the worst path


def test_what_cannot_be_worse_is_skipped() -> None:
    """Every step pays 1, and one path ends after two: none of three steps and more need be looked at."""
    rows: list[Any] = [(0.0, {0: (i + 1, 1.0), 1: (i + 1, 1.0)}) for i in range(50)]
    rows[1] = (0.0, {0: (None, 1.0), 1: (2, 1.0)})
    world = TableWorld([*rows, (0.0, {0: (None, 1.0), 1: (None, 1.0)})])
    assert search(world, 1.0).expanded == 51
    pruned = search(world, 1.0, reward_low=1.0)
    assert (pruned.upper, pruned.exact) == (2.0, True)
    assert pruned.expanded < 5


@pytest.mark.parametrize("reward_low", [-5.0, -50.0])
@pytest.mark.parametrize("seed", range(20))
def test_states_skipped_on_one_way_are_looked_at_on_a_worse_one(seed: int, reward_low: float) -> None:
    """Skipping remembers lower ends in place of values, and must not spoil what is found on other ways."""
    world = random_table(seed, layers=8, width=2)
    assert search(world, 1.0, reward_low=reward_low).upper == enumerated(world, 1.0)


def test_long_episodes_need_no_recursion() -> None:
    rows: list[Any] = [(1.0, {0: (i + 1, 1.0), 1: (None, 0.0)}) for i in range(1500)]
    found = search(TableWorld([*rows, (1.0, {0: (None, 1.0), 1: (None, 0.0)})], horizon=10_000), 0.1)
    assert (found.upper, found.exact, found.expanded) == (1501.0, True, 1501)


# ------------------------------------------------------------------------------------------------------- the budget


@pytest.mark.parametrize("seed", range(12))
def test_whenever_the_budget_ends_the_worst_case_is_in_between(seed: int) -> None:
    truth = enumerated(random_table(seed, layers=8), 0.7)
    lower, upper = -math.inf, math.inf
    for budget in (1, 3, 6, 9, 12, 15, 18, 100):
        found = search(random_table(seed, layers=8), 0.7, budget=budget, reward_low=LOW)
        assert found.lower <= truth <= found.upper <= found.greedy
        assert found.exact == (found.lower == found.upper)
        assert lower <= found.lower  # more budget, nearer from either side
        assert found.upper <= upper
        lower, upper = found.lower, found.upper
    assert found.exact


@pytest.mark.parametrize("seed", range(12))
def test_a_budget_that_is_spent_bounds_no_more_than_the_first_path(seed: int) -> None:
    layers = 8
    for budget in (1, 3, 6, 9):
        found = search(random_table(seed, layers=layers), 0.7, budget=budget, reward_low=LOW)
        assert found.starts[0].expanded <= budget + 2 + layers  # the last states opened within it, and one a layer


def test_without_a_least_reward_nothing_is_proven_of_what_was_not_seen() -> None:
    found = search(diamonds(5), 1.0, budget=1)
    assert (found.lower, found.upper, found.exact) == (-math.inf, 6.0, False)  # the cheapest of all ways it has seen
    assert found.greedy == 11.0  # played to its end, with a budget of one state
    assert "certified ≥ nothing" in str(found)
    assert "the budget of 1 states ended 1 of 1 searches" in str(found)
    facts = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert facts["lower"] is None
    assert facts["starts"][0]["path"] == list(found.starts[0].path)


def test_a_least_reward_that_is_not_the_least_is_refused() -> None:
    with pytest.raises(BadInput, match="reward_low must be ≤ every reward: it is 2, a step paid 1"):
        search(diamonds(2), 1.0, reward_low=2.0)


# --------------------------------------------------------------------------------------------------------- CartPole


def balancer() -> LinearAgent:
    """Pushes to the side the pole leans and falls to."""
    return LinearAgent([[0.0, 0.0, -1.0, -0.5], [0.0, 0.0, 1.0, 0.5]])


def every_sequence(agent: Any, radius: float, bound: Any, horizon: int, seed: int) -> float:
    """The least return in CartPole over all sequences of possible actions."""
    threat = threat_model(as_agent(agent), radius, math.inf, bound, "bounds")
    env = make_cloneable(CARTPOLE, seed)

    def least(state: Any, obs: Tensor, depth: int) -> float:
        order, yes = threat.options(obs.unsqueeze(0))
        returns = []
        for action in order[yes].tolist():
            env.restore(state)
            after, reward, terminated, truncated = env.step(action)
            over = terminated or truncated or depth + 1 == horizon
            returns.append(reward + (0.0 if over else least(env.save(), after, depth + 1)))
        return min(returns)

    first = env.reset()
    found = least(env.save(), first, 0)
    env.close()
    return found


def test_cartpole_by_enumeration() -> None:
    """In eleven steps an adversary with ε = 0.9 can make the pole fall, and one with ε = 0.02 cannot."""
    start = env_seeds(streams(0)[0], 1)[0]
    for radius in (0.02, 0.9):
        found = awc(balancer(), CARTPOLE, radius, exact_linear, horizon=11)
        assert found.exact
        assert found.upper == every_sequence(balancer(), radius, exact_linear, 11, start)
        assert found.reward_low == 1.0  # known, so that a lower end is proven even with a small budget
    assert found.upper < 11
    small = awc(balancer(), CARTPOLE, 0.9, exact_linear, horizon=11, budget=2)
    assert 1.0 <= small.lower <= found.upper <= small.upper


@pytest.mark.parametrize("kind", [QAgent, ActorCritic])
def test_cartpole_with_a_network_and_sound_bounds(kind: type[QAgent | ActorCritic]) -> None:
    agent = kind((4,), 2, (8,))
    agent.initialize(torch.Generator().manual_seed(0))
    start = env_seeds(streams(1)[0], 1)[0]
    assert awc(agent, CARTPOLE, 0.2, seed=1, horizon=4).upper == every_sequence(agent, 0.2, "ibp", 4, start)


def test_cartpole_from_the_starts_of_an_evaluation() -> None:
    agent = balancer()
    worst = awc(agent, "CartPole-v1", 0.05, exact_linear, episodes=3, seed=7, horizon=30, budget=300, name="mine")
    greedy = gwc(agent, "CartPole-v1", 0.05, exact_linear, episodes=3, seed=7, horizon=30)
    assert tuple(start.greedy for start in worst.starts) == greedy.returns
    short = EnvSpec("classic", "CartPole-v1", {"max_episode_steps": 30})
    for attack in (None, PGD()):
        attacked = evaluate(agent, short, attack, 0.05, episodes=3, seed=7)
        for start, reached in zip(worst.starts, attacked.returns, strict=True):
            assert start.lower <= reached
            assert start.upper <= reached or not start.exact
    assert worst.expanded == sum(start.expanded for start in worst.starts)
    facts = json.loads(json.dumps(worst.to_json(), allow_nan=False))
    assert (facts["metric"], facts["agent"], facts["horizon"], facts["exact"]) == ("awc", "mine", 30, worst.exact)
    assert (facts["bound"], facts["arithmetic"]) == ("exact_linear", "as given")


@pytest.mark.parametrize(
    ("game", "preset"), [("Pong", "radial-dqn"), ("Freeway", "radial-dqn"), ("Pong", "radial-a3c")]
)
def test_atari_from_the_starts_of_an_evaluation(game: str, preset: str) -> None:
    """The no-ops of a reset are those of the pools: what is proven of a start holds for the episode that is played."""
    spec = EnvSpec("atari", game, {"preset": preset})
    for seed in range(2):
        played = make_env(spec, 3, streams(seed)[0])
        alone = [make_cloneable(spec, each) for each in env_seeds(streams(seed)[0], 3)]
        assert [env.reset().tolist() for env in alone] == played.reset().tolist()
        played.close()


def test_progress_is_told_in_states_and_numbers_of_numpy_are_taken() -> None:
    told: list[int] = []
    found = awc(
        balancer(), "CartPole-v1", 0.05, exact_linear, episodes=2, horizon=np.int32(20), budget=np.int64(50),
        reward_low=np.float32(1), progress=told.append,
    )  # fmt: skip
    assert json.loads(json.dumps(found.to_json()))["budget"] == 50
    assert told == sorted(told)
    assert told[0] == 1
    assert told[-1] == 100


def test_the_worst_path_is_made_of_actions_that_some_perturbation_may_bring_about() -> None:
    """Where the bound is exact, every action of the path can be had by showing a point of the ball."""
    world = random_table(4)
    path = search(world, 0.5).starts[0].path
    world.reset()
    for action in path:
        ball = as_agent(opposed()).ball(world.obs().unsqueeze(0), 0.5)
        assert isinstance(ball, Ball)
        corners = torch.cat([ball.box().lower, ball.box().upper])
        assert action in opposed().act(corners).tolist()
        world.step(action)


# ---------------------------------------------------------------------------------- stopped at any time, as in an audit

SHORT = EnvSpec("classic", "CartPole-v1", {"max_episode_steps": 12})


def leaning() -> Any:
    layer = nn.Linear(4, 2, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0.0, 0.0, -1.0, -0.5], [0.0, 0.0, 1.0, 0.5]]))
    return wrap(nn.Sequential(layer), "categorical")


def anytime(radius: float, budget: int, reward_low: float | None = 1.0) -> Start:
    env = make_cloneable(SHORT, env_seeds(streams(0)[0], 1)[0])
    threat = threat_model(leaning(), radius, math.inf, "ibp", "margins")
    try:
        return WorstCaseSearch(threat, env, 12, reward_low).run(budget, greedy=False)
    finally:
        env.close()


@pytest.mark.parametrize("radius", [0.01, 0.6])
def test_a_finished_search_is_the_absolute_worst_case(radius: float) -> None:
    truth = awc(leaning(), SHORT, radius, rule="margins")
    assert truth.exact
    ours = anytime(radius, 100_000)
    assert (ours.lower, ours.exact) == (truth.upper, True)


def test_what_is_proven_grows() -> None:
    lower = [anytime(0.6, budget).lower for budget in (1, 8, 64)]
    assert lower == sorted(lower)
    assert lower[0] == 2.0  # a step was taken, and one more comes for sure
    assert lower[-1] > 4
    assert lower[-1] <= anytime(0.6, 100_000).lower


@pytest.mark.parametrize("reward_low", [None, LOW])
@pytest.mark.parametrize("seed", range(12))
def test_without_the_greedy_path_the_truth_is_in_between_as_well(seed: int, reward_low: float | None) -> None:
    truth, lower = enumerated(random_table(seed, layers=8), 0.7), -math.inf
    threat = threat_model(as_agent(opposed()), 0.7, math.inf, exact_linear, "bounds")
    for budget in (1, 3, 6, 9, 12, 15, 18, 100):
        found = WorstCaseSearch(threat, random_table(seed, layers=8), 1000, reward_low).run(budget, greedy=False)
        assert found.expanded <= budget
        assert lower <= found.lower <= truth <= found.upper
        lower = found.lower
    assert (found.lower, found.upper, found.exact, found.greedy) == (truth, truth, True, math.inf)


def test_a_clock_ends_the_search_between_two_batches() -> None:
    looks = iter([False, False, False, True])
    threat = threat_model(as_agent(opposed()), 1.0, math.inf, exact_linear, "bounds")
    found = WorstCaseSearch(threat, diamonds(40), 1000, 0.0).run(10_000, lambda: next(looks), greedy=False)
    assert (found.expanded, found.exact, found.upper, found.path) == (4, False, math.inf, ())
    assert found.lower == 2.0  # around the first diamond, and one step on


def test_without_a_least_reward_only_a_finished_search_proves_anything() -> None:
    assert anytime(0.6, 8, None).lower == -math.inf
    with pytest.raises(BadInput, match="reward_low must be ≤ every reward"):
        anytime(0.6, 8, 2.0)


# -------------------------------------------------------------------------------------------------------- bad input


def test_an_endless_world_needs_a_horizon() -> None:
    loop = TableWorld([(0.0, {0: (0, 1.0), 1: (0, 2.0)})], horizon=None)
    with pytest.raises(BadInput, match="horizon must be given: episodes of test/Table may never end"):
        search(loop, 1.0)
    assert search(loop, 1.0, horizon=30).upper == 30.0


def test_a_world_that_does_not_repeat_itself_is_found_out() -> None:
    class Forgetful(TableWorld):
        def step(self, action: int) -> tuple[Tensor, float, bool, bool]:
            obs, reward, terminated, truncated = super().step(action)
            return obs, reward + self.steps_taken, terminated, truncated

    with pytest.raises(EnvFault, match="test/Table does not repeat itself"):
        search(Forgetful([(0.0, {0: (None, 0.0), 1: (None, 0.0)})]), 1.0)


def test_rewards_are_numbers() -> None:
    with pytest.raises(EnvFault, match="gave the reward nan"):
        search(bandit(1.0, math.nan), 1.0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"budget": 0}, "budget must be a whole number ≥ 1, got 0"),
        ({"horizon": 0}, "horizon must be a whole number ≥ 1, got 0"),
        ({"episodes": 2}, "episodes must be 1 with an env of your own, got 2"),
        ({"reward_low": math.inf}, "reward_low must be a finite number or None, got inf"),
        ({"reward_low": "x"}, "reward_low must be a finite number or None, got 'x'"),
        ({"seed": -1}, "seed must be a whole number ≥ 0"),
        ({"p": 7}, "p must be 1, 2 or inf"),
    ],
)
def test_bad_input(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        search(bandit(0.0, 1.0), 0.1, **settings)


def test_what_cannot_be_cloned_is_no_world() -> None:
    for world in (make_env(EnvSpec("classic", "CartPole-v1"), 1, 0), 5, None):
        with pytest.raises(BadInput, match="env must be an id, a spec, or one env that can be cloned, got"):
            awc(balancer(), world, 0.01, horizon=5)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="env must be an id, a spec or a vector env, got 5"):
        gwc(balancer(), 5, 0.01)  # type: ignore[arg-type]


def test_a_world_of_the_caller_is_left_open() -> None:
    world = bandit(0.0, 1.0)
    search(world, 1.0)
    assert not world.closed
