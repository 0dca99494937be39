"""Networks that do something unusual in their forward: each must be refused, or bounded as it runs.

All take (B, 4) and return (B, 3). `ODD` names them; `REFUSED` are those that no sound bound may accept.
"""

import itertools
import random
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

Forward = Callable[["Base", Tensor], Tensor]
ODD: dict[str, Callable[[], nn.Module]] = {}
REFUSED: set[str] = set()
CALLS = {"count": 0}
SCRATCH = torch.zeros(5, 8)


class Base(nn.Module):
    """Two layers into a hidden value, one out of it, and things to abuse."""

    def __init__(self) -> None:
        super().__init__()
        self.inp, self.mid, self.head = nn.Linear(4, 8), nn.Linear(4, 8), nn.Linear(8, 3)
        self.back = nn.Linear(8, 8)
        self.overwrite, self.identity, self.drop = nn.ReLU(inplace=True), nn.Identity(), nn.Dropout()
        self.register_buffer("shift", torch.linspace(-1, 1, 8))
        self.register_buffer("steps", torch.zeros(()))
        self.free = torch.ones(8)  # a tensor that is neither parameter nor buffer
        self.listed, self.options = [torch.ones(8)], {"scale": 1.0}
        self.calls, self.clock = 0, itertools.count()
        self.noise, self.dice = torch.Generator().manual_seed(0), random.Random(0)
        self.draws = np.random.default_rng(0)


def odd(refused: bool) -> Callable[[Forward], Forward]:
    """Register a forward."""

    def add(forward: Forward) -> Forward:
        name = forward.__name__
        assert name not in ODD
        ODD[name] = type(name.title().replace("_", ""), (Base,), {"forward": forward, "__module__": __name__})
        if refused:
            REFUSED.add(name)
        return forward

    return add


