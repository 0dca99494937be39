"""The set of observations an adversary may show: an ℓp ball around each observation, clipped to the valid range.

All of its geometry is here, once: projection, sampling, the enclosing box, and the exact minimum of a linear form, by
the dual norm. No network and no unit other than the network's own.
"""

import math
from dataclasses import dataclass
from numbers import Real
from typing import TypeGuard

import torch
from torch import Tensor

from radial.core.data import DTYPES, BadInput, Bounds

NORMS = (1.0, 2.0, math.inf)
SAMPLE_KINDS = ("uniform", "corner", "sparse")


@dataclass(frozen=True, eq=False)
class Ball:
    """All x with ‖(x − center)/radius‖p ≤ 1 and low ≤ x ≤ high, one ball per row of the batch.

    center     (B, *obs)  float32 or float64, finite, inside the valid range
    radius     float, or a tensor broadcastable to one observation: a budget per feature (0 freezes a feature)
    p          1, 2 or inf
    low, high  None, float, or a tensor broadcastable to one observation: the values an observation can take at all
    """

    center: Tensor
    radius: float | Tensor
    p: float = math.inf
    low: float | Tensor | None = None
    high: float | Tensor | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.center, Tensor) or self.center.dtype not in DTYPES:
            kind = self.center.dtype if isinstance(self.center, Tensor) else type(self.center).__name__
            raise BadInput(f"center must be a tensor of dtype float32 or float64, got {kind}")
        if self.center.layout != torch.strided or self.center.is_meta:
            raise BadInput("center must be an ordinary tensor, got a sparse or meta tensor")
        if self.center.ndim < 2:
            raise BadInput(f"center must have shape (B, *obs), got {tuple(self.center.shape)}; add a batch axis")
        if not _is_number(self.p) or self.p not in NORMS:
            raise BadInput(f"p must be 1, 2 or inf, got {self.p!r}")
        self._check_radius()
        self._check_range()

    @classmethod
    def unchecked(
        cls,
        center: Tensor,
        radius: float | Tensor,
        p: float = math.inf,
        low: float | Tensor | None = None,
        high: float | Tensor | None = None,
    ) -> "Ball":
        """A ball built without checks: for compiled training steps, whose inputs were checked on entry."""
        ball = object.__new__(cls)
        for name, value in (("center", center), ("radius", radius), ("p", p), ("low", low), ("high", high)):
            object.__setattr__(ball, name, value)
        return ball

    def _check_radius(self) -> None:
        if _is_number(self.radius):
            worst = _float(self.radius)
        else:
            radius = self._per_feature("radius", self.radius).detach()
            bad = radius[~torch.isfinite(radius) | (radius < 0)]
            worst = bad[0].item() if bad.numel() else 0.0
        if not 0 <= worst < math.inf:
            raise BadInput(f"radius must be finite and ≥ 0, got {worst:g}")
        if worst > torch.finfo(self.center.dtype).max:
            raise BadInput(f"radius must be finite as {self.center.dtype}, got {worst:g}")

    def _check_range(self) -> None:
        low, high = self.range()
        for name, limit in (("low", low), ("high", high)):
            if limit is not None and bool(limit.isnan().any()):
                raise BadInput(f"{name} must be a number or None, got nan")
        if low is not None and high is not None and bool((low > high).any()):
            raise BadInput("low must be ≤ high in every feature")
        if self.center.numel() == 0:
            return
        smallest, largest = self.center.detach().aminmax()
        if not (math.isfinite(smallest) and math.isfinite(largest)):
            raise BadInput("center must be finite, got NaN or inf")
        if low is not None and bool((self.center < low).any()):
            raise BadInput(f"center must be ≥ low: its smallest value is {smallest:g}, low is {_show(self.low)}")
        if high is not None and bool((self.center > high).any()):
            raise BadInput(f"center must be ≤ high: its largest value is {largest:g}, high is {_show(self.high)}")

    def _check_like_center(self, x: Tensor) -> None:
        if not isinstance(x, Tensor) or x.shape != self.center.shape:
            got = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
            raise BadInput(f"x must be a tensor of the shape of center {tuple(self.center.shape)}, got {got}")

    def _per_feature(self, name: str, value: float | Tensor) -> Tensor:
        """A float or tensor as (1, *obs), in the dtype and on the device of the centre."""
        obs = self.center.shape[1:]
        if isinstance(value, Tensor):
            if value.dtype not in (*DTYPES, torch.float16, torch.bfloat16):
                raise BadInput(f"{name} must be a float or a floating tensor, got dtype {value.dtype}")
            tensor = value.to(self.center)
        elif _is_number(value):
            limit = torch.finfo(self.center.dtype).max
            number = _float(value)
            tensor = self.center.new_tensor(math.copysign(math.inf, number) if abs(number) > limit else number)
        else:
            raise BadInput(f"{name} must be a float or a tensor, got {type(value).__name__}")
        try:
            return tensor.broadcast_to(obs).unsqueeze(0)
        except RuntimeError:
            raise BadInput(
                f"{name} must broadcast to one observation {tuple(obs)}, got shape {tuple(tensor.shape)}"
            ) from None

    def budget(self) -> Tensor:
        """The radius of each feature, (1, *obs)."""
        if isinstance(self.radius, Tensor):
            return self._per_feature("radius", self.radius)
        return self.center.new_full((1, *self.center.shape[1:]), float(self.radius))

    def range(self) -> tuple[Tensor | None, Tensor | None]:
        """The valid range as two (1, *obs) tensors, None where it is open."""
        low = None if self.low is None else self._per_feature("low", self.low)
        high = None if self.high is None else self._per_feature("high", self.high)
        return low, high

    @property
    def clipped(self) -> bool:
        """Whether a valid range clips the ball."""
        return self.low is not None or self.high is not None

    def box(self) -> Bounds:
        """The smallest box around the ball, (B, *obs). For p = ∞ it is the ball itself."""
        radius = self.budget()
        low, high = self.range()
        lower, upper = self.center - radius, self.center + radius
        return Bounds(
            lower if low is None else torch.maximum(lower, low),
            upper if high is None else torch.minimum(upper, high),
        )

    def project(self, x: Tensor) -> Tensor:
        """The nearest point, distances measured in budgets, then clipped to the range; (B, *obs) → (B, *obs)."""
        self._check_like_center(x)
        box = self.box()
        if self.p != math.inf:
            # In float64, so that the only rounding left is the final cast to the dtype of x.
            shift = self._in_budgets(x.double() - self.center.double())
            shift = _onto_l2(shift) if self.p == 2 else _onto_l1(shift)
            x = (self.center.double() + (shift * self.budget().double().flatten(1)).view_as(x)).to(x.dtype)
        # The centre is valid, so clipping to the range only ever moves a point closer to it.
        return torch.minimum(torch.maximum(x, box.lower), box.upper)

    def contains(self, x: Tensor) -> Tensor:
        """Which rows of x lie in the ball, (B,) bool, tolerating the rounding of x itself and nothing more."""
        self._check_like_center(x)
        unit = torch.finfo(self.center.dtype).eps
        center, budget = self.center.double(), self.budget().double()
        shift = ((x.double() - center).abs() - 4 * unit * (center.abs() + budget)).clamp(min=0)
        frozen = ((budget == 0) & (shift > 0)).flatten(1).any(1)
        inside = torch.linalg.vector_norm(self._in_budgets(shift), self.p, dim=1) <= 1 + 1e-9
        low, high = self.range()
        for limit, sign in ((low, 1), (high, -1)):
            if limit is not None:
                inside &= (sign * (x - limit) >= 0).flatten(1).all(1)
        return inside & ~frozen & ~x.isnan().flatten(1).any(1)

    def sample(self, rng: torch.Generator, kind: str = "uniform") -> Tensor:
        """One random point per row, (B, *obs).

        kind  "uniform": anywhere in the ball (before it is clipped to the range, for p = 1 and 2);
              "corner": an extreme point, where a linear function attains its worst value;
              "sparse": an extreme point in about a tenth of the features, the centre elsewhere (p = ∞).
        """
        if not isinstance(rng, torch.Generator):
            raise BadInput(f"rng must be a torch.Generator, got {type(rng).__name__}")
        if kind not in SAMPLE_KINDS:
            raise BadInput(f"kind must be one of {', '.join(SAMPLE_KINDS)}, got {kind!r}")
        if self.p == math.inf:
            box = self.box()
            noise = torch.rand(self.center.shape, generator=rng, dtype=self.center.dtype, device=self.center.device)
            if kind == "uniform":
                return torch.minimum(box.lower + noise * (box.upper - box.lower), box.upper)
            corner = torch.where(noise < 0.5, box.lower, box.upper)
            if kind == "corner":
                return corner
            moved = torch.rand(self.center.shape, generator=rng, dtype=self.center.dtype, device=self.center.device)
            return torch.where(moved < 0.1, corner, self.center)
        shift = (self._sample_l2 if self.p == 2 else self._sample_l1)(rng, kind) * self.budget().double().flatten(1)
        return self.project((self.center.double() + shift.view(self.center.shape)).to(self.center.dtype))

    def _sample_l2(self, rng: torch.Generator, kind: str) -> Tensor:
        size = self.center.flatten(1).shape
        normal = torch.randn(size, generator=rng, dtype=torch.float64, device=self.center.device)
        direction = normal / torch.linalg.vector_norm(normal, dim=1, keepdim=True)
        if kind != "uniform":
            return direction
        length = torch.rand((size[0], 1), generator=rng, dtype=torch.float64, device=self.center.device)
        return direction * length ** (1 / size[1])

    def _sample_l1(self, rng: torch.Generator, kind: str) -> Tensor:
        rows, features = self.center.flatten(1).shape
        device = self.center.device

        def uniform(columns: int) -> Tensor:
            return torch.rand((rows, columns), generator=rng, dtype=torch.float64, device=device)

        sign = uniform(features).lt(0.5).double() * 2 - 1
        if kind != "uniform":
            at = uniform(features).argmax(1, keepdim=True)
            return torch.zeros_like(sign).scatter(1, at, sign.gather(1, at))
        # The first n of n + 1 exponentials, divided by their sum, are uniform on the solid simplex.
        share = -uniform(features + 1).clamp(min=1e-300).log()
        return sign * share[:, :-1] / share.sum(1, keepdim=True)

    def _in_budgets(self, shift: Tensor) -> Tensor:
        """A shift (B, *obs) in units of the budget, flat (B, n); frozen features become 0."""
        budget = self.budget().to(shift.dtype)
        return torch.where(budget > 0, shift / budget, 0).flatten(1)

    def minimum(self, rows: Tensor, constant: Tensor | float = 0.0) -> Tensor:
        """The exact minimum over the ball of each linear form rows·x + constant.

        rows  (B, K, *obs), or (1, K, *obs) when the forms are the same for every centre; (B, *obs): one form each
        constant  broadcastable to the result             returns  (B, K); (B,) for one form each

        Without a range: rows·center − ‖rows ∘ radius‖q with 1/p + 1/q = 1. With one, the box itself for p = ∞ and
        the dual problem of `_reach` for p = 1 and 2.
        """
        if not isinstance(rows, Tensor) or rows.dtype != self.center.dtype:
            raise BadInput(f"rows must be a tensor of the dtype of center, {self.center.dtype}")
        if rows.shape == self.center.shape:
            return self.minimum(rows.unsqueeze(1)).squeeze(1) + constant
        if rows.ndim != self.center.ndim + 1 or rows.shape[2:] != self.center.shape[1:]:
            raise BadInput(f"rows must have shape (B, K, {_dims(self.center)}), got {tuple(rows.shape)}")
        if rows.shape[0] not in (1, self.center.shape[0]):
            raise BadInput(f"rows must have batch size {self.center.shape[0]} or 1, got {rows.shape[0]}")
        flat = rows.flatten(2)
        if self.p == math.inf and self.clipped:
            box = self.box()
            middle, half = (box.lower + box.upper) / 2, (box.upper - box.lower) / 2
            return _apply(flat, middle) - _apply(flat.abs(), half) + constant
        return _apply(flat, self.center) - self._reach(flat) + constant

    def _reach(self, flat: Tensor) -> Tensor:
        """How far each form can fall below its value at the centre, (B, K)."""
        budget = self.budget().flatten(1).unsqueeze(1)
        if self.p == math.inf:
            return _apply(flat.abs(), self.budget())
        weight = flat.abs() * budget
        if not self.clipped:
            return _length(weight).squeeze(-1) if self.p == 2 else torch.linalg.vector_norm(weight, math.inf, dim=-1)
        box = self.box()
        room = torch.where(flat > 0, _rows(self.center - box.lower), _rows(box.upper - self.center))
        cap = torch.where(budget > 0, room / budget, 0).clamp(max=1)
        return _reach_l2(weight, cap) if self.p == 2 else _reach_l1(weight.expand_as(cap), cap)


