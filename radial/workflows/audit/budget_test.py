"""The budget: where it ends, what it says meanwhile, and what counts of something that it cut."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from radial.agents.foreign import wrap
from radial.core.data import Discrete, EnvSpec, Step
from radial.evaluation import threads as of_torch
from radial.workflows.audit import budget, clean
from radial.workflows.audit.audit import AuditInterrupted, audit
from radial.workflows.audit.budget import Clock, Finished, OutOfTime, Until
from radial.workflows.audit.paced import Paced, Tempo
from radial.workflows.audit.units import in_order
from radial.workflows.audit.work import Work

CARTPOLE = EnvSpec("classic", "CartPole-v1", {"max_episode_steps": 20})


def balancer(hook: Any = None) -> Any:
    layer = nn.Linear(4, 2, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0.0, 0.0, -1.0, -0.5], [0.0, 0.0, 1.0, 0.5]]))

    def door(obs: Tensor) -> Tensor:
        hook()
        return obs.float()

    return wrap(nn.Sequential(layer), "categorical", None if hook is None else door, observation_shape=(4,))


class Counting:
    """Env i pays i each step, and its episode ends after i + 1 steps."""

    spec, num_envs, observation_shape, actions = EnvSpec("toy", "Counting"), 4, (1,), Discrete(2)
    engine = {"backend": "toy"}

    def __init__(self) -> None:
        self.steps = 0

    def reset(self) -> Tensor:
        return torch.zeros(4, 1)

    def step(self, action: Tensor) -> Step:
        self.steps += 1
        pay, no = torch.arange(4.0), torch.zeros(4, dtype=torch.bool)
        ended = torch.arange(4) + 1 == self.steps
        return Step(torch.zeros(4, 1), pay, pay, ended, no, torch.arange(4) + 1 >= self.steps)

    def close(self) -> None:
        pass


def test_episodes_that_ended_count_when_time_is_over() -> None:
    clock = Clock(1000.0)
    world = Until(Counting(), clock, (7, 8, 9, 10))
    for _ in range(3):
        world.step(torch.zeros(4))
    clock.end = clock.begun
    with pytest.raises(OutOfTime):
        world.step(torch.zeros(4))
    assert world.finished() == Finished((7, 8, 9), (0.0, 2.0, 6.0), (1, 2, 3), {10: 9.0})
    assert world.so_far().returns == (0.0, 2.0, 6.0, 9.0)
    assert world.first(2) == (0.0, 2.0, 4.0, 6.0)


def test_a_horizon_ends_every_episode() -> None:
    world = Until(Counting(), Clock(None), range(4), horizon=2)
    assert not bool(world.step(torch.zeros(4)).ended.all())
    assert bool(world.step(torch.zeros(4)).ended.all())
    assert world.finished().returns == (0.0, 2.0, 4.0, 6.0)


def test_lines_of_progress_fit_a_terminal_and_come_while_one_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "EVERY", 0.0)
    told: list[str] = []
    audit(balancer(), CARTPOLE, 0.1, episodes=2, p=2.0, attacks=["pgd"], trace=False, progress=told.append)
    assert told[0].startswith("[0:00, 9:5")
    assert all(" left, ETA " in line and len(line) <= 80 for line in told)
    assert any("clean: 0 of 2 episodes, step 1" in line for line in told)
    assert any("pgd at ε = 0.1: " in line for line in told)


def test_cuts_are_grouped() -> None:
    clock = Clock(1.0)
    clock.cut = [("mad", 0.2), ("pgd-strong", 0.1), ("pgd-strong", 0.2), ("certified radius", None)]
    assert clock.cuts([0.1, 0.2]) == ["mad: ε = 0.2", "pgd-strong: every ε", "certified radius"]


def test_the_middle_and_the_largest_radius_come_first() -> None:
    assert in_order([1, 2, 3, 4, 5]) == [2, 4, 3, 1, 0]
    assert in_order([1, 2]) == [1, 0]
    assert in_order([1]) == [0]


def test_episodes_are_reduced_to_what_fits() -> None:
    frames = Tempo(clean=1.0, side=4, frames=True)
    frames.learn("pgd", 40.0, 4)
    assert frames.episodes("pgd", 35.0, 20) == 3
    assert frames.episodes("pgd", math.inf, 20) == 20
    assert frames.episodes("pgd", 0.1, 20) == 1
    vectors = Tempo(clean=1.0, side=10, frames=False)
    vectors.learn("pgd", 10.0, 10)
    assert vectors.seconds("pgd", 1) == pytest.approx(4.6)  # side by side they hardly cost more


def test_a_short_budget_reduces_episodes_and_not_radii(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time is what the agent takes: a tenth of a second for each batch it looks at."""
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])

    def hook() -> None:
        now[0] += 0.1

    radii = [0.1, 0.2, 0.3]
    settings: dict[str, Any] = {"p": 2.0, "attacks": ["random"], "trace": False}
    found = audit(balancer(hook), CARTPOLE, radii, episodes=20, budget=0.4, **settings)
    counts = [len(level.attacks["random"].returns) for level in found.levels if "random" in level.attacks]
    assert len(counts) == 3
    assert found.levels[1].acr is not None


