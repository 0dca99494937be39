"""Contract over OBJECTIVES: known values at radius 0, monotone in the radius, gradients where they belong."""

import itertools
import math

import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

from radial.agents.networks import MLPDueling, NatureDueling
from radial.bounds.methods import ibp
from radial.bounds.mix import Mix, bounds_of
from radial.core.ball import Ball
from radial.core.data import BadInput
from radial.core.schedules import Constant, Linear
from radial.losses.action_values import SHAPES
from radial.losses.baselines import margin_hinge
from radial.objectives.dueling import bound_advantages
from radial.objectives.q_objectives import (
    CAR,
    OBJECTIVES,
    RS,
    SA,
    TD,
    Batch,
    Distilled,
    Nets,
    Plain,
    QDagger,
    QLoss,
    RadialOverlap,
    RadialWorstCase,
)

RADIUS = Constant(0.1)
ALL = {
    "plain": Plain(),
    "worst-case": RadialWorstCase(RADIUS),
    "worst-case crown-ibp": RadialWorstCase(RADIUS, bound="crown-ibp"),
    "overlap": RadialOverlap(RADIUS),
    "overlap crown-ibp": RadialOverlap(RADIUS, bound="crown-ibp"),
    "overlap mixed": RadialOverlap(RADIUS, bound=Mix(Constant(0.3))),
    "overlap without margin": RadialOverlap(RADIUS, margin=0.0),
    "symmetric": RadialOverlap(RADIUS, symmetric=True),
    "sa": SA(RADIUS, weight=0.1),
    "sa mixed": SA(RADIUS, weight=0.1, bound=Mix(Constant(0.3))),
    "sa released": SA(RADIUS, weight=0.1, margins="released"),
    "worst-case without bias": RadialWorstCase(RADIUS, value_bias=False),
    "sa pgd": SA(RADIUS, weight=0.1, inner="pgd"),
    "distilled": Distilled(),
    "rs": RS(RADIUS),
    "car": CAR(RADIUS),
    "car crown-ibp": CAR(RADIUS, bound="crown-ibp", temperature=0.1),
}
RADIAL = [name for name, objective in ALL.items() if "kappa" in objective.coefficients(0)]
ROWS, FEATURES, ACTIONS = 32, 5, 3


def network(seed: int) -> MLPDueling:
    made = MLPDueling(ACTIONS, FEATURES, (16, 16))
    rng = torch.Generator().manual_seed(seed)
    for layer in made.modules():
        if isinstance(layer, nn.Linear):
            nn.init.orthogonal_(layer.weight, 1.5, generator=rng)
            nn.init.normal_(layer.bias, std=0.1, generator=rng)
    return made


def nets(valid_range: tuple[float, float] | None = None) -> Nets:
    return Nets(network(0), network(1), network(2), valid_range)


def batch(obs: tuple[int, ...] = (FEATURES,), rows: int = ROWS) -> Batch:
    rng = torch.Generator().manual_seed(3)
    return Batch(
        x=torch.rand(rows, *obs, generator=rng),
        action=torch.randint(ACTIONS, (rows,), generator=rng),
        reward=torch.randn(rows, generator=rng),
        next_x=torch.rand(rows, *obs, generator=rng),
        discount=torch.where(torch.rand(rows, generator=rng) < 0.2, 0.0, 0.99),
        weight=0.5 + torch.rand(rows, generator=rng),
        noise=torch.randn(rows, 1, *obs, generator=rng),
    )


def loss(objective, data: Batch | None = None, on: Nets | None = None, td: TD | None = None, **changes: float) -> QLoss:
    at = {name: torch.tensor(value) for name, value in (objective.coefficients(0) | changes).items()}
    return objective(on or nets(), data or batch(), at, td or TD())


def gradients(total: Tensor, *modules: nn.Module) -> list[Tensor]:
    parameters = [each for module in modules for each in module.parameters()]
    found = torch.autograd.grad(total, parameters, allow_unused=True)
    return [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, found, strict=True)]


def moved(total: Tensor, *modules: nn.Module) -> bool:
    return any(bool((gradient != 0).any()) for gradient in gradients(total, *modules))