def _reach_l1(weight: Tensor, cap: Tensor) -> Tensor:
    """Max w·t subject to Σt ≤ 1, 0 ≤ t ≤ cap, by its dual μ + Σ cap·(w − μ)+.

    Any μ ≥ 0 gives an upper bound, so an error in μ can cost tightness but never soundness.
    """
    last = weight.shape[-1] - 1
    with torch.no_grad():
        order = weight.argsort(dim=-1, descending=True)
        at = (cap.gather(-1, order).cumsum(-1) < 1).sum(-1, keepdim=True)  # the first place where the budget is used up
        place = order.gather(-1, at.clamp(max=last))
    multiplier = torch.where(at <= last, weight.gather(-1, place), 0)
    return multiplier.squeeze(-1) + (cap * (weight - multiplier).clamp(min=0)).sum(-1)


def _reach_l2(weight: Tensor, cap: Tensor) -> Tensor:
    """Max w·t subject to Σt² ≤ 1, 0 ≤ t ≤ cap, by its dual λ/2 + Σ (w·t − λ·t²/2) at t = min(cap, w/λ).

    λ by bisection; as for ℓ1, any λ ≥ 0 gives an upper bound.
    """
    with torch.no_grad():
        smallest = torch.finfo(weight.dtype).tiny
        below = torch.zeros_like(cap[..., :1])
        above = _length(weight).expand_as(below)
        for _ in range(60):
            middle = (below + above) / 2
            too_long = torch.minimum(cap, weight / middle.clamp(min=smallest)).square().sum(-1, keepdim=True) > 1
            below, above = torch.where(too_long, middle, below), torch.where(too_long, above, middle)
        multiplier = above.clamp(min=smallest)
    t = torch.minimum(cap, weight / multiplier)
    return (multiplier / 2).squeeze(-1) + (weight * t - multiplier * t.square() / 2).sum(-1)