def test_clean_episodes_that_are_cut_give_what_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])

    def hook() -> None:
        now[0] += 1.0

    found = audit(balancer(hook), CARTPOLE, 0.3, episodes=3, budget=0.5, p=2.0, attacks=["random"], trace=False)
    assert found.horizon is not None
    assert 1 <= found.horizon < 12  # two fifths of half a minute, and no episode is that short
    assert found.nominal.returns == (found.horizon,) * 3
    assert found.verdict.startswith(f"Clean return over the first {found.horizon} steps {found.horizon}.0 ± 0.0.")
    assert any("no clean episode ended in time" in note for note in found.notes)


@pytest.mark.parametrize("step", [5, 70])
def test_after_an_interrupt_there_is_still_a_result(step: int) -> None:
    """In the clean episodes, and in the first attack."""
    steps = 0

    def hook() -> None:
        nonlocal steps
        steps += 1
        if steps == step:
            raise KeyboardInterrupt

    with pytest.raises(AuditInterrupted) as stop:
        audit(balancer(hook), CARTPOLE, [0.1, 0.3], episodes=2, budget=None, attacks=["random", "pgd"])
    result = stop.value.result
    assert result.interrupted
    assert result.to_json()["interrupted"]
    assert result.verdict.startswith("Clean return")
    assert "pgd: every ε" in result.cuts
    assert (result.horizon is not None) is (step == 5)


def test_an_audit_computes_vectors_on_one_thread_and_restores_the_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(of_torch.THREADS, raising=False)
    seen: set[int] = set()
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        settings: dict[str, Any] = {"episodes": 1, "budget": None, "p": 2.0, "attacks": [], "trace": False}
        audit(balancer(lambda: seen.add(torch.get_num_threads())), CARTPOLE, 0.1, **settings)
        assert (seen, torch.get_num_threads()) == ({1}, 2)
        seen.clear()
        audit(balancer(lambda: seen.add(torch.get_num_threads())), CARTPOLE, 0.1, threads=3, **settings)
        assert (seen, torch.get_num_threads()) == ({3}, 2)
    finally:
        torch.set_num_threads(before)


def test_random_actions_are_the_lower_end_of_the_range() -> None:
    found = audit(balancer(), CARTPOLE, 0.1, episodes=8, budget=None, p=2.0, attacks=[], trace=False)
    assert found.random is not None
    assert 10 < found.random < 20 == found.nominal.mean
    assert found.to_json()["range"]["width"] == 20 - found.random
    assert clean.RANDOM == 8


@pytest.mark.parametrize(("clean_seconds", "first"), [(0.1, "pgd"), (5.0, "fgsm"), (30.0, "random")])
def test_an_attack_that_fits_into_the_time_comes_first(
    clean_seconds: float, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a minute: pgd takes twenty times as long as a clean episode, fgsm four times, noise hardly longer."""
    monkeypatch.setattr("time.monotonic", lambda: 0.0)
    clock = Clock(60.0)
    begun: Any = SimpleNamespace(frames=True)
    paced = Paced(None, begun, clock, Tempo(clean_seconds, 4, frames=True), [])  # type: ignore[arg-type]
    work: Any = SimpleNamespace(clock=clock, paced=paced)
    names = ["pgd", "mad", "random", "fgsm"]
    assert Work._affordable(work, names)[0] == first
    assert sorted(Work._affordable(work, names)) == sorted(names)
