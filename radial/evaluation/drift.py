"""How far a sequence of actions can drift while every observation is perturbed: a certificate for a given model.

After Wang et al. 2019 (verification of control policies under persistent perturbations), along a visited trajectory.
It is a statement about the *model*: what the environment does beyond it is covered only by the error the model states.
"""

import copy
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from radial.agents.foreign import as_agent
from radial.agents.saved import load_agent
from radial.agents.weights import strict_json
from radial.bounds.methods import BoundMethod, ibp, sound
from radial.core.agent import Agent
from radial.core.ball import Ball
from radial.core.checks import brief, check_whole
from radial.core.data import BadInput, Continuous, EnvSpec
from radial.core.text import round_up
from radial.evaluation.certificates import Terms, evaluation_env
from radial.evaluation.play import Progress, View, play
from radial.evaluation.prover import Prover, check_radius
from radial.evaluation.repeatable import prepared, repeated_action

_STARTS = 20  # of one trajectory at most, evenly spread
MODEL_BYTES = 8 << 20  # of a file with a linear model


@dataclass(frozen=True, eq=False)
class DynamicsModel:
    """x′ = f(x, a) with x a prepared observation (network units) and a an action of the env.

    network  (B, n + m) → (B, n), that the bound methods know
    error    (n,) ≥ 0: how much more than f's the change of the env's own next state can be, next to a visited one.
             None: not known, and the certificate does not cover it
    """

    network: nn.Module
    error: Tensor | None = None

    def __post_init__(self) -> None:
        error = self.error
        if error is None:
            return
        if not isinstance(error, Tensor) or error.ndim != 1 or not bool((error.isfinite() & (error >= 0)).all()):
            raise BadInput(f"error must be None or a tensor of finite numbers ≥ 0, (n,), got {brief(error)}")


def linear_model(a: Tensor, b: Tensor, c: Tensor | None = None, error: Tensor | None = None) -> DynamicsModel:
    """The model x′ = A·x + B·a + c, with A (n, n), B (n, m), c and error (n,)."""
    n, m = a.shape[0], b.shape[-1]
    _check_shapes({"A": (a, (n, n)), "B": (b, (n, m))} | ({} if c is None else {"c": (c, (n,))}))
    layer = nn.Linear(n + m, n).double()
    with torch.no_grad():
        layer.weight.copy_(torch.cat([a, b], 1))
        layer.bias.copy_(torch.zeros(n) if c is None else c)
    return DynamicsModel(nn.Sequential(layer), error)


def fit_linear(x: Tensor, action: Tensor, next_x: Tensor) -> DynamicsModel:
    """The linear model that fits transitions best, by least squares; its error on others is not known.

    x, next_x  (T, n) prepared        action  (T, m)
    """
    steps, n = x.shape[0], x.shape[-1]
    _check_shapes({
        "x": (x, (steps, n)), "action": (action, (steps, action.shape[-1])), "next_x": (next_x, (steps, n))
    })  # fmt: skip
    rows = torch.cat([x, action, torch.ones(steps, 1)], 1).double()
    found = torch.linalg.lstsq(rows, next_x.double()).solution.T  # (n, n + m + 1)
    return linear_model(found[:, :n], found[:, n:-1], found[:, -1])


def _check_shapes(given: Mapping[str, tuple[Tensor, tuple[int, ...]]]) -> None:
    for name, (value, shape) in given.items():
        if value.shape != shape or not bool(value.isfinite().all()):
            raise BadInput(f"{name} must be finite numbers of shape {shape}, got {brief(value)}")