@pytest.mark.parametrize("name", ALL)
def test_a_loss_is_finite_moves_what_it_trains_and_nothing_else(name: str):
    objective, on = ALL[name], nets()
    found = loss(objective, on=on)
    assert found.total.shape == ()
    assert found.priority.shape == (ROWS,)
    assert not found.priority.requires_grad
    assert all(part.shape == () and bool(part.isfinite()) and not part.requires_grad for part in found.parts.values())
    for gradient in gradients(found.total, on.online, on.student):
        assert bool(gradient.isfinite().all())
    total = loss(objective, on=on).total
    assert moved(total, on.online)
    assert not moved(loss(objective, on=on).total, on.target)
    assert moved(loss(objective, on=on).total, on.student) == objective.student


@pytest.mark.parametrize("name", ALL)
def test_a_step_can_be_recorded_and_the_record_computes_the_same(name: str):
    """What `training/native.py` needs: no number leaves the tensors, the backward pass included."""
    objective, on, data = ALL[name], nets((0.0, 1.0)), batch()
    names = list(objective.coefficients(0))

    def step(*tensors: Tensor) -> tuple[Tensor, ...]:
        at = dict(zip(names, tensors[7:], strict=True))
        with torch.enable_grad():
            found = objective(on, Batch(*tensors[:7]), at, TD())
            return found.total.detach(), found.priority, *gradients(found.total, on.online, on.student)

    arguments = [*data, *(torch.tensor(value) for value in objective.coefficients(0).values())]
    recorded = make_fx(step)(*arguments)
    for one, two in zip(recorded(*arguments), step(*arguments), strict=True):
        torch.testing.assert_close(one, two)
    other = [*batch()[:2], data.reward + 1, *data[3:], *arguments[7:]]
    torch.testing.assert_close(recorded(*other)[0], step(*other)[0])  # it is a record of the function, not of one call


