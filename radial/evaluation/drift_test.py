"""The drift of actions under persistent perturbations: by hand in one dimension, sound against simulated attacks."""

import json
import math
from pathlib import Path

import pytest
import torch
from torch import nn

import radial as rr
from radial.agents.policies import DeterministicAgent
from radial.core.data import BadInput, Continuous
from radial.evaluation.drift import (
    ClosedLoop,
    DynamicsModel,
    drift,
    drift_of,
    fit_linear,
    linear_model,
    read_dynamics,
    write_dynamics,
)
from radial.evaluation.prover import Prover

BEST = Prover.of("best").method
ONE = Continuous(1)


def numbers(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def linear_policy(gain: float) -> nn.Sequential:
    layer = nn.Linear(1, 1, bias=False)
    nn.init.constant_(layer.weight, gain)
    return nn.Sequential(layer)


def test_one_dimension_by_hand() -> None:
    """x′ = x + a with a = −½·(x + δ): e′ = ½·e − ½·δ, so with |δ| ≤ 0.4 the state drifts by 0, 0.2, 0.3, 0.35 …

    and the action by ½·(r + 0.4): 0.2, 0.3, 0.35. Bounded apart, e and the action would give r′ = r + ½·(r + ε).
    """
    model = linear_model(numbers(1.0)[None], numbers(1.0)[None])
    visited = torch.tensor([[1.0], [0.5], [0.25]])
    moved, states = drift_of(ClosedLoop.of(linear_policy(-0.5), model, 1, ONE), visited, 0.4, BEST)
    assert moved.tolist() == pytest.approx([0.2, 0.3, 0.35], abs=1e-5)
    assert states.flatten().tolist() == pytest.approx([0.0, 0.2, 0.3, 0.35], abs=1e-5)
    worse = DynamicsModel(model.network, numbers(0.1))  # r′ = ½·r + ½·0.4 + 0.1
    moved, states = drift_of(ClosedLoop.of(linear_policy(-0.5), worse, 1, ONE), visited, 0.4, BEST)
    assert states.flatten().tolist() == pytest.approx([0.0, 0.3, 0.45, 0.525], abs=1e-5)
    assert moved.tolist() == pytest.approx([0.2, 0.35, 0.425], abs=1e-5)


def test_the_limits_of_the_env_end_the_drift_of_an_action() -> None:
    box = Continuous(1, (-0.1,), (0.1,))
    model = linear_model(numbers(1.0)[None], numbers(1.0)[None])
    moved, _ = drift_of(ClosedLoop.of(linear_policy(-0.5), model, 1, box), torch.tensor([[1.0], [0.9]]), 100.0, BEST)
    assert moved.tolist() == pytest.approx([0.2, 0.2], abs=1e-5)  # from −0.1 to 0.1


def test_an_entry_that_the_env_holds_still_does_not_drift() -> None:
    """x′ = x + a with a = (−½·(x_0 + δ_0), 0.3): the first state drifts as above, the second not at all."""
    policy = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        policy.weight.copy_(-0.5 * torch.eye(2))
    box = Continuous(2, (-9.0, 0.3), (9.0, 0.3))
    eye = torch.eye(2, dtype=torch.float64)
    loop = ClosedLoop.of(nn.Sequential(policy), linear_model(eye, eye), 2, box)
    moved, states = drift_of(loop, torch.tensor([[1.0, 0.0], [0.5, 0.3]]), 0.4, BEST)
    assert moved.tolist() == pytest.approx([0.2, 0.3], abs=1e-5)
    assert states[2].tolist() == pytest.approx([0.3, 0.0], abs=1e-5)


@pytest.mark.parametrize("method", ["ibp", "crown-ibp", "crown", "best"])
def test_no_adversary_of_the_model_drifts_farther(method: str) -> None:
    """A random network and a learned model with an error, attacked at random for six steps from the visited start."""
    rng = torch.Generator().manual_seed(0)
    agent = DeterministicAgent((3,), 2, (8,))
    agent.initialize(rng)
    with torch.no_grad():
        agent.squashed[-2].weight *= 100
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))
    for parameter in model.parameters():
        nn.init.uniform_(parameter, -0.5, 0.5, generator=rng)

    error = torch.tensor([0.0, 0.01, 0.02], dtype=torch.float64)

    def roll(starts: torch.Tensor, shift: float, off: float) -> tuple[torch.Tensor, torch.Tensor]:
        x, xs, actions = starts, [], []
        for _ in range(6):
            noise = shift * torch.sign(torch.randn(x.shape, generator=rng))
            action = agent.act(x + noise)
            xs.append(x)
            actions.append(action)
            x = model(torch.cat([x, action], 1)) + off * error.float() * torch.sign(torch.randn(x.shape, generator=rng))
        return torch.stack(xs), torch.stack(actions)

    with torch.no_grad():
        visited, nominal = roll(torch.zeros(1, 3), 0.0, 0.0)
        loop = ClosedLoop.of(agent.choice, DynamicsModel(model, error), 3, Continuous(2))
        moved, states = drift_of(loop, visited[:, 0], 0.05, Prover.of(method).method)
        seen, taken = roll(torch.zeros(200, 3), 0.05, 1.0)
    assert ((taken - nominal).abs().amax((1, 2)) <= moved.float() + 1e-6).all()
    assert ((seen - visited).abs().amax(1) <= states[:-1].float() + 1e-6).all()
    assert moved.isfinite().all()