def read_dynamics(path: Path, features: int, actions: int) -> DynamicsModel:
    """A model from a file: JSON with A, B and perhaps c and error, or an ONNX network of (x, a), laid end to end."""
    if not path.is_file():
        raise BadInput(f"model must be a .json or .onnx file, there is no {path}")
    if path.suffix == ".onnx":
        network = load_agent(path, kind="gaussian").network
        return _fits(path, DynamicsModel(network), features, actions)
    if path.suffix != ".json" or path.stat().st_size > MODEL_BYTES:
        raise BadInput(f"model must be an .onnx file, or a .json file of at most {MODEL_BYTES} bytes, got {path}")
    facts = strict_json(path, path.read_bytes())
    known = {"A": (features, features), "B": (features, actions), "c": (features,), "error": (features,)}
    if not isinstance(facts, dict) or not {"A", "B"} <= facts.keys() <= known.keys():
        raise BadInput(f"{path} must be an object with A and B, and perhaps c and error")
    parts = {name: _array(path, name, facts[name], known[name]) for name in facts}
    if "error" in parts and bool((parts["error"] < 0).any()):
        raise BadInput(f"{path}: error must be ≥ 0")
    return linear_model(parts["A"], parts["B"], parts.get("c"), parts.get("error"))


def write_dynamics(model: DynamicsModel, path: Path) -> Path:
    """Write a linear model as `read_dynamics` reads it."""
    layer = model.network[0] if isinstance(model.network, nn.Sequential) and len(model.network) == 1 else None
    if not isinstance(layer, nn.Linear):
        raise BadInput("model must be linear to be written as JSON")
    n = layer.out_features
    weight = layer.weight.detach()
    facts = {"A": weight[:, :n].tolist(), "B": weight[:, n:].tolist()}
    facts |= {} if layer.bias is None else {"c": layer.bias.tolist()}
    facts |= {} if model.error is None else {"error": model.error.tolist()}
    path.write_text(json.dumps(facts) + "\n")
    return path


def _array(path: Path, name: str, given: Any, shape: tuple[int, ...]) -> Tensor:
    try:
        found = torch.tensor(given, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        found = torch.empty(0)
    if found.shape != shape or not bool(found.isfinite().all()):
        raise BadInput(f"{path}: {name} must be finite numbers of shape {shape}")
    return found


def _fits(where: object, model: DynamicsModel, features: int, actions: int) -> DynamicsModel:
    """The model, once it has been tried on one state and action."""
    try:
        with torch.no_grad():
            like = next(model.network.parameters(), torch.empty(0))
            x = torch.zeros(1, features + actions, dtype=like.dtype)
            shape = tuple(model.network(x).shape)
    except (RuntimeError, ValueError) as error:
        why = " ".join(str(error).split())[:100]
        raise BadInput(f"{where}: the model must take {features} + {actions} numbers: {why}") from None
    if shape != (1, features):
        raise BadInput(f"{where}: the model must give {features} numbers, got shape {shape}")
    if model.error is not None and len(model.error) != features:
        raise BadInput(f"{where}: error must have {features} numbers, got {len(model.error)}")
    return model


# ----------------------------------------------------------------------------------------------------- the closed loop


class _Acting(nn.Module):
    """(x, δ) laid end to end → the action at x + δ, cut to the env's box: (B, 2n) → (B, m)."""

    def __init__(self, policy: nn.Module, features: int, actions: Continuous) -> None:
        super().__init__()
        eye = torch.eye(features)
        self.seen = _fixed(torch.cat([eye, eye], 1))
        self.policy = policy
        self.limit = nn.Sequential()
        if actions.low is not None and actions.high is not None:
            low, high = torch.tensor(actions.low), torch.tensor(actions.high)
            half, middle = (high - low) / 2, (high + low) / 2
            unit = torch.where(half > 0, half, 1.0)  # an entry that the env holds still has no width
            to_unit = _fixed(torch.diag(1 / unit), -middle / unit)
            self.limit = nn.Sequential(to_unit, nn.Hardtanh(), _fixed(torch.diag(half), middle))

    def forward(self, z: Tensor) -> Tensor:
        return self.limit(self.policy(self.seen(z)))


class _Following(nn.Module):
    """(x, δ) laid end to end → the model's next state under the policy: (B, 2n) → (B, n)."""

    def __init__(self, acting: _Acting, model: nn.Module, features: int, size: int) -> None:
        super().__init__()
        self.acting, self.model = acting, model
        state = torch.zeros(features + size, 2 * features)
        state[:features, :features] = torch.eye(features)
        self.state = _fixed(state)
        self.action = _fixed(torch.cat([torch.zeros(features, size), torch.eye(size)]))

    def forward(self, z: Tensor) -> Tensor:
        return self.model(self.state(z) + self.action(self.acting(z)))


def _fixed(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0])
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.copy_(torch.zeros(weight.shape[0]) if bias is None else bias)
    return layer


