import torch

from radial.algorithms.adam import Flat, adam, start


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


def test_a_rate_per_parameter_is_two_optimisers():
    rates = torch.tensor([0.1, 0.0])
    moved, _ = adam(torch.zeros(2), torch.ones(2), start(torch.zeros(2)), rates)
    assert moved[0] < 0
    assert moved[1] == 0


def test_flat_round_trip_and_marks():
    network = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 1))
    named = dict(network.named_parameters())
    flat = Flat(network.named_parameters())
    vector = flat.join(named)
    assert vector.shape == (11,)
    for name, piece in flat.split(vector).items():
        assert torch.equal(piece, named[name])
    assert flat.mark("1.").tolist() == [0.0] * 8 + [1.0] * 3


def test_kernels_lie_channels_last_and_come_back_as_they_were():
    kernel = torch.arange(2 * 3 * 4 * 5, dtype=torch.float32).view(2, 3, 4, 5)
    flat = Flat([("kernel", kernel)])
    vector = flat.join({"kernel": kernel})
    assert vector[:3].tolist() == [kernel[0, 0, 0, 0], kernel[0, 1, 0, 0], kernel[0, 2, 0, 0]]
    again = flat.split(vector)["kernel"]
    assert torch.equal(again, kernel)
    assert again.is_contiguous(memory_format=torch.channels_last)
