"""Contract over OBJECTIVES: known values at radius 0, monotone in the radius, gradients where they belong."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import radial as rr
from radial.agents.actor_critic import ImpalaAgent
from radial.agents.foreign import wrap
from radial.agents.policies import CategoricalAgent, GaussianAgent
from radial.bounds.methods import ibp
from radial.bounds.mix import Mix
from radial.core.ball import Ball
from radial.core.data import BadInput, Discrete
from radial.core.schedules import Constant, Linear
from radial.losses.policy import Categorical, standardize
from radial.objectives.surrogate import (
    BAR,
    CAR,
    OBJECTIVES,
    SA,
    Batch,
    Plain,
    RadialLikelihood,
    RadialOverlap,
    RadialReleased,
    RadialWorstCase,
    WocaR,
)

CLIP = 0.2
ROBUST = {
    "worst-case": RadialWorstCase(Constant(0.1)),
    "worst-case crown": RadialWorstCase(Constant(0.1), bound="crown-ibp"),
    "worst-case detached": RadialWorstCase(Constant(0.1), detach_std=True),
    "likelihood": RadialLikelihood(Constant(0.1)),
    "released": RadialReleased(Constant(0.1)),
    "sa convex": SA(Constant(0.1), weight=0.1),
    "sa mixed": SA(Constant(0.1), weight=0.1, bound=Mix(Constant(0.3))),
    "sa sgld": SA(Constant(0.1), weight=0.1, inner="sgld"),
    "sa pgd": SA(Constant(0.1), weight=0.1, inner="pgd"),
    "car": CAR(Constant(0.1)),
    "car pgd": CAR(Constant(0.1), inner="pgd", temperature=1.0),
    "bar": BAR(Constant(0.1)),
    "bar pgd": BAR(Constant(0.1), inner="pgd"),
    "wocar": WocaR(Constant(0.1)),
}
SEARCHED = [name for name, objective in ROBUST.items() if objective.bounding is None]


def agent(kind: str) -> GaussianAgent | CategoricalAgent:
    made = GaussianAgent((5,), 3, (16, 16)) if kind == "gaussian" else CategoricalAgent((5,), 3, (16, 16))
    made.initialize(torch.Generator().manual_seed(0))
    torch.nn.init.orthogonal_(made.network[-1].weight, generator=torch.Generator().manual_seed(1))
    return made


def batch(of: GaussianAgent | CategoricalAgent, rows: int = 64, draws: int = 11) -> Batch:
    rng = torch.Generator().manual_seed(2)
    x = torch.randn(rows, 5, generator=rng)
    action = of.act(x, rng).detach()
    old = of.log_prob(x, action).detach() + 0.1 * torch.randn(rows, generator=rng)
    noise = torch.randn(rows, draws, 5, generator=rng)
    raw = torch.randn(rows, generator=rng)
    worst = standardize(torch.randn(rows, generator=rng))
    return Batch(x, action, old, standardize(raw), raw, noise, worst=worst)


def loss(objective, of, data: Batch, **changes: float):
    at = {name: torch.tensor(value) for name, value in (objective.coefficients(0) | changes).items()}
    return objective(of, data, at, CLIP)


@pytest.fixture(params=["gaussian", "categorical"])
def actor(request):
    return agent(request.param)


@pytest.mark.parametrize("name", ["worst-case", "worst-case crown", "worst-case detached"])
def test_at_radius_zero_the_worst_case_is_the_plain_loss(name: str, actor):
    data = batch(actor)
    found, plain = loss(ROBUST[name], actor, data, radius=0.0), loss(Plain(), actor, data)
    torch.testing.assert_close(found.total, plain.total)


def test_at_radius_zero_the_likelihood_has_the_gradient_of_ppo_on_fresh_data(actor):
    data = batch(actor)
    fresh = replace(data, old_log_prob=actor.log_prob(data.x, data.action).detach())
    of_mean = list(actor.network.parameters())
    found = torch.autograd.grad(loss(RadialLikelihood(Constant(0.1)), actor, fresh, radius=0.0).total, of_mean)
    plain = torch.autograd.grad(loss(Plain(), actor, fresh).total, of_mean)
    for one, two in zip(found, plain, strict=True):
        torch.testing.assert_close(one, two, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ["sa convex", "sa mixed", "sa sgld"])
def test_at_radius_zero_the_regulariser_vanishes(name: str, actor):
    data = batch(actor)
    found = loss(ROBUST[name], actor, data, radius=0.0)
    torch.testing.assert_close(found.total, loss(Plain(), actor, data).total)
    assert float(found.parts["robust/divergence"]) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("name", [name for name in ROBUST if name not in SEARCHED and "crown" not in name])
def test_never_smaller_for_a_larger_radius(name: str, actor):
    data = batch(actor)
    totals = [loss(ROBUST[name], actor, data, radius=radius).total.item() for radius in (0.0, 0.02, 0.1, 0.5)]
    assert totals == sorted(totals)


def test_the_worst_case_bounds_what_an_attack_can_do(actor):
    data = batch(actor)
    bound = loss(RadialWorstCase(Constant(0.1), kappa=Constant(0.0)), actor, data).total.item()
    rng = torch.Generator().manual_seed(5)
    for _ in range(50):
        moved = data.x + 0.1 * (2 * torch.rand(data.x.shape, generator=rng) - 1).sign()
        assert loss(Plain(), actor, replace(data, x=moved)).total.item() <= bound + 1e-6


@pytest.mark.parametrize("name", ["sa sgld", "sa pgd"])
def test_a_search_stays_in_the_ball_and_never_beats_the_convex_bound(actor, name):
    data = batch(actor)
    searched = float(loss(ROBUST[name], actor, data).parts["robust/divergence"])
    bounded = float(loss(ROBUST["sa convex"], actor, data).parts["robust/divergence"])
    assert 0 < searched <= bounded + 1e-6
    x = ROBUST[name]._search(actor, data, actor.scores(data.x).detach(), torch.tensor(0.1))
    assert float((x - data.x).abs().max()) <= 0.1 + 1e-6


def test_a_mix_lies_between_its_parts():
    actor = agent("gaussian")
    data = batch(actor)
    parts = [loss(SA(Constant(0.1), 0.1, bound=bound), actor, data).total for bound in ("ibp", "crown-ibp")]
    mixed = loss(SA(Constant(0.1), 0.1, bound=Mix(Linear(1.0, 0, 10))), actor, data, share=0.0).total
    torch.testing.assert_close(mixed, parts[1])
    mixed = loss(SA(Constant(0.1), 0.1, bound=Mix(Linear(1.0, 0, 10))), actor, data, share=1.0).total
    torch.testing.assert_close(mixed, parts[0])


def grad_of_std(objective) -> Tensor:
    actor = agent("gaussian")
    data = batch(actor)
    only_robust = {"kappa": 0.0} if "kappa" in objective.coefficients(0) else {}
    (gradient,) = torch.autograd.grad(
        loss(objective, actor, data, **only_robust).total, actor.log_std, allow_unused=True
    )
    return torch.zeros(3) if gradient is None else gradient


def test_detaching_keeps_the_bounded_term_from_moving_the_standard_deviation():
    assert bool((grad_of_std(RadialWorstCase(Constant(0.1))) != 0).any())
    assert bool((grad_of_std(RadialWorstCase(Constant(0.1), detach_std=True)) == 0).all())
    assert bool((grad_of_std(RadialLikelihood(Constant(0.1), detach_std=True)) == 0).all())


def test_the_paper_form_pays_for_robustness_with_the_standard_deviation():
    """Why the paper's literal form collapses: at a large radius its gradient pushes every σ up."""
    gradient = grad_of_std(RadialWorstCase(Constant(0.5)))
    assert bool((gradient < 0).all())  # descending raises log σ


