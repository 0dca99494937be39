"""Making agents robust: what is chosen for which kind, that it goes on where it stopped, and that it works."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from radial.agents.actor_critic import ActorCritic, ImpalaAgent
from radial.agents.convert import AGENTS, AnyAgent, own
from radial.agents.foreign import wrap
from radial.agents.networks import mlp
from radial.agents.policies import CategoricalAgent, DeterministicAgent, GaussianAgent
from radial.agents.q_agent import QAgent
from radial.agents.saved import load_agent
from radial.bounds.methods import ibp
from radial.core.agent import Card
from radial.core.ball import Ball
from radial.core.data import BadInput, EnvSpec
from radial.core.schedules import Constant, Exponential, Linear
from radial.evaluation.reach import faintest
from radial.objectives import deterministic as ddpg
from radial.objectives import policy_gradient as a3c
from radial.objectives import q_objectives as dqn
from radial.objectives import surrogate as ppo
from radial.recipes.recipe import recipe
from radial.runs.config import encode
from radial.training.a3c import A3CConfig
from radial.training.ddpg import DDPGConfig
from radial.training.dqn import DQNConfig
from radial.training.ppo import PPOConfig
from radial.workflows.distillation_plan import chosen, plan_distillation
from radial.workflows.fine_tuning import FINE_TUNINGS, plan
from radial.workflows.loading import load as rr_load
from radial.workflows.robustify import COMPARISON, robustify
from radial.workflows.train import train

CARTPOLE = EnvSpec("classic", "CartPole-v1")
PENDULUM = EnvSpec("classic", "Pendulum-v1")
FRUITBOT = EnvSpec("procgen", "fruitbot", {"split": "train"})
SMALL = PPOConfig(
    CARTPOLE, total_steps=1_024, num_envs=4, rollout=128, epochs=2, minibatch=32, hidden=(8,), compile=False,
    checkpoint_every=4, normalize_observations=False,
)  # fmt: skip
SMALL_DQN = DQNConfig(
    CARTPOLE, total_steps=1_000, num_envs=1, replay_capacity=5_000, learning_starts=100, batch=16, target_every=100,
    exploration=Linear(0.05, 0, 500, start=1.0), hidden=(8,), compile=False, log_every=500, checkpoint_every=500,
)  # fmt: skip


def agent_of(kind: type, shape: tuple[int, ...] = (4,), n: int = 2) -> AnyAgent:
    made: AnyAgent = kind(shape, n, (16,) if len(shape) == 1 else (4, 8, 8, 16))
    made.initialize(torch.Generator().manual_seed(0))
    return made


def test_every_kind_of_agent_has_a_plan() -> None:
    assert set(FINE_TUNINGS) == set(AGENTS.values())


@pytest.mark.parametrize(
    ("kind", "shape", "config", "objective", "kappa"),
    [
        (QAgent, (4,), DQNConfig, dqn.RadialOverlap, 0.4),
        (QAgent, (4, 84, 84), DQNConfig, dqn.RadialOverlap, 0.8),
        (ActorCritic, (4,), A3CConfig, a3c.RadialOverlap, 0.5),
        (CategoricalAgent, (4,), PPOConfig, ppo.RadialWorstCase, 0.2),
        (GaussianAgent, (4,), PPOConfig, ppo.RadialLikelihood, 0.95),
    ],
)
def test_the_objective_fits_the_kind(
    kind: type, shape: tuple[int, ...], config: type, objective: type, kappa: float
) -> None:
    """ε is 0 for a tenth of the steps and whole from six tenths on."""
    found: Any = plan(agent_of(kind, shape), CARTPOLE, 0.1, 1_000_000)
    assert (type(found), type(found.objective)) == (config, objective)
    assert found.objective.kappa(0) == kappa
    assert [found.objective.radius(step) for step in (99_999, 600_000, 1_000_000)] == pytest.approx([0, 0.1, 0.1])
    assert 0 < found.objective.radius(200_000) < 0.02
    assert (found.total_steps, found.env) == (1_000_000, CARTPOLE)


def test_a_deterministic_actor_is_fine_tuned_by_sa_ddpg_its_critic_first() -> None:
    """κ·L + (1 − κ)·shift, divided by κ; nothing of the actor moves before its critic has learned."""
    agent: Any = agent_of(DeterministicAgent, (3,), 1)
    found: Any = plan(agent, PENDULUM, 0.1, 100_000)
    assert (type(found), type(found.objective)) == (DDPGConfig, ddpg.SA)
    assert (found.learning_starts, found.value_first, found.normalize_observations) == (5_000, 10_000, False)
    assert found.hidden == agent.hidden
    lighter: Any = plan(agent, PENDULUM, 0.1, 100_000, kappa=0.75)
    assert lighter.objective.weight == pytest.approx(found.objective.weight / 3)
    with pytest.raises(BadInput, match="objective must be one of sa"):
        plan(agent, PENDULUM, 0.1, 100_000, objective="radial-overlap")


def test_an_agent_of_ours_goes_on_with_its_own_settings() -> None:
    agent = agent_of(CategoricalAgent)
    own = replace(recipe("cartpole-ppo").config, policy_rate=7e-4, discount=0.9, attack="mad", attack_probability=0.5)
    agent.card = Card(CARTPOLE, {"name": "x", "config": encode(own)})
    found: Any = plan(agent, CARTPOLE, 0.1, 100_000)
    assert (found.policy_rate, found.discount, found.attack) == (7e-4, 0.9, None)
    assert (found.normalize_observations, found.value_first, found.anneal) == (False, 10_000, True)


def test_the_settings_of_a_file_come_before_the_recipe_s_and_given_ones_before_both(tmp_path: Path) -> None:
    agent = agent_of(CategoricalAgent)
    agent.card = Card(CARTPOLE, {"name": "PPO of Stable-Baselines3", "settings": {"gamma": 0.9, "gae_lambda": 0.7}})
    found: Any = plan(agent, CARTPOLE, 0.1, 100_000)
    assert (found.discount, found.lam, found.entropy) == (0.9, 0.7, recipe("cartpole-ppo").config.entropy)  # type: ignore[union-attr]
    given = ["discount=0.8", "rollout=128", "minibatch=32", "epochs=1", "compile=false"]
    done = robustify(agent, 0.05, 20_480, settings=given, episodes=1, tolerance=9.0, quiet=True)
    made: Any = done.config
    assert (made.discount, made.lam, made.rollout) == (0.8, 0.7, 128)
    assert done.to_json()["settings_of_file"] == {"gamma": 0.9, "gae_lambda": 0.7}
    assert "learning_rate" in done.ours


def test_the_deviation_of_a_gaussian_policy_may_not_grow_much_and_long_trainings_have_a_smaller_weight() -> None:
    agent: Any = agent_of(GaussianAgent)
    torch.nn.init.constant_(agent.log_std, -1.0)
    found: Any = plan(agent, PENDULUM, 0.1, 4_000_000)
    assert found.max_std == pytest.approx(0.36788, abs=1e-5)
    assert found.objective.kappa(0) == 0.98
    torch.nn.init.constant_(agent.log_std, -3.0)
    narrow: Any = plan(agent, PENDULUM, 0.1, 100_000)
    assert (narrow.max_std, narrow.objective.kappa(0)) == (0.3, 0.95)


def test_exploration_stays_where_it_ended() -> None:
    agent = agent_of(QAgent)
    found: Any = plan(agent, CARTPOLE, 0.1, 30_000)
    assert isinstance(found.exploration, Constant)
    assert (found.exploration(9), found.learning_starts) == (pytest.approx(0.05), 3_000)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"radius": 0.0}, "radius must be finite and > 0"),
        ({"radius": float("nan")}, "radius must be finite and > 0"),
        ({"radius": True}, "radius must be finite and > 0, got True"),
        ({"radius": "0.1"}, "radius must be finite and > 0, got '0.1'"),
        ({"kappa": "a"}, r"kappa must lie in \[0, 1\], got 'a'"),
        ({"tolerance": "x"}, "tolerance must be finite and > 0, got 'x'"),
        ({"device": "gpu"}, "device must be cpu or cuda, got 'gpu'"),
        ({"device": "meta"}, "device must be one this machine has, got 'meta'"),
        ({"threads": 0}, "threads must be a whole number ≥ 1"),
        ({"seed": -1}, "seed must be a whole number ≥ 0"),
        ({"resume": True}, "run holds no run to resume; leave out --resume to begin one"),
        ({"resume": True, "out": None}, "resume needs out"),
        ({"out": Path(__file__)}, "cannot be a run's folder: .* is a file"),
        ({"out": Path(__file__) / "new"}, "cannot be a run's folder: .* is a file"),
        ({"agent": None}, "agent must be an agent, its path or its name in the zoo, got None"),
        ({"agent": mlp([4, 8, 2])}, "got Sequential; rr.wrap makes an agent of a network"),
        ({"steps": 5}, "steps must be ≥ 20,480 for this agent, got 5"),
        ({"kappa": 1.5}, r"kappa must lie in \[0, 1\], got 1.5"),
        (
            {"objective": "radial-overlp"},
            "got 'radial-overlp'; did you mean 'radial-overlap'",
        ),
        ({"objective": "plain"}, "objective must be one of radial-worst-case, radial-likelihood"),
        ({"tolerance": -1.0}, "tolerance must be finite and > 0"),
        ({"env": None}, "no environment recorded"),
        ({"settings": ["total_steps=9"]}, "settings must leave total_steps alone: use steps"),
        ({"settings": ["objective.radius=0.3"]}, "settings must leave objective.radius alone: use radius"),
        ({"settings": ["discont=0.9"]}, "config.discont is not a setting of PPOConfig"),
        ({"env": PENDULUM}, "agent must fit the env"),
        ({"episodes": 0}, "episodes must be a whole number ≥ 1"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written_or_played(
    change: dict[str, Any], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("radial.workflows.robustify.evaluate", lambda *_, **__: pytest.fail("an episode is played"))
    settings = {"agent": agent_of(CategoricalAgent), "radius": 0.1, "steps": 30_000, "env": CARTPOLE}
    with pytest.raises(BadInput, match=says) as caught:
        robustify(**({"out": tmp_path / "run", "quiet": True} | settings | change))  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_a_gaussian_policy_has_no_logits_to_keep_apart() -> None:
    with pytest.raises(BadInput, match="must be one of radial-worst-case, radial-likelihood, radial-released"):
        plan(agent_of(GaussianAgent), PENDULUM, 0.1, 100_000, objective="radial-overlap")


def same(one: AnyAgent, other: AnyAgent) -> bool:
    theirs = other.state_dict()
    return all(torch.equal(tensor, theirs[name]) for name, tensor in one.state_dict().items())


@pytest.mark.parametrize("config", [SMALL, SMALL_DQN])
def test_before_and_after_and_a_folder_to_go_on_from(
    config: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("radial.workflows.robustify.improved", lambda *_: True)  # so short a training improves nothing
    start = train(config, 0, quiet=True)
    steps = 20 * 128 if isinstance(config, PPOConfig) else 20 * 100
    found = robustify(start, 0.05, steps, episodes=2, tolerance=9.0, out=tmp_path / "run", quiet=True)
    assert found.before.nominal.seed == found.after.nominal.seed
    assert found.before.attacked.radius == 0.05
    assert 0 <= found.after.certified.mean <= 1
    saved = load_agent(tmp_path / "run")
    assert same(saved, found.agent)
    assert not same(start, found.agent)
    assert saved.card.results["robustified_from"].startswith("an agent on classic/CartPole-v1")
    facts = json.loads((tmp_path / "run" / COMPARISON).read_text())
    assert facts["steps"] == steps
    assert facts["after"]["nominal"]["returns"] == list(found.after.nominal.returns)
    last = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert {"robust/certified", "robust/pace", "robust/radius"} <= last.keys()
    assert found.reached == pytest.approx(last["robust/radius"])  # at the end, which may lie beyond `steps`
    again = robustify(start, 0.05, steps, episodes=2, tolerance=9.0, out=tmp_path / "run", resume=True, quiet=True)
    assert same(again.agent, found.agent)
    assert again.reached == found.reached
    monkeypatch.setattr("radial.workflows.robustify.evaluate", lambda *_, **__: pytest.fail("an episode is played"))
    with pytest.raises(BadInput, match=r"holds a run with another config; these differ: objective.kappa"):
        robustify(
            start, 0.05, steps, kappa=0.7, episodes=2, tolerance=9.0, out=tmp_path / "run", resume=True, quiet=True
        )


def test_continuous_actions_are_judged_by_how_far_they_move() -> None:
    start = train(replace(SMALL, env=PENDULUM), 0, quiet=True)
    found = robustify(start, 0.05, 20 * 128, episodes=1, quiet=True)
    facts = found.to_json()
    assert (facts["attack"], facts["after"]["certified"]["metric"]) == ("mad", "reach")
    assert facts["objective"] == "RadialLikelihood"


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "radius", "steps"), [("cartpole-dqn", 0.02, 90_000), ("cartpole-ppo", 0.1, 120_000)])
def test_a_plain_agent_of_cartpole_is_certified_afterwards(name: str, radius: float, steps: int) -> None:
    start = train(recipe(name).config, 0, quiet=True)
    found = robustify(start, radius, steps, quiet=True)
    assert found.after.certified.mean > 0.5
    assert found.after.nominal.mean > 450


DISTILLED = ("rollout=128", "memory=256", "updates=2", "minibatch=32", "num_envs=4", "hidden=[8]", "checkpoint_every=5")


@pytest.mark.parametrize("kind", [QAgent, CategoricalAgent, GaussianAgent])
def test_an_agent_is_distilled_into_a_network_of_its_own(
    kind: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The student has other sizes, is saved and loaded like any agent, and an interrupted run is the same run."""
    monkeypatch.setattr("radial.workflows.robustify.improved", lambda *_: True)  # so short a training improves nothing
    monkeypatch.setattr("radial.workflows.distillation_plan.LEAST_ROUNDS", 1)
    env = PENDULUM if kind is GaussianAgent else CARTPOLE
    start = agent_of(kind, (3,), 1) if kind is GaussianAgent else agent_of(kind)
    start.card = Card(env)
    given: dict[str, Any] = {
        "objective": "distil", "settings": DISTILLED, "episodes": 1, "tolerance": 9.0, "quiet": True,
        "out": tmp_path / "run",
    }  # fmt: skip
    found = robustify(start, 0.05, 2_560, **given)
    assert (found.to_json()["objective"], found.kappa) == ("Distil", 0.5)
    assert 0 < found.reached <= 0.05
    assert (found.agent.hidden, start.hidden) == ((8,), (16,))
    saved = load_agent(tmp_path / "run")
    assert same(saved, found.agent)  # type: ignore[arg-type]
    assert type(saved) is kind
    assert saved.card.results["radius"] == 0.05
    assert set(saved.card.recipe) == {"name", "config", "teacher"}
    assert plan(saved, env, 0.05, 1_000_000)  # type: ignore[arg-type]  # and RADIAL may fine-tune it
    assert same(robustify(start, 0.05, 2_560, resume=True, **given).agent, found.agent)


