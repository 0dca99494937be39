"""Backward substitution: from linear forms of a node to a lower bound of them over the ball.

Only lower bounds are computed. An upper bound of r·y is minus the lower bound of (−r)·y, so one direction serves both.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from radial.bounds.graph import Node, Program
from radial.bounds.interval import compiling
from radial.core.data import Bounds

Stop = Callable[[Node], bool]


def never(node: Node) -> bool:
    """Substitute all the way to the input."""
    return False


def at_nonlinear(node: Node) -> bool:
    """Stop before the first inequality: the remaining form is exact up to the intervals found there."""
    return node.op is not None and not node.op.affine


def lower_bound(program: Program, target: Node, rows: Tensor, stop: Stop = never) -> Tensor:
    """A lower bound of each linear form of a node's value over the whole ball.

    rows  (B, K, *shape), or (1, K, *shape) if shared        returns  (B, K)

    Invariant: rows·target ≥ Σ_nodes pending·node + total. Each turn replaces the last pending node by its inputs
    (CROWN, Zhang et al. 2018), so a node is visited once, after everything that uses it.
    """
    pending: dict[Node, _Form] = {target: _Form(rows, None)}
    total: Tensor = rows.new_zeros(1, 1)
    last = program.nodes.index(target)
    for node in reversed(program.nodes[: last + 1]):
        if node not in pending:
            continue
        form, repeat = _distinct(pending.pop(node))
        if stop(node):
            total = total + _spread(_over_interval(form, node), repeat)
            continue
        if node.error is not None:
            # The computed value may lie up to `error` from the exact one, so the form may lose Σ|form|·error.
            total = total - _spread(_per_row(form.abs() * node.error.unsqueeze(1)), repeat)
        if node.op is None:
            # At the input the form is linear in x, and its minimum is exact: rows·c − ε·‖rows‖_q unless clipped.
            total = total + _spread(program.ball.minimum(form), repeat)
            continue
        forms, constant = node.op.backward(form, *(used.interval for used in node.inputs))
        total = total if constant is None else total + _spread(constant, repeat)
        for used, part in zip(node.inputs, forms, strict=True):
            pending[used] = _add(pending[used], _Form(part, repeat)) if used in pending else _Form(part, repeat)
    return total.expand(program.ball.center.shape[0], rows.shape[1])


class _Form(NamedTuple):
    """Coefficients (B, distinct, *shape), and which of them each of the K rows is; None: each its own."""

    rows: Tensor
    repeat: Tensor | None  # (K,)


def _distinct(form: _Form) -> _Form:
    """Drop repeated rows: in a dueling network the form of every action has the same coefficients for the state value.

    Only rows that do not depend on a parameter are dropped: equal rows may still have different gradients.
    """
    rows, repeat = form
    if repeat is not None or rows.requires_grad or rows.shape[0] != 1 or rows.numel() > 4096:
        return form
    if compiling():  # which rows are equal is not known yet
        return form
    unique, place = rows[0].flatten(1).unique(dim=0, return_inverse=True)
    if 2 * unique.shape[0] > rows.shape[1]:
        return form
    return _Form(unique.view(1, -1, *rows.shape[2:]), place)


def _add(a: _Form, b: _Form) -> _Form:
    return _Form(_spread(a.rows, a.repeat) + _spread(b.rows, b.repeat), None)


def _spread(values: Tensor, repeat: Tensor | None) -> Tensor:
    return values if repeat is None else values[:, repeat]


def _over_interval(form: Tensor, node: Node) -> Tensor:
    # The minimum of a linear form over a box: form·center − |form|·radius.
    flat = form.flatten(2)
    center, radius = node.interval.center.flatten(1), node.interval.radius.flatten(1)
    if flat.shape[0] == 1:
        return center @ flat[0].T - radius @ flat[0].abs().T
    return torch.einsum("bkn,bn->bk", flat, center) - (flat.abs() @ radius.unsqueeze(-1)).squeeze(-1)


def _per_row(products: Tensor) -> Tensor:
    return products.flatten(2).sum(2)


def enclose(program: Program, target: Node, rows: Tensor | None, stop: Stop, memory: int) -> Bounds:
    """Lower and upper bounds of linear forms of a node, or of the node itself when rows is None.

    memory  bytes the largest coefficient tensors of one pass may take together; more forms than that go in chunks
    """
    shape = target.interval.shape
    total = shape.numel() if rows is None else rows.shape[1]
    chunk = rows_per_pass(program, target, memory)
    lower, upper = [], []
    for start in range(0, total, chunk):
        stop_at = min(start + chunk, total)
        part = _identity(target, start, stop_at) if rows is None else rows[:, start:stop_at]
        both = lower_bound(program, target, torch.cat([part, -part], dim=1), stop)
        lower.append(both[:, : stop_at - start])
        upper.append(-both[:, stop_at - start :])
    if not lower:
        return Bounds(*(program.ball.center.new_zeros(program.ball.center.shape[0], 0) for _ in range(2)))
    bounds = Bounds(torch.cat(lower, dim=1), torch.cat(upper, dim=1))
    if rows is None:
        bounds = Bounds(bounds.lower.view(-1, *shape), bounds.upper.view(-1, *shape))
    return bounds


def rows_per_pass(program: Program, target: Node, memory: int) -> int:
    """How many forms fit into the memory: a pass holds about six coefficient tensors of the widest node, twice."""
    widest = max(node.interval.shape.numel() for node in program.nodes[: program.nodes.index(target) + 1])
    batch = max(1, program.ball.center.shape[0])
    return max(1, memory // (12 * batch * widest * program.ball.center.element_size()))


def _identity(target: Node, start: int, stop: int) -> Tensor:
    """Rows start…stop of the identity on the node's elements, shared by the batch: (1, stop − start, *shape)."""
    shape = target.interval.shape
    center = target.interval.center
    rows = torch.zeros(stop - start, shape.numel(), dtype=center.dtype, device=center.device)
    rows[torch.arange(stop - start), torch.arange(start, stop)] = 1
    return rows.view(1, stop - start, *shape)