def test_the_released_form_is_plain_while_the_radius_is_zero():
    objective = RadialReleased(Linear(0.1, 100, 200))
    assert objective.coefficients(50) == {"radius": 0.0, "kappa": 1.0}
    assert objective.coefficients(150)["kappa"] == 0.5


# ----------------------------------------------------------------------------------------------------- softmax policies


class Scales:
    """An agent that can be computed by hand: its two logits are the two numbers it sees."""

    actions = Discrete(2)
    valid_range = None

    def __init__(self) -> None:
        self.network = self.choice = nn.Linear(2, 2, bias=False)
        nn.init.eye_(self.network.weight)

    def scores(self, x: Tensor) -> Tensor:
        return self.network(x)


def two_rows() -> Batch:
    """At logits (ln 3, 0), where π = (¾, ¼): the likely action, which was good, and the other, which was bad."""
    x = torch.tensor([[math.log(3), 0.0]] * 2)
    advantage = torch.tensor([1.0, -1.0])
    return Batch(x, torch.tensor([0, 1]), torch.tensor([0.75, 0.25]).log(), advantage, advantage, torch.empty(0))


def test_both_approaches_by_hand():
    """ε = ½: the logits lie in (ln 3 ± ½, ± ½). κ = 0: the adversarial term alone; plain PPO has ρ = 1 and loses 0."""
    scales, data, at = Scales(), two_rows(), {"radius": 0.5, "kappa": 0.0}
    assert loss(Plain(), scales, data).total.item() == pytest.approx(0.0)
    # Approach 1: the odds 3 : 1 become 3 : e at worst, so ρ = 4/(3 + e) for the good and 4e/(3 + e) for the bad action.
    worst = loss(RadialWorstCase(Constant(0.5)), scales, data, **at).total.item()
    assert worst == pytest.approx((4 * math.e - 4) / (3 + math.e) / 2, rel=1e-5)
    # Approach 2: of the likely action ½·(U(1) − L(0) + ½·ln 3) = ½·(1 − ½·ln 3), of the unlikely one nothing.
    overlap = loss(RadialOverlap(Constant(0.5)), scales, data, **at).total.item()
    assert overlap == pytest.approx((1 - math.log(3) / 2) / 4, rel=1e-5)
    half = loss(RadialOverlap(Constant(0.5)), scales, data, radius=0.5, kappa=0.5).total.item()
    assert half == pytest.approx(overlap / 2, rel=1e-5)


