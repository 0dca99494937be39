"""Bounds of training alone, by hand on y = (x, 0) with x in [0.5 − 1, 0.5 + 1]; and that no certificate takes them."""

from typing import Any

import pytest
import torch
from torch import nn

from radial.bounds.certify import certify_action
from radial.bounds.methods import METHODS, ibp
from radial.bounds.mix import bound_terms, weighed
from radial.bounds.small_box import ExpressiveCC, ExpressiveMTL, SmallBox, inner_ball
from radial.core.ball import Ball
from radial.core.data import BadInput, Bounds


def network() -> nn.Linear:
    """(x, 0)."""
    made = nn.Linear(1, 2, bias=False)
    with torch.no_grad():
        made.weight.copy_(torch.tensor([[1.0], [0.0]]))
    return made


BALL = Ball(torch.tensor([[0.5]]), 1.0)  # output 0 leads; the search lowers it to −0.5


def ends(bounds: Bounds) -> list[float]:
    return [round(bounds.lower[0, 0].item(), 6), round(bounds.upper[0, 0].item(), 6)]


def test_a_small_box_lies_at_the_adversarial_point() -> None:
    """λ = 0.25: centre clamp(−0.5, −0.5 + 0.25, 1.5 − 0.25) = −0.25, so y₀ is in [−0.5, 0]."""
    ((weight, found),) = bound_terms(network(), BALL, SmallBox(share=0.25), {})
    assert (weight, ends(found)) == (1.0, [-0.5, 0.0])
    ((_, whole),) = bound_terms(network(), BALL, SmallBox(share=1.0), {})
    assert ends(whole) == ends(ibp(network(), BALL)) == [-0.5, 1.5]


def test_cc_mixes_bounds_with_the_outputs_at_the_point() -> None:
    """share 0.5 between [−0.5, 1.5] and −0.5: [−0.5, 0.5]."""
    ((weight, found),) = bound_terms(network(), BALL, ExpressiveCC(share=0.5), {})
    assert (weight, ends(found)) == (1.0, [-0.5, 0.5])


def test_mtl_mixes_losses() -> None:
    """A loss of upper² is 0.25·1.5² + 0.75·0.5² = 0.75, not the square of a mixed bound."""
    terms = bound_terms(network(), BALL, ExpressiveMTL(share=0.25), {})
    assert [(weight, ends(bounds)) for weight, bounds in terms] == [(0.25, [-0.5, 1.5]), (0.75, [-0.5, -0.5])]
    assert float(weighed(terms, lambda bounds: bounds.upper[0, 0] ** 2).detach()) == pytest.approx(0.75)


def test_rows_are_margins_of_the_point_as_well() -> None:
    rows = torch.tensor([[[-2.0, 0.0]]])
    terms = bound_terms(network(), BALL, ExpressiveMTL(share=0.5), {}, rows)
    assert [ends(bounds) for _, bounds in terms] == [[-3.0, 1.0], [1.0, 1.0]]


@pytest.mark.parametrize("p", [1, 2, float("inf")])
def test_the_small_ball_lies_inside_the_ball(p: float) -> None:
    rng = torch.Generator().manual_seed(0)
    ball = Ball(torch.rand(50, 3, generator=rng), 0.3, p, 0.0, 1.0)
    inner = inner_ball(ball, ball.sample(rng, "corner"), 0.4)
    checked = Ball(inner.center, 0.3 * 0.4, p, 0.0, 1.0)
    assert ball.contains(checked.sample(rng, "corner")).all()


def test_mean_actions_are_moved_away_from_where_they_were() -> None:
    """Both outputs matter: y = (x, −3x) moves farthest at either end; the first step goes where the sum rises."""
    made = network()
    with torch.no_grad():
        made.weight.copy_(torch.tensor([[1.0], [-3.0]]))
    assert SmallBox(aim="distance", steps=2).find(made, BALL).item() == -0.5


@pytest.mark.parametrize("bound", [SmallBox(), ExpressiveMTL(), ExpressiveCC()])
def test_no_certificate_takes_them(bound: Any) -> None:
    """Their boxes leave parts of the ball out, so a proof that rests on one would be wrong."""
    with pytest.raises(BadInput):
        certify_action(network(), BALL, bound)
    assert not any(type(bound).__name__.lower() in name for name in METHODS)
    with pytest.raises(BadInput, match="must be one of"):
        certify_action(network(), BALL, type(bound).__name__)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: SmallBox(share=0.0), "share must be finite and > 0"),
        (lambda: SmallBox(share=1.5), r"share must lie in \[0, 1\]"),
        (lambda: ExpressiveCC(share=-1.0), r"share must lie in \[0, 1\]"),
        (lambda: ExpressiveMTL(steps=0), "steps must be a whole number ≥ 1"),
        (lambda: SmallBox(aim="value"), "aim must be one of action, distance, got 'value'"),
        (lambda: SmallBox(method="ibb"), "ibb"),
    ],
)
def test_bad_input_is_one_line(make: Any, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        make()
