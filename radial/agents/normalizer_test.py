"""Running statistics, against numbers worked out by hand."""

import pytest
import torch

from radial.agents.normalizer import Normalizer, RewardScale, RunningMoments


def test_moments_of_a_known_list() -> None:
    """2, 4, 4, 4, 5, 5, 7, 9 has mean 5 and Σ(x − 5)² = 32, so the sample variance is 32/7."""
    moments = RunningMoments()
    moments.update(torch.tensor([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]))
    assert (moments.count.item(), moments.mean.item(), moments.squares.item()) == (8, 5, 32)
    assert moments.std.item() == pytest.approx((32 / 7) ** 0.5, rel=1e-15)


@pytest.mark.parametrize("parts", [[8], [1] * 8, [3, 5], [1, 0, 6, 1]])
def test_it_does_not_matter_how_the_data_is_cut(parts: list[int]) -> None:
    x = torch.randn(8, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 1e3 + 1e6
    moments = RunningMoments((3,))
    for batch in x.split(parts):
        moments.update(batch)
    torch.testing.assert_close(moments.mean, x.mean(0), rtol=1e-14, atol=0)
    torch.testing.assert_close(moments.std, x.std(0), rtol=1e-9, atol=0)


def test_before_two_samples_the_scale_is_one() -> None:
    moments = RunningMoments((2,))
    assert moments.std.tolist() == [1, 1]
    moments.update(torch.tensor([[3.0, -4.0]]))
    assert moments.std.tolist() == [1, 1]
    assert moments.mean.tolist() == [3, -4]


def test_normalizer_centres_scales_and_cuts() -> None:
    """0 and 2 have mean 1 and standard deviation √2."""
    normalizer = Normalizer((1,))
    normalizer.update(torch.tensor([[0.0], [2.0]]))
    x = normalizer(torch.tensor([[1.0], [2.0], [100.0], [-100.0]]))
    assert x.dtype == torch.float32
    torch.testing.assert_close(x, torch.tensor([[0.0], [0.5**0.5], [10.0], [-10.0]]))
    assert Normalizer((1,), clip=2.0)(torch.tensor([[5.0]])).item() == 2


def test_a_feature_that_never_moved_is_divided_by_a_tiny_number() -> None:
    normalizer = Normalizer((1,))
    normalizer.update(torch.full((5, 1), 0.5))
    assert normalizer(torch.tensor([[0.5], [0.5 + 2**-20]])).tolist() == [[0], [10]]


def test_frozen_means_frozen() -> None:
    normalizer = Normalizer((1,))
    normalizer.update(torch.tensor([[0.0], [2.0]]))
    normalizer.freeze().update(torch.tensor([[1000.0]]))
    assert normalizer.moments.count.item() == 2


def test_observations_of_any_dtype() -> None:
    normalizer = Normalizer((2,))
    for dtype in (torch.uint8, torch.int64, torch.float16, torch.float32, torch.float64):
        assert normalizer(torch.tensor([[1, 2]], dtype=dtype)).tolist() == [[1, 2]]


def test_rewards_are_divided_by_the_spread_of_discounted_returns() -> None:
    """One env, γ = 1/2, rewards 1, 1, 1: returns 1, 1.5, 1.75; std of the first two √0.125, of all three √(7/48)."""
    scale = RewardScale(1, 0.5)
    one, no, yes = torch.ones(1), torch.tensor([False]), torch.tensor([True])
    scaled = [scale(one, no, yes).item() for _ in range(3)]
    assert scaled == pytest.approx([1, 0.125**-0.5, (48 / 7) ** 0.5], rel=1e-6)


def test_a_return_ends_with_its_episode_and_unreal_rows_count_for_nothing() -> None:
    scale = RewardScale(2, 0.5)
    ended, real = torch.tensor([True, False]), torch.tensor([True, True])
    scale(torch.tensor([4.0, 4.0]), ended, real)
    assert scale.returns.tolist() == [0, 4]
    out = scale(torch.tensor([0.0, 1.0]), torch.tensor([False, False]), torch.tensor([False, True]))
    assert scale.returns.tolist() == [0, 3]
    assert scale.moments.count.item() == 3
    assert out[0].item() == 0


def test_scaled_rewards_are_cut() -> None:
    scale = RewardScale(2, 0.99)
    both = torch.tensor([True, True])
    scale(torch.tensor([1.0, 1.001]), ~both, both)
    assert scale(torch.tensor([1e6, -1e6]), both, both).abs().max() <= 10


def test_scaling_a_rollout_at_once_is_scaling_it_step_by_step() -> None:
    rng = torch.Generator().manual_seed(0)
    stepwise, at_once = RewardScale(4, 0.9), RewardScale(4, 0.9)
    for _ in range(3):
        reward = 100 + torch.randn(50, 4, generator=rng)
        ended, real = torch.rand(50, 4, generator=rng) < 0.1, torch.rand(50, 4, generator=rng) < 0.9
        reward = torch.where(real, reward, 0.0)
        expected = torch.stack([stepwise(*row) for row in zip(reward, ended, real, strict=True)])
        torch.testing.assert_close(at_once.over_time(reward, ended, real), expected)
        torch.testing.assert_close(at_once.state_dict(), stepwise.state_dict())
