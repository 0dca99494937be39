"""Running statistics: the observation normaliser, which belongs to the agent, and the reward scale of a training.

Both follow the SA-PPO code: Welford's sums in float64, sample variance, and a clip at ten standard deviations.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

CLIP = 10.0
TINY = 1e-8


class Moments(NamedTuple):
    """Of everything seen so far: how many, () float64; the mean and Σ(x − mean)², (*shape) float64."""

    total: Tensor
    mean: Tensor
    squares: Tensor


def merge(moments: Moments, x: Tensor) -> Moments:
    """The moments with a batch (n, *shape) taken in, n ≥ 1 (Chan et al. 1979). A pure function of tensors."""
    x = x.double()
    mean = x.mean(0)
    total = moments.total + x.shape[0]
    shift = mean - moments.mean
    squares = moments.squares + ((x - mean) ** 2).sum(0) + shift**2 * (moments.total * x.shape[0] / total)
    return Moments(total, moments.mean + shift * (x.shape[0] / total), squares)


def combined(one: Moments, other: Moments) -> Moments:
    """The moments of two sets together (Chan et al. 1979); `other` is not empty."""
    total = one.total + other.total
    shift = other.mean - one.mean
    squares = one.squares + other.squares + shift**2 * (one.total * other.total / total)
    return Moments(total, one.mean + shift * (other.total / total), squares)


def deviation(moments: Moments) -> Tensor:
    """Sample standard deviation (*shape); 1 before two samples have been seen."""
    spread = (moments.squares / (moments.total - 1).clamp(min=1)).sqrt()
    return torch.where(moments.total < 2, torch.ones_like(spread), spread)


def normalize(obs: Tensor, moments: Moments, clip: float) -> Tensor:
    """(obs − mean)/(std + 1e-8), clipped to ±clip: (B, *obs) of any real dtype → (B, *obs) float32."""
    return ((obs.double() - moments.mean) / (deviation(moments) + TINY)).clamp(-clip, clip).float()


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
        if x.shape[0] > 0:
            self.set(merge(self.get(), x))

    def get(self) -> Moments:
        """Count, mean and squares as they are now."""
        return Moments(self.count, self.mean, self.squares)

    def set(self, moments: Moments) -> None:
        """Go on from these."""
        for buffer, value in zip(self.get(), moments, strict=True):
            buffer.copy_(value)

    @property
    def std(self) -> Tensor:
        """Sample standard deviation; 1 before two samples have been seen."""
        return deviation(self.get())


class Normalizer(nn.Module):
    """(x − mean)/(std + 1e-8), clipped to ±10: where raw observations become network units.

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
        return normalize(obs, self.moments.get(), self.clip)


class RewardScale(nn.Module):
    """Divides rewards by the standard deviation of the running discounted return, without centring; clipped to ±10."""

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

    @torch.no_grad()
    def over_time(self, reward: Tensor, ended: Tensor, real: Tensor) -> Tensor:
        """The same for all steps of a rollout at once, (T, N) → (T, N): each scaled by the statistics of its time."""
        returns = torch.empty_like(reward, dtype=torch.float64)
        running = self.returns
        goes_on = (real & ~ended).double()
        for t, earned in enumerate(reward.double()):
            returns[t] = running * self.discount + earned
            running = returns[t] * goes_on[t]
        # Sums relative to the old mean, so that they lose no digits to it.
        count, mean, squares = self.moments.get()
        shifted = torch.where(real, returns - mean, 0.0)
        total = count + real.sum(1).cumsum(0)  # (T,)
        first, second = shifted.sum(1).cumsum(0), (shifted**2).sum(1).cumsum(0)
        known = Moments(total, mean + first / total.clamp(min=1), squares + second - first**2 / total.clamp(min=1))
        scaled = reward.double() / (deviation(known) + TINY).unsqueeze(1)
        self.moments.set(Moments(*[history[-1] for history in known]))
        self.returns.copy_(running)
        return torch.where(real, scaled.clamp(-self.clip, self.clip), 0.0).float()