def odd_module(refused: bool) -> Callable[[Callable[[], nn.Module]], Callable[[], nn.Module]]:
    """Register a function that builds a network."""

    def add(build: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
        ODD[build.__name__] = build
        if refused:
            REFUSED.add(build.__name__)
        return build

    return add


# ------------------------------------------------------------------------------------------- written over, second names


@odd(refused=True)
def add_through_an_alias(self: Any, x: Tensor) -> Tensor:
    h = self.inp(x)
    skip = h
    h += F.relu(self.mid(x))
    return self.head(skip)


@odd(refused=True)
def subtract_through_an_alias(self: Any, x: Tensor) -> Tensor:
    h = skip = self.inp(x)
    h -= F.relu(self.mid(x))
    return self.head(skip)


@odd(refused=True)
def multiply_through_an_alias(self: Any, x: Tensor) -> Tensor:
    h = skip = self.inp(x)
    h *= 3
    return self.head(skip + self.mid(x))


@odd(refused=True)
def divide_through_an_alias(self: Any, x: Tensor) -> Tensor:
    h = skip = self.inp(x)
    h /= 5
    return self.head(skip + self.mid(x))


@odd(refused=False)
def every_assignment_without_an_alias(self: Any, x: Tensor) -> Tensor:
    h = self.inp(x)
    h += F.relu(self.mid(x))
    h -= 0.5
    h *= self.shift
    h /= 2
    return self.head(h)


@odd(refused=True)
def power_in_place(self: Any, x: Tensor) -> Tensor:
    h = self.inp(x)
    h **= 2
    return self.head(h)


@odd(refused=True)
def add_to_a_view(self: Any, x: Tensor) -> Tensor:
    h = self.inp(x)
    part = h.view(-1, 2, 4)
    part += 1
    return self.head(h)


@odd(refused=True)
def add_to_a_slice(self: Any, x: Tensor) -> Tensor:
    h = self.inp(x)
    h[:, :4] += 2
    return self.head(h)


@odd(refused=True)
def a_slice_that_is_kept(self: Any, x: Tensor) -> Tensor:
    h = self.inp(x)
    part = h[:, :4]
    part *= -3
    return self.head(h)


@odd(refused=True)
def write_elements(self: Any, x: Tensor) -> Tensor:
    h = self.inp(x)
    h[:, 0] = 5.0
    return self.head(h)


@odd(refused=True)
def write_data(self: Any, x: Tensor) -> Tensor:
    h = self.inp(x)
    h.data = self.shift.expand(x.shape[0], 8)
    return self.head(h)


@odd(refused=True)
def add_to_data(self: Any, x: Tensor) -> Tensor:
    h = self.inp(x)
    h.data += 3
    return self.head(h)


@odd(refused=True)
def method_in_place(self: Any, x: Tensor) -> Tensor:
    h = self.inp(x)
    h.add_(2)
    return self.head(h)


@odd(refused=True)
def copy_into_it(self: Any, x: Tensor) -> Tensor:
    h = self.inp(x)
    h.copy_(self.mid(x))
    return self.head(h)


@odd(refused=True)
def relu_of_a_tensor_used_again(self: Any, x: Tensor) -> Tensor:
    h = self.inp(x)
    return self.head(F.relu(h, inplace=True) + h)


@odd(refused=True)
def relu_layer_behind_an_identity(self: Any, x: Tensor) -> Tensor:
    h = self.inp(x)
    return self.head(self.overwrite(self.identity(h)) - h)


@odd(refused=True)
def relu_behind_dropout(self: Any, x: Tensor) -> Tensor:
    h = self.inp(x)
    kept = self.drop(h)
    torch.relu_(kept)
    return self.head(h)


@odd(refused=True)
def relu_whose_answer_is_ignored(self: Any, x: Tensor) -> Tensor:
    h = self.inp(x)
    self.overwrite(h)
    return self.head(h)


@odd(refused=False)
def relu_layer_used_twice(self: Any, x: Tensor) -> Tensor:
    return self.head(self.overwrite(self.back(self.overwrite(self.inp(x)))))


@odd(refused=True)
def positional_inplace(self: Any, x: Tensor) -> Tensor:
    h = self.inp(x)
    return self.head(F.leaky_relu(h, 0.1, True) + h)


@odd(refused=False)
def writes_over_its_input(self: Any, x: Tensor) -> Tensor:
    x += 0.5
    return self.head(F.relu(self.inp(x)))


@odd(refused=True)
def writes_over_its_input_and_reads_it(self: Any, x: Tensor) -> Tensor:
    y = x
    y += 0.5
    return self.head(self.inp(x) + self.mid(y))


@odd(refused=True)
def out_is_a_buffer(self: Any, x: Tensor) -> Tensor:
    return self.head(torch.add(self.inp(x), 1.0, out=self.shift.new_zeros(x.shape[0], 8)))


@odd(refused=True)
def out_is_a_constant_tensor(self: Any, x: Tensor) -> Tensor:
    torch.mul(self.shift, 2.0, out=self.shift)
    return self.head(self.inp(x) + self.shift)


@odd(refused=True)
def out_is_a_free_tensor(self: Any, x: Tensor) -> Tensor:
    torch.mul(self.free, 1.01, out=self.free)
    return self.head(self.inp(x) + self.free)


# ------------------------------------------------------------------------------------------------------ changes itself


@odd(refused=True)
def buffer_in_place(self: Any, x: Tensor) -> Tensor:
    self.shift.add_(0.01)
    return self.head(self.inp(x) + self.shift)


@odd(refused=True)
def buffer_by_assignment(self: Any, x: Tensor) -> Tensor:
    self.shift += 0.01
    return self.head(self.inp(x) + self.shift)


@odd(refused=True)
def buffer_of_steps(self: Any, x: Tensor) -> Tensor:
    self.steps = self.steps + 1
    return self.head(self.inp(x))


@odd(refused=True)
def parameter_data(self: Any, x: Tensor) -> Tensor:
    self.head.bias.data.add_(1e-3)
    return self.head(self.inp(x))


@odd(refused=True)
def free_tensor_in_place(self: Any, x: Tensor) -> Tensor:
    self.free.mul_(1.0001)
    return self.head(self.inp(x) * self.free)


@odd(refused=True)
def tensor_in_a_list(self: Any, x: Tensor) -> Tensor:
    self.listed[0].mul_(1.0001)
    return self.head(self.inp(x) * self.listed[0])


@odd(refused=True)
def number_in_a_dictionary(self: Any, x: Tensor) -> Tensor:
    self.options["scale"] *= 1.0001
    return self.head(self.inp(x) * self.options["scale"])


@odd(refused=True)
def python_counter(self: Any, x: Tensor) -> Tensor:
    self.calls += 1
    y = self.head(self.inp(x))
    return y if self.calls < 100 else -y


@odd(refused=True)
def counting_iterator(self: Any, x: Tensor) -> Tensor:
    y = self.head(self.inp(x))
    return y if next(self.clock) < 100 else -y


@odd(refused=True)
def global_counter(self: Any, x: Tensor) -> Tensor:
    CALLS["count"] += 1
    y = self.head(self.inp(x))
    return y if CALLS["count"] < 10**6 else -y


@odd(refused=True)
def class_counter(self: Any, x: Tensor) -> Tensor:
    type(self).seen = getattr(type(self), "seen", 0) + 1
    y = self.head(self.inp(x))
    return y if type(self).seen < 10**6 else -y


@odd(refused=True)
def remembers_its_features(self: Any, x: Tensor) -> Tensor:
    self.features = self.inp(x)
    return self.head(self.features)


@odd(refused=True)
def adds_its_last_input(self: Any, x: Tensor) -> Tensor:
    y = self.head(self.inp(x) + self.free)
    self.free = torch.ones(8) * 2
    return y


@odd(refused=True)
def global_scratch(self: Any, x: Tensor) -> Tensor:
    SCRATCH[0].add_(1e-3)
    return self.head(self.inp(x) + SCRATCH[0])


@odd_module(refused=True)
def closure_counter() -> nn.Module:
    calls = [0]

    class Closure(Base):
        def forward(self, x: Tensor) -> Tensor:
            calls[0] += 1
            y: Tensor = self.head(self.inp(x))
            return y if calls[0] < 10**6 else -y

    return Closure()


# ------------------------------------------------------------------------------------------------------------- random


@odd(refused=True)
def own_noise(self: Any, x: Tensor) -> Tensor:
    return self.head(self.inp(x) + 1e-3 * torch.randn(8, generator=self.noise))


@odd(refused=True)
def own_python_dice(self: Any, x: Tensor) -> Tensor:
    return self.head(self.inp(x)) * (1 + 1e-6 * self.dice.random())


@odd(refused=True)
def own_numpy_draws(self: Any, x: Tensor) -> Tensor:
    return self.head(self.inp(x)) * (1 + 1e-6 * float(self.draws.random()))


@odd(refused=True)
def global_noise(self: Any, x: Tensor) -> Tensor:
    return self.head(self.inp(x) + 1e-3 * torch.randn(8))


@odd(refused=True)
def numpy_noise(self: Any, x: Tensor) -> Tensor:
    return self.head(self.inp(x)) * (1 + 1e-6 * float(np.random.rand()))


@odd(refused=True)
def python_noise(self: Any, x: Tensor) -> Tensor:
    return self.head(self.inp(x)) * (1 + 1e-6 * random.random())


@odd(refused=True)
def asks_the_time(self: Any, x: Tensor) -> Tensor:
    return self.head(self.inp(x)) * (1 + 1e-9 * (time.time() % 1))


# ---------------------------------------------------------------------------------------------------- mixes or branches


@odd(refused=True)
def batch_size_as_a_number(self: Any, x: Tensor) -> Tensor:
    return self.head(self.inp(x) * x.shape[0])


@odd(refused=True)
def batch_size_as_a_divisor(self: Any, x: Tensor) -> Tensor:
    return self.head(self.inp(x)) / x.size(0)


@odd(refused=False)
def sizes_multiplied(self: Any, x: Tensor) -> Tensor:
    size = x.size(1)
    size *= 2
    return self.head(F.relu(self.inp(x)).view(-1, size))


@odd(refused=True)
def mean_of_the_batch(self: Any, x: Tensor) -> Tensor:
    return self.head(self.inp(x) - self.inp(x).mean(0))


@odd(refused=True)
def sorts_its_batch(self: Any, x: Tensor) -> Tensor:
    return self.head(self.inp(x).sort(0).values)


@odd(refused=True)
def asks_whether_it_is_traced(self: Any, x: Tensor) -> Tensor:
    y = self.head(self.inp(x))
    return y if isinstance(x, fx.Proxy) else y + 1e-2


@odd(refused=True)
def asks_for_gradients(self: Any, x: Tensor) -> Tensor:
    y = self.head(self.inp(x))
    return y + 1e-2 if torch.is_grad_enabled() else y


@odd(refused=True)
def detaches_in_place(self: Any, x: Tensor) -> Tensor:
    h = self.inp(x)
    h.zero_()
    return self.head(h)


# ---------------------------------------------------------------------------------------------------- calls replaced


@odd_module(refused=True)
def replaced_compiled_call() -> nn.Module:
    network = nn.Sequential(nn.Linear(4, 3))
    network._compiled_call_impl = lambda x: nn.Sequential.forward(network, x * 2)
    return network


@odd_module(refused=True)
def replaced_call_of_a_layer() -> nn.Module:
    layer = nn.Linear(4, 3)
    layer._call_impl = lambda x: nn.Linear.forward(layer, x * 2)  # type: ignore[assignment]
    layer._compiled_call_impl = layer._call_impl
    return nn.Sequential(layer)


@odd_module(refused=True)
def own_call() -> nn.Module:
    class Calls(nn.Linear):
        def _call_impl(self, x: Tensor) -> Tensor:
            return self.forward(x * 2)

        __call__ = _call_impl

    return nn.Sequential(Calls(4, 3))


@odd_module(refused=True)
def hooked() -> nn.Module:
    layer = nn.Linear(4, 3)
    layer.register_forward_hook(lambda _, __, y: y * 2)
    return nn.Sequential(layer)


def _normalised(eps: float, variance: float) -> nn.Module:
    norm = nn.BatchNorm1d(4, eps=eps)
    norm.running_var.fill_(variance)  # type: ignore[union-attr]
    return nn.Sequential(norm, nn.Linear(4, 3)).eval()


@odd_module(refused=True)
def batch_norm_with_a_denormal_eps() -> nn.Module:
    return _normalised(1e-40, 0.0)


@odd_module(refused=True)
def batch_norm_with_eps_that_underflows() -> nn.Module:
    return _normalised(1e-300, 0.0)


@odd_module(refused=True)
def batch_norm_with_a_negative_variance() -> nn.Module:
    return _normalised(1e-5, -1.0)


@odd_module(refused=False)
def batch_norm_with_a_small_eps() -> nn.Module:
    return _normalised(1e-30, 0.5)


@odd_module(refused=False)
def explores_elsewhere() -> nn.Module:
    class Explores(Base):
        """As in many examples, the module also plays; its forward draws nothing."""

        def act(self, x: Tensor) -> int:
            return random.randrange(3) if random.random() < 0.1 else int(self(x).argmax())

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.head(F.relu(self.inp(x)))
            return y

    return Explores()


@odd_module(refused=True)
def draws_in_a_method() -> nn.Module:
    class Draws(Base):
        def noise_now(self) -> float:
            return 1e-9 * (time.time() % 1)

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.head(self.inp(x)) * (1 + self.noise_now())
            return y

    return Draws()


@odd_module(refused=False)
def one_layer_twice() -> nn.Module:
    layer = nn.Linear(4, 4)
    return nn.Sequential(layer, nn.ReLU(inplace=True), layer, nn.Tanh(), nn.Linear(4, 3))


class Box:
    """Holds one thing."""

    def __init__(self, content: Any) -> None:
        self.content = content


class Slotted:
    """Holds one number, without a table of attributes."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number = 0.0


@odd_module(refused=True)
def counts_far_away() -> nn.Module:
    class Counts(Base):
        """Its state lies behind eight attributes."""

        def __init__(self) -> None:
            super().__init__()
            self.box = Box(0.0)
            for _ in range(8):
                self.box = Box(self.box)

        def forward(self, x: Tensor) -> Tensor:
            box = self.box
            while isinstance(box.content, Box):
                box = box.content
            box.content += 1e-9
            y: Tensor = self.head(self.inp(x)) * (1 + box.content)
            return y

    return Counts()


@odd_module(refused=True)
def counts_in_a_slot() -> nn.Module:
    class Counts(Base):
        def __init__(self) -> None:
            super().__init__()
            self.slot = Slotted()

        def forward(self, x: Tensor) -> Tensor:
            self.slot.number += 1e-9
            y: Tensor = self.head(self.inp(x)) * (1 + self.slot.number)
            return y

    return Counts()


@odd_module(refused=True)
def counts_in_a_queue() -> nn.Module:
    class Counts(Base):
        def __init__(self) -> None:
            super().__init__()
            self.queue = deque([0.0])

        def forward(self, x: Tensor) -> Tensor:
            self.queue.append(self.queue.pop() + 1e-9)
            y: Tensor = self.head(self.inp(x)) * (1 + self.queue[0])
            return y

    return Counts()


@odd_module(refused=True)
def holds_too_much() -> nn.Module:
    class Holds(Base):
        def __init__(self) -> None:
            super().__init__()
            self.boxes = [Box(number) for number in range(20_000)]

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.head(self.inp(x))
            return y

    return Holds()