def test_at_radius_zero_the_overlap_is_nothing_and_only_the_plain_loss_has_a_gradient():
    actor = agent("categorical")
    data = batch(actor)
    objective = RadialOverlap(Constant(0.1))
    found, plain = loss(objective, actor, data, radius=0.0), loss(Plain(), actor, data)
    assert found.parts["robust/worst_case_loss"].item() == pytest.approx(0.0, abs=1e-6)
    torch.testing.assert_close(found.total, plain.total / 2)
    one, two = (torch.autograd.grad(each.total, actor.network[0].weight)[0] for each in (found, plain))
    torch.testing.assert_close(one, two / 2)


def test_overlap_grows_with_the_radius_and_asks_nothing_of_the_advantage():
    actor = agent("categorical")
    data = batch(actor)
    objective = RadialOverlap(Constant(0.1), kappa=Constant(0.0))
    totals = [loss(objective, actor, data, radius=radius).total.item() for radius in (0.0, 0.02, 0.1, 0.5)]
    assert totals == sorted(totals)
    other = replace(data, advantage=-3 * data.advantage)
    torch.testing.assert_close(loss(objective, actor, other).total, loss(objective, actor, data).total)


def test_standard_training_before_the_ramp():
    for kind in (RadialWorstCase, RadialOverlap):
        objective = kind(Linear(0.1, 100, 200))
        assert objective.at(50) == Plain()
        assert objective.at(150) == objective
        assert objective.coefficients(50) == {"radius": 0.0, "kappa": 1.0}


