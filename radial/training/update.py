"""One gradient step, for every algorithm: flat parameters in, a gradient out, compiled whole.

An algorithm passes a module that owns its networks and maps (objective, data, noise, coefficients) to a `Loss`. The
phase of the objective's schedules, the backward pass, clipping and the logged terms of the loss are here, once.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from radial.objectives.base import Objective
from radial.training.native import Compiled


class Flat:
    """Named parameters laid end to end in one vector; kernels of convolutions channels last, which is faster."""

    def __init__(self, named: Iterable[tuple[str, Tensor]]) -> None:
        self.shapes = {name: tensor.shape for name, tensor in named}

    def join(self, named: Mapping[str, Tensor]) -> Tensor:
        """The vector (P,), without gradient."""
        parts = [named[name].detach() for name in self.shapes]
        return torch.cat([(part.permute(0, 2, 3, 1) if part.ndim == 4 else part).flatten() for part in parts])

    def split(self, vector: Tensor) -> dict[str, Tensor]:
        """The parameters, as views of the vector."""
        pieces = vector.split([shape.numel() for shape in self.shapes.values()])
        return {name: _shaped(piece, shape) for piece, (name, shape) in zip(pieces, self.shapes.items(), strict=True)}

    @torch.no_grad()
    def write(self, vector: Tensor, module: nn.Module) -> None:
        """Copy the parameters of a vector (P,) into a module."""
        for name, piece in self.split(vector).items():
            module.get_parameter(name).copy_(piece)


def _shaped(piece: Tensor, shape: torch.Size) -> Tensor:
    if len(shape) != 4:
        return piece.view(shape)
    out, into, height, width = shape
    return piece.view(out, height, width, into).permute(0, 3, 1, 2)


# --------------------------------------------------------------------------------------------------------------- update


class Phase(NamedTuple):
    """A stretch of training in which the objective keeps its form: a loss without the terms whose weight is 0."""

    objective: Objective
    run: Compiled
    parts: list[str]  # names of the loss's terms, known once it has run


class Update:
    """Gradient steps on flat parameters (P,) under an objective whose schedules move.

    losses   a module that owns all networks: losses(objective, data, noise, at) → Loss
    trained  its parameters to train, by their names in it

    `move_to` sets the schedules; `step` takes the gradient of some data and records the terms of the loss.
    """

    def __init__(
        self, losses: nn.Module, trained: Mapping[str, Tensor], objective: Objective, *, compile: bool,
        max_grad_norm: float | None,
    ) -> None:  # fmt: skip
        self.losses, self.objective, self.compile, self.max_grad_norm = losses, objective, compile, max_grad_norm
        self.flat = Flat(trained.items())
        self.parameters = self.flat.join(trained)
        self._phases: dict[Objective, Phase] = {}
        self._phase: Phase | None = None
        self._ends: tuple[float | None, ...] = ()
        self.at: dict[str, Tensor] = {}
        self.clock = 0  # the env step of the schedules
        self.together: Callable[..., tuple[Tensor, ...]] | None = None  # takes the steps where several ranks learn
        self._parts: Tensor | None = None  # summed since the last report
        self._count, self._names = 0, list[str]()

    @property
    def compile_seconds(self) -> float:
        """Time spent compiling so far."""
        return sum(phase.run.seconds for phase in self._phases.values())

    def move_to(self, step: int) -> Phase:
        """Set the schedules to an env step. A phase can only end where a coefficient reaches or leaves 0 or 1."""
        # Only then does a term vanish or appear, so `at` need not be called, nor anything compiled, at every step.
        ends = tuple(value if value in (0.0, 1.0) else None for value in self.objective.coefficients(step).values())
        if self._phase is None or ends != self._ends:
            objective, self._ends = self.objective.at(step), ends
            if objective not in self._phases:
                run = Compiled(partial(self._pure, objective), self.compile)
                self._phases[objective] = Phase(objective, run, [])
            self._phase = self._phases[objective]
        self.clock, at = step, self._phase.objective.coefficients(step)
        self.at = {name: self.parameters.new_tensor(value) for name, value in at.items()}
        return self._phase

    def noise(self, like: Tensor, rng: torch.Generator) -> Tensor:
        """Standard normal noise for the objective, (B, draws, *obs), or (0, 0, *obs)."""
        draws = 0 if self._phase is None else self._phase.objective.draws
        shape = (like.shape[0] if draws else 0, draws, *like.shape[1:])
        return torch.randn(shape, generator=rng, device=like.device) if draws else self.parameters.new_empty(shape)

    def step(self, data: Any, noise: Tensor, **own: Any) -> tuple[Tensor, ...]:
        """The outputs of `finish` for a NamedTuple of tensors (B, …), and the loss's own outputs per row."""
        assert self._phase is not None, "move_to comes first"
        run = self.together or self._phase.run
        *outputs, parts = run(parameters=self.parameters, data=data, noise=noise, at=self.at, **own)
        if self._names != self._phase.parts:  # a new phase has other terms: restart their means
            self._names, self._parts, self._count = self._phase.parts, None, 0
        self._parts, self._count = parts if self._parts is None else self._parts + parts, self._count + 1
        return tuple(outputs)

    def _pure(
        self, objective: Objective, parameters: Tensor, data: Any, noise: Tensor, at: Mapping[str, Tensor], **own: Any
    ) -> tuple[Tensor, ...]:
        """The compiled function: gradient, clipping, `finish`; the terms of the loss (K,) come last."""
        gradient, parts, *rows = self.share(objective, parameters, data, noise, at, own)
        return *self.finish(parameters, self.clipped(gradient), own), *rows, parts

    def share(
        self, objective: Objective, parameters: Tensor, data: Any, noise: Tensor, at: Mapping[str, Tensor],
        own: Mapping[str, Any],
    ) -> tuple[Tensor, ...]:  # fmt: skip
        """The gradient (P,) of some data, the terms of the loss (K,) and its outputs per row."""
        found = [self._gradient(objective, parameters, *piece, at, own) for piece in self.pieces(data, noise)]
        # Pieces have one size and every loss is a mean, so the mean of their gradients is that of the batch.
        return found[0] if len(found) == 1 else tuple(torch.stack(each).mean(0) for each in zip(*found, strict=True))

    def clipped(self, gradient: Tensor) -> Tensor:
        """The gradient, no longer than `max_grad_norm`."""
        if self.max_grad_norm is None:
            return gradient
        return gradient * (self.max_grad_norm / (torch.linalg.vector_norm(gradient) + 1e-6)).clamp(max=1.0)

    def _gradient(
        self, objective: Objective, parameters: Tensor, data: Any, noise: Tensor, at: Mapping[str, Tensor],
        own: Mapping[str, Any],
    ) -> tuple[Tensor, ...]:  # fmt: skip
        with torch.enable_grad():
            leaf = parameters.detach().requires_grad_(True)  # one flat leaf: one gradient (P,) for Adam and clipping
            loss = functional_call(self.losses, self.named(leaf, own), (objective, data, noise, at))
            (gradient,) = torch.autograd.grad(loss.total, leaf)
        self._phases[objective].parts[:] = list(loss.parts)
        return gradient, torch.stack(list(loss.parts.values())), *loss.rows

    def named(self, leaf: Tensor, own: Mapping[str, Any]) -> dict[str, Tensor]:
        """The tensors that replace parameters of `losses`; `own` holds the keyword arguments of `step`."""
        return self.flat.split(leaf)

    def pieces(self, data: Any, noise: Tensor) -> list[tuple[Any, Tensor]]:
        """The data in pieces whose gradients are taken one after the other, each with its noise."""
        return [(data, noise)]

    def finish(self, parameters: Tensor, gradient: Tensor, own: Mapping[str, Any]) -> tuple[Tensor, ...]:
        """Return the gradient itself; an algorithm may override this to compile its optimiser too."""
        return (gradient,)

    def report(self) -> dict[str, float]:
        """Means of the loss's terms since the last report; raises if one is not finite."""
        if self._parts is None:
            return {}
        metrics = dict(zip(self._names, (self._parts / self._count).tolist(), strict=True))
        stop_if_not_finite(metrics)
        self._parts, self._count = None, 0
        return metrics

    def check_weights(self) -> None:
        """Raise if a weight is not finite."""
        stop_if_not_finite({"the largest weight": float(self.parameters.abs().max())})


def stop_if_not_finite(metrics: Mapping[str, float]) -> None:
    """Raise `FloatingPointError` that names the first value that is NaN or infinite."""
    for name, value in metrics.items():
        if not math.isfinite(value):
            raise FloatingPointError(f"{name} is {value} after an update: the training has diverged")
