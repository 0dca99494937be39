"""The released agents, against what is known of them. They are not part of this project: where missing, skipped."""

import builtins
import importlib
import os
import pickle
import subprocess
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from radial.agents.actor_critic import ImpalaAgent
from radial.agents.importers.archive import read_archive
from radial.agents.policies import GaussianAgent
from radial.agents.saved import load_agent, save
from radial.core.data import BadInput, Discrete, EnvSpec

MODELS = Path(os.environ.get("RADIAL_MODELS") or Path(__file__).resolve().parents[4] / "shared" / "models")
FILES = {  # exp(log-std) and env steps as published: 2000 and 976 iterations of 2048
    "radial/hopper.model": ([0.31, 0.53, 0.59], 4_096_000),
    "sa_ppo/ppo-hopper-median.model": ([0.13, 0.21, 0.23], 1_998_848),
    "sa_ppo/sappo-convex-hopper-median.model": ([0.44, 0.35, 0.54], 1_998_848),
    "sa_ppo/sappo-sgld-hopper-median.model": ([0.56, 0.91, 1.27], 1_998_848),
}
PROCGEN = ["procgen/FruitBot_ppo.pt", "procgen/FruitBot_radial_ppo.pt"]


def released(name: str) -> Path:
    if not (MODELS / name).is_file():
        pytest.skip(f"{name} is not in {MODELS}; set RADIAL_MODELS to where the released agents are")
    return MODELS / name


@pytest.mark.parametrize("name", FILES)
def test_released_agents(name: str) -> None:
    agent, (std, steps) = load_agent(released(name)), FILES[name]
    assert isinstance(agent, GaussianAgent)
    assert (agent.observation_shape, agent.actions.size, agent.hidden) == ((11,), 3, (64, 64))
    assert agent.log_std.exp().tolist() == pytest.approx(std, abs=0.005)
    assert agent.card.steps == steps
    assert agent.card.env is None
    assert agent.card.source is not None
    assert agent.card.source.startswith(f"{Path(name).name} sha256:")
    assert agent.normalizer.frozen
    assert agent.normalizer.clip == 10
    assert agent.normalizer.moments.count > steps  # one more observation for each reset


@pytest.mark.parametrize("name", FILES)
def test_a_hopper_that_stands_is_near_the_mean_of_what_was_seen(name: str) -> None:
    agent = load_agent(released(name))
    standing = torch.tensor([[1.25, *[0.0] * 10]])  # height, then angles and velocities
    x = agent.prepare(standing)
    assert x.abs().max() < 3
    assert agent.act(x).isfinite().all()
    assert agent.value(x).item() > 0  # a robot that has not fallen has reward to come


def test_the_network_is_theirs() -> None:
    """The forward pass written out once more: tanh after the two hidden layers, none after the last."""
    path = released("radial/hopper.model")
    data, agent = read_archive(path, objects=Everything()), load_agent(path)
    theirs = data["policy_model"]  # type: ignore[index]
    x = torch.randn(5, 11, generator=torch.Generator().manual_seed(0))
    h = (x @ theirs["affine_layers.0.weight"].T + theirs["affine_layers.0.bias"]).tanh()
    h = (h @ theirs["affine_layers.1.weight"].T + theirs["affine_layers.1.bias"]).tanh()
    mean = h @ theirs["final_mean.weight"].T + theirs["final_mean.bias"]
    torch.testing.assert_close(agent.scores(x), mean)


class Everything(set[str]):
    """Every name: all objects become inert data."""

    def __contains__(self, name: object) -> bool:
        return True


def test_an_imported_agent_can_be_saved(tmp_path: Path) -> None:
    env = EnvSpec("gymnasium", "Hopper-v4")
    agent = load_agent(released("radial/hopper.model"), env=env)
    again = load_agent(save(agent, tmp_path / "agent"))
    assert again.card == agent.card
    assert again.card.env == env
    x = torch.randn(5, 11, generator=torch.Generator().manual_seed(0))
    assert torch.equal(again.act(x), agent.act(x))


@pytest.mark.parametrize("name", PROCGEN)
def test_agents_of_procgen(name: str) -> None:
    agent = load_agent(released(name), env=EnvSpec("procgen", "fruitbot"))
    assert isinstance(agent, ImpalaAgent)
    assert (agent.observation_shape, agent.actions) == ((3, 64, 64), Discrete(15))
    assert agent.card.source is not None
    assert agent.card.source.startswith(f"{Path(name).name} sha256:")
    assert agent.card.env == EnvSpec("procgen", "fruitbot")
    assert agent.value(torch.zeros(1, 3, 64, 64)).item() > 0


@pytest.mark.parametrize("name", PROCGEN)
def test_the_network_of_procgen_is_theirs(name: str) -> None:
    """The forward pass written out once more from their numbers, read by torch itself."""
    path = released(name)
    theirs = torch.load(path, map_location="cpu", weights_only=True)

    def conv(x: Tensor, name: str) -> Tensor:
        return F.conv2d(x, theirs[f"{name}.weight"], theirs[f"{name}.bias"], padding=1)

    def linear(x: Tensor, name: str) -> Tensor:
        return x @ theirs[f"{name}.weight"].T + theirs[f"{name}.bias"]

    frames = torch.randint(0, 256, (3, 3, 64, 64), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    x = frames / 255
    for stage in (0, 4, 8):
        x = F.max_pool2d(conv(x, f"model.{stage}"), 3, stride=2, padding=1)
        for block in (stage + 2, stage + 3):
            x = x + conv(conv(x.relu(), f"model.{block}.model.1").relu(), f"model.{block}.model.3")
    outputs = linear(linear(x.flatten(1).relu(), "model.14").relu(), "logits_fc")
    agent = load_agent(path)
    assert isinstance(agent, ImpalaAgent)
    value, logits = agent.joint(agent.prepare(frames))
    torch.testing.assert_close(logits, outputs[:, :15])
    torch.testing.assert_close(value, outputs[:, 15])


def test_a_state_dict_is_no_agent_of_the_papers(tmp_path: Path) -> None:
    torch.save({"some.weight": torch.ones(2)}, tmp_path / "a.model")
    with pytest.raises(BadInput, match=r"is not a \.model file of the papers: it has no state dict 'policy_model'"):
        load_agent(tmp_path / "a.model")


def test_nothing_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every valid file loads while all that could run code is broken."""
    paths = [MODELS / name for name in (*FILES, *PROCGEN) if (MODELS / name).is_file()]
    agent = GaussianAgent((3,), 2)
    paths.append(save(agent, tmp_path / "agent"))
    for path in paths:
        load_agent(path)  # whatever torch imports on first use is imported

    def alarm(*args: object, **kwargs: object) -> object:
        raise AssertionError("code was run")

    for owner, names in {
        os: ["system", "popen", "execv", "execve", "fork"],
        subprocess: ["Popen", "run", "call", "check_output"],
        builtins: ["eval", "exec", "compile"],
        pickle: ["load", "loads", "Unpickler", "_Unpickler", "_loads"],
        importlib: ["import_module"],
        torch: ["load"],
    }.items():
        for name in names:
            monkeypatch.setattr(owner, name, alarm)
    loaded = [load_agent(path) for path in paths]
    monkeypatch.undo()
    assert len(loaded) == len(paths)
