"""A watched ramp, worked by hand; and that the loops follow it, and go on with it where they stopped."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from radial.agents.q_agent import QAgent
from radial.core.data import BadInput, EnvSpec
from radial.core.schedules import Linear
from radial.objectives.policy_gradient import RadialOverlap as A3COverlap
from radial.objectives.q_objectives import RadialOverlap as QOverlap
from radial.objectives.surrogate import RadialWorstCase
from radial.runs.run import VOLATILE, Run
from radial.training import a3c, dqn, ppo
from radial.training.ramp import ROWS, Guide, Ramp, some, time_at

CARTPOLE = EnvSpec("classic", "CartPole-v1")
PPO = ppo.PPOConfig(
    CARTPOLE, RadialWorstCase(Linear(0.1, 256, 900)), total_steps=1_200, num_envs=4, rollout=128, epochs=2,
    minibatch=32, hidden=(8,), compile=False, checkpoint_every=2,
)  # fmt: skip
DQN = dqn.DQNConfig(
    CARTPOLE, QOverlap(Linear(0.05, 200, 600)), total_steps=800, num_envs=4, replay_capacity=1_000, learning_starts=100,
    batch=16, target_every=100, hidden=(8,), compile=False, log_every=100, checkpoint_every=200,
)  # fmt: skip
A3C = a3c.A3CConfig(
    CARTPOLE, A3COverlap(Linear(0.05, 200, 600)), total_steps=800, workers=1, num_envs=4, rollout=5, hidden=(8,),
    compile=False, log_every=100, checkpoint_every=200,
)  # fmt: skip


def watch(agent: Any, x: torch.Tensor) -> dict[str, float]:
    return {"robust/certified": float(agent.scores(x).argmax(-1).float().mean())}


def guide(tolerance: float = 0.2, first_step: int = 256) -> Guide:
    return Guide(Ramp(tolerance, first_step), watch)


def of_the_weights(step: int, agent: Any) -> list[float]:
    """A judge that hears the slightest difference: returns near 20, and a share of the sum of the weights."""
    return [20.0 + sum(float(weight.sum()) for weight in agent.state_dict().values()) / 100]


def disappointed() -> Guide:
    """Used to a return of 40, where an agent of CartPole that has learned nothing brings 20."""
    made = Guide(Ramp(0.5, 0), watch, of_the_weights)
    made.ramp.reference = made.ramp.scale = 40.0
    return made


# ------------------------------------------------------------------------------------------------------------ by hand


def test_the_pace_by_hand() -> None:
    """R₀ = 100 and a tolerance of 0.2: full pace down to 90, half at 85, a halt at 80, backwards below."""
    ramp = Ramp(tolerance=0.2, first_step=1_000)
    assert [ramp.clock(step) for step in (0, 500, 1_000)] == [0, 500, 1_000]
    ramp.hear(1_000, [100.0] * 100)
    assert (ramp.reference, ramp.scale, ramp.pace) == (100.0, 100.0, 1.0)
    for now, pace in ((120.0, 1.0), (100.0, 1.0), (90.0, 1.0), (85.0, 0.5), (80.0, 0.0), (75.0, -0.5), (0.0, -1.0)):
        again = Ramp(0.2, 1_000)
        again.hear(1_000, [100.0])
        again.hear(1_100, [100.0] * 80 + [now] * 20)  # the last twenty episodes count
        assert again.pace == pytest.approx(pace)


def test_the_clock_stops_where_the_schedules_rest() -> None:
    """Long after the ramp's end the clock still shows the end, so a collapse is answered at once."""
    ramp = Ramp(0.2, 1_000, 2_000)
    ramp.hear(1_000, [100.0])
    ramp.hear(5_000, [100.0])
    assert ramp.clock(5_000) == ramp.clock(6_000) == 2_000
    ramp.hear(6_000, [0.0] * 20)
    assert ramp.clock(6_100) == 1_900


