"""What a training is told by: the returns and lengths of its last episodes."""

import torch
from torch import Tensor


class Scores:
    """Returns of finished episodes, from the env's own reward."""

    def __init__(self, num_envs: int, window: int = 100) -> None:
        self.running = torch.zeros(num_envs, dtype=torch.float64)
        self.length = torch.zeros(num_envs, dtype=torch.float64)
        self.window = window
        self.returns: list[float] = []  # of the last `window` episodes
        self.lengths: list[float] = []

    def forget(self) -> None:
        """Drop the episodes under way."""
        self.running.zero_()
        self.length.zero_()

    def add(self, score: Tensor, ended: Tensor, real: Tensor) -> None:
        """Take in the steps of a rollout, (T, N)."""
        for t in range(score.shape[0]):
            self.running += score[t]
            self.length += real[t]
            if bool(ended[t].any()):
                self.returns = (self.returns + self.running[ended[t]].tolist())[-self.window :]
                self.lengths = (self.lengths + self.length[ended[t]].tolist())[-self.window :]
                self.running[ended[t]] = 0.0
                self.length[ended[t]] = 0.0

    def extend(self, returns: list[float], lengths: list[float]) -> None:
        """Take in episodes that ended elsewhere."""
        self.returns = (self.returns + returns)[-self.window :]
        self.lengths = (self.lengths + lengths)[-self.window :]

    def mean(self) -> float | None:
        """The mean return of the last episodes; None before the first has ended."""
        return sum(self.returns) / len(self.returns) if self.returns else None

    def metrics(self) -> dict[str, float]:
        """Under CleanRL's names."""
        mean = self.mean()
        if mean is None:
            return {}
        return {
            "charts/episodic_return": mean,
            "charts/episodic_length": sum(self.lengths) / len(self.lengths),
        }
