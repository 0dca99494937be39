"""The base of every objective: its schedules, the phases they pass through, and the bound it trains on.

The three families beside it (`q_learning`, `surrogate`, `policy_gradient`) define the clean and adversarial terms.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, Self

from torch import Tensor

from radial.bounds.methods import rectifier_inputs
from radial.bounds.mix import AnyBound, Mix, check_bound, settled
from radial.core import checks
from radial.core.ball import NORMS, Ball
from radial.core.data import LATER, BadInput, Bounds, Loss
from radial.core.schedules import Constant, Schedule, settle
from radial.losses.regularizers import relu_balance, tightness

ATARI: Schedule = Constant(1 / 255)  # one grey level: the ε of the papers on Atari

Coefficients = Mapping[str, Tensor]  # schedules at a step, as tensors ()


class Objective(Protocol):
    """A loss to minimise: any hashable object with these members. Each family defines the arguments of the call.

    A call has no control flow that depends on a value, so that an update compiles whole.
    """

    @property
    def draws(self) -> int:
        """Number of standard normal noise arrays needed per observation."""

    def coefficients(self, step: int) -> dict[str, float]:
        """The schedules' values at an env step."""

    def at(self, step: int) -> Any:
        """The cheapest objective with the same loss at this step: without the terms whose weight is 0 there.

        Called again whenever a coefficient reaches or leaves 0 or 1.
        """

    def __call__(self, *arguments: Any) -> Loss:
        """The loss of a batch, with the coefficients as tensors ()."""


class Unscheduled:
    """An objective without schedules: one phase, and no noise."""

    @property
    def draws(self) -> int:
        """No noise."""
        return 0

    def coefficients(self, step: int) -> dict[str, float]:
        """No coefficients."""
        return {}

    def at(self, step: int) -> Self:
        """The objective itself, at every step."""
        return self


@dataclass(frozen=True)
class Scheduled(Unscheduled, ABC):
    """An objective whose ε follows a schedule and whose ball is bounded by one method or a mix of two, or searched.

    p           the norm of the ball: 1, 2 or inf
    regularize  λ of tightness and ReLU balance (Shi et al. 2021), added with λ·(1 − ε/ε_max) while ε grows

    While ε is 0 it is `clean`, the objective without the adversarial term. At radius 0 the bounds collapse onto the
    network's outputs, so no bounds are computed before the ramp.
    """

    radius: Schedule
    p: float = field(default=math.inf, kw_only=True, metadata=LATER)
    regularize: float = field(default=0.0, kw_only=True, metadata=LATER)
    clean: ClassVar[type[Unscheduled]]

    def __post_init__(self) -> None:
        settle(self, "radius")
        checks.not_negative(self, "regularize")
        if isinstance(self.p, bool) or self.p not in NORMS:
            raise BadInput(f"p must be 1, 2 or inf, got {self.p!r}")
        if self.bounding is not None:
            check_bound(self.bounding)

    @property
    @abstractmethod
    def bounding(self) -> AnyBound | None:
        """The bound in effect: the field `bound`; None where the ball is searched."""

    def ball(self, x: Tensor, at: Coefficients, valid_range: tuple[float, float] | None = None) -> Ball:
        """The ball of the current radius around x (B, *obs); without a range it is not clipped."""
        return Ball.unchecked(x, at["radius"], self.p, *(valid_range or (None, None)))

    def coefficients(self, step: int) -> dict[str, float]:
        """ε, the share of a mix, and 1 − ε/ε_max where there is a regulariser."""
        at, bound = {"radius": self.radius(step)}, self.bounding
        if isinstance(bound, Mix):
            at["share"] = bound.share(step)
        if self.regularize:
            most = self.radius(math.inf)
            at["regularizer"] = max(0.0, 1 - at["radius"] / most) if most > 0 else 0.0
        return at

    def regular(self, network: Any, x: Tensor, at: Coefficients) -> Tensor:
        """λ·(1 − ε/ε_max)·(tightness + ReLU balance) of the network over the balls at x, (); 0 without λ."""
        if not self.regularize:
            return x.new_zeros(())
        ball = self.ball(x, at)
        inputs = [Bounds(each.lower, each.upper) for each in rectifier_inputs(network, ball)]
        terms = tightness(inputs, ball.budget().mean()) + relu_balance(inputs)
        return self.regularize * at["regularizer"] * terms

    def at(self, step: int) -> Any:
        """The clean objective while ε is 0; a single bound method where the share of a mix is 0 or 1."""
        if self.radius(step) <= 0:
            return self.clean()
        if self.bounding is None:
            return self
        return replace(self, bound=settled(self.bounding, step))  # type: ignore[call-arg]


@dataclass(frozen=True)
class Radial(Scheduled):
    """κ·L_clean + (1 − κ)·L_adversarial, RADIAL's form. κ is 1 while ε is 0: training is standard before the ramp."""

    kappa: Schedule = Constant(0.5)
    bound: AnyBound = "ibp"

    def __post_init__(self) -> None:
        super().__post_init__()
        settle(self, "kappa")

    @property
    def bounding(self) -> AnyBound:
        """The field `bound`."""
        return self.bound

    def coefficients(self, step: int) -> dict[str, float]:
        """ε, the share of a mix, and κ."""
        at = super().coefficients(step)
        return at | {"kappa": self.kappa(step) if at["radius"] > 0 else 1.0}