def test_a_linear_world_is_fitted_written_and_read(tmp_path: Path) -> None:
    rng = torch.Generator().manual_seed(0)
    a, b, c = torch.tensor([[0.9, 0.1], [0.0, 0.8]]), torch.tensor([[0.0], [1.0]]), torch.tensor([0.5, -0.5])
    x, action = torch.randn(50, 2, generator=rng), torch.randn(50, 1, generator=rng)
    fitted = fit_linear(x, action, x @ a.T + action @ b.T + c)
    path = write_dynamics(fitted, tmp_path / "model.json")
    again = read_dynamics(path, 2, 1)
    assert isinstance(again.network, nn.Sequential)
    assert torch.allclose(again.network[0].weight, torch.cat([a, b], 1).double(), atol=1e-5)  # type: ignore[arg-type]
    assert again.error is None


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        ({"A": [[1.0]]}, "with A and B"),
        ({"A": [[1.0]], "B": [[1.0, 2.0]]}, r"B must be finite numbers of shape \(1, 1\)"),
        ({"A": [["x"]], "B": [[1.0]]}, "A must be finite numbers"),
        ({"A": [[1.0]], "B": [[1.0]], "error": [-1.0]}, "error must be ≥ 0"),
        ({"A": [[1.0]], "B": [[1.0]], "D": 1}, "with A and B"),
        ([], "must be an object"),
    ],
)
def test_files_that_hold_no_model_are_refused(facts: object, says: str, tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_text(json.dumps(facts))
    with pytest.raises(BadInput, match=says):
        read_dynamics(path, 1, 1)
    with pytest.raises(BadInput, match="there is no"):
        read_dynamics(tmp_path / "none.json", 1, 1)


def test_along_an_episode() -> None:
    agent = rr.DeterministicAgent((3,), 1, (8,))
    agent.initialize(torch.Generator().manual_seed(0))
    agent.normalizer.freeze()
    eye = torch.eye(3, dtype=torch.float64)
    model = linear_model(0.9 * eye, 0.1 * torch.ones(3, 1, dtype=torch.float64), error=torch.zeros(3).double())
    found = drift(agent, "Pendulum-v1", 0.05, model, 3, "ibp")
    facts = found.to_json()
    assert (facts["metric"], facts["horizon"], facts["covers_error"], facts["starts"]) == ("drift", 3, True, 20)
    assert len(facts["mean"]) == len(facts["largest"]) == 3
    assert len(facts["state"]) == 4
    assert 0 < found.largest[0] <= found.largest[2] < math.inf
    assert found.mean[1] <= found.largest[1]
    assert "after 3 steps" in str(found)
    with pytest.raises(BadInput, match="horizon must be ≤ the 200 steps"):
        drift(agent, "Pendulum-v1", 0.05, model, 201)
    with pytest.raises(BadInput, match="continuous actions"):
        drift(rr.QAgent((4,), 2), "CartPole-v1", 0.05, model, 2)
    with pytest.raises(BadInput, match=r"must take 3 \+ 1 numbers"):
        drift(agent, "Pendulum-v1", 0.05, linear_model(eye[:2, :2], eye[:2, :1]), 2)


def test_models_that_are_none_are_refused() -> None:
    """An error below 0 would let the boxes shrink, and the certificate promise too much."""
    eye, column = torch.eye(3, dtype=torch.float64), torch.ones(3, 1, dtype=torch.float64)
    network = linear_model(eye, column).network
    for error in (-eye[0], math.nan * eye[0], math.inf * eye[0], torch.tensor(0.1), 0.1):
        with pytest.raises(BadInput, match="error must be None or a tensor of finite numbers ≥ 0"):
            DynamicsModel(network, error)  # type: ignore[arg-type]
    for given, says in (((eye[:2], column), "A"), ((eye, column[:2]), "B"), ((eye, column, eye[0, :2]), "c")):
        with pytest.raises(BadInput, match=f"{says} must be finite numbers of shape"):
            linear_model(*given)
    with pytest.raises(BadInput, match="A must be finite numbers"):
        linear_model(math.nan * eye, column)
    x, action = torch.zeros(4, 3), torch.zeros(5, 1)
    with pytest.raises(BadInput, match=r"action must be finite numbers of shape \(4, 1\)"):
        fit_linear(x, action, x)
    with pytest.raises(BadInput, match="next_x must be finite numbers"):
        fit_linear(x, action[:4], math.nan * x)
    agent = rr.DeterministicAgent((3,), 1, (8,))
    agent.normalizer.freeze()
    cases = {
        "model must be a DynamicsModel or the path of one, got None": None,
        "error must have 3 numbers, got 2": DynamicsModel(network, torch.zeros(2)),
        "must give 3 numbers": DynamicsModel(nn.Identity()),
        r"must take 3 \+ 1 numbers": DynamicsModel(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))),
    }
    for says, model in cases.items():
        with pytest.raises(BadInput, match=says):
            drift(agent, "Pendulum-v1", 0.05, model, 2)  # type: ignore[arg-type]


def test_a_model_without_a_constant_is_written(tmp_path: Path) -> None:
    network = nn.Sequential(nn.Linear(4, 3, bias=False))
    again = read_dynamics(write_dynamics(DynamicsModel(network), tmp_path / "model.json"), 3, 1).network
    assert torch.equal(again[0].weight, network[0].weight.double())  # type: ignore[index]
