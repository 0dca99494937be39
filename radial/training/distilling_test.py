"""A student is of its teacher's kind and in its units, learns what it says, and goes on where it stopped."""

from pathlib import Path
from typing import Any

import pytest
import torch

from radial.agents.actor_critic import ActorCritic, ImpalaAgent, ShallowAgent
from radial.agents.convert import AnyAgent
from radial.agents.policies import CategoricalAgent, GaussianAgent
from radial.agents.q_agent import QAgent
from radial.core.data import BadInput, EnvSpec
from radial.objectives.distil import Distil
from radial.runs.run import Run
from radial.training.distilling import DistilConfig, Student, Taught, make_student, train_distil
from radial.training.ramp import Guide, Ramp
from radial.training.ratio_ramp import RatioRamp

CARTPOLE = EnvSpec("classic", "CartPole-v1")


def config(**changes: Any) -> DistilConfig:
    settings = {
        "total_steps": 1_024, "num_envs": 4, "rollout": 128, "updates": 4, "minibatch": 32, "memory": 256,
        "hidden": (8,), "checkpoint_every": 2,
    }  # fmt: skip
    return DistilConfig(CARTPOLE, Distil(0.05), **(settings | changes))


def teacher(kind: str) -> AnyAgent:
    made: Any = {
        "q": lambda: QAgent((4,), 2, (8, 8)),
        "categorical": lambda: CategoricalAgent((4,), 2, (16,)),
        "gaussian": lambda: GaussianAgent((4,), 2, (16,)),
        "actor-critic": lambda: ActorCritic((4,), 2, (8,)),
        "impala": lambda: ImpalaAgent(n=3),
    }[kind]()
    made.initialize(torch.Generator().manual_seed(0))
    if kind in ("gaussian", "categorical"):
        made.normalizer.update(torch.randn(20, 4, generator=torch.Generator().manual_seed(1)) * 3)
        made.normalizer.clip, made.clips_actions = 5.0, True
    return made  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", ["q", "categorical", "gaussian", "actor-critic", "impala"])
def test_every_kind_has_a_student_that_learns_in_its_units(kind: str) -> None:
    agent = teacher(kind)
    sizes = (2, 4, 8) if kind == "impala" else (8,)
    student = Student(make_student(agent, config(hidden=sizes), 0), config(hidden=sizes))
    made = student.agent
    assert isinstance(made, ShallowAgent if kind == "impala" else type(agent))
    rng = torch.Generator().manual_seed(2)
    obs = torch.rand(32, *agent.observation_shape, generator=rng) * (255 if kind == "impala" else 2)
    assert torch.equal(made.prepare(obs), agent.prepare(obs))
    memory = Taught(agent, 64)
    memory.add(obs)
    data, value = memory.lessons(torch.arange(32), made)
    first = student.learn(data, value, 0.0, 1e-2)
    for _ in range(60):
        last = student.learn(data, value, 0.0, 1e-2)
    assert last["losses/divergence"] < 0.7 * first["losses/divergence"]
    if kind != "impala":  # the values of a random IMPALA network hardly differ
        assert last["losses/value_loss"] < first["losses/value_loss"]
    robust = student.learn(data, value, 0.01, 1e-2)
    assert robust["robust/worst_divergence"] >= robust["losses/divergence"] - 1e-5
    assert robust["robust/bound_width"] > 0


def test_the_critic_moves_no_layer_that_decides() -> None:
    agent = teacher("q")
    student = Student(make_student(agent, config(), 0), config())
    memory = Taught(agent, 64)
    memory.add(torch.randn(32, 4, generator=torch.Generator().manual_seed(2)))
    data, value = memory.lessons(torch.arange(32), student.agent)
    student.learn(data, value, 0.0, 0.0)
    deciding = list(student.agent.choice.parameters())
    before = [parameter.grad.clone() for parameter in deciding if parameter.grad is not None]
    student.learn(data, value + torch.linspace(-9, 9, 32), 0.0, 0.0)
    after = [parameter.grad for parameter in deciding if parameter.grad is not None]
    assert len(before) == len(deciding)
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


def run(out: Path | None, resume: bool = False, steps: int = 1_024, **more: Any) -> tuple[AnyAgent, RatioRamp]:
    ramp = RatioRamp(0.05, 4, 9.0)
    made = train_distil(
        config(total_steps=1_024), 0, teacher=teacher("categorical"), guide=Guide(Ramp(9.0, 0), lambda agent, x: {}),
        ramp=ramp, out=out, resume=resume, quiet=True, **more,
    )  # fmt: skip
    return made, ramp


def test_a_run_can_be_resumed_and_ends_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, ramp = run(tmp_path / "whole")
    assert 0 < ramp.epsilon <= 0.05
    original, stopped = Run.save, list[int]()

    def dying(self: Run, step: int, *rest: Any, **more: Any) -> None:
        original(self, step, *rest, **more)
        stopped.append(step)
        if len(stopped) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(Run, "save", dying)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "half")
    monkeypatch.setattr(Run, "save", original)
    again, other = run(tmp_path / "half", resume=True)
    theirs = whole.state_dict()
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in again.state_dict().items())
    assert other.epsilon == ramp.epsilon


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"rollout": 130}, "rollout must be a multiple of num_envs"),
        ({"memory": 64}, "memory must be ≥ rollout"),
        ({"first": 0.7}, "first must be < last"),
        ({"start": "he"}, "start must be one of"),
        ({"rate": 0.0}, "rate must be finite and > 0"),
    ],
)
def test_bad_settings_are_one_line(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        config(**changes)
