"""Old ids lead to tasks that exist, and somebody is told."""

import pytest

from radial.core.data import EnvSpec, Step
from radial.envs.clipped import as_trained
from radial.envs.make import make_env, spec_for
from radial.envs.renamed import successor


def test_an_id_that_is_gone() -> None:
    with pytest.warns(UserWarning, match="Hopper-v3 is gone: Hopper-v4 takes its place"):
        assert spec_for("Hopper-v3") == EnvSpec("mujoco", "Hopper-v4")
    assert successor("CartPole-v1") is None


def test_actions_are_cut_only_for_agents_that_were_trained_so() -> None:
    import torch

    class Trained:
        clips_actions = True

    env = make_env(EnvSpec("classic", "Pendulum-v1"), 1, 0)
    seen = []

    class Spy:
        spec, num_envs, engine = env.spec, 1, env.engine
        observation_shape, actions, steps = env.observation_shape, env.actions, 0

        def step(self, action: torch.Tensor) -> Step:
            seen.append(action.tolist())
            return env.step(action)

    env.reset()
    as_trained(Trained(), Spy()).step(torch.tensor([[5.0]]))  # type: ignore[arg-type]
    as_trained(object(), Spy()).step(torch.tensor([[5.0]]))  # type: ignore[arg-type]
    assert seen == [[[2.0]], [[5.0]]]
    env.close()
