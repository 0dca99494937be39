"""DDPG and SA-DDPG: one step is learned, twice is the same, a stopped run goes on, misfits are refused."""

import json
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from radial.agents.policies import DeterministicAgent
from radial.attacks.gradient import MAD
from radial.core.data import BadInput, Bounds, EnvSpec
from radial.core.schedules import Constant, Linear
from radial.objectives.deterministic import OBJECTIVES, SA, Nets, Plain
from radial.objectives.q_learning import Batch
from radial.runs.config import decode, encode
from radial.runs.run import VOLATILE
from radial.training import ddpg
from radial.training.ddpg import DDPGConfig, DDPGLearner, explore_box
from radial.training.ddpg import train_ddpg as train
from radial.training.native import can_compile
from radial.training.replay import Prioritised, Sample
from radial.workflows.from_checkpoint import checkpoint_agent

PENDULUM = EnvSpec("classic", "Pendulum-v1")
TINY = DDPGConfig(
    PENDULUM, SA(Linear(0.1, 100, 500), 0.5), total_steps=600, num_envs=4, replay_capacity=300, learning_starts=100,
    update_every=8, batch=16, hidden=(8,), compile=False, log_every=50, checkpoint_every=200,
)  # fmt: skip
FORMS: list[Any] = [
    Plain(),
    SA(Constant(0.1), 0.5),
    SA(Constant(0.1), 0.5, bound="crown-ibp", p=2.0),
    SA(Constant(0.1), 0.5, inner="sgld", steps=2),
    SA(Constant(0.1), 0.5, inner="pgd", steps=2),
]


def weights(agent: torch.nn.Module) -> dict[str, list[float]]:
    return {name: tensor.flatten().tolist() for name, tensor in agent.state_dict().items()}


def fixed(value: float, inputs: int = 1) -> DeterministicAgent:
    """An agent on numbers whose networks have these weights everywhere."""
    agent = DeterministicAgent((inputs,), 1, (1,))
    for parameter in (*agent.squashed.parameters(), *agent.critic.parameters()):
        torch.nn.init.constant_(parameter, value)
    return agent


# ----------------------------------------------------------------------------------------------------------- the losses


