"""A line of metrics of deep Q-learning, and what a guide watches for it; the loop itself is in `dqn`."""

from collections.abc import Mapping

import torch

from radial.agents.q_agent import QAgent
from radial.runs.run import Run, derived_seed
from radial.training.dqn_config import DQNConfig
from radial.training.ramp import ROWS, Guide
from radial.training.replay import Replay
from radial.training.rollouts import Returns, shown
from radial.training.update import Update


def look(
    guide: Guide, config: DQNConfig, actor: QAgent, replay: Replay, returns: Returns, step: int, seed: int
) -> dict[str, float]:
    """Let the guide watch observations of the replay, drawn with a generator of their own."""
    if not len(replay):
        return {}
    beta = None if config.prioritised is None else config.prioritised.beta(step)
    rng = torch.Generator().manual_seed(derived_seed(seed, "watch", step))
    sample = replay.sample(ROWS, rng, beta=beta, device=next(actor.parameters()).device)
    return guide.look(step, actor, actor.prepare(sample.obs), returns.shared())


def log_line(
    run: Run, config: DQNConfig, learner: Update, returns: Returns, step: int, speed: float, stored: int,
    scheduled: Mapping[str, float], watched: Mapping[str, float],
) -> None:  # fmt: skip
    """Log one line of metrics, under CleanRL's names."""
    metrics = learner.report() | returns.metrics() | {f"robust/{name}": value for name, value in scheduled.items()}
    metrics |= {"charts/SPS": speed, "charts/epsilon": config.exploration(step), "charts/replay": float(stored)}
    metrics |= watched
    learner.check_weights()
    run.log(step, metrics)
    run.progress(step, **shown(metrics, explore="charts/epsilon", loss="losses/td_loss"))