def test_of_a_joint_network_the_logits_alone_are_bounded():
    frames = ImpalaAgent(n=4)
    frames.initialize(torch.Generator().manual_seed(0))
    assert frames.choice(torch.zeros(1, 3, 64, 64)).shape == (1, 4)  # without the value
    policy = agent("categorical")
    assert policy.choice is policy.network
    rng = torch.Generator().manual_seed(1)
    x = torch.rand(2, 3, 64, 64, generator=rng)
    action, old = torch.tensor([1, 3]), torch.full((2,), -math.log(4))
    data = Batch(x, action, old, torch.tensor([1.0, -1.0]), torch.tensor([1.0, -1.0]), torch.empty(0))
    for objective in (RadialWorstCase(Constant(1 / 255)), RadialOverlap(Constant(1 / 255))):
        found = loss(objective, frames, data)
        (to_head,) = torch.autograd.grad(found.total, frames.network.head.weight)
        assert bool(found.total.isfinite())
        assert bool((to_head[-1] == 0).all())  # the row of the value
        assert bool((to_head[:-1] != 0).any())


# ------------------------------------------------------------------------------------------- CAR-, BAR- and WocaR-PPO


def test_car_and_bar_by_hand():
    """ε = ½ on two logits: the worst point of the good action has odds 3 : e, that of the bad one as well.

    ρ = 4/(3 + e) for the good and 4e/(3 + e) for the bad action, so ℓ = (−4/(3 + e), 4e/(3 + e)); L is 0. KL(π(s) ‖ π)
    is largest where the likely action has lost most, which is the same point for both rows.
    """
    scales, data = Scales(), two_rows()
    noise = torch.randn(2, 11, 2, generator=torch.Generator().manual_seed(0))
    noise[:, 0] = torch.tensor([-1.0, 1.0])  # the first of eleven steps, in the right direction
    data = replace(data, noise=noise)
    good, bad = -4 / (3 + math.e), 4 * math.e / (3 + math.e)
    share = 1 / (1 + math.exp(bad - good))
    car = loss(CAR(Constant(0.5), weight=2.0, temperature=1.0), scales, data).total.item()
    assert car == pytest.approx(2 * (share * good + (1 - share) * bad), rel=1e-4)
    car = loss(CAR(Constant(0.5), inner="pgd", temperature=1e6), scales, data).total.item()
    assert car == pytest.approx((good + bad) / 2, rel=1e-4)
    bar = loss(BAR(Constant(0.5), weight=3.0), scales, data).total.item()
    assert bar == pytest.approx((good + bad) / 2, rel=1e-4)  # 3·L is 0


@pytest.mark.parametrize("name", ["car", "car pgd", "bar", "bar pgd"])
def test_at_radius_zero_a_found_point_is_the_observation(name: str, actor):
    """CAR: L + Σ p·L, with p ∝ exp(L/λ); BAR: 2·L."""
    data, objective = batch(actor), ROBUST[name]
    plain = -clipped(actor, data)
    found = loss(objective, actor, data, radius=0.0).total
    weights = (plain / objective.temperature).softmax(0) if isinstance(objective, CAR) else torch.full((64,), 1 / 64)
    torch.testing.assert_close(found, plain.mean() + (weights * plain).sum())


def clipped(actor, data: Batch) -> Tensor:
    ratio = (actor.log_prob(data.x, data.action) - data.old_log_prob).exp().detach()
    return torch.minimum(ratio * data.advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * data.advantage)


