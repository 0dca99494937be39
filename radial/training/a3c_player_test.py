"""A3C's update: what a rollout becomes, what its gradient is, and that it reaches the model every time."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from radial.agents.actor_critic import ActorCritic
from radial.core.data import EnvSpec
from radial.core.schedules import Constant
from radial.envs.counting import make_counting
from radial.objectives.policy_gradient import Batch, Plain, RadialOverlap, RadialWorstCase
from radial.training.a3c import A3CConfig, make_player
from radial.training.a3c_player import A3CLearner, JointActor, Model, Player, estimate
from radial.training.adam import Flat
from radial.training.native import can_compile
from radial.training.rollouts import Returns, collect

CONFIG = A3CConfig(EnvSpec("classic", "CartPole-v1"), workers=1, num_envs=2, rollout=7, hidden=(8,), compile=False)


class Constantly(ActorCritic):
    """Action 7, and the value 1000 everywhere."""

    def __init__(self) -> None:
        super().__init__((3,), 10, (4,))

    def joint(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.full((x.shape[0],), 1000.0), torch.eye(10)[7].expand(x.shape[0], 10)


def test_rows_of_a_rollout_by_hand() -> None:
    """Three steps and a true end, a reset, two steps and a time limit, a reset: V = 1000, γ = ½, λ = 1."""
    env, actor = make_counting(1), JointActor(Constantly())
    never = torch.Generator().manual_seed(0)
    actor.agent.noise = lambda rng, *shape: torch.zeros(*shape, 10)  # type: ignore[method-assign]
    rollout, last = collect(env, env.reset(), actor, None, Returns(1), 7, never)
    batch = estimate(rollout, actor.values(last), discount=0.5, lam=1.0)
    assert batch.weight.tolist() == [1, 1, 1, 0, 1, 1, 0]
    real = batch.weight > 0
    # 17 + 27/2 + 37/4, and no future; 117 + 127/2 + 1000/4: a time limit has one.
    assert batch.target[real].tolist() == [17 + 13.5 + 9.25, 27 + 18.5, 37, 117 + 63.5 + 250, 127 + 500]
    assert torch.equal(batch.advantage, batch.target - 1000)
    assert batch.x[real].tolist() == [[0, 0, 0], [0, 0, 1], [0, 0, 2], [0, 1, 0], [0, 1, 1]]
    assert batch.action[real].tolist() == [7] * 5
    env.close()


def test_lambda_changes_advantages_and_not_what_values_learn_from() -> None:
    env, actor = make_counting(1), JointActor(Constantly())
    rollout, last = collect(env, env.reset(), actor, None, Returns(1), 3, torch.Generator().manual_seed(0))
    whole, one = (estimate(rollout, actor.values(last), 0.5, lam) for lam in (1.0, 0.0))
    assert torch.equal(whole.target, one.target)
    reward = rollout.reward[:, 0]
    assert one.advantage.tolist() == [float(reward[0]) - 500, float(reward[1]) - 500, float(reward[2]) - 1000]
    env.close()


def random_batch(rows: int, seed: int = 0) -> Batch:
    rng = torch.Generator().manual_seed(seed)
    x, advantage = torch.randn(rows, 4, generator=rng), torch.randn(rows, generator=rng)
    action = torch.randint(2, (rows,), generator=rng)
    return Batch(x, action, advantage, 2 * advantage, torch.ones(rows))


def agent_and_learner(**changes: object) -> tuple[ActorCritic, A3CLearner]:
    agent = ActorCritic((4,), 2, (8,))
    agent.initialize(torch.Generator().manual_seed(0))
    settings = {"objective": Plain(), "entropy": 0.01, "max_grad_norm": None, "compile": False} | changes
    return agent, A3CLearner(agent, **settings)  # type: ignore[arg-type]


def test_the_gradient_is_autograds_on_the_agent_itself() -> None:
    agent, learner = agent_and_learner()
    batch = random_batch(6)
    Plain()(agent, batch, {}, 0.01).total.backward()
    expected = Flat(agent.named_parameters()).join({n: p.grad for n, p in agent.named_parameters()})  # type: ignore[misc]
    torch.testing.assert_close(learner.gradient(batch, 0), expected)


def test_rows_of_no_weight_do_not_count() -> None:
    _, learner = agent_and_learner(objective=RadialOverlap(Constant(0.1)))
    batch = random_batch(6)
    some = Batch(*(column[:4] for column in batch))
    padded = batch._replace(weight=torch.tensor([1.0, 1, 1, 1, 0, 0]))
    torch.testing.assert_close(learner.gradient(padded, 0), learner.gradient(some, 0))


def test_clipping_bounds_the_norm() -> None:
    free, clipped = (agent_and_learner(max_grad_norm=norm)[1].gradient(random_batch(6), 0) for norm in (None, 0.1))
    assert free.norm() > 0.1
    torch.testing.assert_close(clipped, free * (0.1 / free.norm()), rtol=1e-4, atol=1e-7)


@pytest.mark.skipif(not can_compile(), reason="needs a C++ compiler")
def test_the_compiled_gradient_is_the_same_gradient() -> None:
    eager, native = (agent_and_learner(objective=RadialWorstCase(Constant(0.1)), compile=c)[1] for c in (False, True))
    torch.testing.assert_close(eager.gradient(random_batch(6), 0), native.gradient(random_batch(6), 0))
    assert eager.report() == pytest.approx(native.report(), rel=1e-4)
    assert native.compile_seconds > 0


def test_what_is_not_finite_never_reaches_the_model() -> None:
    _, learner = agent_and_learner()
    batch = random_batch(6)
    with pytest.raises(FloatingPointError, match="gradient is not finite at step 42"):
        learner.gradient(batch._replace(target=batch.target * torch.inf), 42)


# ------------------------------------------------------------------------------------------------- the shared model


def players(count: int) -> tuple[Model, list[Player]]:
    """Players of one model in shared memory, each with an agent and environments of its own."""
    from radial.envs.make import make_env
    from radial.training.a3c import player_in_worker

    start = ActorCritic((4,), 2, CONFIG.hidden)
    start.initialize(torch.Generator().manual_seed(0))
    model = Model.of(start)
    model.share()
    return model, [player_in_worker(CONFIG, 0, 0, model, make_env, worker, 0) for worker in range(count)]


def test_every_update_of_every_worker_reaches_the_model() -> None:
    """The authors' CPU workers alias their gradients into the shared model once, and that goes stale at once."""
    model, both = players(2)
    assert model.parameters.is_shared()
    step = 0
    for turn in range(8):
        before = model.parameters.clone()
        step += both[turn % 2].update(step)
        assert not torch.equal(model.parameters, before), f"update {turn} did not reach the model"
        assert float(model.moments.steps) == turn + 1
    for player in both:
        player.update(step)  # takes the model first, then moves it: the player is one update behind
        assert not torch.equal(player.learner.parameters, model.parameters)
        player.learner.take(model)
        assert torch.equal(player.learner.parameters, model.parameters)
        player.leave()


