"""LayerNorm: a value centred over its last axes and divided by its own spread. Loose, but sound.

With c = x − mean(x), an affine map, y = c·q for q = (mean(c²) + eps)^(−1/2). For the interval each yᵢ is written as
cᵢ/√((cᵢ² + R)/n + eps), with R the other squares: it rises with cᵢ, and R only moves it towards 0. For the lines
y − s·c = c·(q − s) is bilinear, so its extremes are at the corners of the intervals of c and q, for any slope s.
"""

import torch
from torch import Tensor

from radial.bounds.affine import Backward
from radial.bounds.interval import Interval


class LayerNorm:
    """LayerNorm over the last `axes` axes. unit is the network's roundoff.

    The forward pass computes the variance v by Welford's updates or in two passes, in any blocks: an error below
    4·γ·(v + √v·A) + 4·γ²·A² with A² = mean(x²) (Chan, Golub and LeVeque 1983, with room to spare). With the largest q
    the product A·q says how many digits of v cancel; if all may, γ·A·q > 1/10, the layer's error is infinite.
    """

    affine = False
    separable = False
    partial = 1.0

    _gain: Tensor | None = None  # the largest q on the interval, (B, *outer, 1): how much rounding errors grow
    _lines: tuple[Tensor, Tensor, Tensor] | None = None

    def __init__(
        self, shape: tuple[int, ...], weight: Tensor | None, bias: Tensor | None, eps: float, dtype: torch.dtype
    ) -> None:
        self.axes, self.count = tuple(range(-len(shape), 0)), torch.Size(shape).numel()
        self.weight, self.bias, self.eps, self.dtype = weight, bias, eps, dtype
        self.terms = self.count + 32
        self.spread = self.count

    def _mean(self, x: Tensor) -> Tensor:
        return x.mean(self.axes, keepdim=True)

    def _centered(self, x: Interval) -> tuple[Tensor, Tensor]:
        """Both ends of c: its radius is (1 − 1/n)·r of its own element plus r/n of each other one."""
        center = x.center - self._mean(x.center)
        radius = x.radius * (1 - 2 / self.count) + self._mean(x.radius)
        return center - radius, center + radius

    @staticmethod
    def _squares(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        """Both ends of c²."""
        a, b = lower.square(), upper.square()
        return torch.where((lower < 0) & (upper > 0), 0.0, torch.minimum(a, b)), torch.maximum(a, b)

    def interval(self, *x: Interval) -> Interval:  # noqa: D102
        lower, upper = self._centered(x[0])
        small, large = self._squares(lower, upper)
        self._gain = (self._mean(small) + self.eps).rsqrt().detach()
        y = Interval.between(*self._image(lower, upper, small, large))
        center = y.center if self.weight is None else y.center * self.weight
        radius = y.radius if self.weight is None else y.radius * self.weight.abs()
        return Interval(center if self.bias is None else center + self.bias, radius)

    def _image(self, lower: Tensor, upper: Tensor, small: Tensor, large: Tensor) -> tuple[Tensor, Tensor]:
        """Both ends of c·q, each element by its own end and the least or most that the others can be."""
        least = (self._mean(small) - small / self.count).clamp(min=0)
        most = (self._mean(large) - large / self.count).clamp(min=0)

        def normalized(c: Tensor, others: Tensor) -> Tensor:
            return c * (c.square() / self.count + others + self.eps).rsqrt()

        low = torch.where(lower > 0, normalized(lower, most), normalized(lower, least))
        high = torch.where(upper > 0, normalized(upper, least), normalized(upper, most))
        return low, high

    def lines(self, x: Interval) -> tuple[Tensor, Tensor, Tensor]:
        """The slope s of both lines around c·q, and their intercepts; (B, *shape) each."""
        lower, upper = self._centered(x)
        small, large = self._squares(lower, upper)
        low, high = self._image(lower, upper, small, large)
        least, most = (self._mean(large) + self.eps).rsqrt(), (self._mean(small) + self.eps).rsqrt()
        slope = ((least + most) / 2).expand_as(lower)
        corners = torch.stack([c * (q - slope) for c in (lower, upper) for q in (least, most)])
        below, above = corners.amin(0), corners.amax(0)
        flat = high - low < above - below  # then the interval, a line of slope 0, is the tighter enclosure
        return torch.where(flat, 0.0, slope), torch.where(flat, low, below), torch.where(flat, high, above)

    def backward(self, rows: Tensor, *x: Interval) -> Backward:  # noqa: D102
        if self._lines is None:
            slope, below, above = self.lines(x[0])
            self._lines = slope.unsqueeze(1), below.unsqueeze(1), above.unsqueeze(1)
        slope, below, above = self._lines
        scaled = rows if self.weight is None else rows * self.weight
        constant = (scaled.clamp(min=0) * below + scaled.clamp(max=0) * above).flatten(2).sum(2)
        if self.bias is not None:
            constant = constant + (rows * self.bias).flatten(2).sum(2)
        form = scaled * slope
        return [form - self._mean(form)], constant

    def magnitude(self, *x: Tensor) -> Tensor:  # noqa: D102
        assert self._gain is not None
        size = (x[0] + self._mean(x[0])) * self._gain * (8 + 5 * self._cancelled(x[0]))
        size = size if self.weight is None else size * self.weight.abs()
        return size if self.bias is None else size + self.bias.abs()

    def _cancelled(self, x: Tensor) -> Tensor:
        """A·q, (B, *outer, 1)."""
        assert self._gain is not None
        return self._mean(x.square()).sqrt() * self._gain

    def inference(self, *x: Tensor) -> Tensor:  # noqa: D102
        info = torch.finfo(self.dtype)
        error = 2 * self.terms * (info.eps / 2)  # above γ
        overflow = self._mean(x[0].square()) * self.count > info.max / 16
        lost = overflow | (error * self._cancelled(x[0]) > 0.1) | (error > 0.01)
        return torch.where(lost, torch.inf, self.magnitude(*x))