@pytest.mark.parametrize("name", ["car", "car pgd"])
def test_car_finds_worse_points_than_chance_and_never_beats_the_bound(name: str, actor):
    data = batch(actor)
    found = replace(ROBUST[name], temperature=1e6)(actor, data, {"radius": torch.tensor(0.1)}, CLIP)
    worst = found.parts["robust/worst_case_loss"].item()
    rng = torch.Generator().manual_seed(5)
    moved = replace(data, x=data.x + 0.1 * torch.randn(data.x.shape, generator=rng).sign())
    assert worst > loss(Plain(), actor, moved).total.item()
    assert worst <= loss(RadialWorstCase(Constant(0.1), kappa=Constant(0.0)), actor, data).total.item() + 1e-6


def test_the_worst_rows_weigh_most_and_the_weights_have_no_gradient():
    actor = agent("gaussian")
    data = batch(actor)
    for temperature in (0.01, 1.0, 100.0):
        objective = CAR(Constant(0.1), weight=1.0, temperature=temperature)
        rows = objective.losses(actor, data, data.x, CLIP)
        share = (rows / temperature).softmax(0).detach()
        expected = torch.autograd.grad((share * rows).sum() + rows.mean(), actor.log_std)[0]
        found = torch.autograd.grad(loss(objective, actor, data, radius=0.0).total, actor.log_std)[0]
        torch.testing.assert_close(found, expected)


def test_a_spread_of_its_own_takes_the_place_of_the_policys_in_the_divergence():
    """Σ_d (shift_d/σ)² with σ = 0.2: 25 squared shifts, whatever σ the policy has, and no gradient that widens it."""
    actor = agent("gaussian")
    data = batch(actor)
    bounds = ibp(actor.choice, Ball(data.x, 0.1))
    mean = actor.scores(data.x)
    shift = torch.maximum(bounds.upper - mean, mean - bounds.lower)
    found = loss(SA(Constant(0.1), weight=1.0, spread=0.2), actor, data)
    torch.testing.assert_close(found.parts["robust/divergence"], 25 * shift.square().sum(1).mean())
    plain = loss(Plain(), actor, data).total
    torch.testing.assert_close(*(torch.autograd.grad(each, actor.log_std)[0] for each in (found.total, plain)))


def test_wocar_is_sa_ppo_with_the_worst_case_values_added_to_the_advantages(actor):
    data = batch(actor)
    sa = SA(Constant(0.1), 0.1, "sgld")
    added = replace(data, advantage=data.advantage + 0.8 * data.worst)
    torch.testing.assert_close(loss(WocaR(Constant(0.1)), actor, data).total, loss(sa, actor, added).total)
    alone = loss(WocaR(Constant(0.1), worst=0.0), actor, data)
    torch.testing.assert_close(alone.total, loss(sa, actor, data).total)


def test_wocar_is_plain_only_while_both_of_its_weights_are_zero():
    objective = WocaR(Linear(0.1, 100, 200), worst=Linear(0.8, 50, 150))
    assert objective.at(10) == Plain()
    assert objective.at(60) == objective.at(160) == objective
    assert objective.coefficients(100) == {"radius": 0.0, "worst": 0.4}


def test_every_objective_of_the_table_is_under_test():
    tested = {type(objective) for objective in ROBUST.values()} | {Plain, RadialOverlap}
    assert set(OBJECTIVES.values()) == tested
    assert len({*ROBUST.values()}) == len(ROBUST)  # frozen and hashable


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: CAR(Constant(0.1), temperature=0.0), "temperature"),
        (lambda: CAR(Constant(0.1), inner="convex"), "inner"),
        (lambda: BAR(Constant(0.1), weight=-1.0), "weight"),
        (lambda: WocaR(Constant(0.1), worst="much"), "worst"),
        (lambda: WocaR(Constant(0.1), tau=2.0), "tau"),
        (lambda: SA(Constant(0.1), weight=0.1, inner="fgsm"), "inner"),
        (lambda: SA(Constant(0.1), weight=float("nan")), "weight"),
        (lambda: SA(Constant(0.1), weight=0.1, spread=0.0), "spread"),
        (lambda: RadialWorstCase("wide"), "radius"),
        (lambda: RadialWorstCase(Constant(0.1), bound="magic"), "bound"),
        (lambda: RadialOverlap(Constant(0.1), margin=1.5), "margin"),
    ],
)
def test_bad_settings_are_named(make, field: str):
    with pytest.raises(BadInput, match=field):
        make()