def _onto_l2(shift: Tensor) -> Tensor:
    return shift / _length(shift).clamp(min=1)


def _length(x: Tensor) -> Tensor:
    """Euclidean length over the last axis, kept; scaled first, because squares under- and overflow."""
    largest = x.detach().abs().amax(-1, keepdim=True)
    scale = torch.where(largest > 0, largest, 1)
    return scale * torch.linalg.vector_norm(x / scale, dim=-1, keepdim=True)


def _onto_l1(shift: Tensor) -> Tensor:
    """Euclidean projection onto the unit ℓ1 ball: subtract one threshold from every size (Duchi et al. 2008)."""
    size = shift.abs()
    ordered = size.sort(dim=1, descending=True).values
    count = torch.arange(1, size.shape[1] + 1, device=size.device, dtype=size.dtype)
    thresholds = (ordered.cumsum(1) - 1) / count
    kept = (ordered > thresholds).sum(1, keepdim=True).clamp(min=1)
    threshold = thresholds.gather(1, kept - 1).clamp(min=0)
    outside = size.sum(1, keepdim=True) > 1
    return torch.where(outside, shift.sign() * (size - threshold).clamp(min=0), shift)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, Real) and not isinstance(value, bool)


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _apply(rows: Tensor, x: Tensor) -> Tensor:
    """Each row's form at each x: (B|1, K, n) and (B|1, *obs) → (B, K)."""
    columns = x.flatten(1)
    if rows.shape[0] == 1:
        return columns @ rows[0].T
    return (rows @ columns.unsqueeze(-1)).squeeze(-1)


def _rows(x: Tensor) -> Tensor:
    return x.flatten(1).unsqueeze(1)


def _dims(center: Tensor) -> str:
    return ", ".join(str(size) for size in center.shape[1:])


def _show(value: float | Tensor | None) -> str:
    return "per feature" if isinstance(value, Tensor) else str(value)
