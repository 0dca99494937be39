"""Visited states: pictures are kept as bytes, in bounded memory, and prepared a chunk at a time."""

import pytest
import torch
from torch import Tensor, nn

from radial.agents.foreign import wrap
from radial.agents.preprocessing import Frames
from radial.core.data import Discrete, EnvSpec, Step
from radial.workflows.audit import states
from radial.workflows.audit.states import visit

LENGTHS = (40, 100, 7)


class Pictures:
    """Episodes of known lengths; the first pixel counts the steps, the second is the episode."""

    spec, num_envs, observation_shape, actions = EnvSpec("toy", "Pictures"), 3, (4, 84, 84), Discrete(2)
    engine = {"backend": "toy"}

    def __init__(self) -> None:
        self.steps = 0

    def _obs(self) -> Tensor:
        obs = torch.zeros(3, 4, 84, 84, dtype=torch.uint8)
        obs[:, 0, 0, 0], obs[:, 0, 0, 1] = self.steps, torch.arange(3, dtype=torch.uint8)
        return obs

    def reset(self) -> Tensor:
        return self._obs()

    def step(self, action: Tensor) -> Step:
        self.steps += 1
        ended = torch.tensor([self.steps == n for n in LENGTHS])
        one, no = torch.ones(3), torch.zeros(3, dtype=torch.bool)
        return Step(self._obs(), one, one, ended, no, torch.tensor([self.steps <= n for n in LENGTHS]))

    def close(self) -> None:
        pass


def _visit() -> states.Visited:
    network = nn.Sequential(nn.Flatten(), nn.Linear(4 * 84 * 84, 2)).eval()
    agent, memory = wrap(network, "q", Frames(4)), states.Memory()
    visit(agent, Pictures(), memory, range(3))
    return memory.visited(agent.prepare)


def test_pictures_are_kept_as_bytes() -> None:
    visited = _visit()
    assert visited.kept.dtype == torch.uint8
    assert len(visited) == visited.of == sum(LENGTHS)
    x = visited.x(slice(3, 5))
    assert x.dtype == torch.float32
    assert torch.equal(x, visited.kept[3:5].float() / 255)
    assert visited.thinned(10).kept.shape == (10, 4, 84, 84)
    assert visited.thinned(10).x(torch.tensor([9])).dtype == torch.float32


def test_states_beyond_the_budget_are_thinned_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    budget = 30 * 4 * 84 * 84
    monkeypatch.setattr(states, "VISITED_BYTES", budget)
    visited = _visit()
    assert visited.kept.nbytes <= budget
    assert len(visited) > 10
    assert visited.of == sum(LENGTHS)
    assert set(visited.episode.tolist()) == {0, 1, 2}  # none is forgotten
    for i, length in enumerate(LENGTHS):
        steps = visited.kept[visited.episode == i][:, 0, 0, 0].tolist()
        assert steps == list(range(0, length, steps[1] if len(steps) > 1 else 256))  # evenly, from its first state on
        assert set(visited.kept[visited.episode == i][:, 0, 0, 1].tolist()) == {i}
