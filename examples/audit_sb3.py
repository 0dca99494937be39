"""Is a Stable-Baselines3 agent robust? Audit a file you have, or one that is trained here in a moment.

python examples/audit_sb3.py --agent my_agent.zip --env LunarLander-v3
"""

import argparse
from pathlib import Path

import radial as rr
from radial.reports.page import write_page


def trained(folder: Path, steps: int) -> Path:
    """A small PPO agent on CartPole; needs stable-baselines3."""
    from stable_baselines3 import PPO

    model = PPO("MlpPolicy", "CartPole-v1", n_steps=256, batch_size=64, seed=0, device="cpu")
    model.learn(steps)
    model.save(folder / "CartPole-v1.zip")
    return folder / "CartPole-v1.zip"


def main(arguments: list[str] | None = None) -> rr.AuditResult:
    """Load, audit, write the page; the file is read as data, nothing in it is run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agent", type=Path)
    parser.add_argument("--env")
    parser.add_argument("--radius", type=float, nargs="*")
    parser.add_argument("--steps", type=int, default=20_000, help="of the training, if there is no --agent")
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--budget", type=float, default=5.0, help="minutes")
    parser.add_argument("--out", type=Path, default=Path("out/audit-sb3"))
    given = parser.parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    path = given.agent or trained(given.out, given.steps)
    result = rr.audit(
        path, given.env, given.radius or None, episodes=given.episodes, budget=given.budget, progress=print
    )
    print(result.verdict)
    print("page:", write_page([result.to_json(trace=True)], given.out))
    return result


if __name__ == "__main__":
    main()
