import math

import pytest
import torch

from radial.training.adam import adam, adam_, amsgrad_, start, start_amsgrad
from radial.training.update import Flat


def test_agrees_with_torch():
    rng = torch.Generator().manual_seed(0)
    ours = torch.randn(7, generator=rng)
    theirs = torch.nn.Parameter(ours.clone())
    optimiser = torch.optim.Adam([theirs], lr=0.01, eps=1e-5)
    moments = start(ours)
    for _ in range(20):
        gradient = torch.randn(7, generator=rng)
        theirs.grad = gradient.clone()
        optimiser.step()
        ours, moments = adam(ours, gradient, moments, torch.tensor(0.01))
    torch.testing.assert_close(ours, theirs.detach())
    assert moments.steps == 20


def test_in_place_it_is_the_same_step():
    rng = torch.Generator().manual_seed(0)
    ours = torch.randn(1_000, generator=rng)
    place, memory, moments = ours.clone(), start(ours), start(ours)
    for _ in range(20):
        gradient = torch.randn(1_000, generator=rng)
        ours, moments = adam(ours, gradient, moments, torch.tensor(0.01), eps=1e-3)
        adam_(place, gradient, memory, 0.01, eps=1e-3)
    torch.testing.assert_close(place, ours)
    for own, other in zip(memory, moments, strict=True):
        torch.testing.assert_close(own, other)


def test_a_rate_per_parameter_is_two_optimisers():
    rates = torch.tensor([0.1, 0.0])
    moved, _ = adam(torch.zeros(2), torch.ones(2), start(torch.zeros(2)), rates)
    assert moved[0] < 0
    assert moved[1] == 0


def test_amsgrad_by_hand():
    """Gradients 1 then 0: m is 0.1 then 0.09, v is 0.001 then 0.000999, and its largest stays 0.001."""
    parameters, moments = torch.zeros(1), start_amsgrad(torch.zeros(1))
    amsgrad_(parameters, torch.ones(1), moments, rate=1.0, eps=0.1)
    first = math.sqrt(0.001) / 0.1 * 0.1 / (math.sqrt(0.001) + 0.1)
    assert parameters.item() == pytest.approx(-first, rel=1e-5)  # −0.2402
    amsgrad_(parameters, torch.zeros(1), moments, rate=1.0, eps=0.1)
    second = math.sqrt(1 - 0.999**2) / (1 - 0.9**2) * 0.09 / (math.sqrt(0.001) + 0.1)
    assert parameters.item() == pytest.approx(-first - second, rel=1e-5)
    assert [float(value) for value in moments] == pytest.approx([0.09, 0.000999, 0.001, 2.0])


def test_amsgrad_agrees_with_torch_where_eps_is_put_in_the_same_place():
    rng = torch.Generator().manual_seed(0)
    ours = torch.randn(7, generator=rng)
    theirs = torch.nn.Parameter(ours.clone())
    optimiser = torch.optim.Adam([theirs], lr=0.01, amsgrad=True)
    moments = start_amsgrad(ours)
    for t in range(1, 31):
        gradient = torch.randn(7, generator=rng) / t  # falling, so that the largest second moment is one of the past
        optimiser.param_groups[0]["eps"] = 1e-3 / math.sqrt(1 - 0.999**t)  # theirs is added after that division
        theirs.grad = gradient.clone()
        optimiser.step()
        amsgrad_(ours, gradient, moments, rate=0.01, eps=1e-3)
    torch.testing.assert_close(ours, theirs.detach())
    assert bool((moments.largest > moments.second).any())


def test_amsgrad_moves_the_memory_it_is_given():
    parameters = torch.zeros(3)
    seen, moments = parameters.view(3), start_amsgrad(parameters)
    where = [tensor.data_ptr() for tensor in moments]
    amsgrad_(parameters, torch.ones(3), moments, rate=0.1, eps=1e-3)
    assert bool((seen < 0).all())
    assert [tensor.data_ptr() for tensor in moments] == where


def test_flat_round_trip_and_marks():
    network = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 1))
    named = dict(network.named_parameters())
    flat = Flat(network.named_parameters())
    vector = flat.join(named)
    assert vector.shape == (11,)
    for name, piece in flat.split(vector).items():
        assert torch.equal(piece, named[name])
    flat.write(2 * vector, network)
    assert torch.equal(flat.join(dict(network.named_parameters())), 2 * vector)
    assert flat.mark("1.").tolist() == [0.0] * 8 + [1.0] * 3


def test_kernels_lie_channels_last_and_come_back_as_they_were():
    kernel = torch.arange(2 * 3 * 4 * 5, dtype=torch.float32).view(2, 3, 4, 5)
    flat = Flat([("kernel", kernel)])
    vector = flat.join({"kernel": kernel})
    assert vector[:3].tolist() == [kernel[0, 0, 0, 0], kernel[0, 1, 0, 0], kernel[0, 2, 0, 0]]
    again = flat.split(vector)["kernel"]
    assert torch.equal(again, kernel)
    assert again.is_contiguous(memory_format=torch.channels_last)