@dataclass(frozen=True, eq=False)
class ClosedLoop:
    """A policy and a model as two networks of (x, δ), built and so traced once: the action, and the next state."""

    acting: nn.Module
    following: nn.Module
    error: Tensor | None

    @classmethod
    def of(cls, policy: nn.Module, model: DynamicsModel, features: int, actions: Continuous) -> "ClosedLoop":
        """The loop in single precision, as the policy runs; neither network is written to."""
        acting = _Acting(policy, features, actions)
        network = copy.deepcopy(model.network).float()
        return cls(acting, _Following(acting, network, features, actions.size), model.error)


@torch.no_grad()
def drift_of(loop: ClosedLoop, visited: Tensor, radius: float, bound: BoundMethod) -> tuple[Tensor, Tensor]:
    """How far each action of a visited trajectory can drift, (K,), and each state, (K + 1, n); inf: no bound.

    visited  (K, n) prepared observations, one after the other; the actions are the policy's own there

    With the state in a box r_t around the visited x_t and |δ_t| ≤ ε, the action at x_t + e + δ lies in [L, U]:
    drift_t = max_j max(U_j − a_j, a_j − L_j), and r_{t+1} bounds |f(x_t + e, a) − f(x_t, a_t)| + error over the same
    box, e and the policy's answer to it taken together. r_0 = 0: the trajectory begins where the visited one does.
    """
    spread, found = visited.new_zeros(visited.shape[1], dtype=torch.float64), list[Tensor]()
    states, exact = [spread], sound(ibp)
    for x in visited.float():
        if not bool(spread.isfinite().all()):
            found.append(spread.new_tensor(math.inf))
            states.append(torch.full_like(spread, math.inf))
            continue
        center = torch.cat([x, torch.zeros_like(x)]).unsqueeze(0)
        reach = torch.cat([spread, torch.full_like(spread, radius)]).float()
        ball = Ball(center, torch.nextafter(reach, torch.full_like(reach, math.inf)))  # rounded up
        still = Ball(center, 0.0)  # at a point any method is exact, up to rounding
        found.append(_apart(bound(loop.acting, ball), exact(loop.acting, still)).amax())
        spread = _apart(bound(loop.following, ball), exact(loop.following, still))
        spread = spread if loop.error is None else spread + loop.error
        states.append(spread)
    return torch.stack(found), torch.stack(states)


def _apart(around: Any, here: Any) -> Tensor:
    """How far bounds (1, k) reach beyond those of the centre, (k,); inf where one is not finite."""
    found = torch.maximum(around.upper - here.lower, here.upper - around.lower)[0]
    return torch.where(found.isfinite(), found, math.inf)


# ------------------------------------------------------------------------------------------------------------ episodes


@dataclass(frozen=True)
class ActionDrift:
    """How far the actions of k steps can drift under persistent perturbations, for a given model: a certificate.

    mean, largest  by step 1 … K, over the starts, of the drift in the widest coordinate; inf where one has no bound
    state          the largest drift of a state coordinate before each step and after the last, K + 1 numbers
    covers_error   the model states its error: if that is true, the drift is that of the env and not only of the model
    """

    terms: Terms
    mean: tuple[float, ...]
    largest: tuple[float, ...]
    state: tuple[float, ...]
    starts: int
    covers_error: bool

    def to_json(self) -> dict[str, Any]:
        """Plain values that `json` can write; null: no bound."""
        facts = asdict(replace(self, terms=None))  # type: ignore[arg-type]
        for name in ("mean", "largest", "state"):
            facts[name] = [value if math.isfinite(value) else None for value in facts[name]]
        return {"metric": "drift", **self.terms.to_json(), **{k: v for k, v in facts.items() if k != "terms"}}

    def __str__(self) -> str:
        last = "no bound" if math.isinf(self.largest[-1]) else f"at most {round_up(self.largest[-1], 3)}"
        return f"drift after {len(self.mean)} steps: {last}, at {self.terms.radius:g} ({self.terms.bound})"


