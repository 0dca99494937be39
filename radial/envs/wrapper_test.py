"""Actions are clipped for agents that were trained so, and for no others."""

import torch

from radial.agents.policies import GaussianAgent
from radial.core.data import EnvSpec, Step
from radial.envs.make import make_env
from radial.envs.wrapper import as_executed, as_trained


def test_actions_are_cut_only_for_agents_that_were_trained_so() -> None:
    trained, other = GaussianAgent((3,), 1), GaussianAgent((3,), 1)
    trained.clips_actions = True
    env = make_env(EnvSpec("classic", "Pendulum-v1"), 1, 0)
    seen = []

    class Spy:
        spec, num_envs, engine = env.spec, 1, env.engine
        observation_shape, actions, steps = env.observation_shape, env.actions, 0

        def step(self, action: torch.Tensor) -> Step:
            seen.append(action.tolist())
            return env.step(action)

    env.reset()
    as_trained(trained, Spy()).step(torch.tensor([[5.0]]))  # type: ignore[arg-type]
    as_trained(other, Spy()).step(torch.tensor([[5.0]]))  # type: ignore[arg-type]
    assert seen == [[[2.0]], [[5.0]]]
    assert [as_executed(agent, env.actions)(torch.tensor([[5.0]])).item() for agent in (trained, other)] == [2.0, 5.0]
    env.close()
