import math

import pytest
import torch
from torch import tensor

from radial.core.ball import Ball
from radial.core.data import BadInput, Bounds
from radial.losses.policy import Categorical, Gaussian, clipped_surrogate, gae, standardize, value_loss


def column(*values: float) -> torch.Tensor:
    return tensor([[value] for value in values])


def test_gae_by_hand():
    # γ = 0.5, λ = 0.5. Three steps of one env; the second ends in a terminal state.
    advantage = gae(
        reward=column(1.0, 2.0, 4.0),
        value=column(1.0, 1.0, 1.0),
        next_value=column(1.0, 8.0, 2.0),
        terminated=tensor([[False], [True], [False]]),
        ended=tensor([[False], [True], [False]]),
        discount=0.5,
        lam=0.5,
    )
    # δ = (1 + 0.5 − 1, 2 + 0 − 1, 4 + 1 − 1) = (0.5, 1, 4); A_0 = 0.5 + 0.25·1, A_1 = 1 (ended), A_2 = 4
    assert advantage.squeeze(1).tolist() == [0.75, 1.0, 4.0]


def test_a_time_limit_keeps_the_value_of_its_last_state():
    cut = {"terminated": tensor([[False]]), "ended": tensor([[True]])}
    advantage = gae(column(1.0), column(0.0), column(10.0), **cut, discount=0.9, lam=0.95)
    assert advantage.item() == pytest.approx(1 + 0.9 * 10)


def test_gae_with_lambda_one_is_the_discounted_return():
    rng = torch.Generator().manual_seed(0)
    reward, value = torch.randn(20, 3, generator=rng), torch.randn(21, 3, generator=rng)
    never = torch.zeros(20, 3, dtype=torch.bool)
    advantage = gae(reward, value[:-1], value[1:], never, never, discount=0.9, lam=1.0)
    total = value[-1]
    for t in reversed(range(20)):
        total = reward[t] + 0.9 * total
    torch.testing.assert_close(advantage[0] + value[0], total)


def test_standardize_uses_the_sample_deviation():
    assert standardize(tensor([1.0, 2.0, 3.0])).tolist() == pytest.approx([-1.0, 0.0, 1.0])


def test_clipped_surrogate_by_hand():
    ratio = tensor([1.5, 0.5, 1.5, 0.5])
    advantage = tensor([1.0, 1.0, -1.0, -1.0])
    surrogate = clipped_surrogate(ratio.log(), torch.zeros(4), advantage, clip=0.2)
    assert surrogate.tolist() == pytest.approx([1.2, 0.5, -1.5, -0.8])


def test_value_loss_takes_the_larger_error():
    value, old, target = tensor([3.0, 0.1]), tensor([0.0, 0.0]), tensor([3.0, 1.0])
    assert value_loss(value, old, target, None).tolist() == pytest.approx([0.0, 0.81])
    assert value_loss(value, old, target, 0.2).tolist() == pytest.approx([2.8**2, 0.81])


def test_gaussian_log_prob_agrees_with_torch():
    policy = Gaussian(tensor([0.3, -0.7]))
    scores, action = torch.randn(5, 2), torch.randn(5, 2)
    expected = torch.distributions.Normal(scores, policy.log_std.exp()).log_prob(action).sum(-1)
    torch.testing.assert_close(policy.log_prob(scores, action), expected)
    entropy = torch.distributions.Normal(scores, policy.log_std.exp()).entropy().sum(-1)
    torch.testing.assert_close(policy.entropy(scores), entropy)


def test_gaussian_bounds_by_hand():
    # One dimension, σ = 1, mean in [1, 2]. For the action 0 the far end is 2 away and the near end 1.
    bounds = Bounds(tensor([[1.0], [1.0]]), tensor([[2.0], [2.0]]))
    found = Gaussian(torch.zeros(1)).log_prob_bounds(bounds, tensor([[0.0], [1.5]]))
    top = -0.5 * math.log(2 * math.pi)
    assert found.lower.tolist() == pytest.approx([top - 2.0, top - 0.125])
    assert found.upper.tolist() == pytest.approx([top - 0.5, top])  # an action inside the bounds may be the mean itself


def test_categorical_bounds_by_hand():
    bounds = Bounds(tensor([[0.0, 0.0]]), tensor([[0.0, math.log(3)]]))
    found = Categorical().log_prob_bounds(bounds, tensor([0]))
    assert found.lower.exp().tolist() == pytest.approx([0.25])  # 1/(1 + 3)
    assert found.upper.exp().tolist() == pytest.approx([0.5])


@pytest.mark.parametrize("kind", ["gaussian", "categorical"])
def test_bounds_enclose_samples_and_meet_them_when_the_box_is_a_point(kind: str):
    rng = torch.Generator().manual_seed(1)
    scores = torch.randn(200, 4, generator=rng)
    if kind == "gaussian":
        policy, action = Gaussian(torch.randn(4, generator=rng)), torch.randn(200, 4, generator=rng)
    else:
        policy, action = Categorical(), torch.randint(4, (200,), generator=rng)
    ball = Ball(scores, 0.3)
    box = ball.box()
    limits = policy.log_prob_bounds(box, action)
    farthest = policy.divergence_bound(box, scores)
    for kind_of_point in ("uniform", "corner") * 20:
        other = ball.sample(rng, kind_of_point)
        log_prob = policy.log_prob(other, action)
        assert bool(((limits.lower - 1e-4 <= log_prob) & (log_prob <= limits.upper + 1e-4)).all())
        assert bool((policy.divergence(scores, other) <= farthest + 1e-4).all())
    point = policy.log_prob_bounds(Bounds(scores, scores), action)
    torch.testing.assert_close(point.lower, policy.log_prob(scores, action))
    torch.testing.assert_close(point.upper, policy.log_prob(scores, action))
    torch.testing.assert_close(
        policy.divergence_bound(Bounds(scores, scores), scores), torch.zeros(200), atol=1e-6, rtol=0
    )


def test_divergence_is_kl_up_to_the_factor_of_the_sa_ppo_code():
    scores, other = torch.randn(6, 3), torch.randn(6, 3)
    log_std = tensor([0.1, -0.4, 0.0])
    normal = torch.distributions.Normal
    kl = torch.distributions.kl_divergence(normal(scores, log_std.exp()), normal(other, log_std.exp())).sum(-1)
    torch.testing.assert_close(Gaussian(log_std).divergence(scores, other), 2 * kl)
    discrete = torch.distributions.Categorical
    kl = torch.distributions.kl_divergence(discrete(logits=scores), discrete(logits=other))
    torch.testing.assert_close(Categorical().divergence(scores, other), kl)


def test_shapes_are_checked_at_the_door():
    with pytest.raises(BadInput, match="expected shape"):
        clipped_surrogate(torch.zeros(3), torch.zeros(4), torch.zeros(3), 0.2)
    with pytest.raises(BadInput, match="expected shape"):
        Gaussian(torch.zeros(2)).log_prob(torch.zeros(4, 2), torch.zeros(4, 3))