@pytest.mark.parametrize("name", ALL)
def test_rows_are_weighted_and_weights_of_zero_count_for_nothing(name: str):
    data = batch()
    half = Batch(*data[:5], data.weight * (torch.arange(ROWS) < ROWS // 2), data.noise)
    first = Batch(*(column[: ROWS // 2] for column in data))
    torch.testing.assert_close(2 * loss(ALL[name], half).total, loss(ALL[name], first).total)


@pytest.mark.parametrize(
    "td", [TD(double, shape) for double, shape in itertools.product((True, False), SHAPES)], ids=str
)
def test_the_plain_loss_by_hand(td: TD):
    on, data = nets(), batch()
    following = on.target(data.next_x)
    pick = (on.online if td.double else on.target)(data.next_x).argmax(1)
    target = data.reward + data.discount * following[torch.arange(ROWS), pick]
    error = (on.online(data.x)[torch.arange(ROWS), data.action] - target).detach()
    found = loss(Plain(), data, on, td)
    torch.testing.assert_close(found.priority, error.abs())
    torch.testing.assert_close(found.total, (data.weight * SHAPES[td.loss](error)).mean())


def test_no_gradient_flows_through_the_target():
    """Not even where the online network picks the next action."""
    on, data = nets(), batch()
    data.next_x.requires_grad_(True)
    (gradient,) = torch.autograd.grad(loss(Plain(), data, on).total, data.next_x, allow_unused=True)
    assert gradient is None


# --------------------------------------------------------------------------------------------------------- RADIAL


@pytest.mark.parametrize("name", RADIAL)
def test_with_kappa_one_it_is_the_plain_loss(name: str):
    torch.testing.assert_close(loss(ALL[name], kappa=1.0).total, loss(Plain()).total)


@pytest.mark.parametrize("kappa", [0.0, 0.3, 0.8])
@pytest.mark.parametrize("shape", SHAPES)
def test_at_radius_zero_approach_1_is_the_plain_loss_with_its_gradient(shape: str, kappa: float):
    on, td = nets(), TD(loss=shape)
    found, plain = loss(RadialWorstCase(RADIUS), on=on, td=td, radius=0.0, kappa=kappa), loss(Plain(), on=on, td=td)
    torch.testing.assert_close(found.total, plain.total)
    # V is detached in the bounds, so its share of the gradient is scaled by κ; the rest is the same
    for one, two in zip(
        gradients(found.total, on.online.advantage), gradients(plain.total, on.online.advantage), strict=True
    ):
        torch.testing.assert_close(one, two, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", [name for name in RADIAL if "overlap" in name or name == "symmetric"])
def test_at_radius_zero_nothing_overlaps(name: str):
    found = loss(ALL[name], radius=0.0, kappa=0.8)
    assert float(found.parts["robust/adversarial_loss"]) == pytest.approx(0.0, abs=1e-6)
    torch.testing.assert_close(found.total, 0.8 * loss(Plain()).total)


@pytest.mark.parametrize("name", ["worst-case", "overlap", "overlap without margin", "symmetric", "sa", "rs", "car"])
def test_never_smaller_for_a_larger_radius(name: str):
    totals = [loss(ALL[name], radius=radius).total.item() for radius in (0.0, 0.01, 0.05, 0.2, 0.5)]
    assert totals == sorted(totals)
    assert totals[0] < totals[-1]


def test_approach_1_bounds_the_td_loss_of_perturbed_advantages():
    """With V at the true observation, as the docstring says."""
    on, data = nets(), batch()
    bound = loss(RadialWorstCase(RADIUS), data, on, kappa=0.0).total.item()
    value = on.online.value(on.online.features(data.x)).detach()
    rng, target = torch.Generator().manual_seed(5), TD().target(on, data)
    for _ in range(50):
        x = Ball(data.x, 0.1).sample(rng, "corner")
        q = (value + on.online.advantages(x)).gather(1, data.action.unsqueeze(1)).squeeze(1)
        assert float((data.weight * TD().shape(q - target)).mean().detach()) <= bound + 1e-6


@pytest.mark.parametrize("name", ["overlap", "symmetric"])
def test_the_overlap_never_moves_the_value_head(name: str):
    on = nets()
    assert not moved(loss(ALL[name], on=on, kappa=0.0).total, on.online.value)


def test_approach_1_moves_the_value_head_only_through_the_actions_not_taken():
    """Their Q(s, y) keeps its gradient; V in the bounds does not. At radius 0 nothing is left to pull."""
    on = nets()
    assert moved(loss(ALL["worst-case"], on=on, kappa=0.0).total, on.online.value)
    for gradient in gradients(loss(ALL["worst-case"], on=on, kappa=0.0, radius=0.0).total, on.online.value):
        assert float(gradient.abs().max()) <= 1e-5


def test_training_is_standard_before_the_ramp():
    objective = RadialOverlap(Linear(0.1, 100, 200))
    assert objective.coefficients(50) == {"radius": 0.0, "kappa": 1.0}
    assert objective.coefficients(150)["kappa"] == 0.8
    assert objective.at(50) == Plain()
    assert objective.at(150) == objective


# ------------------------------------------------------------------------------------------------------ baselines


def test_sa_by_hand():
    """TD loss + weight·hinge, on margins bounded directly: tighter than the difference of two bounds."""
    on, data = nets(), batch()
    found = loss(SA(RADIUS, weight=0.25, hinge=0.5), data, on, radius=0.0)
    q = on.online(data.x)
    best = q.topk(2).values
    hinge = margin_hinge((best[:, 0] - best[:, 1]).unsqueeze(1), 0.5)
    expected = loss(Plain(), data, on).total + 0.25 * (data.weight * hinge).mean()
    torch.testing.assert_close(found.total, expected)


def test_sa_searches_inside_the_ball_and_never_beats_the_bound():
    on, data = nets((0.0, 1.0)), batch()
    searched, bounded = loss(ALL["sa pgd"], data, on), loss(ALL["sa"], data, on)
    assert float(searched.parts["robust/hinge"]) <= float(bounded.parts["robust/hinge"]) + 1e-6
    clean = loss(ALL["sa pgd"], data, on, radius=0.0)
    assert float(searched.parts["robust/hinge"]) > float(clean.parts["robust/hinge"])
    rows = torch.tensor([[[1.0, -1.0, 0.0], [1.0, 0.0, -1.0]]]).expand(ROWS, -1, -1)
    ball = Ball(data.x, 0.1, low=0.0, high=1.0)
    assert bool(ball.contains(ALL["sa pgd"]._search(on.online.advantages, ball, rows, data)).all())


def test_sa_bounds_only_what_an_observation_can_be():
    free, cut = (loss(ALL["sa"], on=nets(limits), radius=0.5) for limits in (None, (0.0, 1.0)))
    assert float(cut.parts["robust/hinge"]) < float(free.parts["robust/hinge"])


def test_a_mix_ends_as_its_parts():
    mixed = SA(RADIUS, 0.1, bound=Mix(Linear(1.0, 0, 10)))
    for share, name in ((0.0, "crown-ibp"), (1.0, "ibp")):
        torch.testing.assert_close(loss(mixed, share=share).total, loss(SA(RADIUS, 0.1, bound=name)).total)
    assert mixed.at(10) == SA(RADIUS, 0.1, bound="ibp")


def test_sa_is_plain_before_the_ramp():
    objective = SA(Linear(0.1, 100, 200), weight=0.1)
    assert objective.at(50) == Plain()
    torch.testing.assert_close(loss(objective).total, loss(Plain()).total)


def test_rs_trains_the_q_network_as_always_and_the_student_apart():
    on = nets()
    ours, plain = (gradients(loss(objective, on=on).total, on.online) for objective in (ALL["rs"], Plain()))
    for one, two in zip(ours, plain, strict=True):
        torch.testing.assert_close(one, two)
    assert not moved(loss(ALL["rs"], on=on).total, on.student.value)  # a policy has no use for it


def test_rs_by_its_parts():
    found, plain = loss(RS(RADIUS, weight=Constant(0.25))), loss(Plain())
    flat = batch()._replace(weight=torch.ones(ROWS))
    parts = loss(RS(RADIUS, weight=Constant(0.25)), flat).parts
    assert float(parts["robust/worst_imitation"]) > float(parts["robust/imitation"]) > 0
    robust = 0.75 * found.parts["robust/imitation"] + 0.25 * found.parts["robust/worst_imitation"]
    torch.testing.assert_close(found.total.detach(), plain.total.detach() + robust)


def test_rs_without_radius_or_weight_is_distillation():
    for changes in ({"radius": 0.0}, {"weight": 0.0}):
        torch.testing.assert_close(loss(ALL["rs"], **changes).total, loss(Distilled()).total)
    assert RS(Linear(0.1, 100, 200)).at(50) == Distilled()
    assert RS(RADIUS, weight=Constant(0.0)).at(0) == Distilled()


def test_a_student_becomes_a_robust_imitator():
    """A hundred steps of RS on fixed data: the student follows the greedy action, provably for more states."""
    on, data = nets(), batch()
    greedy = on.online(data.x).argmax(1)
    optimizer = torch.optim.Adam(on.student.parameters(), lr=0.01)
    before = loss(ALL["rs"], data, on, radius=0.02).parts
    for _ in range(100):
        optimizer.zero_grad()
        loss(ALL["rs"], data, on, radius=0.02).total.backward()
        optimizer.step()
    after = loss(ALL["rs"], data, on, radius=0.02).parts
    assert float((on.student(data.x).argmax(1) == greedy).float().mean()) > 0.9
    assert float(after["robust/worst_imitation"]) < 0.5 * float(before["robust/worst_imitation"])


# ------------------------------------------------------------------------------------------------------------ CAR


class OneNumber(nn.Module):
    """A dueling network that can be computed by hand: V = s, advantages (s, −s), so Q = (2s, 0)."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Identity())
        self.value, self.advantage = (nn.Sequential(nn.Linear(1, n, bias=False)) for n in (1, 2))
        with torch.no_grad():
            self.features[0].weight.fill_(1.0)
            self.value[0].weight.fill_(1.0)
            self.advantage[0].weight.copy_(torch.tensor([[1.0], [-1.0]]))

    def forward(self, x: Tensor) -> Tensor:
        features = self.features(x)
        return self.value(features) + self.advantage(features)


def test_car_by_hand():
    """ε = ½ around s = 1: Q(0) lies in 2 ± 1, and V and the advantage of action 1, which cancel, in 0 ± 1 by IBP.

    Targets 2.5 (action 0) and 0 (action 1): ℓ = (min(1.5², 1.5), min(1², 1)) = (1.5, 1). Softmax: p₀ = 1/(1 + e^−½).
    """
    on = OneNumber()
    data = Batch(
        torch.ones(2, 1), torch.tensor([0, 1]), torch.tensor([2.5, 0.0]), torch.zeros(2, 1), torch.zeros(2),
        torch.ones(2), torch.empty(0),
    )  # fmt: skip
    p = 1 / (1 + math.exp(-0.5))
    found = loss(CAR(Constant(0.5)), data, Nets(on, on))
    assert found.total.item() == pytest.approx(1.5 * p + 1.0 * (1 - p), rel=1e-5)
    assert found.parts["losses/td_loss"].item() == pytest.approx(0.25 / 2)  # d = −½ and 0
    mixed = loss(CAR(Constant(0.5), kappa=0.5), data, Nets(on, on)).total.item()
    assert mixed == pytest.approx((1.5 * p + 1.0 * (1 - p) + 0.125) / 2, rel=1e-5)
    mean = loss(CAR(Constant(0.5), temperature=1e6), data, Nets(on, on)).total.item()
    assert mean == pytest.approx(1.25, rel=1e-5)


def test_car_bounds_the_td_loss_with_its_value_where_radial_does_not():
    """No perturbed observation has a larger TD loss, V included."""
    on, data = nets(), batch()
    data = data._replace(weight=torch.ones(ROWS))
    bound = loss(CAR(RADIUS, temperature=1e6), data, on).total.item()
    rng = torch.Generator().manual_seed(5)
    worst = torch.zeros(ROWS)
    target = TD().target(on, data)
    for _ in range(200):
        q = on.online(data.x + 0.1 * (2 * torch.rand(data.x.shape, generator=rng) - 1).sign())
        worst = torch.maximum(worst, TD().shape(q.gather(1, data.action[:, None])[:, 0] - target).detach())
    assert worst.mean().item() <= bound


# ------------------------------------------------------------------------------------------------------- settings


def test_frames_too():
    on = Nets(NatureDueling(ACTIONS), NatureDueling(ACTIONS), NatureDueling(ACTIONS), (0.0, 1.0))
    data = batch((1, 84, 84), rows=2)
    for name in ("overlap", "sa mixed", "sa pgd", "rs", "car"):
        assert bool(loss(ALL[name], data, on, radius=1 / 255).total.isfinite())


def test_every_objective_of_the_table_is_under_contract():
    taught = {QDagger}  # needs a teacher and no ball: training/taught_test.py
    assert set(OBJECTIVES.values()) - taught <= {type(objective) for objective in ALL.values()}
    assert len({*ALL.values()}) == len(ALL)  # frozen and hashable: a learner keeps one compiled step for each


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: RadialWorstCase("wide"), "radius"),
        (lambda: RadialWorstCase(RADIUS, p=3.0), "p must"),
        (lambda: CAR(RADIUS, temperature=0.0), "temperature"),
        (lambda: RadialWorstCase(RADIUS, bound="magic"), "bound"),
        (lambda: RadialOverlap(RADIUS, kappa="most"), "kappa"),
        (lambda: RadialOverlap(RADIUS, margin=1.5), "margin"),
        (lambda: SA(RADIUS, weight=0.1, inner="sgld"), "inner"),
        (lambda: SA(RADIUS, weight=float("nan")), "weight"),
        (lambda: SA(RADIUS, weight=0.1, hinge=-1.0), "hinge"),
        (lambda: SA(RADIUS, weight=0.1, steps=0), "steps"),
        (lambda: RS(RADIUS, weight="half"), "weight"),
        (lambda: TD(loss="huber"), "loss"),
        (lambda: loss(ALL["rs"], on=Nets(network(0), network(1))), "student"),
    ],
)
def test_bad_settings_are_named(make, field: str):
    with pytest.raises(BadInput, match=field):
        make()


@pytest.mark.parametrize("make", [lambda: network(0), lambda: NatureDueling(ACTIONS)], ids=["vectors", "frames"])
def test_the_first_layer_is_computed_once_and_nothing_changes(make):
    """IBP through the whole network, and IBP from the first layer's output ± ε·Σ|w|: the same bounds and gradients."""
    net = make()
    x = batch((FEATURES,) if isinstance(net, MLPDueling) else (1, 84, 84), rows=3).x
    at = {"radius": torch.tensor(0.01)}
    whole = bounds_of(net.advantages, Ball.unchecked(x, at["radius"]), "ibp", at)
    ((_, shared),) = bound_advantages(net, Ball(x, at["radius"]), net.features[0](x), "ibp", at)
    torch.testing.assert_close(shared.lower, whole.lower)
    torch.testing.assert_close(shared.upper, whole.upper)
    for one, other in zip(gradients(whole.width.sum(), net), gradients(shared.width.sum(), net), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_a_padded_first_layer_is_not_shared():
    """At the border fewer weights see the ball: one radius per channel would be too wide there."""
    net = NatureDueling(ACTIONS)
    net.features = nn.Sequential(nn.Conv2d(1, 32, 8, stride=4, padding=2), nn.ReLU(), nn.Flatten())
    net.advantage = nn.Sequential(nn.Linear(32 * 21 * 21, ACTIONS))
    x, at = batch((1, 84, 84), rows=2).x, {"radius": torch.tensor(0.01)}
    ((_, bounds),) = bound_advantages(net, Ball(x, at["radius"]), net.features[0](x), "ibp", at)
    torch.testing.assert_close(
        bounds.upper, bounds_of(net.advantages, Ball.unchecked(x, at["radius"]), "ibp", at).upper
    )


def test_approach_1_moves_v_through_the_actions_not_taken_unless_told_not_to():
    """κ 0 leaves the adversarial term alone: the reward then says nothing about V, yet V moves."""
    on = nets()
    biased, free = (RadialWorstCase(RADIUS, kappa=0.0, value_bias=bias) for bias in (True, False))
    torch.testing.assert_close(loss(biased, on=on).total, loss(free, on=on).total)
    assert moved(loss(biased, on=on).total, on.online.value)
    assert not moved(loss(free, on=on).total, on.online.value)
    assert moved(loss(free, on=on).total, on.online.advantage)


def test_released_margins_of_sa_subtract_the_widths_of_v_and_of_the_mean():
    """Q(a*) − Q(y) of each row, from the ends of V, A and mean(A) one by one."""
    on, data = nets(), batch()
    net, ball = on.online, Ball(data.x, 0.1)
    *hidden, head = net.advantage
    a = ibp(torch.nn.Sequential(net.features, *hidden, head.linear), ball)
    v = ibp(torch.nn.Sequential(net.features, net.value), ball)
    lower = v.lower + a.lower - a.upper.mean(1, keepdim=True)
    upper = v.upper + a.upper - a.lower.mean(1, keepdim=True)
    best = net(data.x).argmax(1, keepdim=True)
    others = upper.scatter(1, best, -torch.inf).amax(1)
    smallest = lower.gather(1, best).squeeze(1) - others
    hinge = (data.weight * (-smallest).clamp(min=-1.0)).mean()
    found = loss(SA(Constant(0.1), margins="released"), data, on)
    torch.testing.assert_close(found.parts["robust/hinge"], hinge.detach())
    assert found.parts["robust/hinge"] > loss(SA(Constant(0.1)), data, on).parts["robust/hinge"]
    mix = SA(Constant(0.1), margins="released", bound=Mix(Constant(0.5)))
    assert found.parts["robust/hinge"] > loss(mix, data, on).parts["robust/hinge"]
    with pytest.raises(BadInput, match="margins"):
        SA(RADIUS, margins="loose")
