"""Contract over OBJECTIVES of A3C: values by hand, at radius 0, monotone in the radius, gradients where they belong."""

import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

from radial.agents.actor_critic import ActorCritic
from radial.bounds.mix import Mix
from radial.core.ball import Ball
from radial.core.data import BadInput, Loss
from radial.core.schedules import Constant, Linear
from radial.objectives.policy_gradient import (
    OBJECTIVES,
    Batch,
    Plain,
    RadialOverlap,
    RadialOverlapReleased,
    RadialWorstCase,
)
from radial.runs.config import decode, encode

RADIUS = Constant(0.1)
ALL = {
    "plain": Plain(),
    "worst-case": RadialWorstCase(RADIUS),
    "worst-case crown-ibp": RadialWorstCase(RADIUS, bound="crown-ibp"),
    "overlap": RadialOverlap(RADIUS),
    "overlap mixed": RadialOverlap(RADIUS, bound=Mix(Constant(0.3))),
    "overlap without margin": RadialOverlap(RADIUS, margin=0.0),
    "released": RadialOverlapReleased(RADIUS),
}
RADIAL = [name for name in ALL if name != "plain"]
OVERLAPS = [name for name in RADIAL if "overlap" in name]
ROWS, FEATURES, ACTIONS, ENTROPY = 32, 5, 3, 0.01


def agent(seed: int = 0) -> ActorCritic:
    made = ActorCritic((FEATURES,), ACTIONS, (16, 16))
    rng = torch.Generator().manual_seed(seed)
    for layer in made.modules():
        if isinstance(layer, nn.Linear):
            nn.init.orthogonal_(layer.weight, 1.5, generator=rng)
            nn.init.normal_(layer.bias, std=0.1, generator=rng)
    return made


def batch(obs: tuple[int, ...] = (FEATURES,), rows: int = ROWS) -> Batch:
    rng = torch.Generator().manual_seed(3)
    return Batch(
        x=torch.rand(rows, *obs, generator=rng),
        action=torch.randint(ACTIONS, (rows,), generator=rng),
        advantage=torch.randn(rows, generator=rng),
        target=torch.randn(rows, generator=rng),
        weight=0.5 + torch.rand(rows, generator=rng),
    )


def loss(objective, data: Batch | None = None, on: ActorCritic | None = None, **changes: float) -> Loss:
    at = {name: torch.tensor(value) for name, value in (objective.coefficients(0) | changes).items()}
    return objective(on or agent(), data or batch(), at, ENTROPY)


def gradients(total: Tensor, module: nn.Module) -> list[Tensor]:
    parameters = list(module.parameters())
    found = torch.autograd.grad(total, parameters, allow_unused=True)
    return [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, found, strict=True)]


def to_head(total: Tensor, on: ActorCritic) -> Tensor:
    """The gradient of the last layer, (1 + A, hidden): the row of the value, then those of the logits."""
    return torch.autograd.grad(total, on.network.model[-1].weight)[0]


@pytest.mark.parametrize("name", ALL)
def test_a_loss_is_finite_and_moves_the_network(name: str):
    on = agent()
    found = loss(ALL[name], on=on)
    assert found.total.shape == ()
    assert all(part.shape == () and bool(part.isfinite()) and not part.requires_grad for part in found.parts.values())
    for gradient in gradients(found.total, on):
        assert bool(gradient.isfinite().all())
        assert bool((gradient != 0).any())
    assert ALL[name].draws == 0


@pytest.mark.parametrize("name", ALL)
def test_a_step_can_be_recorded_and_the_record_computes_the_same(name: str):
    """What `training/native.py` needs: no number leaves the tensors, the backward pass included."""
    objective, on = ALL[name], agent()
    names = list(objective.coefficients(0))

    def step(*tensors: Tensor) -> tuple[Tensor, ...]:
        at = dict(zip(names, tensors[5:], strict=True))
        with torch.enable_grad():
            found = objective(on, Batch(*tensors[:5]), at, ENTROPY)
            return found.total.detach(), *gradients(found.total, on), *found.parts.values()

    arguments = [*batch(), *(torch.tensor(value) for value in objective.coefficients(0).values())]
    recorded = make_fx(step)(*arguments)
    for one, two in zip(recorded(*arguments), step(*arguments), strict=True):
        torch.testing.assert_close(one, two)
    other = [*arguments[:2], -arguments[2], *arguments[3:]]
    torch.testing.assert_close(recorded(*other)[0], step(*other)[0])  # it is a record of the function, not of one call


