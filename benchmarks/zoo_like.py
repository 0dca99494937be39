"""Trains PPO agents with Stable-Baselines3 and the settings of its zoo, where that zoo's own files are not at hand.

    python benchmarks/zoo_like.py LunarLander-v3 --out runs/sb3

The file is OUT/ppo-ENV/ENV.zip, with the statistics of the observations beside it where the zoo normalises them.
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

# rl-zoo's hyperparams/ppo.yml; both with MlpPolicy. `steps` is the zoo's for LunarLander, fewer for Acrobot, which has
# learned long before 1,000,000.
SETTINGS: dict[str, dict[str, Any]] = {
    "LunarLander-v3": {
        "steps": 1_000_000, "num_envs": 16, "normalize": False,
        "ppo": {"n_steps": 1024, "batch_size": 64, "gae_lambda": 0.98, "gamma": 0.999, "n_epochs": 4, "ent_coef": 0.01},
    },
    "Acrobot-v1": {
        "steps": 300_000, "num_envs": 16, "normalize": True,
        "ppo": {"n_steps": 256, "gae_lambda": 0.94, "gamma": 0.99, "n_epochs": 4, "ent_coef": 0.0},
    },
}  # fmt: skip


def trained(env: str, out: Path, seed: int = 0) -> Path:
    """The zip of an agent for an env, trained unless it is there already."""
    path = out / f"ppo-{env}" / f"{env}.zip"
    if path.is_file():
        return path
    how = SETTINGS[env]
    world: VecEnv = make_vec_env(env, how["num_envs"], seed=seed)
    if how["normalize"]:
        world = VecNormalize(world, gamma=how["ppo"]["gamma"])
    model = PPO("MlpPolicy", world, seed=seed, device="cpu", **how["ppo"])
    model.learn(how["steps"])
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(world, VecNormalize):
        world.save(str(path.with_name("vecnormalize.pkl")))
    model.save(path)
    return path


def main() -> None:
    """Train the agents that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("envs", nargs="*", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--out", type=Path, default=Path("runs/sb3"))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for env in options.envs:
        print(trained(env, options.out, options.seed))


if __name__ == "__main__":
    main()
