"""A test environment: every observation, reward and end is known in advance.

Code that stores steps can be compared with a list written by hand. There is nothing to learn in it.
"""

from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from numpy.typing import NDArray

from radial.core.data import EnvSpec
from radial.envs.gymnasium_vec import GymnasiumVec

Observation = NDArray[np.float32]


class Counting(gymnasium.Env[Observation, np.int64]):
    """Counts: the reward 1234 was earned by env 1, in its episode 2, with its 3rd step, by action 4.

    obs   (3,) float32: env, episode, steps of this episode so far
    ends  with env + episode even: terminated after 3 steps; odd: truncated after 2
    """

    observation_space = gymnasium.spaces.Box(0, np.inf, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(10)

    def __init__(self, env: int) -> None:
        self.env = env
        self.episode = -1
        self.count = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin the next episode; there is nothing random."""
        self.episode += 1
        self.count = 0
        return self._observe(), {}

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Count one step."""
        self.count += 1
        reward = 1000 * self.env + 100 * self.episode + 10 * self.count + int(action)
        even = (self.env + self.episode) % 2 == 0
        return self._observe(), float(reward), even and self.count == 3, not even and self.count == 2, {}

    def _observe(self) -> Observation:
        return np.array([self.env, self.episode, self.count], dtype=np.float32)


def make_counting(num_envs: int) -> GymnasiumVec:
    """N counting envs behind the adapter that every other env goes through."""
    native = SyncVectorEnv(
        [partial(Counting, env) for env in range(num_envs)], copy=False, autoreset_mode=AutoresetMode.NEXT_STEP
    )
    engine = {"backend": "gymnasium", "version": gymnasium.__version__, "simulator": "counting"}
    return GymnasiumVec(native, EnvSpec("gymnasium", "Counting"), engine=engine, timeout=None)