def test_where_noise_drowns_the_gradient_steps_without_it_find_more():
    """A network that hardly feels each of ten thousand features, as a picture's pixels: noise alone cancels out."""
    actor = CategoricalAgent((10_000,), 2, (4,))
    actor.initialize(torch.Generator().manual_seed(0))
    rng = torch.Generator().manual_seed(1)
    x = torch.rand(8, 10_000, generator=rng)
    noise = torch.randn(8, 3, 10_000, generator=rng)
    data = Batch(x, torch.zeros(8, dtype=torch.long), *torch.zeros(3, 8), noise)
    scores, found = actor.scores(x).detach(), {}
    for inner in ("sgld", "pgd"):
        worst = SA(Constant(0.02), 1.0, inner, steps=2)._search(actor, data, scores, torch.tensor(0.02))
        found[inner] = Categorical().divergence(scores, actor.scores(worst)).mean().item()
    assert found["pgd"] > 10 * found["sgld"]


def test_an_anchored_agent_is_taught_what_it_did_at_the_start():
    """By hand: it started at probabilities (¾, ¼) and has (½, ½) everywhere by now, so KL = ¾·log 1.5 + ¼·log ½."""
    actor = CategoricalAgent((2,), 2, (4,))
    for parameter in actor.parameters():
        torch.nn.init.zeros_(parameter)
    x = torch.rand(3, 2)
    data = Batch(x, torch.zeros(3, dtype=torch.long), *torch.zeros(3, 3), torch.randn(3, 1, 2))
    at = {"radius": torch.tensor(0.1)}
    loose = SA(Constant(0.1), 2.0, "pgd", steps=2)
    assert loose(actor, data, at, 0.2).total.item() == 0.0  # no point differs from another
    held = replace(data, anchor=torch.tensor([0.75, 0.25]).log().expand(3, 2))
    by_hand = 2 * (0.75 * math.log(1.5) + 0.25 * math.log(0.5))
    for inner in ("pgd", "convex"):  # all bounds are points here
        loss = replace(loose, inner=inner, anchored=True)(actor, held, at, 0.2).total
        assert loss.item() == pytest.approx(by_hand, abs=1e-6)


def test_two_steps_reach_the_end_of_the_ball_from_the_wrong_half():
    """One logit is the sum of the features: the worst point is a corner, wherever the noise begins."""
    network = torch.nn.Linear(6, 2)
    torch.nn.init.zeros_(network.weight)
    torch.nn.init.zeros_(network.bias)
    network.weight.data[0] = 1.0
    actor = wrap(network, "categorical")
    x = torch.zeros(64, 6)
    data = Batch(x, torch.zeros(64, dtype=torch.long), *torch.zeros(3, 64), torch.randn(64, 1, 6))
    scores = torch.tensor([1.0, 0.0]).log_softmax(0).expand(64, 2)  # it should prefer the first: down is worst
    worst = SA(Constant(0.1), 1.0, "pgd", steps=2)._search(actor, data, scores, torch.tensor(0.1))
    torch.testing.assert_close(worst, torch.full((64, 6), -0.1))
    pixels = wrap(network, "categorical", valid_range=(-0.05, 1.0))
    cut = SA(Constant(0.1), 1.0, "pgd", steps=2)._search(pixels, data, scores, torch.tensor(0.1))
    torch.testing.assert_close(cut, torch.full((64, 6), -0.05))  # nothing is darker than black


def test_a_mix_is_found_where_its_objectives_are() -> None:
    assert rr.ppo.Mix is rr.dqn.Mix is Mix
