"""Where the bounds of a network blow up: their width against the spread of the values, layer by layer.

The ratio does not depend on the scale of a layer, as a width does. Far above 1 nothing can be certified; training on
bounds works where it comes down to about 1.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from radial.agents.foreign import as_agent
from radial.bounds.methods import check_arguments, inner_values
from radial.bounds.ratio import TINY_SPREAD, width_ratio
from radial.core.agent import Agent
from radial.core.ball import Ball
from radial.core.checks import check_whole
from radial.core.data import BadInput, Discrete, EnvSpec
from radial.envs.make import make_env
from radial.evaluation.prover import check_radius

STATES, ENVS = 256, 8  # observed, and environments they come from
HOPELESS = 1e3  # a ratio from which training on these bounds has never worked


@dataclass(frozen=True)
class LayerWidth:
    """The value of one step of the network, over states.

    width   mean width of its interval bounds        spread  deviation over the states, root mean square over elements
    ratio   width/spread        growth  of the ratio, against the step before
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    width: float
    spread: float
    ratio: float
    growth: float | None

    def to_json(self) -> dict[str, Any]:
        """Plain values that `json` can write; null where a number is not finite."""
        numbers = {name: getattr(self, name) for name in ("width", "spread", "ratio", "growth")}
        plain = {name: value if value is not None and math.isfinite(value) else None for name, value in numbers.items()}
        return {"name": self.name, "kind": self.kind, "shape": list(self.shape), **plain}


@dataclass(frozen=True)
class Widths:
    """The layers of the network that decides, from the input to the scores, at one radius."""

    agent: str
    env: str
    radius: float
    states: int
    layers: tuple[LayerWidth, ...]

    @property
    def ratio(self) -> float:
        """Of the scores: mean width of the bounds by their deviation over states."""
        return self.layers[-1].ratio

    @property
    def steepest(self) -> LayerWidth:
        """The layer at which the ratio grows by the largest factor."""
        return max(self.layers[1:], key=lambda layer: layer.growth or 0.0)

    def to_json(self) -> dict[str, Any]:
        """Plain values that `json` can write."""
        finite = self.ratio if math.isfinite(self.ratio) else None
        return {
            "agent": self.agent, "env": self.env, "radius": self.radius, "states": self.states, "ratio": finite,
            "hopeless": not self.ratio < HOPELESS, "steepest": self.steepest.name,
            "layers": [layer.to_json() for layer in self.layers],
        }  # fmt: skip


@torch.no_grad()
def layer_widths(network: nn.Module, ball: Ball) -> tuple[LayerWidth, ...]:
    """Width and spread of every step of a network, over the balls of a batch (B, *obs), B ≥ 2; by IBP, unrounded."""
    check_arguments(network, ball)
    if ball.center.shape[0] < 2:
        raise BadInput(f"ball must have at least 2 centers to show a spread, got {ball.center.shape[0]}")
    still = Ball(ball.center, 0.0, ball.p, ball.low, ball.high)
    found: list[LayerWidth] = []
    for (name, kind, wide), (_, _, value) in zip(
        inner_values(network, ball), inner_values(network, still), strict=True
    ):
        # 2·radius and not the difference of both ends, which would lose a radius that is small against the value.
        width = float((2 * wide.radius.double()).mean())
        spread = max(float(value.center.double().var(0).mean().sqrt()), TINY_SPREAD)
        ratio = width / spread
        growth = ratio / found[-1].ratio if found and found[-1].ratio > 0 else None
        found.append(LayerWidth(name, kind, tuple(value.shape), width, spread, ratio, growth))
    return tuple(found)


def score_ratio(agent: Agent, x: Tensor, radius: float) -> float:
    """`width_ratio` of an agent's scores at states x (B, *obs): below about 1 actions can be certified."""
    return width_ratio(agent.choice, agent.ball(x, radius), isinstance(agent.actions, Discrete))


@torch.no_grad()
def visited(agent: Agent, env: EnvSpec, states: int = STATES, seed: int = 0, stride: int = 4) -> Tensor:
    """States of clean greedy play in several environments, every `stride`-th step: (states, *obs) in network units."""
    check_whole("states", states, 2)
    world = make_env(env, min(ENVS, states), seed)
    try:
        obs, seen = world.reset(), list[Tensor]()
        for step in range(-(-states // world.num_envs) * stride):
            x = agent.prepare(obs)
            if step % stride == 0:
                seen.append(x)
            obs = world.step(agent.act(x)).obs
    finally:
        world.close()
    return torch.cat(seen)[:states]


def widths(
    agent: Any, env: EnvSpec, radius: float, *, states: int = STATES, seed: int = 0, name: str | None = None
) -> Widths:
    """The widths of an agent's bounds at ε, layer by layer, on states that it visits."""
    agent = as_agent(agent)
    check_radius(radius, math.inf)
    if not radius > 0:
        raise BadInput(f"radius must be > 0: at 0 every bound has width 0, got {radius!r}")
    x = visited(agent, env, states, seed)
    layers = layer_widths(agent.choice, agent.ball(x, radius))
    return Widths(name or agent.name, str(env), float(radius), len(x), layers)