def test_the_plain_loss_by_hand():
    on, data = agent(), batch()
    outputs = on.network(data.x).detach()
    value, log_prob = outputs[:, 0], outputs[:, 1:].log_softmax(1)
    policy = -data.advantage * log_prob[torch.arange(ROWS), data.action]
    entropy = -(log_prob.exp() * log_prob).sum(1)
    error = 0.25 * (data.target - value) ** 2
    found = loss(Plain(), data, on)
    torch.testing.assert_close(found.total, (data.weight * (policy - ENTROPY * entropy + error)).sum())
    means = {"policy_loss": policy, "value_loss": error, "entropy": entropy}
    for name, rows in means.items():
        torch.testing.assert_close(found.parts[f"losses/{name}"], (data.weight * rows).sum() / data.weight.sum())


@pytest.mark.parametrize("name", ALL)
def test_rows_are_summed_under_their_weights(name: str):
    """A sum over a rollout, as the authors have it: twice the rows are twice the loss, and weight 0 is no row."""
    data = batch()
    doubled = Batch(*(torch.cat([column, column]) for column in data))
    torch.testing.assert_close(loss(ALL[name], doubled).total, 2 * loss(ALL[name], data).total)
    half = data._replace(weight=data.weight * (torch.arange(ROWS) < ROWS // 2))
    first = Batch(*(column[: ROWS // 2] for column in data))
    torch.testing.assert_close(loss(ALL[name], half).total, loss(ALL[name], first).total)
    for part, value in loss(ALL[name], half).parts.items():
        torch.testing.assert_close(value, loss(ALL[name], first).parts[part])


def test_no_rows_are_no_loss_and_no_nan():
    found = loss(ALL["overlap"], batch()._replace(weight=torch.zeros(ROWS)))
    assert found.total.item() == 0
    assert all(float(part) == 0 for part in found.parts.values())


# ---------------------------------------------------------------------------------------------------------- RADIAL


@pytest.mark.parametrize("name", RADIAL)
def test_with_kappa_one_it_is_the_plain_loss(name: str):
    torch.testing.assert_close(loss(ALL[name], kappa=1.0).total, loss(Plain()).total)


@pytest.mark.parametrize("name", RADIAL)
def test_kappa_mixes_the_policy_and_leaves_value_and_entropy_alone(name: str):
    data = batch()._replace(weight=torch.ones(ROWS))
    found = loss(ALL[name], data, kappa=0.9)
    part = {key.split("/")[1]: ROWS * value for key, value in found.parts.items()}
    policy = 0.9 * part["policy_loss"] + 0.1 * part["adversarial_loss"]
    torch.testing.assert_close(found.total.detach(), policy - ENTROPY * part["entropy"] + part["value_loss"])


@pytest.mark.parametrize("kappa", [0.0, 0.9])
@pytest.mark.parametrize("name", ["worst-case", "worst-case crown-ibp"])
def test_at_radius_zero_approach_1_is_the_plain_loss_with_its_gradient(name: str, kappa: float):
    on = agent()
    found, plain = loss(ALL[name], on=on, radius=0.0, kappa=kappa), loss(Plain(), on=on)
    torch.testing.assert_close(found.total, plain.total)
    for one, two in zip(gradients(found.total, on), gradients(plain.total, on), strict=True):
        torch.testing.assert_close(one, two, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", OVERLAPS)
def test_at_radius_zero_nothing_overlaps(name: str):
    assert float(loss(ALL[name], radius=0.0).parts["robust/adversarial_loss"]) == pytest.approx(0.0, abs=1e-6)


def test_the_released_form_is_not_nothing_at_radius_zero():
    on = agent()
    with torch.no_grad():
        on.network.model[-1].bias[1:] += 5  # the same policy
    found = loss(ALL["released"], on=on, radius=0.0)
    assert float(found.parts["robust/adversarial_loss"]) > 0.1
    assert float(loss(ALL["overlap"], on=on, radius=0.0).parts["robust/adversarial_loss"]) <= 1e-5


@pytest.mark.parametrize(
    "name", ["worst-case", "worst-case crown-ibp", "overlap", "overlap without margin", "released"]
)
def test_never_smaller_for_a_larger_radius(name: str):
    totals = [loss(ALL[name], radius=radius).total.item() for radius in (0.0, 0.01, 0.05, 0.2, 0.5)]
    assert totals == sorted(totals)
    assert totals[0] < totals[-1]


@pytest.mark.parametrize("name", ["worst-case", "worst-case crown-ibp"])
def test_approach_1_bounds_the_policy_loss_of_perturbed_observations(name: str):
    on, data = agent(), batch()
    bound = float(loss(ALL[name], data, on).parts["robust/adversarial_loss"])
    rng = torch.Generator().manual_seed(5)
    for kind in ("uniform", "corner") * 20:
        seen = data._replace(x=Ball(data.x, 0.1).sample(rng, kind))
        assert float(loss(Plain(), seen, on).parts["losses/policy_loss"]) <= bound + 1e-5


@pytest.mark.parametrize("name", RADIAL)
def test_the_adversarial_term_never_moves_the_value(name: str):
    """Bounds are those of the logits alone: the row of V in the last layer learns from the returns, whatever κ is."""
    on = agent()
    robust, plain = (to_head(loss(each, on=on).total, on) for each in (ALL[name], Plain()))
    torch.testing.assert_close(robust[0], plain[0])
    assert not torch.allclose(robust[1:], plain[1:])


def test_training_is_standard_before_the_ramp():
    objective = RadialOverlap(Linear(0.1, 100, 200))
    assert objective.coefficients(50) == {"radius": 0.0, "kappa": 1.0}
    assert objective.coefficients(150)["kappa"] == 0.9
    assert objective.at(50) == Plain()
    assert objective.at(150) == objective
    torch.testing.assert_close(loss(objective).total, loss(Plain()).total)


def test_a_mix_ends_as_its_parts():
    mixed = RadialWorstCase(RADIUS, bound=Mix(Linear(1.0, 0, 10)))
    for share, name in ((0.0, "crown-ibp"), (1.0, "ibp")):
        alone = loss(RadialWorstCase(RADIUS, bound=name))
        torch.testing.assert_close(loss(mixed, share=share).total, alone.total)
    assert mixed.at(10) == RadialWorstCase(RADIUS, bound="ibp")
    assert mixed.at(5) == mixed


def test_robust_training_narrows_what_an_adversary_can_do():
    """Fifty steps on fixed data: the overlap falls, and the policy stays."""
    on, data = agent(), batch()
    optimizer = torch.optim.Adam(on.parameters(), lr=0.003)
    before = loss(ALL["overlap"], data, on, radius=0.05).parts["robust/adversarial_loss"]
    for _ in range(50):
        optimizer.zero_grad()
        loss(ALL["overlap"], data, on, radius=0.05, kappa=0.5).total.backward()
        optimizer.step()
    after = loss(ALL["overlap"], data, on, radius=0.05).parts["robust/adversarial_loss"]
    assert float(after) < 0.5 * float(before)


# -------------------------------------------------------------------------------------------------------- settings


def test_frames_too():
    on = ActorCritic((1, 80, 80), ACTIONS)
    on.initialize(torch.Generator().manual_seed(0))
    data = batch((1, 80, 80), rows=2)
    for name in ("worst-case", "overlap", "overlap mixed", "released"):
        assert bool(loss(ALL[name], data, on, radius=1 / 255).total.isfinite())


def test_every_objective_of_the_table_is_under_contract():
    assert set(OBJECTIVES.values()) <= {type(objective) for objective in ALL.values()}
    assert len({*ALL.values()}) == len(ALL)  # frozen and hashable: a learner keeps one compiled step for each


@pytest.mark.parametrize("name", ALL)
def test_a_config_can_be_written_and_read(name: str):
    assert decode(type(ALL[name]), encode(ALL[name])) == ALL[name]


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: RadialWorstCase("wide"), "radius"),
        (lambda: RadialWorstCase(RADIUS, bound="magic"), "bound"),
        (lambda: RadialOverlap(RADIUS, kappa="most"), "kappa"),
        (lambda: RadialOverlap(RADIUS, margin=1.5), "margin"),
        (lambda: RadialOverlapReleased(RADIUS, margin=-0.5), "margin"),
    ],
)
def test_bad_settings_are_named(make, field: str):
    with pytest.raises(BadInput, match=field):
        make()