def test_the_clock_by_hand() -> None:
    """Full pace to 1,200, half of it for 400 steps, then still, then back, but not to before the ramp."""
    ramp = Ramp(0.2, 1_000)
    ramp.hear(1_000, [100.0])
    assert ramp.clock(1_200) == 1_200
    ramp.hear(1_200, [85.0] * 20)
    assert ramp.clock(1_600) == 1_400
    ramp.hear(1_600, [80.0] * 20)
    assert ramp.clock(9_000) == 1_400
    ramp.hear(9_000, [0.0] * 20)
    assert (ramp.clock(9_100), ramp.clock(99_000)) == (1_300, 1_000)
    ramp.hear(9_100, [100.0] * 20)
    assert ramp.clock(9_200) == 1_400


def test_the_reference_is_taken_until_the_ramp_begins_and_then_kept() -> None:
    ramp = Ramp(0.2, 1_000)
    ramp.hear(500, [20.0])
    ramp.hear(900, [20.0, 60.0])
    assert ramp.reference == 40.0
    ramp.hear(1_100, [500.0] * 20)
    assert (ramp.reference, ramp.pace) == (40.0, 1.0)
    ramp.hear(1_200, [0.0] * 20)
    ramp.hear(5_000, [0.0] * 20)  # back where the ramp begins, with an agent that is lost: still no reference
    assert (ramp.clock(5_000), ramp.reference, ramp.pace) == (1_000, 40.0, -1.0)


def test_before_an_episode_has_ended_the_clock_runs() -> None:
    ramp = Ramp(0.2, 10)
    ramp.hear(100, [])
    assert (ramp.reference, ramp.clock(200)) == (None, 200)
    ramp.hear(200, [7.0])  # late, but the first that is known
    assert ramp.reference == 7.0


def test_what_is_lost_is_measured_against_the_spread_where_the_return_is_about_nothing() -> None:
    """Four hundred returns of ±20: a mean of 0 ± 1, a deviation of 20. To lose 4 is to lose (4 − 1)/20 = 0.15."""
    ramp = Ramp(0.2, 10)
    ramp.hear(10, [-20.0, 20.0] * 200)
    ramp.hear(20, [-4.0] * 20)
    assert (ramp.scale, ramp.pace) == (20.0, pytest.approx(0.5))


def test_what_may_be_chance_is_not_lost() -> None:
    """100 of two episodes, ±√50; 80 of twenty, ±√5: of the 20 between them √55 may be chance, so 0.1258 is lost."""
    ramp = Ramp(0.2, 1_000)
    ramp.hear(1_000, [90.0, 110.0])
    ramp.hear(1_100, [70.0, 90.0] * 10)
    assert ramp.pace == pytest.approx(2 - 10 * 0.125838, abs=1e-5)


def test_a_state_survives_json() -> None:
    ramp, again = Ramp(0.2, 1_000), Ramp(0.2, 1_000)
    for step in (900, 1_100, 1_237):
        ramp.hear(step, [100.0, 1.0 / 3.0 * step])
    again.restore(json.loads(json.dumps(ramp.state())))
    assert (again.state(), again.clock(1_800)) == (ramp.state(), ramp.clock(1_800))


@pytest.mark.parametrize("tolerance", [0.0, -1.0, float("nan"), float("inf")])
def test_a_tolerance_is_a_share(tolerance: float) -> None:
    with pytest.raises(BadInput, match="tolerance must be finite and > 0"):
        Ramp(tolerance, 0)


def test_a_few_rows_are_spread_over_all_of_them() -> None:
    assert some(torch.arange(10)).tolist() == list(range(10))
    assert some(torch.arange(3 * ROWS)).tolist() == list(range(0, 3 * ROWS, 3))
    assert some(torch.arange(3 * ROWS - 1)).shape[0] == ROWS
    assert time_at(None, 77) == 77


# ---------------------------------------------------------------------------------------------------------- the loops


class _Killed(Exception):
    """As if the power had gone."""


def lines(folder: Path) -> list[dict[str, Any]]:
    read = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key not in VOLATILE} for line in read]


