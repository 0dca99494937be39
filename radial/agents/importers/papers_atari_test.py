"""Atari agents as the papers' authors write them: their modules, written out once more, give the outputs we give."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from radial.agents.actor_critic import ActorCritic
from radial.agents.convert import own
from radial.agents.foreign import WrappedQ
from radial.agents.q_agent import QAgent
from radial.agents.saved import load_agent, save
from radial.core.data import BadInput, Discrete, EnvSpec
from radial.workflows.loading import load


def convolutions(*sizes: int) -> nn.Sequential:
    first, second, third = sizes
    return nn.Sequential(
        nn.Conv2d(1, first, 8, 4), nn.ReLU(), nn.Conv2d(first, second, 4, 2), nn.ReLU(),
        nn.Conv2d(second, third, 3), nn.ReLU(),
    )  # fmt: skip


class Dueling(nn.Module):
    """RADIAL-DQN and SA-DQN."""

    def __init__(self, actions: int, *sizes: int, units: int) -> None:
        super().__init__()
        self.cnn = convolutions(*sizes)
        wide = 49 * sizes[-1]
        self.advantage = nn.Sequential(nn.Linear(wide, units), nn.ReLU(), nn.Linear(units, actions))
        self.value = nn.Sequential(nn.Linear(wide, units), nn.ReLU(), nn.Linear(units, 1))

    def forward(self, x: Tensor) -> Tensor:
        h = self.cnn(x).flatten(1)
        advantage = self.advantage(h)
        return self.value(h) + advantage - advantage.mean(1, keepdim=True)


class Joint(nn.Module):
    """RADIAL-A3C: the value is the first output."""

    def __init__(self, actions: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, after, kernel, padding in ((1, 4, 5, 2), (4, 4, 5, 1), (4, 6, 4, 1), (6, 6, 3, 1)):
            layers += [nn.Conv2d(before, after, kernel, padding=padding), nn.MaxPool2d(2), nn.ReLU()]
        self.model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(96, 16), nn.ReLU(), nn.Linear(16, actions + 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x)


def frames(side: int) -> Tensor:
    return torch.randint(0, 256, (3, 1, side, side), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)


@pytest.mark.parametrize(
    ("name", "old", "checkpoint"),
    [("a.pt", False, False), ("a.pt", False, True), ("a.pth", True, False), ("a.model", True, False)],
)
def test_dueling_networks(name: str, old: bool, checkpoint: bool, tmp_path: Path) -> None:
    theirs = Dueling(6, 4, 5, 6, units=8)
    data: Any = theirs.state_dict()
    if checkpoint:
        data = {
            "model_state_dict": data,
            "optimizer_state_dict": torch.optim.Adam(theirs.parameters()).state_dict(),
            "step": 9,
        }
    torch.save(data, tmp_path / name, _use_new_zipfile_serialization=not old)
    agent = load_agent(tmp_path / name)
    assert isinstance(agent, QAgent)
    assert (agent.observation_shape, agent.actions, agent.hidden) == ((1, 84, 84), Discrete(6), (4, 5, 6, 8))
    assert agent.card.steps == (9 if checkpoint else 0)
    raw = frames(84)
    torch.testing.assert_close(agent.scores(agent.prepare(raw)), theirs(raw / 255))
    again = load_agent(save(agent, tmp_path / "saved"))
    assert torch.equal(again.act(again.prepare(raw)), theirs(raw / 255).argmax(1))


def test_the_network_without_two_heads(tmp_path: Path) -> None:
    theirs = nn.Sequential(*convolutions(32, 64, 64), nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 3))
    torch.save(theirs.state_dict(), tmp_path / "Freeway_pgd.pth")
    agent = load(tmp_path / "Freeway_pgd.pth")
    assert isinstance(agent, WrappedQ)
    assert agent.card.env == EnvSpec("atari", "Freeway")
    raw = frames(84)
    torch.testing.assert_close(agent.scores(agent.prepare(raw)), theirs(raw / 255))
    assert isinstance(own(agent, "init"), QAgent)


def test_a_joint_network_and_its_preset(tmp_path: Path) -> None:
    theirs = Joint(4)
    torch.save(theirs.state_dict(), tmp_path / "Pong_a3c.pt")
    agent = load(tmp_path / "Pong_a3c.pt")
    assert isinstance(agent, ActorCritic)
    assert agent.card.env == EnvSpec("atari", "Pong", {"preset": "radial-a3c"})  # of 80×80, not the default's 84×84
    raw = frames(80).float()
    value, logits = agent.joint(agent.prepare(raw))
    torch.testing.assert_close(value, theirs(raw / 255)[:, 0])
    torch.testing.assert_close(logits, theirs(raw / 255)[:, 1:])


def spoiled(state: dict[str, Tensor], **changes: Tensor | None) -> dict[str, Tensor]:
    changed = state | {name.replace("__", "."): value for name, value in changes.items()}  # type: ignore[operator]
    return {name: value for name, value in changed.items() if value is not None}


@pytest.mark.parametrize(
    ("network", "changes", "says"),
    [
        (Dueling(2, 2, 2, 2, units=4), {"advantage__0__weight": None}, "advantage.0.weight is missing"),
        (Dueling(2, 2, 2, 2, units=4), {"value__2__bias": None}, "network.value.2.bias is missing"),
        (Dueling(2, 2, 2, 2, units=4), {"extra": torch.ones(1)}, "'network.extra' belongs to no part"),
        (Dueling(2, 2, 2, 2, units=4), {"cnn__2__weight": torch.ones(2)}, "cnn.2.weight must have 4 axes"),
        (Dueling(2, 2, 2, 2, units=4), {"cnn__0__bias": torch.full((2,), torch.nan)}, "holds NaN"),
        (Dueling(2, 2, 2, 2, units=4), {"value__0__weight": torch.ones(4, 7)}, "must have shape"),
        (Joint(2), {"model__9__weight": None}, "model.9.weight is missing"),
        (Joint(2), {"model__15__weight": torch.ones(1, 16)}, "two rows or more"),
    ],
)
def test_what_does_not_fit(network: nn.Module, changes: dict[str, Any], says: str, tmp_path: Path) -> None:
    torch.save(spoiled(network.state_dict(), **changes), tmp_path / "a.pt")
    with pytest.raises(BadInput, match=says) as caught:
        load_agent(tmp_path / "a.pt")
    assert "rr.wrap" in str(caught.value)
    assert "\n" not in str(caught.value)
