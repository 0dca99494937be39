"""Train RADIAL-PPO on an environment of your own: any Gymnasium env with vector observations, once it is registered."""

import argparse
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np

import radial as rr
from radial.recipes.recipe import with_settings, with_steps


class Corridor(gymnasium.Env[Any, Any]):
    """Stay in the middle of a corridor although the wind blows: observe place and speed, push left or right."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start near the middle."""
        super().reset(seed=seed)
        self.state = self.np_random.uniform(-0.2, 0.2, size=2)
        return self.state.astype(np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Push; the episode ends at a wall."""
        place, speed = self.state
        speed += (0.05 if action == 1 else -0.05) + self.np_random.normal(0, 0.01)
        self.state = np.array([place + 0.2 * speed, speed])
        hit = bool(abs(self.state[0]) > 1)
        return self.state.astype(np.float32), 1.0, hit, False, {}


def main(arguments: list[str] | None = None) -> rr.Evaluation:
    """Register, train, attack, certify."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=40_960)
    parser.add_argument("--epsilon", type=float, default=0.1)
    given = parser.parse_args(arguments)
    if "Corridor-v0" not in gymnasium.registry:
        gymnasium.register("Corridor-v0", entry_point=Corridor, max_episode_steps=200)
    spec = rr.EnvSpec("gymnasium", "Corridor-v0")
    config = with_steps(replace(rr.recipe("cartpole-radial-ppo").config, env=spec), given.steps)
    agent = rr.train(with_settings(config, ["compile=false"]), seed=0, quiet=True)
    attacked = rr.evaluate(agent, spec, rr.PGD(), given.epsilon, episodes=5)
    print("under attack:", attacked)
    print("certified:", rr.acr(agent, spec, given.epsilon, "crown", episodes=1, horizon=20))
    return attacked


if __name__ == "__main__":
    main()