@pytest.mark.parametrize(
    ("loop", "train", "config"),
    [(ppo, ppo.train_ppo, PPO), (dqn, dqn.train_dqn, DQN), (a3c, a3c.train_a3c, A3C)],
)
def test_a_guided_run_that_was_interrupted_ends_where_it_would_have(
    loop: Any, train: Any, config: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(config, 3, out=tmp_path / "whole", guide=disappointed(), quiet=True)
    save, saves = Run.save, [0]

    def killed(self: Run, *arguments: Any, **more: Any) -> None:
        save(self, *arguments, **more)
        saves[0] += 1
        if saves[0] == 2:
            raise _Killed

    with monkeypatch.context() as patch:
        patch.setattr(Run, "save", killed)
        with pytest.raises(_Killed):
            train(config, 3, out=tmp_path / "cut", guide=disappointed(), quiet=True)
    resumed = Guide(Ramp(0.5, 0), watch, of_the_weights)  # what it knew is in the checkpoint
    train(config, 3, out=tmp_path / "cut", guide=resumed, resume=True, quiet=True)
    assert lines(tmp_path / "cut") == lines(tmp_path / "whole")
    paces = [line["robust/pace"] for line in lines(tmp_path / "whole")]
    assert len({pace for pace in paces if -1 < pace < 1}) > 2
    assert resumed.ramp.clock(config.total_steps) < config.total_steps
    with pytest.raises(BadInput, match=r"these differ: guide\.tolerance"):
        train(config, 3, out=tmp_path / "cut", guide=guide(0.3, first_step=0), resume=True, quiet=True)


def test_the_average_by_hand() -> None:
    """The first look counts whole, each later one a tenth: 0, then 0.1 · 10 = 1, then 0.9 · 1 + 0.1 · 10 = 1.9."""
    heard: list[float] = []
    asked = Guide(Ramp(0.5, 0), watch, lambda step, agent: heard.append(agent.weight.item()))
    agent = torch.nn.Linear(1, 1)
    for weight in (0.0, 10.0, 10.0):
        torch.nn.init.constant_(agent.weight, weight)
        asked.ask(0, agent)
    assert heard == pytest.approx([0.0, 1.0, 1.9])
    assert agent.weight.item() == 10.0


def test_the_radius_is_where_the_clock_is(tmp_path: Path) -> None:
    """A ramp that stands still from the first look on: ε never grows."""
    held = guide()
    held.ramp.hear = lambda step, returns: setattr(held.ramp, "pace", 0.0)  # type: ignore[method-assign, assignment]
    ppo.train_ppo(PPO, 0, out=tmp_path / "held", guide=held, quiet=True)
    ppo.train_ppo(PPO, 0, out=tmp_path / "free", quiet=True)
    first, *rest = [line["robust/radius"] for line in lines(tmp_path / "held")]
    assert (first, set(rest)) == (0.0, {0.0})
    assert lines(tmp_path / "free")[-1]["robust/radius"] == 0.1


def test_many_workers_have_no_guide() -> None:
    with pytest.raises(BadInput, match="workers must be 1 where the ramp is watched, got 2"):
        a3c.train_a3c(replace(A3C, workers=2), 0, guide=guide())


def test_a_guide_that_only_looks_changes_nothing() -> None:
    """At full pace the training is the one without a guide, bit for bit."""
    calm = guide(tolerance=1e9)
    one, other = dqn.train_dqn(DQN, 1, guide=calm, quiet=True), dqn.train_dqn(DQN, 1, quiet=True)
    assert isinstance(one, QAgent)
    for name, tensor in one.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name])


# ------------------------------------------------------------------------------------------------------ the value first


def test_the_value_learns_first_and_the_policy_stays() -> None:
    config = replace(PPO, objective=RadialWorstCase(Linear(0.1, 2_000, 3_000)), total_steps=256, anneal=False)
    start, *_ = ppo.set_up(config, 5, torch.device("cpu"))
    trained = ppo.train_ppo(replace(config, value_first=10_000), 5, quiet=True)
    moved = {name for name, tensor in trained.named_parameters() if not torch.equal(tensor, start.get_parameter(name))}
    assert moved == {name for name, _ in start.named_parameters() if name.startswith("critic.")}
    after = ppo.train_ppo(replace(config, value_first=128), 5, quiet=True)
    assert not torch.equal(after.network[0].weight, start.network[0].weight)


def test_states_that_alternate_are_both_seen() -> None:
    """Of 500 steps every ninth, not every eighth: odd and even ones alike."""
    seen = some(torch.arange(500))
    assert len(seen) <= ROWS
    assert int((seen % 2).sum()) == len(seen) // 2
