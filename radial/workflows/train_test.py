"""`train` for a config of any algorithm: the loop is found, and the card says how the agent came to be."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from radial.agents.actor_critic import ActorCritic
from radial.agents.q_agent import QAgent
from radial.agents.saved import load_agent
from radial.core.data import BadInput, EnvSpec
from radial.core.schedules import Constant
from radial.objectives import q_objectives as dqn
from radial.objectives import surrogate as ppo
from radial.objectives.policy_gradient import RadialOverlap
from radial.training.a3c import A3CConfig
from radial.training.dqn import DQNConfig
from radial.workflows.train import check_trainable, train

TINY = A3CConfig(
    EnvSpec("classic", "CartPole-v1"), RadialOverlap(Constant(0.1)), total_steps=200, workers=1, num_envs=2, rollout=5,
    hidden=(8,), compile=False,
)  # fmt: skip


def test_an_actor_critic_comes_with_a_card_and_starts_another_one(tmp_path: Path) -> None:
    agent = train(TINY, 3, out=tmp_path / "first", quiet=True, recipe="tiny")
    assert isinstance(agent, ActorCritic)
    card = load_agent(tmp_path / "first").card
    assert (card.env, card.seed, card.steps, card.recipe["name"]) == (TINY.env, 3, 200, "tiny")
    assert card.recipe["resume"] == "exact"
    second = train(TINY, 4, init=tmp_path / "first", quiet=True)
    assert "init" in second.card.recipe


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"env": EnvSpec("classic", "Pendulum-v1")}, "discrete actions"),
        ({"episodic_life": True}, "episodic_life"),  # CartPole has no lives
        ({"objective": RadialOverlap(Constant(-0.1))}, "radius must lie in"),
        ({"objective": RadialOverlap(Constant(0.1), Constant(2.0))}, "kappa must lie in"),
        ({"attack": "pgd", "attack_probability": 0.5}, "attack_radius must be > 0 .* for attack 'pgd'"),
        ({"attack": "pgd", "attack_radius": Constant(0.1)}, "attack_probability must be > 0"),
        ({"env": EnvSpec("atari", "Pong")}, "hidden must be 4 sizes"),  # of the network for its frames
        (
            {
                "env": EnvSpec("atari", "Pong"),
                "hidden": (16, 32, 32, 512),
                "attack": "corners",
                "attack_radius": Constant(0.01),
                "attack_probability": 0.5,
            },
            "corners must be searched in at most 512 features, got",
        ),
    ],
)
def test_what_cannot_be_trained_is_refused_before_anything_is_written(change: dict[str, object], says: str) -> None:
    with pytest.raises(BadInput, match=says) as caught:
        check_trainable(replace(TINY, **change), 0)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_an_unfit_start_leaves_nothing_behind(tmp_path: Path) -> None:
    """A folder written before the refusal would block the corrected command."""
    with pytest.raises(BadInput, match="init must be a ActorCritic, got a QAgent"):
        train(TINY, 0, out=tmp_path / "run", init=QAgent((4,), 2, (8,)), quiet=True)
    assert list(tmp_path.iterdir()) == []


def _taken(run: Path) -> None:
    (run / "agent").mkdir(parents=True)
    (run / "agent" / "thesis.tex").write_text("precious")


def _file(run: Path) -> None:
    run.mkdir()
    (run / "agent").write_text("precious")


def _linked(run: Path) -> None:
    run.mkdir()
    (run / "agent").symlink_to(run.parent)


def _remains(run: Path) -> None:
    run.mkdir()
    (run / ".agent.previous").write_text("precious")


@pytest.mark.parametrize("spoil", [_taken, _file, _linked, _remains])
def test_where_the_agent_cannot_be_saved_nothing_is_trained(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    run = tmp_path / "run"
    spoil(run)
    before = sorted(path.name for path in run.iterdir())
    with pytest.raises(BadInput, match="is not a saved agent"):
        train(TINY, 0, out=run, quiet=True)
    assert sorted(path.name for path in run.iterdir()) == before


@pytest.mark.parametrize(
    ("objective", "home"), [(dqn.RadialOverlap(0.1), "dqn"), (ppo.RadialWorstCase(0.1), "ppo"), (dqn.Plain(), "dqn")]
)
def test_an_objective_of_another_algorithm_is_refused(objective: object, home: str) -> None:
    with pytest.raises(BadInput, match=rf"objective must be one of .* in rr.a3c, got .* of rr\.{home}"):
        check_trainable(replace(TINY, objective=objective), 0)  # type: ignore[arg-type]


def test_a_radius_in_grey_levels_is_refused() -> None:
    frames = A3CConfig(
        EnvSpec("atari", "Pong", {"preset": "radial-a3c"}), RadialOverlap(3.0), total_steps=200, workers=1, num_envs=2
    )
    with pytest.raises(BadInput, match="got 3; use 3/255"):
        train(frames, 0, quiet=True)


@pytest.mark.parametrize("objective", [None, "radial", RadialOverlap], ids=["none", "a name", "a class"])
def test_what_is_no_objective_is_refused(objective: object) -> None:
    with pytest.raises(BadInput, match=r"objective must be an object of rr\.a3c, one of Plain, "):
        check_trainable(replace(TINY, objective=objective), 0)  # type: ignore[arg-type]


def test_the_weight_of_a_regulariser_is_no_share() -> None:
    quick = DQNConfig(
        TINY.env, dqn.SA(0.1, weight=2.0), total_steps=64, num_envs=2, learning_starts=16, batch=8, replay_capacity=200,
        compile=False,
    )  # fmt: skip
    check_trainable(quick, 0)
    with pytest.raises(BadInput, match=r"weight must lie in \[0, 1\], got 3"):
        check_trainable(replace(quick, objective=dqn.RS(0.1, weight=3)), 0)


def test_resuming_needs_a_folder() -> None:
    with pytest.raises(BadInput, match="resume needs out"):
        train(TINY, 0, resume=True, quiet=True)


def test_a_start_may_be_named_as_on_the_command_line() -> None:
    with pytest.raises(BadInput, match="init must be a ActorCritic, got a GaussianAgent"):
        train(TINY, 0, init="hopper-ppo", quiet=True)
    with pytest.raises(BadInput, match=r"no agent 'hoper-ppo'.*did you mean 'hopper-ppo'"):
        train(TINY, 0, init="hoper-ppo", quiet=True)
