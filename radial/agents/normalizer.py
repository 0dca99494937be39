"""Running statistics: the observation normaliser, which belongs to the agent, and the reward scale of a training.

Both follow the SA-PPO code: Welford's sums in float64, sample variance, and a clip at ten standard deviations.
"""

import torch
from torch import Tensor, nn

CLIP = 10.0
TINY = 1e-8


class RunningMoments(nn.Module):
    """Mean and variance of everything seen so far, in float64; merged batch by batch (Chan et al. 1979)."""

    count: Tensor
    mean: Tensor
    squares: Tensor

    def __init__(self, shape: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("squares", torch.zeros(shape, dtype=torch.float64))  # Σ(x − mean)²

    @torch.no_grad()
    def update(self, x: Tensor) -> None:
        """Take in a batch (n, *shape)."""
        if x.shape[0] == 0:
            return
        x = x.double()
        mean = x.mean(0)
        total = self.count + x.shape[0]
        shift = mean - self.mean
        self.squares += ((x - mean) ** 2).sum(0) + shift**2 * (self.count * x.shape[0] / total)
        self.mean += shift * (x.shape[0] / total)
        self.count.copy_(total)

    @property
    def std(self) -> Tensor:
        """Sample standard deviation; 1 before two samples have been seen."""
        if self.count < 2:
            return torch.ones_like(self.mean)
        return (self.squares / (self.count - 1)).sqrt()


class Normalizer(nn.Module):
    """(x − mean)/(std + 1e-8), cut to ±10: where raw observations become network units.

    Frozen, it never changes again; that is how an agent is evaluated, attacked and certified.
    """

    def __init__(self, shape: tuple[int, ...], clip: float = CLIP) -> None:
        super().__init__()
        self.moments = RunningMoments(shape)
        self.clip = clip
        self.frozen = False

    def update(self, obs: Tensor) -> None:
        """Take in a batch of raw observations (n, *obs), unless frozen."""
        if not self.frozen:
            self.moments.update(obs)

    def freeze(self) -> "Normalizer":
        """Stop learning, for good."""
        self.frozen = True
        return self

    def forward(self, obs: Tensor) -> Tensor:
        """(B, *obs) of any real dtype → (B, *obs) float32."""
        scaled = (obs.double() - self.moments.mean) / (self.moments.std + TINY)
        return scaled.clamp(-self.clip, self.clip).float()


class RewardScale(nn.Module):
    """Divides rewards by the standard deviation of the running discounted return, without centring; cut to ±10."""

    returns: Tensor

    def __init__(self, num_envs: int, discount: float, clip: float = CLIP) -> None:
        super().__init__()
        self.moments = RunningMoments()
        self.register_buffer("returns", torch.zeros(num_envs, dtype=torch.float64))
        self.discount, self.clip = discount, clip

    @torch.no_grad()
    def forward(self, reward: Tensor, ended: Tensor, real: Tensor) -> Tensor:
        """Rewards of one step (N,) → scaled rewards (N,) float32; rows not real are 0 and count for nothing."""
        returns = self.returns * self.discount + reward.double()
        self.moments.update(returns[real])
        self.returns.copy_(torch.where(real & ~ended, returns, 0.0))
        scaled = reward.double() / (self.moments.std + TINY)
        return torch.where(real, scaled.clamp(-self.clip, self.clip), 0.0).float()
