"""The benchmark of adversaries, on networks small enough to wait for."""

import torch

from radial.agents.policies import CategoricalAgent
from radial.attacks.learned.adversaries import PAAD, SARL
from radial.commands.bench_attacks import measured
from radial.core.agent import Card
from radial.core.data import EnvSpec


def test_speeds_are_ratios_to_plain_ppo() -> None:
    agent = CategoricalAgent((4,), 2, hidden=(4,))
    agent.initialize(torch.Generator().manual_seed(0))
    agent.normalizer.freeze()
    agent.card = Card(EnvSpec("classic", "CartPole-v1"))
    tiny = {"radius": 0.1, "num_envs": 4, "rollout": 64, "minibatch": 32, "epochs": 1, "hidden": (4,), "steps": 64}
    kinds = [kind(**tiny, compile=False) for kind in (SARL, PAAD)]  # type: ignore[arg-type]
    rows = list(measured(agent, list(kinds), 1, None))
    assert [row.name for row in rows] == ["ppo", "sarl", "paad"]
    assert rows[0].ratio == 1
    assert all(row.ratio == row.steps_per_second / rows[0].steps_per_second > 0 for row in rows)
