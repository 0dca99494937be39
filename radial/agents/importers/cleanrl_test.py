"""Files of CleanRL's scripts, written here by networks of the same shape and names."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from radial.agents.networks import mlp
from radial.agents.saved import load_agent
from radial.core.data import BadInput, Continuous, Discrete


def net(sizes: list[int], activation: type[nn.Module]) -> nn.Sequential:
    return mlp(sizes, activation)


class Named(nn.Module):
    """Modules under the names a script gives them."""

    def __init__(self, **parts: nn.Module | Tensor) -> None:
        super().__init__()
        for name, part in parts.items():
            if isinstance(part, Tensor):
                part = nn.Parameter(part)
            setattr(self, name, part)


def trunk(*more: nn.Module) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(4, 32, 8, stride=4), nn.ReLU(), nn.Conv2d(32, 64, 4, stride=2), nn.ReLU(),
        nn.Conv2d(64, 64, 3), nn.ReLU(), nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), *more,
    )  # fmt: skip


def write(model: nn.Module, path: Path) -> Path:
    torch.save(model.state_dict(), path)
    return path


def test_dqn(tmp_path: Path) -> None:
    model = Named(network=net([4, 120, 84, 2], nn.ReLU))
    agent, x = load_agent(write(model, tmp_path / "dqn.cleanrl_model")), torch.randn(8, 4)
    torch.testing.assert_close(agent.scores(agent.prepare(x)), model.network(x), atol=1e-6, rtol=1e-6)
    assert (agent.actions, agent.observation_shape) == (Discrete(2), (4,))
    torch.testing.assert_close(agent.value(x), model.network(x).amax(1))  # type: ignore[misc]


def test_dqn_atari(tmp_path: Path) -> None:
    model = Named(network=trunk(nn.Linear(512, 6)))
    agent, x = load_agent(write(model, tmp_path / "a.cleanrl_model")), torch.randint(0, 256, (2, 4, 84, 84)).byte()
    torch.testing.assert_close(agent.scores(agent.prepare(x)), model.network(x / 255.0), atol=1e-6, rtol=1e-6)
    assert agent.valid_range == (0.0, 1.0)  # type: ignore[union-attr]


def test_ppo_atari(tmp_path: Path) -> None:
    model = Named(network=trunk(), actor=nn.Linear(512, 6), critic=nn.Linear(512, 1))
    agent, x = load_agent(write(model, tmp_path / "a.cleanrl_model")), torch.randint(0, 256, (2, 4, 84, 84)).byte()
    hidden = model.network(x / 255.0)
    torch.testing.assert_close(agent.scores(agent.prepare(x)), model.actor(hidden), atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(agent.value(agent.prepare(x)), model.critic(hidden).flatten(), atol=1e-6, rtol=1e-6)  # type: ignore[misc]


def test_ppo(tmp_path: Path) -> None:
    model = Named(critic=net([4, 64, 64, 1], nn.Tanh), actor=net([4, 64, 64, 2], nn.Tanh))
    agent, x = load_agent(write(model, tmp_path / "a.cleanrl_model")), torch.randn(8, 4)
    torch.testing.assert_close(agent.scores(x), model.actor(x), atol=1e-6, rtol=1e-6)
    assert agent.card.recipe["name"] == "PPO of CleanRL"


def test_ppo_continuous_action_says_what_is_missing(tmp_path: Path) -> None:
    model = Named(
        critic=net([3, 64, 64, 1], nn.Tanh), actor_mean=net([3, 64, 64, 2], nn.Tanh), actor_logstd=torch.zeros(1, 2)
    )
    with pytest.warns(UserWarning, match="CleanRL does not save the running normaliser"):
        agent = load_agent(write(model, tmp_path / "a.cleanrl_model"))
    x = torch.randn(8, 3)
    torch.testing.assert_close(agent.scores(x), model.actor_mean(x), atol=1e-6, rtol=1e-6)
    assert (agent.actions, agent.clips_actions) == (Continuous(2), True)  # type: ignore[union-attr]


def test_ddpg_and_td3(tmp_path: Path) -> None:
    actor = Named(
        fc1=nn.Linear(3, 256), fc2=nn.Linear(256, 256), fc_mu=nn.Linear(256, 2),
        action_scale=torch.tensor([[2.0, 0.5]]), action_bias=torch.tensor([[0.0, 1.0]]),
    )  # fmt: skip
    torch.save((actor.state_dict(), nn.Linear(5, 1).state_dict()), tmp_path / "a.cleanrl_model")
    agent, x = load_agent(tmp_path / "a.cleanrl_model"), torch.randn(8, 3)
    hidden = actor.fc2(actor.fc1(x).relu()).relu()
    expected = actor.fc_mu(hidden).tanh() * actor.action_scale + actor.action_bias
    torch.testing.assert_close(agent.act(x), expected, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (
            Named(network=trunk(), lstm=nn.LSTM(512, 128), actor=nn.Linear(128, 6)),
            "recurrent policies are not supported",
        ),
        (Named(network=net([4, 8, 2], nn.ReLU), atoms=torch.ones(51)), "C51 is not read"),
        (Named(policy=nn.Linear(4, 2)), "no script of CleanRL that is known here"),
        (Named(network=net([4, 8, 2], nn.ReLU), more=nn.Linear(4, 2)), "'more.bias' belongs to no part"),
    ],
)
def test_what_is_not_read_is_one_line(model: nn.Module, says: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=says):
        load_agent(write(model, tmp_path / "a.cleanrl_model"))