def test_each_update_uses_the_gradient_of_its_own_rollout() -> None:
    """Two workers that start from one model, with other seeds, move it in other directions."""
    moves = []
    for worker in range(2):
        model, both = players(2)
        before = model.parameters.clone()
        both[worker].update(0)
        moves.append(model.parameters - before)
        for player in both:
            player.leave()
    assert not torch.allclose(moves[0], moves[1])


def test_state_is_a_copy_and_comes_back() -> None:
    model, (player,) = players(1)
    player.update(0)
    saved = model.state()
    assert set(saved) == {"parameters", "adam.first", "adam.second", "adam.largest", "adam.steps"}
    player.update(14)
    assert not torch.equal(saved["parameters"], model.parameters)
    model.restore(saved)
    assert all(torch.equal(model.state()[name], saved[name]) for name in saved)
    player.leave()


def test_a_rollout_of_resets_alone_moves_nothing() -> None:
    """One step per rollout in one env: the step after an episode's end is a reset, and there is nothing to learn."""
    agent = ActorCritic((3,), 10, (8,))
    agent.initialize(torch.Generator().manual_seed(0))
    model = Model.of(agent)
    config = replace(CONFIG, num_envs=1, rollout=1)
    player = make_player(config, agent, model, torch.Generator().manual_seed(0))
    player.enter(make_counting(1))
    updates = []
    for step in range(7):  # three steps and a reset, two steps and a reset
        before = float(model.moments.steps)
        player.update(step)
        updates.append(float(model.moments.steps) - before)
    assert updates == [1, 1, 1, 0, 1, 1, 0]
    player.leave()