def test_a_distillation_that_gains_nothing_hands_the_original_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("radial.workflows.robustify.improved", lambda *_: False)
    monkeypatch.setattr("radial.workflows.distillation_plan.LEAST_ROUNDS", 1)
    start = agent_of(CategoricalAgent)
    start.card = Card(CARTPOLE)
    found = robustify(
        start, 0.05, 1_024, objective="distil", settings=DISTILLED, episodes=1, quiet=True, out=tmp_path / "run"
    )
    assert found.failed
    assert same(found.agent, start)
    assert same(load_agent(tmp_path / "run"), start)  # type: ignore[arg-type]


def test_the_measured_ratio_chooses_the_objective() -> None:
    """Wide bounds are hopeless to fine-tune; a weight of the standard loss, or few steps, say that it is to be."""
    agent = CategoricalAgent((4,), 2, (16,), "relu")
    agent.initialize(torch.Generator().manual_seed(0))
    assert chosen(agent, CARTPOLE, 1e-6, 100_000, None, None, 0) is None
    assert chosen(agent, CARTPOLE, 1e6, 100_000, None, None, 0) == "distil"
    assert chosen(agent, CARTPOLE, 1e6, 100_000, 0.5, None, 0) is None
    assert chosen(agent, CARTPOLE, 1e6, 100_000, None, "radial-overlap", 0) is None
    assert chosen(agent, CARTPOLE, 1e6, 1_000, None, None, 0) is None
    with pytest.raises(BadInput, match="steps must be ≥ 20,480 to distil this agent, got 1,000"):
        plan_distillation(agent, CARTPOLE, 0.1, 1_000)
    frames = plan_distillation(agent_of(ImpalaAgent, (3, 64, 64), 15), FRUITBOT, 1 / 255, 1_000_000)
    assert (frames.hidden, frames.objective.radius) == ((16, 32, 256), 1 / 255)