def test_one_loss_by_hand() -> None:
    """π(s) = ½s, Q(s, u) = s + 2u and targets of the same: s = 1, u = 0, r = 3, s′ = 2, γ = ½."""
    actor = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.constant_(actor.weight, 0.5)

    def q(x: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        return (x + 2 * u)[:, 0]

    one = torch.ones(1, 1)
    batch = Batch(one, 0 * one, torch.tensor([3.0]), 2 * one, torch.tensor([0.5]), torch.ones(1), torch.empty(0, 0, 1))
    nets = Nets(actor, q, q, actor, q)
    plain = Plain()(nets, batch, {})
    # t = 3 + ½·(2 + 2·1) = 5 and Q(1, 0) = 1, so the error is −4; Q(1, ½) = 2
    assert (float(plain.parts["losses/td_loss"]), float(plain.priority)) == (16.0, 4.0)
    assert (float(plain.parts["losses/actor_loss"]), float(plain.total.detach())) == (-2.0, 14.0)
    robust = SA(Constant(0.4), 10.0)(nets, batch, {"radius": torch.tensor(0.4)})  # ½·0.4 in either direction
    assert float(robust.parts["robust/shift"]) == pytest.approx(0.2)
    assert float(robust.total.detach()) == pytest.approx(14.0 + 2.0)


def test_a_search_finds_no_more_than_the_bound_allows() -> None:
    agent = DeterministicAgent((3,), 2, (16,))
    agent.initialize(torch.Generator().manual_seed(0))
    with torch.no_grad():
        agent.squashed[-2].weight *= 100
    rng, at = torch.Generator().manual_seed(1), {"radius": torch.tensor(0.2)}
    x = torch.randn(32, 3, generator=rng)
    shifts = {}
    for form in (SA(Constant(0.2), inner="convex"), SA(Constant(0.2), inner="sgld"), SA(Constant(0.2), inner="pgd")):
        noise = torch.randn(32, form.draws, 3, generator=rng)
        batch = Batch(x, torch.zeros(32, 2), torch.zeros(32), x, torch.ones(32), torch.ones(32), noise)
        nets = Nets(agent.squashed, agent.critic, agent.critic, agent.squashed, agent.critic)
        shifts[form.inner] = float(form(nets, batch, at).parts["robust/shift"])
    assert 0 < shifts["sgld"] <= shifts["convex"]
    assert 0 < shifts["pgd"] <= shifts["convex"]


# ---------------------------------------------------------------------------------------------------------- the learner


def sample_of(rows: int, rng: torch.Generator) -> Sample:
    u = torch.rand(rows, 1, generator=rng) * 2 - 1
    x = torch.zeros(rows, 1)
    reward, ended = -((u[:, 0] - 0.4) ** 2), torch.ones(rows, dtype=torch.bool)
    return Sample(x, u, reward, x, ended, torch.ones(rows), torch.arange(rows), torch.ones(rows))


def test_a_problem_of_one_step_is_learned() -> None:
    """The reward −(u − 0.4)² of a single step: the actor goes where it is largest."""
    config = replace(TINY, objective=Plain(), hidden=(16,), policy_rate=1e-2, value_rate=1e-2)
    agent = DeterministicAgent((1,), 1, (16,))
    agent.initialize(torch.Generator().manual_seed(0))
    learner, rng = DDPGLearner(agent, config), torch.Generator().manual_seed(0)
    for _ in range(600):
        learner.learn(sample_of(64, rng), 0, rng)
    learner.write_back()
    assert float(agent.act(torch.zeros(1, 1)).detach()) == pytest.approx(0.4, abs=0.05)
    assert float(agent.value(torch.zeros(1, 1)).detach()) == pytest.approx(0.0, abs=0.05)


def test_the_actor_does_not_move_the_critic_and_targets_follow_slowly() -> None:
    """Without TD error only the actor learns; with value_only only the critic does."""
    agent, rng = fixed(0.5), torch.Generator()
    learner = DDPGLearner(agent, replace(TINY, objective=Plain(), tau=0.1, hidden=(1,)))
    x = torch.ones(4, 1)
    with torch.no_grad():
        q = agent.critic(x, x)
    data = Sample(x, x, q, x, torch.ones(4, dtype=torch.bool), torch.ones(4), torch.arange(4), torch.ones(4))
    before, critic = learner.parameters.clone(), learner.of_critic.bool()
    surprise = learner.learn(data, 0, rng)
    assert surprise.abs().max() < 1e-6
    moved = learner.parameters != before
    assert moved[~critic].any()
    assert torch.allclose(learner.parameters[critic], before[critic], atol=1e-6)
    assert torch.allclose(learner.target, 0.9 * before + 0.1 * learner.parameters)
    held = learner.parameters.clone()
    learner.learn(data._replace(reward=q + 1), 0, rng, value_only=True)
    assert torch.equal(learner.parameters[~critic], held[~critic])
    assert not torch.equal(learner.parameters[critic], held[critic])


def test_noise_stays_in_the_box_and_random_actions_fill_it() -> None:
    agent, rng = fixed(1.0), torch.Generator().manual_seed(0)
    u = explore_box(agent, torch.ones(500, 1), 0.5, rng)
    assert -1 <= float(u.min()) < float(u.max()) == 1.0
    anywhere = explore_box(agent, torch.ones(500, 1), None, rng)
    assert anywhere.abs().max() <= 1
    assert abs(float(anywhere.mean())) < 0.1
    agent.stretch_to([-3.0], [1.0])
    assert agent.stretch(torch.tensor([[-1.0], [0.0], [1.0]])).flatten().tolist() == [-3.0, -1.0, 1.0]
    assert torch.equal(agent.act(torch.ones(2, 1)), agent.act(torch.ones(2, 1), rng))


# --------------------------------------------------------------------------------------------------------- the training


def test_the_same_seed_gives_the_same_agent() -> None:
    first, again, other = (weights(train(replace(TINY, total_steps=300), seed, quiet=True)) for seed in (3, 3, 4))
    assert first == again
    assert first != other


@pytest.mark.nightly
@pytest.mark.skipif(not can_compile(), reason="needs a C++ compiler")
def test_compiled_training_is_the_same_training() -> None:
    config = replace(TINY, objective=SA(Constant(0.1), 0.5), total_steps=200)
    eager, native = weights(train(config, 0, quiet=True)), weights(train(replace(config, compile=True), 0, quiet=True))
    for name, values in eager.items():
        assert values == pytest.approx(native[name], abs=2e-4), name


def test_every_form_is_in_the_registry() -> None:
    assert {type(form) for form in FORMS} == set(OBJECTIVES.values())


@pytest.mark.parametrize("objective", FORMS, ids=str)
def test_every_objective_trains_and_is_written_and_read(objective: Any) -> None:
    config = replace(TINY, objective=objective, total_steps=200, prioritised=Prioritised(), max_grad_norm=0.5, n_step=2)
    assert decode(DDPGConfig, encode(config)) == config
    start = DeterministicAgent((3,), 1, (8,))
    start.initialize(torch.Generator().manual_seed(5))
    agent = train(config, 0, init=start, quiet=True)
    assert weights(agent) != weights(start)
    assert agent.normalizer.frozen
    assert all(bool(tensor.isfinite().all()) for tensor in agent.state_dict().values())


@pytest.mark.parametrize("on", ["acting", "replay", "both"])
def test_states_under_attack_change_the_training(on: str) -> None:
    config = replace(TINY, objective=Plain(), total_steps=200)
    attacked = replace(config, attack="mad", attack_radius=Constant(0.5), attack_probability=1.0, attack_on=on)
    assert weights(train(config, 0, quiet=True)) != weights(train(attacked, 0, attack=MAD(), quiet=True))


def outcome(folder: Path) -> tuple[bytes, list[dict[str, float]]]:
    newest = max((folder / "checkpoints").glob("step_*"))
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return (newest / "tensors.safetensors").read_bytes(), [
        {k: v for k, v in line.items() if k not in VOLATILE} for line in lines
    ]


@pytest.mark.parametrize("prioritised", [None, Prioritised()], ids=["even", "prioritised"])
def test_a_stopped_run_ends_where_an_uninterrupted_one_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prioritised: Prioritised | None
) -> None:
    config = replace(TINY, prioritised=prioritised)
    plain, stopped = tmp_path / "plain", tmp_path / "stopped"
    train(config, 1, out=plain, quiet=True)
    save = ddpg.Run.save

    def stop(run: Any, step: int, *args: Any, **kwargs: Any) -> None:
        save(run, step, *args, **kwargs)
        raise ddpg.Stopped(signal.SIGTERM)

    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(ddpg.Run, "save", stop)
            with pytest.raises(ddpg.Stopped):
                train(config, 1, out=stopped, resume=(stopped / "config.json").exists(), quiet=True)
    final = train(config, 1, out=stopped, resume=True, quiet=True)
    assert outcome(plain) == outcome(stopped)
    best = checkpoint_agent(max((stopped / "checkpoints").glob("step_*")))
    assert weights(best) == weights(final)
    assert (best.normalizer.frozen, best.clips_actions) == (True, False)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"env": EnvSpec("classic", "CartPole-v1")}, "DDPG needs an env with continuous actions"),
        ({"replay_capacity": 10**12}, "replay_capacity"),
    ],
)
def test_what_cannot_be_trained_is_refused(change: dict[str, object], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        ddpg.set_up(replace(TINY, **change), 0, torch.device("cpu"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tau": 2.0}, "tau must"),
        ({"exploration": -0.1}, "exploration must be ≥ 0, got -0.1 at step 0"),
        ({"policy_rate": float("nan")}, "policy_rate"),
        ({"hidden": 64}, "hidden must be sizes ≥ 1"),
        ({"attack_on": "never"}, "attack_on must be one of replay, acting, both"),
        ({"value_first": -1}, "value_first"),
    ],
)
def test_bad_settings_are_named(change: dict[str, object], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        replace(TINY, **change)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="inner must be one of convex, sgld, pgd"):
        SA(Constant(0.1), inner="newton")


def test_bounds_of_the_action_hold_through_the_stretch() -> None:
    from radial.bounds.methods import sound
    from radial.core.ball import Ball

    agent = DeterministicAgent((3,), 2, (8, 8))
    agent.initialize(torch.Generator().manual_seed(0))
    agent.stretch_to([-3.0, 0.0], [1.0, 4.0])
    ball = Ball(torch.randn(5, 3, generator=torch.Generator().manual_seed(1)), 0.2)
    for name in ("ibp", "crown-ibp", "crown"):
        bounds: Bounds = sound(name)(agent.choice, ball)
        with torch.no_grad():
            found = agent.act(ball.sample(torch.Generator().manual_seed(2))).double()
        assert bounds.contains(found).all()
