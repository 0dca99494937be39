"""Make a Stable-Baselines3 agent robust: fine-tune it with the RADIAL loss, audit it before and after on one page.

python examples/robustify_sb3.py --agent my_agent.zip --env LunarLander-v3 --radius 0.05 --steps 300000
"""

import argparse
from pathlib import Path

import radial as rr
from radial.reports.page import write_page


def trained(folder: Path, steps: int) -> Path:
    """A small DQN agent on CartPole; needs stable-baselines3."""
    from stable_baselines3 import DQN

    settings = {"learning_starts": 500, "buffer_size": 50_000, "policy_kwargs": {"net_arch": [32, 32]}}
    model = DQN("MlpPolicy", "CartPole-v1", seed=0, device="cpu", **settings)
    model.learn(steps)
    model.save(folder / "CartPole-v1.zip")
    return folder / "CartPole-v1.zip"


def main(arguments: list[str] | None = None) -> list[rr.AuditResult]:
    """Audit, robustify, audit again; the file is read as data, nothing in it is run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agent", type=Path)
    parser.add_argument("--env")
    parser.add_argument("--radius", type=float, default=0.02)
    parser.add_argument("--train-steps", type=int, default=20_000, help="of the agent, if there is no --agent")
    parser.add_argument("--steps", type=int, default=100_000, help="of the fine-tuning")
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--budget", type=float, default=2.0, help="minutes for each audit")
    parser.add_argument("--attacks", nargs="*", help="only these in the audits; default: all that apply")
    parser.add_argument("--out", type=Path, default=Path("out/robustify-sb3"))
    given = parser.parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    path = given.agent or trained(given.out, given.train_steps)
    start = rr.load(path, given.env)
    found = rr.robustify(start, given.radius, given.steps, episodes=given.episodes, out=given.out / "run")
    print(f"certified actions: {found.before.certified.mean:.3f} before, {found.after.certified.mean:.3f} after")
    both = {"before": start, "after": found.agent}
    audits = [
        rr.audit(
            agent, start.card.env, given.radius, episodes=given.episodes, budget=given.budget, attacks=given.attacks,
            name=name,
        )
        for name, agent in both.items()
    ]  # fmt: skip
    for name, result in zip(both, audits, strict=True):
        print(f"{name}: {result.verdict}")
    print("page:", write_page([result.to_json(trace=True) for result in audits], given.out))
    return audits


if __name__ == "__main__":
    main()
