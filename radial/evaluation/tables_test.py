"""Worlds small enough to enumerate, agents that can be worked out by hand, and a bound that is exact for them."""

from typing import Any

import torch
from torch import Tensor, nn

from radial.core.ball import Ball
from radial.core.data import Bounds, Discrete, EnvSpec, Step

Row = tuple[float, dict[int, tuple[int | None, float]]]  # what is seen; action → (next state, None: the end; reward)


class LinearAgent(nn.Module):
    """Scores W·x; the action is the largest."""

    def __init__(self, weight: list[list[float]], valid_range: tuple[float, float] | None = None) -> None:
        super().__init__()
        self.network = nn.Linear(len(weight[0]), len(weight), bias=False)
        self.network.weight.data = torch.tensor(weight)
        self.observation_shape, self.actions = (len(weight[0]),), Discrete(len(weight))
        self.valid_range = valid_range

    def prepare(self, obs: Tensor) -> Tensor:
        return obs.float()

    def scores(self, x: Tensor) -> Tensor:
        return self.network(x)

    def act(self, x: Tensor, rng: torch.Generator | None = None) -> Tensor:
        return self.scores(x).argmax(-1)


def opposed() -> LinearAgent:
    """Goes 0 where it sees a positive number, 1 where it sees a negative one; both possible where |x| ≤ ε."""
    return LinearAgent([[1.0], [-1.0]])


def exact_linear(network: nn.Module, ball: Ball, rows: Tensor | None = None) -> Bounds:
    """W·x ± ε·Σ|W|: exact for a linear network up to rounding, and quick. Not ours, so taken at its word."""
    forms = network.weight.unsqueeze(0) if rows is None else rows @ network.weight  # type: ignore[operator]
    middle = (forms * ball.center.unsqueeze(1)).sum(-1)
    reach = (forms.abs() * ball.budget()).sum(-1)
    return Bounds(middle - reach, middle + reach)


class TableWorld:
    """A deterministic world in a table, which can be copied; state 0 comes first. Counts how often it steps."""

    spec = EnvSpec("test", "Table")
    engine = {"backend": "table"}
    observation_shape = (1,)

    def __init__(self, rows: list[Row], actions: int = 2, horizon: int | None = 1000) -> None:
        self.rows, self.actions, self.horizon = rows, Discrete(actions), horizon
        self.state, self.steps_taken, self.closed = 0, 0, False

    def obs(self) -> Tensor:
        return torch.tensor([self.rows[self.state][0]])

    def reset(self) -> Tensor:
        self.state = 0
        return self.obs()

    def step(self, action: int) -> tuple[Tensor, float, bool, bool]:
        self.steps_taken += 1
        after, reward = self.rows[self.state][1][action]
        if after is None:
            return self.obs(), reward, True, False
        self.state = after
        return self.obs(), reward, False, False

    def save(self) -> Any:
        return self.state

    def restore(self, state: Any) -> None:
        self.state = state

    def fingerprint(self) -> bytes:
        return str(self.state).encode()

    def close(self) -> None:
        self.closed = True


class AsVector:
    """A `TableWorld` as a vector env of one."""

    num_envs = 1

    def __init__(self, world: TableWorld) -> None:
        self.world, self.over, self.steps = world, False, 0
        self.spec, self.engine, self.actions = world.spec, world.engine, world.actions
        self.observation_shape = world.observation_shape

    def reset(self) -> Tensor:
        return self.world.reset().unsqueeze(0)

    def step(self, action: Tensor) -> Step:
        no, yes = torch.tensor([False]), torch.tensor([True])
        if self.over:
            self.over = False
            zero = torch.zeros(1)
            return Step(self.world.reset().unsqueeze(0), zero, zero, no, no, no)
        obs, reward, self.over, _ = self.world.step(int(action))
        self.steps += 1
        paid = torch.tensor([reward])
        return Step(obs.unsqueeze(0), paid, paid, torch.tensor([self.over]), no, yes)

    def close(self) -> None:
        self.world.close()


def random_table(seed: int, layers: int = 6, width: int = 3, actions: int = 2) -> TableWorld:
    """Layers of states, every action leads to some state of the next layer or, now and then, to the end.

    What is seen in a state is between −1 and 1; rewards are whole, so sums are exact.
    """
    rng = torch.Generator().manual_seed(seed)

    def draw(low: int, high: int) -> int:
        return int(torch.randint(low, high, (), generator=rng))

    rows: list[Row] = []
    for layer in range(layers):
        for _ in range(1 if layer == 0 else width):
            following = 1 + layer * width
            ways: dict[int, tuple[int | None, float]] = {}
            for action in range(actions):
                over = layer == layers - 1 or draw(0, 12) == 0
                ways[action] = (None if over else following + draw(0, width), float(draw(-5, 6)))
            rows.append((float(torch.rand((), generator=rng)) * 2 - 1, ways))
    return TableWorld(rows, actions)


def enumerated(world: TableWorld, radius: float, limit: int = 10**6) -> float:
    """The least return of `opposed` over all sequences of possible actions, by trying them all."""

    def least(state: int, depth: int) -> float:
        x, ways = world.rows[state]
        possible = [0, 1] if abs(x) <= radius else [0] if x > 0 else [1]
        returns = []
        for action in possible:
            after, reward = ways[action]
            over = after is None or depth + 1 >= limit
            returns.append(reward if over else reward + least(after, depth + 1))  # type: ignore[arg-type]
        return min(returns)

    return least(0, 0)


def test_a_table_is_a_world() -> None:
    world = TableWorld([(0.5, {0: (1, 2.0), 1: (None, -1.0)}), (-0.5, {0: (None, 0.0), 1: (None, 7.0)})])
    assert world.reset().tolist() == [0.5]
    kept = world.save()
    assert world.step(0)[1:] == (2.0, False, False)
    assert world.step(1)[1:] == (7.0, True, False)
    world.restore(kept)
    assert world.step(1)[1:] == (-1.0, True, False)
    # 0.5 is out of reach at radius 0.1, so 0 is forced, then 1; at radius 0.5 the worst is to go 1 at once.
    assert (enumerated(world, 0.1), enumerated(world, 0.5)) == (9.0, -1.0)
