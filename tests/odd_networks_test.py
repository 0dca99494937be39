"""Every odd network is refused, or its sound bounds hold at many points of the ball."""

import pytest
import torch
from odd_networks import ODD, REFUSED

import radial as rr

CENTERS = torch.linspace(-2, 2, 20).view(5, 4)
BALL = rr.Ball(CENTERS, 0.2)
POINTS = 120  # for each of five centres: 600 in all


def test_there_are_enough() -> None:
    assert len(ODD) >= 40
    assert len(ODD) - len(REFUSED) >= 5


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("method", rr.METHODS)
def test_an_odd_network_is_refused_or_bounded_rightly(name: str, method: str) -> None:
    torch.manual_seed(0)
    network = ODD[name]().eval()
    with torch.no_grad():
        if name in REFUSED:
            with pytest.raises(rr.BadInput) as error:
                rr.sound(method)(network, BALL)
            assert "\n" not in str(error.value)
            return
        bounds = rr.sound(method)(network, BALL)
        rng = torch.Generator().manual_seed(1)
        for number in range(POINTS):
            x = BALL.project(BALL.sample(rng, "corner" if number % 2 else "uniform"))
            assert bounds.contains(network(x.clone())).all()


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_an_odd_network_is_never_certified(name: str) -> None:
    torch.manual_seed(0)
    with pytest.raises(rr.BadInput):
        rr.certify_action(ODD[name]().eval(), rr.Ball(CENTERS[:1], 0.01), "crown")
