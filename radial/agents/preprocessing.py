"""Doors of imported networks: raw observations in, network units out.

Each door also says how many of the env's units one network unit is, per feature.
"""

import torch
from torch import Tensor, nn

from radial.core.data import BadInput


class AsFloat(nn.Module):
    """Observations as they are, in float32."""

    def forward(self, obs: Tensor) -> Tensor:
        """(B, *obs) of any real dtype → (B, *obs) float32."""
        return obs.float()

    def units(self) -> Tensor:
        """Env units per network unit, () or (*obs)."""
        return torch.ones(())


class Frames(nn.Module):
    """Frames of 0 … 255, colours first or last, divided by 255, with colours first.

    shares  False: the training did not divide by 255
    """

    def __init__(self, channels: int, shares: bool = True) -> None:
        super().__init__()
        self.channels, self.shares = channels, shares

    def forward(self, obs: Tensor) -> Tensor:
        """(B, C, H, W) or (B, H, W, C) → (B, C, H, W) float32."""
        if obs.ndim == 4 and obs.shape[1] != self.channels and obs.shape[3] == self.channels:
            obs = obs.permute(0, 3, 1, 2).contiguous()
        if obs.ndim != 4 or obs.shape[1] != self.channels:
            raise BadInput(f"obs must be frames with {self.channels} channels, got shape {tuple(obs.shape)}")
        return obs.float() / 255 if self.shares else obs.float()

    def units(self) -> Tensor:
        """Env units per network unit, ()."""
        return torch.tensor(255.0 if self.shares else 1.0)


class RunningScale(nn.Module):
    """(x − mean)/√(var + tiny), clipped to ±clip, as Stable-Baselines3's VecNormalize does.

    count  how many observations the statistics are of
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Tensor, variance: Tensor, clip: float, tiny: float, count: float) -> None:
        super().__init__()
        self.register_buffer("mean", mean.double())
        self.register_buffer("std", (variance.double() + tiny).sqrt())
        self.clip, self.count = clip, count

    def forward(self, obs: Tensor) -> Tensor:
        """(B, *obs) of any real dtype → (B, *obs) float32."""
        return ((obs.double() - self.mean) / self.std).clamp(-self.clip, self.clip).float()

    def units(self) -> Tensor:
        """Env units per network unit, (*obs)."""
        return self.std


DOORS = (AsFloat, Frames, RunningScale)  # that know their units
