"""What vector envs that stand around another one share: everything that they do not change."""

from torch import Tensor

from radial.core.data import Step, VecEnv


class Wrapped:
    """A vector env that passes everything on; whoever inherits changes `step`."""

    def __init__(self, env: VecEnv) -> None:
        self.env = env
        self.spec, self.num_envs, self.engine = env.spec, env.num_envs, env.engine
        self.observation_shape, self.actions = env.observation_shape, env.actions

    @property
    def steps(self) -> int:
        """Real steps so far, summed over the envs."""
        return self.env.steps

    def reset(self) -> Tensor:
        """The first observations (N, *obs)."""
        return self.env.reset()

    def step(self, action: Tensor) -> Step:
        """Act in every env."""
        return self.env.step(action)

    def close(self) -> None:
        """Free the simulators."""
        self.env.close()
