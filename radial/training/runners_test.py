"""Runners without a cluster: `Hands` keeps each in this process, sends everything by pickle, and lets one die."""

import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import radial as rr
from radial.agents.normalizer import Moments, combined, merge
from radial.core.data import BadInput, EnvSpec
from radial.training import runners
from radial.training.ppo import Turns
from radial.workflows.train import train

CONFIG = rr.PPOConfig(
    EnvSpec("classic", "CartPole-v1"), total_steps=384, num_envs=4, rollout=64, minibatch=16, epochs=1, hidden=(8,),
    compile=False, checkpoint_every=4, num_runners=2,
)  # fmt: skip


def sent(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


class Hands:
    """As `ActorGroup`; a member of `dying` dies before the call of this number."""

    dying: dict[int, int] = {}

    def __init__(
        self, make: Callable[[Any], Any], jobs: Sequence[Any], revive: Callable[[int], Any], address: str | None
    ) -> None:
        self.make, self.jobs, self.revive, self.deaths, self.calls = make, jobs, revive, 0, 0
        self.members = [make(sent(job)) for job in jobs]

    def call(self, method: str, shared: Any, owns: Sequence[Any]) -> list[Any]:
        self.calls += 1
        for number in range(len(self.members)):
            if self.dying.get(self.calls) == number:
                self.deaths += 1
                self.members[number] = self.make(sent(self.jobs[number]))
                for past, *given in self.revive(number):
                    getattr(self.members[number], past)(*sent(given))
        return [sent(getattr(one, method)(*sent((shared, own)))) for one, own in zip(self.members, owns, strict=True)]

    def close(self) -> None:
        self.members = []


@pytest.fixture(autouse=True)
def hands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runners, "ActorGroup", Hands)
    monkeypatch.setattr(Hands, "dying", {})


def weights(folder: Path) -> bytes:
    return (folder / "agent" / "weights.safetensors").read_bytes()


def deaths(folder: Path) -> float:
    import json

    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return float(json.loads(lines[-1])["charts/runner_deaths"])


def test_a_death_changes_nothing_but_the_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train(CONFIG, 0, out=tmp_path / "a", quiet=True)
    assert deaths(tmp_path / "a") == 0
    monkeypatch.setattr(Hands, "dying", {2: 1, 4: 0})  # in the first iteration and after two
    train(CONFIG, 0, out=tmp_path / "b", quiet=True)
    assert weights(tmp_path / "a") == weights(tmp_path / "b")
    assert deaths(tmp_path / "b") == 2
    train(replace(CONFIG, num_runners=4), 0, out=tmp_path / "c", quiet=True)
    assert weights(tmp_path / "c") != weights(tmp_path / "a")  # deterministic in their number, and another number


def test_a_resumed_run_is_the_same_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train(CONFIG, 0, out=tmp_path / "a", quiet=True)
    act, calls = runners.Runner.act, []

    def tired(self: runners.Runner, *given: Any) -> Any:
        calls.append(0)
        if len(calls) > 10:  # in the sixth iteration, the second after a checkpoint
            raise MemoryError("enough")
        return act(self, *given)

    monkeypatch.setattr(runners.Runner, "act", tired)
    with pytest.raises(MemoryError, match="enough"):
        train(CONFIG, 0, out=tmp_path / "b", quiet=True)
    monkeypatch.setattr(runners.Runner, "act", act)
    train(CONFIG, 0, out=tmp_path / "b", resume=True, quiet=True)
    assert weights(tmp_path / "a") == weights(tmp_path / "b")


def test_moments_of_parts_are_those_of_the_whole() -> None:
    x = torch.randn(30, 3, generator=torch.Generator().manual_seed(0)).double()
    zero = Moments(torch.zeros((), dtype=torch.float64), *(torch.zeros(3, dtype=torch.float64) for _ in range(2)))
    parts = combined(combined(zero, merge(zero, x[:7])), merge(zero, x[7:]))
    for one, other in zip(parts, merge(zero, x), strict=True):
        assert torch.allclose(one, other, rtol=1e-12)


@pytest.mark.parametrize("settings", [{"num_runners": 3}, {"num_runners": -1}])
def test_runners_must_share_the_environments_evenly(settings: dict[str, int]) -> None:
    with pytest.raises(BadInput, match="num_runners"):
        replace(CONFIG, **settings)  # type: ignore[arg-type]


def test_no_runners_beside_an_adversary_that_learns() -> None:
    with pytest.raises(BadInput, match="num_runners must be 0"):
        replace(CONFIG, attack="sarl", turns=Turns())