OF_OTHERS = {
    "DQN": ({"buffer_size": 10}, SMALL_DQN, 20 * 100),
    "PPO": ({"n_steps": 8, "batch_size": 8}, SMALL, 20 * 128),
}


@pytest.mark.parametrize("kind", OF_OTHERS)
def test_an_agent_of_stable_baselines3_is_made_robust_and_saved_as_ours(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("radial.workflows.robustify.improved", lambda *_: True)  # so short a training improves nothing
    sb3: Any = pytest.importorskip("stable_baselines3", reason="writes an agent with Stable-Baselines3")
    settings, config, steps = OF_OTHERS[kind]
    path = tmp_path / f"{kind}-CartPole-v1.zip"
    getattr(sb3, kind)("MlpPolicy", "CartPole-v1", seed=0, device="cpu", **settings).save(path)
    theirs: Any = rr_load(path)
    assert theirs.card.env == CARTPOLE  # says the name of the file
    assert plan(theirs_own := own(theirs, "agent"), CARTPOLE, 0.05, 100_000).discount == 0.99  # as its file says
    assert theirs_own.card.recipe["settings"]["gamma"] == 0.99
    theirs.card = replace(theirs.card, recipe={"config": encode(config)})  # quick settings
    found = robustify(theirs, 0.05, steps, episodes=1, tolerance=9.0, out=tmp_path / kind, quiet=True)
    assert found.source.startswith(f"{kind}-CartPole-v1.zip sha256:")
    again: Any = load_agent(tmp_path / kind)
    obs = torch.randn(20, 4)
    assert torch.equal(again.scores(again.prepare(obs)), found.agent.scores(found.agent.prepare(obs)))
    assert not torch.allclose(again.scores(obs), theirs.scores(obs))  # it went on learning


def test_actions_are_cut_in_training_as_they_were_before(tmp_path: Path) -> None:
    """An agent that pushes ten times too hard does not notice: what it did before is done to it again."""
    network = mlp([3, 4, 1])
    torch.nn.init.constant_(network[2].bias, 20.0)
    agent = wrap(network, "gaussian", log_std=torch.zeros(1), clips_actions=True)
    start = replace(SMALL, env=PENDULUM, hidden=(4,), total_steps=256)
    trained: Any = train(start, 0, init=agent, out=tmp_path / "run", quiet=True)
    assert trained.clips_actions
    assert load_agent(tmp_path / "run").clips_actions  # type: ignore[union-attr]


def test_on_frames_of_procgen_the_worst_perturbation_is_searched_for() -> None:
    agent = agent_of(ImpalaAgent, (3, 64, 64), 15)
    found: Any = plan(agent, FRUITBOT, 5 / 255, 150_000)
    loss = found.objective
    assert (type(loss), loss.inner, loss.steps, loss.anchored, found.anchor) == (ppo.SA, "pgd", 2, True, 1.0)
    assert (loss.radius(15_000), loss.radius(45_000)) == (0.0, pytest.approx(5 / 255))
    assert (found.num_envs, found.minibatch, loss.weight) == (32, 64, 10.0)
    given: Any = plan(agent, FRUITBOT, 5 / 255, 150_000, 0.2)
    assert given.objective.weight == pytest.approx(4.0)  # 0.8 : 0.2
    with pytest.raises(BadInput, match="kappa must be > 0 with objective sa, got 0"):
        plan(agent, FRUITBOT, 5 / 255, 150_000, 0)
    with pytest.raises(BadInput, match="objective must be one of radial-worst-case"):
        plan(agent_of(CategoricalAgent), CARTPOLE, 0.1, 150_000, objective="sa")


def test_a_deep_network_is_pressed_from_where_it_begins_to_feel_it() -> None:
    """ε begins where bounds are 0.1 wide, grows by a factor for most of the ramp, and the policy is held on to."""
    agent = ImpalaAgent((3, 64, 64), 15)
    agent.initialize(torch.Generator().manual_seed(0))
    for parameter in agent.parameters():
        parameter.data *= 2.0  # each of fifteen layers doubles what comes in
    found: Any = plan(agent, FRUITBOT, 1 / 255, 300_000, objective="radial-likelihood")
    ramp = found.objective.radius
    assert isinstance(ramp, Exponential)
    assert (ramp(29_999), ramp.start, found.anchor) == (0.0, pytest.approx(faintest(agent, 1 / 255)), 1.0)
    x = torch.rand((8, 3, 64, 64), generator=torch.Generator().manual_seed(0))
    assert ibp(agent.choice, Ball(x, ramp.start)).width.mean().item() == pytest.approx(0.1, rel=0.01)
    assert ramp(60_000) / ramp(50_000) == pytest.approx(ramp(120_000) / ramp(110_000))
    for parameter in agent.parameters():
        parameter.data *= 0.1
    assert faintest(agent, 1 / 255) == pytest.approx(1 / 25_500, rel=1e-3)  # nothing to fear: a hundredth


def upright() -> CategoricalAgent:
    """Pushes towards where the pole falls: 500 of 500 on CartPole."""
    agent = CategoricalAgent((4,), 2, (8,), "relu")
    agent.initialize(torch.Generator().manual_seed(0))
    with torch.no_grad():
        for parameter in agent.network.parameters():
            parameter.zero_()
        push = torch.tensor([0.1, 0.5, 1.0, 1.0])
        agent.network[0].weight[0], agent.network[0].weight[1] = push, -push
        agent.network[2].weight[0, 1], agent.network[2].weight[1, 0] = 10.0, 10.0
    agent.normalizer.freeze()
    agent.card = Card(env=CARTPOLE, recipe={"config": encode(SMALL)})
    return agent


def test_a_wreck_is_not_handed_back(tmp_path: Path) -> None:
    """ε beyond all that is visited, and no clean loss: whatever it becomes, the original is better."""
    start = upright()
    found = robustify(start, 20.0, 20 * 128, kappa=0.0, episodes=2, tolerance=0.1, out=tmp_path / "run", quiet=True)
    assert found.before.nominal.mean > 400
    assert found.failed
    assert found.after is found.before
    assert same(found.agent, start)
    assert same(load_agent(tmp_path / "run"), start)
    assert json.loads((tmp_path / "run" / COMPARISON).read_text())["failed"] is True


@pytest.mark.parametrize("size", ["batch", "num_envs", "replay_capacity", "n_step"])
def test_a_card_cannot_ask_for_any_size(size: str) -> None:
    agent = QAgent((4,), 2, (8,))
    config = encode(DQNConfig(CARTPOLE, dqn.Plain()))
    agent.card = Card(CARTPOLE, {"config": config | {size: 10**9}})
    with pytest.raises(BadInput, match=f"card.recipe.config.{size} must be ≤"):
        plan(agent, CARTPOLE, 0.1, 10**12)