def drift(
    agent: Agent,
    env: EnvSpec | str,
    radius: float,
    model: DynamicsModel | str | Path,
    horizon: int,
    bound: BoundMethod | str = "best",
    episodes: int = 1,
    seed: int = 0,
    *,
    name: str | None = None,
    progress: Progress | None = None,
) -> ActionDrift:
    """A certified bound on the drift of the next `horizon` actions, from visited states of clean episodes.

    model  of the prepared observation, or the file of one; see `read_dynamics`
    bound  ibp, crown-ibp, crown, best, or a method; ours in their sound form. The loop is bounded as one network

    Every observation of the k steps is perturbed by up to ε in each feature, and the states follow the model.
    """
    agent = as_agent(agent)
    check_radius(radius, math.inf)
    check_whole("horizon", horizon, 1)
    check_whole("episodes", episodes, 1)
    if not isinstance(model, DynamicsModel | str | Path):
        raise BadInput(f"model must be a DynamicsModel or the path of one, got {brief(model)}")
    if not isinstance(agent.actions, Continuous):
        raise BadInput(f"drift needs an agent with continuous actions, got {agent.actions}")
    prover = Prover.of(bound)
    moved, states, loop = list[Tensor](), list[Tensor](), None
    for number in range(episodes):
        visited, terms, actions = _visited(agent, env, seed + number, horizon, radius, prover, name, episodes)
        if not isinstance(model, DynamicsModel):
            model = read_dynamics(Path(model), visited.shape[1], actions.size)
        elif not moved:
            _fits("model", model, visited.shape[1], actions.size)
        loop = loop or ClosedLoop.of(agent.choice, model, visited.shape[1], actions)
        for start in _starts(visited.shape[0], horizon):
            part = visited[start : start + horizon]
            found, spread = drift_of(loop, part, radius, prover.method)
            moved.append(found)
            states.append(spread.amax(1))
        if progress is not None:
            progress(number + 1)
    assert loop is not None  # there is at least one episode
    drifts, worst = torch.stack(moved), torch.stack(states)
    return ActionDrift(
        replace(terms, seed=int(seed)), tuple(drifts.mean(0).tolist()), tuple(drifts.amax(0).tolist()),
        tuple(worst.amax(0).tolist()), len(moved), loop.error is not None,
    )  # fmt: skip


def _starts(steps: int, horizon: int) -> Sequence[int]:
    """At most _STARTS places from which `horizon` visited states follow, evenly spread."""
    last = steps - horizon
    return range(0, last + 1, max(1, -(-(last + 1) // _STARTS)))


def _visited(
    agent: Agent, env: EnvSpec | str, seed: int, horizon: int, radius: float, prover: Prover, name: str | None,
    episodes: int,
) -> tuple[Tensor, Terms, Continuous]:  # fmt: skip
    """The prepared observations of one clean episode (T, n), the terms of the certificate, and the env's actions."""
    seen = list[Tensor]()

    def choose(view: View) -> Tensor:
        x = prepared(agent, view.obs)
        if bool(view.counts.any()):
            seen.append(x[view.counts])
        return repeated_action(agent, x)

    with evaluation_env(agent, env, 1, seed, 1, None) as world, torch.no_grad():
        play(world, choose, 1)
        assert isinstance(world.actions, Continuous)
        actions = world.actions
        terms = Terms(
            agent=name or agent.name, env=world.spec.id, env_options=dict(world.spec.options),
            engine=dict(world.engine), radius=float(radius), p=math.inf, bound=prover.name,
            arithmetic=prover.arithmetic, valid_range=None, rule="drift", horizon=horizon, seed=seed,
            episodes=int(episodes),
        )  # fmt: skip
    visited = torch.cat(seen)
    if visited.ndim != 2:
        raise BadInput("drift needs an agent that sees vectors: no model of frames is read")
    if visited.shape[0] < horizon:
        raise BadInput(f"horizon must be ≤ the {visited.shape[0]} steps of the episode, got {horizon}")
    return visited, terms, actions
